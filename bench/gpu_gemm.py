#!/usr/bin/env python3
"""Times matrix products on this machine's GPU against torch.matmul: same inputs, replays, interleaved, medians.

usage: bench/gpu_gemm.py [--dtype f16|f32|tf32|i8] [--build DIR] [--modules DIR] [--target cuda] [MxNxK]...

Each product C(m, n) = A(m, k) B(k, n) is a definition that `kiln compile` compiles (default: the sizes of the table in the
README), and is run by libkiln_rt.so on tensors of PyTorch. --modules times *.kmod files of a folder in its place, whose names
begin with their size: 128x3072x768.anything.kmod. f32 is against torch.matmul without TF32, tf32 with, i8 (sums in i32)
against torch._int_mm. Prints microseconds, TFLOP/s, the
ratio torch / Kiln, and the relative L2 error against a product in f64.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402

SIZES = ["8192x8192x8192", "4096x4096x4096", "8192x3072x768", "8192x768x3072", "128x3072x768", "64x4096x4096"]
TEXT = {"f16": "def gemm(float16(M, K) A, float16(K, N) B) -> (float16(M, N) C) {\n"
               "  T(i, j) +=! float(A(i, k)) * float(B(k, j))\n  C(i, j) = float16(T(i, j))\n}\n",
        "f32": "def gemm(float(M, K) A, float(K, N) B) -> (C) {\n  C(i, j) +=! A(i, k) * B(k, j)\n}\n",
        "i8": "def gemm(int8(M, K) A, int8(K, N) B) -> (C) {\n  C(i, j) +=! int32(A(i, k)) * int32(B(k, j))\n}\n"}
TEXT["tf32"] = TEXT["f32"]


def compile_size(o, size, scratch):
    source, out = scratch / f"{o.dtype}.tc", scratch / f"{size}.kmod"
    source.write_text(TEXT[o.dtype])
    sizes = [w for name, value in zip("MNK", size.split("x")) for w in ("--size", f"{name}={value}")]
    sizes += ["--dtype=tf32"] if o.dtype == "tf32" else []
    subprocess.run([o.build / "kiln", "compile", source, *sizes, f"--target={o.target}", "-o", out], check=True,
                   stdout=subprocess.DEVNULL)
    return out


def one(o, path):
    import torch
    m, n, k = (int(v) for v in path.name.split(".")[0].split("x"))
    torch.manual_seed(0)
    product = torch._int_mm if o.dtype == "i8" else torch.matmul
    if o.dtype == "i8":
        a, b = (torch.randint(-128, 128, s, device="cuda", dtype=torch.int8) for s in ((m, k), (k, n)))
    else:
        kind = gpu.torch_type("f32" if o.dtype == "tf32" else o.dtype)
        a, b = (torch.rand(s, device="cuda", dtype=kind) * 2 - 1 for s in ((m, k), (k, n)))
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kiln = gpu.Kiln(o.build, path, stream.cuda_stream)
        kiln.bind({"A": a, "B": b})
        for _ in range(3):  # the second is captured
            kiln.run()
        kiln.wait()
        torch.backends.cuda.matmul.allow_tf32 = o.dtype == "tf32"
        replay, out = gpu.captured(lambda: product(a, b), stream)
        torch.backends.cuda.matmul.allow_tf32 = False
        times = gpu.time_all({"kiln": kiln.run, "torch": replay})
    error = gpu.rel_l2(kiln.outputs, [a.double() @ b.double()])
    rate = 2e-9 * m * n * k / times["kiln"]
    print(f"{path.stem:36} {1e3 * times['kiln']:9.1f} us {rate:7.1f} TFLOP/s  torch {1e3 * times['torch']:9.1f} us "
          f"{times['torch'] / times['kiln']:6.2f}  error {error:.1e}  {kiln.launches} kernels", flush=True)


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--dtype", choices=TEXT, default="f16")
parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
parser.add_argument("--modules", type=pathlib.Path)
parser.add_argument("--target", default="cuda")
parser.add_argument("sizes", nargs="*", metavar="MxNxK")
options = parser.parse_args()
gpu.torch_type("f16")  # without PyTorch, fail before anything is compiled
with tempfile.TemporaryDirectory() as folder:
    if options.modules:
        modules = sorted(options.modules.glob("*.kmod"))
    else:
        modules = (compile_size(options, s, pathlib.Path(folder)) for s in options.sizes or SIZES)
    for module in modules:
        one(options, module)
