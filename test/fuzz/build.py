"""A random graph under construction: every node is evaluated as it is added, so that the graph is valid and its values are sane."""
import numpy as np
from onnx import helper, numpy_helper

from evaluate import (BF16, BOOL, F16, F32, FLOATS, I64, INTS, UNIT, Evaluator, Local, Reject, is_float)

EXTENTS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65]
WEIGHTS = [8, 6, 7, 7, 6, 3, 5, 6, 3, 2, 3, 4, 3, 1, 1, 2, 2, 1, 1, 1]
MOST_ELEMENTS = 1 << 13
SPECIAL = {F32: [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -3e-42, 3.4e38, 0.5, 1.5, 2.5, -0.5],
           "int": [0, 1, -1]}


class Value:
    """A tensor of the graph: an array for each variant of the named dimension (one where there is none)."""

    def __init__(self, name, arrays, moved, kind):
        self.name, self.arrays, self.moved, self.kind, self.uses = name, arrays, moved, kind, 0

    array = property(lambda self: self.arrays[0])
    dtype = property(lambda self: self.arrays[0].dtype)
    shape = property(lambda self: self.arrays[0].shape)
    rank = property(lambda self: self.arrays[0].ndim)
    size = property(lambda self: self.arrays[0].size)


class Step:
    """A node and what evaluates it."""

    def __init__(self, node, evaluators, captured):
        self.node, self.evaluators, self.captured = node, evaluators, captured
        self.op = node.op_type

    def names(self):
        return [n for n in self.node.input if n] + self.captured


