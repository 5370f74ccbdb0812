#!/usr/bin/env python3
"""Times products of narrow types against those of f32, and against ONNX Runtime: MatMul in f32 and bf16, MatMulInteger of u8 and i8.

usage: bench/dot.py [--threads N] [--build DIR] [M N K]...     default: 512 768 768, 128 3072 768 and 8 768 768

Prints GFLOP/s (two operations a product), medians of interleaved blocks. Integer results are compared with NumPy's, exactly; of
the others the relative L2 error is printed. ONNX Runtime has no MatMul in bf16 on processors: "-".
"""
import argparse
import pathlib
import statistics
import tempfile

import compare  # makes itself a virtual environment, which the lines below need
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BF16 = 4  # DLPack's code for bfloat16
ROUNDS = 7


def to_bf16(array):
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def from_bf16(array):
    return (array.astype(np.uint32) << 16).view(np.float32)


def make_model(path, kind, shape, rng):
    """Writes y = a @ b with b constant; gives (a, the exact result)."""
    m, n, k = shape
    if kind == "int8":
        a, b = rng.integers(0, 255, (m, k), dtype=np.uint8), rng.integers(-127, 127, (k, n), dtype=np.int8)
        types, op, want = (TensorProto.UINT8, TensorProto.INT32), "MatMulInteger", a.astype(np.int64) @ b.astype(np.int64)
        weights = numpy_helper.from_array(b, "b")
    else:
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        types, op = (TensorProto.FLOAT, TensorProto.FLOAT), "MatMul"
        weights = numpy_helper.from_array(b, "b")
        if kind == "bf16":
            a, b = to_bf16(a), to_bf16(b)
            types = (TensorProto.BFLOAT16, TensorProto.BFLOAT16)
            weights = helper.make_tensor("b", types[0], (k, n), b.tobytes(), raw=True)
        wide = [from_bf16(x) if kind == "bf16" else x for x in (a, b)]
        want = wide[0].astype(np.float64) @ wide[1].astype(np.float64)
    graph = helper.make_graph([helper.make_node(op, ["a", "b"], ["y"])], "dot",
                              [helper.make_tensor_value_info("a", types[0], (m, k))],
                              [helper.make_tensor_value_info("y", types[1], (m, n))], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return a, want


def open_kiln(path, folder, kind, a, threads):
    module = pathlib.Path(folder) / "dot.so"
    compare.compile_module(path, threads, [], module)
    kiln = compare.Kiln(module, threads)
    kiln.bind({"a": a})
    if kind == "bf16":
        for tensor in (*kiln.kept[0], *kiln.kept[1]):
            tensor.code = BF16
    return kiln


def check(kind, got, want):
    if kind == "int8":
        if not np.array_equal(got, want):
            raise SystemExit("bench/dot.py: error: int8: the result must be exact")
        return 0.0
    return compare.rel_l2(from_bf16(got) if kind == "bf16" else got, want)


def measure(kind, shape, threads, folder):
    """(Kiln's GFLOP/s, ONNX Runtime's or None, error)"""
    path = pathlib.Path(folder) / "dot.onnx"
    a, want = make_model(path, kind, shape, np.random.default_rng(1))
    kiln = open_kiln(path, folder, kind, a, threads)
    error = check(kind, kiln.run()[0], want)
    peer = None if kind == "bf16" else compare.ort_session(path, threads)
    mine, theirs = [], []
    for _ in range(ROUNDS):
        mine += compare.block(kiln.run, 0.05)
        if peer:
            theirs += compare.block(lambda: peer.run(None, {"a": a}), 0.05)
    kiln.close()
    work = 2e-6 * shape[0] * shape[1] * shape[2]  # the times are milliseconds
    return work / statistics.median(mine), work / statistics.median(theirs) if theirs else None, error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    parser.add_argument("sizes", nargs="*", type=int, metavar="M N K")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    sizes = args.sizes or [512, 768, 768, 128, 3072, 768, 8, 768, 768]
    print(f"{'M':>5} {'N':>5} {'K':>5}  type      Kiln       ORT  Kiln/f32  Kiln/ORT  error   ({args.threads} threads, GFLOP/s)")
    for i in range(0, len(sizes) - 2, 3):
        base = None
        for kind in ("f32", "bf16", "int8"):
            with tempfile.TemporaryDirectory() as folder:
                rate, peer, error = measure(kind, tuple(sizes[i:i + 3]), args.threads, folder)
            base = base or rate
            beside = f"{peer:8.1f}  {rate / base:7.2f}x  {rate / peer:7.2f}x" if peer else f"{'-':>8}  {rate / base:7.2f}x  {'-':>8}"
            print(f"{sizes[i]:5} {sizes[i + 1]:5} {sizes[i + 2]:5}  {kind:5} {rate:8.1f}  {beside}  {error:.1e}", flush=True)


if __name__ == "__main__":
    main()
