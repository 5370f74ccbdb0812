#!/usr/bin/env python3
"""Random graphs, as they are and as ONNX Runtime's optimizer rewrites them, must be predicted to take as long: what the
provider is given is not the model, but algebra leaves the same kernels.

usage: plans.py KILN [--seeds N] [--first N]

Graphs are of layers whose rows are products of matrices (rank 3 and 4, heads, windows, residuals), and of convolutions,
slices and activations. Levels are those of GraphOptimizationLevel; graphs of levels 2 and 99 with operators that Kiln does
not know are counted and left out, for a session gives Kiln its nodes before these levels. Kernels must be as many, or the
predicted time at most 1 % more.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as H

LEVELS = {1: "ORT_ENABLE_BASIC", 2: "ORT_ENABLE_EXTENDED", 99: "ORT_ENABLE_ALL"}
MOST = 1.01


class Graph:
    """Nodes that are added to the value |at|, of the shape |shape|."""

    def __init__(self, draw, shape):
        self.draw, self.shape, self.at = draw, list(shape), "x"
        self.nodes, self.weights, self.n = [], [], 0
        self.given = list(shape)

    def weight(self, *shape):
        values = np.random.default_rng(self.n).standard_normal(shape).astype(np.float32) / max(shape)
        return self.constant(values)

    def constant(self, values):
        self.n += 1
        self.weights.append(onnx.numpy_helper.from_array(np.asarray(values), f"w{self.n}"))
        return f"w{self.n}"

    def add(self, op, *inputs, shape=None, at=True, **attributes):
        self.n += 1
        self.nodes.append(H.make_node(op, list(inputs), [f"v{self.n}"], f"{op}{self.n}", **attributes))
        if at:
            self.at, self.shape = f"v{self.n}", list(shape or self.shape)
        return f"v{self.n}"

    def reshape(self, *shape):
        return self.add("Reshape", self.at, self.constant(np.int64(shape)), shape=shape)

    def transpose(self, *perm):
        return self.add("Transpose", self.at, shape=[self.shape[i] for i in perm], perm=list(perm))

    def model(self):
        infos = [H.make_tensor_value_info("x", T.FLOAT, self.given)], [H.make_tensor_value_info(self.at, T.FLOAT, self.shape)]
        graph = H.make_graph(self.nodes, "g", *infos, self.weights)
        return H.make_model(graph, opset_imports=[H.make_opsetid("", 17)], ir_version=8)


# --- layers of rows ---

def linear(g, columns):
    g.add("MatMul", g.at, g.weight(g.shape[-1], columns), shape=g.shape[:-1] + [columns])
    bias = g.weight(columns)
    g.add("Add", *((g.at, bias) if g.draw.random() < 0.7 else (bias, g.at)))


def norm(g):
    g.add("LayerNormalization", g.at, g.weight(g.shape[-1]), g.weight(g.shape[-1]), axis=-1)


def gelu(g):
    x = g.at
    g.add("Div", x, g.constant(np.float32(2**0.5)))
    g.add("Erf", g.at)
    g.add("Add", g.at, g.constant(np.float32(1)))
    g.add("Mul", x, g.at)
    g.add("Mul", g.at, g.constant(np.float32(0.5)))


def mlp(g):
    x, columns = g.at, g.shape[-1]
    norm(g)
    linear(g, columns * g.draw.choice([1, 2, 4]))
    g.draw.choice([gelu, lambda g: g.add("Relu", g.at), lambda g: g.add("Tanh", g.at)])(g)
    linear(g, columns)
    g.add("Add", x, g.at)


def attention(g):
    """Of the rows of the last but one axis; what is in front of it is the batch."""
    outer, columns = g.shape[:-1], g.shape[-1]
    batch, rows, heads = int(np.prod(outer[:-1])), outer[-1], g.draw.choice([2, 4])
    x, parts = g.at, []
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        g.at, g.shape = x, outer + [columns]
        linear(g, columns)
        g.reshape(batch, rows, heads, columns // heads)
        parts.append(g.transpose(*perm))
    g.add("MatMul", parts[0], parts[1], shape=[batch, heads, rows, rows])
    g.add("Mul", g.at, g.constant(np.float32(0.25)))
    g.add("Softmax", g.at, axis=-1)
    g.add("MatMul", g.at, parts[2], shape=[batch, heads, rows, columns // heads])
    g.transpose(0, 2, 1, 3)
    g.reshape(*outer, columns)
    linear(g, columns)
    g.add("Add", x, g.at)


def windows(g):
    """Rows of an image by windows, a layer of these, and back."""
    batch, rows, columns = g.shape
    side = int(rows**0.5)
    w = g.draw.choice([w for w in (2, 4, 7) if side % w == 0])
    n = side // w
    g.reshape(batch, n, w, n, w, columns)
    g.transpose(0, 1, 3, 2, 4, 5)
    g.reshape(batch * n * n, w * w, columns)
    g.draw.choice([mlp, attention])(g)
    g.reshape(batch, n, n, w, w, columns)
    g.transpose(0, 1, 3, 2, 4, 5)
    g.reshape(batch, rows, columns)


def of_rows(draw):
    side = draw.choice([8, 14, 16])
    g = Graph(draw, [draw.choice([1, 2, 8]), side * side, draw.choice([32, 64])])
    for _ in range(draw.randint(1, 3)):
        draw.choice([mlp, attention, windows, windows])(g)
    return g.model()


def of_rank_4(draw):
    g = Graph(draw, [draw.choice([1, 3]), draw.choice([4, 6]), 16, 32])
    for _ in range(draw.randint(1, 2)):
        draw.choice([mlp, attention])(g)
    return g.model()


# --- images ---

def conv(g, columns, kernel, stride=1):
    _, channels, h, w = g.shape
    pad, h, w = kernel // 2, (h - 1) // stride + 1, (w - 1) // stride + 1
    g.add("Conv", g.at, g.weight(columns, channels, kernel, kernel), g.weight(columns), shape=[g.shape[0], columns, h, w],
          pads=[pad] * 4, strides=[stride] * 2)
    if g.draw.random() < 0.5:
        mean, ones = g.weight(columns), g.constant(np.ones(columns, np.float32))
        g.add("BatchNormalization", g.at, ones, g.weight(columns), mean, ones)


def activation(g):
    op = g.draw.choice(["Relu", "HardSwish", "Sigmoid", "Silu", "Clip"])
    if op == "Silu":
        g.add("Mul", g.at, g.add("Sigmoid", g.at, at=False))
    elif op == "Clip":
        g.add("Clip", g.at, g.constant(np.float32(0)), g.constant(np.float32(6)))
    else:
        g.add(op, g.at)


def focus(g):
    """Every other pixel becomes a channel, in an order of the exporter's."""
    n, channels, h, w = g.shape
    x, parts = g.at, []
    corners = [(0, 0), (1, 0), (0, 1), (1, 1)]
    if g.draw.random() < 0.5:
        g.draw.shuffle(corners)
    for top, left in corners:
        starts, ends, axes = (g.constant(np.int64(v)) for v in ((top, left), (h, w), (2, 3)))
        parts.append(g.add("Slice", x, starts, ends, axes, g.constant(np.int64((2, 2))), at=False))
    g.add("Concat", *parts, axis=1, shape=[n, 4 * channels, h // 2, w // 2])


def of_images(draw):
    g = Graph(draw, [1, 3, 64, 64])
    if draw.random() < 0.5:
        focus(g)
    for _ in range(draw.randint(2, 4)):
        conv(g, draw.choice([16, 24, 32]), draw.choice([1, 3]), draw.choice([1, 1, 2]))
        activation(g)
    if draw.random() < 0.5:
        n, channels, h, w = g.shape
        g.reshape(n, channels, h * w)
        g.transpose(0, 2, 1)
        mlp(g)
    return g.model()


# --- comparing ---

def explain(kiln, path):
    """The number of kernels and the predicted time; None: it cannot be compiled."""
    out = path.with_suffix(".json")
    command = [kiln, "explain", path, "--threads", "2", "--no-cache", "--quiet", "--json", out]
    if subprocess.run(command, capture_output=True).returncode:
        return None
    told = json.loads(out.read_text())
    return told["launches"], told["predicted_us"]


def rewrite(source, level, path):
    so = ort.SessionOptions()
    so.log_severity_level = 3
    so.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[level])
    so.optimized_model_filepath = str(path)
    ort.InferenceSession(str(source), so, providers=["CPUExecutionProvider"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kiln")
    parser.add_argument("--seeds", type=int, default=24)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    seen, left, wrong = {level: 0 for level in LEVELS}, {level: 0 for level in LEVELS}, []
    with tempfile.TemporaryDirectory() as name:
        source = pathlib.Path(name) / "m.onnx"
        for seed in range(args.first, args.first + args.seeds):
            draw = random.Random(seed)
            onnx.save([of_rows, of_images, of_rank_4][seed % 3](draw), source)
            want = explain(args.kiln, source)
            assert want, f"seed {seed}: Kiln must compile the graph"
            for level in LEVELS:
                path = source.with_name(f"level_{level}.onnx")
                rewrite(source, level, path)
                got = explain(args.kiln, path)
                seen[level] += got is not None
                left[level] += got is None
                if got and got[0] != want[0] and got[1] > want[1] * MOST or level == 1 and not got:
                    wrong.append((seed, level, want, got))
    for level in LEVELS:
        print(f"level {level}: {seen[level]} graphs, {left[level]} with operators that Kiln does not know")
    for seed, level, want, got in wrong:
        print(f"seed {seed}, level {level}: must be {want[0]} kernels, {want[1]:.1f} us, got {got}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
