#!/usr/bin/env python3
"""How many registers a vector of a map takes at once: speed and time to compile by what the map reads.

usage: bench/vectors.py [--target T] [--build DIR] [--lanes N]

Sums, chains of arithmetic and Gelus of 1 to 32 inputs are compiled by a script that takes 4, 3, 2 or 1 registers of N lanes
(16) at once, and timed in turns on one thread, least times. Prints the speed of each relative to 4 registers, and the
processor time that compiling took. kiln_lowering_most_vectors (src/template/cpu) was fitted to it.
"""
import argparse
import pathlib
import random
import re
import resource
import subprocess
import tempfile
import time

import kiln_rt
import numpy as np
import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
INPUTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
SHAPES = ((4, 512), (32, 1024))  # in the L1, in the L2
REGISTERS = (4, 3, 2, 1)
ROUNDS, BLOCK_SECONDS = 25, 0.004


def nodes_of(kind, inputs):
    if kind == "sum":
        return [helper.make_node("Sum", inputs, ["y"])]
    if kind == "gelu":
        return [helper.make_node("Sum", inputs, ["s"]), helper.make_node("Erf", ["s"], ["e"]),
                helper.make_node("Mul", ["e", inputs[0]], ["y"])]
    r, last, nodes = random.Random(3), inputs[0], []
    for i, name in enumerate(inputs[1:]):
        nodes.append(helper.make_node(r.choice(["Add", "Mul", "Sub", "Max", "Min"]), [last, name], [f"t{i}"]))
        last = f"t{i}"
    return [*nodes, helper.make_node("Mul", [last, inputs[0]], ["y"])]


def model(kind, n, shape):
    inputs = [f"x{i}" for i in range(n)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (*inputs, "y")]
    graph = helper.make_graph(nodes_of(kind, inputs), "g", values[:-1], values[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(args, path, lanes, scratch):
    """The module whose map takes |lanes| elements at a time, and the seconds that compiling took."""
    command = [args.build / "kiln", "compile", path, "--no-cache", "--threads", "1", *(["--target", args.target] if args.target else [])]
    module, script = scratch / f"{lanes}.so", scratch / "script"
    own = subprocess.run([*command, "-o", module, "--dump=schedule"], check=True, capture_output=True, text=True).stdout
    kernel = re.search(r"kernel \S+", own).group()
    script.write_text(f"{kernel}\nsplit y.i0 {lanes} shift y.o y.i\nvectorize y.i\n")
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([*command, "-o", module, "--schedule", script], check=True, capture_output=True)
    return module, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def tensor(array):
    return kiln_rt.dl_tensor(array.ctypes.data, (1, 0), array.shape, 2, 32)


def session_of(args, module, given, result):
    session = kiln_rt.Session(args.build, module, threads=1)
    session.outputs = result
    session.bind_tensors([tensor(a) for a in given], [tensor(result)], given, result)
    return session


def least_times(sessions):
    start = time.perf_counter()
    for _ in range(20):
        next(iter(sessions.values())).run()
    repeats = max(5, int(BLOCK_SECONDS * 20 / (time.perf_counter() - start)))
    least = dict.fromkeys(sessions, float("inf"))
    for _ in range(ROUNDS):
        for n, session in sessions.items():
            start = time.perf_counter()
            for _ in range(repeats):
                session.run()
            least[n] = min(least[n], time.perf_counter() - start)
    return least


def row(args, kind, n, shape, scratch):
    path = scratch / "m.onnx"
    onnx.save(model(kind, n, shape), path)
    rng = np.random.default_rng(1)
    given, result = [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(n)], np.zeros(shape, np.float32)
    made = {k: compiled(args, path, k * args.lanes, scratch) for k in REGISTERS}
    sessions = {k: session_of(args, module, given, result) for k, (module, _) in made.items()}
    least = least_times(sessions)
    for session in sessions.values():
        session.close()
    speeds = " ".join(f"{least[REGISTERS[0]] / least[k]:6.2f}" for k in REGISTERS)
    print(f"{kind:5} {n:3} {'x'.join(map(str, shape)):>8}  {speeds}   {' '.join(f'{s:6.2f}' for _, s in made.values())}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--lanes", type=int, default=16)
    args = parser.parse_args()
    args.build = args.build.resolve()
    heads = " ".join(f"{k:6}" for k in REGISTERS)
    print(f"map   reads  shape   speed by registers at once     seconds to compile\n{'':21}{heads}   {heads}")
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("sum", "mix", "gelu"):
            for shape in SHAPES:
                for n in INPUTS:
                    row(args, kind, n, shape, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
