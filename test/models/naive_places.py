"""What moves elements to places that are computed, counts along an axis, or looks at windows: scatters and gathers, OneHot,
CumSum, ReverseSequence, pools, Pad and others, an element at a time, as the text of ONNX has them.
"""
import itertools
import math

import numpy

from naive_data import BF16, F32, FLOATS, I64, INTEGERS, RNG, case, distinct, indices, one_of, special

NUMBERS = FLOATS + INTEGERS
EQUAL = (0, 0)  # equal, whatever the sign of a zero


# --- Scatter-9, ScatterElements-11..18, ScatterND-11..18: updates in their order ---

def least(a, b):
    return a if a != a or (b == b and a <= b) else b


def greatest(a, b):
    return a if a != a or (b == b and a >= b) else b


REDUCTIONS = {"none": lambda a, b: b, "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "min": least, "max": greatest}


def put(out, at, value, reduction):
    with numpy.errstate(all="ignore"):  # integers wrap
        out[at] = REDUCTIONS[reduction](out[at], value)


def scatter_elements(data, places, updates, axis, reduction):
    out = data.copy()
    for at in numpy.ndindex(places.shape):
        to = list(at)
        to[axis] = int(places[at]) % data.shape[axis]
        put(out, tuple(to), updates[at], reduction)
    return out


def scatter_nd(data, places, updates, reduction):
    out = data.copy()
    depth = places.shape[-1]
    for at in numpy.ndindex(places.shape[:-1]):
        to = tuple(int(p) % data.shape[k] for k, p in enumerate(places[at]))
        for rest in numpy.ndindex(data.shape[depth:]):
            put(out, to + rest, updates[at + rest], reduction)
    return out


def small(shape, dtype, share):
    """Such that no order of a sum or product rounds."""
    x = special(shape, dtype, share)
    return x if numpy.dtype(dtype).kind in "iu" or share else (RNG.choice([-2, -1, 1, 2], shape)).astype(dtype)


def define_scatter():
    shapes = [((5,), 0, (9,)), ((4, 6), 0, (7, 5)), ((4, 6), 1, (3, 40)), ((2, 3, 5), -2, (2, 8, 4)), ((3, 0), 0, (2, 0)), ((4, 3), 1, (0, 2)),
              ((1, 1), 0, (6, 1)), ((3, 33), 1, (3, 70))]
    for reduction in REDUCTIONS:
        for dtype in NUMBERS:
            for shape, axis, of in [shapes[k] for k in RNG.permutation(len(shapes))[:3]]:
                share = float(RNG.choice([0.0, 0.3]))
                data, updates = small(shape, dtype, share), small(of, dtype, share)
                places = indices(shape[axis], of, one_of(I64, numpy.int32))
                opset = one_of(11, 16, 18) if reduction == "none" and dtype != BF16 else 18
                case(f"scatter_elements_{reduction}_{numpy.dtype(dtype)}", "ScatterElements", [data, places, updates],
                     [scatter_elements(data, places, updates, axis, reduction)], tolerance=EQUAL, opset=opset, axis=axis,
                     **({} if opset < 16 else {"reduction": reduction}))
    for reduction in REDUCTIONS:
        for dtype in NUMBERS:
            for shape, picks, depth in [((5,), (7,), 1), ((4, 6), (9,), 1), ((4, 6), (3, 5), 2), ((2, 3, 5), (4, 2), 2), ((3, 4, 2), (0,), 2),
                                        ((2, 2, 2), (19,), 3), ((6, 33), (8,), 1)][int(RNG.integers(2))::2]:
                share = float(RNG.choice([0.0, 0.3]))
                updates = small(picks + shape[depth:], dtype, share)
                places = numpy.stack([indices(n, picks) for n in shape[:depth]], -1)
                data = small(shape, dtype, share)
                opset = one_of(11, 16, 18) if reduction == "none" and dtype != BF16 else 18
                case(f"scatter_nd_{reduction}_{numpy.dtype(dtype)}", "ScatterND", [data, places, updates],
                     [scatter_nd(data, places, updates, reduction)], tolerance=EQUAL, opset=opset,
                     **({} if opset < 16 else {"reduction": reduction}))
    data, updates, places = distinct((5, 4), F32), distinct((5, 2), F32), indices(4, (5, 2))
    case("scatter_9", "Scatter", [data, places, updates], [scatter_elements(data, places, updates, 1, "none")], axis=1, opset=9)


# --- Gather-1..13, GatherElements-11, 13, GatherND-11..13 ---

def gather_nd(x, places, batch):
    depth = places.shape[-1]
    rest = x.shape[batch + depth:]
    out = numpy.zeros(places.shape[:-1] + rest, x.dtype)
    for at in numpy.ndindex(places.shape[:-1]):
        of = at[:batch] + tuple(int(p) % x.shape[batch + k] for k, p in enumerate(places[at]))
        out[at] = x[of]
    return out


def define_gather():
    for dtype in NUMBERS + [bool]:
        for shape, of in (((7,), (4,)), ((5, 6), (3, 2)), ((2, 3, 4), ()), ((3, 9, 2), (1, 5)), ((4, 0, 2), (3,)), ((40, 3), (70,))):
            axis = one_of(*[a for a in range(-len(shape), len(shape)) if shape[a]])
            x, places = special(shape, dtype, 0.3), indices(shape[axis], of, one_of(I64, numpy.int32))
            want = numpy.take(x, places.astype(I64) % shape[axis], axis)
            case(f"gather_{numpy.dtype(dtype)}_{shape}_{axis}", "Gather", [x, places], [want], axis=axis)
            of = tuple(n if k != axis % len(shape) else int(RNG.integers(0, 9)) for k, n in enumerate(shape))
            places = indices(shape[axis], of)
            want = numpy.take_along_axis(x, places % shape[axis], axis)
            case(f"gather_elements_{numpy.dtype(dtype)}_{shape}_{axis}", "GatherElements", [x, places], [want], axis=axis)
        for shape, of, depth, batch in (((4, 5), (6,), 2, 0), ((4, 5, 3), (2, 3), 1, 0), ((2, 5, 3), (2, 4), 1, 1), ((2, 3, 4, 5), (2, 3, 6), 2, 2), ((3, 2), (0,), 1, 0)):
            x, places = special(shape, dtype, 0.3), numpy.stack([indices(shape[batch + k], of) for k in range(depth)], -1)
            case(f"gather_nd_{numpy.dtype(dtype)}_{shape}_{batch}", "GatherND", [x, places], [gather_nd(x, places, batch)], batch_dims=batch)


# --- OneHot-9, 11: "values will be casted to int64"; what lies outside of [-depth, depth) is off everywhere ---

def one_hot(x, depth, values, axis):
    out = numpy.full(x.shape + (depth,), values[0], values.dtype)
    for at in numpy.ndindex(x.shape):
        place = int(x[at])
        if -depth <= place < depth:
            out[at + (place % depth,)] = values[1]
    return numpy.moveaxis(out, -1, axis)


def define_one_hot():
    for dtype in [F32, numpy.float64] + INTEGERS:
        for of in (F32, numpy.float16, I64, numpy.int8, numpy.uint64, bool):
            shape, depth = one_of((5,), (2, 3), (), (3, 1, 2), (0,), (130,)), int(RNG.integers(0, 9))
            x = (RNG.integers(-12, 13, shape) / (2 if numpy.dtype(dtype).kind == "f" else 1))
            x = numpy.asarray(numpy.abs(x) if numpy.dtype(dtype).kind == "u" else x).astype(dtype)
            values, axis = numpy.array([3, 1], of), int(RNG.integers(-len(shape) - 1, len(shape) + 1))
            case(f"one_hot_{numpy.dtype(dtype)}_{numpy.dtype(of)}", "OneHot", [x, one_of(I64, F32, numpy.int32)(depth), values],
                 [one_hot(x, depth, values, axis)], constant=[1], axis=axis)


# --- CumSum-11, 14; CumProd-26 ---

def scan(x, axis, exclusive, reverse, product):
    rows, out = numpy.moveaxis(x, axis, -1), numpy.moveaxis(numpy.zeros_like(x), axis, -1)
    n = rows.shape[-1]
    with numpy.errstate(all="ignore"):
        for at in numpy.ndindex(rows.shape[:-1]):
            total = x.dtype.type(int(product))
            for i in reversed(range(n)) if reverse else range(n):
                after = total * rows[at + (i,)] if product else total + rows[at + (i,)]
                out[at + (i,)] = total if exclusive else after
                total = after
    return numpy.moveaxis(out, -1, axis)


def define_scan():
    shapes = [((6,), 0), ((3, 5), 1), ((3, 5), 0), ((2, 40, 3), 1), ((2, 3, 4), -1), ((4, 0), 1), ((0, 4), 1), ((1, 1), 0), ((2, 300), 1), ((1500,), 0)]
    for dtype in FLOATS + [numpy.int32, I64, numpy.uint32, numpy.uint64]:
        for shape, axis in shapes:
            exclusive, reverse = int(RNG.integers(2)), int(RNG.integers(2))
            share = float(RNG.choice([0.0, 0.05]))
            x = special(shape, dtype, share) if dtype != BF16 else special(shape, dtype, share) * BF16(2)
            if math.prod(shape) > 200 and dtype in (numpy.float16, BF16):  # sums stay below what has no fraction any more
                x = numpy.where(RNG.random(shape) < 0.1, x, dtype(0))
            case(f"cumsum_{numpy.dtype(dtype)}_{shape}", "CumSum", [x, numpy.array(axis)], [scan(x, axis, exclusive, reverse, False)],
                 constant=[1], tolerance=EQUAL, exclusive=exclusive, reverse=reverse, opset=one_of(11, 14) if dtype in (F32, I64) else 14)
            x = RNG.choice([-1, 1, 1, 1], shape).astype(dtype) if numpy.dtype(dtype).kind != "u" else RNG.choice([1, 1, 3], shape).astype(dtype)
            case(f"cumprod_{numpy.dtype(dtype)}_{shape}", "CumProd", [x, numpy.array(axis)], [scan(x, axis, exclusive, reverse, True)],
                 constant=[1], tolerance=EQUAL, exclusive=exclusive, reverse=reverse, opset=26)


# --- ReverseSequence-10 ---

def define_reverse_sequence():
    for dtype in NUMBERS + [bool]:
        for shape in ((4, 6), (6, 4), (1, 5), (3, 2, 4), (2, 33), (0, 3), (3, 0)):
            time = int(RNG.integers(2))
            lengths = RNG.integers(0, shape[time] + 1, shape[1 - time])
            x = special(shape, dtype, 0.3)
            want = x.copy()
            for b, n in enumerate(lengths):
                for t in range(n):
                    at, of = ((t, b), (n - 1 - t, b)) if time == 0 else ((b, t), (b, n - 1 - t))
                    want[at] = x[of]
            case(f"reverse_sequence_{numpy.dtype(dtype)}_{shape}", "ReverseSequence", [x, lengths], [want], batch_axis=1 - time, time_axis=time)


# --- MaxPool-1..22 with Indices, MaxUnpool-9, 11 ---

def windows(extents, kernel, strides, dilations, pads, ceil):
    """The extents of the result; a window that would begin in the padding behind the end is left out."""
    out = []
    for k, n in enumerate(extents):
        room = n + pads[k] + pads[len(kernel) + k] - ((kernel[k] - 1) * dilations[k] + 1)
        count = (-(-room // strides[k]) if ceil else room // strides[k]) + 1
        if ceil and (count - 1) * strides[k] >= n + pads[k]:
            count -= 1
        out.append(count)
    return out


def window(at, extents, kernel, strides, dilations, pads):
    """The places in the input of the window at |at|."""
    axes = [[at[k] * strides[k] - pads[k] + t * dilations[k] for t in range(kernel[k])] for k in range(len(kernel))]
    return [p for p in itertools.product(*axes) if all(0 <= v < n for v, n in zip(p, extents))]


def max_pool(x, storage_order, out, **how):
    extents = x.shape[2:]
    y, at = numpy.zeros(x.shape[:2] + tuple(out), x.dtype), numpy.zeros(x.shape[:2] + tuple(out), I64)
    for n, c in numpy.ndindex(x.shape[:2]):
        for o in numpy.ndindex(*out):
            places = window(o, extents, **how)
            best = max(places, key=lambda p: (x[(n, c) + p], [-v for v in p]))
            along = best if storage_order == 0 else best[::-1]
            shape = extents if storage_order == 0 else extents[::-1]
            y[(n, c) + o] = x[(n, c) + best]
            at[(n, c) + o] = (n * x.shape[1] + c) * math.prod(extents) + int(numpy.ravel_multi_index(along, shape))
    return y, at


def pool_case():
    """Extents, attributes, and the same as arguments of |window|; None: no result."""
    rank = one_of(1, 2, 2, 3)
    extents = [int(RNG.integers(1, 12)) for _ in range(rank)]
    kernel = [int(RNG.integers(1, 4)) for _ in range(rank)]
    strides, dilations = ([int(RNG.integers(1, 3)) for _ in range(rank)] for _ in range(2))
    pads = [int(RNG.integers(0, kernel[k % rank])) for k in range(2 * rank)]
    ceil = int(RNG.integers(2))
    how = {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads}
    if any(n + pads[k] + pads[rank + k] < (kernel[k] - 1) * dilations[k] + 1 for k, n in enumerate(extents)):
        return None
    out = windows(extents, ceil=ceil, **how)
    if any(not window(o, extents, **how) for o in numpy.ndindex(*out)):
        return None
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": ceil, "dilations": dilations}
    return extents, out, attributes, how


def numbers(shape, dtype):
    """special, without NaN: what a window makes of one ONNX does not say."""
    x = special(shape, dtype, RNG.choice([0.0, 0.2]))
    return numpy.where(x == x, x, dtype(0)) if numpy.dtype(dtype).kind == "f" or dtype == BF16 else x


def define_max_pool():
    for k in range(90):
        made = pool_case()
        if not made:
            continue
        extents, out, attributes, how = made
        dtype = (F32, numpy.float64, numpy.float16, numpy.int8, numpy.uint8)[k % 5]
        x, columns = numbers([1 + k % 2, 1 + k % 3, *extents], dtype), int(RNG.integers(2)) if len(extents) == 2 else 0
        y, at = max_pool(x, columns, out, **how)
        case(f"max_pool_{extents}", "MaxPool", [x], [y, at if k % 3 else None], tolerance=EQUAL, storage_order=columns, **attributes)
    for k in range(12):
        n, c, h, w = 1 + k % 2, 1 + k % 3, int(RNG.integers(1, 5)), int(RNG.integers(1, 5))
        x = distinct((n, c, h, w), (F32, numpy.float64, numpy.float16)[k % 3])
        size, offset = 4 * h * w, numpy.arange(n * c).reshape(n, c, 1, 1)
        places = numpy.stack([RNG.permutation(size)[:h * w] for _ in range(n * c)]).reshape(n, c, h, w) + offset * size
        want = numpy.zeros(n * c * size, x.dtype)
        for at in numpy.ndindex(x.shape):
            want[places[at]] = x[at]
        case("max_unpool", "MaxUnpool", [x, places], [want.reshape(n, c, 2 * h, 2 * w)], kernel_shape=[2, 2], strides=[2, 2])


# --- AveragePool-1..22, LpPool-2..22: the pads count where they are asked for, what is behind them does not ---

def average_pool(x, out, counts, **how):
    y = numpy.zeros(x.shape[:2] + tuple(out), numpy.float64)
    extents = x.shape[2:]
    padded = [n + how["pads"][k] + how["pads"][k + len(extents)] for k, n in enumerate(extents)]
    for o in numpy.ndindex(*out):
        places = window(o, extents, **how)
        n = len(window(o, padded, **dict(how, pads=[0] * len(how["pads"])))) if counts else len(places)
        y[(slice(None), slice(None)) + o] = sum(x[(slice(None), slice(None)) + p].astype(numpy.float64) for p in places) / n
    return y


def lp_pool(x, out, p, **how):
    y = numpy.zeros(x.shape[:2] + tuple(out), numpy.float64)
    for o in numpy.ndindex(*out):
        terms = [numpy.abs(x[(slice(None), slice(None)) + at].astype(numpy.float64)) ** p for at in window(o, x.shape[2:], **how)]
        y[(slice(None), slice(None)) + o] = sum(terms) ** (1 / p)
    return y


def define_sum_pools():
    rounds = {F32: 2e-6, numpy.float64: 1e-13, numpy.float16: 2e-3}
    for k in range(60):
        made = pool_case()
        if not made:
            continue
        extents, out, attributes, how = made
        dtype, counts, p = (F32, numpy.float64, numpy.float16)[k % 3], int(RNG.integers(2)), one_of(1, 2, 3)
        x = RNG.standard_normal([1 + k % 2, 1 + k % 3, *extents]).astype(dtype)
        case(f"average_pool_{extents}", "AveragePool", [x], [average_pool(x, out, counts, **how).astype(dtype)], count_include_pad=counts,
             tolerance=(rounds[dtype], rounds[dtype]), opset=22, **attributes)
        case(f"lp_pool_{extents}", "LpPool", [x], [lp_pool(x, out, p, **how).astype(dtype)], p=p, tolerance=(rounds[dtype],) * 2, opset=22,
             **attributes)


# --- EyeLike-9, 22; Trilu-14; BitShift-11; Pad-2..21; TensorScatter-24 ---

def define_diagonals():
    for dtype in NUMBERS + [bool]:
        for shape in ((4, 4), (3, 7), (9, 2), (1, 1), (0, 3), (2, 40)):
            k, upper = int(RNG.integers(-5, 6)), int(RNG.integers(2))
            eye = [[int(j - i == k) for j in range(shape[1])] for i in range(shape[0])]
            case(f"eye_like_{numpy.dtype(dtype)}_{shape}", "EyeLike", [numpy.zeros(shape, F32)], [numpy.array(eye, dtype).reshape(shape)],
                 k=k, dtype=int(onnx_type(dtype)), opset=22)
            x = special((2,) + shape, dtype, 0.5)
            inside = [[(j - i >= k) if upper else (j - i <= k) for j in range(shape[1])] for i in range(shape[0])]
            want = numpy.where(numpy.array(inside, bool).reshape(shape), x, numpy.zeros_like(x))
            far = RNG.random() < 0.1
            if far:
                k = int(RNG.choice([2**40, -2**40]))
                want = x if (k < 0) == bool(upper) else numpy.zeros_like(x)
            case(f"trilu_{numpy.dtype(dtype)}_{shape}", "Trilu", [x, numpy.array(k)], [want], constant=one_of([], [1]), upper=upper)


def onnx_type(dtype):
    import onnx
    return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))


def define_shifts():
    for dtype in INTEGERS[4:]:
        bits = 8 * numpy.dtype(dtype).itemsize
        x = RNG.integers(0, 2**63, (5, 17), numpy.uint64).astype(dtype)
        by = RNG.integers(0, bits, (17,)).astype(dtype)
        for direction in ("LEFT", "RIGHT"):
            want = [[(int(v) << int(s) if direction == "LEFT" else int(v) >> int(s)) % 2**bits for v, s in zip(row, by)] for row in x]
            case(f"bit_shift_{numpy.dtype(dtype)}", "BitShift", [x, by], [numpy.array(want, dtype)], direction=direction)


def padded_place(p, n, mode):
    """The place in an axis of |n| that place |p| beside it shows; None: none."""
    if 0 <= p < n:
        return p
    if mode == "edge":
        return 0 if p < 0 else n - 1
    if mode == "wrap":
        return p % n
    while mode == "reflect" and not 0 <= p < n:
        if n == 1:
            return 0
        p = -p if p < 0 else 2 * (n - 1) - p
    return p if mode == "reflect" else None


def define_pad():
    for dtype in NUMBERS + [bool]:
        for mode in ("constant", "edge", "reflect", "wrap"):
            shape = one_of((5,), (3, 4), (2, 1, 3), (1, 33))
            pads = [int(v) for v in RNG.integers(-1 if mode == "constant" else 0, 8, 2 * len(shape))]
            x, value = special(shape, dtype, 0.3), special((), dtype, 0.5)
            out = [n + pads[k] + pads[k + len(shape)] for k, n in enumerate(shape)]
            if min(out) < 0:
                continue
            want = numpy.full(out, value, dtype)
            for at in numpy.ndindex(*out):
                of = [padded_place(p - pads[k], shape[k], mode) for k, p in enumerate(at)]
                if None not in of:
                    want[at] = x[tuple(of)]
            case(f"pad_{mode}_{numpy.dtype(dtype)}_{shape}", "Pad", [x, numpy.array(pads, I64), value], [want], constant=[1], mode=mode, opset=21)


def define_tensor_scatter():
    for dtype in FLOATS + [numpy.int8, I64]:
        for mode in ("linear", "circular"):
            n_batch, length, rows = int(RNG.integers(1, 4)), int(RNG.integers(2, 9)), int(RNG.integers(1, 3))
            cache, update = special((n_batch, length, 3), dtype, 0.3), special((n_batch, rows, 3), dtype, 0.3)
            begin = RNG.integers(0, length - rows + 1 if mode == "linear" else 2 * length, n_batch)
            want = cache.copy()
            for b, j in itertools.product(range(n_batch), range(rows)):
                want[b, (begin[b] + j) % length] = update[b, j]
            case(f"tensor_scatter_{mode}_{numpy.dtype(dtype)}", "TensorScatter", [cache, update, begin], [want], mode=mode, opset=24)


def define():
    define_scatter()
    define_gather()
    define_one_hot()
    define_scan()
    define_reverse_sequence()
    define_max_pool()
    define_sum_pools()
    define_diagonals()
    define_shifts()
    define_pad()
    define_tensor_scatter()
