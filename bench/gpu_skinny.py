#!/usr/bin/env python3
"""Times products of few rows by constant weights, as in decoding, on this machine's GPU against torch: cold, interleaved, medians.

usage: bench/gpu_skinny.py [--dtype f16|bf16] [--build DIR] [--target cuda] [--models DIR] [--only-make DIR] [--sample N] [--seed S]
                           [--tune N] [MxNxK[t]]...

Y(m, n) = X(m, k) W(k, n), W a constant; with t its rows are the columns of the result, as torch's Linear has them. --sample takes
N random sizes: 1 to 16 rows, 256 to 32768 columns and terms, at most 2^28 weights. Models are ONNX files beside their weights;
--only-make writes them without weights and needs the package onnx; --models takes those of a folder, whose weights are made
anew, so that this machine needs no such package. In front of each run 256 MB are read, so that weights come from memory.
Prints microseconds, GB/s of weights and its share of what a copy of 1 GB moves, torch's time over Kiln's (the faster of the two
layouts of W), and the relative L2 error against a product in f64.
"""
import argparse
import concurrent.futures
import math
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import gpu  # noqa: E402

SIZES = ["1x4096x4096t", "1x14336x4096t", "1x4096x14336t", "4x4096x4096t", "16x14336x4096t"]
ROUNDS = 25


def parts_of(size):
    return (*(int(v) for v in size.rstrip("t").split("x")), size.endswith("t"))


def random_sizes(o):
    rng, sizes = random.Random(o.seed), []
    while len(sizes) < o.sample:
        m, n, k = rng.choice([1, 1, 1, 2, 4, 8, 16]), int(2 ** rng.uniform(8, 15)), int(2 ** rng.uniform(8, 15))
        n, k = (v // u * u for v, u in ((n, rng.choice([1, 8, 64])), (k, rng.choice([8, 64]))))
        if n * k <= 2 ** 28:
            sizes.append(f"{m}x{n}x{k}{rng.choice(['', 't'])}")
    return sizes


def save_model(path, size):
    import onnx
    from onnx import TensorProto, helper
    m, n, k, turned = parts_of(size)
    weights = TensorProto(name="W", data_type=TensorProto.FLOAT, dims=[n, k] if turned else [k, n],
                          data_location=TensorProto.EXTERNAL)
    for key, value in (("location", f"{size}.bin"), ("offset", "0"), ("length", str(4 * n * k))):
        weights.external_data.add(key=key, value=value)
    node = helper.make_node("Gemm", ["X", "W"], ["Y"], transB=1) if turned else helper.make_node("MatMul", ["X", "W"], ["Y"])
    graph = helper.make_graph([node], "skinny", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [m, k])],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [m, n])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def weights_of(size):
    """The same each time, and exact in a half."""
    import torch
    _, n, k, turned = parts_of(size)
    own = torch.Generator().manual_seed(n * 31 + k)  # modules are compiled on several threads
    return torch.randint(-64, 65, (n, k) if turned else (k, n), dtype=torch.int8, generator=own)


def compile_model(o, path):
    """The module, or what went wrong."""
    out, weights = path.with_suffix(".kmod"), path.with_suffix(".bin")
    (weights_of(path.stem).float() / 64).numpy().tofile(weights)
    done = subprocess.run([o.build / "kiln", "compile", "--no-cache", path, f"--dtype={o.dtype}", f"--target={o.target}",
                           *(["--tune", str(o.tune)] if o.tune else []), "-o", out], capture_output=True,
                          text=True)
    weights.unlink()
    return out if done.returncode == 0 else (done.stderr.strip().splitlines() or ["?"])[0]


def time_cold(runs, flush):
    """Medians of milliseconds by name, in turns, each run alone behind |flush|."""
    import torch
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            flush()
            begin.record()
            run()
            end.record()
            end.synchronize()
            times[name].append(begin.elapsed_time(end))
    return {name: sorted(t)[len(t) // 2] for name, t in times.items()}


def copy_rate(flush):
    """GB/s, read plus written."""
    import torch
    a = torch.zeros(2 ** 29, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2e-6 * a.numel() / time_cold({"copy": lambda: b.copy_(a)}, flush)["copy"]


def one(o, size, module, flush, rate, stream):
    import torch
    m, n, k, turned = parts_of(size)
    kind = gpu.torch_type(o.dtype)
    x = (torch.rand((m, k), device="cuda") * 2 - 1).to(kind)
    w = (weights_of(size).to("cuda").float() / 64).to(kind)
    w = w.t() if turned else w
    kiln = gpu.Kiln(o.build, module, stream.cuda_stream)
    kiln.bind({"X": x})
    for _ in range(3):  # the second is captured
        kiln.run()
    kiln.wait()
    runs = {"kiln": kiln.run}
    for name, b in (("rows", w.contiguous()), ("columns", w.t().contiguous().t())):
        runs[name], _ = gpu.captured(lambda b=b: torch.matmul(x, b), stream)
    times = time_cold(runs, flush)
    other = min(times["rows"], times["columns"])
    error = gpu.rel_l2(kiln.outputs, [x.double() @ w.double()])
    moved = 1e-6 * x.element_size() * n * k / times["kiln"]
    print(f"{size:18} {1e3 * times['kiln']:8.1f} us {moved:6.0f} GB/s {moved / rate:5.2f} of copy  torch {1e3 * other:8.1f} us "
          f"{other / times['kiln']:5.2f}  error {error:.1e}  {kiln.launches} kernels", flush=True)
    return other / times["kiln"], moved / rate


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["f16", "bf16"], default="f16")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--models", type=pathlib.Path)
    parser.add_argument("--only-make", type=pathlib.Path)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--tune", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("sizes", nargs="*", metavar="MxNxK[t]")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = o.only_make or pathlib.Path(folder)
        made.mkdir(parents=True, exist_ok=True)
        if o.models:
            for path in o.models.glob("*.onnx"):
                shutil.copy(path, made)
        else:
            for size in o.sizes + random_sizes(o) or SIZES:
                save_model(made / f"{size}.onnx", size)
        if o.only_make:
            return
        models = sorted(made.glob("*.onnx"))
        with concurrent.futures.ThreadPoolExecutor(1 if o.tune else 8) as pool:
            modules = list(pool.map(lambda path: compile_model(o, path), models))
        import torch
        trash = torch.zeros(2 ** 26, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            rate = copy_rate(trash.max)
            print(f"{torch.cuda.get_device_name()}: a copy moves {rate:.0f} GB/s")
            ratios = []
            for path, module in zip(models, modules):
                if isinstance(module, str):
                    print(f"{path.stem:18} {module}")
                else:
                    ratios.append(one(o, path.stem, module, trash.max, rate, stream))
        for i, what in enumerate(("torch / Kiln", "share of a copy")):
            each = [r[i] for r in ratios]
            print(f"{what}: geometric mean {math.exp(sum(map(math.log, each)) / len(each)):.2f}, least {min(each):.2f}")


if __name__ == "__main__":
    main()
