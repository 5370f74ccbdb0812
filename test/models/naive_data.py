"""Cases of test/models/naive.py and the data that they are tried on."""
import math

import ml_dtypes
import numpy

import batch

RNG = numpy.random.default_rng(25)
CASES = []
F32, I64 = numpy.float32, numpy.int64
BF16 = ml_dtypes.bfloat16
FLOATS = [numpy.float32, numpy.float64, numpy.float16, BF16]
INTEGERS = [numpy.int8, numpy.int16, numpy.int32, numpy.int64, numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64]


def case(name, op, inputs, want, **more):
    CASES.append(batch.Case(f"{name}_{len(CASES)}", op, inputs, want, **more))


def special(shape, dtype, share):
    """Values with many ties; that share of them NaN, infinite or a zero of either sign; of integers the ends of their range."""
    if numpy.dtype(dtype) == bool:
        return RNG.random(shape) < 0.5
    if numpy.dtype(dtype).kind in "iu":
        limits = numpy.iinfo(dtype)
        x = RNG.integers(max(limits.min, -3), 4, shape).astype(dtype)
        extremes = [limits.min, limits.max, limits.max - 1, limits.min + 1]
    else:
        x = (RNG.integers(-4, 5, shape) / 2).astype(dtype)
        extremes = [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0]
    chosen = RNG.random(shape) < share
    picks = numpy.asarray(numpy.array(extremes, object)[RNG.integers(0, len(extremes), shape)])
    return numpy.where(chosen, picks.astype(dtype), x).astype(dtype)


def distinct(shape, dtype):
    """Values that say which element they are, as far as the type has so many."""
    return RNG.permutation(math.prod(shape)).reshape(shape).astype(dtype)


def indices(extent, shape, dtype=I64):
    """Of an axis of |extent|, from both ends."""
    return RNG.integers(-extent, extent, shape).astype(dtype) if extent else numpy.zeros(shape, dtype)


def one_of(*choices):
    return choices[int(RNG.integers(len(choices)))]
