#!/usr/bin/env python3
"""Compiles and runs graphs of thousands of nodes that use one result many times, and compares with NumPy.

usage: large.py KILN [NAME]...     in the Python environment of `make test`

What is used twice by each of n nodes has 2^n paths: a walk without memory never ends. So the processor's time has a limit,
far above what is needed, which nothing that takes steps by paths stays below, memory has one of 1 GiB, and the stack, which
recursion along a graph would fill, one of 1 MiB.
"""
import pathlib
import random
import re
import resource
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

SECONDS, BYTES, STACK = 120, 1 << 30, 1 << 20
F32 = numpy.float32
UNARY = {"Neg": numpy.negative, "Abs": numpy.abs, "Relu": lambda x: numpy.maximum(x, 0), "Sin": numpy.sin, "Floor": numpy.floor}
BINARY = {"Max": numpy.maximum, "Min": numpy.minimum, "Add": numpy.add, "Sub": numpy.subtract, "Mul": numpy.multiply}
CASES = {}
KERNELS = {"uneven": 9, "concat": 2}  # different ones, at most: a copy for each shape
DIVISIONS = {"turned_kinds": 100}  # in lanes, at most: of some 600 that offsets would take


class Graph:
    """A graph, and beside each tensor what it holds."""

    def __init__(self, feeds):
        self.nodes, self.constants, self.feeds, self.values = [], [], feeds, dict(feeds)

    def constant(self, value):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        self.values[name] = value
        return name

    def node(self, op, inputs, value, **attributes):
        names = [f"v{len(self.values)}_{k}" for k in range(len(value))] if isinstance(value, list) else [f"v{len(self.values)}"]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.values.update(zip(names, value if isinstance(value, list) else [value]))
        return names if isinstance(value, list) else names[0]

    def unary(self, op, x):
        return self.node(op, [x], UNARY[op](self.values[x]))

    def binary(self, op, x, y):
        return self.node(op, [x, y], BINARY[op](self.values[x], self.values[y]))

    def halved(self, x):
        return self.binary("Mul", x, self.half) if hasattr(self, "half") else self.halved_first(x)

    def halved_first(self, x):
        self.half = self.constant(F32(0.5))
        return self.halved(x)

    def model(self, output):
        ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, v.shape) for n, v in self.feeds.items()]
        graph = helper.make_graph(self.nodes, "large", ports, [onnx.ValueInfoProto(name=output)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def case(function):
    CASES[function.__name__] = function
    return function


def begin(*shapes):
    made = numpy.random.default_rng(7)
    return Graph({f"x{k}": made.standard_normal(shape).astype(F32) for k, shape in enumerate(shapes)})


@case
def doubled(_):
    g, x = begin((4, 8)), "x0"
    for i in range(2000):
        x = g.binary("Add", x, x) if i % 2 else g.halved(x)
    return g, x


@case
def fibonacci(_):
    g, x, y = begin((4, 8), (4, 8)), "x0", "x1"
    for i in range(2000):
        x, y = y, g.binary("Max" if i % 3 == 0 else "Sub", x, y)
    return g, y


@case
def chosen(_):
    g, x = begin((4, 8)), "x0"
    zero = g.constant(F32(0))
    for i in range(200):
        high = g.node("Greater", [x, zero], g.values[x] > 0)
        other = g.unary("Sin", x)
        x = g.node("Where", [high, x, other], numpy.where(g.values[high], g.values[x], g.values[other]))
    return g, x


@case
def truths(_):
    g = begin((4, 8), (4, 8))
    x, y = (g.node("Greater", [a, b], g.values[a] > g.values[b]) for a, b in (("x0", "x1"), ("x1", "x0")))
    how = {"And": numpy.logical_and, "Or": numpy.logical_or, "Xor": numpy.logical_xor}
    for i in range(1000):
        op = list(how)[i % 3]
        x, y = y, g.node(op, [x, y], how[op](g.values[x], g.values[y]))
    return g, g.node("Cast", [y], g.values[y].astype(F32), to=onnx.TensorProto.FLOAT)


@case
def whole_numbers(_):
    g = begin((4, 8))
    x = g.node("Cast", ["x0"], g.values["x0"].astype(numpy.int64), to=onnx.TensorProto.INT64)
    for i in range(300):
        op = "Add" if i % 3 else "Mul"
        with numpy.errstate(over="ignore"):
            x = g.node(op, [x, x], BINARY[op](g.values[x], g.values[x]))
    small = g.node("Mod", [x, g.constant(numpy.int64(1000))], numpy.mod(g.values[x], 1000))
    return g, g.node("Cast", [small], g.values[small].astype(F32), to=onnx.TensorProto.FLOAT)


@case
def codes(_):
    """Casts to a type of 8 bits and back, each many operations on bits."""
    import ml_dtypes
    g, x = begin((4, 8)), "x0"
    for i in range(12):
        name, to = (("float8_e4m3fn", onnx.TensorProto.FLOAT8E4M3FN), ("float8_e5m2", onnx.TensorProto.FLOAT8E5M2))[i % 2]
        byte = g.node("Cast", [x], g.values[x].astype(getattr(ml_dtypes, name)), to=to)
        x = g.node("Cast", [byte], g.values[byte].astype(F32), to=onnx.TensorProto.FLOAT)
    return g, x


@case
def sums_of_rows(_):
    g, axis = begin((6, 8)), None
    axis = g.constant(numpy.array([1]))
    x = g.node("ReduceSum", ["x0", axis], g.values["x0"].sum(1, keepdims=True), keepdims=1)
    for i in range(500):
        x = g.binary("Max", x, g.unary("Neg", x)) if i % 2 else g.unary("Sin", x)
    return g, g.binary("Mul", "x0", x)


def mixed(seed):
    g, made = begin((5, 7), (1, 7), (5, 1)), random.Random(seed)
    axis, tensors = g.constant(numpy.array([1])), ["x0", "x1", "x2"]
    for i in range(1200):
        x, y = (tensors[-1 - min(int(made.expovariate(0.15)), len(tensors) - 1)] for _ in range(2))
        how = made.random()
        if how < 0.03 and g.values[x].shape[1] > 1:
            x = g.node("ReduceMax", [x, axis], g.values[x].max(1, keepdims=True), keepdims=1)
        elif how < 0.3:
            x = g.unary(made.choice(list(UNARY)[:3]), x)
        else:
            x = g.binary(made.choice(["Max", "Min", "Sub"]), x, y)
        tensors.append(g.halved(x) if numpy.abs(g.values[x]).max() > 4 else x)
    return g, g.binary("Add", tensors[-1], g.unary("Abs", "x0"))


for seed in range(4):
    CASES[f"mixed_{seed}"] = lambda _, seed=seed: mixed(seed)


@case
def functions(_):
    """A chain of functions that are many instructions each."""
    g, x = begin((4, 8)), "x0"
    how = {"Sin": numpy.sin, "Cos": numpy.cos, "Tanh": numpy.tanh, "Abs": numpy.abs}
    made = random.Random(3)
    for _ in range(1000):
        op = made.choice(list(how))
        x = g.node(op, [x], how[op](g.values[x]))
    return g, x


SHAPES = ((6, 4), (4, 6), (24, 1), (3, 8), (2, 12), (12, 2))


def moved(seed, n, is_added):
    """Reshapes, with transposes and without: the index of the first tensor, seen from the last, is a long one."""
    g, made, x = begin((6, 4)), random.Random(seed), "x0"
    for i in range(n):
        if seed % 2:
            x = g.node("Transpose", [x], g.values[x].T, perm=[1, 0])
        shape = made.choice(SHAPES)
        x = g.node("Reshape", [x, g.constant(numpy.array(shape))], g.values[x].reshape(shape))
        if is_added:
            x = g.binary("Max", x, g.unary("Neg", x))
    return g, x


CASES["reshapes"] = lambda _: moved(0, 600, False)
CASES["turns"] = lambda _: moved(1, 300, False)
CASES["turned_sums"] = lambda _: moved(3, 150, True)


@case
def many_kernels(_):
    """More different kernels than have an object each."""
    return leaky(320)


@case
def very_many_kernels(_):
    """Short ones, which are not optimised, of functions and rows of different lengths."""
    g, x = begin((1, 700)), []
    for i in range(600):
        part = g.node("Slice", ["x0", g.constant(numpy.array([0])), g.constant(numpy.array([i + 1])), g.constant(numpy.array([1]))],
                      g.values["x0"][:, :i + 1])
        x.append(g.unary(("Sin", "Abs", "Floor", "Neg", "Relu")[i % 5], g.unary("Sin", part)))
    return g, g.node("Concat", x, numpy.concatenate([g.values[part] for part in x], 1), axis=1)


@case
def turned_kinds(_):
    """Short kernels of several types that read at offsets of their own in each lane, some of them behind a pad."""
    g, made, parts = begin((360,)), random.Random(11), []
    for i in range(300):
        shape = [made.randrange(1, 8) for _ in range(3)]
        n, perm, at = numpy.prod(shape), made.sample(range(3), 3), made.randrange(18)
        ends = [g.constant(numpy.array([k])) for k in (at, at + n, 0, 1)]
        x = g.node("Slice", ["x0", ends[0], ends[1], ends[2]], g.values["x0"][at:at + n])
        x = cast(g, x, ("float32", "float64", "int32", "int64", "float16", "bool")[i % 6])
        x = reshaped(g, x, shape)
        if i % 4 == 0:
            x = g.node("Pad", [cast(g, x, "float32"), g.constant(numpy.array([0, 0, 0, 0, 0, i % 3]))],
                       numpy.pad(g.values[x].astype(F32), ((0, 0), (0, 0), (0, i % 3))))
        x = g.node("Transpose", [x], g.values[x].transpose(perm), perm=perm)
        parts.append(g.unary("Neg", cast(g, reshaped(g, x, [-1]), "float32")))
    return g, g.node("Concat", parts, numpy.concatenate([g.values[x] for x in parts]), axis=0)


def cast(g, x, name):
    to = helper.np_dtype_to_tensor_dtype(numpy.dtype(name))
    return g.node("Cast", [x], g.values[x].astype(name), to=to)


def reshaped(g, x, shape):
    return g.node("Reshape", [x, g.constant(numpy.array(shape))], g.values[x].reshape(shape))


def leaky(n):
    g, parts = begin((4, 8)), []
    for i in range(n):
        slope = F32(0.5 + i / 1000)
        parts.append(g.node("LeakyRelu", ["x0"], numpy.where(g.values["x0"] < 0, slope * g.values["x0"], g.values["x0"]), alpha=float(slope)))
    return g, g.node("Concat", parts, numpy.concatenate([g.values[x] for x in parts]), axis=0)


@case
def places(_):
    """Indices whose trees are long: where they are read, they stay tensors of their own."""
    g = begin((4, 8), (5, 3))
    i = g.node("Cast", ["x0"], g.values["x0"].astype(numpy.int64), to=onnx.TensorProto.INT64)
    with numpy.errstate(over="ignore"):
        for k in range(60):
            i = g.node("Add" if k % 3 else "Mul", [i, i], g.values[i] + g.values[i] if k % 3 else g.values[i] * g.values[i])
    i = g.node("Mod", [i, g.constant(numpy.int64(5))], numpy.mod(g.values[i], 5))
    return g, g.node("Gather", ["x1", i], g.values["x1"][g.values[i]], axis=0)


@case
def every_way(_):
    """Few nodes with an endless tree, by all that looks at expressions: see `ways`."""
    g, x, y = begin((4, 8), (4, 8)), "x0", "x1"
    for i in range(90):
        x, y = y, g.binary(("Max", "Sub", "Min")[i % 3], x, y)
        y = g.halved(y) if i % 3 == 1 else y
    return g, y


@case
def concat_and_split(_):
    n, g = 3000, begin((6000,))
    parts = g.node("Split", ["x0"], numpy.split(g.values["x0"], n), axis=0, num_outputs=n)
    parts = [g.unary("Neg", x) if i % 2 else x for i, x in enumerate(parts)]
    return g, g.node("Concat", parts, numpy.concatenate([g.values[x] for x in parts]), axis=0)


def many(op, how):
    g = begin(*[(4,)] * 2000)
    names = list(g.feeds)
    return g, g.node(op, names, how([g.values[x] for x in names]), **({"axis": 0} if op == "Concat" else {}))


@case
def uneven(_):
    """Tensors of the caller side by side, in rows: each is copied, and no code chooses among them for each element."""
    made = random.Random(5)
    g = begin(*[(3, made.randrange(1, 9)) for _ in range(2000)])
    return g, g.node("Concat", list(g.feeds), numpy.concatenate([g.values[x] for x in g.feeds], 1), axis=1)


CASES["concat"] = lambda _: many("Concat", numpy.concatenate)
CASES["sum"] = lambda _: many("Sum", lambda v: numpy.sum(v, 0, dtype=numpy.float64).astype(F32))
CASES["max"] = lambda _: many("Max", lambda v: numpy.max(v, 0))


def limit():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))


