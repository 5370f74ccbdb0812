#!/usr/bin/env python3
"""Times attention (12 heads of 64, batch 1, f32) at several lengths: Kiln, ONNX Runtime, oneDNN and OpenVINO, interleaved, medians.

usage: bench/attention.py [--threads N,...] [--lengths M,...] [--seconds S] [--spread F] [--build DIR] [--json FILE]

All get one graph, softmax(Q K^T / 8) V with Q, K and V as (12, M, 64). ONNX Runtime runs it as MatMul, Softmax and MatMul, and
as its own fused operator, com.microsoft.MultiHeadAttention, which gets (1, M, 768); oneDNN as two matrix products and a softmax
through its C API; OpenVINO as its ScaledDotProductAttention, in f32. The share is of the peak that `kiln device` shows, counting the products alone. `arena` is what a session of
Kiln allocates besides inputs and outputs. --spread multiplies Q: by 200, as sharp attention and additive masks do, it makes many
weights subnormal numbers, which are slow on many processors.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402  (goes to the virtual environment)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import openvino.opset13 as ops  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

HEADS, DIM, ROUNDS = 12, 64, 5


def value(name, *shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def save(path, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "attention", inputs, outputs, list(initializers))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


def plain_graph(path, m):
    nodes = [helper.make_node("Transpose", ["K"], ["T"], perm=[0, 2, 1]), helper.make_node("MatMul", ["Q", "T"], ["X"]),
             helper.make_node("Mul", ["X", "scale"], ["Z"]), helper.make_node("Softmax", ["Z"], ["P"], axis=-1),
             helper.make_node("MatMul", ["P", "V"], ["O"])]
    shape = (HEADS, m, DIM)
    return save(path, nodes, [value(n, *shape) for n in "QKV"], [value("O", *shape)],
                [helper.make_tensor("scale", TensorProto.FLOAT, [], [DIM ** -0.5])])


def fused_graph(path, m):
    node = helper.make_node("MultiHeadAttention", ["Q", "K", "V"], ["O"], domain="com.microsoft", num_heads=HEADS)
    shape = (1, m, HEADS * DIM)
    return save(path, [node], [value(n, *shape) for n in "QKV"], [value("O", *shape)])


class Dnnl:
    """The graph in oneDNN 2.x: descriptors are blobs, larger than any of its structs."""

    ANY_FORWARD, F32, CPU, SRC, DST, WEIGHTS = 96, 3, 1, 1, 17, 33

    def __init__(self, q, k, v, threads):
        self.lib, self.omp = ctypes.CDLL("libdnnl.so.2"), ctypes.CDLL("libgomp.so.1")
        self.threads, self.kept = threads, []
        self.omp.omp_set_num_threads(threads)
        m = q.shape[1]
        self.scores, self.out = np.empty((HEADS, m, m), np.float32), np.empty_like(q)
        self.engine, self.stream, attr = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("dnnl_engine_create", ctypes.byref(self.engine), self.CPU, ctypes.c_size_t(0))
        self.call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, 1)
        self.call("dnnl_primitive_attr_create", ctypes.byref(attr))
        self.call("dnnl_primitive_attr_set_output_scales", attr, ctypes.c_int64(1), 0,
                  ctypes.byref(ctypes.c_float(DIM ** -0.5)))
        rows = self.desc((HEADS, m, DIM), (m * DIM, DIM, 1))
        turned = self.desc((HEADS, DIM, m), (m * DIM, 1, DIM))
        square = self.desc((HEADS, m, m), (m * m, m, 1))
        mq, mk, mv = (self.memory(rows, q), self.memory(turned, k), self.memory(rows, v))
        ms, mo = self.memory(square, self.scores), self.memory(rows, self.out)
        softmax = self.blob()
        self.call("dnnl_softmax_forward_desc_init", softmax, self.ANY_FORWARD, square, 2)
        self.steps = [self.step(self.matmul(rows, turned, square), attr, {self.SRC: mq, self.WEIGHTS: mk, self.DST: ms}),
                      self.step(softmax, None, {self.SRC: ms, self.DST: ms}),
                      self.step(self.matmul(square, rows, rows), None, {self.SRC: ms, self.WEIGHTS: mv, self.DST: mo})]

    def call(self, name, *args):
        status = getattr(self.lib, name)(*args)
        if status:
            raise RuntimeError(f"{name}: status {status}")

    def blob(self):
        self.kept.append(ctypes.create_string_buffer(1 << 14))
        return self.kept[-1]

    def desc(self, dims, strides):
        d, n = self.blob(), len(dims)
        self.call("dnnl_memory_desc_init_by_strides", d, n, (ctypes.c_int64 * n)(*dims), self.F32,
                  (ctypes.c_int64 * n)(*strides))
        return d

    def memory(self, desc, array):
        m = ctypes.c_void_p()
        self.kept.append(array)
        self.call("dnnl_memory_create", ctypes.byref(m), desc, self.engine, ctypes.c_void_p(array.ctypes.data))
        return m

    def matmul(self, a, b, c):
        d = self.blob()
        self.call("dnnl_matmul_desc_init", d, a, b, None, c)
        return d

    def step(self, op, attr, memories):
        desc, primitive = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("dnnl_primitive_desc_create", ctypes.byref(desc), op, attr, self.engine, None)
        self.call("dnnl_primitive_create", ctypes.byref(primitive), desc)

        class Argument(ctypes.Structure):
            _fields_ = [("index", ctypes.c_int), ("memory", ctypes.c_void_p)]
        return primitive, len(memories), (Argument * len(memories))(*((i, m) for i, m in memories.items()))

    def run(self):
        self.omp.omp_set_num_threads(self.threads)
        for primitive, n, arguments in self.steps:
            self.call("dnnl_primitive_execute", primitive, self.stream, n, arguments)
        self.call("dnnl_stream_wait", self.stream)
        return [self.out]


def openvino_run(path, feeds, threads):
    """A function that runs OpenVINO's fused operator, and its result; None where it does not take it."""
    wide = [x[None] for x in feeds.values()]
    ports = [ops.parameter(x.shape, np.float32, name=n) for n, x in zip(feeds, wide)]
    compare.openvino.save_model(compare.openvino.Model([ops.scaled_dot_product_attention(*ports)], ports), path, False)
    return compare.openvino_run(path, threads, dict(zip(feeds, wide)))


