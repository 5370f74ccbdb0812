"""What a value that is only rounded decides: comparisons, whole numbers, places, orders; and what stands behind an element that may be anything.

A right implementation may have an operand anywhere within the bound that its elements are judged by. Where a node steps, chooses or sorts,
its result may then be what it makes of any such value: judge.py lets the members be that.
"""
import itertools

import numpy as np

from evaluate import BOOL, MANY, PAIRS, UNIT, Reject, is_float, of_rows, row_axis, rows_of

INT32 = -2**31, 2**31 - 1
TIMES = 1.5  # how many times the members' distance an element may be off: judge.py
ANY_SHAPE = object()  # of an output whose elements, and their number, may be anything

COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
# Maps that step, or that have an end (a root of what may be below 0): they are evaluated at both ends of what an operand may be.
STEPS = set("""Floor Ceil Round Sign Cast CastLike QuantizeLinear Mod ThresholdedRelu Shrink Sqrt Log Acos Asin Acosh Atanh Pow Div
Reciprocal Tan IsInf IsNaN""".split())


def interval(members):
    """What the elements of a value may be, from and to; None: rounding decides how many there are."""
    y = members[0]
    if any(m is None or m.shape != y.shape for m in members):
        return None
    if not is_float(y.dtype):
        return np.min(np.stack(members), 0), np.max(np.stack(members), 0)
    with np.errstate(all="ignore"):
        x = y.astype(np.float64)
        apart = np.zeros(x.shape)
        for m in members[1:]:
            apart = np.maximum(apart, np.abs(m.astype(np.float64) - x))
        apart = np.where(np.isfinite(apart), apart, 0)
        return (x - TIMES * apart).astype(y.dtype), (x + TIMES * apart).astype(y.dtype)


def of_integer_products(node, members, outs):
    """MatMulInteger, ConvInteger: |dA||B| + |A||dB| + |dA||dB| either way, of codes and zero points that may be any member's."""
    names = list(node.node.input) + ["", ""]
    if names[0] == names[1] or any(m is None or m.shape != of[0].shape or n in names[2:] and m.size != 1 for n, of in members.items() for m in of):
        return [None]
    size, moved = [], []
    for k in (0, 1):
        codes = np.stack(members[names[k]]).astype(np.int64)
        points = np.stack(members[names[k + 2]]).astype(np.int64).reshape(-1) if names[k + 2] else np.zeros(1, np.int64)
        value = codes[0] - points[0]
        size.append(np.abs(value))
        moved.append(np.maximum(value - (codes.min(0) - points.max()), codes.max(0) - points.min() - value))
    zeros = {n: np.zeros_like(members[n][0], np.uint8) for n in names[2:] if n}
    run = lambda a, b: node(zeros | {names[0]: np.minimum(a, 255).astype(np.uint8), names[1]: np.minimum(b, 255).astype(np.uint8)})[0].astype(np.int64)
    far = run(moved[0], size[1]) + run(size[0], moved[1]) + run(moved[0], moved[1])
    return [tuple(np.clip(e, *INT32).astype(outs[0].dtype) for e in (outs[0] - far, outs[0] + far))]


def differ(a, b):
    with np.errstate(all="ignore"):
        return (a != b) & ~((a != a) & (b != b))


def near(op, members):
    """Of a comparison of floats: where rounding alone decides, by what both operands may be."""
    if op not in COMPARISONS or not is_float(members[0][0].dtype):
        return None
    ends = [interval(m) for m in members]
    if None in ends:
        return None
    (a, b), (c, d) = ends
    with np.errstate(invalid="ignore"):
        return [(differ(a, b) | differ(c, d)) & (a <= d) & (c <= b)]


