"""What takes values between elements: Resize (linear, cubic), GridSample, RoiAlign, a sample at a time. Places are multiples of small
powers of two where a step depends on them, so that they are exact in every order. Nearest Resize is in exact.py.
"""
import itertools
import math

import numpy

from naive_data import F32, I64, RNG, case, one_of

TOLERANCE = (1e-5, 2e-5)


# --- Resize-10..19: along one axis after the other, a sum of taps beside the place ---

def cubic(d, a):
    d = abs(d)
    if d <= 1:
        return ((a + 2) * d - (a + 3)) * d * d + 1
    return (((d - 5) * d + 8) * d - 4) * a if d < 2 else 0.0


def weight(mode, d, a):
    return max(0.0, 1 - abs(d)) if mode == "linear" else cubic(d, a)


def source(mode, o, n_in, n_out, scale, region):
    length = scale * n_in
    if mode == "asymmetric":
        return o / scale
    if mode == "align_corners":
        return o * (n_in - 1) / (length - 1) if n_out > 1 else 0.0
    if mode == "half_pixel_symmetric":
        return n_in / 2 * (1 - n_out / length) + (o + 0.5) / scale - 0.5
    if mode == "tf_crop_and_resize":
        start, end = region
        return start * (n_in - 1) + o * (end - start) * (n_in - 1) / (n_out - 1) if n_out > 1 else 0.5 * (start + end) * (n_in - 1)
    return 0.0 if mode == "pytorch_half_pixel" and n_out <= 1 else (o + 0.5) / scale - 0.5


def resized_axis(x, axis, n_out, how, region):
    rows, n_in = numpy.moveaxis(x, axis, -1), x.shape[axis]
    scale, out = n_out / n_in, []
    narrow = min(scale, 1.0) if how["antialias"] else 1.0
    reach = math.ceil((1 if how["mode"] == "linear" else 2) / narrow) + 1
    for o in range(n_out):
        place = source(how["coordinates"], o, n_in, n_out, scale, region)
        if how["coordinates"] == "tf_crop_and_resize" and not 0 <= place <= n_in - 1:
            out.append(numpy.full(rows.shape[:-1], how["beyond"]))
            continue
        taps = [(i, weight(how["mode"], (i - place) * narrow, how["a"])) for i in range(math.floor(place) - reach, math.floor(place) + reach + 1)]
        if how["exclude"]:
            taps = [(i, w) for i, w in taps if 0 <= i < n_in]
        total = sum(w for _, w in taps)
        out.append(sum(rows[..., min(max(i, 0), n_in - 1)] * (w / total) for i, w in taps))
    return numpy.moveaxis(numpy.stack(out, -1), -1, axis)


def define_resize():
    coordinates = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    for mode, coordinate in itertools.product(("linear", "cubic"), coordinates):
        for k in range(10):
            shape = [int(RNG.integers(1, 12)) for _ in range(one_of(1, 2, 3))]
            sizes = [int(RNG.integers(1, 16)) for _ in shape]
            how = {"mode": mode, "coordinates": coordinate, "antialias": int(k % 3 == 1 and coordinate != "tf_crop_and_resize"),
                   "exclude": int(mode == "cubic" and k % 2), "a": one_of(-0.75, -0.5), "beyond": 10.0}
            region = numpy.array([[0.25] * len(shape), [1.25] * len(shape)], F32) if coordinate == "tf_crop_and_resize" else None
            x = RNG.standard_normal(shape).astype(one_of(F32, numpy.float64))
            want = x.astype(numpy.float64)
            beyond = numpy.zeros(sizes, bool)
            for axis, n in enumerate(sizes):
                if n == shape[axis] and coordinate != "tf_crop_and_resize":
                    continue
                want = resized_axis(want, axis, n, how, None if region is None else region[:, axis].astype(float))
                if region is not None:
                    outside = [not 0 <= source(coordinate, o, shape[axis], n, n / shape[axis], region[:, axis].astype(float)) <= shape[axis] - 1
                               for o in range(n)]
                    beyond |= numpy.array(outside).reshape([-1 if a == axis else 1 for a in range(len(shape))])
            want = numpy.where(beyond, how["beyond"], want).astype(x.dtype)
            case(f"resize_{mode}_{coordinate}", "Resize", [x, None if region is None else region.reshape(-1), None, numpy.array(sizes, I64)], [want],
                 constant=[1, 3], mode=mode, coordinate_transformation_mode=coordinate, cubic_coeff_a=how["a"], extrapolation_value=10.0,
                 antialias=how["antialias"], exclude_outside=how["exclude"], tolerance=TOLERANCE, opset=19)


# --- GridSample-16, 20, 22 ---

def inside(i, n, padding, align):
    """The element that place |i| shows; None: a zero."""
    if padding == "border":
        return min(max(i, 0), n - 1)
    if padding == "reflection":
        low, high = (0, n - 1) if align else (-0.5, n - 0.5)
        while not low <= i <= high:
            if high == low:
                return 0
            i = 2 * low - i if i < low else 2 * high - i
        return int(i)
    return i if 0 <= i < n else None


def taps_of(place, n, mode, padding, align):
    """Elements along one axis and their weights."""
    if mode == "nearest":
        chosen = [(int(numpy.rint(place)), 1.0)]
    else:
        base, reach = math.floor(place), 1 if mode == "linear" else 2
        chosen = [(i, weight(mode, place - i, -0.75)) for i in range(base - reach + 1, base + reach + 1)]
    return [(inside(i, n, padding, align), w) for i, w in chosen]


