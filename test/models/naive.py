#!/usr/bin/env python3
"""Compares operators that search, sort, count and scatter with a second evaluation of each, an element at a time, on random
data, ties, NaN, infinities, zeros of both signs, and odd, unit and empty shapes.

usage: naive.py KILN [PATTERN]      in the Python environment of `make test`
"""
import fnmatch
import functools
import math
import sys

try:
    import ml_dtypes
    import numpy
    import onnx
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import batch

RNG = numpy.random.default_rng(25)
CASES = []
FLOATS = [numpy.float32, numpy.float64, numpy.float16, ml_dtypes.bfloat16]
INTEGERS = [numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64]


def case(name, op, inputs, want, **more):
    CASES.append(batch.Case(f"{name}_{len(CASES)}", op, inputs, want, **more))


# --- data ---

def special(shape, dtype, share):
    """Values with many ties; that share of them NaN, infinite or a zero of either sign; of integers the ends of their range."""
    if numpy.dtype(dtype).kind in "iu":
        limits = numpy.iinfo(dtype)
        x = RNG.integers(max(limits.min, -3), 4, shape).astype(dtype)
        extremes = [limits.min, limits.max, limits.max - 1, limits.min + 1]
    else:
        x = (RNG.integers(-4, 5, shape) / 2).astype(dtype)
        extremes = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0]
    chosen = RNG.random(shape) < share
    picks = numpy.array(extremes, object)[RNG.integers(0, len(extremes), shape)]
    return numpy.where(chosen, picks.astype(dtype), x).astype(dtype)


def negative_nan(x):
    """With NaNs whose sign is set, as processors make them."""
    x = x.copy()
    if x.dtype == numpy.float32:
        bits = x.view(numpy.uint32)
        bits[numpy.isnan(x)] = 0xFFC00000
    return x


# --- order: NaN is greater than all numbers, -0 is 0 ---

def order(a, b):
    if a != a or b != b:
        return (a != a) - (b != b)
    return (a > b) - (a < b)


def best(row, largest):
    """The places of the elements, the first in order first; of equal ones the lower place."""
    def compare(i, j):
        way = order(row[j], row[i]) if largest else order(row[i], row[j])
        return way or i - j
    return sorted(range(len(row)), key=functools.cmp_to_key(compare))


def top_k(x, k, axis, largest):
    rows = numpy.moveaxis(x, axis, -1)
    places = numpy.zeros(rows.shape[:-1] + (k,), numpy.int64)
    for at in numpy.ndindex(rows.shape[:-1]):
        places[at] = best(list(rows[at].tolist()), largest)[:k]
    values = numpy.take_along_axis(rows, places, -1)
    return numpy.moveaxis(values, -1, axis), numpy.moveaxis(places, -1, axis)


def define_top_k():
    shapes = [((3, 6), 1), ((4, 1), 1), ((2, 5, 3), 1), ((7,), 0), ((2, 0, 3), 2), ((3, 40), -1), ((2, 130), 1), ((300, 2), 0)]
    for dtype in FLOATS + INTEGERS:
        few = [shapes[i] for i in RNG.permutation(len(shapes))[:3]]
        for shape, axis in shapes if dtype == numpy.float32 else few:
            extent = shape[axis]
            for k in sorted({0, 1, extent // 5, extent // 2, extent} if dtype == numpy.float32 else {extent // 5, extent}):
                x = negative_nan(special(shape, dtype, RNG.choice([0.0, 0.3, 1.0])))
                largest, ordered = int(RNG.integers(2)), int(RNG.integers(2))
                opset = 24 if dtype == ml_dtypes.bfloat16 else 18
                case(f"top_k_{numpy.dtype(dtype)}_{shape}_{k}", "TopK", [x, numpy.array([k])], top_k(x, k, axis, largest),
                     constant=[1], axis=axis, largest=largest, sorted=ordered, opset=opset)
    for largest in (0, 1):
        for x in (numpy.full((2, 6), math.nan), numpy.full((1, 200), math.nan), numpy.full((1, 200), -math.inf),
                  numpy.where(numpy.arange(200) == 7, math.nan, 1.0)[None]):
            for k in (1, 4, x.shape[1] // 2, x.shape[1]):
                x = x.astype(numpy.float32)
                case(f"top_k_of_one_kind_{k}", "TopK", [x, numpy.array([k])], top_k(x, k, 1, largest), constant=[1], axis=1,
                     largest=largest)


def main():
    kiln, pattern = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "*"
    define_top_k()
    chosen = [c for c in CASES if fnmatch.fnmatch(c.name, pattern)]
    wrong = batch.run(kiln, chosen, "--threads", "2")
    return batch.report(wrong, len(chosen))


if __name__ == "__main__":
    sys.exit(main())
