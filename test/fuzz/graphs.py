#!/usr/bin/env python3
"""Random valid ONNX graphs, compiled in every way and compared with ONNX Runtime and with the interpreter (docs/design/correctness.md).

usage: graphs.py [-n RUNS] [--seconds S] [--seed SEED] [--library FILE] [--options NAME,...] [--device N] [--jobs N] [--emit] [--out DIR]
                 [--graph N] [--sanitizer LIBRARY]
A graph is made of SEED and its number alone. Exit code 1: something was wrong.
"""
import argparse
import collections
import faulthandler
import os
import pathlib
import re
import signal
import sys
import time
import traceback

import numpy as np
import onnx
import onnx.reference
from onnx import helper, numpy_helper

from build import Graph, Value
from evaluate import BF16, BOOL, F16, F32, F64, I8, I32, I64, INTS, U8, UNIT, Reject, is_float, model_of, session_of, value_info
from judge import FEW, HALVES, MANY, MOST, Members, compare
from kiln import NAMES, Worker
from operators import OPERATORS

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZES = (5, 1, 3)  # values of the named dimension; the first is the largest
WAYS = {  # the options of a compilation; of "ranges" the dimension keeps its range
    "default": {}, "threads1": {"threads": 1}, "threads2": {"threads": 2}, "ranges": {"ranges": {"b": (1, SIZES[0])}}, "orchestrate": {"orchestrate": 1},
    "no-winograd": {"no_winograd": 1}, "no-connect": {"no_connect": 1}, "stop0": {"stop_after": "0"}, "stop4": {"stop_after": "4"},
    "tune": {"tune": 2}, "sim": {"target": "sim"},
    "sim-f16": {"target": "sim:cuda:sm_90a", "dtype": "f16"}, "opencl": {"target": "opencl"}, "v3": {"target": "x86-64-v3"},
    "cuda": {"target": "cuda"}, "cuda-f16": {"target": "cuda", "dtype": "f16"}}
ASKED_FOR = ("default", "cuda", "cuda-f16")  # not taken in turn: the first always is, the others need a GPU
HALF_WAYS = ("sim-f16", "cuda-f16")
TEXTS = {"opencl": "opencl", "cuda": "cuda"}  # what a target's kernels are emitted as; elsewhere they are loops
FLAGS = {"threads": "--threads={}", "orchestrate": "--orchestrate", "no_winograd": "--no-winograd", "no_connect": "--no-connect", "tune": "--tune={}",
         "stop_after": "--stop-after={}", "target": "--target={}", "dtype": "--dtype={}", "device": "--device={}"}
OPSETS = [9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]


def random_graph(seed, number, ranges, halves):
    rng = np.random.default_rng([seed, number])
    opset = int(rng.choice(OPSETS[1:] if ranges else OPSETS))
    types = {0: [F32], 1: [F32], 2: [F32], 3: [F32], 4: [F32, F16], 5: [F32, BF16], 6: [F64], 7: [I64, I32, F32], 8: [F16], 9: [F32, U8, I8]}[int(rng.integers(10))]
    if halves:
        types = [F32]
    if rng.random() < 0.15:
        types = types + [(INTS + [BOOL, F64])[int(rng.integers(10))]]
    g = Graph(rng, opset, SIZES if ranges else (None,), special=rng.random() < 0.12 and not halves, types=types)
    g.empties = rng.random() < 0.06 and not ranges
    g.halves = halves
    rows = [r for r in OPERATORS if r[1] <= opset <= r[2]]
    weights = np.array([r[3] for r in rows])
    if rng.random() < 0.5:  # some operators are at home in one graph, so that what follows what varies
        weights = weights * rng.choice([0.1, 1, 5], len(rows))
    wanted, tries = int(rng.integers(5, 41)), 0
    for _ in range(int(rng.integers(1, 4))):
        g.input(g.choice(types), g.shape(least=2) if g.chance(0.5) else [g.integer(1, 2), g.integer(1, 16), g.integer(3, 14), g.integer(3, 14)])
    while sum(s.op != "Constant" for s in g.steps) < wanted and tries < 6 * wanted:
        tries += 1
        add(g, rows[int(rng.choice(len(rows), p=weights / weights.sum()))][4])
    return g