def define_grid_sample():
    for mode, padding, align in itertools.product(("linear", "nearest", "cubic"), ("zeros", "border", "reflection"), (0, 1)):
        for rank in (2, 2, 3):
            if rank == 3 and mode == "cubic":
                continue
            extents, out = ([int(RNG.integers(1, 8)) for _ in range(rank)] for _ in range(2))
            x = RNG.standard_normal([2, 3, *extents]).astype(F32)
            grid = (RNG.integers(-40, 41, [2, *out, rank]) / 16).astype(F32)
            want = numpy.zeros([2, 3, *out])
            for at in numpy.ndindex(2, *out):
                places = grid[at][::-1].astype(float)
                places = [(v + 1) / 2 * (n - 1) if align else ((v + 1) * n - 1) / 2 for v, n in zip(places, extents)]
                axes = [taps_of(p, n, mode, padding, align) for p, n in zip(places, extents)]
                for taps in itertools.product(*axes):
                    if all(i is not None for i, _ in taps):
                        want[(at[0], slice(None)) + at[1:]] += math.prod(w for _, w in taps) * x[(at[0], slice(None)) + tuple(i for i, _ in taps)]
            case(f"grid_sample_{mode}_{padding}_{rank}", "GridSample", [x, grid], [want.astype(F32)], mode=mode, padding_mode=padding,
                 align_corners=align, tolerance=TOLERANCE, opset=20)


# --- RoiAlign-10, 16, 22 ---

def bilinear(y, x, height, width):
    """Elements and their weights; none beyond the image."""
    if y < -1 or y > height or x < -1 or x > width:
        return []
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    rows = [(math.floor(y), 1 - y + math.floor(y)), (min(math.floor(y) + 1, height - 1), y - math.floor(y))]
    columns = [(math.floor(x), 1 - x + math.floor(x)), (min(math.floor(x) + 1, width - 1), x - math.floor(x))]
    return [(i, j, p * q) for i, p in rows for j, q in columns]


def roi_align(x, rois, batch, out, ratio, scale, half, is_max):
    y = numpy.zeros((len(rois), x.shape[1], *out))
    for r, roi in enumerate(rois):
        low = [float(roi[1 - k]) * scale - (0.5 if half else 0) for k in range(2)]
        span = [(float(roi[3 - k]) - float(roi[1 - k])) * scale for k in range(2)]
        span = span if half else [max(s, 1.0) for s in span]
        counts = [ratio or max(math.ceil(span[k] / out[k]), 0) for k in range(2)]
        for p in numpy.ndindex(*out):
            found = []
            for i, j in numpy.ndindex(*counts):
                at = [low[k] + (p[k] + (v + 0.5) / counts[k]) * span[k] / out[k] for k, v in enumerate((i, j))]
                taps = bilinear(*at, *x.shape[2:])
                terms = [w * x[batch[r], :, a, b].astype(float) for a, b, w in taps]
                found.append((numpy.max(terms, 0) if is_max else sum(terms)) if terms else numpy.zeros(x.shape[1]))
            if found:  # the maximum is over weighted elements, as the standard's own evaluator has it
                y[(r, slice(None)) + p] = numpy.max(found, 0) if is_max else sum(found) / len(found)
    return y


def spoiled(x, *how):
    """|x| with NaN, or an infinity, in some elements that no sample takes."""
    for _ in range(8):
        trial = x.copy()
        trial[:, :, RNG.integers(0, x.shape[2]), RNG.integers(0, x.shape[3])] = one_of(numpy.nan, numpy.inf)
        with numpy.errstate(invalid="ignore"):
            x = trial if numpy.isfinite(roi_align(trial, *how)).all() else x
    return x


def define_roi_align():
    for k in range(48):
        shape = [int(RNG.integers(1, 4)), int(RNG.integers(1, 4)), int(RNG.integers(1, 9)), int(RNG.integers(1, 9))]
        x, n = RNG.standard_normal(shape).astype(F32), int(RNG.integers(0, 6))
        low = RNG.integers(-8, 16, (n, 2)) / 2
        rois = numpy.concatenate([low, low + RNG.integers(0 if k % 2 else 1, 24, (n, 2)) / 2], 1).astype(F32)
        batch, out = RNG.integers(0, shape[0], n), [one_of(1, 2, 4), one_of(1, 2, 4)]
        ratio, scale, half, is_max = one_of(0, 0, 1, 2, 4), one_of(1.0, 0.5), k % 3 > 0, k % 4 == 3
        if ratio == 0:  # how many samples there are is a power of two, or what they are divided by rounds
            rois[:, 2:] = rois[:, :2] + F32([out[1] / scale, out[0] / scale]) * one_of(1, 2)
        how = rois, batch, out, ratio, scale, half, is_max
        x = spoiled(x, *how) if k % 3 else x
        want = roi_align(x, *how)
        mode = {"coordinate_transformation_mode": "half_pixel" if half else "output_half_pixel"}
        case(f"roi_align_{k}", "RoiAlign", [x, rois, batch], [want.astype(F32)], output_height=out[0], output_width=out[1], sampling_ratio=ratio,
             spatial_scale=scale, mode="max" if is_max else "avg", tolerance=TOLERANCE, opset=16, **mode)


def define():
    define_resize()
    define_grid_sample()
    define_roi_align()
