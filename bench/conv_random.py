#!/usr/bin/env python3
"""Times random convolutions (f32, one thread): Kiln against ONNX Runtime, and checks what they compute.

usage: bench/conv_random.py [--seed S] [--count N] [--kind KIND] [--rounds R] [--target T] [--build DIR] [--before DIR]
                            [MODEL.onnx...]

Kinds, the first two where none is named:
- grouped: 1 to 32 channels a group, steps of 1 and 2, images of 5 to 57 pixels, batches of 1, 2, 3 and 8, with and without
  a product in front of them and behind;
- dilated: windows of 3 and 5, taps 2 to 36 apart, images of 8 to 65 pixels;
- transposed: windows of 2 to 5, steps of 1 to 3, 1 to 64 channels, in groups of 1 and more, one channel a group too,
  batches of 1 and 4, alone and between products;
- strided: 5x5, step 2, in a few groups of many channels;
- pointwise: 1x1, also of channels that fill no vector;
- depthwise: windows of 3 to 7, steps of 1 and 2, taps 1 to 4 apart;
- multiplier: one channel a group, which gives 2 to 4;
- dense: 3x3, one group.

MODEL.onnx are timed in place of random ones. Ratio: ONNX Runtime's time over Kiln's, by the least time of a run of each,
which are taken in turns, as others may use the machine; beside it the median over rounds of the ratio of processor time.
--before is the folder of another build: its modules are timed in the same rounds, where they are others, and "before" is
their time over Kiln's. Ends with the least ratio and the geometric mean; exits with 1 where a result is wrong.
"""
import argparse
import math
import pathlib
import random
import statistics
import subprocess
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


def strided(r, graph):
    batch, groups, per, size = r.choice([1, 1, 2, 8]), r.randint(2, 8), r.randint(6, 64), r.randint(9, 57)
    before = r.random() < 0.5
    channels = groups * per
    if before:
        graph.conv(channels, channels, 1)
    graph.conv(channels, channels, 5, group=groups, strides=[2] * 2, pads=[2] * 4)
    macs = batch * size * size * channels * (channels * before + per * 25 / 4)
    return f"{'1x1 ' if before else ''}5x5/2 {groups}x{per} {size} b{batch}", (batch, channels, size, size), macs


def pointwise(r, graph):
    batch, size, behind = r.choice([1, 2, 8]), r.randint(7, 57), r.random() < 0.3
    inputs, outputs = (r.choice([r.randint(8, 400), 4 * r.randint(4, 120), 32 * r.randint(1, 16)]) for _ in range(2))
    graph.conv(inputs, outputs, 1, relu=behind or r.random() < 0.5)
    if behind:
        graph.conv(outputs, inputs, 1)
    macs = batch * size * size * inputs * outputs * (1 + behind)
    return f"1x1 {inputs}->{outputs}{f' 1x1 ->{inputs}' if behind else ''} {size} b{batch}", (batch, inputs, size, size), macs