def add(g, function):
    """One operator, or nothing where it is rejected: then all that it made is taken back."""
    mark = len(g.values), len(g.steps), len(g.inputs), len(g.inits), dict(g.opsets)
    uses = [(v, v.uses) for v in g.values]
    try:
        function(g)
    except (Reject, IndexError, ValueError, ZeroDivisionError):
        for v in g.values[mark[0]:]:
            del g.by_name[v.name]
        del g.values[mark[0]:], g.steps[mark[1]:], g.inputs[mark[2]:], g.inits[mark[3]:]
        g.opsets.clear()
        g.opsets.update(mark[4])
        for v, n in uses:
            v.uses = n


class Part:
    """A part of a graph as a model: what leads to |outputs|, without what leads to the values of |cut|, which are inputs."""

    def __init__(self, g, outputs, cut=()):
        self.g, self.outputs, self.cut = g, list(outputs), set(cut)
        makes = {n: s for s in g.steps for n in s.node.output if n}
        wanted, stack, kept = set(), list(self.outputs), set()
        while stack:
            n = stack.pop()
            if n in wanted:
                continue
            wanted.add(n)
            if n in makes and n not in self.cut and id(makes[n]) not in kept:
                kept.add(id(makes[n]))
                stack += makes[n].names()
        self.steps = [s for s in g.steps if id(s) in kept]
        made = {n for s in self.steps for n in s.node.output}
        self.inputs = [v for v in g.values if v.name in wanted and (v in g.inputs or (v.name in self.cut and v.name not in made))]
        self.inits = [v for v in g.inits if v.name in wanted and v not in self.inputs]

    def shape(self, v):
        axis = getattr(v, "axis", None)
        return ["b" if k == axis else e for k, e in enumerate(v.shape)]

    def out_shape(self, v):
        return [e if len({a.shape[k] for a in v.arrays}) == 1 else None for k, e in enumerate(v.shape)]

    def model(self, infos=False):
        g = self.g
        outs = [g.by_name[n] for n in self.outputs]
        made = [g.by_name[n] for s in self.steps for n in s.node.output if n and n not in self.outputs] if infos else []
        return model_of([s.node for s in self.steps], [value_info(v.name, v.dtype, self.shape(v)) for v in self.inputs],
                        [value_info(v.name, v.dtype, self.out_shape(v)) for v in outs], g.opsets,
                        [numpy_helper.from_array(v.array, v.name) for v in self.inits], [value_info(v.name, v.dtype, self.out_shape(v)) for v in made])

    def feeds(self):
        return [{v.name: v.arrays[k] for v in self.inputs} for k in range(len(self.g.sizes))]


class Fault:
    def __init__(self, kind, text, log=""):
        self.kind, self.text, self.log = kind, text, log  # wrong, interpreter, crash, hang, internal, differs, device


def refusal(result):
    """A refusal's reason, without places and numbers."""
    text = result["messages"][0] if result["messages"] else "no message"
    text = re.sub(r"^[^:]*model\.onnx: ?", "", text)
    text = re.sub(r"\b[a-z]\d+\b", "V", text)
    return re.sub(r"-?\d+", "N", text)


INTERNAL = ["damaged", "a tensor must be computed before", "a buffer must not exceed", "extents must not be negative", "internal"]


