#!/usr/bin/env python3
"""What `kiln test` makes of expected results: right ones of any order and type pass, and 2 units in the last place of each term,
which no tolerance of 1e-3 sees, do not.

usage: expected.py KILN      in the Python environment of `make test`
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

RNG = numpy.random.default_rng(25)
F32, F16, BF16 = numpy.float32, numpy.float16, ml_dtypes.bfloat16


def write(folder, nodes, inputs, outputs, constants=()):
    """A test in the layout of ONNX's."""
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in inputs.items()]
    results = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in outputs.items()]
    graph = helper.make_graph(nodes, "g", ports, results, [numpy_helper.from_array(x, n) for n, x in constants])
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), folder / "model.onnx")
    for what, tensors in (("input", inputs), ("output", outputs)):
        for k, (n, x) in enumerate(tensors.items()):
            (data / f"{what}_{k}.pb").write_bytes(numpy_helper.from_array(x, n).SerializeToString())


def serial(terms):
    """Sums in f32, one term after the other."""
    total = numpy.zeros(terms.shape[:2], F32)
    for k in range(terms.shape[2]):
        total = total + terms[:, :, k]
    return total


def spoilt(terms, units):
    """Terms that are so many units in the last place off, all in one direction."""
    return terms + F32(units) * numpy.spacing(numpy.abs(terms))


def products(depth):
    a, b = RNG.standard_normal((24, depth)).astype(F32), RNG.standard_normal((depth, 20)).astype(F32)
    return a, b, a[:, None, :] * b.T[None, :, :]


def tests():
    """Names with the arguments of |write|; those that begin with "wrong" must fail."""
    for depth in (2, 64, 600, 4096):
        a, b, terms = products(depth)
        node = [helper.make_node("MatMul", ["a", "b"], ["y"])]
        for name, y in (("exact", (a.astype(float) @ b.astype(float)).astype(F32)), ("serial", serial(terms)), ("backwards", serial(terms[:, :, ::-1]))):
            yield f"{name}_{depth}", node, {"a": a, "b": b}, {"y": y}
        for units in (2, 5, -3):
            yield f"wrong_{units}_{depth}", node, {"a": a, "b": b}, {"y": serial(spoilt(terms, units))}
    for dtype in (F16, BF16):
        a, b = RNG.standard_normal((24, 600)).astype(dtype), RNG.standard_normal((600, 20)).astype(dtype)
        y = a.astype(float) @ b.astype(float)
        name, node = numpy.dtype(dtype).name, [helper.make_node("MatMul", ["a", "b"], ["y"])]
        yield name, node, {"a": a, "b": b}, {"y": y.astype(dtype)}
        yield f"wrong_{name}", node, {"a": a, "b": b}, {"y": (y * (1 + 3 * float(ml_dtypes.finfo(dtype).eps))).astype(dtype)}
    for name, off in (("codes", 0), ("wrong_codes", 2)):
        yield name, *quantized(off)


def quantized(off):
    """A product between 16-bit codes; expected results that are |off| steps off."""
    a, b = (RNG.integers(-3000, 3000, shape).astype(numpy.int16) for shape in ((24, 256), (256, 20)))
    scale, step, zero = F32(1 / 256), F32(1 / 8), numpy.int16(0)
    y = (a.astype(float) * scale) @ (b.astype(float) * scale)
    codes = numpy.clip(numpy.rint(y / step) + off, -32768, 32767).astype(numpy.int16)
    nodes = [helper.make_node("DequantizeLinear", ["a", "s", "z"], ["p"]), helper.make_node("DequantizeLinear", ["b", "s", "z"], ["q"]),
             helper.make_node("MatMul", ["p", "q"], ["r"]), helper.make_node("QuantizeLinear", ["r", "t", "z"], ["y"])]
    return nodes, {"a": a, "b": b}, {"y": codes}, [("s", scale), ("t", step), ("z", zero)]


def main():
    kiln, failures = sys.argv[1], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, *what in tests():
            write(folder / "tests" / name, *what)
        subprocess.run([kiln, "test", folder / "tests", "--json", folder / "found.json"], capture_output=True)
        rows = json.loads((folder / "found.json").read_text())
    for row in rows:
        name = pathlib.Path(row["test"]).name
        if (row["result"] == "passed") == name.startswith("wrong"):
            failures.append(f"{name}: {row['result']}: {row['why']}")
    print("\n".join(failures))
    print(f"{len(rows)} tests, {len(failures)} of them not as they must be")
    return 1 if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
