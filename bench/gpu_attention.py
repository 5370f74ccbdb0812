#!/usr/bin/env python3
"""Times attention on this machine's GPU against each backend of torch's scaled_dot_product_attention: replays, interleaved, medians.

usage: bench/gpu_attention.py [--dtype f16|bf16|f32] [--build DIR] [--modules DIR] [--only-compile DIR] [--target cuda] [--mask]
                              [--causal] [--sample N] [--decode] [--seed S] [BxHxSxD[xT[xG]]]...

Q is (B, H, S, D), K and V are (B, G, T, D): T keys (S) and G heads of keys (H), which H/G heads of queries share. Kiln compiles
the graph MatMul(Softmax(MatMul(Q, K turned) / sqrt(D)), V), with --mask plus a (B, 1, 1, T) that is added to the scores, with
--causal with a constant that leaves out keys behind the query; where G is not H, the operator Attention. --sample takes N random
sizes: 8 to 16384 tokens at most, depths of 32 to 128; with --decode one query, 128 to 32768 keys, and one to eight
queries' heads a key's. --modules takes SIZE.kmod of a folder in their place, which --only-compile makes without a GPU. Prints
microseconds, TFLOP/s of the two products (a causal mask halves them), GB/s of queries, keys, values and result, torch's time over Kiln's for each
backend that runs it, the best of them, and the relative L2 error against f32.
"""
import argparse
import math
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402

SIZES = ["64x12x128x64", "8x12x1024x64", "4x16x4096x128"]


def parts_of(size):
    """B, H, S, D, T, G"""
    n = [int(v) for v in size.split("x")]
    return (*n[:4], n[4] if len(n) > 4 else n[2], n[5] if len(n) > 5 else n[1])


def random_sizes(o):
    rng, sizes = random.Random(o.seed), []
    while len(sizes) < o.sample:
        d, b, h = rng.choice([32, 64, 64, 80, 96, 128, 128]), 2 ** rng.randint(0, 6), rng.choice([4, 6, 8, 12, 16, 32])
        s = int(2 ** rng.uniform(*((7, 15) if o.decode else (3, 14))))
        g = h // rng.choice([1, 1, 4, 8]) if o.decode and h % 8 == 0 else h
        elems = b * max(h * s, 1) * d
        work = b * h * s * s * d
        if (o.decode and elems < 2 ** 29) or (not o.decode and elems < 2 ** 28 and work < 2 ** 41):
            sizes.append(f"{b}x{h}x1x{d}x{s}x{g}" if o.decode else f"{b}x{h}x{s}x{d}")
    return sizes


def save_graph(path, size, o):
    import numpy as np
    import onnx
    from onnx import TensorProto, helper
    b, h, s, d, t, g = parts_of(size)

    def port(name, *dims):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
    inputs = [port("Q", b, h, s, d), port("K", b, g, t, d), port("V", b, g, t, d)] + ([port("mask", b, 1, 1, t)] if o.mask else [])
    weights, opset = [helper.make_tensor("scale", TensorProto.FLOAT, [], [d ** -0.5])], 17
    if g != h:
        nodes, weights, opset = [helper.make_node("Attention", ["Q", "K", "V"], ["O"], is_causal=int(o.causal))], [], 23
    else:
        nodes = [helper.make_node("Transpose", ["K"], ["KT"], perm=[0, 1, 3, 2]),
                 helper.make_node("MatMul", ["Q", "KT"], ["X"]), helper.make_node("Mul", ["X", "scale"], ["Z"])]
        last = "Z"
        if o.mask:
            nodes, last = nodes + [helper.make_node("Add", [last, "mask"], ["ZM"])], "ZM"
        if o.causal:
            weights += [onnx.numpy_helper.from_array(np.tril(np.ones((s, t), bool)), "is_seen"),
                        helper.make_tensor("lowest", TensorProto.FLOAT, [], [-math.inf])]
            nodes, last = nodes + [helper.make_node("Where", ["is_seen", last, "lowest"], ["ZC"])], "ZC"
        nodes += [helper.make_node("Softmax", [last], ["P"], axis=-1), helper.make_node("MatMul", ["P", "V"], ["O"])]
    graph = helper.make_graph(nodes, "attention", inputs, [port("O", b, h, s, d)], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset > 17 else 8), str(path))


