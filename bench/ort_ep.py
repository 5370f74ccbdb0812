#!/usr/bin/env python3
"""Times models through ONNX Runtime with Kiln as provider beside the module that `kiln compile` makes, in one process.

usage: bench/ort_ep.py [--threads N] [--seconds S] [--rounds N] [--json FILE] [--level L] [--most R] [--cpu]
                       [--no-contexts] [--target cuda] [--build DIR] MODEL.onnx...

Both run by turns, in rounds A B B A and B A A B; with threads that spin there is a pause between them, so that those of one
sleep when the other runs. Printed are the medians, the median of the rounds' ratios and where it lies with 95 %, how many
nodes Kiln took, how long it took to make the session, anew and from an EPContext model, and by how much results differ.
--level: ONNX Runtime's own optimizations: disable (the default), basic, extended, all. --most: exit 1 where a ratio is
greater. --cpu times the processor instead of the clock, all threads together, where others use the machine; threads that
wait sleep then. --rounds: at least so many. --no-contexts: EPContext models, which are compiled once more, are left out.
The models' named dimensions must be bound. --target cuda: on a GPU, with all tensors in its memory.
"""
import argparse
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PYTHON = ROOT / ".venv" / "bin" / "python"
if pathlib.Path(sys.prefix) != ROOT / ".venv" and PYTHON.exists() and os.environ.get("KILN_BENCH_VENV") is None:
    os.environ["KILN_BENCH_VENV"] = "1"
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

import kiln_rt  # noqa: E402

PROVIDER = "KilnExecutionProvider"
NVIDIA = 0x10DE
PAUSE_S = 0.004  # twice what a thread of Kiln's spins
CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


def make_feeds(session):
    names = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_,
             "tensor(float16)": np.float16, "tensor(uint8)": np.uint8, "tensor(double)": np.float64}
    draw, feeds = np.random.default_rng(0), {}
    for i in session.get_inputs():
        dtype = np.dtype(names[i.type])
        values = draw.standard_normal(i.shape) if dtype.kind == "f" else np.ones(i.shape)
        feeds[i.name] = np.ascontiguousarray(values.astype(dtype))
    return feeds


class Plain:
    """The module, run as a C program would."""

    def __init__(self, model, threads, spin_us, feeds, folder, target):
        path = folder / ("plain.so" if target == "cpu" else "plain.kmod")
        anew = {**os.environ, "KILN_CACHE_DIR": ""}  # as the provider's: a file that was copied lies otherwise in memory, 1 % apart
        command = [BUILD / "kiln", "compile", model, "--threads", str(threads), "--target", target, "-o", path]
        subprocess.run(command, check=True, capture_output=True, env=anew)
        self.session = kiln_rt.Session(BUILD, path, threads=threads, spin_us=spin_us)
        ins = [feeds[p.name.decode()] for p in self.session.inputs]
        dtypes = {"f32": np.float32, "i64": np.int64, "i32": np.int32, "bool": np.bool_, "f16": np.float16, "u8": np.uint8}
        self.outputs = [np.empty(p.shape[: p.rank], dtypes[p.dtype.decode()]) for p in self.session.output_ports]
        self.session.outputs = self.outputs
        values = [[on_device(a, target) for a in arrays] for arrays in (ins, self.outputs)]
        self.values = values[1]
        tensors = [[self.tensor(a, v) for a, v in zip(*pair)] for pair in zip((ins, self.outputs), values)]
        self.session.bind_tensors(*tensors, ins, values)

    @staticmethod
    def tensor(a, value):
        place = (2, 0) if value.device_name() != "cpu" else (1, 0)
        return kiln_rt.dl_tensor(value.data_ptr(), place, a.shape, CODES[a.dtype.kind], a.dtype.itemsize * 8)

    def results(self):
        return [v.numpy() for v in self.values]

    def run(self):
        self.session.run()


def on_device(array, target):
    if target == "cpu":
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, vendor_id=NVIDIA)


class Provided:
    """A session of ONNX Runtime's, with inputs and outputs bound."""

    def __init__(self, path, device, options, config, level):
        so = ort.SessionOptions()
        so.log_severity_level = 1
        so.graph_optimization_level = level
        for key, value in config.items():
            so.add_session_config_entry(key, value)
        so.add_provider_for_devices([device], options)
        log = os.memfd_create("log")
        saved = os.dup(2)
        os.dup2(log, 2)
        try:
            start = time.perf_counter()
            self.session = ort.InferenceSession(str(path), so)
            self.make_ms = 1e3 * (time.perf_counter() - start)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        os.lseek(log, 0, 0)
        with os.fdopen(log, "rb") as f:
            taken = re.findall(r"Kiln takes (\d+) of (\d+) nodes, in (\d+) parts", f.read().decode(errors="replace"))
        self.taken = tuple(map(int, taken[-1])) if taken else None

    def bind(self, feeds, target):
        self.binding = self.session.io_binding()
        for name, array in feeds.items():
            self.binding.bind_ortvalue_input(name, on_device(array, target))
        self.kept = self.session.run(None, feeds)
        for port, array in zip(self.session.get_outputs(), self.kept):
            self.binding.bind_ortvalue_output(port.name, on_device(array, target))

    def run(self):
        self.session.run_with_iobinding(self.binding)