def run(kiln, *words):
    done = subprocess.run([kiln, *map(str, words)], capture_output=True, text=True, preexec_fn=limit)
    return "" if done.returncode == 0 else f"{words[0]}: exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}"


def check(kiln, name, folder):
    g, output = CASES[name](None)
    path, data, found = folder / "m.onnx", folder / "in.npz", folder / "out.npz"
    onnx.save(g.model(output), path)
    numpy.savez(data, **g.feeds)
    found.unlink(missing_ok=True)
    why = run(kiln, "run", path, "--no-cache", "--threads", 1, "--inputs", data, "--outputs", found)
    if why:
        return why
    with numpy.load(found) as file:
        got = file[output]
    want = g.values[output]
    if got.shape != want.shape or not numpy.allclose(got, want, rtol=1e-4, atol=1e-4, equal_nan=True):
        return f"differs from NumPy by {numpy.abs(got - want).max() if got.shape == want.shape else got.shape}"
    if name in KERNELS:
        why = run(kiln, "compile", path, "--dump=schedule", "--dump-dir", folder, "--no-cache", "-o", folder / "m.so")
        kernels = (folder / "schedule.txt").read_text().count("\nkernel ") + 1
        why = why or ("" if kernels <= KERNELS[name] else f"{kernels} kernels, not {KERNELS[name]} at most")
    if name in DIVISIONS:
        why = why or run(kiln, "compile", path, "--dump=llvm", "--dump-dir", folder, "--no-cache", "-o", folder / "m.so")
        divisions = len(re.findall(r"= [us](?:div|rem) <", (folder / "llvm.txt").read_text()))
        why = why or ("" if divisions <= DIVISIONS[name] else f"{divisions} divisions in lanes, not {DIVISIONS[name]} at most")
    small = name in ("fibonacci", "codes", "sum", "every_way")
    for words in (("explain", path), ("compile", path, "--dump=prim,loop,schedule,c", "--no-cache", "-o", folder / "m.so")) if small else ():
        why = why or run(kiln, *words)
    for words in ways(path, folder) if name == "every_way" else ():
        why = why or run(kiln, *words)
    return why


def ways(path, folder):
    """Compiled for other machines, for a range of its rows, with kernels chosen anew, and judged."""
    out = ("--no-cache", "-o", folder / "m.so")
    return [("run", path, "--reference", "--no-cache"), ("verify", path),
            ("verify", path, "--target=sim:cuda:sm_90a", "--dtype=f16"),
            ("compile", path, "--shape", "x0=Nx8", "--shape", "x1=Nx8", "--dim", "N=1..8", *out),
            ("compile", path, "--orchestrate", *out), ("compile", path, "--dtype=f16", *out)]


def main():
    kiln, wanted = sys.argv[1], sys.argv[2:] or list(CASES)
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted:
            why = check(kiln, name, pathlib.Path(folder))
            bad += why != ""
            print(f"{name:20} {why or 'right'}", flush=True)
    sys.exit(bad > 0)


main()
