"""What chooses elements by their order: TopK, ArgMax, Unique, NonZero, Compress and NonMaxSuppression, an element at a time.

The text of ONNX leaves the place of a NaN open; it is greater than all numbers here, as NumPy and the standard's own evaluator
have it, and -0 is 0.
"""
import functools
import math

import numpy

from naive_data import BF16, F32, FLOATS, I64, INTEGERS, RNG, case, one_of, special


def order(a, b):
    if a != a or b != b:
        return (a != a) - (b != b)
    return (a > b) - (a < b)


def negative_nan(x):
    """With NaNs whose sign is set, as processors make them."""
    x = x.copy()
    if x.dtype == F32:
        bits = x.view(numpy.uint32)
        bits[numpy.isnan(x)] = 0xFFC00000
    return x


# --- TopK-1, 10, 11, 24: "Given two equivalent values, this operator uses the indices along the axis as a tiebreaker" ---

def best(row, largest):
    """The places of the elements, the first in order first; of equal ones the lower place."""
    def compare(i, j):
        way = order(row[j], row[i]) if largest else order(row[i], row[j])
        return way or i - j
    return sorted(range(len(row)), key=functools.cmp_to_key(compare))


def top_k(x, k, axis, largest):
    rows = numpy.moveaxis(x, axis, -1)
    places = numpy.zeros(rows.shape[:-1] + (k,), I64)
    for at in numpy.ndindex(rows.shape[:-1]):
        places[at] = best(rows[at].tolist(), largest)[:k]
    values = numpy.take_along_axis(rows, places, -1)
    return numpy.moveaxis(values, -1, axis), numpy.moveaxis(places, -1, axis)


