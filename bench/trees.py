#!/usr/bin/env python3
"""Times ensembles of decision trees in Kiln beside ONNX Runtime: random trees of the sizes that XGBoost, LightGBM and
scikit-learn make by default, at batch 1 and 1,024, interleaved; ratio = onnxruntime / kiln.

usage: bench/trees.py [--threads N] [--seconds S] [--least] [--json FILE] [--build DIR] [--batch N]... [--only PATTERN]... [MODEL.onnx]...

Models given are timed too, at their own batch. A tree grows leaf by leaf: the leaf with the most of the random rows that it is
grown on is divided, at the median of a random feature of its rows or at a random one of them, so that rows reach leaves about
evenly and trees are lopsided as learnt ones are. Medians; --least takes the least time of each, where others use the machine.
"""
import argparse
import fnmatch
import heapq
import json
import math
import os
import pathlib
import sys
import tempfile
import time

import compare  # first: it sees to the environment

import numpy as np
import onnx
from onnx import helper

FEATURES = 30
# trees, leaves, most levels, classes (0: a regression)
ENSEMBLES = {
    "stumps": (100, 8, 3, 0),          # scikit-learn's GradientBoosting
    "xgboost": (100, 64, 6, 0),
    "lightgbm": (100, 31, 99, 0),
    "lightgbm_10_classes": (1000, 31, 99, 10),
    "depth_8": (300, 256, 8, 0),
    "depth_10": (100, 1024, 10, 0),
    "forest": (100, 700, 99, 0),       # scikit-learn's RandomForest on some thousands of rows
    "forest_3_classes": (100, 300, 99, 3),
    "large_forest": (200, 3000, 99, 0),
}


def grow(rng, n_leaves, depth):
    """Nodes as (feature, threshold, left, right), or None for a leaf; the root is the first."""
    rows = rng.normal(size=(4 * n_leaves, FEATURES)).astype(np.float32)
    nodes, heap = [None], [(-len(rows), 0, np.arange(len(rows)), 0)]
    made = 1
    while heap and made < n_leaves:
        _, node, mine, level = heapq.heappop(heap)
        if level == depth or len(mine) < 2:
            continue
        made += 1
        feature = int(rng.integers(FEATURES))
        values = np.sort(rows[mine, feature])
        at = len(values) // 2 if rng.random() < 0.5 else int(rng.integers(1, len(values)))
        threshold = float((values[at - 1] + values[at]) / np.float32(2))
        goes = rows[mine, feature] <= np.float32(threshold)
        for part in (mine[goes], mine[~goes]):
            heapq.heappush(heap, (-len(part), len(nodes), part, level + 1))
            nodes.append(None)
        nodes[node] = (feature, threshold, len(nodes) - 2, len(nodes) - 1)
    return nodes


def make_model(name, batch, path):
    n_trees, n_leaves, depth, classes = ENSEMBLES[name]
    rng = np.random.default_rng(1)
    kind, prefix = ("TreeEnsembleClassifier", "class") if classes else ("TreeEnsembleRegressor", "target")
    a = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")}
    a |= {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(n_trees):
        for number, node in enumerate(grow(rng, n_leaves, depth)):
            feature, threshold, left, right = node or (0, 0.0, 0, 0)
            for key, value in (("treeids", tree), ("nodeids", number), ("featureids", feature), ("values", threshold),
                               ("modes", "BRANCH_LEQ" if node else "LEAF"), ("truenodeids", left), ("falsenodeids", right)):
                a["nodes_" + key].append(value)
            # boosted trees are of a class each, those of forests of all
            for target in [] if node else [tree % classes] if classes == 10 else range(max(classes, 1)):
                for key, value in (("treeids", tree), ("nodeids", number), ("ids", target), ("weights", float(rng.normal()))):
                    a[f"{prefix}_{key}"].append(value)
    a |= {"classlabels_int64s": list(range(classes))} if classes else {"n_targets": 1}
    outputs = [helper.make_tensor_value_info("Label", 7, [batch])] if classes else []
    outputs.append(helper.make_tensor_value_info("Y", 1, [batch, max(classes, 1)]))
    node = helper.make_node(kind, ["X"], [o.name for o in outputs], domain="ai.onnx.ml", **a)
    graph = helper.make_graph([node], name, [helper.make_tensor_value_info("X", 1, [batch, FEATURES])], outputs)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def measure(path, threads, seconds, least, folder, rounds=9):
    """Times in us of both, and the error to ONNX Runtime."""
    module = folder / "model.so"
    start = time.perf_counter()
    compare.compile_module(path, threads, [], module)
    compiled = time.perf_counter() - start
    kiln, session = compare.Kiln(module, threads), compare.ort_session(path, threads)
    rng = np.random.default_rng(0)
    feeds = {p.name.decode(): rng.normal(size=tuple(p.shape[:p.rank])).astype(compare.numpy_dtype(p.dtype.decode()))
             for p in kiln.inputs}
    kiln.bind(feeds)
    error = compare.rel_l2([np.copy(y) for y in kiln.run()], session.run(None, feeds))
    runs = {"kiln": kiln.run, "onnxruntime": lambda: session.run(None, feeds)}
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name] += compare.block(run, seconds / rounds)
            time.sleep(0.05)  # the other's threads spin for a while
    kiln.close()
    us = {f"{name}_us": float(1e3 * (min(t) if least else np.median(t))) for name, t in times.items()}
    return us | {"ratio": us["onnxruntime_us"] / us["kiln_us"], "rel_l2": error, "compile_s": compiled}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=2.0, help="for each of the two")
    parser.add_argument("--least", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=compare.BUILD)
    parser.add_argument("--batch", type=int, action="append")
    parser.add_argument("--only", action="append", metavar="PATTERN")
    parser.add_argument("models", nargs="*", metavar="MODEL.onnx")
    args = parser.parse_args()
    compare.BUILD = args.build.resolve()
    rows = []
    print(f"ONNX Runtime {compare.ort.__version__}, {args.threads} threads; {'least' if args.least else 'median'} times in us")
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        names = [n for n in ENSEMBLES if not args.only or any(fnmatch.fnmatch(n, p) for p in args.only)]
        jobs = [(n, batch) for n in ([] if args.models else names) for batch in args.batch or (1, 1024)]
        for name, batch in jobs + [(m, None) for m in args.models]:
            path = name if batch is None else folder / "model.onnx"
            if batch is not None:
                make_model(name, batch, path)
            row = measure(path, args.threads, args.seconds, args.least, folder)
            rows.append({"model": pathlib.Path(name).stem, "batch": batch} | row)
            print(f"{rows[-1]['model']:22} {batch or '':>6}  Kiln {row['kiln_us']:10.1f}  ONNX Runtime {row['onnxruntime_us']:10.1f}  "
                  f"ratio {row['ratio']:6.2f}  relative L2 {row['rel_l2']:.1e}  compiled in {row['compile_s']:.1f} s", flush=True)
            if args.json:
                args.json.write_text(json.dumps(rows, indent=2) + "\n")
    mean = math.exp(sum(math.log(r["ratio"]) for r in rows) / max(len(rows), 1))
    print(f"geometric mean of {len(rows)} ratios {mean:.2f}, the least {min((r['ratio'] for r in rows), default=0):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
