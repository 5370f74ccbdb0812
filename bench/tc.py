#!/usr/bin/env python3
"""Times the definitions of examples/tc/ at the sizes of Tensor Comprehensions' benchmarks, with Kiln's own schedules:
against NumPy, against ONNX Runtime where one or two of its nodes say the same, and against gcc -O3 -march=native on the
naive loops, which Kiln prints as C. One process, the same inputs and threads (gcc's loops have one), in interleaved blocks,
medians.

usage: bench/tc.py [--threads N] [--seconds S] [--build DIR] [--json FILE] [ENTRY]...
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

KERNELS = [  # as in Tensor Comprehensions' benchmarks, but for the last block, which has sizes of common use
    ("tmm", dict(M=128, N=256, K=32)), ("tmm", dict(M=128, N=1024, K=1024)), ("tmm", dict(M=128, N=16384, K=4096)),
    ("tmm", dict(M=32, N=128, K=256)),
    ("batch_matmul", dict(B=500, N=26, M=72, K=26)),
    ("convolution", dict(N=32, C=4, F=4, H=56, W=56, KH=3, KW=3)),
    ("convolution_grad", dict(N=32, C=4, F=16, H=56, W=56, KH=1, KW=1, HO=56, WO=56)),
    *(("group_convolution", dict(N=32, G=32, C=c, F=c, H=h, W=h, KH=3, KW=3)) for c, h in ((4, 56), (8, 28), (16, 14), (32, 7))),
    *((e, dict(N=n, G=32, D=d, H=h, W=h)) for e in ("group_moments", "group_normalization")
      for n, d, h in ((4, 16, 12), (32, 16, 48), (32, 4, 56))),
    *((e, dict(N=n, K=k)) for n, k in ((128, 2304), (1024, 36864))
      for e in ("sum", "mean", "sum_squares", "var", "sum_and_squares", "moments2")),
    *((e, dict(M=256, D0=16, D1=16, D2=16, N0=a, N1=b, N2=b)) for a, b in ((32, 32), (64, 64), (64, 128))
      for e in ("kronecker3_1", "kronecker3_2", "kronecker3_3", "kronecker3_full")),
    ("lut1", dict(E=10000000, D=64, B=128, L=50)),
    ("lut2", dict(E1=10000000, E2=10000000, D=64, B=128, L1=50, L2=50)),
    ("c3", dict(B=128, WX=1000, WY=1024)), ("mlp1", dict(B=128, M=2000, N=128)), ("mlp3", dict(B=128, N=128, O=64, P=32, Q=2)),
    *((e, dict(B=128, M=2000, N=128, O=64, P=32, Q=2)) for e in ("fcrelu", "fcrelu2", "fcrelu3", "fcrelu4")),
    *(("wavenet1", dict(B=1, R=32, D=32, S=256, T=4000, DILATION=d)) for d in (1, 32)),
    ("tensordot", dict(N=32, C1=512, C2=8, C3=2, H=28, W=28)), ("tensordot", dict(N=32, C1=8, C2=16, C3=2, H=17, W=25)),

    ("softmax", dict(N=1024, C=1000)), ("layernorm", dict(T=32, B=64, C=512)), ("batchnorm", dict(N=32, C=64, H=28, W=28)),
    ("avgpool", dict(N=32, C=64, H=56, W=56)), ("argmin", dict(N=1024, K=4096)), ("min_distance", dict(N=128, D=16, M=1024)),
    ("batch_triple_hadamard", dict(B=1024, D=1024)), ("cast", dict(M=1024, N=4096)), ("concat", dict(M=1000000)),
    ("masked_convolution", dict(N=32, C=4, F=4, H=56, W=56, KH=3, KW=3)),
    ("perforated_convolution", dict(N=8, C=16, F=16, H=56, W=56, KH=3, KW=3, L=512)),
    ("local_sparse_convolution", dict(N=32, G=4, F=8, KC=8, H=56, W=56, KH=3, KW=3)),
    ("convolution_1d", dict(X=100000, K=32)), ("toeplitz", dict(X=1024, K=3071)), ("triangular", dict(M=512, N=512, K=512)),
    ("matmul_grad", dict(M=256, N=256, K=256)), ("shifted_lut", dict(E=1000000, D=64, B=128, L=50)),
    ("winograd", dict(N=8, C=64, F=64, H=58, W=58)),
]
MEMORY_GB = 6  # kernels with larger inputs and temporaries are left out

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--seconds", type=float, default=0.5, help="for each of the peers, a kernel")
parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the folder of kiln and libkiln_rt.so (build)")
parser.add_argument("--json")
parser.add_argument("entries", nargs="*", metavar="ENTRY", help="only these (all)")
args = parser.parse_args()
os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)  # before NumPy is loaded

sys.path += [str(ROOT / "bench"), str(ROOT / "test/examples")]
import compare  # noqa: E402

compare.BUILD = args.build.resolve()
import numpy as np  # noqa: E402
import tc_reference as reference  # noqa: E402


def kiln(*words):
    done = subprocess.run([args.build / "kiln", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[0])
    return done.stdout


def aligned(array):
    """A copy that begins at a cache line, as allocators for tensors have it."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start:start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


