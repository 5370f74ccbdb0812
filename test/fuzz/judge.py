"""Whether a result is right, as far as rounding lets one say: by how far the members of an output lie apart (evaluate.py)."""
import ml_dtypes
import numpy as np

import choices
from choices import ANY_SHAPE, TIMES
from evaluate import BOOL, EXACT, F16, F32, F64, INTS, MAPS, PRODUCTS, SUMS, UNIT, Local, Reject, is_float, nudge, of_rows, row_axis, rows_of
from running import LANES, centred, running

HALVES = dict(UNIT) | {F32: UNIT[F16]}  # of --dtype=f16: what is f32 in the model is stored as halves
MOST_HALF = 6e4  # what may be infinite as a half
# Members; what they call wrong is looked at again with more of them, and where that is one element in RARE or fewer, with most:
# of so many elements the farthest is farther than that of a few members.
FEW, MANY, MOST, RARE = 8, 48, 192, 1000


# What these make of a NaN, or of any value that is not finite, where it is one of several that an element is made of, ONNX leaves open.
NAN_IS_OPEN = set("MaxPool GlobalMaxPool MaxRoiPool LpPool GlobalLpPool TopK Unique Hardmax ArgMax ArgMin NonMaxSuppression".split())
SPECIAL_IS_OPEN = set("Resize Upsample GridSample RoiAlign QuantizeLinear DynamicQuantizeLinear DynamicQuantizeLSTM Cast CastLike".split())
WINDOW = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}  # elements that an interpolation is between, by its mode
REPEATS = set("Concat Tile Expand Resize Upsample".split())  # in front of which a product may be computed
LINEAR = REPEATS | set("""Add Sub Mul Div Sum Neg Identity Reshape Transpose Flatten Squeeze Unsqueeze Split Slice Pad Gather DepthToSpace SpaceToDepth
Dropout BatchNormalization ReduceSum ReduceMean""".split())
MOST_WEIGHT = 16  # what the magnitudes of an interpolation's weights stay below


def is_special(a):
    return ~np.isfinite(a.astype(np.float64)) if is_float(a.dtype) else np.zeros(a.shape, bool)


def is_nan(a):
    return np.isnan(a.astype(np.float64)) if is_float(a.dtype) else np.zeros(a.shape, bool)


def most_of(dtype):
    return float(ml_dtypes.finfo(dtype).max)


def with_specials(members):
    """The first member, with what others have that is not finite."""
    a = members[0]
    for m in members[1:]:
        if is_float(a.dtype) and m is not None and m.shape == a.shape:
            a = np.where(~is_special(a) & is_special(m), m, a)
    return a


def replaced(step, feed, masks, low, high, rng):
    """The outputs where the elements in |masks|, by name, have some value from |low| to |high|."""
    return step({n: np.where(masks[n], rng.uniform(low, high, a.shape).astype(a.dtype), a) if is_float(a.dtype) else a for n, a in feed.items()})


def either(a, b):
    """Masks by output: what one of the two leaves open."""
    return [x if y is None else y if x is None else ANY_SHAPE if x is ANY_SHAPE or y is ANY_SHAPE else x | y for x, y in zip(a, b)]


def open_elements(op, step, members, outs):
    """By output, which elements ONNX leaves open, whatever rounding does; None: no such. |members| are those of the operands, by name."""
    feed = {n: m[0] for n, m in members.items()}
    if any(a.size == 0 for a in feed.values()) and (op.startswith(("Reduce", "Arg")) or op in ("Gemm", "MatMul")):
        return [ANY_SHAPE for _ in outs]  # ONNX Runtime keeps the axes, or forgets beta: test/models/empty.py has what is right
    none = [None] * len(outs)
    with np.errstate(all="ignore"):
        masks = overflows(op, list(feed.values()), outs) or none
        masks = either(masks, too_large(op, step, feed, outs) or none)
        return either(masks, left_open(op, step, {n: with_specials(m) for n, m in members.items()}, outs) or none)


