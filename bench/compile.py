#!/usr/bin/env python3
"""Times compiling: cold, again with the cache, and as models get longer.

usage: bench/compile.py [--kiln KILN] [--rounds N] [--threads N] [--target T] [--dtype D] [--layers BERT.onnx] [--json FILE]
                        MODEL.onnx...

Each figure is the least of N fresh processes (`kiln compile -o`, to a temporary file). cold: without a cache; again: what a
second compilation takes with one. The passes are those of the cold one. --layers takes a BERT with weights (its encoder's
layers named /bert/encoder/layer.N or /encoder/layer.N) and cuts it behind 3, 6 and 12 of them; 24 are the 12 twice over.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def passes_of(text):
    rows = re.findall(r"^(\S+)\s+([\d.]+) ms$", text, re.M)
    return {name: float(ms) for name, ms in rows}


def compile_once(args, model, folder, cached):
    environment = dict(os.environ, KILN_CACHE_DIR=str(folder / "cache"))
    command = [args.kiln, "compile", str(model), "-o", str(folder / "m.so"), "--threads", str(args.threads), "--time-passes"]
    command += [f"--{name}={given}" for name in ("target", "dtype") if (given := getattr(args, name))]
    if not cached:
        command.append("--no-cache")
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return passes_of(done.stdout)


def time_model(args, model, folder):
    """The pass times of the fastest cold and of the fastest cached compilation, taken in turns."""
    best = {}
    compile_once(args, model, folder, True)
    for _ in range(args.rounds):
        for cached in (False, True):
            passes = compile_once(args, model, folder, cached)
            if cached not in best or passes["sum"] < best[cached]["sum"]:
                best[cached] = passes
    return best[False], best[True]


def report(name, cold, again):
    passes = "  ".join(f"{k} {v:.0f}" for k, v in cold.items() if k != "sum")
    code = {which: p["sum"] - p.get("weights", 0) for which, p in (("cold", cold), ("again", again))}  # a kept module has no passes
    print(f"{name:24} cold {cold['sum']:8.1f} ms  again {again['sum']:8.1f} ms  but for weights {code['cold']:7.1f} and "
          f"{code['again']:7.1f} ms  ({passes})", flush=True)
    return {"model": name, "cold_ms": cold, "again_ms": again}


def layer_of(node):
    found = re.search(r"/layer\.(\d+)/", node.name)
    return int(found.group(1)) if found else None


def layered(onnx, path, layers, folder):
    """The model with that many layers: the first ones, repeated where there are not enough."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    numbers = [n for n in map(layer_of, graph.node) if n is not None]
    own = max(numbers) + 1
    first = next(i for i, n in enumerate(graph.node) if layer_of(n) == 0)
    last = max(i for i, n in enumerate(graph.node) if layer_of(n) is not None)
    entry = [x for x in graph.node[first].input if x][0]
    blocks = [[n for n in graph.node if layer_of(n) == k] for k in range(own)]
    before, after = list(graph.node[:first]), list(graph.node[last + 1:])
    made = {o: k for k, block in enumerate(blocks) for n in block for o in n.output}
    inside = [{o for n in block for o in n.output} for block in blocks]
    results = {o.name for o in graph.output}
    ends = [sorted({x for n in (blocks[k + 1] if k + 1 < own else after) for x in n.input if made.get(x) == k} |
                   ({x for x in results if made.get(x) == k} if k + 1 == own else set())) for k in range(own)]
    if any(len(e) != 1 for e in ends):
        sys.exit(f"{path}: each layer must give one tensor to the next, got {ends}")
    nodes, carried = before, entry
    for k in range(layers):
        source = blocks[k % own]
        begin = entry if k % own == 0 else ends[k % own - 1][0]
        for n in source:
            copy = onnx.NodeProto()
            copy.CopyFrom(n)
            copy.name = f"{n.name}.{k}"
            copy.input[:] = [carried if x == begin else f"{x}.{k}" if x in inside[k % own] else x for x in n.input]
            copy.output[:] = [f"{x}.{k}" for x in n.output]
            nodes.append(copy)
        carried = f"{ends[k % own][0]}.{k}"
    for n in after:
        n.input[:] = [carried if x == ends[own - 1][0] else x for x in n.input]
    for o in graph.output:
        o.name = carried if o.name == ends[own - 1][0] else o.name
    nodes += after
    del graph.value_info[:]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    used = {x for n in kept for x in n.input}
    weights = [w for w in graph.initializer if w.name in used]
    kept = [onnx.TensorProto.FromString(w.SerializeToString()) for w in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    out = folder / f"layers{layers}.onnx"
    onnx.save(model, out)
    for w in pathlib.Path(path).parent.glob(pathlib.Path(path).stem + ".weights*"):
        if not (folder / w.name).exists():  # a link would lead out of the model's folder
            shutil.copyfile(w, folder / w.name)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kiln", default=str(ROOT / "build" / "kiln"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--target", help="as `kiln compile` takes it: cuda:sm_90a compiles for a GPU that need not be here")
    parser.add_argument("--dtype")
    parser.add_argument("--layers", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("models", type=pathlib.Path, nargs="*")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for model in args.models:
            rows.append(report(model.stem, *time_model(args, model, folder)))
        if args.layers:
            import onnx
            for layers in (3, 6, 12, 24):
                model = layered(onnx, args.layers, layers, folder)
                rows.append(report(f"{args.layers.stem} x{layers}", *time_model(args, model, folder)))
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
