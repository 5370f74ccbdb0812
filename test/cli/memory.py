#!/usr/bin/env python3
"""Peak memory of `kiln compile` and of `kiln run`, as the kernel counts it, against the stated limits.

usage: memory.py KILN MODEL.onnx...

compile: at most 2.2 times the weights; for models whose weights are small beside the compiler itself, at most 80 MB
run:     at most the weights, the arena and 20 MB
exit:    0 right, 1 too much, 77 no model is there (weights are made by the Makefile)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FACTOR, SMALL, RUN_EXTRA = 2.2, 80e6, 20e6


def peak_bytes(command):
    """Runs it to its end; the largest resident set it had."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}")
    return usage.ru_maxrss * 1024


def check(model, what, peak, limit):
    right = peak <= limit
    print(f"{'ok  ' if right else 'MUCH'} {model.stem}: {what} peak {peak / 1e6:.1f} MB, limit {limit / 1e6:.1f} MB")
    return right


def check_model(kiln, model, folder):
    module, figures = folder / f"{model.stem}.so", folder / f"{model.stem}.json"
    compiled = peak_bytes([kiln, "compile", str(model), "-o", str(module), "--threads", "2"])
    run = peak_bytes([kiln, "run", str(module), "--threads", "2"])
    subprocess.run([kiln, "bench", str(module), "--iterations", "1", "--warmup", "0", "--json", str(figures)],
                   stdout=subprocess.DEVNULL, check=True)
    row = json.loads(figures.read_text())
    limit = max(FACTOR * row["weight_bytes"], SMALL)
    right = check(model, "compile", compiled, limit)
    return check(model, "run", run, row["weight_bytes"] + row["arena_bytes"] + RUN_EXTRA) and right


def main():
    models = [pathlib.Path(m) for m in sys.argv[2:] if pathlib.Path(m).with_suffix(".weights").exists()]
    if not models:
        return 77
    with tempfile.TemporaryDirectory() as folder:
        results = [check_model(sys.argv[1], m, pathlib.Path(folder)) for m in models]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