def left_open(op, step, feed, outs):
    """The elements that are made of a NaN, or of what is not finite, of which the operator does not say what becomes."""
    if op in NAN_IS_OPEN or op.startswith("Scatter") and step.attrs.get("reduction") in ("min", "max"):
        masks = {n: is_nan(a) for n, a in feed.items()}
        feed = {n: np.clip(a, -2e4, 2e4).astype(a.dtype) if is_float(a.dtype) else a for n, a in feed.items()}  # a NaN may be more than an infinity
    elif op in SPECIAL_IS_OPEN and not (op in ("Cast", "CastLike") and is_float(outs[0].dtype)):
        masks = {n: is_special(a) for n, a in feed.items()}
    else:
        return None
    first, rng = step.node.input[0], np.random.default_rng(0)
    if op in ("Resize", "Upsample", "GridSample"):
        masks[first] = near_special(op, feed[first], step.attrs, outs[0].shape)
    if not any(m.any() for m in masks.values()):
        return None
    if op == "QuantizeLinear" and not masks[step.node.input[1]].any():  # of whose scale no value is too large
        return [masks[first]]
    if op == "Hardmax":
        return [any_of_rows(masks[first], *row_axis(step))]
    if op == "TopK":
        of_row = masks[first].any(step.attrs.get("axis", -1), keepdims=True)
        return [np.broadcast_to(of_row, o.shape) for o in outs]
    try:
        runs = [replaced(step, feed, masks, *ends, rng) for ends in ((-3e4, -3e4), (3e4, 3e4), *3 * [(-3e4, 3e4)])]
        moves = [np.any([r[i] != runs[0][i] for r in runs], 0) if all(r[i].shape == o.shape for r in runs) else ANY_SHAPE for i, o in enumerate(outs)]
        if op == "RoiAlign":  # 0 times it is a NaN, or left out
            moves = [m | is_special(o) for m, o in zip(moves, outs)]
        if op == "Unique" and "axis" not in step.attrs and len(moves) > 2:  # what a NaN is equal to is open, of the first of them too
            moves[2] = moves[2] if moves[2] is ANY_SHAPE else moves[2] | masks[first].reshape(-1) | (runs[0][2] != outs[2])
        return moves
    except Reject:
        return [ANY_SHAPE for _ in outs]


def any_of_rows(mask, axis, opset):
    """All elements of the rows (of Hardmax) in which one is in |mask|."""
    rows = rows_of(mask, axis, opset)
    return of_rows(np.broadcast_to(rows.any(-1, keepdims=True), rows.shape), mask.shape, axis, opset)


def near_special(op, x, attrs, out_shape):
    """What shares a window of an interpolation with a value that is not finite, or grows too large in it: 0 times it is a NaN, or left out."""
    mask = is_special(x) | (np.abs(x.astype(np.float64)) > (most_of(x.dtype) if is_float(x.dtype) else np.inf) / MOST_WEIGHT)
    window = WINDOW.get(attrs.get("mode", "linear" if op == "GridSample" else "nearest"), 1)
    for axis in range(0 if mask.ndim < 4 or mask.shape[:2] != out_shape[:2] else 2, mask.ndim):
        shrinks = mask.shape[axis] / max(out_shape[axis], 1) if attrs.get("antialias") else 1
        from_, to = np.moveaxis(mask, axis, 0), np.moveaxis(mask.copy(), axis, 0)
        for k in range(1, int(np.ceil(window * max(shrinks, 1)))):
            to[k:] |= from_[:-k]
            to[:-k] |= from_[k:]
        mask = np.moveaxis(to, 0, axis)
    return mask


def too_large(op, step, feed, outs):
    """Where the magnitudes of a sum's terms add up to more than its type holds: partial sums are infinite in one order and not in another."""
    xs = list(feed.values())
    if not (op in SUMS or op.startswith("Reduce")) or not is_float(outs[0].dtype):
        return None
    mask = is_special(outs[0]) & (not any(is_special(a).any() for a in xs))
    most = most_of(outs[0].dtype)
    large = [np.abs(a[~is_special(a)].astype(np.float64)).max(initial=1) for a in xs if is_float(a.dtype)]
    if op in ("ReduceProd", "ReduceLogSumExp", "ReduceMax", "ReduceMin") or max(large) ** max(2, len(large)) * 2.0**14 < most:
        return [mask]
    if outs[0].dtype == F16 and op not in ("Sum", "Mean"):  # sums of halves are kept in f32
        return [mask]
    sums = step.of_magnitudes()({n: np.where(is_special(a), a.dtype.type(0), np.abs(a)) if is_float(a.dtype) else a for n, a in feed.items()})
    limit = {"ReduceL2": np.sqrt(most), "ReduceLogSum": np.log(most)}.get(op, most / divisor(op, step, xs, outs))
    return [mask | ~(sums[0].astype(np.float64) <= limit)]


