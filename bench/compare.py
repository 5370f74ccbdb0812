#!/usr/bin/env python3
"""Times Kiln against ONNX Runtime, and OpenVINO: same model, inputs and threads, in one process, interleaved, medians.

usage: bench/compare.py [--threads N] [--json FILE] [--seconds S] [--dim NAME=N]... [--no-openvino] [--least] MODEL.onnx...

Prints a table and the geometric mean of ratio = onnxruntime_ms / kiln_ms (and of openvino_ms / kiln_ms), and checks the
outputs against ONNX Runtime's (relative L2 error). OpenVINO computes in f32 here as well, and a model that it refuses has no
figure. The JSON is a list of {model, threads, kiln_ms, onnxruntime_ms, ratio, openvino_ms, openvino_ratio, rel_l2}, written
anew behind each model. --least takes the least time of each in place of medians, where others use the machine. Makes
itself a virtual environment (.venv) with the newest releases where it runs without one.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"


def enter_venv():
    """Runs this script again in .venv, made on first use."""
    python = ROOT / ".venv" / "bin" / "python"
    if pathlib.Path(sys.prefix) == ROOT / ".venv":
        return
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv"], check=True)
    requirements = ROOT / "bench" / "requirements.txt"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements], check=True)
    os.execv(python, [str(python), *sys.argv])


enter_venv()
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402
import openvino  # noqa: E402
import kiln_rt  # noqa: E402

LONG_MS, LONG_ROUNDS = 1500, 3  # a run that takes longer is timed three times

DL_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


def dl_tensor(array):
    """A DLTensor that borrows a C-contiguous NumPy array; keep both alive."""
    return kiln_rt.dl_tensor(array.ctypes.data, (1, 0), array.shape, DL_CODES[array.dtype.kind], array.dtype.itemsize * 8)


def numpy_dtype(text):
    names = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "uint16", "bool": "bool"}
    return np.dtype(names.get(text) or {"u": "uint", "i": "int"}[text[0]] + text[1:])


class Kiln(kiln_rt.Session):
    """A compiled module and one session, on arrays of NumPy."""

    def __init__(self, path, threads):
        super().__init__(BUILD, path, threads=threads)
        self.outputs = [np.zeros(p.shape[:p.rank], numpy_dtype(p.dtype.decode())) for p in self.output_ports]

    def bind(self, feeds):
        """Fixes the inputs and outputs of the runs that follow."""
        arrays = [np.asarray(feeds[p.name.decode()], order="C") for p in self.inputs]
        self.bind_tensors([dl_tensor(a) for a in arrays], [dl_tensor(a) for a in self.outputs], arrays)


def make_feeds(ports):
    """Random inputs: floats uniform in [-1, 1); integers 0 or 1 so that they are valid indices, 1 where they are a
    vector (lengths)."""
    rng = np.random.default_rng(0)
    feeds = {}
    for p in ports:
        shape, dtype = tuple(p.shape[:p.rank]), numpy_dtype(p.dtype.decode())
        real = dtype.kind == "f"
        feeds[p.name.decode()] = (
            rng.uniform(-1, 1, shape) if real else rng.integers(0 if len(shape) > 1 else 1, 2, shape)).astype(dtype)
    return feeds


def ort_session(path, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def openvino_run(path, threads, feeds):
    """A function that runs the model in OpenVINO, or None where it does not take it."""
    try:
        core = openvino.Core()
        settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        request = core.compile_model(str(path), "CPU", settings).create_infer_request()
        request.infer(feeds, share_inputs=True, share_outputs=True)
    except RuntimeError:
        return None
    return lambda: request.infer(feeds, share_inputs=True, share_outputs=True)


def block(run, seconds, warm_up=True):
    """Times of runs for about |seconds|, one at least, after one that is not counted."""
    if warm_up:
        run()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def rel_l2(got, want):
    """The largest relative L2 error of the outputs; infinite where one has a NaN and the other has not."""
    worst = 0.0
    for g, w in zip(got, want):
        g, w = np.asarray(g, np.float64), np.asarray(w, np.float64)
        if g.shape != w.shape or (np.isnan(g) != np.isnan(w)).any():
            return math.inf
        known = ~np.isnan(w)
        norm, error = np.linalg.norm(w[known]), np.linalg.norm(g[known] - w[known])
        worst = max(worst, float(error / norm if norm else error))
    return worst


def compile_module(path, threads, dims, out):
    args = [str(BUILD / "kiln"), "compile", str(path), "-o", str(out), "--threads", str(threads)]
    for d in dims:
        args += ["--dim", d]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[0] if done.stderr.strip() else f"kiln exited {done.returncode}")


def compare(path, threads, dims, seconds, with_openvino, rounds=5, least=False):
    with tempfile.TemporaryDirectory() as scratch:
        module = pathlib.Path(scratch) / "model.so"
        compile_module(path, threads, dims, module)
        kiln, session = Kiln(module, threads), ort_session(path, threads)
        feeds = make_feeds(kiln.inputs)
        kiln.bind(feeds)
        want = session.run(None, feeds)
        error = rel_l2(kiln.run(), want)
        runs = {"kiln": kiln.run, "onnxruntime": lambda: session.run(None, feeds)}
        other = openvino_run(path, threads, feeds) if with_openvino else None
        if other:
            runs["openvino"] = other
        times = {name: [] for name in runs}
        is_long = block(kiln.run, 0)[0] > LONG_MS  # nothing of the caches is left for the next run then
        for _ in range(LONG_ROUNDS if is_long else rounds):
            for name, run in runs.items():
                times[name] += block(run, seconds / rounds, warm_up=not is_long)
                time.sleep(0.05)  # a peer's threads spin for a while
        kiln.close()
    ms = {name: float(min(t) if least else np.median(t)) for name, t in times.items()}
    row = {"model": pathlib.Path(path).stem, "threads": threads, "kiln_ms": ms["kiln"], "onnxruntime_ms": ms["onnxruntime"],
           "ratio": ms["onnxruntime"] / ms["kiln"], "rel_l2": error}
    if "openvino" in ms:
        row |= {"openvino_ms": ms["openvino"], "openvino_ratio": ms["openvino"] / ms["kiln"]}
    return row


def mean_of(rows, key):
    """A line with the geometric mean of a ratio over the rows that have it."""
    ratios = [r[key] for r in rows if key in r]
    if not ratios:
        return ""
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.3f} over {len(ratios)} models, the least {min(ratios):.3f}"


def main():
    global BUILD
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="the folder of kiln and libkiln_rt.so (build)")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of the two, a model")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--no-openvino", action="store_true")
    parser.add_argument("--least", action="store_true")
    parser.add_argument("models", nargs="+", metavar="MODEL.onnx")
    args = parser.parse_args()
    BUILD = args.build.resolve()
    rows, failed = [], []
    print(f"Kiln against ONNX Runtime {ort.__version__} and OpenVINO {openvino.__version__}, {args.threads} threads, "
          f"{'the least time' if args.least else 'medians'} of interleaved blocks")
    print(f"{'model':28} {'Kiln ms':>10} {'ORT ms':>10} {'ratio':>7} {'OV ms':>10} {'ratio':>7} {'rel. L2':>9}")
    for path in args.models:
        try:
            row = compare(path, args.threads, args.dim, args.seconds, not args.no_openvino, least=args.least)
        except Exception as problem:  # one model's failure is a row of the table
            failed.append(path)
            print(f"{pathlib.Path(path).stem:28} {problem}"[:200], flush=True)
            continue
        rows.append(row)
        theirs = f"{row['openvino_ms']:10.3f} {row['openvino_ratio']:7.3f}" if "openvino_ms" in row else f"{'-':>10} {'-':>7}"
        print(f"{row['model']:28} {row['kiln_ms']:10.3f} {row['onnxruntime_ms']:10.3f} {row['ratio']:7.3f} {theirs} "
              f"{row['rel_l2']:9.1e}", flush=True)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps(rows, indent=2) + "\n")
    print(f"geometric mean, ONNX Runtime / Kiln: {mean_of(rows, 'ratio')}")
    print(f"geometric mean, OpenVINO / Kiln: {mean_of(rows, 'openvino_ratio')}")
    return 1 if failed or any(not r["rel_l2"] <= 1e-4 for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