def block(what, n, clock, pause):
    times = []
    for _ in range(n):
        start = clock()
        what.run()
        times.append((clock() - start) / 1e6)
    time.sleep(pause)
    return statistics.median(times)


def interval(ratios):
    """Where the median lies with 95 %, by ranks: of noise it needs to know nothing but that it falls on either side alike."""
    ordered, n = sorted(ratios), len(ratios)
    off = 0.98 * math.sqrt(n)
    return ordered[max(0, math.floor((n - 1) / 2 - off))], ordered[min(n - 1, math.ceil((n - 1) / 2 + off))]


def measure(both, args, clock, pause):
    """Medians of each, and of the ratios of rounds A B B A, from which what rises or falls meanwhile cancels. A round is as
    short as it may be, so that the machine is alike in it. Ends when the median is known to half a percent, or at the time."""
    first = [block(what, 2, clock, pause) for what in both]
    n = max(1, int(10 / max(first[0], 0.01)))  # blocks of 10 ms
    times, ratios, end = ([], []), [], time.perf_counter() + args.seconds
    while len(ratios) < args.rounds or time.perf_counter() < end:
        order = (0, 1, 1, 0) if len(ratios) % 2 else (1, 0, 0, 1)
        taken = [0.0, 0.0]
        for i in order:
            taken[i] += block(both[i], n, clock, pause)
        for i in (0, 1):
            times[i].append(taken[i] / 2)
        ratios.append(taken[1] / taken[0])
        low, high = interval(ratios)
        if len(ratios) >= 20 and high - low < 0.01:
            break
    return [statistics.median(t) for t in times], statistics.median(ratios), interval(ratios), len(ratios)


def difference(got, want):
    """The relative L2 error; what both lack, as the softmax of a row that is masked as a whole, is no difference."""
    got, want = got.astype(float).ravel(), want.astype(float).ravel()
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return math.inf
    got, want = np.nan_to_num(got), np.nan_to_num(want)
    return float(np.linalg.norm(got - want) / max(np.linalg.norm(want), 1e-30))


def one(model, device, args):
    spin_us = -1 if args.cpu else 0  # a thread that spins takes processor time for nothing
    options = {"threads": str(args.threads), "cache": "0", "load_contexts": "1", "spin_us": str(spin_us)}
    level = getattr(ort.GraphOptimizationLevel, f"ORT_{'DISABLE_ALL' if args.level == 'disable' else 'ENABLE_' + args.level.upper()}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        provided = Provided(model, device, options, {}, level)
        feeds = make_feeds(provided.session)
        provided.bind(feeds, args.target)
        plain = Plain(model, args.threads, spin_us, feeds, folder, args.target)
        clock = time.process_time_ns if args.cpu else time.perf_counter_ns
        pause = PAUSE_S if args.threads != 1 and not args.cpu else 0
        (plain_ms, provided_ms), ratio, (low, high), rounds = measure((plain, provided), args, clock, pause)
        error = max((difference(a, b) for a, b in zip(provided.kept, plain.results())), default=0.0)
        context_ms = math.nan
        if not args.no_contexts:
            kept = folder / "ctx.onnx"
            Provided(model, device, options, {"ep.context_enable": "1", "ep.context_file_path": str(kept)}, level)
            context_ms = Provided(kept, device, options, {}, level).make_ms
        plain.session.close()
    taken, nodes, parts = provided.taken
    return {"model": pathlib.Path(model).stem, "kiln_ms": plain_ms, "provider_ms": provided_ms, "ratio": ratio,
            "low": low, "high": high, "rounds": rounds,
            "taken": taken, "nodes": nodes, "parts": parts, "make_ms": provided.make_ms, "context_ms": context_ms, "rel_l2": error}


def main():
    global BUILD
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--no-contexts", action="store_true")
    parser.add_argument("--level", default="disable", choices=["disable", "basic", "extended", "all"])
    parser.add_argument("--most", type=float, default=math.inf)
    parser.add_argument("--target", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--build", type=pathlib.Path, default=BUILD)
    args = parser.parse_args()
    BUILD = args.build
    ort.register_execution_provider_library("kiln", str(BUILD / "libkiln_ort.so"))
    device = next(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER and d.ep_metadata["kiln_target"] == args.target)
    rows = []
    print(f"{'model':28} {'kiln':>10} {'provider':>10} {'ratio':>6} {'95 %':>13} {'rounds':>6}  {'nodes':>9} {'parts':>5} {'make':>9} {'context':>8} {'rel l2':>8}")
    for model in args.models:
        r = one(model, device, args)
        rows.append(r)
        print(f"{r['model']:28} {r['kiln_ms']:7.3f} ms {r['provider_ms']:7.3f} ms {r['ratio']:6.3f} "
              f"{r['low']:6.3f}-{r['high']:6.3f} {r['rounds']:6}  {r['taken']:4}/{r['nodes']:<4} "
              f"{r['parts']:5} {r['make_ms']:6.0f} ms {r['context_ms']:5.1f} ms {r['rel_l2']:8.1e}", flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
    print(f"geometric mean of the ratio {mean:.3f}, greatest {max(r['ratio'] for r in rows):.3f}")
    return int(any(r["ratio"] > args.most for r in rows))


if __name__ == "__main__":
    sys.exit(main())