def define_top_k():
    shapes = [((3, 6), 1), ((4, 1), 1), ((2, 5, 3), 1), ((7,), 0), ((2, 0, 3), 2), ((3, 40), -1), ((2, 130), 1), ((300, 2), 0)]
    for dtype in FLOATS + INTEGERS:
        few = [shapes[i] for i in RNG.permutation(len(shapes))[:3]]
        for shape, axis in shapes if dtype == F32 else few:
            extent = shape[axis]
            for k in sorted({0, 1, extent // 5, extent // 2, extent} if dtype == F32 else {extent // 5, extent}):
                x = negative_nan(special(shape, dtype, RNG.choice([0.0, 0.3, 1.0])))
                largest, ordered = int(RNG.integers(2)), int(RNG.integers(2))
                case(f"top_k_{numpy.dtype(dtype)}_{shape}_{k}", "TopK", [x, numpy.array([k])], top_k(x, k, axis, largest),
                     constant=[1], axis=axis, largest=largest, sorted=ordered, opset=24 if dtype == BF16 else 18)
    for largest in (0, 1):
        for x in (numpy.full((2, 6), math.nan), numpy.full((1, 200), math.nan), numpy.full((1, 200), -math.inf),
                  numpy.where(numpy.arange(200) == 7, math.nan, 1.0)[None]):
            for k in (1, 4, x.shape[1] // 2, x.shape[1]):
                x = x.astype(F32)
                case(f"top_k_of_one_kind_{k}", "TopK", [x, numpy.array([k])], top_k(x, k, 1, largest), constant=[1], axis=1,
                     largest=largest)
    for dtype in FLOATS[:3]:  # before opset 11 the largest ones only
        for k in (1, 3, 7):
            x = special((5, 7, 2), dtype, 0.3)
            case(f"top_k_1_{k}", "TopK", [x], top_k(x, k, 1, 1), axis=1, k=k, opset=9)
            case(f"top_k_10_{k}", "TopK", [x, numpy.array([k])], top_k(x, k, 1, 1), constant=[1], axis=1, opset=10)


# --- ArgMax-1, 11, 12, 13, ArgMin: "the first occurrence", or the last ---

def arg(x, axis, keep, largest, last):
    rows = numpy.moveaxis(x, axis, -1)
    out = numpy.zeros(rows.shape[:-1], I64)
    for at in numpy.ndindex(out.shape):
        row, place = rows[at].tolist(), 0
        for i in range(1, len(row)):
            way = order(row[i], row[place])
            if not largest and (row[i] != row[i] or row[place] != row[place]):  # NumPy: a NaN is the least, too
                way = -way
            place = i if (way > 0 if largest else way < 0) or (last and way == 0) else place
        out[at] = place
    return numpy.expand_dims(out, axis) if keep else out


def define_arg():
    shapes = [((3, 6), 1), ((3, 6), 0), ((2, 5, 3), -2), ((1, 1), 0), ((7,), 0), ((2, 33, 5), 1), ((3, 200), -1), ((0, 4), 1), ((200, 3), 0)]
    for dtype in FLOATS + INTEGERS:
        for shape, axis in shapes:
            x = special(shape, dtype, RNG.choice([0.0, 0.3, 1.0]))
            for largest in (0, 1):
                keep, last = int(RNG.integers(2)), int(RNG.integers(2))
                case(f"arg_{numpy.dtype(dtype)}_{shape}_{axis}", "ArgMax" if largest else "ArgMin", [x],
                     [arg(x, axis, keep, largest, last)], axis=axis, keepdims=keep, select_last_index=last)
    x = special((4, 9), F32, 0.3)
    for opset in (9, 11):
        case(f"arg_{opset}", "ArgMax", [x], [arg(x, 1, 1, 1, 0)], axis=1, opset=opset)


# --- Unique-11 ---

def compare_slices(a, b):
    for p, q in zip(a, b):
        if order(p, q):
            return order(p, q)
    return 0


def unique(x, axis, ordered):
    """The slices, the first place of each, the number of each slice of x among them, how often each is there."""
    rows = x.reshape(-1, 1) if axis is None else numpy.moveaxis(x, axis, 0).reshape(x.shape[axis], -1)
    slices = rows.tolist()
    first = []
    for i, row in enumerate(slices):
        if all(compare_slices(row, slices[j]) for j in first):
            first.append(i)
    if ordered:
        first.sort(key=functools.cmp_to_key(lambda i, j: compare_slices(slices[i], slices[j])))
    inverse = [next(n for n, j in enumerate(first) if compare_slices(row, slices[j]) == 0) for row in slices]
    counts = [inverse.count(n) for n in range(len(first))]
    values = rows[first, 0] if axis is None else numpy.take(x, first, axis)
    return [values] + [numpy.array(v, I64) for v in (first, inverse, counts)]


def define_unique():
    shapes = [((6,), None), ((3, 5), None), ((4, 6), 0), ((4, 6), 1), ((2, 5, 2), 1), ((2, 3, 4), -1), ((1,), 0), ((1, 1), None), ((5, 1), 0),
              ((0,), None), ((700,), None), ((520, 2), 0), ((600, 1), 0), ((1, 513), 1)]
    for dtype in [t for t in FLOATS if t != BF16] + INTEGERS + [bool]:
        few = [shapes[i] for i in RNG.permutation(len(shapes))[:5]]
        for shape, axis in shapes if dtype in (F32, I64) else few:
            for ordered in (0, 1):
                x = special(shape, dtype, RNG.choice([0.0, 0.3, 1.0]))
                if len(shape) > 1 and shape[-1] > 1:  # slices that are equal
                    x = numpy.take(x, RNG.integers(0, shape[axis or 0], shape[axis or 0]), axis or 0)
                want = unique(x, axis, ordered)
                wanted = [w if k == 0 or RNG.random() < 0.7 else None for k, w in enumerate(want)]
                attributes = {} if axis is None else {"axis": axis}
                case(f"unique_{numpy.dtype(dtype)}_{shape}_{axis}", "Unique", [x], wanted, sorted=ordered, **attributes)


# --- NonZero-9, 13; Compress-9, 11 ---

def non_zero(x):
    places = [at for at in numpy.ndindex(x.shape) if x[at] != 0]
    return numpy.array(places, I64).reshape(len(places), max(x.ndim, 1)).T if x.ndim else numpy.zeros((1, int(x != 0)), I64)


def compress(x, condition, axis):
    if axis is None:
        return numpy.array([v for v, c in zip(x.reshape(-1), condition) if c], x.dtype)
    kept = [i for i, c in enumerate(condition) if c]
    return numpy.take(x, kept, axis)


def define_non_zero():
    for dtype in FLOATS + INTEGERS + [bool]:
        for shape in ((7,), (3, 5), (2, 3, 4), (1, 1), (4, 0), (129,), (2, 1, 3, 2)):
            x = special(shape, dtype, RNG.choice([0.0, 0.5, 1.0]))
            case(f"non_zero_{numpy.dtype(dtype)}_{shape}", "NonZero", [x], [non_zero(x)])
            axis = one_of(None, *range(-len(shape), len(shape)))
            n = math.prod(shape) if axis is None else shape[axis]
            condition = RNG.random(int(RNG.integers(0, n + 1))) < 0.5
            attributes = {} if axis is None else {"axis": axis}
            case(f"compress_{numpy.dtype(dtype)}_{shape}_{axis}", "Compress", [x, condition], [compress(x, condition, axis)], **attributes)


# --- NonMaxSuppression-10, 11 ---

def corners(box, centered):
    """Low y, low x, high y, high x."""
    a, b, c, d = (F32(v) for v in box)
    if centered:  # x, y, width, height
        return b - d / F32(2), a - c / F32(2), b + d / F32(2), a + c / F32(2)
    return min(a, c), min(b, d), max(a, c), max(b, d)


def overlap(p, q):
    """Intersection over union, of boxes that have an area."""
    height, width = (max(F32(0), min(p[k + 2], q[k + 2]) - max(p[k], q[k])) for k in (0, 1))
    area, other = ((r[2] - r[0]) * (r[3] - r[1]) for r in (p, q))
    return height * width / (area + other - height * width) if area > 0 and other > 0 else F32(0)


def suppressed(boxes, scores, most, overlaps, least, centered):
    rows = []
    for b in range(scores.shape[0]):
        for c in range(scores.shape[1]):
            left = [i for i in range(scores.shape[2]) if (scores[b, c, i] > least if least is not None else scores[b, c, i] == scores[b, c, i])]
            left.sort(key=lambda i: (-scores[b, c, i], i))
            taken = []
            for i in left:
                box = corners(boxes[b, i], centered)
                if len(taken) < most and all(overlap(box, corners(boxes[b, j], centered)) <= overlaps for j in taken):
                    taken.append(i)
            rows += [(b, c, i) for i in taken]
    return numpy.array(rows, I64).reshape(len(rows), 3)


def define_non_max_suppression():
    for n_batch, n_class, n in ((1, 1, 6), (1, 1, 1), (2, 3, 17), (1, 2, 60), (3, 1, 5), (1, 1, 0), (2, 0, 4), (1, 1, 130)):
        for _ in range(8):
            centered = int(RNG.integers(2))
            boxes = RNG.integers(0, 8, (n_batch, n, 4)).astype(F32) / F32(one_of(1, 2))  # exact: areas, ties of overlaps, no area at all
            scores = RNG.integers(-4, 9, (n_batch, n_class, n)).astype(F32) / F32(8)  # with ties
            chosen = RNG.random(scores.shape) < RNG.choice([0, 0.1])
            scores = numpy.where(chosen, RNG.choice(numpy.array([math.inf, -math.inf, math.nan, 0.0, -0.0], F32), scores.shape), scores)
            most = one_of(None, 0, 1, 3, n, 1000, 2**40)
            overlaps, least = one_of(None, 0.0, 0.25, 0.5, 1.0), one_of(None, -0.5, 0.0, 0.25, 2.0, -math.inf)
            inputs = [boxes, scores] + [None if v is None else numpy.array([v], t) for v, t in ((most, I64), (overlaps, F32), (least, F32))]
            want = suppressed(boxes, scores, most or 0, F32(overlaps or 0), least, centered)
            case(f"boxes_{scores.shape}", "NonMaxSuppression", inputs, [want], constant=one_of([], [2], [2, 3, 4]),
                 center_point_box=centered)


def define():
    define_top_k()
    define_arg()
    define_unique()
    define_non_zero()
    define_non_max_suppression()
