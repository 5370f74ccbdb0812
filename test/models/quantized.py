#!/usr/bin/env python3
"""Compares small models that ONNX Runtime's tools quantised with their meaning in floats, in every way of bench/quantized.py.

usage: quantized.py KILN     in the Python environment of `make test`
"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

try:
    import numpy
    import onnx
    import onnx_ir  # noqa: F401: of the tool for weights of a few bits
    import quantized
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

RNG = numpy.random.default_rng(11)


def model(nodes, weights, shape, out_shape):
    held = [numpy_helper.from_array(a.astype(numpy.float32), name) for name, a in weights.items()]
    ports = [[helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s)] for n, s in (("x", shape), ("y", out_shape))]
    graph = helper.make_graph(nodes, "small", *ports, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolutions():
    """Three channels first, and their maximum; a residual, a depthwise and a strided convolution; a head."""
    n = helper.make_node
    nodes = [n("Conv", ["x", "w0", "b0"], ["c0"], pads=[1] * 4), n("Relu", ["c0"], ["c0_relu"]),
             n("MaxPool", ["c0_relu"], ["r0"], kernel_shape=[3, 3], pads=[1] * 4),
             n("Conv", ["r0", "w1", "b0"], ["c1"], pads=[1] * 4), n("Add", ["c1", "r0"], ["a1"]), n("Relu", ["a1"], ["r1"]),
             n("Conv", ["r1", "w2", "b0"], ["c2"], pads=[1] * 4, group=16), n("Relu", ["c2"], ["r2"]),
             n("Conv", ["r2", "w3", "b3"], ["c3"], strides=[2, 2]), n("GlobalAveragePool", ["c3"], ["p"]),
             n("Flatten", ["p"], ["f"]), n("Gemm", ["f", "w4", "b4"], ["y"], transB=1)]
    shapes = {"w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 1, 3, 3), "w3": (24, 16, 1, 1), "w4": (10, 24)}
    weights = {name: RNG.normal(0, 0.3, s) for name, s in shapes.items()}
    weights |= {name: RNG.normal(0, 0.1, s) for name, s in (("b0", 16), ("b3", 24), ("b4", 10))}
    return model(nodes, weights, [1, 3, 14, 14], [1, 10])


def products(rows):
    """Two layers, the second of a width that no vector divides."""
    n = helper.make_node
    nodes = [n("MatMul", ["x", "w0"], ["m0"]), n("Add", ["m0", "b0"], ["a0"]), n("Relu", ["a0"], ["r0"]), n("MatMul", ["r0", "w1"], ["y"])]
    weights = {"w0": RNG.normal(0, 0.2, (64, 96)), "b0": RNG.normal(0, 0.1, 96), "w1": RNG.normal(0, 0.2, (96, 37))}
    return model(nodes, weights, [rows, 64], [rows, 37])


def check(kiln, path, way, folder):
    """None, or what is wrong: how far Kiln is from the model's meaning, the share of the norm."""
    out = folder / f"{way}.onnx"
    quantized.quantise(path, way, out)
    x = RNG.uniform(-1, 1, [d.dim_value for d in onnx.load(str(out)).graph.input[0].type.tensor_type.shape.dim]).astype(numpy.float32)
    want = quantized.unfused(out).run(None, {"x": x})[0]
    numpy.save(folder / "x.npy", x)
    args = [kiln, "run", str(out), "--input", f"x={folder / 'x.npy'}", "--output-dir", str(folder), "--no-cache"]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.strip()
    error = quantized.compare.rel_l2([numpy.load(folder / "y.npy")], [want])
    # codes next to a half may differ by one, in a layer or two: 1 in 255 of the range of the last codes, at most
    most = 1e-5 if way in quantized.BITS and not way.endswith("level4") else 0.015
    return None if error <= most else f"relative L2 error must be at most {most}, got {error:.4f}"


def main():
    kiln, failed, n = sys.argv[1], 0, 0
    cases = [("convolutions", convolutions(), [*quantized.QDQ, *quantized.DYNAMIC])]
    cases += [(f"products_{rows}", products(rows), [*quantized.QDQ, *quantized.DYNAMIC, *quantized.BITS]) for rows in (1, 5, 40)]
    with tempfile.TemporaryDirectory() as scratch:
        for name, made, ways in cases:
            folder = pathlib.Path(scratch) / name
            folder.mkdir()
            onnx.save(made, str(folder / "made.onnx"))
            path = quantized.whole(folder / "made.onnx", folder / "f32.onnx")
            for way in ways:
                n += 1
                wrong = check(kiln, path, way, folder)
                if wrong:
                    failed += 1
                    print(f"{name} {way}: FAILED: {wrong}", flush=True)
    print(f"{n - failed} of {n} agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