def ends_of_steps(op, evaluator, members, outs):
    """Of a map in STEPS, what its result may be from and to, by output; None where its operands are no more than known."""
    if op not in STEPS:
        return None
    ends = {n: interval(m) for n, m in members.items()}
    moving = [n for n, e in ends.items() if e is None or differ(*e).any()]
    if not moving or any(ends[n] is None or not is_float(ends[n][0].dtype) for n in moving):
        return None
    runs = []
    for picks in itertools.product(*[places_in(*ends[n]) for n in moving[:2]]):
        feed = {n: m[0] for n, m in members.items()} | {n: ends[n][0] for n in moving[2:]} | dict(zip(moving, picks))
        try:
            runs.append(evaluator(feed))
        except Reject:
            return None
    if op == "Tan":
        low, high = (np.floor(e.astype(np.float64) / np.pi - 0.5) for e in ends[moving[0]])
        runs.append([np.where(low != high, np.array(np.inf, outs[0].dtype), outs[0])])  # a pole
    return [hull([r[i] for r in runs] + [o]) for i, o in enumerate(outs)]


def places_in(low, high):
    """Both ends of what a value may be, and 0 where it lies between them."""
    # a scalar stays an array
    return tuple(np.asarray(a) for a in (low, high, np.clip(np.zeros_like(low), low, high)))


def hull(arrays):
    """The least and the largest of the arrays' elements; NaN where one is NaN and another is not."""
    if any(a.shape != arrays[0].shape for a in arrays):
        return None
    return np.minimum.reduce(arrays), np.maximum.reduce(arrays)


# --- what is chosen or sorted, an axis's elements at a time

def extremes(x, candidates):
    """Along the last axis, the first and the last place of |candidates|; of none, |x|'s."""
    n = candidates.shape[-1]
    first, last = np.argmax(candidates, -1), n - 1 - np.argmax(candidates[..., ::-1], -1)
    found = candidates.any(-1)
    return np.where(found, first, x), np.where(found, last, x)


def largest(low, high):
    """Which elements of the last axis may be its largest."""
    return high >= np.max(low, -1, keepdims=True)


def of_arg(op, node, low, high, outs):
    """ArgMax and ArgMin: any place whose element may be the largest."""
    axis = node.attrs.get("axis", 0)
    low, high = (np.moveaxis(a, axis, -1) for a in ((low, high) if op == "ArgMax" else (-high, -low)))
    place = outs[0] if outs[0].ndim < low.ndim else np.moveaxis(outs[0], axis, -1)[..., 0]
    candidates = largest(low, high)
    moves = (differ(low, high) & candidates).any(-1)
    ends = [np.where(moves, e, place) for e in extremes(place, candidates)]
    if outs[0].ndim == low.ndim:
        ends = [np.moveaxis(e[..., None], -1, axis) for e in ends]
    return [tuple(e.astype(outs[0].dtype) for e in ends)]


def of_hardmax(low, high, outs, axis, opset):
    """Hardmax: where several elements may be the largest, each of these may be the one."""
    ends = [rows_of(a, axis, opset) for a in (low, high)]
    candidates = largest(*ends)
    moves = (differ(*ends) & candidates).any(-1, keepdims=True) & (candidates.sum(-1, keepdims=True) > 1)
    y = rows_of(outs[0], axis, opset)
    rows = [np.where(moves, v, y) for v in (np.zeros_like(y), candidates.astype(y.dtype))]
    return [tuple(of_rows(r, outs[0].shape, axis, opset) for r in rows)]


def one_of(low, high, y, axis, opset, rng):
    """|y|, what Hardmax makes of one member, with one of the elements that may be the largest, by chance, in the rows where that is open."""
    rows, candidates = rows_of(y, axis, opset), rows_of(high, axis, opset) != 0
    is_open = differ(rows_of(low, axis, opset), rows_of(high, axis, opset)).any(-1, keepdims=True)
    place = np.argmax(candidates * rng.random(candidates.shape), -1)[..., None]
    return of_rows(np.where(is_open, np.arange(rows.shape[-1]) == place, rows).astype(y.dtype), y.shape, axis, opset)


