#!/usr/bin/env python3
"""Random kernels on this machine's GPU (f16): Kiln against libraries, or all candidates of each kernel beside their predictions.

usage: bench/gpu_sweep.py --kind product|convolution|attention|rows|fused|all [--n N] [--seed S] [--candidates K] [--build DIR]
                          [--target cuda:sm_90a] [--jobs J] [--seconds T] [--json FILE] [--list]

Without --candidates each graph is timed beside the best that PyTorch has for it: cuBLASLt's products, cuDNN's convolutions
(channels last, its own choice of algorithm), the fastest backend of scaled_dot_product_attention, PyTorch's kernels for rows
and fused graphs, the device's copy of as many bytes, and Kiln with --no-connect; CUDA graphs, interleaved medians. Ratios are
the other's time over Kiln's.

With --candidates K up to K candidates of each kernel, of all templates, are lowered, compiled and timed beside their
predictions by `gpu_rank_bench` (bench/gpu_rank.c), J processes at a time (all cores) that take turns on the GPU; what has not
begun after T seconds is left out. --json gets a line for each kernel, which bench/fit_price.py reads. Prints rank
correlations (Spearman's, within a kernel) and the regret of taking the least predicted time.

Distribution, for each kind (u: uniform, l: log-uniform, rounded to a multiple of the number behind it):
- product: M l(1..16384, 1), N and K l(16..8192, 8), of which half to 64; a batch of 2 to 64 once in five; the right operand
  is constant (once in four not); behind it nothing, a bias, bias and GELU, bias and ReLU, or bias and a residual.
- convolution: 1, 4, 16 or 64 images of l(7..128, 1) pixels, l(8..1024, 8) channels to l(8..1024, 8), windows of 1, 3, 5, 7 with
  weights 5, 8, 1, 1, stride 1 or 2 (once in four), depthwise once in four, 3 channels in front once in ten; with a bias, and
  ReLU, swish, a residual or nothing.
- attention: 1, 2, 4, 8, 16 or 64 batches, 1 to 32 heads, l(16..4096, 1) queries and keys (the same, thrice in four), heads of 32,
  40, 64, 80, 96, 128; with a mask once in three.
- rows: softmax, layer norm, RMS norm, mean along one or two axes, transposition, gate, swish and add, pooling, resizing.
- fused: a product and softmax or layer norm behind it, layer norm and a product, two products with GELU between them, a
  convolution of 1x1 behind one of 3x3 or a depthwise one, a convolution and max pooling.
Graphs of more than 2e11 multiply-adds or 512 MiB of tensors are drawn again.
"""
import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from gpu_rows import Case, last, node  # noqa: E402

MOST_MACS, MOST_BYTES = 2e11, 512 << 20
KINDS = ("product", "convolution", "attention", "rows", "fused")


def log_uniform(r, low, high, multiple=1):
    value = math.exp(r.uniform(math.log(low), math.log(high)))
    return max(low, int(round(value / multiple)) * multiple)


def size_of(shape):
    return math.prod(shape)


class Drawn:
    """A case, and its multiply-adds and elements."""

    def __init__(self, case, macs, elements):
        self.case, self.macs, self.bytes = case, macs, 2 * elements


# --- products ---

def finish(r, shape, source, torch_bias=True):
    """What stands behind a product: nodes from |source| to Y, inputs, constants, and the same in PyTorch."""
    n, what = shape[-1], r.choice(["nothing", "bias", "gelu", "relu", "residual"])
    if what == "nothing":
        return what, [node("Identity", [source])], {}, {}, lambda f, y: y
    nodes, constants = [node("Add", [source, "bias"], "Y" if what == "bias" else "S")], {"bias": [n]}
    if what == "bias":
        return what, nodes, {}, constants, lambda f, y, b: y + b
    if what == "relu":
        return what, [*nodes, node("Relu", ["S"])], {}, constants, lambda f, y, b: f.relu(y + b)
    if what == "residual":
        return what, [*nodes, node("Add", ["S", "Z"])], {"Z": shape}, constants, lambda f, y, z, b: y + b + z
    nodes += gelu("S", "Y")
    return what, nodes, {}, constants | GELU, lambda f, y, b: f.gelu(y + b)


GELU = {"gelu_root": [], "gelu_one": [], "gelu_half": []}