def divisor(op, step, xs, outs):
    """What a mean divides its sum by, at most."""
    if op == "Mean":
        return len(xs)
    if op == "AveragePool":
        return int(np.prod(step.attrs["kernel_shape"]))
    return xs[0].size // max(outs[0].size, 1) if op in ("ReduceMean", "GlobalAveragePool") else 1


def overflows(op, xs, outs):
    """Elements whose value is beyond their type, or of which a part may be, in one order of the factors and not in another."""
    with np.errstate(all="ignore"):
        if op == "Pow" and outs[0].dtype in INTS:
            return [~(np.abs(np.power(xs[0].astype(np.float64), xs[1].astype(np.float64))) < np.iinfo(outs[0].dtype).max)]
        if op == "QuantizeLinear" and (xs[1] == 0).any():  # 0 / 0
            return [np.ones(outs[0].shape, bool)]
        if op == "DynamicQuantizeLinear" and not outs[1]:  # 0 / 0 but for the scale
            return [np.ones(outs[0].shape, bool), None, np.ones([], bool)]
        if op == "LRN" and (np.abs(xs[0]) > 1e18).any() and xs[0].dtype != F64:  # squares are too large
            return [np.broadcast_to((np.abs(xs[0]) > 1e18).any(1, keepdims=True), outs[0].shape)]
        if op == "ReduceProd" and is_float(xs[0].dtype) and xs[0].dtype != np.float64 and xs[0].size:
            powers = np.abs(np.log2(np.abs(xs[0][xs[0] != 0].astype(np.float64)))).sum()
            return [np.full(outs[0].shape, powers > (14 if xs[0].dtype == F16 else 126))]
    return None


def spread(members, masks):
    """Lets the members of the elements in |masks| be anything."""
    for i, mask in enumerate(masks):
        if mask is ANY_SHAPE:
            for k in range(1, len(members)):
                members[k] = [None if j == i else m for j, m in enumerate(members[k])]
            continue
        if mask is None or not mask.any():
            continue
        for k in range(1, len(members)):
            if members[k][i] is None or members[k][i].shape != mask.shape:
                continue
            dtype = members[k][i].dtype
            any_value = (np.nan, 0)[k % 2] if is_float(dtype) else bool(k % 2) if dtype == BOOL else (np.iinfo(dtype).min, np.iinfo(dtype).max)[k % 2]
            members[k] = list(members[k])
            members[k][i] = np.where(mask, np.array(any_value, dtype), members[k][i])


def exchange(members, operands):
    """Products of products and of sums are associated and distributed as algebra has it: where an operand is infinite that makes an infinity
    of NaN, or of the other sign, but no number: the members are each of these."""
    y = members[0][0]
    if not is_float(y.dtype) or not any(is_special(m).any() for ms in operands.values() for m in ms if m is not None):
        return
    mask = is_special(y)
    for k in range(1, len(members)):
        if members[k][0] is not None and members[k][0].shape == y.shape:
            members[k] = [np.where(mask & is_special(members[k][0]), np.array((np.nan, np.inf, -np.inf)[k % 3], y.dtype), members[k][0])]


def span(members, ends):
    """Lets the members reach from and to |ends|, by output."""
    for i, end in enumerate(ends):
        for k, of, take in ((1, 0, np.minimum), (2, 1, np.maximum)):
            if end is None or end is ANY_SHAPE or members[k][i] is None or members[k][i].shape != end[of].shape:
                continue
            members[k] = list(members[k])
            with np.errstate(invalid="ignore"):
                members[k][i] = take(members[k][i], end[of].astype(members[k][i].dtype))


