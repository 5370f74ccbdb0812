#!/usr/bin/env python3
"""Times random grouped, dilated and transposed convolutions (f32, one thread): Kiln against ONNX Runtime, and checks what they compute.

usage: bench/conv_random.py [--seed S] [--count N] [--kind grouped|dilated|transposed] [--rounds R] [--build DIR] [MODEL.onnx...]

Grouped: 1 to 32 channels a group, steps of 1 and 2, images of 5 to 57 pixels, batches of 1, 2, 3 and 8, with and without a
product in front of them and behind. Dilated: windows of 3 and 5, taps 2 to 36 apart, images of 8 to 65 pixels. Transposed:
windows of 2 to 5, steps of 1 to 3, 1 to 64 channels, in groups of 1 and more, one channel a group too, batches of 1 and 4, alone and
between products; only with --kind. MODEL.onnx are timed in place of random ones. Ratio: ONNX Runtime's time over Kiln's, by the least time of a run of each, which are taken in
turns, as others may use the machine; beside it the median over rounds of the ratio of processor time. Ends with the least ratio
and the geometric mean; exits with 1 where a result is wrong.
"""
import argparse
import math
import pathlib
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import compare  # noqa: E402  (goes to the virtual environment)
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MOST_MACS, MOST_BYTES = 2e9, 2e8
BLOCK_SECONDS = 0.02


