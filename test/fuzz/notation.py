#!/usr/bin/env python3
"""Random definitions of the notation under random schedules and polyhedral ones, on several targets, compared with the interpreter
(docs/design/correctness.md).

usage: notation.py [-n RUNS] [--seconds S] [--seed SEED] [--library FILE] [--out DIR] [--definition N] [--ways WAY,...]
Data are small integers, and what grows is cut off, so that all arithmetic is exact and results are compared to the bit. A script grows
line by line: a line that is refused is left out. Exit code 1: something was wrong.
"""
import argparse
import collections
import ctypes
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

from kiln import DTYPES, Worker

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = ["float", "float", "float", "double", "int32", "int64"]
NUMPY = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}
MOST = 1 << 20  # of a value: sums of products of such stay exact
INDEX = "ijkl"
TAILS = ["guard", "shift", "peel", "round", "exact"]


class Tensor:
    def __init__(self, name, extents, most):
        self.name, self.extents, self.most = name, extents, most  # extents: (text, number)

    rank = property(lambda self: len(self.extents))

    def at(self, *indices):
        return f"{self.name}({', '.join(indices)})" if indices else self.name


class Definition:
    def __init__(self, rng):
        self.rng, self.type = rng, str(rng.choice(TYPES))
        self.sizes, self.params, self.made, self.lines = {}, [], [], []
        self.written, self.data = set(), {}
        for _ in range(int(rng.integers(1, 4))):
            self.size()
        self.param([self.some_extent() for _ in range(int(rng.integers(1, 4)))])
        for _ in range(int(rng.integers(1, 6))):
            self.statement()
        self.outputs = self.choose_outputs()
        self.sizes = {n: v for n, v in self.sizes.items() if any(n in dims for _, dims, _ in self.params)}

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def chance(self, p):
        return self.rng.random() < p

    def size(self):
        name = "NMKPQ"[len(self.sizes)]
        self.sizes[name] = int(self.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]))
        return name

    def some_extent(self):
        name = self.choice(list(self.sizes))
        return name, self.sizes[name]

    def param(self, extents, type_=None, values=None):
        t = Tensor(f"X{len(self.params)}", extents, 3)
        dims = [text if text in self.sizes else str(n) for text, n in extents]
        self.params.append((type_ or self.type, dims, t))
        shape = [n for _, n in extents]
        self.data[t.name] = (self.rng.integers(-3, 4, shape) if values is None else values).astype(NUMPY[type_ or self.type])
        return t

    def tensor(self, least=0, where=lambda t: True):
        found = [t for _, k, t in self.params if k and t.rank >= least and where(t) and t.name[0] == "X"]
        found += [t for t in self.made if t.rank >= least and where(t)] * 3
        return self.choice(found) if found else self.param([self.some_extent() for _ in range(max(least, 1))])

    def like(self, extents):
        found = [t for t in self.made if t.extents == extents]
        return self.choice(found) if found and self.chance(0.6) else self.param(extents)

    def new(self, extents, most):
        t = Tensor(f"{'TUVWYZ'[len(self.made) % 6]}{len(self.made)}", extents, most)
        return t

    def add(self, t, indices, assign, body, where=""):
        if t.most > MOST:
            assert assign == "="
            body, t.most = f"min(max({body}, -50), 50)", 50
        self.lines.append(f"  {t.at(*indices)} {assign} {body}" + (f" where {where}" if where else ""))
        if t.name not in self.written:
            self.written.add(t.name)
            self.made.append(t)

    def statement(self):
        kinds = [self.map, self.map, self.stencil, self.reduction, self.reduction, self.product, self.product, self.stride, self.spread, self.condition,
                 self.gather, self.convolution, self.reverse, self.update, self.outer, self.transpose]
        self.choice(kinds)()

    def bounded(self, t):
        """|t|, or a copy of it whose values are small."""
        if t.most <= 50:
            return t
        i = INDEX[:t.rank]
        copy = self.new(t.extents, 50)
        self.add(copy, i, "=", f"min(max({t.at(*i)}, -50), 50)")
        return copy

    def map(self):
        a = self.bounded(self.tensor())
        b = self.bounded(self.like(a.extents))
        i = INDEX[:a.rank]
        x, y = a.at(*i), b.at(*i)
        body, most = self.choice([(f"{x} + {y}", a.most + b.most), (f"{x} * {y} - 2", a.most * b.most + 2), (f"max({x}, {y})", max(a.most, b.most)),
                                  (f"{x} > {y} ? {x} : 3 - {y}", a.most + b.most + 3), (f"abs({x}) * 3", 3 * a.most)])
        self.add(self.new(a.extents, most), i, "=", body)

    def transpose(self):
        a = self.tensor(2)
        i = INDEX[:a.rank]
        order = self.rng.permutation(a.rank)
        self.add(self.new([a.extents[k] for k in order], a.most), [i[k] for k in order], "=", a.at(*i))

    def stencil(self):
        a = self.bounded(self.tensor(1, lambda t: t.extents[0][1] > 2))
        if a.extents[0][1] < 3:
            return self.map()
        text, n = a.extents[0]
        i = INDEX[:a.rank]
        terms = [a.at(f"{i[0]} + {k}" if k else i[0], *i[1:]) for k in range(3)]
        t = self.new([(f"{text} - 2", n - 2)] + a.extents[1:], 3 * a.most)
        return self.add(t, i, "=", f"{terms[0]} + {terms[1]} - {terms[2]}", f"{i[0]} in 0:{text} - 2")

    def reduction(self):
        a = self.bounded(self.tensor(1))
        i = INDEX[:a.rank]
        gone = self.choice(i)
        kept = [c for c in i if c != gone]
        n = a.extents[i.index(gone)][1]
        assign = self.choice(["+=!", "max=!", "min=!", "+=!"])
        t = self.new([e for c, e in zip(i, a.extents) if c != gone], a.most * n if assign == "+=!" else a.most)
        if t.most <= MOST and (n > 0):
            self.add(t, kept, assign, a.at(*i))

    def product(self):
        a = self.bounded(self.tensor(1))
        i = INDEX[:a.rank]
        b = self.param([a.extents[-1], self.some_extent()])
        t = self.new(a.extents[:-1] + [b.extents[1]], a.most * b.most * a.extents[-1][1])
        self.add(t, [*i[:-1], "z"], "+=!", f"{a.at(*i)} * {b.at(i[-1], 'z')}")

    def convolution(self):
        a = self.bounded(self.tensor(1, lambda t: t.extents[-1][1] > 3))
        text, n = a.extents[-1]
        if n < 4:
            return self.reverse()
        w = self.param([("3", 3)])
        i = INDEX[:a.rank]
        t = self.new(a.extents[:-1] + [(f"{text} - 2", n - 2)], a.most * 9)
        return self.add(t, i, "+=!", f"{a.at(*i[:-1], i[-1] + ' + w')} * {w.at('w')}", f"{i[-1]} in 0:{text} - 2")

    def stride(self):
        a = self.tensor(1, lambda t: t.extents[0][1] > 1)
        text, n = a.extents[0]
        if n < 2:
            return self.map()
        i = INDEX[:a.rank]
        half = f"({text}) / 2"
        return self.add(self.new([(half, n // 2)] + a.extents[1:], a.most), i, "=", a.at(f"2*{i[0]} + {self.choice([0, 1])}", *i[1:]), f"{i[0]} in 0:{half}")

    def spread(self):
        a = self.bounded(self.tensor(1))
        text, n = a.extents[0]
        i = INDEX[:a.rank]
        t = self.new([(f"2*({text})", 2 * n)] + a.extents[1:], 3 * a.most)
        self.add(t, [f"2*{i[0]}", *i[1:]], "=", a.at(*i))
        self.add(t, [f"2*{i[0]} + 1", *i[1:]], "=", f"{a.at(*i)} * 3")

    def condition(self):
        a = self.bounded(self.tensor(1))
        b = self.bounded(self.like(a.extents))
        i = INDEX[:a.rank]
        self.add(self.new(a.extents, max(a.most, b.most)), i, "=", f"{self.choice(i)} % 3 == 1 || {i[0]} > 4 ? {a.at(*i)} : {b.at(*i)}")

    def gather(self):
        a = self.tensor(1)
        text, n = a.extents[0]
        m = self.some_extent()
        x = self.param([m], "int32", self.rng.integers(-2, n + 2, [m[1]]))
        i = INDEX[:a.rank]
        self.add(self.new([m] + a.extents[1:], a.most), i, "=", a.at(f"min(max({x.at(i[0])}, 0), {text} - 1)", *i[1:]))

    def reverse(self):
        a = self.tensor(1)
        i = INDEX[:a.rank]
        self.add(self.new(a.extents, a.most), i, "=", a.at(f"{a.extents[0][0]} - 1 - {i[0]}", *i[1:]), f"{i[0]} in 0:{a.extents[0][0]}")

    def update(self):
        a = self.bounded(self.tensor(1))
        i = INDEX[:a.rank]
        t = self.new(a.extents, a.most + 7)
        self.add(t, i, "=", a.at(*i))
        self.add(t, ["0", *i[1:]], "=", "7")

    def outer(self):
        a, b = self.bounded(self.tensor(1, lambda t: t.rank < 2)), self.bounded(self.tensor(1, lambda t: t.rank < 2))
        if a.rank > 2 or b.rank > 1:
            return self.map()
        i = INDEX[:a.rank]
        return self.add(self.new(a.extents + b.extents, a.most * b.most), [*i, "z"], "=", f"{a.at(*i)} * {b.at('z')}")

    def choose_outputs(self):
        while not self.made:
            self.statement()
        last = self.made[-1].name
        return [t.name for t in self.made if t.name == last or self.chance(0.15)]

    def text(self):
        used = [(kind, dims, t) for kind, dims, t in self.params]
        params = ", ".join(f"{kind}({', '.join(dims)}) {t.name}" for kind, dims, t in used)
        return f"def f({params}) -> ({', '.join(self.outputs)}) {{\n" + "\n".join(self.lines) + "\n}\n"


# --- scripts

LOOP = re.compile(r"^( *)for (\S+):(\d+)", re.M)
BUFFER = re.compile(r"^  (param|workspace|register|local) \w+ (\S+)\[", re.M)


class Script:
    """Lines that the compiler took, with a hole now and then; |filled| has a choice for each."""

    def __init__(self, rng):
        self.rng, self.lines, self.filled, self.n = rng, [], [], 0

    def choice(self, items):
        return items[int(self.rng.integers(len(items)))]

    def name(self):
        self.n += 1
        return f"L{self.n}"

    def factor(self):
        """(as in the script, as filled)."""
        options = [str(k) for k in sorted({int(k) for k in self.rng.choice([1, 2, 3, 4, 5, 8, 16], 3)})]
        one = self.choice(options)
        return (f"?{{{','.join(options)}}}", one) if self.rng.random() < 0.3 and len(options) > 1 else (one, one)

    def propose(self, loops):
        """A line for the printed |loops|, with its hole and filled."""
        found = [(len(m[1]), m[2], int(m[3])) for m in LOOP.finditer(loops)]
        names, buffers = [n for _, n, _ in found], BUFFER.findall(loops)
        temps, params = [n for kind, n in buffers if kind != "param"] or ["none"], [n for kind, n in buffers if kind == "param"] or ["none"]
        if not names:
            return None
        loop = self.choice(names)
        inner = [n for k, (d, n, _) in enumerate(found) if k + 1 == len(found) or found[k + 1][0] <= d]
        outer = [n for d, n, _ in found if d == 2] or names[:1]
        at = names.index(loop)
        path = [n for d, n, _ in found[at:at + 3]]
        f, g = self.factor(), self.factor()
        forms = [
            ("split {l} {f} {tail} {a} {b}", 5), ("tile {l} {next} {f} {g} {tail} {a} {b} {c} {d}", 3), ("reorder {path}", 4), ("fuse {l} {next} {a}", 2),
            ("vectorize {inner}", 5), ("unroll {l}", 3), ("parallel {outer}", 3), ("merge {outer} {other}", 2), ("peel {l} {f}", 1), ("hoist {l}", 1),
            ("compute_at {temp} {l} {scope}", 4), ("inline {temp}", 2), ("stage {param} {l} {scope} {a} 0", 1), ("stage {param} {l} {scope} {a} 0 1", 1),
            ("stage {param} 0 workspace {a} 1/{f} 0 1%{f}", 1), ("cache_write {any} {a}", 2), ("rfactor {l} {a}", 2), ("decompose_reduction {any} {l}", 1),
            ("pad {l} {f}", 1), ("transform_layout {temp} 1 0", 1), ("storage_align {temp} 0 {f} 1", 1), ("reverse_compute_at {any} {l}", 1),
            ("store_at {temp} {l} fold", 1), ("prefetch {param} {l} {f}", 1), ("tidy", 1)]
        weights = np.array([w for _, w in forms], float)
        form = forms[int(self.rng.choice(len(forms), p=weights / weights.sum()))][0]
        words = {"l": loop, "next": names[min(at + 1, len(names) - 1)], "inner": self.choice(inner), "outer": self.choice(outer), "other": self.choice(outer),
                 "tail": self.choice(TAILS), "a": self.name(), "b": self.name(), "c": self.name(), "d": self.name(),
                 "path": " ".join(path[int(k)] for k in self.rng.permutation(len(path))), "temp": self.choice(temps), "param": self.choice(params),
                 "any": self.choice(temps + params), "scope": self.choice(["local", "local", "register"])}
        return form.format(**words, f=f[0], g=g[0]), form.format(**words, f=f[1], g=g[1])


WAYS = ["cpu", "threads2", "sim", "c", "search"]
# Polyhedral schedules, and Kiln's own, of grids of blocks and threads: in the simulator, which finds races, and compiled.
GRIDS = {"grid": "sim:cuda:sm_80", "opencl": "opencl", "cuda": "cuda"}
SCHEDULERS = [f"{fusion}{more}" for fusion in ("max", "min", "preserve3") for more in ("", "+promote")]


def aligned(extents, dtype):
    """An array with room behind it: a schedule may have its rows lie further apart."""
    n = int(np.prod(extents, dtype=np.int64))
    return np.full(40 * n + 4096, 77, dtype)[:n].reshape(extents)


class Fuzzer:
    def __init__(self, a):
        self.a, self.worker = a, Worker(a.built, a.sanitizer)
        self.count, self.refused = collections.Counter(), collections.Counter()

    def job(self, d, options, **more):
        return self.worker.run({"model": d.text().encode(), "name": "op.tc", "options": dict(options, dims=d.sizes), "inputs": [d.data], **more})

    def script(self, d, rng):
        s, result = Script(rng), self.job(d, {"schedule": ""}, emit="loop")
        if result["status"] != "OK":
            return None, result
        loops = result["text"]
        for _ in range(int(rng.integers(0, 24))):
            line = s.propose(loops)
            if not line:
                continue
            trial = self.job(d, {"schedule": "\n".join(s.filled + [line[1]]) + "\n"}, emit="loop")
            word = line[1].split()[0]
            if trial["status"] == "OK":
                s.lines.append(line[0])
                s.filled.append(line[1])
                loops = trial["text"]
                self.count[f"line {word}"] += 1
            elif trial["status"] in ("BAD_INPUT", "UNSUPPORTED"):
                self.count[f"line {word} refused"] += 1
            else:
                return s, dict(trial, script="\n".join(s.filled + [line[1]]))
        return s, None

    def one(self, seed, number):
        rng = np.random.default_rng([seed, number, 1])
        d = Definition(rng)
        d.number = number
        ways = self.a.ways or ["own", "cpu", WAYS[1 + number % (len(WAYS) - 1)], "grid"]
        needs_script = any(way not in GRIDS and way != "own" for way in ways)
        s, bad = self.script(d, rng) if needs_script else (Script(rng), None)
        if bad:
            if bad["status"] in ("BAD_INPUT", "UNSUPPORTED"):
                self.refused[re.sub(r"-?\d+", "N", "; ".join(bad["messages"]).split("\n")[0])] += 1
                return
            return self.fault(d, bad.get("script", ""), "script", bad, seed, number)
        filled = "\n".join(s.filled) + "\n"
        want = None
        for way in ways:
            result = self.run(d, s, filled, way)
            self.count[f"{way} {result['status']}"] += 1
            if result["status"] in ("BAD_INPUT", "UNSUPPORTED") and (want is not None or not needs_script):
                self.refused[f"{way}: " + re.sub(r"-?\d+", "N", "; ".join(result["messages"])[:160])] += 1
                if want is None:
                    return
                continue
            if result["status"] != "OK":
                self.fault(d, filled, way, result, seed, number)
                continue
            if way == "search":
                wrong = [c for c, refused, right in result["found"] if not refused and not right]
                if wrong:
                    self.fault(d, "\n".join(s.lines) + "\n", way, {"status": "WRONG", "messages": [f"filled with {wrong[0]}"]}, seed, number)
                continue
            want = want or result["reference"][0]
            got = result["outputs"][0]
            if way == "c":  # an output that is equal to another tensor is that one there, and has no name of its own
                self.count["c outputs of another name"] += len(want) - len(got)
            why = self.differs(got, {n: w for n, w in want.items() if n in got or way != "c"})
            if why:
                self.fault(d, "" if way == "own" or way in GRIDS else filled, way, {"status": "WRONG", "messages": [why]}, seed, number)

    def run(self, d, s, filled, way):
        if way == "own":
            return self.job(d, {"threads": 1}, reference=True)
        if way in GRIDS:
            return self.job(d, self.grid(d, way))
        if way == "search":
            return self.job(d, {"schedule": "\n".join(s.lines) + "\n", "threads": 1}, search=(3, 1))
        if way == "c":
            return self.by_c(d, filled)
        return self.job(d, {"schedule": filled, "threads": 2 if way == "threads2" else 1, "target": "sim" if way == "sim" else None})

    @staticmethod
    def grid(d, way):
        return {"target": GRIDS[way], "threads": 1, "scheduler": (SCHEDULERS + ["rules"])[d.number % (len(SCHEDULERS) + 1)]}

    def by_c(self, d, filled):
        """The kernels as C, compiled by the system's compiler and called in order; loops that are parallel have no end here, so they are left out."""
        serial = "".join(l + "\n" for l in filled.splitlines() if not l.startswith("parallel"))
        result = self.job(d, {"schedule": serial, "target": "c", "threads": 1}, emit="c")
        if result["status"] != "OK":
            return result
        with tempfile.TemporaryDirectory() as folder:
            source, library = pathlib.Path(folder, "k.c"), pathlib.Path(folder, "k.so")
            source.write_text(result["text"])
            made = subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-w", "-o", library, source, "-lm"], capture_output=True, text=True)
            if made.returncode:
                return {"status": "CC", "messages": made.stderr.splitlines()[:3]}
            return {"status": "OK", "outputs": [self.call(ctypes.CDLL(str(library)), result["text"], d)]}

    @staticmethod
    def call(library, text, d):
        arrays = {}
        for part in re.split(r"^(?=void kiln_k_)", text, flags=re.M)[1:]:
            name = re.match(r"void (\w+)", part)[1]
            rows = re.findall(r"\*restrict (\w+) = \(.*\)args\[(\d+)\]; // (\w+) \(([\d, ]*)\)", part)
            pointers = (ctypes.c_void_p * (1 + max([int(k) for _, k, _, _ in rows], default=0)))()
            for buffer, k, dtype, shape in rows:
                extents = [int(e) for e in shape.replace(",", " ").split()]
                if buffer not in arrays:
                    arrays[buffer] = d.data[buffer].copy() if buffer in d.data else aligned(extents, DTYPES[dtype])
                pointers[int(k)] = arrays[buffer].ctypes.data
            getattr(library, name)(pointers, ctypes.c_int64(0), ctypes.c_int64(1))
        return {n: arrays[n] for n in d.outputs if n in arrays}

    @staticmethod
    def differs(got, want):
        for name, w in want.items():
            if name not in got:
                return f"{name}: is missing"
            g = got[name]
            if g.size != w.size or not np.array_equal(g.ravel(), w.ravel()):
                at = int(np.argwhere(g.ravel() != w.ravel())[0][0]) if g.size == w.size else -1
                return f"{name}: element {at}: got {g.ravel()[at] if at >= 0 else g.shape}, want {w.ravel()[at] if at >= 0 else w.shape}"
        return ""

    def fault(self, d, script, way, result, seed, number):
        kept = self.reduced(d, script, way, result)
        folder = pathlib.Path(self.a.out) / f"{result['status'].lower()}-{way}-{seed}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "op.tc").write_text(d.text())
        (folder / "op.schedule").write_text(kept)
        np.savez(folder / "inputs.npz", **d.data)
        sizes = " ".join(f"--size {n}={v}" for n, v in d.sizes.items())
        grid = self.grid(d, way) if way in GRIDS else None
        option = f"--target {grid['target']} --scheduler {grid['scheduler']}" if grid else {"threads2": "--threads 2", "sim": "--target sim", "c": "--emit c", "search": "--search 3"}.get(way, "--threads 1")
        script_option = "" if way == "own" or grid else " --schedule op.schedule"
        (folder / "command").write_text(f"kiln tc op.tc {sizes}{script_option} {option} --reference\n# notation.py --seed {seed} --definition {number}\n"
                                        f"# {result['status']}: {'; '.join(result['messages'])}\n{result.get('log', '')}")
        self.count[f"FAULT {way} {result['status']}"] += 1
        print(f"{seed}:{number} {way}: {result['status']}: {'; '.join(result['messages'])[:240]}\n    {folder}", flush=True)

    def reduced(self, d, script, way, result):
        """Lines of the script that the fault does not need go."""
        lines, k = script.splitlines(), 0
        while way in ("cpu", "threads2", "sim", "c") and k < len(lines):
            trial = lines[:k] + lines[k + 1:]
            r = self.run(d, None, "\n".join(trial) + "\n", way)
            if r["status"] == "OK":
                own = self.run(d, None, "", "own")
                got = r["outputs"][0]
                want = {n: w for n, w in own["reference"][0].items() if n in got} if own["status"] == "OK" else {}
                again = "WRONG" if self.differs(got, want) else "OK"
            else:
                again = r["status"]
            if again == result["status"]:
                lines = trial
            else:
                k += 1
        return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", "--runs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no definition is begun after as many seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", dest="built", default=str(ROOT / "build" / "libkiln.so"))
    parser.add_argument("--out", default=str(ROOT / "build" / "fuzz"))
    parser.add_argument("--definition", type=int)
    parser.add_argument("--sanitizer")
    parser.add_argument("--ways", type=lambda text: ["own", *text.split(",")], help=f"of {', '.join(['cpu', *WAYS[1:], *GRIDS])}; else a few in turns")
    a = parser.parse_args()
    f, end = Fuzzer(a), time.monotonic() + a.seconds
    numbers = [a.definition] if a.definition is not None else range(a.runs)
    done = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number in numbers:
            if time.monotonic() > end:
                break
            f.one(a.seed, number)
            if number % 500 == 499:
                print(f"... {number + 1}: {sum(v for k, v in f.count.items() if k.startswith('FAULT'))} faults", flush=True)
            done += 1
    except KeyboardInterrupt:  # or SIGTERM: what was done until then is reported
        pass
    print(f"seed {a.seed}: {done} definitions")
    for k, n in sorted(f.count.items()):
        print(f"{n:6} {k}")
    for k, n in f.refused.most_common(20):
        print(f"{n:6} refused: {k[:240]}")
    f.worker.stop()
    return any(k.startswith("FAULT") for k in f.count)


if __name__ == "__main__":
    sys.exit(main())