def gelu(source, out):
    return [node("Div", [source, "gelu_root"], "g0"), node("Erf", ["g0"], "g1"), node("Add", ["g1", "gelu_one"], "g2"),
            node("Mul", [source, "g2"], "g3"), node("Mul", ["g3", "gelu_half"], out)]



def product(r):
    m, multiple = log_uniform(r, 1, 16384), r.choice([8, 64])
    n, k = (log_uniform(r, max(16, multiple), 8192, multiple) for _ in "nk")
    batch = log_uniform(r, 2, 64) if r.random() < 0.2 else 0
    a, y = ([batch, m, k], [batch, m, n]) if batch else ([m, k], [m, n])
    is_constant = not batch and r.random() < 0.75
    b = [batch, k, n] if batch else [k, n]
    what, nodes, more, constants, then = finish(r, y, "P")
    nodes = [node("MatMul", ["X", "B"], "P"), *nodes]
    inputs = {"X": a} | ({} if is_constant else {"B": b}) | more
    constants = ({"B": b} if is_constant else {}) | constants
    count = len(inputs) - (0 if is_constant else 1)  # of X and Z

    def function(f, *given):
        given = list(given)
        x = given.pop(0)
        w = given.pop(count - 1) if is_constant else given.pop(0)
        rest = [g for g, name in zip(given, [*list(more), *list(constants)[is_constant:]]) if name not in GELU]
        if what == "bias" and not batch:
            return f.linear(x, w.t(), rest[0])  # cuBLASLt with its own epilogue
        return then(f, x @ w, *rest)
    name = f"product {batch or 1}x{m}x{n}x{k} {'constant' if is_constant else 'variable'} {what}"
    return Drawn(Case(name, inputs, nodes, function, constants), (batch or 1) * m * n * k, size_of(a) + size_of(b) + size_of(y))


# --- convolutions ---

