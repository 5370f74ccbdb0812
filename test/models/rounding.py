#!/usr/bin/env python3
"""Random elementwise models whose results tell how often each value was rounded: casts to a half type and back, products
whose sum cancels. Every target must give, bit by bit, what numpy does.

usage: rounding.py KILN [N]      N: models (40); needs numpy and onnx. KILN_SEED in the environment: others
"""
import os, pathlib, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

KILN = sys.argv[1]
MODELS = range(int(sys.argv[2])) if len(sys.argv) > 2 else share.some(range(40))
TARGETS = (["cpu"], ["opencl"], ["sim"], ["sim:cuda:sm_90a"])
HALVES = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}


def to_half(x, kind):
    if kind == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def make(rng):
    """A model over x and y of one shape, and a function that computes it as f32 is rounded."""
    nodes, steps, values = [], [], ["x", "y"]
    shape = [int(rng.integers(1, 5)), int(rng.integers(1, 40))]

    def add(op, inputs, function, **attributes):
        name = f"t{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        steps.append((name, function, inputs))
        values.append(name)
        return name

    def binary(op, a, b):
        return add(op, [a, b], {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op])

    for _ in range(int(rng.integers(2, 7))):
        a, b = (values[-1] if rng.integers(2) else values[int(rng.integers(len(values)))] for _ in range(2))
        how = int(rng.integers(4))
        if how == 0:
            kind = ("f16", "bf16")[int(rng.integers(2))]
            half = add("Cast", [a], lambda v, k=kind: to_half(v, k), to=HALVES[kind])
            values.pop()
            add("Cast", [half], lambda v: v, to=TensorProto.FLOAT)
        elif how == 1:  # a b - b a, one product of which is rounded alone
            binary(("Sub", "Add")[int(rng.integers(2))], binary("Mul", a, b), binary("Mul", b, a))
        else:
            binary(("Add", "Sub", "Mul")[int(rng.integers(3))], a, b)
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "rounding", [info("x"), info("y")], [info(values[-1])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def compute(x, y):
        known = {"x": x, "y": y}
        for name, function, inputs in steps:
            known[name] = function(*(known[i] for i in inputs))
        return known[values[-1]]

    return made, shape, values[-1], compute


def run(folder, target, inputs, output):
    command = [KILN, "run", str(folder / "m.onnx"), "--no-cache", "--threads", "1", "--outputs", str(folder / "out.npz")]
    command += [] if target == "cpu" else ["--target", target]
    for name, value in inputs.items():
        np.save(folder / f"{name}.npy", value)
        command += ["--input", f"{name}={folder / name}.npy"]
    r = subprocess.run(command, capture_output=True, text=True)
    if r.returncode:
        return None, (r.stderr or r.stdout).strip().splitlines()[-1]
    return np.load(folder / "out.npz")[output], ""


def main():
    seed = int(os.environ.get("KILN_SEED", "1"))
    wrong, absent = 0, set()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for i in MODELS:
            rng = np.random.default_rng(seed * 1000 + i)
            made, shape, output, compute = make(rng)
            onnx.save(made, folder / "m.onnx")
            inputs = {n: rng.standard_normal(shape).astype(np.float32) * np.float32(2.0 ** rng.integers(-3, 4)) for n in "xy"}
            want = compute(**inputs)
            for (target,) in TARGETS:
                if target in absent:
                    continue
                got, why = run(folder, target, inputs, output)
                if got is None and target == "opencl" and "device" in why:
                    absent.add(target)
                    print(f"{target}: left out: {why}")
                    continue
                same = got is not None and np.array_equal(got, want)
                wrong += not same
                if not same:
                    worst = why or f"{np.count_nonzero(got != want)} of {want.size} elements differ"
                    print(f"model {i} of seed {seed}, {target}: {worst}")
                    print(onnx.printer.to_text(made.graph))
    print(f"{len(MODELS)} models, {wrong} wrong")
    sys.exit(wrong > 0)


main()
