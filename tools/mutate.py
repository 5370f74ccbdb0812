#!/usr/bin/env python3
"""Changes one operator or constant of a source file at a time and runs the tests that own the file: what no test notices survives.

usage: mutate.py FILE [--build DIR] [--lines A-B] [--count N] [--seed S] [--tests NAME,...] [--most-tests N]

Of all changes N (20) are tried, drawn by the seed S (1). The tests that own the file are those of tools/quick.py that are nearest
to it, N (6) at most, if --tests does not name them. Each change rebuilds their programs alone. The file is put back after each,
also when the run is interrupted. Prints a table of the survivors.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

import build_graph
from build_graph import ROOT

# Binary operators have blanks around them in the house's format, pointers and signs have not.
OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
             "*": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+=", "*=": "+=", "|=": "&=", "&=": "|=",
             "&": "|", "|": "&", "^": "|"}
BINARY = re.compile(r"(?<=[\w)\]] )(?:" + "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True)) + r")(?= [\w(!~&*\"'-])")
NUMBER = re.compile(r"(?<![\w.])(?:0x[0-9a-fA-F]+|\d+)(?![\w.])")
WORD = re.compile(r"\b(?:true|false)\b")
NOT = re.compile(r"(?<![\w)])!(?=[\w(])")
HIDDEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*", re.S | re.M)


def changes_of(text):
    """[(offset, what stands there, what is put there)], in the order of the text; not in comments, strings and directives."""
    code = HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    found = [(m.start(), m.group(), OPERATORS[m.group()]) for m in BINARY.finditer(code)]
    for m in NUMBER.finditer(code):
        value = int(m.group(), 0)
        found.append((m.start(), m.group(), "0" if value == 1 else str(value + 1)))
    found += [(m.start(), m.group(), "false" if m.group() == "true" else "true") for m in WORD.finditer(code)]
    found += [(m.start(), "!", "") for m in NOT.finditer(code)]
    return sorted(found)


def self_test():
    """Changes are found where they are, and nowhere else."""
    text = '#if A < 1\nint f(int *p) { // a < b\n  return *p < 10 && !g("x == 1", -p[1]) ? a - 0x1f : p->q << 2;\n}\n'
    found = [(text[at:at + len(old)], old, new) for at, old, new in changes_of(text)]
    assert all(there == old for there, old, _ in found), found
    want = ["<", "10", "&&", "!", "1", "-", "0x1f", "<<", "2"]
    assert [old for _, old, _ in found] == want, found


def owners(graph, path, names, most):
    """The tests whose programs are run, the quicker ones first."""
    near = graph.unit_tests_near(graph.objects_of([str(path)]))
    if names:
        return [t for t in graph.tests if t.name in names]
    return sorted((t for _, t in near[:most]), key=lambda t: graph.costs.get(t.name, 1))


def build(graph, tests):
    """Whether the tests' programs could be built."""
    targets = [os.path.relpath(graph.program_of(t) or t.command[0], graph.build) for t in tests]
    return subprocess.run(["ninja", "-C", str(graph.build), *targets], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def try_tests(tests, limits):
    """The name of the first test that fails, or that takes far longer than it did; None: all pass."""
    for test in tests:
        result, _ = test.run(limits[test.name])
        if result not in ("passed", "skipped"):
            return f"{test.name}{' (out of time)' if result == 'out of time' else ''}"
    return None


def measure(tests):
    """How long each may take: ten times what it takes now, and half a minute."""
    limits = {}
    for test in tests:
        begin = time.monotonic()
        result, text = test.run(3600)
        if result != "passed":
            sys.exit(f"mutate: error: {test.name}: must pass as the file is, {result}: {text[-500:]}")
        limits[test.name] = 10 * (time.monotonic() - begin) + 30
    return limits


def outcome(graph, path, text, change, tests, limits):
    at, old, new = change
    path.write_text(text[:at] + new + text[at + len(old):])
    return (try_tests(tests, limits) or "survived") if build(graph, tests) else "not compiled"


def described(text, change):
    at, old, new = change
    begin, line = text.rfind("\n", 0, at) + 1, text.count("\n", 0, at) + 1
    source = text[begin:text.find("\n", at)].strip()
    return line, at - begin + 1, f"{old} -> {new or '(nothing)'}", source


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--build", default="build")
    parser.add_argument("--lines", default="1-")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", default="")
    parser.add_argument("--most-tests", type=int, default=6)
    o = parser.parse_args()
    self_test()
    path = pathlib.Path(o.file).resolve()
    text = path.read_text()
    first, _, last = o.lines.partition("-")
    lines = range(int(first), int(last or 10**9) + 1)
    changes = [c for c in changes_of(text) if described(text, c)[0] in lines]
    drawn = sorted(random.Random(o.seed).sample(changes, min(o.count, len(changes))))
    graph = build_graph.read_graph(o.build)
    tests = owners(graph, path, set(filter(None, o.tests.split(","))), o.most_tests)
    if not tests:
        sys.exit(f"mutate: error: {o.file}: must be linked by a test, or --tests name one")
    print(f"mutate: {len(drawn)} of {len(changes)} changes in {path.relative_to(ROOT)}; tests: {', '.join(t.name for t in tests)}")
    if not build(graph, tests):
        sys.exit("mutate: error: the tests must build as the file is")
    limits, results = measure(tests), []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for change in drawn:
            results.append((outcome(graph, path, text, change, tests, limits), change))
            line, column, what, _ = described(text, change)
            print(f"{line:5}:{column:<3} {what:16} {results[-1][0]}", flush=True)
    finally:
        path.write_text(text)
        build(graph, tests)
    survivors = [c for result, c in results if result == "survived"]
    compiled = sum(result != "not compiled" for result, _ in results)
    print(f"\n{len(survivors)} of {compiled} changes survived ({len(results) - compiled} did not compile)\n")
    for change in survivors:
        line, column, what, source = described(text, change)
        print(f"| {path.relative_to(ROOT)}:{line}:{column} | {what} | {source[:70]} |".replace("||", "&#124;&#124;"))


if __name__ == "__main__":
    main()
