#!/usr/bin/env python3
"""Times Halide's pipelines (examples/halide/) on a GPU: Kiln's own schedule, the same with kernels apart (--no-connect), and polyhedral
schedules. Results are compared with the reference interpreter at small sizes first; then medians of blocks in turns.

usage: bench/gpu_schedules.py [--build DIR] [--target T] [--rounds N] [--jobs N] [--peers] [NAME]...
--peers: harris and blur also by torch.compile, captured as CUDA graphs.
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

from schedules import PIPELINES

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = [n for n in PIPELINES if n not in ("matmul", "conv_layer")]
WAYS = {"apart": ["--no-connect"], "own": [], **{s: ["--scheduler", s] for s in ("max+promote", "preserve3", "min")}}


class Bench:
    def __init__(self, a, scratch):
        self.a, self.kiln, self.scratch = a, str(a.build.resolve() / "kiln"), pathlib.Path(scratch)

    def run(self, *args, limit=120):
        try:
            done = subprocess.run([self.kiln, *map(str, args)], capture_output=True, text=True, timeout=limit)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            return 124, "timeout"

    @staticmethod
    def sizes(option, values):
        return [w for n, v in values.items() for w in (option, f"{n}={v}")]

    def module(self, name, way):
        return self.scratch / f"{name}.{way}.so"

    def make(self, name, way):
        definition, options = ROOT / "examples" / "halide" / f"{name}.tc", WAYS[way]
        if "--scheduler" in options:  # only definitions have one: its script goes into the module
            rc, text = self.run("tc", definition, *self.sizes("--size", PIPELINES[name]), "--target", self.a.target, *options, "--emit", "schedule")
            if rc:
                return text
            script = self.scratch / f"{name}.{way}.schedule"
            script.write_text(text if text.count("\nkernel ") else text.split("\n", 1)[1])
            options = ["--schedule", script]
        rc, text = self.run("compile", definition, *self.sizes("--dim", PIPELINES[name]), "--target", self.a.target, "--no-cache",
                            "-o", self.module(name, way), *options)
        return text if rc else ""

    def check(self, name, way):
        """What is wrong with the results at a small size."""
        small = {n: min(v, 150 - 32 * (n == "W")) for n, v in PIPELINES[name].items()}
        options = [] if way == "apart" else WAYS[way]
        rc, text = self.run("tc", ROOT / "examples" / "halide" / f"{name}.tc", *self.sizes("--size", small), "--target", self.a.target, "--reference", *options)
        return "" if rc == 0 and "matches" in text else (re.findall(r".*(?:differs|error).*", text) or [text[-200:]])[0]

    def time(self, name, way):
        figures = self.scratch / "figures.json"
        rc, text = self.run("bench", self.module(name, way), "--duration", "0.12", "--warmup", "5", "--json", figures)
        return json.loads(figures.read_text())["median_ms"] * 1000 if rc == 0 else float("nan")


def peers():
    import torch

    def harris(x):
        g = 0.299 * x[0] + 0.587 * x[1] + 0.114 * x[2]
        iy = (g[2:, :-2] - g[:-2, :-2]) / 12 + (g[2:, 1:-1] - g[:-2, 1:-1]) / 6 + (g[2:, 2:] - g[:-2, 2:]) / 12
        ix = (g[:-2, 2:] - g[:-2, :-2]) / 12 + (g[1:-1, 2:] - g[1:-1, :-2]) / 6 + (g[2:, 2:] - g[2:, :-2]) / 12
        h, w = iy.shape
        xx, yy, xy = (sum(a[i:h - 2 + i, j:w - 2 + j] for i in range(3) for j in range(3)) for a in (ix * ix, iy * iy, ix * iy))
        return xx * yy - xy * xy - 0.04 * (xx + yy) * (xx + yy)

    def blur(x):
        b = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) // 3
        return (b[:-2] + b[1:-1] + b[2:]) // 3

    for f, x in ((harris, torch.rand(3, 2560, 1536, device="cuda")), (blur, torch.randint(0, 100, (2402, 3202), device="cuda", dtype=torch.int16))):
        compiled = torch.compile(f)
        for _ in range(3):
            compiled(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            compiled(x)
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        for _ in range(200):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        print(f"torch.compile {f.__name__}: {begin.elapsed_time(end) * 5:.1f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME")
    a = parser.parse_args()
    names = a.names or NAMES
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        bench, pairs = Bench(a, scratch), [(n, w) for n in names for w in WAYS]
        for what in (bench.check, bench.make):
            for (name, way), wrong in zip(pairs, pool.map(lambda p: what(*p), pairs)):
                if wrong:
                    print(f"{name} {way}: {wrong.strip()[-300:]}")
        times = {p: [] for p in pairs}
        for _ in range(a.rounds):
            for p in pairs:
                if bench.module(*p).exists():
                    times[p].append(bench.time(*p))
    print(f"{'us a run':16}" + "".join(f"{w:>13}" for w in WAYS))
    for n in names:
        print(f"{n:16}" + "".join(f"{statistics.median(times[n, w]) if times[n, w] else float('nan'):13.1f}" for w in WAYS))
    if a.peers:
        peers()


if __name__ == "__main__":
    main()