class NaiveC:
    """The naive loops of a definition as C, compiled by gcc."""

    def __init__(self, definition, scratch):
        schedule, source = scratch / "naive.schedule", scratch / "naive.c"
        schedule.write_text("")
        kiln("tc", *definition, "--schedule", schedule, "--emit", "c", "-o", source)
        library = scratch / "naive.so"
        subprocess.run(["gcc", "-O3", "-march=native", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
        text = source.read_text()
        loaded = ctypes.CDLL(str(library))
        self.nests = [getattr(loaded, name) for name in re.findall(r"^void (\w+)\(char", text, re.M)]
        self.buffers = {}  # name: (number, dtype, shape)
        for name, number, dtype, shape in re.findall(r"(\w+) = \(.*\)args\[(\d+)\]; // (\w+) \((.*)\)", text):
            self.buffers[name] = (int(number), compare.numpy_dtype(dtype), tuple(int(n) for n in shape.split(",") if n.strip()))

    def bind(self, feeds):
        self.kept = {name: feeds[name] if name in feeds else aligned(np.zeros(shape, dtype))
                     for name, (_, dtype, shape) in self.buffers.items()}
        table = (ctypes.c_void_p * (1 + max(n for n, _, _ in self.buffers.values())))()
        for name, (number, _, _) in self.buffers.items():
            table[number] = self.kept[name].ctypes.data
        self.table = table

    def run(self):
        for nest in self.nests:
            nest(self.table, ctypes.c_int64(0), ctypes.c_int64(1 << 62))


def onnx_nodes(entry):
    """(nodes, constants) of an ONNX graph that says what the definition says: (operator, inputs, attributes) each; None."""
    axis1 = {"axis": np.array([1], np.int64)}
    return {
        "tmm": ([("Gemm", "A B", dict(transB=1))], {}),
        "c3": ([("Gemm", "I W", dict(transB=1))], {}),
        "batch_matmul": ([("MatMul", "X Y", {})], {}),
        "fcrelu": ([("Gemm", "I W Bias", dict(transB=1)), ("Relu", "", {})], {}),
        "mlp1": ([("Gemm", "I W1 Bias1", {}), ("Relu", "", {})], {}),
        "convolution": ([("Conv", "I Weight Bias", {})], {}),
        "winograd": ([("Conv", "I Weight", {})], {}),
        "sum": ([("ReduceSum", "I axis", dict(keepdims=0))], axis1),
        "mean": ([("ReduceMean", "I axis", dict(keepdims=0))], axis1),
        "sum_squares": ([("ReduceSumSquare", "I axis", dict(keepdims=0))], axis1),
        "kronecker3_2": ([("MatMul", "W1 XW2", {})], {}),
        "lut1": ([("Gather", "Table I", dict(axis=0)), ("ReduceSum", " axis", dict(keepdims=0))], axis1),
        "tensordot": ([("Einsum", "I0 I1", dict(equation="nabhw,nbchw->nachw"))], {}),
        "softmax": ([("Softmax", "I", dict(axis=-1))], {}),
        "avgpool": ([("AveragePool", "I", dict(kernel_shape=[2, 2], strides=[2, 2]))], {}),
    }.get(entry)


def ort_run(entry, feeds):
    if not onnx_nodes(entry):
        return None
    import onnx
    from onnx import helper, numpy_helper
    listed, constants = onnx_nodes(entry)
    nodes, last = [], ""
    for number, (op, inputs, attributes) in enumerate(listed):
        names = [name or last for name in inputs.split(" ")]
        last = f"y{number}"
        nodes.append(helper.make_node(op, names, [last], **attributes))
    used = {n for node in nodes for n in node.input}
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items() if n in used]
    graph = helper.make_graph(nodes, entry, values, [helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = compare.ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = args.threads, 1
    session = compare.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {n: a for n, a in feeds.items() if n in used}
    return lambda: session.run(None, feeds)


def is_too_large(naive):
    return sum(math.prod(s) * d.itemsize for _, d, s in naive.buffers.values()) > MEMORY_GB << 30


def measure(entry, sizes):
    file = ROOT / "examples/tc" / f"{reference.KERNELS[entry][0]}.tc"
    definition = [file, "--entry", entry, *(w for n, v in reference.sizes_of(entry, sizes).items() for w in ("--size", f"{n}={v}"))]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        naive = NaiveC(definition, scratch)
        if is_too_large(naive):
            return None
        kiln("compile", *definition, "-o", scratch / "module.so", "--threads", str(args.threads))
        mine = compare.Kiln(scratch / "module.so", args.threads)
        feeds = {name: aligned(a) for name, a in reference.inputs_of(entry, sizes).items()}
        mine.outputs = [aligned(a) for a in mine.outputs]
        mine.bind(feeds)
        naive.bind(feeds)
        want = reference.call(entry, feeds, sizes)
        runs = {"kiln": mine.run, "numpy": lambda: reference.call(entry, feeds, sizes), "gcc": naive.run,
                "onnxruntime": ort_run(entry, feeds)}
        runs = {name: run for name, run in runs.items() if run}
        first = {name: once(run) for name, run in runs.items()}
        times = {name: [ms] if ms > 2000 else [] for name, ms in first.items()}  # seconds: once is enough
        for _ in range(3):
            for name in times:
                if first[name] <= 2000:
                    times[name] += compare.block(runs[name], args.seconds / 3)
        mine.close()
        row = {"entry": entry, "sizes": sizes, "threads": args.threads, "rel_l2": compare.rel_l2(mine.outputs, want)}
        return row | {f"{name}_ms": float(np.median(t)) for name, t in times.items()}


def once(run):
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def main():
    rows, failed = [], 0
    print(f"Kiln against NumPy {np.__version__}, ONNX Runtime {compare.ort.__version__} and gcc, {args.threads} threads")
    print(f"{'kernel':26} {'Kiln ms':>9} {'/NumPy':>8} {'/ORT':>8} {'/gcc':>8} {'rel. L2':>8}  sizes")
    seen = set()
    for entry, sizes in KERNELS:
        text = " ".join(f"{n}={v}" for n, v in reference.sizes_of(entry, sizes).items())
        if args.entries and entry not in args.entries or (entry, text) in seen:  # some sets of sizes differ in what it lacks
            continue
        seen.add((entry, text))
        try:
            row = measure(entry, sizes)
        except RuntimeError as problem:  # one kernel's failure is a row of the table
            failed += 1
            print(f"{entry:26} {problem}", flush=True)
            continue
        if not row:
            print(f"{entry:26} needs more than {MEMORY_GB} GB  {text}", flush=True)
            continue
        rows.append(row)
        ratios = [f"{row[p + '_ms'] / row['kiln_ms']:8.2f}" if p + "_ms" in row else f"{'-':>8}" for p in ("numpy", "onnxruntime", "gcc")]
        print(f"{entry:26} {row['kiln_ms']:9.3f} {' '.join(ratios)} {row['rel_l2']:8.1e}  {text}", flush=True)
    for peer in ("numpy", "onnxruntime", "gcc"):
        ratios = [r[f"{peer}_ms"] / r["kiln_ms"] for r in rows if f"{peer}_ms" in r]
        if ratios:
            print(f"geometric mean of {peer}'s time over Kiln's, {len(ratios)} kernels: "
                  f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, the least {min(ratios):.2f}")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")
    return 1 if failed or any(not r["rel_l2"] <= 1e-3 for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
