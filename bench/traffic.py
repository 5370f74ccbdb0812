#!/usr/bin/env python3
"""Predicted and counted traffic of the kernels that take most of the time in models.

usage: bench/traffic.py [--build DIR] [--top N] [MODEL.onnx...]

Runs `kiln bench MODEL --profile` on every model (default: the first 22 of bench/models.txt, those of one image or
sentence), takes the N kernels (20) with the most time in one run, and compares for each what analysis/reuse.h predicts
with what target/sim counts.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMALL = 22
ROW = re.compile(r"^(k\d+\S*)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s")


def default_models():
    names = [line.strip() for line in (ROOT / "bench/models.txt").read_text().splitlines()]
    return [f"build/models/{name}.onnx" for name in names if name and name[0] != "#"][:SMALL]


def profile(build, model):
    out = subprocess.run([f"{build}/kiln", "bench", model, "--threads", "2", "--iterations", "2",
                          "--warmup", "1", "--profile"],
                         capture_output=True, text=True, check=False).stdout
    rows = (ROW.match(line) for line in out.splitlines())
    return [(float(m[3]), model, m[1]) for m in rows if m]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    models = args.models or default_models()
    rows = sorted((row for model in models for row in profile(args.build, model)), reverse=True)[:args.top]
    within = total = 0
    for model in dict.fromkeys(row[1] for row in rows):
        names = [name for _, of, name in rows if of == model]
        print(f"{model}: " + ", ".join(f"{name} {ms:.2f} ms" for ms, of, name in rows if of == model), flush=True)
        out = subprocess.run([f"{args.build}/traffic_bench", model, *names],
                             capture_output=True, text=True, check=True).stdout
        print(out, end="", flush=True)
        counts = re.search(r"within 15 %: (\d+) of (\d+)", out)
        within += int(counts[1])
        total += int(counts[2])
    print(f"all: {within} of {total} within 15 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