def of_top(node, low, high, outs):
    """TopK: the value of a rank lies between those of that rank among the least and among the largest; any element that may have the rank is its place."""
    axis, largest_first = node.attrs.get("axis", -1), node.attrs.get("largest", 1)
    k = outs[0].shape[axis]
    if not node.attrs.get("sorted", 1):
        return [ANY_SHAPE, ANY_SHAPE] if differ(low, high).any() else None
    rows = [np.moveaxis(a, axis, -1).astype(np.float64) for a in ((low, high) if largest_first else (-high, -low))]
    shape, n = rows[0].shape[:-1], rows[0].shape[-1]
    low, high = (r.reshape(-1, n) for r in rows)
    values = [-np.sort(-r, -1)[:, :k] for r in (low, high)]
    places = np.moveaxis(outs[1], axis, -1).reshape(-1, k)
    first, last = places.copy(), places.copy()
    for r in np.nonzero(differ(low, high).any(-1))[0]:
        best = n - np.searchsorted(np.sort(low[r]), high[r], "right")  # how many are larger for certain
        worst = n - 1 - np.searchsorted(np.sort(high[r]), low[r], "left")  # how many others may be as large
        rank = np.arange(k)[:, None]
        may = (best <= rank) & (rank <= worst)
        moves = (may & differ(low[r], high[r])).any(-1)
        ends = extremes(places[r], may)
        first[r], last[r] = np.where(moves, ends[0], places[r]), np.where(moves, ends[1], places[r])
    back = lambda a, o: np.moveaxis(a.reshape(*shape, k), -1, axis).astype(o.dtype)
    values = values if largest_first else [-values[1], -values[0]]
    return [tuple(back(a, outs[0]) for a in values), tuple(back(a, outs[1]) for a in (first, last))]


def of_unique(low, high, outs):
    """Unique: where two elements may be equal or not, any number of them is right."""
    low, high = low.reshape(-1), high.reshape(-1)
    order = np.argsort(low, kind="stable")
    low, high = low[order], high[order]
    touches = high[:-1] >= low[1:]
    moves = differ(low, high)
    return [ANY_SHAPE for _ in outs] if (touches & (moves[:-1] | moves[1:])).any() else None


def of_quantized(low, high, unit):
    """DynamicQuantizeLinear: each element at both ends, by a range at both of its own, and by a scale that is rounded."""
    most, least = ([np.maximum(0.0, f(a)) for a in (low, high)] for f in (np.max, lambda a: -np.min(a)))
    scales, points, steps = [], [], []
    with np.errstate(all="ignore"):
        for m, l, off in itertools.product(most, least, (1 - 3 * unit, 1 + 3 * unit)):
            scales.append((m + l) / 255 * off)
            points.append(np.clip(np.rint(l / scales[-1]), 0, 255))
            for x in (low, high):
                scale = (np.maximum(m, x) + np.maximum(l, -x)) / 255 * off
                steps.append(np.rint(x / scale))
    codes = [f(steps, 0) + f(points) for f in (np.min, np.max)]
    ends = codes, (min(scales), max(scales)), (min(points), max(points))
    return [ends[1] if k == 1 else tuple(np.clip(np.nan_to_num(e), 0, 255) for e in pair) for k, pair in enumerate(ends)]


def at_vertices(evaluator, members, ends, outs, rng):
    """What becomes of the result where each element is one of its two ends, by chance."""
    runs = []
    for _ in range(16):
        feed = {n: m[0] if ends[n] is None or not is_float(m[0].dtype) else np.where(rng.random(m[0].shape) < 0.5, *ends[n]) for n, m in members.items()}
        try:
            runs.append(evaluator(feed))
        except Reject:
            return [ANY_SHAPE for _ in outs]
    return [hull([r[i] for r in runs] + [o]) or ANY_SHAPE for i, o in enumerate(outs)]


CHOICES = ("ArgMax", "ArgMin", "Hardmax", "TopK", "Unique", "NonZero", "DynamicQuantizeLinear")
SAMPLED = ("MaxPool", "NonMaxSuppression", "GridSample", "RoiAlign", "MaxRoiPool")
PLACES = ("ArgMax", "ArgMin", "Hardmax", "TopK", "MaxPool")  # whose results say where, not how much


