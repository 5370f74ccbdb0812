#!/usr/bin/env python3
"""Times attention on this machine's GPU against each backend of torch's scaled_dot_product_attention: replays, interleaved, medians.

usage: bench/gpu_attention.py [--dtype f16|bf16|f32] [--build DIR] [--modules DIR] [--target cuda] [--mask] [BxHxSxD]...

Q, K and V are (B, H, S, D). Kiln compiles the graph MatMul(Softmax(MatMul(Q, K turned) / sqrt(D)), V), with --mask plus a
(B, 1, 1, S) that is added to the scores. --modules takes B x H x S x D.kmod of a folder in its place. Prints microseconds,
TFLOP/s of the two products, torch's time over Kiln's for each backend that runs it, the best of them, and the relative L2
error against f32.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402

SIZES = ["64x12x128x64", "8x12x1024x64", "4x16x4096x128"]


def save_graph(path, shape, mask):
    import onnx
    from onnx import TensorProto, helper
    b, _, s, d = shape

    def port(name, *dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    nodes = [helper.make_node("Transpose", ["K"], ["KT"], perm=[0, 1, 3, 2]), helper.make_node("MatMul", ["Q", "KT"], ["X"]),
             helper.make_node("Mul", ["X", "scale"], ["Z"])]
    nodes += [helper.make_node("Add", ["Z", "mask"], ["ZM"])] if mask else []
    nodes += [helper.make_node("Softmax", ["ZM" if mask else "Z"], ["P"], axis=-1), helper.make_node("MatMul", ["P", "V"], ["O"])]
    inputs = [port(n, *shape) for n in "QKV"] + ([port("mask", b, 1, 1, s)] if mask else [])
    graph = helper.make_graph(nodes, "attention", inputs, [port("O", *shape)],
                              [helper.make_tensor("scale", TensorProto.FLOAT, [], [d ** -0.5])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def compile_size(o, size, scratch):
    model, out = scratch / f"{size}.onnx", scratch / f"{size}.kmod"
    save_graph(model, [int(v) for v in size.split("x")], o.mask)
    dtype = [] if o.dtype == "f32" else [f"--dtype={o.dtype}"]
    subprocess.run([o.build / "kiln", "compile", model, *dtype, f"--target={o.target}", "-o", out], check=True,
                   stdout=subprocess.DEVNULL)
    return out


def backends():
    from torch.nn.attention import SDPBackend
    return {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}


def one(o, path):
    import torch
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    b, h, s, d = (int(v) for v in path.name.split(".")[0].split("x"))
    torch.manual_seed(0)
    q, k, v = (torch.rand((b, h, s, d), device="cuda", dtype=gpu.torch_type(o.dtype)) * 2 - 1 for _ in range(3))
    mask = torch.rand((b, 1, 1, s), device="cuda", dtype=q.dtype) * 4 - 4 if o.mask else None
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kiln = gpu.Kiln(o.build, path, stream.cuda_stream)
        kiln.bind({"Q": q, "K": k, "V": v, **({"mask": mask} if o.mask else {})})
        for _ in range(3):  # the second is captured
            kiln.run()
        kiln.wait()
        runs = {"kiln": kiln.run}
        for name, backend in backends().items():
            if name == "math" and s > 2048:  # holds all scores
                continue
            try:
                with sdpa_kernel([backend]):
                    runs[name], _ = gpu.captured(
                        lambda: sdpa(q, k, v, attn_mask=None if mask is None else mask.expand(b, h, s, s)), stream)
            except RuntimeError:  # that backend does not run this
                pass
        times = gpu.time_all(runs)
        want = torch.stack([sdpa(q[i:i + 1].float(), k[i:i + 1].float(), v[i:i + 1].float(),
                                 attn_mask=None if mask is None else mask[i:i + 1].float()) for i in range(b)])
    error = gpu.rel_l2([kiln.outputs[0].reshape(want.shape)], [want])
    rate = 4e-9 * b * h * s * s * d
    others = {n: t for n, t in times.items() if n != "kiln"}
    best = min(others, key=others.get)
    print(f"{path.stem:24} {1e3 * times['kiln']:9.1f} us {rate / times['kiln']:7.1f} TFLOP/s  "
          + "  ".join(f"{n} {1e3 * t:.1f} us {t / times['kiln']:.2f}x" for n, t in others.items())
          + f"  best {best} {others[best] / times['kiln']:.2f}x  error {error:.1e}  {kiln.launches} kernels", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["f16", "bf16", "f32"], default="f16")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--modules", type=pathlib.Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--mask", action="store_true")
    parser.add_argument("sizes", nargs="*", metavar="BxHxSxD")
    o = parser.parse_args()
    gpu.torch_type("f16")  # without PyTorch, fail before anything is compiled
    with tempfile.TemporaryDirectory() as folder:
        if o.modules:
            modules = sorted(o.modules.glob("*.kmod"))
        else:
            modules = (compile_size(o, s, pathlib.Path(folder)) for s in o.sizes or SIZES)
        for module in modules:
            one(o, module)


if __name__ == "__main__":
    main()