class Members:
    """The members of all values of a graph; None where rounding decides whether there is a value of that shape."""

    def __init__(self, graph, variant, n, seed, units=UNIT, cut=None, steps=None, map_steps=3):
        self.rng, self.units, self.n, self.variant = np.random.default_rng(seed), units, n, variant
        self.at, self.map_steps = {}, map_steps
        self.anything = {}  # of values that are no floats: the elements that may be anything
        self.scaled = set()  # values that are dequantized, and only moved or compared since
        self.linear = set()  # values that are products, or put together or repeated, and only moved, scaled or added to since
        for v in graph.values:
            if v.kind != "node" or (cut is not None and v.name in cut):
                a = v.arrays[variant]
                self.at[v.name] = [a] + [a if units is UNIT else stored(a, self.rng, units) for _ in range(n)]
                if units is not UNIT:
                    self.at[v.name][1] = as_half(a)
        for step in graph.steps if steps is None else steps:
            if step.evaluators:
                self.evaluate(graph, step)

    def evaluate(self, graph, step):
        names = step.names()
        nominal = [graph.by_name[n].arrays[self.variant] for n in step.node.output if n]
        values = [graph.find(n) for n in step.node.input if n]
        kept = {v.name for v in values if v.kind == "shape"}
        is_scaled = any(n in self.scaled for n in step.node.input)
        if step.op == "DequantizeLinear" or is_scaled and step.op in EXACT:
            self.scaled.update(step.node.output)
        if step.op in PRODUCTS | LINEAR:
            is_linear = any(n in self.linear for n in step.node.input)
            self.linear.update(step.node.output if is_linear or step.op in PRODUCTS | REPEATS else ())
        node = step.evaluators[self.variant]
        local = Local(step.op, [v.arrays[self.variant] for v in values], nominal, self.units, node, is_scaled and step.op in PRODUCTS)
        if step.op in MAPS or step.op == "Pow":
            local.steps = local.steps and max(local.steps, self.map_steps)
        same = all(self.at[n][0] is m for n in names for m in self.at[n])
        members = [nominal]
        for k in range(1, self.n + 1):
            if same and not local.steps and not local.relative:
                members.append(nominal)
                continue
            members.append(self.moved(step, local, {n: self.at[n][k] for n in names}, kept, len(nominal), k, ({n: self.at[n][0] for n in names}, nominal)))
            if k == 1 and self.units is not UNIT:  # one is as a plain implementation has it that stores all as halves
                members[1] = [a if a is None else stored_as_half(a, y) for a, y in zip(members[1], nominal)]
        self.leave_open(step, node, members, {n: self.at[n] for n in names})
        for i, n in enumerate(n for n in step.node.output if n):
            self.at[n] = [m[i] for m in members]

    def leave_open(self, step, node, members, operands):
        """Lets |members|, of the outputs, be what ONNX or rounding leaves open."""
        masks, ends, outs = [None] * len(members[0]), [None] * len(members[0]), members[0]
        if not step.captured:
            masks = open_elements(step.op, node, operands, outs)
            masks = either(masks, choices.near(step.op, [self.at[n] for n in step.node.input if n]) or masks)
            ends = choices.decided(step.op, node, operands, outs, self.rng, self.units) or ends
        behind = {n: self.anything[n] for n in operands if n in self.anything}
        if step.op in choices.LOSE_NAN:
            behind |= {n: choices.open_floats(m) for n, m in operands.items() if is_float(m[0].dtype)}
        if any(m.any() for m in behind.values()):
            feed = {n: m[0] for n, m in operands.items()}
            masks = either(masks, choices.depends(step.op, node, feed, behind, outs, self.rng))
        if step.op in PRODUCTS and any(n in self.linear for n in step.node.input):
            exchange(members, operands)
        span(members, ends)
        if step.op in ("MatMulInteger", "ConvInteger"):  # sums of codes that may be either of two, each by itself: no member has them all
            ends = choices.of_integer_products(node, operands, outs)
            span(members, ends)
            for k in range(3, len(members) if ends[0] is not None else 0):
                members[k] = [a if a is None else np.where(self.rng.random(a.shape) < 0.5, *ends[0]) for a in members[k]]
        if step.op == "Hardmax" and ends[0] is not None:
            for k in range(3, len(members)):
                members[k] = [a if a is None else choices.one_of(*ends[0], a, *row_axis(node), self.rng) for a in members[k]]
        spread(members, either(masks, [e if e is ANY_SHAPE else None for e in ends]))
        for n, o, mask, end in zip((n for n in step.node.output if n), outs, masks, ends):
            self.remember(n, o, mask, end if step.op in choices.PLACES else None)

    def remember(self, name, out, mask, end):
        """Which elements of an output that is no float may be anything, as what is computed of them then may be; floats are NaN in a member."""
        if is_float(out.dtype) or mask is ANY_SHAPE or end is ANY_SHAPE:
            return
        mask = np.zeros(out.shape, bool) if mask is None else mask
        if end is not None:
            mask = mask | (end[0] != end[1])
        if mask.any():
            self.anything[name] = mask

    def moved(self, step, local, feed, kept, n_outputs, k, nominal):
        if any(a is None for a in feed.values()):
            return [None] * n_outputs
        node = step.evaluators[self.variant]
        try:
            off = self.added_up(step, node, nominal, k)
            if off is not None:
                return [shifted(node(feed)[0], off)]
            feed = local.moved_inputs(feed, kept, self.rng)
            return local.moved_outputs(self.centred(step, node, feed) or node(feed), list(feed.values()), self.rng)
        except (Reject, ValueError):  # as of operands whose shape is decided by rounding
            return [None] * n_outputs

    @staticmethod
    def added_up(step, node, nominal, k):
        """Of the first members, how far a sum is off as plain loops add it up: that of the nominal terms, for what is equal there no longer is where it was moved."""
        if step.captured or not 0 < k <= len(LANES):
            return None
        feed, y = nominal
        sums = running(step.op, [feed[n] if n else None for n in step.node.input], node.attrs, LANES[k - 1], node.opsets.get("", 1))
        with np.errstate(all="ignore"):
            return sums and sums[0].astype(np.float64) - y[0].astype(np.float64)

    def centred(self, step, node, feed):
        if len(step.node.output) > 1:
            return None
        return centred(step.op, [feed[n] for n in step.node.input if n], node.attrs, node.opsets.get("", 1), self.rng, self.units)


