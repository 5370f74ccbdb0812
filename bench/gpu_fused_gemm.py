#!/usr/bin/env python3
"""Times products whose rows are finished or normalized in the same kernel (docs/design/gpu-kernels.md) on this machine's GPU (f16), interleaved.

usage: bench/gpu_fused_gemm.py [--build DIR] [--target cuda] [--only TEXT] [--option OPTION]... [KIND:MxKxN...]

softmax: Y = softmax(A B) by row; norm: X = A B + R and Y, the layer norm of its rows, both stored; front: Y = norm(A) B + C,
and mlp: Y = gelu(A B + C) W + D + A, N the hidden elements and weights constant, ONNX graphs; mlp is made one kernel whatever that is predicted to cost. Ratios are others' times over
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
         "norm:65536x64x64", "norm:65536x256x64", "norm:16384x256x256", "norm:8192x768x128", "norm:3136x96x96", "norm:1024x256x256",
         "mlp:200704x96x384", "mlp:50176x192x768", "mlp:65536x144x288", "mlp:16384x192x384", "mlp:4096x240x480", "mlp:3136x96x384"]


def function(kind, x):
    import torch
    norm = torch.nn.functional.layer_norm
    if kind == "front":
        return [torch.addmm(x["C"], norm(x["A"], (x["A"].shape[1],), x["G"], x["D"], 1e-5), x["B"])]
    if kind == "mlp":
        return [torch.addmm(x["D"], torch.nn.functional.gelu(torch.addmm(x["C"], x["A"], x["B"])), x["W"]) + x["A"]]
    if kind == "softmax":
        return [torch.softmax(x["A"] @ x["B"], -1)]
    sums = torch.addmm(x["R"], x["A"], x["B"])
    return [sums, norm(sums, (sums.shape[1],), x["G"].to(sums.dtype), x["C"].to(sums.dtype), 1e-5)]


def shapes_of(kind, m, k, n):
    """The inputs, and the result of an ONNX graph."""
    return {"front": {"A": (m, k), "G": (k,), "D": (k,), "B": (k, n), "C": (n,), "Y": (m, n)},
            "mlp": {"A": (m, k), "B": (k, n), "C": (n,), "W": (n, k), "D": (k,), "Y": (m, k)},
            "norm": {"A": (m, k), "B": (k, n), "R": (m, n), "G": (n,), "C": (n,)},
            "softmax": {"A": (m, k), "B": (k, n)}}[kind]


def save_graph(path, kind, m, k, n):
    """Saves the graph; gives its constants by name."""
    from onnx import TensorProto, helper, numpy_helper
    import numpy as np
    import onnx
    nodes = {"front": [helper.make_node("LayerNormalization", ["A", "G", "D"], ["N"], axis=-1, epsilon=1e-5),
                       helper.make_node("MatMul", ["N", "B"], ["P"]), helper.make_node("Add", ["P", "C"], ["Y"])],
             "mlp": [helper.make_node("MatMul", ["A", "B"], ["S"]), helper.make_node("Add", ["S", "C"], ["Z"]), helper.make_node("Gelu", ["Z"], ["H"]),
                     helper.make_node("MatMul", ["H", "W"], ["T"]), helper.make_node("Add", ["T", "D"], ["U"]), helper.make_node("Add", ["U", "A"], ["Y"])]}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in shapes_of(kind, m, k, n).items()]
    rng = np.random.default_rng(0)
    constants = {p.name: rng.uniform(-1, 1, shapes_of(kind, m, k, n)[p.name]).astype(np.float16) for p in given[1:-1] if kind == "mlp"}
    graph = helper.make_graph(nodes[kind], "g", [p for p in given[:-1] if p.name not in constants], given[-1:],
                              [numpy_helper.from_array(value, name) for name, value in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), str(path))
    return constants


def one_kernel(o, source):
    """Options that make one kernel of all statements, whatever it is predicted to cost."""
    kernels = source.with_suffix(".orchestration")
    subprocess.run([o.build / "kiln", "orchestrate", source, f"--target={o.target}", "-o", kernels], check=True, stdout=subprocess.DEVNULL)
    kernels.write_text(" ".join(line.split("#")[0].replace("*", "").strip() for line in kernels.read_text().splitlines()).strip() + "\n")
    return ["--orchestration", kernels]


def compile_to(o, kind, sizes, path, together):
    source = path.with_suffix(".tc" if kind in TEXT else ".onnx")
    options, constants = o.option if together else ["--no-connect"], {}
    if kind in TEXT:
        source.write_text(TEXT[kind])
        options = [*options, *(word for name, value in zip("MKN", sizes) for word in ("--size", f"{name}={value}"))]
    else:
        constants = save_graph(source, kind, *sizes)
        options = [*options, *(one_kernel(o, source) if together and kind == "mlp" else [])]
    subprocess.run([o.build / "kiln", "compile", source, f"--target={o.target}", "-o", path, *options], check=True,
                   stdout=subprocess.DEVNULL)
    return constants


def one(o, case, folder):
    import torch
    kind, sizes = case.split(":")
    sizes = [int(v) for v in sizes.split("x")]
    paths = {"kiln": folder / "together.kmod", "apart": folder / "apart.kmod"}
    for name, path in paths.items():
        constants = compile_to(o, kind, sizes, path, name == "kiln")
    torch.manual_seed(0)
    shapes = {name: shape for name, shape in shapes_of(kind, *sizes).items() if name != "Y"}
    kinds = {1: torch.float32 if kind in TEXT else torch.float16, 2: torch.float16}
    feeds = {name: torch.rand(s, device="cuda", dtype=kinds[len(s)]) * 2 - 1 for name, s in shapes.items()}
    feeds |= {name: torch.from_numpy(value).cuda() for name, value in constants.items()}
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
        copy, replay = gpu.captured(lambda: target.copy_(source), stream), gpu.captured(lambda: function(kind, feeds), stream)
        times = gpu.time_all({name: module.run for name, module in modules.items()} | {"torch": replay[0], "copy": copy[0]})
        want = function(kind, {name: t.float() for name, t in feeds.items()})
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
