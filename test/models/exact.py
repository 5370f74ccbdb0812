#!/usr/bin/env python3
"""Compares operators at the numbers where they are easily wrong with exact evaluations: ties, signs of zero, the ends of the
integer types, NaN, infinities, subnormal numbers, indices far outside.

usage: exact.py KILN [PATTERN]      in the Python environment of `make test`
"""
import fnmatch
import math
import sys
from fractions import Fraction

try:
    import ml_dtypes
    import numpy
    import onnx
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import batch

RNG = numpy.random.default_rng(26)
CASES = []
INTEGERS = [numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64]
F32, I64 = numpy.float32, numpy.int64


def case(name, op, inputs, want, **more):
    CASES.append(batch.Case(f"{name}_{len(CASES)}", op, inputs, want, **more))
    if op in ("Mod", "Pow", "QuantizeLinear", "DynamicQuantizeLinear"):  # computed when compiling, too
        more["constant"] = range(len(inputs))
        CASES.append(batch.Case(f"{name}_folded_{len(CASES)}", op, inputs, want, **more))


# --- bounds: NaN stays NaN ---

def define_bounds():
    for dtype in (F32, numpy.float64, numpy.float16):
        with numpy.errstate(all="ignore"):
            x = floats_around_zero().astype(dtype)
        for low, high in ((-1.5, None), (None, 1.5), (-1.5, 1.5)):
            least, most = (None if v is None else numpy.array(v, dtype) for v in (low, high))
            want = numpy.clip(x, least, most)
            attributes = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
            case("clip_6", "Clip", [x], [want], opset=9, **attributes)
            case("clip", "Clip", [x, least, most], [want])
        y = dtype(2)
        case("max", "Max", [x, numpy.full_like(x, y)], [numpy.maximum(x, y)])
        case("min", "Min", [x, numpy.full_like(x, y)], [numpy.minimum(x, y)])


# --- Mod ---

def floats_around_zero():
    return numpy.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.5, -0.5, 5.25, -5.25, 1e-42, -1e-42, 3e38, -3e38, math.inf,
                        -math.inf, math.nan], F32)


def define_mod():
    with numpy.errstate(all="ignore"):
        a, b = (x.reshape(-1) for x in numpy.meshgrid(floats_around_zero(), floats_around_zero()))
        for dtype in (F32, numpy.float64, numpy.float16):
            x, y = a.astype(dtype), b.astype(dtype)
            case(f"mod_{dtype.__name__}", "Mod", [x, y], [numpy.mod(x, y)], fmod=0)
            case(f"fmod_{dtype.__name__}", "Mod", [x, y], [numpy.fmod(x, y)], fmod=1)
        for dtype in INTEGERS:
            ends = numpy.iinfo(dtype)
            values = sorted({ends.min, ends.min + 1, ends.max, ends.max - 1, 0, 1, 2, 3, 7, *([-1, -2, -7] if ends.min else [])})
            x, y = numpy.meshgrid(numpy.array(values, dtype), numpy.array([v for v in values if v], dtype))
            case(f"mod_{dtype.__name__}", "Mod", [x, y], [floor_mod(x, y)], fmod=0)
            case(f"fmod_{dtype.__name__}", "Mod", [x, y], [of_integers(lambda p, q: math.copysign(1, p) and abs(p) % abs(q) * (-1 if p < 0 else 1), x, y)],
                 fmod=1)


def of_integers(f, *arrays):
    """f of Python's integers, element by element, wrapped to the first array's type."""
    dtype = arrays[0].dtype
    arrays = numpy.broadcast_arrays(*arrays)
    out = numpy.zeros(arrays[0].shape, dtype)
    bits = 8 * dtype.itemsize
    for at in numpy.ndindex(out.shape):
        value = f(*(int(x[at]) for x in arrays)) % (1 << bits)
        out[at] = value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value
    return out


def floor_mod(x, y):
    return of_integers(lambda p, q: p % q, x, y)


# --- Pow ---

def integer_power(p, q):
    if q < 0:
        return (p if q % 2 else 1) if p in (1, -1) else 0
    return pow(p, q, 1 << 64)


