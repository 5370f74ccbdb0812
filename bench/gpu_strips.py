#!/usr/bin/env python3
"""Times products whose rows are finished or normalized in the same kernel (docs/gpu.md) on this machine's GPU (f16), interleaved.

usage: bench/gpu_strips.py [--build DIR] [--target cuda] [--only TEXT] [--option OPTION]... [KIND:MxKxN...]

softmax: Y = softmax(A B) by row; norm: X = A B + R and Y, the layer norm of its rows, both stored; front: Y = norm(A) B + C,
an ONNX graph. Ratios are others' times over
Kiln's: apart, kernels as rules group them (--no-connect); torch, eager PyTorch with a CUDA graph; copy, a copy of as many bytes
as inputs and outputs have. `n` are the launches of both modules. --option goes to the first module's compilation.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402

TEXT = {"softmax": """def f(float16(M, K) A, float16(K, N) B) -> (float16(M, N) Y) {
  T(m, n) +=! float(A(m, k)) * float(B(k, n))
  Z(m, n) = float16(T(m, n))
  X(m) max=! float(Z(m, n))
  E(m, n) = exp(float(Z(m, n)) - X(m))
  S(m) +=! E(m, n)
  Y(m, n) = float16(E(m, n) / S(m))
}
""", "norm": """def f(float16(M, K) A, float16(K, N) B, float16(M, N) R, float(N) G, float(N) C) -> (float16(M, N) X, float16(M, N) Y) {
  T(m, n) +=! float(A(m, k)) * float(B(k, n))
  X(m, n) = float16(T(m, n) + float(R(m, n)))
  S(m) +=! float(X(m, n))
  D(m, n) = float(X(m, n)) - S(m) / N
  V(m) +=! D(m, n) * D(m, n)
  Y(m, n) = float16(D(m, n) * rsqrt(V(m) / N + 0.00001) * G(n) + C(n))
}
"""}
CASES = ["front:200704x96x288", "front:200704x96x384", "front:50176x192x576", "front:65536x64x64", "front:65536x64x256", "front:16384x160x640",
         "front:32768x256x256", "front:3136x96x288", "front:1024x144x432", "front:256x192x576",
         "softmax:98304x64x128", "softmax:65536x64x256", "softmax:16384x768x256", "norm:200704x96x96", "norm:50176x192x192",
         "norm:65536x64x64", "norm:65536x256x64", "norm:16384x256x256", "norm:8192x768x128", "norm:3136x96x96", "norm:1024x256x256"]


def function(kind, a, b, r=None, g=None, c=None):
    import torch
    if kind == "front":  # A, G, D, B, C
        a, g, d, b, c = a, b, r, g, c
        return [torch.addmm(c, torch.nn.functional.layer_norm(a, (a.shape[1],), g, d, 1e-5), b)]
    if kind == "softmax":
        return [torch.softmax(a @ b, -1)]
    x = torch.addmm(r, a, b)
    return [x, torch.nn.functional.layer_norm(x, (x.shape[1],), g.to(x.dtype), c.to(x.dtype), 1e-5)]


def save_front(path, m, k, n):
    from onnx import TensorProto, helper
    import onnx
    half = TensorProto.FLOAT16
    given = {"A": [m, k], "G": [k], "D": [k], "B": [k, n], "C": [n]}
    nodes = [helper.make_node("LayerNormalization", ["A", "G", "D"], ["N"], axis=-1, epsilon=1e-5), helper.make_node("MatMul", ["N", "B"], ["P"]),
             helper.make_node("Add", ["P", "C"], ["Y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, half, shape) for name, shape in given.items()],
                              [helper.make_tensor_value_info("Y", half, [m, n])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def compile_to(o, kind, sizes, path, options):
    source = path.with_suffix(".onnx" if kind == "front" else ".tc")
    if kind == "front":
        save_front(source, *map(int, sizes))
        sizes = []
    else:
        source.write_text(TEXT[kind])
        sizes = [word for name, value in zip("MKN", sizes) for word in ("--size", f"{name}={value}")]
    subprocess.run([o.build / "kiln", "compile", source, *sizes, f"--target={o.target}", "-o", path, *options], check=True,
                   stdout=subprocess.DEVNULL)


def one(o, case, folder):
    import torch
    kind, sizes = case.split(":")
    m, k, n = sizes = [int(v) for v in sizes.split("x")]
    paths = {"kiln": folder / "together.kmod", "apart": folder / "apart.kmod"}
    compile_to(o, kind, sizes, paths["kiln"], o.option)
    compile_to(o, kind, sizes, paths["apart"], ["--no-connect"])
    torch.manual_seed(0)
    shapes = {"A": (m, k), "B": (k, n)} | ({"R": (m, n), "G": (n,), "C": (n,)} if kind == "norm" else {})
    shapes = {"A": (m, k), "G": (k,), "D": (k,), "B": (k, n), "C": (n,)} if kind == "front" else shapes
    kinds = {1: torch.float16 if kind == "front" else torch.float32, 2: torch.float16}
    feeds = {name: torch.rand(s, device="cuda", dtype=kinds[len(s)]) * 2 - 1 for name, s in shapes.items()}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.no_grad():
        modules = {name: gpu.Kiln(o.build, path, stream.cuda_stream) for name, path in paths.items()}
        for module in modules.values():
            module.bind(feeds)
            for _ in range(3):  # the second is captured
                module.run()
            module.wait()
        kiln = modules["kiln"]
        n_bytes = sum(t.numel() * t.element_size() for t in [*feeds.values(), *kiln.outputs])
        source = torch.empty(n_bytes // 4, device="cuda", dtype=torch.float16)
        target = torch.empty_like(source)
        copy, replay = gpu.captured(lambda: target.copy_(source), stream), gpu.captured(lambda: function(kind, *feeds.values()), stream)
        times = gpu.time_all({name: module.run for name, module in modules.items()} | {"torch": replay[0], "copy": copy[0]})
        want = function(kind, *(t.float() for t in feeds.values()))
    error = gpu.rel_l2(kiln.outputs, want)
    ratios = " ".join(f"{times[name] / times['kiln']:6.2f}" for name in ("apart", "torch", "copy"))
    print(f"{case:24} {1e3 * times['kiln']:9.1f} {ratios}  {kiln.launches}, {modules['apart'].launches} {error:8.1e}", flush=True)
    for module in modules.values():
        module.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--only", default="", help="part of the name")
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("cases", nargs="*", default=CASES)
    o = parser.parse_args()
    print(f"{'case':24} {'us':>9} {'apart':>6} {'torch':>6} {'copy':>6}  n       error")
    for case in o.cases:
        if o.only in case:
            with tempfile.TemporaryDirectory() as folder:
                one(o, case, pathlib.Path(folder))


if __name__ == "__main__":
    main()
