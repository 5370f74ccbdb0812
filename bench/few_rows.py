#!/usr/bin/env python3
"""Times MatMulNBits of few rows: Kiln, ONNX Runtime, and the bandwidth of reading alone.

usage: bench/few_rows.py [--rows M,...] [--size N K] [--block B,...] [--bits B] [--level L,...] [--rounds N] [--build DIR]
                         [--than KILN]

One thread, by its processor time. Rounds interleave: reading of 256 MB, blocks of runs of Kiln's module, of ONNX Runtime's session
and, with --than, of a module by another kiln command. Printed are medians of a round's ratios: the bytes of weights and scales over
Kiln's time as a share of the bandwidth, and the others' times over Kiln's; the error is the largest difference to ONNX Runtime over
the largest result.
"""
import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import compare  # first: it sees to the environment
import decode_cpu
import kiln_rt
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper


def save(path, rows, n, k, block, bits, level):
    rng, blocks = np.random.default_rng(1), -(-k // block)
    codes = np.frombuffer(rng.bytes(n * blocks * block * bits // 8), np.uint8).reshape(n, blocks, block * bits // 8)
    scales = ((rng.random((n, blocks)) + 0.5) / np.sqrt(k) / 4).astype(np.float32)
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block,
                            accuracy_level=level)
    graph = helper.make_graph([node], "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, n])],
                              [numpy_helper.from_array(codes, "b"), numpy_helper.from_array(scales, "s")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))
    return codes.nbytes + scales.nbytes


class Kiln:
    """A module on tensors of its own."""

    def __init__(self, kiln, build, path, name, x, n):
        module = path.with_suffix(f".{name}.so")
        subprocess.run([kiln, "compile", path, "-o", module, "--threads=1", "--no-cache", "--quiet"], check=True)
        self.session = kiln_rt.Session(build, module, threads=1)
        self.x, self.y = aligned(x.shape), aligned((len(x), n))
        self.x[:] = x
        ports = [kiln_rt.dl_tensor(t.ctypes.data, (1, 0), t.shape, 2, 32) for t in (self.x, self.y)]
        self.session.bind_tensors(ports[:1], ports[1:])
        self.session.outputs = None

    def run(self):
        self.session.run()

    def close(self):
        self.session.close()


def aligned(shape):
    size = int(np.prod(shape))
    held = np.zeros(size + 16, np.float32)
    at = -held.ctypes.data % 64 // 4
    return held[at:at + size].reshape(shape)


def timed(run, seconds):
    """The processor time of one of as many runs as take |seconds|."""
    n, begin = 0, time.thread_time()
    while n == 0 or time.thread_time() - begin < seconds:
        run()
        n += 1
    return (time.thread_time() - begin) / n


def measure(args, reader, folder, rows, block, level):
    n, k = args.size
    path = folder / "m.onnx"
    size = save(path, rows, n, k, block, args.bits, level)
    x = np.random.default_rng(0).standard_normal((rows, k)).astype(np.float32)
    kiln = Kiln(args.build / "kiln", args.build, path, "ours", x, n)
    other = Kiln(args.than, args.build, path, "other", x, n) if args.than else None
    peer = compare.ort_session(path, 1)
    shares, peers, others = [], [], []
    for i in range(args.rounds + 1):
        bandwidth, ours = reader.bandwidth(1), timed(kiln.run, 0.03)
        theirs = timed(lambda: peer.run(None, {"x": x}), 0.03)
        shares.append(size / ours / bandwidth)
        peers.append(theirs / ours)
        others.append(timed(other.run, 0.03) / ours if other else 0)
    want = peer.run(None, {"x": x})[0]
    error = abs(kiln.y - want).max() / abs(want).max()
    for made in (kiln, other):
        if made:
            made.close()
    shares, peers, others = (statistics.median(v[1:]) for v in (shares, peers, others))
    print(f"{rows} x {k} x {n}, {args.bits} bits, blocks of {block}, level {level}: {shares:.2f} of the bandwidth of reading, "
          f"{peers:.2f}x of ONNX Runtime's speed" + (f", {others:.2f}x of the other kiln's" if other else "") +
          f", error {error:.1e}", flush=True)


def main():
    numbers = lambda text: [int(t) for t in text.split(",")]  # noqa: E731
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--rows", type=numbers, default=[1, 2, 4, 8, 16, 31, 32, 128, 512])
    ap.add_argument("--size", type=int, nargs=2, default=[4096, 4096], metavar=("N", "K"))
    ap.add_argument("--block", type=numbers, default=[32, 128])
    ap.add_argument("--bits", type=int, default=4)
    ap.add_argument("--level", type=numbers, default=[0])
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    ap.add_argument("--than", type=pathlib.Path)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        reader = decode_cpu.Reader(folder)
        for rows in args.rows:
            for block in args.block:
                for level in args.level:
                    measure(args, reader, folder, rows, block, level)


if __name__ == "__main__":
    sys.exit(main())