def depthwise(r, graph):
    batch, kernel, size = r.choice([1, 2, 8]), r.choice([3, 3, 5, 7]), r.randint(9, 65)
    step, dilation = r.choice([(1, 1), (2, 1), (1, 2), (1, 3), (1, 4)])
    channels, before, behind = r.choice([r.randint(8, 300), 16 * r.randint(1, 24)]), r.random() < 0.5, r.random() < 0.5
    if before:
        graph.conv(channels, channels, 1)
    pad = dilation * (kernel // 2)
    graph.conv(channels, channels, kernel, group=channels, strides=[step] * 2, dilations=[dilation] * 2, pads=[pad] * 4)
    if behind:
        graph.conv(channels, channels, 1, relu=False)
    macs = batch * size * size * channels * (channels * (before + behind / step ** 2) + kernel ** 2 / step ** 2)
    parts = f"{'1x1 ' if before else ''}dw{kernel}/{step}{f' dil {dilation}' if dilation > 1 else ''}{' 1x1' if behind else ''}"
    return f"{parts} {channels} {size} b{batch}", (batch, channels, size, size), macs


def multiplier(r, graph):
    batch, kernel, step, size = r.choice([1, 1, 2, 4]), r.choice([3, 5, 7]), r.choice([1, 2]), r.randint(9, 113)
    channels, more = r.choice([4, 8, 16, 24, 32, 48, 64, 96, 192]), r.choice([2, 2, 4])
    before, behind = r.random() < 0.8, r.random() < 0.8
    if before:
        graph.conv(channels, channels, 1)
    graph.conv(channels, channels * more, kernel, group=channels, strides=[step] * 2, pads=[kernel // 2] * 4)
    if behind:
        graph.conv(channels * more, channels, 1, relu=False)
    macs = batch * size * size * channels * (channels * before + more * (kernel ** 2 + channels * behind) / step ** 2)
    parts = f"{'1x1 ' if before else ''}{kernel}x{kernel}/{step} {channels}x1->{more}{' 1x1' if behind else ''}"
    return f"{parts} {size} b{batch}", (batch, channels, size, size), macs


def dense(r, graph):
    batch, step, size = r.choice([1, 2, 8]), r.choice([1, 1, 2]), r.randint(7, 65)
    inputs, outputs = (r.choice([3, r.randint(8, 200), 16 * r.randint(1, 16)]) for _ in range(2))
    graph.conv(inputs, outputs, 3, strides=[step] * 2, pads=[1] * 4)
    return f"3x3/{step} {inputs}->{outputs} {size} b{batch}", (batch, inputs, size, size), batch * size * size * inputs * outputs * 9 / step ** 2


KINDS = {"grouped": grouped, "dilated": dilated, "transposed": transposed, "strided": strided, "pointwise": pointwise,
         "depthwise": depthwise, "multiplier": multiplier, "dense": dense}


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


def compile_with(build, path, target, out):
    """Compiles |path| to |out| with the kiln of the folder |build|."""
    args = [str(build / "kiln"), "compile", str(path), "-o", str(out), "--threads", "1", "--no-cache"]
    done = subprocess.run(args + (["--target", target] if target else []), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return out


def measure(path, args, scratch):
    """(Kiln's ms, ONNX Runtime's ms, the ratio, that of processor time, the same two of |args.before|, the relative L2 error)"""
    modules = [compile_with(compare.BUILD, path, args.target, scratch / "conv.so")]
    if args.before:
        modules.append(compile_with(args.before, path, args.target, scratch / "before.so"))
        if modules[0].read_bytes() == modules[1].read_bytes():
            modules.pop()
    sessions, session = [compare.Kiln(m, 1) for m in modules], compare.ort_session(path, 1)
    feeds = compare.make_feeds(sessions[0].inputs)
    for kiln in sessions:
        kiln.bind(feeds)
    error = compare.rel_l2(sessions[0].run(), session.run(None, feeds))
    runs = [lambda: session.run(None, feeds), *(kiln.run for kiln in sessions)]
    found = list(zip(*([block(run, BLOCK_SECONDS) for run in runs] for _ in range(args.rounds))))
    for kiln in sessions:
        kiln.close()
    least = [min(ms for ms, _ in column) for column in found]
    work = [statistics.median(b / a for (_, a), (_, b) in zip(found[1], column)) for column in found]
    before = (least[2] / least[1], work[2]) if len(sessions) > 1 else (1.0, 1.0)
    return least[1], least[0], least[0] / least[1], work[0], *before, error


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--kind", choices=KINDS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--target", help="the processor to compile for, as kiln compile takes it")
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD, help="the folder of kiln and libkiln_rt.so (build)")
    parser.add_argument("--before", type=pathlib.Path, help="the folder of another kiln")
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    kinds = [KINDS[args.kind]] if args.kind else [grouped, dilated]
    columns = f"{'case':44} {'Kiln ms':>9} {'ORT ms':>9} {'ratio':>7} {'by work':>7}"
    print(f"{columns} {'before':>7} {'by work':>7} {'rel. L2':>9}")
    ratios, changes, wrong = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        given = [(pathlib.Path(m).stem, m) for m in args.models]
        for name, path in given or cases(args.seed, args.count, kinds, scratch):
            ours, theirs, ratio, work, change, change_work, error = measure(path, args, scratch)
            ratios.append((ratio, name))
            changes.append((change, name))
            wrong += not error <= 1e-4
            print(f"{name:44} {ours:9.3f} {theirs:9.3f} {ratio:7.3f} {work:7.3f} {change:7.3f} {change_work:7.3f} {error:9.1e}", flush=True)
    least = min(ratios)
    print(f"{len(ratios)} cases, seed {args.seed}: geometric mean {geometric_mean([r for r, _ in ratios]):.3f}, the least "
          f"{least[0]:.3f} ({least[1]}), {wrong} wrong")
    others = [c for c in changes if c[0] != 1]
    if others:
        print(f"{len(others)} others than before: geometric mean {geometric_mean([c for c, _ in others]):.3f}, the least "
              f"{min(others)[0]:.3f} ({min(others)[1]})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
