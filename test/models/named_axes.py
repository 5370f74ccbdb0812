"""Names for the axes of a model's inputs, with ranges: as few assumptions as ONNX's shape inference and a reference accept.

An axis gets a name of its own where it may have another extent while all others stay. Where it may not, the fewest other
axes that are multiples of it are moved with it: equal ones get its name, the others a multiple of it. An axis that cannot
be moved so is a number: an extent of 1 that is stretched, a list of operands, what an attribute says. Whether extents are
accepted is decided by shape inference of the model with these numbers, in strict mode, by running it with ONNX Runtime, or
with onnx.reference where that does not know the model, and by Kiln's reading of it with these numbers.
"""
import contextlib
import os
import random

import numpy as np
import onnx
from onnx import helper, shape_inference

import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

ort.set_default_logger_severity(4)
MOST_MOVED_ELEMS = 1 << 22


@contextlib.contextmanager
def silence():
    """ONNX Runtime and NumPy say what they do not take; here that is an answer."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(null)
        os.close(kept)


def parts_of(value):
    """The arrays of an input: of a tensor, a sequence or an optional one, by its place in a list (-1: it is none)."""
    if value is None:
        return []
    return list(enumerate(value)) if isinstance(value, list) else [(-1, value)]


def ranks_of(results):
    return [ranks_of(x) if isinstance(x, list) else np.ndim(x) for x in results]


def without_shapes(model):
    """A copy in which extents are those of inputs only."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for port in bare.graph.output:
        if port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")
    return bare


