#!/usr/bin/env python3
"""Times kernels that are bound by memory on this machine's GPU (f16): Kiln beside the device's copy and PyTorch, interleaved.

usage: bench/gpu_rows.py [--build DIR] [--target cuda] [--only TEXT] [--inductor] [--json FILE] [--compile [DIR]]

Each row is a graph of its own: an ONNX operator, or what exporters write for it. `copy` is a copy of as many bytes as the
inputs and outputs have, half of them read and half written, in the same run: its share is the time of the copy over Kiln's, so
1.00 is the bandwidth of the device for tensors of that size. Ratios are PyTorch's time over Kiln's. --compile only compiles,
which needs no GPU with --target=cuda:sm_90a, and keeps what is dumped in DIR.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu  # noqa: E402


class Case:
    """A graph of X (and Z) to Y with constants, and the same in PyTorch."""

    def __init__(self, name, inputs, nodes, function, constants=None):
        self.name, self.inputs, self.nodes, self.function = name, inputs, nodes, function
        self.constants = constants or {}


def node(op, inputs, output="Y", **attributes):
    return (op, inputs, output, attributes)


def norm(kind, shape):
    n = shape[-1]
    weights = {"W": [n], "B": [n]}
    if kind == "layer":
        return Case(f"layer norm {shape[0]}x{n}", {"X": shape}, [node("LayerNormalization", ["X", "W", "B"], axis=-1, epsilon=1e-5)],
                    lambda f, x, W, B: f.layer_norm(x, (n,), W, B), weights)
    nodes = [node("Mul", ["X", "X"], "S"), node("ReduceMean", ["S"], "M", axes=[-1]), node("Add", ["M", "epsilon"], "A"),
             node("Sqrt", ["A"], "R"), node("Div", ["X", "R"], "N"), node("Mul", ["N", "W"])]
    return Case(f"rms norm {shape[0]}x{n}", {"X": shape}, nodes, lambda f, x, W, epsilon: f.rms_norm(x, (n,), W, 1e-5),
                {"W": [n], "epsilon": []})


def last(nodes, rank=4):
    """The nodes, from C to D channels first, between tensors X and Y that are channels last."""
    there, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return [node("Transpose", ["X"], "C", perm=there), *nodes, node("Transpose", ["D"], "Y", perm=back)]


def window(name, shape, op, function, weights=None, **attributes):
    inputs = ["C", *(weights or {})]
    return Case(f"{name} {'x'.join(map(str, shape))}", {"X": shape}, last([node(op, inputs, "D", **attributes)]),
                lambda f, x, *w: function(f, x.permute(0, 3, 1, 2), *w).permute(0, 2, 3, 1), weights)


def depthwise(b, hw, c, k, stride=1):
    return window(f"depthwise {k}x{k}/{stride}", [b, hw, hw, c], "Conv",
                  lambda f, x, W, B: f.conv2d(x, W, B, stride, k // 2, 1, c), {"W": [c, 1, k, k], "B": [c]}, group=c,
                  kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride] * 2)


def instance_norm(shape):
    nodes = last([node("InstanceNormalization", ["C", "W", "B"], "N", epsilon=1e-5), node("Relu", ["N"], "D")])
    return Case(f"instance norm, relu {'x'.join(map(str, shape))}", {"X": shape}, nodes,
                lambda f, x, W, B: f.relu(f.instance_norm(x.permute(0, 3, 1, 2), None, None, W, B)).permute(0, 2, 3, 1),
                {"W": shape[-1:], "B": shape[-1:]})


def deviation(shape):
    """Of each channel of an image: its standard deviation and its mean, added."""
    nodes = [node("ReduceMean", ["X"], "M", axes=[1, 2]), node("Sub", ["X", "M"], "S"), node("Mul", ["S", "S"], "Q"),
             node("ReduceMean", ["Q"], "V", axes=[1, 2]), node("Sqrt", ["V"], "D"), node("Add", ["D", "M"])]
    return Case(f"deviation and mean {'x'.join(map(str, shape))}", {"X": shape}, nodes,
                lambda f, x: x.var((1, 2), correction=0, keepdim=True).sqrt() + x.mean((1, 2), keepdim=True))


def gated_windows(b, t, c, k):
    """A gate of two halves of the channels, windows along time, swish: what conformers do."""
    nodes = last([node("Split", ["C"], ["L", "R"], axis=1), node("Sigmoid", ["R"], "G"), node("Mul", ["L", "G"], "P"),
                  node("Conv", ["P", "W", "B"], "Z", group=c, kernel_shape=[k], pads=[k // 2] * 2), node("Sigmoid", ["Z"], "E"),
                  node("Mul", ["Z", "E"], "D")], 3)
    return Case(f"gate, windows of {k}, swish {b}x{t}x{c}", {"X": [b, t, 2 * c]}, nodes,
                lambda f, x, W, B: f.silu(f.conv1d(f.glu(x.transpose(1, 2), 1), W, B, 1, k // 2, 1, c)).transpose(1, 2),
                {"W": [c, 1, k], "B": [c]})


def resize(b, hw, c, mode):
    nodes = last([node("Resize", ["C", "", "scales"], "D", mode=mode,
                       coordinate_transformation_mode="asymmetric" if mode == "nearest" else "half_pixel",
                       **({"nearest_mode": "floor"} if mode == "nearest" else {}))])
    torch_mode = {"linear": "bilinear"}.get(mode, mode)
    return Case(f"resize {mode} {b}x{hw}x{hw}x{c}", {"X": [b, hw, hw, c]}, nodes,
                lambda f, x, scales: f.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode=torch_mode).permute(0, 2, 3, 1),
                {"scales": [4]})


def transpose(shape, perm):
    return Case(f"transpose {'x'.join(map(str, shape))} to {''.join(map(str, perm))}", {"X": shape},
                [node("Transpose", ["X"], perm=perm)], lambda f, x: x.permute(*perm).contiguous())


def reduce(shape, axes):
    return Case(f"mean {'x'.join(map(str, shape))} over {','.join(map(str, axes))}", {"X": shape},
                [node("ReduceMean", ["X"], axes=axes, keepdims=1)], lambda f, x: x.mean(axes, keepdim=True))


def swish_chain(shape):
    nodes = [node("Mul", ["X", "W"], "S"), node("Add", ["S", "B"], "T"), node("Sigmoid", ["T"], "G"), node("Mul", ["T", "G"], "U"),
             node("Add", ["U", "Z"])]
    return Case(f"scale, swish, add {'x'.join(map(str, shape))}", {"X": shape, "Z": shape}, nodes,
                lambda f, x, z, W, B: f.silu(x * W + B) + z, {"W": shape[-1:], "B": shape[-1:]})


def gate(shape):
    one = [shape[0], 1, 1, shape[-1]]
    return Case(f"gate by channel {'x'.join(map(str, shape))}", {"X": shape, "Z": one}, [node("Mul", ["X", "Z"])],
                lambda f, x, z: x * z)


def cases():
    softmax = [Case(f"softmax {'x'.join(map(str, s))}", {"X": s}, [node("Softmax", ["X"], axis=-1)], lambda f, x: f.softmax(x, -1))
               for s in ([262144, 128], [65536, 1024], [16384, 4096], [2048, 32768], [12, 128, 128], [64, 49, 49])]
    norms = [norm(k, s) for k in ("layer", "rms") for s in ([65536, 768], [16384, 4096])]
    norms += [norm("layer", s) for s in ([128, 768], [8192, 768], [32768, 512], [3136, 96], [200704, 96], [65536, 48])]
    moved = [transpose([64, 128, 56, 56], [0, 2, 3, 1]), transpose([64, 56, 56, 128], [0, 3, 1, 2]), transpose([8192, 8192], [1, 0]),
             transpose([64, 128, 12, 64], [0, 2, 1, 3]), transpose([1, 3, 1080, 720], [0, 2, 3, 1])]
    windows = [window("max pool 3x3/2", [64, 112, 112, 64], "MaxPool", lambda f, x: f.max_pool2d(x, 3, 2, 1), kernel_shape=[3, 3],
                      pads=[1] * 4, strides=[2] * 2),
               window("max pool 2x2/2", [64, 112, 112, 64], "MaxPool", lambda f, x: f.max_pool2d(x, 2, 2), kernel_shape=[2, 2],
                      strides=[2] * 2),
               window("mean pool 2x2/2", [64, 112, 112, 64], "AveragePool", lambda f, x: f.avg_pool2d(x, 2, 2), kernel_shape=[2, 2],
                      strides=[2] * 2),
               resize(16, 56, 128, "nearest"), resize(16, 56, 128, "linear")]
    deep = [depthwise(64, 112, 32, 3), depthwise(64, 112, 96, 3, 2), depthwise(64, 56, 144, 3), depthwise(64, 28, 192, 3),
            depthwise(64, 14, 576, 3), depthwise(64, 7, 960, 3), depthwise(64, 28, 240, 5), depthwise(64, 14, 672, 5),
            depthwise(1, 112, 32, 3), depthwise(1, 56, 144, 3), depthwise(1, 14, 576, 3), depthwise(1, 14, 672, 5)]
    sums = [reduce([65536, 1024], [1]), reduce([65536, 1024], [0]), reduce([64, 56, 56, 256], [1, 2]), reduce([64, 7, 7, 1280], [1, 2]),
            reduce([1, 112, 112, 64], [1, 2]), reduce([64, 256, 56, 56], [2, 3])]
    images = [instance_norm(s) for s in ([1, 224, 224, 32], [1, 112, 112, 64], [1, 56, 56, 128], [16, 56, 56, 128])]
    images += [deviation([1, 256, 256, 64]), gated_windows(1, 512, 512, 31), gated_windows(64, 512, 512, 31)]
    return softmax + norms + images + [swish_chain([64, 56, 56, 144]), swish_chain([128, 768]), gate([64, 56, 56, 144])] + moved + windows + deep + sums


def save(path, case):
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
    rng, weights = np.random.default_rng(0), {}
    for name, shape in case.constants.items():
        kind = np.float32 if name == "scales" else np.float16
        weights[name] = {"scales": np.array([1, 1, 2, 2]), "epsilon": np.array(1e-5)}.get(
            name, rng.uniform(-1, 1, shape)).astype(kind)
    of = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in case.inputs.items()]
    out = helper.make_tensor_value_info("Y", TensorProto.FLOAT16, None)
    nodes = [helper.make_node(op, inputs, output if isinstance(output, list) else [output], **attributes) for op, inputs, output, attributes in case.nodes]
    graph = helper.make_graph(nodes, "g", of, [out], [numpy_helper.from_array(v, name) for name, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return weights


def compile_case(o, case, folder, dump=()):
    weights = save(folder / "g.onnx", case)
    done = subprocess.run([str(o.build / "kiln"), "compile", str(folder / "g.onnx"), f"--target={o.target}", "-o",
                           str(folder / "g.kmod"), *dump], capture_output=True, text=True)
    return weights, done.stderr.strip().splitlines()[0] if done.returncode else None


def one(o, case, folder):
    import torch
    weights, error = compile_case(o, case, folder)
    if error:
        return {"case": case.name, "error": error}
    torch.manual_seed(0)
    feeds = {n: torch.rand(s, device="cuda", dtype=torch.float16) * 2 - 1 for n, s in case.inputs.items()}
    given = [*feeds.values(), *(torch.from_numpy(v).cuda() for v in weights.values())]
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        kiln = gpu.Kiln(o.build, folder / "g.kmod", stream.cuda_stream)
        kiln.bind(feeds)
        for _ in range(3):  # the second is captured
            kiln.run()
        kiln.wait()
        n_bytes = sum(t.numel() * t.element_size() for t in [*feeds.values(), *kiln.outputs])
        source = torch.empty(n_bytes // 4, device="cuda", dtype=torch.float16)
        target = torch.empty_like(source)
        call = lambda: case.function(torch.nn.functional, *given)  # noqa: E731
        replays, runs = [gpu.captured(lambda: target.copy_(source), stream)], {"kiln": kiln.run}
        runs["copy"] = replays[0][0]
        for name, f in (("torch", call), *((("inductor", torch.compile(call)),) if o.inductor else ())):
            replays.append(gpu.captured(f, stream))
            runs[name] = replays[-1][0]
        times = gpu.time_all(runs)
        want = case.function(torch.nn.functional, *(t.float() if t.is_floating_point() else t for t in given))
    row = {"case": case.name, "us": {k: 1e3 * v for k, v in times.items()}, "bytes": n_bytes, "kernels": kiln.launches,
           "share": times["copy"] / times["kiln"], "rel_l2": gpu.rel_l2(kiln.outputs, [want])}
    row |= {f"{k}_ratio": times[k] / times["kiln"] for k in ("torch", "inductor") if k in times}
    return row


def print_row(row):
    if "error" in row:
        return print(f"{row['case']:42} {row['error']}", flush=True)
    us = row["us"]
    print(f"{row['case']:42} {us['kiln']:9.1f} {1e-3 * row['bytes'] / us['kiln']:7.0f} {row['share']:6.2f} {row['torch_ratio']:6.2f} "
          + (f"{row['inductor_ratio']:8.2f} " if "inductor_ratio" in row else "")
          + f"{row['kernels']:3d} {row['rel_l2']:8.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=gpu.ROOT / "build")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--only", default="", help="part of the name")
    parser.add_argument("--inductor", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--compile", nargs="?", type=pathlib.Path, const=pathlib.Path())
    o = parser.parse_args()
    rows = []
    if not o.compile:
        print(f"{'case':42} {'us':>9} {'GB/s':>7} {'share':>6} {'torch':>6} " + ("inductor " if o.inductor else "") + "  n    error")
    for case in cases():
        if o.only not in case.name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            if o.compile:
                keep = o.compile / case.name.replace(" ", "_").replace("/", "_") if o.compile != pathlib.Path() else None
                dump = ["--dump=cuda,schedule,loop,prim", f"--dump-dir={keep}"] if keep else []
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                print(f"{case.name:42} {compile_case(o, case, pathlib.Path(scratch), dump)[1] or 'compiled'}", flush=True)
                continue
            rows.append(one(o, case, pathlib.Path(scratch)))
        print_row(rows[-1])
        if o.json:
            o.json.write_text(json.dumps(rows, indent=1) + "\n")
    known = [r["share"] for r in rows if "share" in r]
    if known:
        print(f"geometric mean of the shares over {len(known)}: {math.exp(sum(map(math.log, known)) / len(known)):.3f}")


if __name__ == "__main__":
    main()
