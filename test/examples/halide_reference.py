"""What the definitions of examples/halide/ compute, in NumPy.

Each function takes the inputs by name and gives the output; arithmetic in float64 where the definition's is in float.
"""
import numpy as np


def rows(a, index):
    return np.take(a, index, axis=-2)


def columns(a, index):
    return np.take(a, index, axis=-1)


def clamped(a, dy, dx):
    """The image moved by (dy, dx), its edges repeated."""
    h, w = a.shape[-2:]
    return columns(rows(a, np.clip(np.arange(h) + dy, 0, h - 1)), np.clip(np.arange(w) + dx, 0, w - 1))


def blur(In):
    a = In.astype(np.uint32)
    x = ((a[:, :-2] + a[:, 1:-1] + a[:, 2:]) & 0xffff) // 3
    return (((x[:-2] + x[1:-1] + x[2:]) & 0xffff) // 3).astype(np.uint16)


def matmul(A, B):
    return A.astype(np.float64) @ B


def conv_layer(In, Filter, Bias):
    kh, kw = Filter.shape[:2]
    h, w = In.shape[1] - kh + 1, In.shape[2] - kw + 1
    out = np.zeros((In.shape[0], h, w, Filter.shape[3]))
    for y in range(kh):
        for x in range(kw):
            out += In[:, y:y + h, x:x + w].astype(np.float64) @ Filter[y, x]
    return np.maximum(out + Bias, 0)


def gray_of(In):
    a = In.astype(np.float64)
    return 0.299 * a[0] + 0.587 * a[1] + 0.114 * a[2]


def harris(In):
    g = gray_of(In)
    h, w = g.shape

    def at(a, y, x):
        return a[y:a.shape[0] - 2 + y, x:a.shape[1] - 2 + x]

    iy = sum(k * (at(g, 2, x) - at(g, 0, x)) for x, k in enumerate((1 / 12, 1 / 6, 1 / 12)))
    ix = sum(k * (at(g, y, 2) - at(g, y, 0)) for y, k in enumerate((1 / 12, 1 / 6, 1 / 12)))

    def box(a):
        return sum(at(a, y, x) for y in range(3) for x in range(3))

    sxx, syy, sxy = box(ix * ix), box(iy * iy), box(ix * iy)
    return sxx * syy - sxy * sxy - 0.04 * (sxx + syy) ** 2


def unsharp(In):
    k = np.exp(-0.5 * (np.arange(4) / 1.5) ** 2) / (np.sqrt(2 * np.pi) * 1.5)
    g = gray_of(In)
    by = k[0] * g + sum(k[d] * (clamped(g, -d, 0) + clamped(g, d, 0)) for d in (1, 2, 3))
    bx = k[0] * by + sum(k[d] * (clamped(by, 0, -d) + clamped(by, 0, d)) for d in (1, 2, 3))
    return In * (2 * g - bx) / g


def max_filter(In):
    out = np.full(In.shape, -np.inf)
    for dx in range(-26, 27):
        half = int(np.sqrt(26.25 ** 2 - dx ** 2))
        for dy in range(-half, half + 1):
            out = np.maximum(out, clamped(In, dy, dx))
    return out


def stencil_chain(In):
    a = In.astype(np.uint32)
    for _ in range(8):
        a = sum(clamped(a, i - 2, j - 2) * (i + 3 * j + 1) for i in range(5) for j in range(5)) & 0xffff
    return a.astype(np.uint16)


def bilateral_grid(In):
    h, w = In.shape
    v = np.clip(In, 0, 1)
    edge = v[np.clip(np.arange(h + 48) - 20, 0, h - 1)][:, np.clip(np.arange(w + 48) - 20, 0, w - 1)]
    cell = (edge * np.float32(10) + np.float32(0.5)).astype(np.int32) + 2
    gh, gw = (h + 48) // 8, (w + 48) // 8
    grids = []
    for weight in (edge.astype(np.float64), np.ones(edge.shape)):
        g = np.zeros((16, gh, gw))
        y, x = np.mgrid[:8 * gh, :8 * gw]
        np.add.at(g, (cell[:8 * gh, :8 * gw], y // 8, x // 8), weight[:8 * gh, :8 * gw])
        for axis in (0, 2, 1):
            n = g.shape[axis] - 4
            g = sum(k * np.take(g, np.arange(n) + i, axis=axis) for i, k in enumerate((1, 4, 6, 4, 1)))
        grids.append(g)
    y, x = np.mgrid[:h, :w]
    bright = np.clip(In, 0, 1) * np.float32(10)
    z = bright.astype(np.int32)
    fz, fy, fx = bright - z, (y % 8) / 8, (x % 8) / 8

    def sample(g):
        def lerp(a, b, f):
            return a + f * (b - a)

        def plane(zz):
            def row(yy):
                return lerp(g[zz, yy, x // 8], g[zz, yy, x // 8 + 1], fx)
            return lerp(row(y // 8), row(y // 8 + 1), fy)
        return lerp(plane(z), plane(z + 1), fz)
    return sample(grids[0]) / sample(grids[1])


def interpolate(In):
    a = In.astype(np.float64)
    levels = [np.concatenate([a[:3] * a[3], a[3:]])]

    def down(g):
        def half(g, axis):
            n = g.shape[axis]
            m = np.arange((n + 1) // 2) * 2
            return (np.take(g, np.maximum(m - 1, 0), axis) + 2 * np.take(g, m, axis)
                    + np.take(g, np.minimum(m + 1, n - 1), axis)) / 4
        return half(half(g, 2), 1)

    def twice(g, axis, n):
        i = np.arange(n)
        return (np.take(g, i // 2, axis) + np.take(g, np.minimum((i + 1) // 2, g.shape[axis] - 1), axis)) / 2
    for _ in range(5):
        levels.append(down(levels[-1]))
    out = levels[5]
    for fine in reversed(levels[:5]):
        up = twice(twice(out, 2, fine.shape[2]), 1, fine.shape[1])
        out = fine + (1 - fine[3]) * up
    return out[:3] / out[3]


def local_laplacian(In, alpha, beta):
    def half(g, axis):
        n = g.shape[axis]
        m = np.arange((n + 1) // 2) * 2
        return (np.take(g, np.maximum(m - 1, 0), axis)
                + 3 * (np.take(g, m, axis) + np.take(g, np.minimum(m + 1, n - 1), axis))
                + np.take(g, np.minimum(m + 2, n - 1), axis)) / 8

    def down(g):
        return half(half(g, 2), 1)

    def twice(g, axis, n):
        i = np.arange(n)
        near = np.clip(i // 2 - 1 + 2 * (i % 2), 0, g.shape[axis] - 1)
        return 0.25 * np.take(g, near, axis) + 0.75 * np.take(g, i // 2, axis)

    def up(g, like):
        return twice(twice(g, 2, like.shape[2]), 1, like.shape[1])

    def pick(stack, g):
        v = g[0] * 7
        i = np.clip(v.astype(np.int32), 0, 6)
        y, x = np.mgrid[:v.shape[0], :v.shape[1]]
        return (stack[i, y, x] + (v - i) * (stack[i + 1, y, x] - stack[i, y, x]))[None]
    gray = gray_of(In)[None]
    k = np.arange(8)[:, None, None]
    d = gray * 7 - k
    g = [beta * (gray - k / 7) + k / 7 + alpha * d * np.exp(-0.5 * d * d)]
    image = [gray]
    for _ in range(3):
        g.append(down(g[-1]))
        image.append(down(image[-1]))
    out = pick(g[3], image[3])
    for j in (2, 1, 0):
        laplacian = pick(g[j] - up(g[j + 1], g[j]), image[j])
        out = up(out, laplacian) + laplacian
    return out * (In + 0.01) / (gray + 0.01)


def histogram(In):
    a = In.astype(np.float32)
    luma = np.clip(np.float32(0.299) * a[0] + np.float32(0.587) * a[1] + np.float32(0.114) * a[2], 0, 255).astype(np.uint8)
    cr, cb = (a[0] - luma) * 0.713 + 128, (a[2] - luma) * 0.564 + 128
    cdf = np.cumsum(np.bincount(luma.ravel(), minlength=256))
    eq = np.clip(cdf[luma] * (255.0 / luma.size), 0, 255)
    out = np.stack([eq + (cr - 128) * 1.4, eq - 0.343 * (cb - 128) - 0.711 * (cr - 128), eq + 1.765 * (cb - 128)])
    return np.clip(out, 0, 255)  # the definition cuts the fraction off