class Graph:
    """|rng| decides all; |sizes| are the values of the named dimension "b", one None where there is none."""

    def __init__(self, rng, opset, sizes=(None,), special=False, types=None, outer=None):
        self.rng, self.opset, self.sizes, self.special = rng, opset, list(sizes), special
        self.types = types or [F32]
        self.opsets = {"": opset}
        self.values, self.by_name, self.steps = [], {}, []
        self.inputs, self.inits = [], []
        self.outer, self.n = outer, 0

    # --- random choices

    def chance(self, p):
        return self.rng.random() < p

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def integer(self, low, high):
        """low..high, both included."""
        return int(self.rng.integers(low, high + 1))

    def extent(self):
        if self.empties and self.chance(0.15):
            return 0
        return int(self.rng.choice(EXTENTS, p=np.array(WEIGHTS) / sum(WEIGHTS)))

    empties = False

    def shape(self, rank=None, least=0, most=5):
        rank = self.integer(max(least, 1 if self.chance(0.95) else 0), most) if rank is None else rank
        shape = [self.extent() for _ in range(rank)]
        while np.prod(shape, dtype=np.int64) > MOST_ELEMENTS:
            k = int(np.argmax(shape))
            shape[k] = max(1, shape[k] // 2)
        return shape

    def name(self, prefix):
        root = self.root()
        root.n += 1
        return f"{prefix}{root.n}"

    def root(self):
        return self.outer.root() if self.outer else self

    def random_array(self, dtype, shape, low=None, high=None, special=False):
        rng = self.rng
        if dtype == BOOL:
            return rng.random(shape) < 0.5
        if dtype in INTS:
            info = np.iinfo(dtype)
            if low is None:
                low, high = (-9, 10) if info.min < 0 else (0, 20)
                if self.chance(0.2):
                    low, high = max(info.min, -2**40), min(info.max, 2**40)
            return np.asarray(rng.integers(low, high, shape, endpoint=True)).astype(dtype)
        if low is not None:
            a = rng.uniform(low, high, shape)
        elif self.chance(0.3):
            a = rng.integers(-8, 9, shape) / 4  # ties, zeros, exact sums
        else:
            a = rng.standard_normal(shape) * self.choice([0.5, 1, 1, 1, 3])
        a = np.asarray(a)
        if special and self.special and self.chance(0.5) and a.size:
            where = rng.random(a.shape) < min(0.2, 3 / a.size)
            a = np.where(where, rng.choice(SPECIAL[F32], a.shape), a)
        with np.errstate(all="ignore"):
            return a.astype(dtype)

    def type(self, among=None):
        among = [t for t in (among or self.types)]
        preferred = [t for t in self.types if t in among]
        return self.choice(preferred if preferred and self.chance(0.8) else among)

    # --- values

    def register(self, value):
        self.values.append(value)
        self.by_name[value.name] = value
        return value

    def find(self, name):
        return self.by_name[name] if name in self.by_name else self.outer.find(name)

    def everything(self):
        return (self.outer.everything() if self.outer else []) + self.values

    def pick(self, types=None, rank=None, least=0, most=8, where=None, fresh=0.08):
        """A value with these properties: one that is there, the newer the likelier, or a new input."""
        def fits(v):
            return ((types is None or v.dtype in types) and (rank is None or v.rank == rank) and least <= v.rank <= most and
                    v.kind != "shape" and (where is None or where(v)))
        found = [v for v in self.everything() if fits(v)]
        if not found or (self.chance(fresh) and not self.outer):
            if self.outer:
                raise Reject("nothing fits")
            for _ in range(4):
                v = self.input(self.type(types), self.shape(rank, least, min(most, 5)))
                if where is None or where(v):
                    return v
                self.forget(v)
            raise Reject("nothing fits")
        unused = [v for v in found if not v.uses]
        if unused and self.chance(0.6):
            found = unused
        k = len(found) - 1 - min(int(self.rng.geometric(0.25)) - 1, len(found) - 1)
        return found[k]

    def forget(self, v):
        self.values.remove(v)
        self.inputs.remove(v)
        del self.by_name[v.name]

    def like(self, v, types=None):
        """Another value that broadcasts with |v|, of its type."""
        t = [v.dtype] if types is None else types
        def broadcasts(w):
            n = min(w.rank, v.rank)
            same = all(a == b or a == 1 or b == 1 for a, b in zip(v.shape[v.rank - n:], w.shape[w.rank - n:]))
            return same and w.size * max(v.size, 1) <= MOST_ELEMENTS * max(min(w.size, v.size), 1) and self.blown(v, w)
        roll = self.rng.random()
        if roll < 0.15:
            return v if v.dtype in t else self.pick(t, where=broadcasts)
        if roll < 0.6:
            try:
                return self.pick(t, where=lambda w: w is not v and broadcasts(w), fresh=0)
            except Reject:
                pass
        shape = [e if self.chance(0.6) else 1 for e in v.shape[self.integer(0, v.rank) if self.chance(0.4) else 0:]]
        if self.sizes[0] is not None:
            shape = [e if all(a.shape[v.rank - len(shape) + k] == e for a in v.arrays) else 1 for k, e in enumerate(shape)]
        return self.param(self.random_array(self.choice(t), shape, special=True))

    @staticmethod
    def blown(v, w):
        rank = max(v.rank, w.rank)
        a, b = (1,) * (rank - v.rank) + v.shape, (1,) * (rank - w.rank) + w.shape
        return np.prod([max(x, y) for x, y in zip(a, b)], dtype=np.int64) <= MOST_ELEMENTS

    def input(self, dtype, shape):
        axis = None
        if self.sizes[0] is not None and shape and self.chance(0.8):
            axis = 0 if self.chance(0.7) else self.integer(0, len(shape) - 1)
        low, high = (None, None) if not (self.sizes[0] is not None and dtype in INTS) else (-5, 5)
        arrays = []
        for size in self.sizes:
            s = [size if k == axis else e for k, e in enumerate(shape)]
            arrays.append(self.random_array(dtype, s, low, high, special=True))
            if axis is None:
                arrays = arrays * len(self.sizes)
                break
        v = self.register(Value(self.name("x"), arrays, arrays[0], "input"))
        v.axis = axis
        self.inputs.append(v)
        return v

    def param(self, array, constant=False):
        """A weight: an initializer, a Constant, or now and then an input."""
        array = np.asarray(array)
        if not constant and not self.outer and self.chance(0.25):
            v = self.register(Value(self.name("w"), [array] * len(self.sizes), array, "input"))
            v.axis = None
            self.inputs.append(v)
            return v
        v = self.register(Value(self.name("c"), [array] * len(self.sizes), array, "shape" if constant else "init"))
        if self.chance(0.15):
            step = helper.make_node("Constant", [], [v.name], value=numpy_helper.from_array(array, v.name))
            self.steps.append(Step(step, None, []))
        else:
            self.inits.append(v)
        return v

    def ints(self, *values):
        """An operand that must be known when compiling."""
        return self.param(np.array(values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values, I64), constant=True)

    def scalar(self, value, dtype=I64):
        return self.param(np.array(value, dtype), constant=True)

    # --- nodes

    def node(self, op, inputs, outputs=1, domain="", captured=(), check=True, **attrs):
        """Adds a node; its outputs, those of no name as None. Raises Reject where it is not valid or not wanted."""
        names = [self.name("t") if i < outputs or outputs < 0 else "" for i in range(abs(outputs))]
        return self.emit(helper.make_node(op, [v.name if v else "" for v in inputs], names, domain=domain,
                                          **{k: v for k, v in attrs.items() if v is not None}),
                         [v for v in inputs if v] + [self.find(n) for n in captured], list(captured), check)

    def emit(self, node, used, captured, check=True):
        evaluators, arrays = [], []
        opsets = dict(self.opsets)
        if node.domain:
            opsets[node.domain] = 1
        for k in range(len(self.sizes)):
            feed = {v.name: v.arrays[k] for v in used}
            evaluators.append(Evaluator(node, feed, opsets))
            arrays.append(evaluators[-1](feed))
            if len({id(a) for v in used for a in v.arrays}) == len({v.name for v in used}):  # the same for every size
                evaluators, arrays = evaluators * len(self.sizes), arrays * len(self.sizes)
                break
        names = list(node.output)
        if len(arrays[0]) != len([n for n in names if n]):
            raise Reject("another number of outputs")
        moved = self.moved(node, evaluators[0], used)
        outs, k = [], 0
        for name in names:
            if not name:
                outs.append(None)
                continue
            if any(a[k].dtype != arrays[0][k].dtype or a[k].ndim != arrays[0][k].ndim for a in arrays):
                raise Reject("types or ranks that depend on the size")
            if check:
                self.judge(arrays, k, moved)
            outs.append(Value(name, [a[k] for a in arrays], moved[k], "node"))
            k += 1
        for v in used:
            v.uses += 1
        if node.domain:
            self.root().opsets[node.domain] = 1
        self.steps.append(Step(node, evaluators, captured))
        for v in outs:
            if v:
                self.register(v)
        return outs

    def moved(self, node, evaluator, used):
        feed = {v.name: v.moved for v in used}
        xs = [v.arrays[0] for v in used]
        local = Local(node.op_type, xs, [], UNIT, evaluator)
        try:
            out = evaluator(local.moved_inputs(feed, {v.name for v in used if v.kind == "shape"}, self.rng))
        except Reject:
            raise Reject("not valid once its operands are rounded otherwise") from None
        return local.moved_outputs(out, xs, self.rng)

    def judge(self, arrays, k, moved):
        a, m = arrays[0][k], moved[k]
        if max(x[k].size for x in arrays) > 2 * MOST_ELEMENTS or a.ndim > 7:
            raise Reject("too large")
        if a.shape != m.shape:
            raise Reject("a shape that rounding decides")
        if a.size == 0 and not self.empties and self.chance(0.9):
            raise Reject("empty")
        if not is_float(a.dtype) or not a.size:
            return
        x, y = a.astype(np.float64), m.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if finite.mean() < (0.4 if self.special else 1) and self.chance(0.97):
            raise Reject("not finite")
        most = np.abs(x[finite]).max(initial=0)
        limit = {F32: 1e5, BF16: 1e5, F16: 500}.get(a.dtype, 1e8)
        if most > limit and not self.special and self.chance(0.97):
            raise Reject("large")
        if not finite.any():
            return
        apart = np.abs(x[finite] - y[finite])
        with np.errstate(over="ignore"):
            scale = np.sqrt(np.mean(np.square(x[finite])))
        if np.median(apart) > 4096 * UNIT[a.dtype] * max(scale, 1e-30) and a.dtype in (F32, np.dtype(np.float64)) and self.chance(0.95):
            raise Reject("ill conditioned")

    # --- sub-graphs

    def sub(self):
        g = Graph(self.rng, self.opset, self.sizes, self.special, self.types, outer=self)
        g.empties, g.opsets = self.empties, self.opsets
        return g

    def captured(self):
        """Names of outer values that this sub-graph uses."""
        inner = set(self.by_name)
        names = [n for s in self.steps for n in s.names()]
        return [n for n in dict.fromkeys(names) if n not in inner]

    def nodes(self):
        return [s.node for s in self.steps]

    def tensors(self):
        return [numpy_helper.from_array(v.array, v.name) for v in self.inits]


def float_types(g):
    return [t for t in FLOATS if t in g.types] or [F32]