def float_power(p, q):
    """pow as C has it."""
    try:
        return math.pow(p, q)
    except OverflowError:
        return -math.inf if p < 0 and q % 2 == 1 else math.inf
    except ValueError:  # a negative base with a fraction; 0 to a negative power
        return (math.copysign(math.inf, p) if q % 2 == 1 else math.inf) if p == 0 else math.nan


def define_pow():
    for dtype in (numpy.int32, numpy.int64, numpy.uint8, numpy.int16, numpy.uint64, numpy.uint32):
        for exponent in (numpy.int32, numpy.int64, numpy.uint8, numpy.uint64):
            ends, most = numpy.iinfo(dtype), numpy.iinfo(exponent).max
            x = numpy.array([v for v in (3, -3, 1, -1, 0, 2, 10, ends.max, ends.min, 3037000499, 41) if ends.min <= v <= ends.max], dtype)
            y = numpy.array([0, 1, 2, 3, 39, 63, 64, 100, most] + ([-1, -2, -3] if exponent(0).dtype.kind == "i" else []), exponent)
            want = of_integers(integer_power, x[:, None], y[None])
            case(f"pow_{dtype.__name__}_{exponent.__name__}", "Pow", [x[:, None], y[None]], [want])
            case(f"pow_{dtype.__name__}_constant", "Pow", [x, y[2:3].reshape(())], [want[:, 2]], constant=[1])
    special = numpy.array([-math.inf, -0.0, 0.0, math.inf, math.nan, 1, -1, 4, -4, 0.5, -0.5, 1e-38, 1e38, -8, 2], F32)
    exponents = [0.5, -0.5, 0, -0.0, 1, 2, 3, -1, -2, -3, 0.25, 1.5, 4, 5, math.inf, -math.inf, math.nan]
    for dtype in (F32, numpy.float64, numpy.float16):
        for e in exponents:
            want = rounded(numpy.array([float_power(float(v), e) for v in special.astype(dtype)]), dtype)
            case(f"pow_{dtype.__name__}_{e}", "Pow", [special.astype(dtype), dtype(e)], [want], constant=[1], tolerance=(2e-6 if dtype == F32 else 2e-3 if dtype == numpy.float16 else 1e-12, 0))
        x, y = numpy.meshgrid(special.astype(dtype), numpy.array(exponents, dtype))
        want = rounded(numpy.vectorize(float_power)(x.astype(float), y.astype(float)), dtype)
        case(f"pow_{dtype.__name__}", "Pow", [x, y], [want], tolerance=(2e-6 if dtype == F32 else 2e-3 if dtype == numpy.float16 else 1e-12, 0))
    odd = numpy.array([16777217, 33554433, 3, -3, 2**40 + 1], I64)
    case("pow_float_int64", "Pow", [F32([-1, -1, 2, 2, -1]), odd], [F32([-1, -1, 8, 0.125, -1])])
    case("pow_float_double", "Pow", [F32([2, 3, 1e30]), numpy.array([0.1, 1.0000000001, 1.2])], [F32([2**0.1, 3**1.0000000001, 1e36])], tolerance=(3e-7, 0))
    case("pow_half_float", "Pow", [numpy.float16([3, 9]), F32([0.1, 0.2001])], [numpy.float16([3**0.1, 9**0.2001])], tolerance=(1e-3, 0))


def rounded(x, dtype):
    with numpy.errstate(over="ignore"):
        return x.astype(dtype)


# --- Range ---

