#!/usr/bin/env python3
"""Compiles models with ranged dimensions whose indices are computed, and compares with ONNX Runtime at all values or many in one
session. Beyond the extents of a run indices are numbers left over from other runs, which must not be followed.

usage: computed_indices.py KILN [SEED [COUNT]]      needs numpy, onnx and onnxruntime; with a seed, COUNT (1) random models from that seed on
"""
import itertools, pathlib, random, sys, tempfile
import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model

sys.path.append(str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402
from symbolic import HEAD, check  # noqa: E402

N_RANDOM = 16

CASES = [
    ("experts", {"t": (1, 24)}, """g (float[t,8] x, float[6,8,4] w, float[8,6] r) => (float[t,4] y)
        <int64[1] k={2}, int64[1] a1={1}, int64[1] a2={2}> {
        l=MatMul(x,r) p=Softmax(l) v,i=TopK(p,k) we=Gather<axis=0>(w,i) xu=Unsqueeze(x,a1) xx=Unsqueeze(xu,a2) m=MatMul(xx,we)
        ms=Squeeze(m,a2) vu=Unsqueeze(v,a2) z=Mul(ms,vu) y=ReduceSum<keepdims=0>(z,a1) }"""),
    ("words", {"t": (0, 60)}, """g (float[t,7] x, float[7,5] w) => (float[t,5] y) {
        a=ArgMax<axis=1,keepdims=0>(x) e=Gather<axis=0>(w,a) y=Exp(e) }"""),
    ("sorted", {"b": (1, 4), "l": (2, 150)}, """g (float[b,l] x) => (float[b,l] y, int64[b,l] i) { s=Shape<start=1>(x) y,i=TopK(x,s) }"""),
    ("reversed", {"b": (1, 9), "l": (1, 33)}, """g (float[l,b] x) => (float[l,b] y) <int64 one={1}> {
        a=ArgMax<axis=0,keepdims=0>(x) s=Add(a,one) y=ReverseSequence<batch_axis=1,time_axis=0>(x,s) }"""),
    ("rows", {"b": (1, 12), "c": (1, 9)}, """g (float[b,c] x) => (float[b] y) <int64[1] a={1}, int64 zero={0}, int64 one={1}> {
        s=Shape(x) n=Gather(s,zero) r=Range(zero,n,one) ru=Unsqueeze(r,a) m=ArgMax<axis=1,keepdims=1>(x) ix=Concat<axis=1>(ru,m)
        y=GatherND(x,ix) }"""),
]


class Indices:
    """A random graph: indices are computed of [a, b] elements, and choose of, or are written to, tensors with such axes."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.ranges = {"a": (self.rng.choice((1, 2)), self.rng.randint(3, 9)), "b": (self.rng.randint(1, 4), self.rng.randint(5, 40))}
        self.nodes, self.constants, self.outputs = [], [], []
        self.b = self.node("Shape", ["x"], start=1)

    def node(self, op, inputs, n_outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{i}" for i in range(n_outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[-1]

    def constant(self, value, dtype=np.int64):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def indices(self, x):
        """Indices [a, ?] into axis 1 of x, and whether those of a row are distinct."""
        kind = self.rng.randrange(5)
        if kind == 0:
            return self.node("TopK", [x, self.constant([self.rng.randint(1, self.ranges["b"][0])])], 2, largest=self.rng.randrange(2)), True
        if kind == 1:
            return self.node("TopK", [x, self.b], 2, largest=self.rng.randrange(2)), True
        if kind == 2:
            return self.node("ArgMax", [x], axis=1), True
        big = self.node("Mul", [x, self.constant(self.rng.choice((3, 100)), np.float32)])
        whole = self.node("Cast", [big], to=self.rng.choice((TensorProto.INT64, TensorProto.INT32)))
        whole = self.node("Cast", [whole], to=TensorProto.INT64)
        least = self.node("Mul", [self.b, self.constant([-1])])
        if kind == 3:  # from -b to b - 1
            return self.node("Max", [self.node("Min", [whole, self.node("Sub", [self.b, self.constant([1])])]), least]), False
        return self.node("Mod", [whole, self.b]), False

    def use(self, x):
        i, distinct = self.indices(x)
        kind = self.rng.randrange(6)
        if kind == 0:
            return self.node("GatherElements", [x, i], axis=1)
        if kind == 1:
            return self.node("Gather", ["z", i], axis=0)
        if kind == 2:
            return self.node("GatherND", [x, self.node("Unsqueeze", [i, self.constant([2])])], batch_dims=1)
        if kind == 3:
            return self.node("Gather", [x, self.node("Reshape", [i, self.constant([-1])])], axis=1)
        updates = self.node("Exp", [self.node("GatherElements", [x, i], axis=1)])
        if kind == 4:
            how = {} if distinct else {"reduction": "add"}
            return self.node("ScatterElements", [x, i, updates], axis=1, **how)
        flat = self.node("Reshape", [i, self.constant([-1, 1])])
        rows = self.node("Gather", ["z", self.node("Reshape", [i, self.constant([-1])])], axis=0)
        return self.node("ScatterND", ["z", flat, rows], reduction="add")

    def model(self):
        for _ in range(self.rng.randint(1, 3)):
            x = "x"
            for _ in range(self.rng.randrange(3)):  # elements in another order, whose tensor is computed
                moved = self.node("GatherElements", [x, self.node("TopK", [x, self.b], 2)], axis=1) if self.rng.randrange(2) else x
                x = self.node(self.rng.choice(("Neg", "Abs")), [moved])  # exact, so that indices made of them are
            made = self.use(x)
            if self.rng.randrange(3) == 0:
                made = self.node("ReduceSum", [made, self.constant([0])], keepdims=0)
            self.outputs.append(made)
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "m", [info("x", 1, ["a", "b"]), info("z", 1, ["b", 3])],
                                  [info(o, 1, None) for o in self.outputs], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def reference_of(model):
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def points_of(ranges, rng, most=80):
    """All values, or a sample of them with the corners; the order is by chance."""
    every = [dict(zip(ranges, p)) for p in itertools.product(*(range(a, b + 1) for a, b in ranges.values()))]
    rng.shuffle(every)
    return [{n: v[k] for n, v in ranges.items()} for k in (1, 0)] + every[:most]


def main():
    kiln, failed = sys.argv[1], 0
    cases = [(name, parse_model(HEAD + text), ranges) for name, ranges, text in CASES] if len(sys.argv) < 3 else []
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for seed in range(first, first + (int(sys.argv[3]) if len(sys.argv) > 3 else 1 if len(sys.argv) > 2 else N_RANDOM)):
        made = Indices(seed)
        cases.append((f"random {seed}", made.model(), made.ranges))
    for name, model, ranges in share.some(cases):
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(kiln, pathlib.Path(folder), model, ranges, {}, points_of(ranges, random.Random(7)), reference_of)
        failed += wrong is not None
        print(f"{name}: {'passed' if wrong is None else 'FAILED: ' + wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