class Graph:
    """Convolutions one behind the other; every one is named, and has random weights."""

    def __init__(self, rng):
        self.rng, self.nodes, self.weights, self.last = rng, [], [], "x"

    def add(self, op, inputs=(), **attributes):
        out = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self.last, *inputs], [out], name=f"{op}{len(self.nodes)}", **attributes))
        self.last = out

    def weight(self, shape):
        name = f"w{len(self.weights)}"
        values = (self.rng.standard_normal(shape) / math.sqrt(math.prod(shape[1:]) or 1)).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(self, inputs, outputs, kernel, has_bias=True, relu=True, **attributes):
        group = attributes.get("group", 1)
        weights = [self.weight((outputs, inputs // group, kernel, kernel))] + ([self.weight((outputs,))] if has_bias else [])
        self.add("Conv", weights, **attributes)
        if relu:
            self.add("Relu")

    def save(self, path, shape):
        value = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "g", [value("x", TensorProto.FLOAT, shape)],
                                  [value(self.last, TensorProto.FLOAT, None)], self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def grouped(r, graph):
    """Several channels a group; gives a name and the shape of the input."""
    batch, per, step = r.choice([1, 2, 3, 8]), r.choice([1, 2, 4, 8, 12, 16, 24, 32]), r.choice([1, 2])
    more = r.choice([1, 1, 1, 2]) if per > 1 else 1
    groups, size, kernel = r.randint(2, max(2, 256 // per)), r.randint(5, 57), r.choice([3, 3, 3, 5])
    before, behind, bias = r.random() < 0.6, r.random() < 0.5, r.random() < 0.7
    inputs, outputs = per * groups, per * more * groups
    if before:
        graph.conv(inputs, inputs, 1)
    graph.conv(inputs, outputs, kernel, bias, behind, group=groups, strides=[step] * 2, pads=[kernel // 2] * 4)
    if behind:
        graph.conv(outputs, outputs, 1, relu=False)
    parts = f"{'1x1 ' if before else ''}{kernel}x{kernel}/{step} {groups}x{per}->{per * more}{' 1x1' if behind else ''}"
    macs = batch * size * size * ((inputs * inputs if before else 0) + per * outputs * kernel ** 2 / step ** 2 +
                                  (outputs * outputs if behind else 0) / step ** 2)
    return f"{parts} {size} b{batch}", (batch, inputs, size, size), macs


def transposed(r, graph):
    batch, kernel, step, size = r.choice([1, 4]), r.randint(2, 5), r.randint(1, 3), r.randint(7, 64)
    groups = r.choice([1, 1, 1, 2, 8, 0])  # 0: one channel a group
    inputs, outputs = r.randint(1, 64), r.randint(1, 64)
    if groups != 1:
        per = (1, 1) if groups == 0 else (r.randint(1, 8), r.randint(1, 8))
        groups = groups or inputs
        inputs, outputs = groups * per[0], groups * per[1]
    alone = r.random() < 0.7
    if not alone:
        graph.conv(inputs, inputs, 1)
    weights = [graph.weight((inputs, outputs // groups, kernel, kernel)), graph.weight((outputs,))]
    pad = (kernel - 1) // 2
    graph.add("ConvTranspose", weights, group=groups, strides=[step] * 2, pads=[pad] * 4, output_padding=[min(step - 1, 2 * pad)] * 2)
    if not alone:
        graph.add("Relu")
        graph.conv(outputs, outputs, 1)
    macs = batch * size * size * (inputs * outputs // groups * kernel ** 2 + (0 if alone else inputs ** 2 + (outputs * step) ** 2))
    parts = f"{kernel}x{kernel}/{step} {groups}x{inputs // groups}->{outputs // groups}"
    return f"{parts if alone else f'1x1 {parts} 1x1'} {size} b{batch}", (batch, inputs, size, size), macs


def dilated(r, graph):
    """Taps far apart; gives a name and the shape of the input."""
    batch, kernel, dilation, size = r.choice([1, 1, 2, 8]), r.choice([3, 3, 5]), r.randint(2, 36), r.randint(8, 65)
    inputs, outputs = (16 * r.randint(1, 24) for _ in range(2))
    group = r.choice([1, 1, 1, 1, inputs])
    outputs = inputs if group > 1 else outputs
    before = r.random() < 0.4
    pad = dilation * (kernel // 2)
    if before:
        graph.conv(inputs, inputs, 1)
    graph.conv(inputs, outputs, kernel, relu=r.random() < 0.5, group=group, dilations=[dilation] * 2, pads=[pad] * 4)
    macs = batch * size * size * (inputs * inputs * before + inputs // group * outputs * kernel ** 2)
    name = f"{'1x1 ' if before else ''}{kernel}x{kernel} dil {dilation} {inputs}->{outputs}{' dw' if group > 1 else ''}"
    return f"{name} {size} b{batch}", (batch, inputs, size, size), macs


def cases(seed, count, kinds, scratch):
    """Random models, as (name, path); those that take too long are left out."""
    r = random.Random(seed)
    while count > 0:
        graph = Graph(np.random.default_rng(r.randrange(1 << 30)))
        name, shape, macs = r.choice(kinds)(r, graph)
        if macs > MOST_MACS or 4 * math.prod(shape) > MOST_BYTES:
            continue
        path = scratch / "conv.onnx"
        graph.save(path, shape)
        count -= 1
        yield name, path


def block(run, seconds):
    """The least time of a run, and the processor time of all, a run, in ms."""
    least, n, begin, end = math.inf, 0, time.process_time(), time.perf_counter() + seconds
    while n == 0 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
        n += 1
    return least * 1e3, (time.process_time() - begin) * 1e3 / n


def measure(path, rounds, scratch):
    """(Kiln's ms, ONNX Runtime's ms, the ratio, that of processor time, the relative L2 error)"""
    compare.compile_module(path, 1, [], scratch / "conv.so")
    kiln, session = compare.Kiln(scratch / "conv.so", 1), compare.ort_session(path, 1)
    feeds = compare.make_feeds(kiln.inputs)
    kiln.bind(feeds)
    error = compare.rel_l2(kiln.run(), session.run(None, feeds))
    runs = [kiln.run, lambda: session.run(None, feeds)]
    found = [[block(run, BLOCK_SECONDS) for run in runs] for _ in range(rounds)]
    kiln.close()
    ours, theirs = (min(least for least, _ in column) for column in zip(*found))
    return ours, theirs, theirs / ours, statistics.median(b / a for (_, a), (_, b) in found), error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--kind", choices=["grouped", "dilated", "transposed"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD, help="the folder of kiln and libkiln_rt.so (build)")
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    kinds = {"grouped": [grouped], "dilated": [dilated], "transposed": [transposed], None: [grouped, dilated]}[args.kind]
    print(f"{'case':44} {'Kiln ms':>9} {'ORT ms':>9} {'ratio':>7} {'by work':>7} {'rel. L2':>9}")
    ratios, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        given = [(pathlib.Path(m).stem, m) for m in args.models]
        for name, path in given or cases(args.seed, args.count, kinds, scratch):
            ours, theirs, ratio, work, error = measure(path, args.rounds, scratch)
            ratios.append((ratio, name))
            wrong += not error <= 1e-4
            print(f"{name:44} {ours:9.3f} {theirs:9.3f} {ratio:7.3f} {work:7.3f} {error:9.1e}", flush=True)
    mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
    least = min(ratios)
    print(f"{len(ratios)} cases, seed {args.seed}: geometric mean {mean:.3f}, the least {least[0]:.3f} ({least[1]}), {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
