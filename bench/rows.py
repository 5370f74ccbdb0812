#!/usr/bin/env python3
"""Times softmax and normalisations (f32) over rows of several shapes: Kiln, ONNX Runtime and OpenVINO, interleaved, medians.

usage: bench/rows.py [--threads N,...] [--only TEXT] [--seconds S] [--build DIR] [--no-openvino] [--json FILE]

Each is a graph of its own: one ONNX operator, or what exporters write for it (`rms`: Pow, ReduceMean, Add, Sqrt, Div, Mul).
GB/s counts the input and the output of Kiln's run once each.
"""
import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402  (goes to the virtual environment)
import onnx  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

ROUNDS = 8
SHAPES = [("softmax", (12, 512, 512)), ("softmax", (12, 128, 128)), ("softmax", (192, 49, 49)), ("softmax", (128, 1000)),
          ("softmax", (8, 32768)), ("layer", (512, 768)), ("layer", (128, 768)), ("layer", (3136, 96)), ("layer", (128, 4096)),
          ("rms", (512, 768)), ("rms", (128, 4096)), ("group", (1, 64, 56, 56)), ("instance", (1, 64, 112, 112))]


def node(op, inputs, output, **attributes):
    return helper.make_node(op, inputs, [output], **attributes)


def norm(op, n_channels, **attributes):
    """A normalisation with a scale and a shift of each channel."""
    return [node(op, ["X", "W", "B"], "Y", **attributes)], {"W": [1.5] * n_channels, "B": [0.25] * n_channels}


def make(kind, shape):
    n = shape[-1] if kind in ("layer", "rms") else shape[1] if len(shape) > 1 else 1
    if kind == "softmax":
        return [node("Softmax", ["X"], "Y", axis=-1)], {}
    if kind == "layer":
        return norm("LayerNormalization", n, axis=-1, epsilon=1e-5)
    if kind == "instance":
        return norm("InstanceNormalization", n, epsilon=1e-5)
    if kind == "group":
        return norm("GroupNormalization", n, num_groups=8, epsilon=1e-5)
    return [node("Pow", ["X", "two"], "S"), node("ReduceMean", ["S"], "M", axes=[-1]), node("Add", ["M", "epsilon"], "A"),
            node("Sqrt", ["A"], "R"), node("Div", ["X", "R"], "N"), node("Mul", ["N", "W"], "Y")], \
        {"two": [2.0], "epsilon": [1e-5], "W": [1.5] * n}


def save(path, kind, shape):
    nodes, weights = make(kind, shape)
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "XY"]
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [len(v)], v) for name, v in weights.items()]
    graph = helper.make_graph(nodes, kind, of[:1], of[1:], constants)
    opset = 21 if kind == "group" else 17
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), str(path))


def measure(kind, shape, threads, seconds, with_openvino, scratch):
    path = scratch / "rows.onnx"
    save(path, kind, shape)
    compare.compile_module(path, threads, [], scratch / "rows.so")
    kiln, session = compare.Kiln(scratch / "rows.so", threads), compare.ort_session(path, threads)
    feeds = compare.make_feeds(kiln.inputs)
    kiln.bind(feeds)
    runs = {"kiln": kiln.run, "onnxruntime": lambda: session.run(None, feeds)}
    error = compare.rel_l2(kiln.run(), session.run(None, feeds))
    other = compare.openvino_run(path, threads, feeds) if with_openvino else None
    if other:
        runs["openvino"] = other
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name] += compare.block(run, seconds / ROUNDS)
    kiln.close()
    ms = {name: statistics.median(t) for name, t in times.items()}
    return {"kind": kind, "shape": shape, "threads": threads, "ms": ms, "gb_per_s": 8e-6 * math.prod(shape) / ms["kiln"],
            "rel_l2": error}


def print_row(row):
    ms, kiln = row["ms"], row["ms"]["kiln"]
    cells = [f"{row['kind']:9s} {'x'.join(map(str, row['shape'])):>14s} {row['threads']:7d} {kiln:9.4f} {row['gb_per_s']:6.1f}"]
    for name in ("onnxruntime", "openvino"):
        cells.append(f"{ms[name]:9.4f} {ms[name] / kiln:6.2f}" if name in ms else f"{'-':>9} {'-':>6}")
    print(" ".join(cells), f"{row['rel_l2']:9.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="", help="part of the kind")
    parser.add_argument("--seconds", type=float, default=0.8, help="of each, at each shape")
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    parser.add_argument("--no-openvino", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    compare.BUILD = options.build.resolve()
    rows = []
    print("kind               shape threads   kiln ms   GB/s    ORT ms  ratio   OpenVINO  ratio    rel L2")
    for threads in map(int, options.threads.split(",")):
        for kind, shape in SHAPES:
            if options.only not in kind:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                rows.append(measure(kind, shape, threads, options.seconds, not options.no_openvino, pathlib.Path(scratch)))
            print_row(rows[-1])
            if options.json:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