def compile_size(o, size, scratch):
    model, out = scratch / f"{size}.onnx", scratch / f"{size}.kmod"
    save_graph(model, size, o)
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
    from torch.nn.functional import scaled_dot_product_attention
    b, h, s, d, t, g = parts_of(path.name.split(".")[0])
    torch.manual_seed(0)
    kind = gpu.torch_type(o.dtype)
    q, k, v = (torch.rand(n, device="cuda", dtype=kind) * 2 - 1 for n in ((b, h, s, d), (b, g, t, d), (b, g, t, d)))
    mask = torch.rand((b, 1, 1, t), device="cuda", dtype=kind) * 4 - 4 if o.mask else None

    def sdpa(q, k, v, mask):
        wide = None if mask is None else mask.expand(q.shape[0], h, s, t)
        return scaled_dot_product_attention(q, k, v, attn_mask=wide, is_causal=o.causal, enable_gqa=g != h)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kiln = gpu.Kiln(o.build, path, stream.cuda_stream)
        kiln.bind({"Q": q, "K": k, "V": v, **({"mask": mask} if o.mask else {})})
        for _ in range(3):  # the second is captured
            kiln.run()
        kiln.wait()
        runs = {"kiln": kiln.run}
        for name, backend in backends().items():
            if name == "math" and s * t > 2 ** 22:  # holds all scores
                continue
            try:
                with sdpa_kernel([backend]):
                    runs[name], _ = gpu.captured(lambda: sdpa(q, k, v, mask), stream)
            except RuntimeError:  # that backend does not run this
                pass
        times = gpu.time_all(runs)
        want = torch.cat([sdpa(q[i:i + 1].float(), k[i:i + 1].float(), v[i:i + 1].float(),
                               None if mask is None else mask[i:i + 1].float()) for i in range(b)])
    error = gpu.rel_l2([kiln.outputs[0].reshape(want.shape)], [want])
    rate = (2e-9 if o.causal else 4e-9) * b * h * s * t * d
    moved = 1e-6 * q.element_size() * (2 * q.numel() + 2 * k.numel())
    others = {n: x for n, x in times.items() if n != "kiln"}
    best = min(others, key=others.get)
    print(f"{path.stem:24} {1e3 * times['kiln']:9.1f} us {rate / times['kiln']:7.1f} TFLOP/s {moved / times['kiln']:7.0f} GB/s  "
          + "  ".join(f"{n} {1e3 * x:.1f} us {x / times['kiln']:.2f}x" for n, x in others.items())
          + f"  best {best} {others[best] / times['kiln']:.2f}x  error {error:.1e}  {kiln.launches} kernels", flush=True)
    return others[best] / times["kiln"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["f16", "bf16", "f32"], default="f16")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--modules", type=pathlib.Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--mask", action="store_true")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only-compile", type=pathlib.Path)
    parser.add_argument("sizes", nargs="*", metavar="BxHxSxD[xT[xG]]")
    o = parser.parse_args()
    sizes = o.sizes + random_sizes(o) or SIZES
    if o.only_compile:
        o.only_compile.mkdir(parents=True, exist_ok=True)
        for size in sizes:
            compile_size(o, size, o.only_compile)
        return
    gpu.torch_type("f16")  # without PyTorch, fail before anything is compiled
    with tempfile.TemporaryDirectory() as folder:
        if o.modules:
            modules = sorted(o.modules.glob("*.kmod"))
        else:
            modules = (compile_size(o, s, pathlib.Path(folder)) for s in sizes)
        ratios = [one(o, module) for module in modules]
    print(f"{len(ratios)} sizes: geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
