#!/usr/bin/env python3
"""Compares operators over windows and taps with naive evaluations that add up the terms of each element alone: infinity and NaN
reach the elements that have a term of them, and no other. An implementation that multiplies by zeros of its own spreads them.

usage: reach.py KILN [PATTERN]      in the Python environment of `make test`
"""
import fnmatch
import itertools
import math
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import batch

RNG = numpy.random.default_rng(27)
CASES = []
F32 = numpy.float32


def case(name, op, inputs, want, **more):
    CASES.append(batch.Case(f"{name}_{len(CASES)}", op, inputs, [want.astype(F32)], tolerance=(1e-5, 1e-4), **more))


def integer(low, high):
    return int(RNG.integers(low, high + 1))


def numbers(shape):
    """Small integers, so that sums are exact."""
    return RNG.integers(1, 5, shape).astype(F32) * RNG.choice([-1, 1], shape).astype(F32)


def spoiled(shape, n=1):
    x = numbers(shape)
    flat = x.reshape(-1)
    flat[RNG.integers(0, flat.size, n)] = RNG.choice([math.inf, -math.inf, math.nan], n)
    return x


def indices(*extents):
    return itertools.product(*(range(e) for e in extents))


# --- convolutions ---

def transposed(x, w, group, strides, pads, dilations, output_padding):
    n = x.ndim - 2
    per_group, group_in, kernel = w.shape[1], x.shape[1] // group, w.shape[2:]
    full = [(x.shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + output_padding[i] for i in range(n)]
    y = numpy.zeros((x.shape[0], group * per_group, *full))
    for at in indices(*x.shape[2:]):
        for k in indices(*kernel):
            to = tuple(at[i] * strides[i] + k[i] * dilations[i] for i in range(n))
            for g in range(group):
                term = x[(slice(None), slice(g * group_in, (g + 1) * group_in)) + at].astype(float) @ w[(slice(g * group_in, (g + 1) * group_in), slice(None)) + k]
                y[(slice(None), slice(g * per_group, (g + 1) * per_group)) + to] += term
    cut = tuple(slice(pads[i], full[i] - pads[n + i]) for i in range(n))
    return y[(slice(None), slice(None)) + cut]


def define_conv_transpose():
    for i in range(60):
        n = [1, 2, 2, 3][integer(0, 3)]
        kernel = [integer(1, 5 if n < 3 else 3) for _ in range(n)]
        strides, dilations = [integer(1, 4 if n < 3 else 2) for _ in range(n)], [integer(1, 3) if RNG.random() < 0.3 else 1 for _ in range(n)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        pads = [integer(0, (r - 1) // 2) for r in reach] * 2
        more = [integer(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
        group = [1, 1, 2, 3][integer(0, 3)]
        x = spoiled([integer(1, 2), group * integer(1, 2), *(integer(1, 5) for _ in range(n))], integer(1, 2))
        w = numbers([x.shape[1], integer(1, 3), *kernel])
        want = transposed(x, w, group, strides, pads, dilations, more)
        if 0 in want.shape:
            continue
        bias = numbers([want.shape[1]])
        case("conv_transpose", "ConvTranspose", [x, w, bias], want + bias.reshape(-1, *[1] * n), constant=[1] if i % 2 else [], group=group, strides=strides,
             pads=pads, dilations=dilations, output_padding=more)
    for size, channels in ((16, 8), (9, 16)):  # of the usual geometry, and of some size
        x, w = spoiled([1, channels, size, size], 3), numbers([channels, 5, 3, 3])
        case("conv_transpose_upsampling", "ConvTranspose", [x, w], transposed(x, w, 1, [2, 2], [1] * 4, [1, 1], [1, 1]), constant=[1], strides=[2, 2],
             pads=[1] * 4, output_padding=[1, 1])


def convolved(x, w, group, strides, pads, dilations):
    n = x.ndim - 2
    group_in, per_group, kernel = w.shape[1], w.shape[0] // group, w.shape[2:]
    out = [(x.shape[2 + i] + pads[i] + pads[n + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)]
    y = numpy.zeros((x.shape[0], w.shape[0], *out))
    for o in indices(*out):
        for k in indices(*kernel):
            at = tuple(o[i] * strides[i] + k[i] * dilations[i] - pads[i] for i in range(n))
            if any(not 0 <= a < e for a, e in zip(at, x.shape[2:])):
                continue
            for g in range(group):
                term = x[(slice(None), slice(g * group_in, (g + 1) * group_in)) + at].astype(float) @ w[(slice(g * per_group, (g + 1) * per_group), slice(None)) + k].T
                y[(slice(None), slice(g * per_group, (g + 1) * per_group)) + o] += term
    return y


def define_conv():
    for i in range(24):
        n = [1, 2, 2, 3][integer(0, 3)]
        kernel, strides = [integer(1, 3) for _ in range(n)], [integer(1, 3) for _ in range(n)]
        dilations = [integer(1, 3) if RNG.random() < 0.4 else 1 for _ in range(n)]
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations)]
        pads = [integer(0, r - 1) for r in reach] * 2
        group = [1, 1, 2, 4][integer(0, 3)]
        x = spoiled([integer(1, 2), group * integer(1, 2), *(r + integer(0, 5) for r in reach)], integer(1, 2))
        w = numbers([group * integer(1, 3), x.shape[1] // group, *kernel])
        case("conv", "Conv", [x, w], convolved(x, w, group, strides, pads, dilations), constant=[1] if i % 2 else [], group=group, strides=strides, pads=pads,
             dilations=dilations)
    x, w = spoiled([1, 16, 20, 20], 2), numbers([32, 16, 3, 3])  # where Winograd's algorithm may be chosen
    case("conv_3x3", "Conv", [x, w], convolved(x, w, 1, [1, 1], [1] * 4, [1, 1]), constant=[1], pads=[1] * 4)


# --- pools ---

def pooled(x, kernel, strides, pads, of):
    n = len(kernel)
    out = [(x.shape[2 + i] + pads[i] + pads[n + i] - kernel[i]) // strides[i] + 1 for i in range(n)]
    y = numpy.zeros((*x.shape[:2], *out))
    for o in indices(*out):
        window = tuple(slice(max(o[i] * strides[i] - pads[i], 0), o[i] * strides[i] - pads[i] + kernel[i]) for i in range(n))
        y[(slice(None), slice(None)) + o] = of(x[(slice(None), slice(None)) + window].astype(float).reshape(*x.shape[:2], -1))
    return y


def define_pools():
    for i in range(30):
        n = [1, 2, 2, 3][i % 4]
        kernel, strides = [integer(1, 4) for _ in range(n)], [integer(1, 3) for _ in range(n)]
        pads = [integer(0, k // 2) for k in kernel] * 2
        x = spoiled([integer(1, 2), integer(1, 3), *(k + integer(0, 6) for k in kernel)], integer(1, 3))
        size, more = math.prod(kernel), {"kernel_shape": kernel, "strides": strides, "pads": pads}
        case("average_pool", "AveragePool", [x], pooled(x, kernel, strides, pads, lambda e: e.mean(-1)), **more)
        case("average_pool_of_padding", "AveragePool", [x], pooled(x, kernel, strides, pads, lambda e: e.sum(-1) / size), count_include_pad=1, **more)
        case("lp_pool", "LpPool", [x], pooled(x, kernel, strides, pads, lambda e: numpy.sqrt((e * e).sum(-1))), p=2, **more)
        x = numpy.where(numpy.isnan(x), F32(-math.inf), x)
        case("max_pool", "MaxPool", [x], pooled(x, kernel, strides, pads, lambda e: e.max(-1)), **more)
        x = numpy.full_like(x, -math.inf)
        case("max_pool_of_the_least", "MaxPool", [x], pooled(x, kernel, strides, pads, lambda e: e.max(-1)), **more)


def define_lrn():
    for size in (1, 2, 3, 5):
        x = spoiled([2, 7, 3, 2], 2).astype(float)
        before, y = (size - 1) // 2, numpy.zeros(x.shape)
        for c in range(7):
            squares = (x[:, max(c - before, 0):c + size - before] ** 2).sum(1)
            y[:, c] = x[:, c] / (1 + 1e-4 / size * squares) ** 0.75
        case("lrn", "LRN", [x.astype(F32)], y, size=size)


# --- interpolation ---

def kernel_of(mode):
    def cubic(d, a=-0.75):
        d = abs(d)
        return ((a + 2) * d - (a + 3)) * d * d + 1 if d <= 1 else ((a * d - 5 * a) * d + 8 * a) * d - 4 * a if d < 2 else 0
    return cubic if mode == "cubic" else lambda d: max(1 - abs(d), 0)


def resized(x, axis, out, mode, exclude):
    """One axis: places whose weight is not zero, those outside at the edge or left out."""
    extent = x.shape[axis]
    scale, weight, rows = out / extent, kernel_of(mode), []
    stretch = min(scale, 1)
    rows_of = numpy.moveaxis(x, axis, 0)
    for o in range(out):
        place = (o + 0.5) / scale - 0.5
        far = math.ceil(2 / stretch) + 1
        taps = [(i, weight((i - place) * stretch)) for i in range(math.floor(place) - far, math.floor(place) + far + 1)]
        taps = [(i, w) for i, w in taps if abs(w) > 1e-9 and (not exclude or 0 <= i < extent)]
        rows.append(sum(w * rows_of[min(max(i, 0), extent - 1)] for i, w in taps) / sum(w for _, w in taps))
    return numpy.moveaxis(numpy.array(rows), 0, axis)


def define_resize():
    for i in range(24):
        mode, exclude = ["linear", "cubic"][i % 2], i % 3 == 0
        x = spoiled([1, 2, integer(6, 12), integer(6, 12)])
        out = [integer(2, e - 1) for e in x.shape[2:]]
        with numpy.errstate(invalid="ignore"):
            want = resized(resized(x.astype(float), 2, out[0], mode, exclude), 3, out[1], mode, exclude)
        case(f"resize_{mode}", "Resize", [x, None, None, numpy.array([1, 2, *out])], want, constant=[3], mode=mode, antialias=1, exclude_outside=int(exclude))


# --- rows of what is padded: a kernel that holds rows must not read beside the tensor ---

def padded_rows(kiln):
    """What is wrong, by the name of the case, on a simulated GPU, which finds what is read out of range."""
    wrong = {}
    helper = onnx.helper
    for op in ("LogSoftmax", "Softmax", "LayerNormalization"):
        for pads in ([0, 0, 2, 2, 2, 1, 0, 1], [0, 0, 0, 3, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1, 1, 0]):
            shape = [2, 6, 14, 8]
            row = shape[3] + pads[3] + pads[7]
            last = ["p", "s"] if op == "LayerNormalization" else ["p"]
            nodes = [helper.make_node("Pad", ["x", "pads"], ["p"]), helper.make_node(op, last, ["y"], axis=-1)]
            constants = [onnx.numpy_helper.from_array(numpy.array(pads), "pads"), onnx.numpy_helper.from_array(numpy.ones([row], F32), "s")]
            graph = helper.make_graph(nodes, "rows", [helper.make_tensor_value_info("x", 1, shape)], [helper.make_tensor_value_info("y", 1, None)], constants)
            with tempfile.TemporaryDirectory() as folder:
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), f"{folder}/m.onnx")
                command = [kiln, "run", f"{folder}/m.onnx", "--target=sim:cuda:sm_90a", "--dtype=f16", "--reference", "--no-cache"]
                done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode:
                wrong[f"{op} of rows padded by {pads}"] = (done.stderr + done.stdout)[-300:]
    return wrong


def main():
    kiln, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
    with numpy.errstate(invalid="ignore"):
        for define in (define_conv_transpose, define_conv, define_pools, define_lrn, define_resize):
            define()
    chosen = [c for c in CASES if fnmatch.fnmatch(c.name, pattern)]
    wrong = batch.run(kiln, chosen) | padded_rows(kiln)
    return batch.report(wrong, len(chosen) + 9)


if __name__ == "__main__":
    sys.exit(main())
