#!/usr/bin/env python3
"""Language models of transformers, exported, compiled once for ranges of their dimensions, and compared with PyTorch.

usage: decoders.py BUILD [--only PATTERN] [--families NAME,...] [--exporters dynamo,torchscript,genai] [--opset 18] [--static]
                   [--points 12] [--keep DIR] [--threads 2] [--seconds 300] [--json FILE]

Tiny configurations with random weights (python -m kiln.export), with and without caches of keys and values. Each graph is a
line: whether it compiled, or the first line of the error; how many points are right; the greatest error, and the bound that
it is beside. A point is a choice of batch, tokens and past (and source): corners, 0, 1 and primes. --static binds every
dimension to each of the first three inner points, and compiles as often.

The error of an output is its greatest difference from PyTorch in double precision, by the greatest element there. A point is
right if no error is above 10 times that of PyTorch in single precision, nor 1e-5, whichever is more. Where Kiln is wrong, the
graph runs in ONNX Runtime too: "export" says that it is as wrong there. Needs torch, transformers, onnx, onnxscript, onnxruntime.
"""

import argparse
import copy
import fnmatch
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
GENAI = ["llama", "mistral", "qwen", "qwen2", "gemma", "phi3"]  # families that its builder writes as transformers has them
FAMILIES = ["llama", "qwen", "gemma", "phi", "gpt2", "gpt-neox", "bloom", "opt", "mixtral", "bart", "t5", "whisper"]
# (batch, tokens, past, source)
POINTS = [
    (2, 7, 13, 5), (1, 1, 31, 17), (3, 31, 0, 1),  # these are the static ones
    (1, 1, 0, 1), (8, 1, 4096, 512), (1, 512, 0, 512), (1, 1, 4096, 2), (8, 512, 0, 3), (5, 2, 1, 127), (7, 17, 509, 61),
    (1, 512, 4096, 7), (8, 512, 4096, 512),
]  # fmt: skip
STATIC = 3


def dims_at(point, names):
    return {n: v for n, v in zip(("batch", "tokens", "past", "source"), point) if n in names}


def error_of(got, want):
    """The greatest difference, by the greatest element; infinite if one of them is not finite where the other is."""
    import numpy as np

    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    if got.shape != want.shape:
        return float("inf")
    if want.size == 0:
        return 0.0
    difference = np.abs(got - want)
    return float("inf") if not np.isfinite(difference).all() else float(difference.max() / max(np.abs(want).max(), 1e-30))


def results(module, given):
    import torch

    with torch.no_grad():
        out = module(*given.values())
    return [t.numpy() for t in (out if isinstance(out, tuple) else (out,))]


def check_point(made, module, dims):
    """Runs the module beside PyTorch; gives the greatest error and its bound, and that of ONNX Runtime where it is wrong."""
    import torch

    graph = made.graph
    given = graph.make_inputs(dims)
    if not hasattr(graph, "exact"):
        graph.exact = copy.deepcopy(graph.module).double()
    wide = {k: v.double() if v.dtype == torch.float32 else v for k, v in given.items()}
    want, single = results(graph.exact, wide), results(graph.module, given)
    arrays = {k: v.numpy() for k, v in given.items()}
    got = module.run(**arrays)
    rows = []
    for port, g, w, s in zip(graph.outputs, got, want, single):
        error, bound = error_of(g, w), max(10 * error_of(s, w), 1e-5)
        rows.append((error / bound, error, bound, port.name))
    _, error, bound, name = max(rows)
    point = {"dims": dims, "error": error, "bound": bound, "output": name, "right": error <= bound}
    if not point["right"]:
        point["export"] = as_wrong(made, arrays, want, [bound for _, _, bound, _ in rows])
    return point


