"""Whether a result is right, as far as rounding lets one say: by how far the members of an output lie apart (evaluate.py)."""
import numpy as np

from evaluate import BOOL, F16, F32, MAPS, UNIT, Local, Reject, is_float, nudge

HALVES = dict(UNIT) | {F32: UNIT[F16]}  # of --dtype=f16: what is f32 in the model is stored as halves
FEW, MANY = (8, 1.5), (48, 1.5)  # members, and how many times their distance is allowed


class Members:
    """The members of all values of a graph; None where rounding decides whether there is a value of that shape."""

    def __init__(self, graph, variant, n, seed, units=UNIT, cut=None, steps=None, map_steps=3):
        self.rng, self.units, self.n, self.variant = np.random.default_rng(seed), units, n, variant
        self.at, self.map_steps = {}, map_steps
        for v in graph.values:
            if v.kind != "node" or (cut is not None and v.name in cut):
                a = v.arrays[variant]
                self.at[v.name] = [a] + [a if units is UNIT else nudge(a, 0, 1, self.rng, units=units) for _ in range(n)]
        for step in graph.steps if steps is None else steps:
            if step.evaluators:
                self.evaluate(graph, step)

    def evaluate(self, graph, step):
        names = step.names()
        nominal = [graph.by_name[n].arrays[self.variant] for n in step.node.output if n]
        values = [graph.find(n) for n in step.node.input if n]
        kept = {v.name for v in values if v.kind == "shape"}
        local = Local(step.op, [v.arrays[self.variant] for v in values], nominal, self.units)
        if step.op in MAPS or step.op == "Pow":
            local.steps = local.steps and max(local.steps, self.map_steps)
        same = all(self.at[n][0] is m for n in names for m in self.at[n])
        members = [nominal]
        for k in range(1, self.n + 1):
            if same and not local.steps and not local.relative:
                members.append(nominal)
                continue
            members.append(self.moved(step, local, {n: self.at[n][k] for n in names}, kept, len(nominal)))
        for i, n in enumerate(n for n in step.node.output if n):
            self.at[n] = [m[i] for m in members]

    def moved(self, step, local, feed, kept, n_outputs):
        if any(a is None for a in feed.values()):
            return [None] * n_outputs
        try:
            outs = step.evaluators[self.variant](local.moved_inputs(feed, kept, self.rng))
        except Reject:
            return [None] * n_outputs
        return local.moved_outputs(outs, list(feed.values()), self.rng)


class Verdict:
    """What was found of one output: |why| it is wrong, "" where it is not, and how many elements rounding left open."""

    def __init__(self, why="", open_=0, of=0):
        self.why, self.open, self.of = why, open_, of


def compare(got, members, times, again=None):
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
        right = np.where(finite, np.abs(g - y) <= times * apart, np.where(special, (np.isnan(g) & np.isnan(y)) | (g == y), True))
        if again is not None and again.shape == y.shape:
            a = again.astype(np.float64)
            right |= (np.abs(g - a) <= times * apart) | (np.isnan(g) & np.isnan(a)) | (g == a)
        if got.dtype == F16 and members[0].dtype == F32:
            right |= (np.abs(m) > 6e4).any(0)
    return said(right, g, y, times * apart, int((~finite & ~special).sum()))


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
    return Verdict(f"{int((~right).sum())} of {right.size} elements, first at {at}: got {got[at]}, want {want[at]} (bound {float(bound[at]):.3g})", open_,
                   right.size)
