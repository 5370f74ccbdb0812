#!/usr/bin/env python3
"""Prints the README's table of models from what bench/compare.py wrote.

usage: bench/table.py TWO_THREADS.json ONE_THREAD.json
"""
import json
import math
import pathlib
import sys


def read(path):
    return {row["model"]: row for row in json.loads(pathlib.Path(path).read_text())}


def mean(rows, key):
    ratios = [r[key] for r in rows.values() if key in r]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def ratio(row, key):
    return f"{row[key]:.2f}x" if row and key in row else "-"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    two, one = read(sys.argv[1]), read(sys.argv[2])
    print("| model | Kiln ms | ONNX Runtime ms | ratio | OpenVINO, ratio | 1 thread: ONNX Runtime, ratio | OpenVINO, ratio | error |")
    print("|---|---|---|---|---|---|---|---|")
    for name, row in two.items():
        other = one.get(name)
        print(f"| {name} | {row['kiln_ms']:.2f} | {row['onnxruntime_ms']:.2f} | {ratio(row, 'ratio')} | {ratio(row, 'openvino_ratio')} | "
              f"{ratio(other, 'ratio')} | {ratio(other, 'openvino_ratio')} | {max(r['rel_l2'] for r in (row, other) if r):.1e} |")
    print()
    for title, rows in (("2 threads", two), ("1 thread", one)):
        if rows:
            print(f"{title}: {mean(rows, 'ratio'):.3f} of ONNX Runtime over {len(rows)} models, the least "
                  f"{min(r['ratio'] for r in rows.values()):.3f}; {mean(rows, 'openvino_ratio'):.3f} of OpenVINO over "
                  f"{sum('openvino_ratio' in r for r in rows.values())}")


if __name__ == "__main__":
    main()