def as_wrong(made, arrays, want, bounds):
    """Whether the exported graph is wrong in ONNX Runtime too; its words if it does not run there."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        got = onnxruntime.InferenceSession(str(made.path), options, providers=["CPUExecutionProvider"]).run(None, arrays)
    except Exception as error:  # noqa: BLE001: of any kind
        return str(error).splitlines()[0][:200]
    return any(error_of(g, w) > b for g, w, b in zip(got, want, bounds))


def first_line(done, seconds):
    if done is None:
        return f"took more than {seconds} s"
    if done.returncode < 0:
        return f"signal {-done.returncode}: " + (done.stderr.strip().splitlines() or [""])[-1]
    lines = [line for line in done.stderr.splitlines() if "error" in line or "fatal" in line]
    return (lines or done.stderr.strip().splitlines() or ["no message"])[0].split(": error: ", 1)[-1]


def compile_graph(kiln, made, dims, out, o):
    start = time.perf_counter()
    command = [kiln, "compile", made.path, *dims, "--threads", str(o.threads), "--no-cache", "--quiet", "-o", out]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=o.seconds)
    except subprocess.TimeoutExpired:
        done = None
    seconds = time.perf_counter() - start
    return (None if done is not None and done.returncode == 0 else first_line(done, o.seconds)), seconds


def check_graph(made, o, folder):
    """A row of the table."""
    import kiln

    row = {"graph": f"{made.path.parent.name}/{made.path.name}", "points": [], "refused": [], "seconds": 0.0}
    names = made.graph.dims
    points = list({tuple(dims_at(p, names).items()): None for p in POINTS[: STATIC if o.static else o.points]})
    module = None
    for i, point in enumerate(map(dict, points)):
        if o.static or i == 0:
            fixed = {k: (v, v) for k, v in point.items()}
            sums = {} if not o.static or "kv" not in names else {"kv": point["past"] + point["tokens"]}
            options = made.dim_options(fixed if o.static else {})
            if sums:
                options = [x if not x.startswith("kv=") else f"kv={sums['kv']}" for x in options]
            error, seconds = compile_graph(pathlib.Path(o.build) / "kiln", made, options, folder / f"m{i}.so", o)
            row["seconds"] += seconds
            if error:
                row["refused"].append(error)
                if o.static:
                    continue
                break
            module = kiln.load(folder / f"m{i}.so")
        print(json.dumps({**row, "begun": point}), flush=True)
        try:
            row["points"].append(check_point(made, module, point))
        except Exception as error:  # noqa: BLE001: of any kind
            row["points"].append({"dims": point, "right": False, "failed": f"{type(error).__name__}: {error}"[:300]})
    row["n"] = len(points)
    return row


def child(name, o):
    """Exports a model and checks its graphs; a line of JSON each."""
    import logging

    logging.disable(logging.WARNING)
    import torch

    torch.set_num_threads(o.threads)
    from kiln import export

    family, exporter, *cache = name.rsplit("-", 2) if name.endswith("-cache") else name.rsplit("-", 1)
    place = pathlib.Path(o.keep or tempfile.mkdtemp()) / name
    made = export.export(family, place, tiny=True, exporter=exporter, opset=o.opset, with_cache=bool(cache))
    for graph in made:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({**check_graph(graph, o, pathlib.Path(folder)), "done": True}), flush=True)


def text_of(row):
    right = sum(p["right"] for p in row["points"])
    errors = [p for p in row["points"] if "error" in p]
    worst = max(errors, key=lambda p: p["error"] / p["bound"], default=None)
    numbers = f"{worst['error']:9.1e} {worst['bound']:8.1e}" if worst else f"{'-':>9} {'-':>8}"
    words = [*row["refused"]]
    words += [f"{p['dims']}: {p['failed']}" for p in row["points"] if "failed" in p]
    words += [f"wrong at {p['dims']}, {p['output']}" + (f" (export: {p['export']})" if p["export"] else "")
              for p in row["points"] if p.get("export") is not None]  # fmt: skip
    compiled = "no" if row["refused"] else "yes"
    return f"{row['graph']:40} {compiled:>8} {right:4}/{row['n']:<3} {numbers} {row['seconds']:7.1f}  {'; '.join(words)[:400]}"


def run_child(name, o):
    command = [sys.executable, __file__, *sys.argv[1:], "--one", name]
    environment = {**os.environ, "KILN_LIBRARY": str(pathlib.Path(o.build).resolve()), "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        out, err = process.communicate()
    rows, begun = [], None
    for line in out.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            if row.get("done"):
                rows.append(row)
            begun = None if row.get("done") else row
    if process.returncode:
        row = begun or {"graph": name, "points": [], "refused": [], "seconds": 0.0}
        words = "killed by signal %d" % -process.returncode if process.returncode < 0 else (err.strip().splitlines() or ["?"])[-1]
        row["refused"] = [f"{words} at {row['begun']}" if begun else words]
        rows.append({**row, "n": STATIC if o.static else o.points})
    return rows


def names_of(o):
    out = []
    for exporter in o.exporters.split(","):
        known = GENAI if exporter == "genai" else FAMILIES
        for family in o.families.split(",") if o.families else known:
            out += [f"{family}-{exporter}{c}" for c in (("-cache",) if exporter == "genai" else ("-cache", ""))]
    return out


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build")
    arguments.add_argument("--only", default="*", help="a pattern of FAMILY-EXPORTER[-cache]")
    arguments.add_argument("--families", help="names, separated by commas")
    arguments.add_argument("--exporters", default="dynamo,torchscript")
    arguments.add_argument("--opset", type=int, default=18)
    arguments.add_argument("--static", action="store_true")
    arguments.add_argument("--points", type=int, default=len(POINTS))
    arguments.add_argument("--keep", help="where the exported graphs stay, a folder each")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seconds", type=int, default=300, help="for a compilation")
    arguments.add_argument("--json", help="a file for the rows")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    o = arguments.parse_args()
    if o.one:
        return child(o.one, o)
    names = names_of(o)
    print(f"{'graph':40} {'compiled':>8} {'right':>8} {'error':>9} {'bound':>8} {'seconds':>7}  why not", flush=True)
    every = []
    for name in names:
        if fnmatch.fnmatch(name, o.only):
            for row in run_child(name, o):
                every.append(row)
                print(text_of(row), flush=True)
                if o.json:
                    pathlib.Path(o.json).write_text(json.dumps(every, indent=1) + "\n")
    whole = [r for r in every if not r["refused"] and len(r["points"]) == r["n"] and all(p["right"] for p in r["points"])]
    print(f"{len(whole)} of {len(every)} graphs are compiled and right at every point")
    return len(whole) != len(every)


if __name__ == "__main__":
    sys.exit(main())