def merged(x):
    """(12, M, 64) as (1, M, 768)."""
    return np.ascontiguousarray(x.transpose(1, 0, 2).reshape(1, x.shape[1], -1))


def peak_gflops(threads):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        if subprocess.run([compare.BUILD / "kiln", "device", "--show", "--json", f.name], capture_output=True).returncode:
            return None
        device = json.load(open(f.name))
    found = []

    def search(x, path=()):
        if isinstance(x, dict):
            for k, v in x.items():
                search(v, path + (k,))
        elif isinstance(x, (int, float)) and "f32" in path[-2:]:
            found.append(float(x))
    search(device)
    return min(found) * threads if found else None


def measure(m, threads, seconds, spread, scratch):
    rng = np.random.default_rng(0)
    feeds = {n: rng.uniform(-1, 1, (HEADS, m, DIM)).astype(np.float32) for n in "QKV"}
    feeds["Q"] *= np.float32(spread)
    wide = {n: merged(x) for n, x in feeds.items()}
    plain = plain_graph(scratch / "plain.onnx", m)
    compare.compile_module(plain, threads, [], scratch / "plain.so")
    kiln = compare.Kiln(scratch / "plain.so", threads)
    kiln.rt.kiln_module_arena_bytes.restype = ctypes.c_size_t
    arena = kiln.rt.kiln_module_arena_bytes(kiln.module)
    kiln.bind(feeds)
    session = compare.ort_session(plain, threads)
    runs = {"kiln": kiln.run, "onnxruntime": lambda: session.run(None, feeds)}
    want = session.run(None, feeds)
    errors = {"kiln": compare.rel_l2(kiln.run(), want)}
    try:
        fused = compare.ort_session(fused_graph(scratch / "fused.onnx", m), threads)
        errors["fused"] = compare.rel_l2(fused.run(None, wide), [merged(want[0])])
        runs["fused"] = lambda: fused.run(None, wide)
    except Exception as e:  # noqa: BLE001  what the runtime raises has no common base
        print(f"# MultiHeadAttention: {str(e).splitlines()[0]}", file=sys.stderr)
    try:
        dnnl = Dnnl(feeds["Q"], feeds["K"], feeds["V"], threads)
        errors["onednn"] = compare.rel_l2(dnnl.run(), want)
        runs["onednn"] = dnnl.run
    except OSError as e:
        print(f"# oneDNN: {e}", file=sys.stderr)
    run = openvino_run(scratch / "fused.xml", feeds, threads)
    if run:
        errors["openvino"] = compare.rel_l2([x[0] for x in run().values()], want)
        runs["openvino"] = run
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name] += compare.block(run, seconds / ROUNDS)
    kiln.close()
    ms = {name: statistics.median(t) for name, t in times.items()}
    return {"length": m, "threads": threads, "arena_bytes": arena, "gflops": 4e-6 * HEADS * m * m * DIM / ms["kiln"],
            "ms": ms, "rel_l2": errors}


def print_row(row, peak):
    ms, kiln = row["ms"], row["ms"]["kiln"]
    cells = [f"{row['length']:6d} {row['threads']:7d} {kiln:9.3f} {row['gflops']:8.1f}",
             f"{100 * row['gflops'] / peak:5.0f}%" if peak else "     ?", f"{row['arena_bytes']:9d}"]
    for name in ("onnxruntime", "fused", "onednn", "openvino"):
        cells.append(f"{ms[name]:9.3f} {ms[name] / kiln:6.2f}" if name in ms else f"{'-':>9} {'-':>6}")
    cells.append(f"{row['rel_l2']['kiln']:9.1e}")
    print(" ".join(cells), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--lengths", default="128,512,2048,8192")
    parser.add_argument("--seconds", type=float, default=2, help="of each, at each length")
    parser.add_argument("--spread", type=float, default=1)
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    compare.BUILD = options.build.resolve()
    rows = []
    print("length threads   kiln ms  GFLOP/s  peak     arena    ORT ms  ratio  fused ms  ratio  oneDNN ms  ratio OpenVINO  ratio    rel L2")
    for threads in map(int, options.threads.split(",")):
        peak = peak_gflops(threads)
        for m in map(int, options.lengths.split(",")):
            with tempfile.TemporaryDirectory() as scratch:
                rows.append(measure(m, threads, options.seconds, options.spread, pathlib.Path(scratch)))
            print_row(rows[-1], peak)
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