def define_range():
    ends = numpy.iinfo(I64)
    rows = [(ends.max - 5, ends.max, 2), (ends.min, ends.min + 7, 3), (ends.min, ends.max, 2**61), (ends.max, ends.min, -2**61),
            (ends.max, ends.min, ends.min), (ends.min, ends.max, ends.max), (5, 5, 1), (5, 4, 1), (ends.max, ends.min, 1), (0, 7, 7), (0, 8, 7),
            (-3, -10, -7), (ends.min + 4, ends.min, -1)]
    rows += [tuple(int(v) for v in RNG.integers(-50, 50, 3)) for _ in range(20)]
    for start, limit, delta in rows:
        if delta:
            case("range_int64", "Range", [I64(v) for v in (start, limit, delta)], [numpy.array(list(range(start, limit, delta)), I64)], constant=[0, 1, 2])
    for dtype in (numpy.int16, numpy.int32):
        low, high = numpy.iinfo(dtype).min, numpy.iinfo(dtype).max
        for start, limit, delta in ((low, high, high // 3), (high, low, -(high // 2)), (high - 3, high, 1), (high, low, low)):
            case(f"range_{dtype.__name__}", "Range", [dtype(v) for v in (start, limit, delta)], [numpy.array(list(range(start, limit, delta)), dtype)], constant=[0, 1, 2])
    for dtype in (F32, numpy.float64):
        for start, limit, delta in ((0, 1, 0.1), (1, 0, -0.25), (0, 1, 0.25), (0, 0, 1), (1, 0, 1), (-1, 1, 0.3), (100, 101, 0.125)):
            start, limit, delta = dtype(start), dtype(limit), dtype(delta)
            n = max(0, math.ceil(Fraction(float(limit - start)) / Fraction(float(delta))))
            case(f"range_{dtype.__name__}", "Range", [start, limit, delta], [(float(start) + numpy.arange(n) * float(delta)).astype(dtype)], constant=[0, 1, 2],
                 tolerance=(1e-6, 1e-6))


# --- Slice ---

def taken(extent, start, end, step):
    """The places that a slice takes, as the operator's text has it."""
    start, end = (v + extent if v < 0 else v for v in (start, end))
    if step > 0:
        start, end = (min(max(v, 0), extent) for v in (start, end))
    else:
        start, end = min(max(start, 0), extent - 1), min(max(end, -1), extent - 1)
    return [p for p in range(start, end, step) if 0 <= p < extent]


def define_slice():
    far = numpy.iinfo(I64)
    values = [0, 1, -1, 2, 5, -5, -6, 100, -100, 2**31, -2**31, 2**62, -2**62, far.max, far.min]
    steps = [1, -1, 2, -2, 3, 100, -100, far.max, far.min, far.min + 1, -2**40]
    for extent in (0, 1, 2, 5):
        x = RNG.standard_normal((2, extent, 3)).astype(F32)
        rows = [(s, e, t) for s in values for e in values for t in steps]
        for k in RNG.permutation(len(rows))[:60]:
            start, end, step = rows[k]
            want = x[:, taken(extent, start, end, step)]
            case(f"slice_{extent}_{start}_{end}_{step}", "Slice", [x, I64([start]), I64([end]), I64([1]), I64([step])], [want], constant=[1, 2, 3, 4])


# --- Resize, nearest ---

COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def place(mode, o, n_in, n_out, scale, region):
    """The exact place in the input of place |o| of the output."""
    half, length = Fraction(1, 2), scale * n_in
    if mode == "asymmetric":
        return o / scale
    if mode == "align_corners":
        return o * (n_in - 1) / (length - 1) if n_out > 1 else Fraction(0)
    if mode == "half_pixel_symmetric":
        return Fraction(n_in, 2) * (1 - n_out / length) + (o + half) / scale - half
    if mode == "tf_crop_and_resize":
        start, end = region
        along = (n_in - 1) * (end - start)
        return start * (n_in - 1) + o * along / (n_out - 1) if n_out > 1 else (start + end) * (n_in - 1) / 2
    return Fraction(0) if mode == "pytorch_half_pixel" and n_out <= 1 else (o + half) / scale - half


def nearest(x, rounding):
    half = Fraction(1, 2)
    return {"round_prefer_floor": math.ceil(x - half), "round_prefer_ceil": math.floor(x + half), "floor": math.floor(x), "ceil": math.ceil(x)}[rounding]


def resize_case(n_in, n_out, scale, mode, rounding, region=None):
    x = RNG.standard_normal((2, n_in)).astype(F32)
    by_scale = scale is not None
    exact = Fraction(n_out, n_in)
    if by_scale and F32(n_out / n_in) != F32(scale):
        exact = Fraction(float(F32(scale)))
    exact_region = [Fraction(float(v)) for v in region[1::2]] if region is not None else None
    places = [place(mode, o, n_in, n_out, exact, exact_region) for o in range(n_out)]
    want = x[:, [min(max(nearest(p, rounding), 0), n_in - 1) for p in places]]
    if mode == "tf_crop_and_resize":
        want = numpy.where([0 <= p <= n_in - 1 for p in places], want, F32(0))
    inputs = [x, region, F32([1, scale]) if by_scale else None] + ([] if by_scale else [I64([2, n_out])])
    case(f"resize_{n_in}_{n_out}_{scale}_{mode}_{rounding}", "Resize", inputs, [want], constant=[1, 2, 3], mode="nearest", nearest_mode=rounding,
         coordinate_transformation_mode=mode, opset=19)


def define_resize():
    pairs = [(20, 6), (20, 12), (6, 20), (12, 20), (7, 3), (3, 7), (5, 1), (1, 5), (9, 9), (10, 4), (14, 6), (6, 14), (33, 10), (64, 48)]
    pairs += [tuple(int(v) for v in RNG.integers(1, 60, 2)) for _ in range(10)]
    for mode in COORDINATES:
        region = F32([0, 0.25, 1, 0.75]) if mode == "tf_crop_and_resize" else None
        for rounding in ROUNDINGS:
            for k in RNG.permutation(len(pairs))[:8]:
                resize_case(*pairs[k], None, mode, rounding, region)
            for n_in, scale in ((38, 1.02191), (10, 0.6), (20, 0.3), (9, 2.5), (7, 1 / 3), (16, 1.7), (5, 4)):
                n_out = int(numpy.floor(F32(scale) * F32(n_in)))
                if mode != "tf_crop_and_resize":
                    resize_case(n_in, n_out, scale, mode, rounding)


# --- quantization: ties of single precision ---

def define_quantize():
    for _ in range(6):
        scale = F32(RNG.uniform(0.001, 0.2))
        half_steps = (RNG.integers(-600, 600, 400) / 2).astype(F32)
        x = numpy.concatenate([half_steps * scale, numpy.nextafter(half_steps * scale, F32(9)), numpy.nextafter(half_steps * scale, F32(-9))]).astype(F32)
        for dtype in (numpy.uint8, numpy.int8, numpy.int16):
            zero = dtype(RNG.integers(0, 100))
            ends = numpy.iinfo(dtype)
            want = numpy.clip(numpy.rint(x / scale) + F32(zero), ends.min, ends.max).astype(dtype)
            case(f"quantize_{dtype.__name__}", "QuantizeLinear", [x, scale, zero], [want], constant=[1, 2])
            case(f"quantize_{dtype.__name__}_run", "QuantizeLinear", [x, scale, zero], [want])
    for _ in range(12):
        low, high = F32(-RNG.uniform(0, 3)), F32(RNG.uniform(0, 3))
        scale = (high - low) / F32(255)
        x = numpy.concatenate([[low, high], (RNG.integers(int(low / scale), int(high / scale) + 1, 500) + F32(0.5)) * scale]).astype(F32)
        case("dynamic_quantize", "DynamicQuantizeLinear", [x], dynamic_quantize(x))
    for x in (numpy.zeros(5, F32), F32([-3, -1]), F32([1, 3])):
        case("dynamic_quantize_ends", "DynamicQuantizeLinear", [x], dynamic_quantize(x) if x.any() else [None, None, None])


def dynamic_quantize(x):
    """As ONNX computes it, in single precision."""
    low, high = min(F32(0), x.min()), max(F32(0), x.max())
    scale = F32(high - low) / F32(255)
    zero = numpy.rint(numpy.clip(F32(0 - low) / scale, F32(0), F32(255)))
    y = numpy.clip(numpy.rint(x / scale) + zero, 0, 255)
    return [y.astype(numpy.uint8), scale, zero.astype(numpy.uint8)]


# --- sums of very many terms, whose error must not grow as the terms do ---

def define_long_sums():
    for n in (1 << 20, 1000003, 100000):
        x = numpy.full((1, n), 0.1, F32)
        wide = x.astype(numpy.float64)
        for op, want in (("ReduceSum", wide.sum()), ("ReduceMean", wide.mean()), ("ReduceL1", wide.sum()), ("ReduceL2", math.sqrt((wide * wide).sum())),
                         ("ReduceSumSquare", (wide * wide).sum()), ("ReduceLogSum", math.log(wide.sum())), ("ReduceLogSumExp", math.log(numpy.exp(wide).sum()))):
            case(f"long_{op}_{n}", op, [x, I64([1])], [numpy.full((1, 1), want, F32)], constant=[1], tolerance=(2e-6, 0))
        case(f"long_sum_of_columns_{n}", "ReduceSum", [x.reshape(n, 1).repeat(3, 1), I64([0])], [numpy.full((1, 3), wide.sum(), F32)], constant=[1],
             tolerance=(math.sqrt(n) * 2.0**-24, 0))
        case(f"long_softmax_{n}", "Softmax", [x], [numpy.full((1, n), 1 / n, F32)], axis=1, tolerance=(2e-6, 0))
    image = numpy.full((2, 3, 512, 640), 0.1, F32)
    case("long_average", "GlobalAveragePool", [image], [numpy.full((2, 3, 1, 1), 0.1, F32)], tolerance=(2e-6, 0))
    row = (RNG.standard_normal((2, 1 << 17)) + 10).astype(F32)
    wide = row.astype(numpy.float64)
    want = (wide - wide.mean(1, keepdims=True)) / numpy.sqrt(wide.var(1, keepdims=True) + 1e-5)
    ones = numpy.ones(1 << 17, F32)
    case("long_norm", "LayerNormalization", [row, ones], [want.astype(F32)], axis=1, tolerance=(1e-5, 1e-5))


def define_long_products():
    """Of equal terms, each a tenth times a tenth: errors of all go the same way. Their number is that of a block and of the blocks."""
    for dtype in (F32, numpy.float64):
        tenth, error = dtype(0.1), 1000 * float(numpy.finfo(dtype).eps) / 2
        square = numpy.longdouble(tenth) ** 2
        for m, depth, n, constant in ((1, 1 << 20, 1, []), (1, 200000, 48, []), (4, 65536, 32, [1]), (3, 98304, 40, []), (3, 65536, 44, []), (1, 65536, 256, [1])):
            if n * depth < 1 << 24 or dtype == F32:
                case(f"long_product_{m}_{depth}_{n}", "MatMul", [numpy.full((m, depth), tenth), numpy.full((depth, n), tenth)],
                     [numpy.full((m, n), square * depth).astype(dtype)], constant=constant, tolerance=(error, 0))
        case("long_convolution", "Conv", [numpy.full((1, 8192, 3, 3), tenth), numpy.full((4, 8192, 3, 3), tenth)],
             [numpy.full((1, 4, 1, 1), square * 9 * 8192).astype(dtype)], tolerance=(error, 0))
        case("long_scan", "CumSum", [numpy.full((1, 1 << 20), tenth), I64(1)], [(numpy.arange(1, (1 << 20) + 1)[None] * numpy.longdouble(tenth)).astype(dtype)],
             constant=[1], tolerance=(error, 0))
    x = numpy.full((3, 1 << 20), 0.1)
    for axis in (0, 1):
        case(f"long_sum_f64_{axis}", "ReduceSum", [x if axis else numpy.ascontiguousarray(x.T), I64([axis])],
             [numpy.full((3, 1) if axis else (1, 3), numpy.longdouble(0.1) * (1 << 20)).astype(float)], constant=[1], tolerance=(400 * 2.0**-53, 0))


def main():
    kiln, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
    numpy.seterr(all="ignore")
    define_bounds()
    define_mod()
    define_pow()
    define_range()
    define_slice()
    define_resize()
    define_quantize()
    define_long_sums()
    define_long_products()
    chosen = [c for c in CASES if fnmatch.fnmatch(c.name, pattern) and any(w is not None for w in c.want)]
    wrong = batch.run(kiln, chosen, "--threads", "1")
    wrong.update(batch.run(kiln, [c for c in chosen if c.name.startswith("long_product_1_1048576")], "--target=sim:cuda:sm_90a"))
    return batch.report(wrong, len(chosen))


if __name__ == "__main__":
    sys.exit(main())
