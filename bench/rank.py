#!/usr/bin/env python3
"""How well predicted times order the candidates of the kernels that take most of the time in each model.

usage: bench/rank.py [--build DIR] [--top N] [MODEL.onnx...]

Runs `kiln bench MODEL --profile` on one thread on every model (default: the first 22 of bench/models.txt, those of one
image or sentence), and `rank_bench` on its kernels, those with the most time first, until N (1) have been ranked: kernels
with fewer than five candidates have no order. Environment: as rank_bench.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROW = re.compile(r"^(k\d+\S*)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s")
RANK = re.compile(r"^(\S+)\s+(\d+) candidates,.*of the cost\s+(\S+), of the flows\s+(\S+); first is (\S+)", re.M)
SMALL = 22
TRIED = 12  # kernels of a model


def default_models():
    names = [line.strip() for line in (ROOT / "bench/models.txt").read_text().splitlines()]
    return [f"build/models/{name}.onnx" for name in names if name and name[0] != "#"][:SMALL]


def kernels(build, model):
    out = subprocess.run([f"{build}/kiln", "bench", model, "--threads", "1", "--iterations", "2", "--warmup", "1",
                          "--profile"], capture_output=True, text=True, check=False).stdout
    rows = [(float(m[3]), m[1]) for m in map(ROW.match, out.splitlines()) if m]
    return [name for _, name in sorted(rows, reverse=True)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--top", type=int, default=1)
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    rows = []
    for model in args.models or default_models():
        ranked = 0
        for name in kernels(args.build, model)[:TRIED]:
            if ranked == args.top:
                break
            out = subprocess.run([f"{args.build}/rank_bench", model, name], capture_output=True, text=True,
                                 check=False).stdout
            print(f"{pathlib.Path(model).stem} {out}", end="", flush=True)
            found = RANK.findall(out)
            ranked += len(found)
            rows += [(float(row[2]), float(row[3]), float(row[4])) for row in found]
    if rows:
        cost, flows, first = (sum(column) / len(rows) for column in zip(*rows))
        good = sum(row[1] >= 0.8 for row in rows)
        print(f"mean of {len(rows)}: cost {cost:.2f}, flows {flows:.2f}, 0.8 or more: {good}; first is {first:.2f} of the best")
    return 0


if __name__ == "__main__":
    sys.exit(main())
