#!/usr/bin/env python3
"""Memory of modules: the arena beside its lower bound by liveness, and the peak of a run beside weights and arena.

usage: bench/memory.py [--kiln KILN] [--threads N] [--json FILE] [--plan] MODEL.onnx...

--plan  plans only: nothing is compiled to machine code or run, and weights need not be there (a file of zeros stands for
        NAME.weights, of the size that NAME.json says)

Prints a table: arena, its lower bound and their ratio; without --plan also the weights, the largest resident set of `kiln run`
of the compiled module (all of it: the command, its inputs and outputs, too) and its ratio to weights + arena. Exit 1 when a
ratio is above its limit (1.1 and 1.2).
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ARENA_LIMIT, PEAK_LIMIT = 1.1, 1.2


def run(command):
    """The output of a command that must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def peak_bytes(command):
    """Runs it to its end; the largest resident set it had."""
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {child.returncode}")
    return usage.ru_maxrss * 1024


def stand_in(model, folder):
    """The graph beside a sparse file of zeros for its weights."""
    graph = folder / model.name
    graph.symlink_to(model.resolve())
    with open(folder / f"{model.stem}.weights", "wb") as weights:
        weights.truncate(json.loads(model.with_suffix(".json").read_text())["bytes"])
    return graph


def plan(args, model, folder):
    text = run([args.kiln, "compile", stand_in(model, folder), "--dump=plan", "--threads", args.threads])
    arena, bound = map(int, re.match(r"arena (\d+) bytes, lower bound (\d+) bytes", text).groups())
    return {"model": model.stem, "arena_bytes": arena, "arena_lower_bound_bytes": bound}


def measure(args, model, folder):
    module, figures = folder / f"{model.stem}.so", folder / "figures.json"
    run([args.kiln, "compile", model, "-o", module, "--threads", args.threads])
    run([args.kiln, "bench", module, "--iterations", 1, "--warmup", 0, "--threads", args.threads, "--json", figures])
    row = json.loads(figures.read_text())
    names = ("arena_bytes", "arena_lower_bound_bytes", "weight_bytes")
    row = {"model": model.stem} | {name: row[name] for name in names}
    row["peak_bytes"] = peak_bytes([args.kiln, "run", module, "--threads", args.threads])
    return row


def show(row):
    """One line; whether every ratio is within its limit."""
    ratio = row["arena_bytes"] / max(row["arena_lower_bound_bytes"], 1)
    line = f"{row['model']:24} {row['arena_bytes'] / 1e6:10.2f} {row['arena_lower_bound_bytes'] / 1e6:10.2f} {ratio:7.3f}"
    right = ratio <= ARENA_LIMIT
    if "peak_bytes" in row:
        over = row["peak_bytes"] / (row["weight_bytes"] + row["arena_bytes"])
        line += f" {row['weight_bytes'] / 1e6:10.2f} {row['peak_bytes'] / 1e6:10.2f} {over:7.3f}"
        right = right and over <= PEAK_LIMIT
    print(line if right else line + "  above the limit", flush=True)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--kiln", default=ROOT / "build" / "kiln", type=pathlib.Path)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--plan", action="store_true")
    args = parser.parse_args()
    head = f"{'model':24} {'arena MB':>10} {'bound MB':>10} {'ratio':>7}"
    print(head if args.plan else head + f" {'weights MB':>10} {'peak MB':>10} {'ratio':>7}")
    rows, right = [], True
    for model in args.models:
        with tempfile.TemporaryDirectory() as folder:
            rows.append((plan if args.plan else measure)(args, model, pathlib.Path(folder)))
        right = show(rows[-1]) and right
        if args.json:
            args.json.write_text(json.dumps(rows, indent=1))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