class Fuzzer:
    def __init__(self, a):
        is_on_gpu = a.device is not None or "cuda" in a.options or "opencl" in a.options
        self.a, self.worker = a, Worker(a.built, a.sanitizer, is_limited=not is_on_gpu, most_jobs=a.jobs)
        self.count, self.refused = collections.Counter(), collections.Counter()
        self.operators, self.open = collections.Counter(), [0, 0]
        self.seconds = 0.0

    def options_of(self, way):
        """The way's options, with the device for those that run on one."""
        options = dict(WAYS[way])
        if self.a.device is not None and options.get("target") in TEXTS:
            options["device"] = self.a.device
        return options

    def verdict(self, part, way, seed):
        """What is wrong with a part compiled that way; None: nothing, or it was refused."""
        feeds = part.feeds()
        options = self.options_of(way)
        if part.g.sizes[0] is not None and way != "ranges":
            options["dims"] = {"b": SIZES[0]}
            feeds = feeds[:1]
        job = {"model": part.model().SerializeToString(), "options": options}
        if self.a.emit:
            target = options.get("target", "").removeprefix("sim:").split(":")[0]
            job["emit"] = TEXTS.get(target, "loop")
            if target == "cuda":
                job["options"]["target"] = "cuda:sm_90a"
        else:
            job |= {"inputs": feeds, "reference": way in ("default", "threads1") and part.g.sizes[0] is None}
        result = self.worker.run(job)
        self.count[f"{way} {result['status']}"] += 1
        self.seconds += result.get("seconds", 0)
        status = result["status"]
        text = "; ".join(result.get("messages", []))
        if status in ("CRASH", "HANG"):
            return Fault(status.lower(), f"{result['step']}: {text}", result.get("log", ""))
        if status == "DIFFERS":
            return Fault("differs", text)
        if status in ("INTERNAL", "NO_BUDGET") or status != "OK" and any(w in text for w in INTERNAL):
            return Fault("internal", f"{result['step']}: {text}")
        if status == "DEVICE_ERROR" and self.count[f"{way} OK"]:  # a device that was there before
            return Fault("device", f"{result['step']}: {text}")
        if status != "OK":
            self.refused[f"{way}: {result['step']}: {status}: {refusal(result)}"] += 1
            return None
        return None if self.a.emit else self.judge(part, way, result, seed)

    def judge(self, part, way, result, seed):
        units, map_steps = HALVES if way in HALF_WAYS else UNIT, 6 if way == "opencl" else 3  # OpenCL's own functions are less exact
        for kind, runs in (("wrong", result["outputs"]), ("interpreter", result.get("reference", []))):
            for variant, outputs in enumerate(runs):
                fault = self.judge_run(part, variant, outputs, units, map_steps, seed, kind)
                if fault:
                    return fault
        return None

    def judge_run(self, part, variant, outputs, units, map_steps, seed, kind):
        few = Members(part.g, variant, FEW, seed, units, part.cut, part.steps, map_steps)
        suspects = []
        for name, got in outputs.items():
            v = compare(got, few.at[name])
            self.open[0] += v.open
            self.open[1] += v.of
            if v.why:
                suspects.append(name)
        if not suspects:
            return None
        seconds = {name: self.second(Part(part.g, [name], part.cut), variant) for name in suspects}
        for k, n in enumerate((MANY, MOST)):
            more = Members(part.g, variant, n, seed + 1 + k, units, part.cut, part.steps, map_steps)
            found = {name: compare(outputs[name], more.at[name], seconds[name]) for name in suspects}
            suspects = [name for name in suspects if found[name].why]
            wrong = [name for name in suspects if n == MOST or not found[name].is_rare]
            if wrong:
                return Fault(kind, f"{wrong[0]}: {found[wrong[0]].why}")
            if not suspects:
                break
        self.count["settled by the second judge or more members"] += 1
        return None

    def second(self, part, variant):
        """The part's only output as the reference evaluator of the onnx package has it; None where it has none."""
        try:
            with np.errstate(all="ignore"):
                return np.asarray(onnx.reference.ReferenceEvaluator(part.model()).run(None, part.feeds()[variant])[0])
        except Exception:  # whatever it raises: it is no judge then
            return None

    def reduce(self, part, way, fault, seed):
        """The smallest part found that has a fault of the same kind in the same way."""
        def fails(p):
            if not p.steps:
                return None
            f = self.verdict(p, way, seed)
            return f if f and f.kind == fault.kind else None
        best = part
        for name in part.outputs:
            f = fails(Part(part.g, [name])) if len(part.outputs) > 1 else None
            if f:
                best, fault = Part(part.g, [name]), f
                break
        changed, tries, most = True, 0, 10 if fault.kind == "hang" else 250
        while changed and tries < most:
            changed = False
            for step in list(reversed(best.steps)):
                for trial in self.smaller(best, step):
                    tries += 1
                    f = fails(trial) if len(trial.steps) < len(best.steps) else None
                    if f:
                        best, fault, changed = trial, f, True
                        break
                if changed:
                    break
        return best, fault

    @staticmethod
    def smaller(part, step):
        outs = [n for n in step.node.output if n]
        if step.op == "Constant":
            return
        if outs[0] not in part.outputs:
            yield Part(part.g, part.outputs, part.cut | set(outs))
            yield Part(part.g, [outs[0]], part.cut)
        elif len(part.outputs) > 1:
            yield Part(part.g, [n for n in part.outputs if n not in outs], part.cut)

    def write(self, part, way, fault, seed, number):
        folder = pathlib.Path(self.a.out) / f"{fault.kind}-{way}-{seed}-{number}"
        data = folder / "test_data_set_0"
        data.mkdir(parents=True, exist_ok=True)
        onnx.save(part.model(), folder / "model.onnx")
        for k, v in enumerate(part.inputs):
            (data / f"input_{k}.pb").write_bytes(numpy_helper.from_array(v.array, v.name).SerializeToString())
        for k, n in enumerate(part.outputs):
            (data / f"output_{k}.pb").write_bytes(numpy_helper.from_array(part.g.by_name[n].array, n).SerializeToString())
        flags = [FLAGS[k].format(v) for k, v in self.options_of(way).items() if k in FLAGS]
        if part.g.sizes[0] is not None:
            flags += [f"--dim=b=1..{SIZES[0]}" if way == "ranges" else f"--dim=b={SIZES[0]}"]
        (folder / "command").write_text(f"kiln test {' '.join(flags)} {folder.name}\n# graphs.py --seed {seed} --graph {number} --options {way}\n"
                                        f"# {fault.kind}: {fault.text}\n{fault.log}")
        return folder

    def one(self, seed, number, ways):
        g = random_graph(seed, number, "ranges" in ways, any(w in HALF_WAYS for w in ways))
        outputs = [v.name for v in g.values if v.kind == "node" and (not v.uses or g.chance(0.05))]
        part = Part(g, outputs[-12:])
        if not part.steps:
            return
        self.operators.update(s.op for s in part.steps)
        for way in ways:
            fault = self.verdict(part, way, number)
            if not fault:
                continue
            small, fault = self.reduce(part, way, fault, number)
            folder = self.write(small, way, fault, seed, number)
            self.count[f"FAULT {way} {fault.kind}"] += 1
            print(f"{seed}:{number} {way}: {fault.kind}: {' '.join(s.op for s in small.steps)}: {fault.text[:300]}\n    {folder}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--runs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no graph is begun after as many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", dest="built", default=str(ROOT / "build" / "libkiln.so"))
    parser.add_argument("--options", default="", help="ways that every graph is compiled in; else default and one other in turn")
    parser.add_argument("--device", type=int, help="the number of the GPU, or of OpenCL's device, as of kiln run")
    parser.add_argument("--jobs", type=int, default=Worker.MOST_JOBS, help="compilations after which Kiln's process is started anew")
    parser.add_argument("--emit", action="store_true", help="only schedule the graphs and emit their kernels: crashes, hangs and internal errors are found in many times as many")
    parser.add_argument("--out", default=str(ROOT / "build" / "fuzz"))
    parser.add_argument("--graph", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--sanitizer")
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    faulthandler.enable()  # a judge's library that aborts says whose call it was
    f, began, end = Fuzzer(a), time.process_time(), time.monotonic() + a.seconds
    others = [w for w in WAYS if w not in ASKED_FOR]
    numbers = [a.graph] if a.graph is not None else range(a.first, a.first + a.runs)
    done = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number in numbers:
            if time.monotonic() > end:
                break
            ways = a.options.split(",") if a.options else ["default", others[number % len(others)]]
            try:
                f.one(a.seed, number, ways)
            except Exception:  # of the fuzzer itself: it is told, and counts as a fault, but the others are made
                print(f"{a.seed}:{number}: {traceback.format_exc()}", flush=True)
                f.count["FAULT of the fuzzer itself"] += 1
            if a.verbose or number % 200 == 199:
                print(f"... {number + 1}: {sum(v for k, v in f.count.items() if k.startswith('FAULT'))} faults; "
                      + ", ".join(f"{k} {n}" for k, n in sorted(f.count.items())), flush=True)  # is there if the process is not, in the end
            done += 1
    except KeyboardInterrupt:  # or SIGTERM: what was done until then is reported
        pass
    print(f"seed {a.seed}: {done} graphs, {len(f.operators)} operators, {100 * f.open[0] / max(f.open[1], 1):.2f} % of elements left open by rounding; "
          f"{time.process_time() - began:.1f} s for graphs and verdicts, {f.seconds:.1f} s for Kiln")
    for k, n in sorted(f.count.items()):
        print(f"{n:6} {k}")
    for k, n in f.refused.most_common():
        print(f"{n:6} refused: {k[:260]}")
    if a.verbose:
        print(dict(f.operators))
    f.worker.stop()
    return any(k.startswith("FAULT") for k in f.count)


if __name__ == "__main__":
    sys.exit(main())