def decided(op, node, members, outs, rng, units):
    """By output, what rounding lets it be, from and to, ANY_SHAPE, or None: nothing but what the members are. |members| are those of the operands, by name."""
    if op in STEPS:
        return ends_of_steps(op, node, members, outs)
    first = node.node.input[0] if node.node.input else ""
    if op not in CHOICES + SAMPLED or not is_float(members[first][0].dtype):
        return None
    if op == "MaxPool" and len(outs) < 2 or op == "GridSample" and node.attrs.get("mode", "linear") != "nearest":
        return None
    ends = {n: interval(m) for n, m in members.items()}
    rounds_scale = op == "DynamicQuantizeLinear" and units[members[first][0].dtype] > UNIT[members[first][0].dtype]  # to a half, whatever its operand
    if ends[first] is None or not rounds_scale and not any(e is not None and is_float(e[0].dtype) and differ(*e).any() for e in ends.values()):
        return None
    if op in SAMPLED:
        return at_vertices(node, members, ends, outs, rng)
    low, high = (a.astype(np.float64) for a in ends[first])
    if op == "DynamicQuantizeLinear":
        ends = of_quantized(low, high, units[members[first][0].dtype])
        return [tuple(np.asarray(e).astype(o.dtype) for e in pair) for pair, o in zip(ends, outs)]
    return chosen(op, node, low, high, outs)


def chosen(op, node, low, high, outs):
    if op in ("ArgMax", "ArgMin"):
        return of_arg(op, node, low, high, outs)
    if op == "Hardmax":
        return of_hardmax(low, high, outs, *row_axis(node))
    if op == "TopK":
        return of_top(node, low, high, outs)
    if op == "Unique":
        return of_unique(low, high, outs)
    is_open = differ(low, high) & (low <= 0) & (high >= 0)  # NonZero: whether it is 0
    return [ANY_SHAPE for _ in outs] if is_open.any() else None


LOSE_NAN = COMPARISONS + ("ThresholdedRelu", "Shrink", "IsNaN", "IsInf")  # whose result says nothing of a member that is NaN
BY_ELEMENT = set(PAIRS) | set(MANY) | set(LOSE_NAN) | {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear", "Not", "BitwiseNot", "Abs", "Neg", "Sign"}
PUT_SOMEWHERE = ("OneHot", "Scatter", "ScatterElements", "ScatterND", "MaxUnpool")


def open_floats(members):
    """The elements of which some members are no number, and others are: these may be anything."""
    if any(m is None or m.shape != members[0].shape for m in members):
        return np.zeros(members[0].shape, bool)
    is_special = np.stack([~np.isfinite(m.astype(np.float64)) for m in members])
    return is_special.any(0) & ~is_special.all(0)


def depends(op, evaluator, feed, masks, outs, rng):
    """By output, the elements that change where those in |masks| do, which may be anything: so may they."""
    if op in PUT_SOMEWHERE:
        return [ANY_SHAPE for _ in outs]
    if op in BY_ELEMENT and all(m.ndim <= outs[0].ndim for m in masks.values()):
        return [np.any([np.broadcast_to(m, outs[0].shape) for m in masks.values()], 0)]
    first = evaluator.node.input[0] if evaluator.node.input else ""
    if op.startswith("Gather") and first not in masks:  # of data that are all different
        feed = feed | {first: (rng.permutation(feed[first].size).reshape(feed[first].shape) % 127).astype(feed[first].dtype)}
    runs = []
    for draw in range(5):
        changed = {n: np.where(masks[n], anything(a, draw, rng), a) if n in masks else a for n, a in feed.items()}
        try:
            runs.append(evaluator(changed))
        except Reject:  # an index far outside, or a division by 0
            continue
    if len(runs) < 2:
        return [ANY_SHAPE for _ in outs]
    found = []
    for i, o in enumerate(outs):
        if any(r[i].shape != o.shape for r in runs):
            found.append(ANY_SHAPE)
        else:
            found.append(np.any([differ(r[i], runs[0][i]) for r in runs[1:]], 0))
    return found


def anything(a, draw, rng):
    """An array like |a| of small numbers, or of any of its type."""
    if a.dtype == BOOL:
        return rng.random(a.shape) < 0.5 if draw > 1 else np.full(a.shape, bool(draw))
    info = np.iinfo(a.dtype)
    low, high = [(0, 0), (1, 1), (0, 1), (max(info.min, -9), 9), (info.min, info.max)][draw]
    return rng.integers(low, high, a.shape, dtype=a.dtype, endpoint=True)