def shifted(a, off):
    """|a| with the finite ones of |off| added."""
    with np.errstate(all="ignore"):
        return (a.astype(np.float64) + np.where(np.isfinite(off), off, 0)).astype(a.dtype) if a.shape == off.shape else a


def as_half(a):
    with np.errstate(over="ignore"):
        return a.astype(F16).astype(F32) if a.dtype == F32 else a


def stored_as_half(a, nominal):
    """|a| as halves, infinite where |nominal| is about as large as these get, or larger."""
    with np.errstate(all="ignore"):
        half = as_half(a)
        return np.where(np.abs(nominal) > MOST_HALF, np.copysign(a.dtype.type(np.inf), nominal), half) if a.dtype == F32 and a.shape == nominal.shape else half


def stored(a, rng, units):
    """|a| with what is no half moved, as it may be rounded either way."""
    return np.where(as_half(a) == a, a, nudge(a, 0, 1, rng, units=units))


class Verdict:
    """What was found of one output: |why| it is wrong, "" where it is not, and how many elements rounding left open."""

    def __init__(self, why="", open_=0, of=0, wrong=0):
        self.why, self.open, self.of, self.wrong = why, open_, of, wrong

    @property
    def is_rare(self):
        return 0 < self.wrong * RARE <= self.of


def compare(got, members, again=None):
    """The verdict on |got|; |again| is what a second judge says the nominal values are."""
    y = members[0]
    if any(m is None or m.shape != y.shape for m in members):
        return Verdict("", y.size, y.size)
    if got.shape != y.shape:
        return Verdict(f"shape {list(got.shape)}, want {list(y.shape)}")
    if not y.size:
        return Verdict()
    if not is_float(y.dtype):
        return compare_integers(got, np.stack(members), y, again)
    with np.errstate(all="ignore"):
        m, g = np.stack(members).astype(np.float64), got.astype(np.float64)
        y = m[0]
        finite = np.isfinite(m).all(0)
        apart = np.where(finite, np.abs(np.where(finite, m - y, 0)).max(0), 0)
        special = ~finite & (np.isnan(m).all(0) | (m == y).all(0))
        never = ~np.isfinite(m).any(0)  # no member has a number there
        right = np.where(finite, np.abs(g - y) <= TIMES * apart, np.where(special, (np.isnan(g) & np.isnan(y)) | (g == y), ~never | ~np.isfinite(g)))
        if again is not None and again.shape == y.shape:
            a = again.astype(np.float64)
            right |= (np.abs(g - a) <= TIMES * apart) | (np.isnan(g) & np.isnan(a)) | (g == a)
        if got.dtype == F16 and members[0].dtype == F32:
            right |= (np.abs(m) > MOST_HALF).any(0)
    return said(right, g, y, TIMES * apart, int((~finite & ~special).sum()))


def compare_integers(got, m, y, again):
    low, high = m.min(0), m.max(0)
    right = (got >= low) & (got <= high) if y.dtype != BOOL else (got == y) | (low != high)
    if again is not None and again.shape == y.shape:
        right |= got == again
    return said(right, got, y, high != low, int((low != high).sum()))


def said(right, got, want, bound, open_):
    if right.all():
        return Verdict("", open_, right.size)
    at = tuple(int(k) for k in np.argwhere(~right)[0])
    wrong = int((~right).sum())
    return Verdict(f"{wrong} of {right.size} elements, first at {at}: got {got[at]}, want {want[at]} (bound {float(bound[at]):.3g})", open_, right.size,
                   wrong)