class Reference:
    """Runs a model at any extents. |values|: by input, an array, a list of them or None; |takes|: whether inputs, which give outputs,
    are accepted."""

    def __init__(self, model, values, takes):
        self.model, self.values, self.takes = model, values, takes
        self.axes = [(name, part, axis) for name, value in values.items() for part, array in parts_of(value)
                     for axis in range(np.ndim(array)) if array.dtype.kind not in "OUS"]
        self.at_test = [np.shape(self.array(name, part))[axis] for name, part, axis in self.axes]
        self.bare = without_shapes(model)
        self.evaluators = {}
        self.ranks = ranks_of(self.run(self.at_test))

    def array(self, name, part):
        return self.values[name] if part < 0 else self.values[name][part]

    def at(self, extents, rng=None):
        """The inputs with other extents: elements of the test, in turn; with |rng| drawn from them by chance."""
        shapes = {}
        for (name, part, _), n in zip(self.axes, extents):
            shapes.setdefault((name, part), []).append(n)

        def moved(name, part):
            array = np.asarray(self.array(name, part))
            shape = tuple(shapes.get((name, part), array.shape))
            if (shape == array.shape and rng is None) or array.dtype.kind in "OUS":
                return array
            if np.prod(shape, dtype=object) > MOST_MOVED_ELEMS:
                raise ValueError("too many elements")
            flat = array.reshape(-1)
            if array.size == 0:
                return np.zeros(shape, array.dtype)
            if rng is not None and flat.size > 1 and (array.dtype.kind == "f" or array.dtype.name.startswith(("bfloat", "float"))):
                return np.ascontiguousarray(rng.choice(flat, shape)).astype(array.dtype)
            return np.resize(flat, shape)

        return {name: [moved(name, k) for k, _ in parts_of(value)] if isinstance(value, list) else
                None if value is None else moved(name, -1) for name, value in self.values.items()}

    def infers(self, given):
        """Whether shape inference accepts the model with these shapes."""
        model = onnx.ModelProto()
        model.CopyFrom(self.bare)
        for port in model.graph.input:
            value = given.get(port.name)
            if port.type.HasField("tensor_type") and isinstance(value, np.ndarray):
                port.type.tensor_type.shape.CopyFrom(helper.make_tensor_type_proto(1, value.shape).tensor_type.shape)
        try:
            shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        except Exception:  # of many kinds
            return False
        return True

    def with_runtime(self, given):
        if "ort" not in self.evaluators:
            options = ort.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 4
            loose = onnx.ModelProto()
            loose.CopyFrom(self.bare)
            for port in loose.graph.input:
                if port.type.HasField("tensor_type"):
                    port.type.tensor_type.ClearField("shape")
            self.evaluators["ort"] = ort.InferenceSession(loose.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return self.evaluators["ort"].run(None, given)

    def with_onnx(self, given):
        if "onnx" not in self.evaluators:
            self.evaluators["onnx"] = ReferenceEvaluator(self.bare)
        return self.evaluators["onnx"].run(None, given)

    def run(self, extents, rng=None):
        """The outputs at these extents; an exception: they are not accepted."""
        return self.run_given(self.at(extents, rng))

    def run_given(self, given):
        with silence():
            if "kind" not in self.evaluators:
                try:
                    made = self.with_runtime(given)
                    self.evaluators["kind"] = self.with_runtime
                    return made
                except Exception:
                    self.evaluators["kind"] = self.with_onnx
            return self.evaluators["kind"](given)

    def accepts(self, extents):
        try:
            given = self.at(extents)
            if self.infers_at_test() and not self.infers(given):
                return False
            made = self.run_given(given)
        except Exception:
            return False
        return ranks_of(made) == self.ranks and self.takes(given, made)

    def infers_at_test(self):
        if "infers" not in self.evaluators:
            self.evaluators["infers"] = self.infers(self.at(self.at_test))
        return self.evaluators["infers"]


class Names:
    """|roots|: axes with a name; by axis its root, or -1, and how many times the root's extent it is. By root: its range."""

    def __init__(self, reference, fixed=()):
        self.reference, self.at_test, self.axes = reference, reference.at_test, reference.axes
        n = len(self.axes)
        self.root, self.times = [-1] * n, [1] * n
        self.free = [name not in fixed for name, _, _ in self.axes]
        self.ranges = {}
        for i in sorted(range(n), key=lambda i: self.at_test[i]):
            if self.root[i] < 0 and self.free[i] and self.at_test[i] > 0:
                self.name(i)
        self.bound()

    def others(self, extent):
        """Extents that no axis has: two that are greater, and the next smaller one, but not 1, which is stretched."""
        taken = set(self.at_test)
        up = [k for k in range(extent + 1, extent + len(taken) + 4) if k not in taken][:2]
        return up + [k for k in range(extent - 1, 1, -1) if k not in taken][:1]

    def moved(self, group, i, to):
        return [self.at_test[k] // self.at_test[i] * to if k in group else x for k, x in enumerate(self.at_test)]

    def moves(self, group, i):
        return any(self.reference.accepts(self.moved(group, i, to)) for to in self.others(self.at_test[i]))

    def candidates(self, i):
        """Sets of axes that may move with axis i, the likelier ones first."""
        n, (_, _, axis), end = self.at_test, self.axes[i], self.from_end(i)
        free = [k for k in range(len(n)) if self.free[k] and self.root[k] < 0 and n[k] and n[k] % n[i] == 0]
        equal = [k for k in free if n[k] == n[i]]
        for group in ([k for k in equal if self.axes[k][2] == axis], [k for k in equal if self.from_end(k) == end], equal, free):
            yield set(group) | {i}

    def from_end(self, k):
        """The number of an axis, counted from the last one."""
        name, part, axis = self.axes[k]
        return axis - np.ndim(self.reference.array(name, part))

    def parts(self, group):
        """Subsets of a group that may not be needed: axes of one number, of one input, of one extent, single ones."""
        keys = (lambda k: self.axes[k][2], self.from_end, lambda k: self.axes[k][:2], lambda k: self.at_test[k], lambda k: k)
        for key in keys:
            for value in sorted({key(k) for k in group}, reverse=True):
                yield {k for k in group if key(k) == value}

    def name(self, i):
        """Finds the fewest axes that move with axis i."""
        group = {i}
        if not self.moves(group, i):
            group = next((g for g in self.candidates(i) if len(g) > 1 and self.moves(g, i)), None)
            if group is None:
                return
            for part in list(self.parts(group)):
                less = group - part | {i}
                if less != group and self.moves(less, i):
                    group = less
        for k in group:
            self.root[k], self.times[k] = i, self.at_test[k] // self.at_test[i]

    def roots(self):
        return sorted({r for r in self.root if r >= 0})

    def extents(self, point):
        return [x if r < 0 else t * point[r] for x, r, t in zip(self.at_test, self.root, self.times)]

    def test_point(self):
        return {r: self.at_test[r] for r in self.roots()}

    def accepts(self, **changes):
        point = self.test_point()
        point.update(changes.get("at", {}))
        return self.reference.accepts(self.extents(point))

    def bound(self):
        """Ranges 1 .. max(2n, 8), as far as they are accepted, alone and with the others."""
        least, most = {}, {}
        for r in self.roots():
            n = self.at_test[r]
            least[r] = next((k for k in range(1, min(n, 9)) if self.accepts(at={r: k})), n)
            most[r] = next((k for k in (max(2 * n, 8), 2 * n, n + 1) if k > n and self.accepts(at={r: k})), n)
        self.ranges = {r: (least[r], most[r]) for r in self.roots() if least[r] < most[r]}
        wanted, self.ranges = self.ranges, {}
        for r, ends in wanted.items():
            self.add(r, ends)
        self.keep_named(list(self.ranges))

    def add(self, r, ends):
        """Gives r its range, if all points that were tried are accepted; else makes it a multiple of another, or a number.
        A range has steps where only multiples of something are accepted."""
        n = self.at_test[r]
        multiples = [(k, max(ends[1], n) // k * k, k) for k in range(2, n + 1) if n % k == 0]
        for some in ((*ends, 1), (ends[0], n, 1), (n, ends[1], 1), *multiples):
            if some[0] < some[1] and self.is_box({**self.ranges, r: some}):
                self.ranges[r] = some
                return
        before = list(self.root), list(self.times)
        for q in self.ranges:
            if self.at_test[r] % self.at_test[q]:
                continue
            for k in [k for k, root in enumerate(self.root) if root == r]:
                self.root[k], self.times[k] = q, self.times[k] * (self.at_test[r] // self.at_test[q])
            if self.is_box(self.ranges):
                return
            self.root, self.times = list(before[0]), list(before[1])

    def is_box(self, ranges):
        """Corners and points by chance are accepted."""
        rng = random.Random(1)
        points = [{r: ends[e] for r, ends in ranges.items()} for e in (0, 1)]
        last = list(ranges)[-1]
        points += [{**p, last: ranges[last][1 - e]} for e, p in enumerate(points)]
        low, high, step = ranges[last]
        middle = low + (high - low) // step // 2 * step
        points += [{last: k} for k in {min(low + step, high), max(high - step, low), middle}]
        points += [{r: rng.randrange(a, b + 1, by) for r, (a, b, by) in ranges.items()} for _ in range(6)]
        return all(self.accepts(at=p) for p in points)

    def keep_named(self, roots):
        self.ranges = {r: self.ranges[r] for r in roots}
        self.root = [r if r in self.ranges else -1 for r in self.root]

    def fix(self, inputs):
        """Makes numbers of the axes of |inputs|, and of those that go with them."""
        roots = {r for r, (name, _, _) in zip(self.root, self.axes) if name in inputs}
        self.keep_named([r for r in self.ranges if r not in roots])