def convolution_nodes(source, out, number, channels, filters, kernel, stride, group):
    """A convolution with its bias, and its constants by name."""
    w, b = f"W{number}", f"B{number}"
    return (node("Conv", [source, w, b], out, group=group, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2),
            {w: [filters, channels // group, kernel, kernel], b: [filters]})


def convolution(r):
    batch, hw = r.choice([1, 4, 16, 64]), log_uniform(r, 7, 128)
    kernel = r.choices([1, 3, 5, 7], [5, 8, 1, 1])[0]
    stride = 2 if r.random() < 0.25 and hw > 7 else 1
    depthwise = r.random() < 0.25 and kernel > 1
    channels = log_uniform(r, 8, 1024, 8) if r.random() < 0.9 or depthwise else 3
    filters = channels if depthwise else log_uniform(r, 8, 1024, 8)
    group, out = channels if depthwise else 1, (hw - 1) // stride + 1
    conv, constants = convolution_nodes("C", "R", 0, channels, filters, kernel, stride, group)
    what, y = r.choice(["nothing", "relu", "swish", "residual"]), [batch, out, out, filters]
    there, back = [0, 3, 1, 2], [0, 2, 3, 1]
    nodes, inputs = [node("Transpose", ["X"], "C", perm=there), conv], {"X": [batch, hw, hw, channels]}
    nodes += {"nothing": [], "relu": [node("Relu", ["R"], "D")], "swish": [node("Sigmoid", ["R"], "G"), node("Mul", ["R", "G"], "D")],
              "residual": [node("Transpose", ["Z"], "ZC", perm=there), node("Add", ["R", "ZC"], "D")]}[what]
    if what == "residual":
        inputs["Z"] = y
    nodes.append(node("Transpose", ["R" if what == "nothing" else "D"], perm=back))
    last_op = {"nothing": lambda f, y: y, "relu": lambda f, y: f.relu(y), "swish": lambda f, y: f.silu(y)}.get(what)

    def function(f, x, *given):
        z, w, b = given if what == "residual" else (None, *given)
        y = f.conv2d(x.permute(0, 3, 1, 2), w.contiguous(memory_format=_channels_last()), b, stride, kernel // 2, 1, group)
        y = y + z.permute(0, 3, 1, 2) if what == "residual" else last_op(f, y)
        return y.permute(0, 2, 3, 1)
    name = f"convolution {batch}x{hw}x{hw}x{channels} {kernel}x{kernel}/{stride} {'depthwise' if depthwise else filters} {what}"
    macs = size_of(y) * channels // group * kernel ** 2
    return Drawn(Case(name, inputs, nodes, function, constants), macs, size_of(inputs["X"]) + size_of(y))


def _channels_last():
    import torch
    return torch.channels_last


# --- attention ---

def attention(r):
    b, h = r.choice([1, 2, 4, 8, 16, 64]), r.choice([1, 2, 4, 8, 12, 16, 32])
    d, s = r.choice([32, 40, 64, 64, 64, 80, 96, 128]), log_uniform(r, 16, 4096)
    keys, mask = s if r.random() < 0.75 else log_uniform(r, 16, 4096), r.random() < 1 / 3
    nodes = [node("Transpose", ["K"], "KT", perm=[0, 1, 3, 2]), node("MatMul", ["X", "KT"], "S0"), node("Mul", ["S0", "root"], "S1")]
    nodes += [node("Add", ["S1", "mask"], "S2")] if mask else []
    nodes += [node("Softmax", ["S2" if mask else "S1"], "P", axis=-1), node("MatMul", ["P", "V"])]
    inputs = {"X": [b, h, s, d], "K": [b, h, keys, d], "V": [b, h, keys, d]} | ({"mask": [b, 1, 1, keys]} if mask else {})

    def function(f, q, k, v, *rest):
        m = rest[0].expand(b, h, s, keys) if mask else None
        return f.scaled_dot_product_attention(q, k, v, attn_mask=m)
    name = f"attention {b}x{h}x{s}x{keys}x{d} {'mask' if mask else 'plain'}"
    return Drawn(Case(name, inputs, nodes, function, {"root": []}), 2 * b * h * s * keys * d, 2 * b * h * (s + keys) * d)


# --- rows and maps ---

def rows(r):
    import gpu_rows
    what = r.choice(["softmax", "layer", "rms", "mean", "mean2", "transpose", "gate", "chain", "pool", "resize", "instance"])
    n, m = log_uniform(r, 8, 8192, 8), log_uniform(r, 16, 131072)
    hw, c, b = log_uniform(r, 7, 128), log_uniform(r, 8, 1024, 8), r.choice([1, 4, 16, 64])
    image = [b, hw, hw, c]
    if what in ("softmax", "layer", "rms", "mean", "transpose"):
        case = {"softmax": lambda: Case(f"softmax {m}x{n}", {"X": [m, n]}, [node("Softmax", ["X"], axis=-1)], lambda f, x: f.softmax(x, -1)),
                "layer": lambda: gpu_rows.norm("layer", [m, n]), "rms": lambda: gpu_rows.norm("rms", [m, n]),
                "mean": lambda: gpu_rows.reduce([m, n], [r.choice([0, 1])]), "transpose": lambda: gpu_rows.transpose([m, n], [1, 0])}[what]()
        return Drawn(case, 0, 2 * m * n)
    case = {"mean2": lambda: gpu_rows.reduce(image, [1, 2]), "gate": lambda: gpu_rows.gate(image), "chain": lambda: gpu_rows.swish_chain(image),
            "pool": lambda: gpu_rows.window("max pool 3x3/2", image, "MaxPool", lambda f, x: f.max_pool2d(x, 3, 2, 1),
                                            kernel_shape=[3, 3], pads=[1] * 4, strides=[2] * 2),
            "resize": lambda: gpu_rows.resize(b, hw, c, r.choice(["nearest", "linear"])), "instance": lambda: gpu_rows.instance_norm(image)}[what]()
    return Drawn(case, 0, (6 if what == "resize" else 3) * size_of(image))


# --- several operators ---

def fused(r):
    what = r.choice(["softmax", "layer", "prologue", "mlp", "pointwise", "separable", "pool"])
    m, k = log_uniform(r, 64, 65536), log_uniform(r, 32, 1024, 32)
    n = log_uniform(r, 32, 1024, 32)
    if what in ("softmax", "layer", "prologue", "mlp"):
        x, norm = {"X": [m, k]}, {"W": [n if what == "layer" else k], "B": [n if what == "layer" else k]}
        multiply = node("MatMul", ["X", "A"], "P")
        if what == "softmax":
            nodes, constants = [multiply, node("Softmax", ["P"], axis=-1)], {"A": [k, n]}
            function = lambda f, x, a: f.softmax(x @ a, -1)  # noqa: E731
        elif what == "layer":
            nodes = [multiply, node("LayerNormalization", ["P", "W", "B"], axis=-1, epsilon=1e-5)]
            constants, function = {"A": [k, n]} | norm, lambda f, x, a, w, b: f.layer_norm(x @ a, (n,), w, b)
        elif what == "prologue":
            nodes = [node("LayerNormalization", ["X", "W", "B"], "N", axis=-1, epsilon=1e-5), node("MatMul", ["N", "A"])]
            constants, function = norm | {"A": [k, n]}, lambda f, x, w, b, a: f.layer_norm(x, (k,), w, b) @ a
        else:
            nodes = [multiply, node("Add", ["P", "bias"], "S"), *gelu("S", "H"), node("MatMul", ["H", "A2"])]
            constants = {"A": [k, n], "bias": [n], "A2": [n, k]} | GELU
            function = lambda f, x, a, c, a2, *_: f.gelu(x @ a + c) @ a2  # noqa: E731
        return Drawn(Case(f"{what} {m}x{n}x{k}", x, nodes, function, constants), m * n * k * (2 if what == "mlp" else 1), m * (k + 2 * n))
    batch, hw = r.choice([1, 4, 16, 64]), log_uniform(r, 14, 112, 2)
    channels, filters, second = (log_uniform(r, 8, 512, 8) for _ in range(3))
    group, kernel = (channels, r.choice([3, 5])) if what == "separable" else (1, 3)
    middle = channels if what == "separable" else filters
    conv, constants = convolution_nodes("C", "R", 0, channels, middle, kernel, 1, group)
    nodes = [conv, node("Relu", ["R"], "Q")]
    if what == "pool":
        nodes.append(node("MaxPool", ["Q"], "D", kernel_shape=[2, 2], strides=[2, 2]))
    else:
        conv, more = convolution_nodes("Q", "D", 1, middle, second, 1, 1, 1)
        nodes.append(conv)
        constants |= more

    def function(f, x, *w):
        form = _channels_last()
        y = f.relu(f.conv2d(x.permute(0, 3, 1, 2), w[0].contiguous(memory_format=form), w[1], 1, kernel // 2, 1, group))
        y = f.max_pool2d(y, 2) if what == "pool" else f.conv2d(y, w[2].contiguous(memory_format=form), w[3])
        return y.permute(0, 2, 3, 1)
    pixels = batch * hw * hw
    macs = pixels * (middle * channels // group * kernel ** 2 + (0 if what == "pool" else middle * second))
    return Drawn(Case(f"{what} {batch}x{hw}x{hw}x{channels} {kernel}x{kernel} {middle} {second}", {"X": [batch, hw, hw, channels]},
                      last(nodes), function, constants), macs, pixels * (channels + 2 * middle + second))


def draw(kind, n, seed):
    """|n| different cases of |kind|; the same for the same seed."""
    r, out, names = random.Random(f"{kind} {seed}"), [], set()
    while len(out) < n:
        drawn = globals()[kind](r)
        if drawn.macs <= MOST_MACS and drawn.bytes <= MOST_BYTES and drawn.case.name not in names:
            names.add(drawn.case.name)
            out.append(drawn.case)
    return out


def save(path, case):
    """Writes the graph; gives its constants."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    rng = np.random.default_rng(0)
    fixed = {"epsilon": 1e-5, "gelu_root": math.sqrt(2), "gelu_one": 1, "gelu_half": 0.5,
             "root": case.inputs["X"][-1] ** -0.5}
    weights = {}
    for name, shape in case.constants.items():
        if name == "scales":
            weights[name] = np.array([1, 1, 2, 2], np.float32)
        elif name in fixed:
            weights[name] = np.array(fixed[name], np.float16)
        else:
            fan_in = math.prod(shape[1:]) if name[0] == "W" and len(shape) == 4 else shape[0] if len(shape) > 1 else 1
            weights[name] = (rng.uniform(-1, 1, shape) / math.sqrt(fan_in)).astype(np.float16)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in case.inputs.items()]
    nodes = [helper.make_node(op, inputs, [output], **attributes) for op, inputs, output, attributes in case.nodes]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_tensor_value_info("Y", TensorProto.FLOAT16, None)],
                              [numpy_helper.from_array(v, name) for name, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return weights


# --- against libraries ---

def compile_one(o, model, out, *more):
    done = subprocess.run([str(o.build / "kiln"), "compile", str(model), f"--target={o.target}", "--threads=1", "-o", str(out), *more],
                          capture_output=True, text=True)
    return (done.stderr.strip().splitlines() or ["failed"])[0] if done.returncode else None


def contenders(case, given):
    """PyTorch's ways to run it: by name."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    f = torch.nn.functional
    if not case.name.startswith("attention"):
        return {"torch": lambda: case.function(f, *given)}

    def by(backend):
        def call():
            with sdpa_kernel([backend]):
                return case.function(f, *given)
        return call
    return {"flash": by(SDPBackend.FLASH_ATTENTION), "cudnn": by(SDPBackend.CUDNN_ATTENTION), "efficient": by(SDPBackend.EFFICIENT_ATTENTION)}


def against(o, case, folder, weights):
    """The row of one case, whose modules lie in |folder|."""
    import gpu
    import torch
    torch.manual_seed(0)
    feeds = {n: torch.rand(s, device="cuda", dtype=torch.float16) * 2 - 1 for n, s in case.inputs.items()}
    given = [*feeds.values(), *(torch.from_numpy(v).cuda() for v in weights.values())]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        modules, runs, replays = {}, {}, []
        for name in ("kiln", "unfused"):
            path = folder / f"{name}.kmod"
            if path.exists():
                modules[name] = gpu.Kiln(o.build, path, stream.cuda_stream)
                modules[name].bind(feeds)
                for _ in range(3):  # the second is captured
                    modules[name].run()
                modules[name].wait()
                runs[name] = modules[name].run
        n_bytes = sum(t.numel() * t.element_size() for t in [*feeds.values(), *modules["kiln"].outputs])
        source = torch.empty(max(1, n_bytes // 4), device="cuda", dtype=torch.float16)
        target = torch.empty_like(source)
        replays.append(gpu.captured(lambda: target.copy_(source), stream))
        runs["copy"] = replays[0][0]
        for name, call in contenders(case, given).items():
            try:
                replays.append(gpu.captured(call, stream))
                runs[name] = replays[-1][0]
            except RuntimeError:  # that backend does not run this
                torch.cuda.synchronize()
        times = gpu.time_all(runs)
        try:
            wide = [t.float() if t.is_floating_point() else t for t in given]
            error = gpu.rel_l2(modules["kiln"].outputs, [case.function(torch.nn.functional, *wide)])
        except torch.cuda.OutOfMemoryError:
            error = None
    others = {n: t for n, t in times.items() if n not in ("kiln", "unfused", "copy")}
    best = min(others, key=others.get)
    return {"case": case.name, "us": {n: 1e3 * t for n, t in times.items()}, "best": best, "ratio": others[best] / times["kiln"],
            "copy_ratio": times["copy"] / times["kiln"], "unfused_ratio": times.get("unfused", math.nan) / times["kiln"],
            "kernels": modules["kiln"].launches, "rel_l2": error}


def compile_cases(o, cases, scratch):
    """Folder and constants of each case, and what went wrong."""
    def make(item):
        number, case = item
        folder = scratch / str(number)
        folder.mkdir()
        weights = save(folder / "g.onnx", case)
        error = compile_one(o, folder / "g.onnx", folder / "kiln.kmod")
        if not error:
            compile_one(o, folder / "g.onnx", folder / "unfused.kmod", "--no-connect")
        (folder / "g.onnx").unlink()
        return folder, weights, error
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        return list(pool.map(make, enumerate(cases)))


def sweep(o, cases, scratch):
    rows = []
    made = compile_cases(o, cases, scratch)
    for case, (folder, weights, error) in zip(cases, made):
        try:
            row = {"case": case.name, "error": error} if error else against(o, case, folder, weights)
        except Exception as e:  # noqa: BLE001  (one row is lost)
            row = {"case": case.name, "error": str(e).splitlines()[0][:200]}
        rows.append(row)
        if "error" in row:
            print(f"{case.name:60} {row['error']}", flush=True)
        else:
            us = row["us"]
            print(f"{case.name:60} {us['kiln']:9.1f} us  {row['best']} {row['ratio']:6.2f}  copy {row['copy_ratio']:5.2f}  unfused "
                  f"{row['unfused_ratio']:5.2f}  {row['kernels']} kernels  error {row['rel_l2'] or math.nan:.1e}", flush=True)
        if o.json:
            o.json.write_text("".join(json.dumps(x) + "\n" for x in rows))
    for kind in KINDS:
        ratios = sorted(r["ratio"] for r in rows if "ratio" in r and kind_of(r["case"]) == kind)
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{kind}: {len(ratios)}, geometric mean {mean:.2f}, 5th percentile {ratios[len(ratios) // 20]:.2f}, least {ratios[0]:.2f}, "
                  f"{sum(x < 1 for x in ratios)} below 1")


def kind_of(name):
    first = name.split()[0]
    return first if first in KINDS else "fused" if first in ("softmax", "layer") and name.count("x") > 1 or first in (
        "prologue", "mlp", "pointwise", "separable", "pool") else "rows"


# --- candidates ---

def rank(o, cases, scratch):
    """The lines of gpu_rank_bench for all cases."""
    measured = {}
    for line in o.again.open() if o.again else []:
        x = json.loads(line)
        measured[x["case"]] = measured.get(x["case"], "") + "".join(
            f"{x['kernel']} {c['template']} {c['variant']}\n" for c in x.get("candidates", []) if c.get("us"))
    begin, lines, command = time.monotonic(), [], [str(o.build / "gpu_rank_bench"), "--target", o.target, "--most", str(o.candidates),
                                                   "--lock", str(scratch / "lock")] + ([] if o.predict else ["--measure"])

    def one(item):
        number, case = item
        if time.monotonic() - begin > o.seconds:
            return []
        model = scratch / f"{number}.onnx"
        only = scratch / f"{number}.only"
        if o.again and case.name not in measured:
            return []
        if o.again:
            only.write_text(measured[case.name])
        save(model, case)
        try:
            done = subprocess.run([*command, *(["--only", str(only)] if o.again else []), str(model)], capture_output=True, text=True, timeout=max(60, min(600, o.seconds)))
        except subprocess.TimeoutExpired:
            return [{"case": case.name, "error": "took too long"}]
        model.unlink()
        out = []
        for line in done.stdout.splitlines():
            try:
                out.append({"case": case.name, "kind": o.kinds[number]} | json.loads(line))
            except ValueError:
                pass
        if done.returncode:
            out.append({"case": case.name, "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[0]})
        return out
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for found in pool.map(one, enumerate(cases)):
            lines += found
            if o.json and found:
                with o.json.open("a") as f:
                    f.writelines(json.dumps(x) + "\n" for x in found)
            for x in found:
                if "error" in x:
                    print(f"{x['case']:60} {x['error']}", flush=True)
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    p.add_argument("--n", type=int, default=20, help="of each kind")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--candidates", type=int, default=0)
    p.add_argument("--predict", action="store_true", help="with --candidates: predictions alone, which need no GPU")
    p.add_argument("--again", type=pathlib.Path, help="with --candidates: of a file of --json, only the candidates that have times")
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "build")
    p.add_argument("--target", default="cuda:sm_90a")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--seconds", type=float, default=math.inf)
    p.add_argument("--json", type=pathlib.Path)
    p.add_argument("--list", action="store_true")
    o = p.parse_args()
    drawn = {k: draw(k, o.n, o.seed) for k in (KINDS if o.kind == "all" else [o.kind])}
    # one of each kind in turn, so that an early end leaves some of all
    cases = [(k, c) for group in zip(*([(k, c) for c in of] for k, of in drawn.items())) for k, c in group]
    o.kinds, cases = [k for k, _ in cases], [c for _, c in cases]
    if o.list:
        return print("\n".join(c.name for c in cases))
    if o.json:
        o.json.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if not o.candidates:
            return sweep(o, cases, pathlib.Path(folder))
        lines = rank(o, cases, pathlib.Path(folder))
    if not o.predict:
        import fit_price
        fit_price.report(lines, fit_price.PRICES)
    return None


if __name__ == "__main__":
    sys.exit(main())
