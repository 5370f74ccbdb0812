#!/usr/bin/env python3
"""Runs the tests of what changed since main, the nearest ones first, for a minute at most.

usage: quick.py BUILD_DIR [BASE] [--seconds S] [--list]

What changed is what differs from where this branch left BASE (main), and files that git does not know yet. A unit test is one of
it if its program links an object that is made of a changed file; the fewer steps from symbol to definition lie between, the
nearer it is. A test that runs the command or a script is one if that is made of what changed, names it or a folder of it, or
imports what does. --list prints them and runs none. Of cases that are alike one in 24 runs (KILN_TEST_SHARE), and what tests
took is kept in BUILD_DIR/quick.json, so that the next time those are chosen that fit.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

import build_graph
from build_graph import ROOT, output_of

GUESS = {"unit": 5, "other": 15}  # seconds of a test that has not run yet in this build
MOST = 1 / 3  # of the time may be one test's


def changed_files(base):
    begin = output_of("git", "merge-base", base, "HEAD").strip()
    names = output_of("git", "diff", "--name-only", begin).split("\n") + output_of("git", "ls-files", "-o", "--exclude-standard").split("\n")
    return sorted({n for n in names if n})


def script_files(test):
    """Scripts that the test names and the Python files of the same folders that these import."""
    found, waiting = set(), [f for f in test.files if f.endswith((".py", ".sh"))]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r"^\s*(?:import|from) ([\w.]+)", pathlib.Path(path).read_text(), re.M):
            for folder in (os.path.dirname(path), ROOT / "test"):
                other = os.path.join(folder, name.replace(".", "/") + ".py")
                if os.path.isfile(other):
                    waiting.append(other)
    return found


def names_one(text, files):
    """Whether |text| has the path of one of |files| (relative to the root), its name or a folder of it, as a word; a word of the
    folders where scripts themselves lie says nothing."""
    words = set(re.findall(r"[\w.-]+(?:/[\w.-]+)*", text)) - {"test", "tools", "src"}
    for name in files:
        parts = name.split("/")
        if parts[-1] in words or any("/".join(parts[:k]) in words for k in range(1, len(parts) + 1)):
            return True
    return False


def is_affected(graph, test, made, unmade):
    """|made|: everything made of what changed; |unmade|: changed files that nothing is made of. What is named source_ reads all sources."""
    if test.name.startswith("source_"):
        return any(f.endswith((".c", ".h", ".def")) for f in made)
    needed, waiting = set(), list(test.files)
    while waiting:  # what the programs load
        f = waiting.pop()
        if f not in needed:
            needed.add(f)
            waiting.extend(graph.needed_to_run[f])
    scripts = script_files(test)
    return bool((needed | scripts) & made) or any(names_one(pathlib.Path(s).read_text(), unmade) for s in scripts)


def choose(graph, changed):
    """Tests of what changed, the nearest first: [(why, test)]."""
    files = [str(ROOT / name) for name in changed]
    made = graph.all_made_of(files)
    unmade = [name for name, f in zip(changed, files) if f not in graph.made_of]
    chosen = [(f"{steps} steps away", t) for steps, t in graph.unit_tests_near(graph.objects_of(files))]
    units = {t.name for _, t in chosen}
    others = [t for t in graph.tests if t.name not in units and "long" not in t.labels and is_affected(graph, t, made, unmade)]
    others.sort(key=lambda t: (not t.name.startswith("source_"), graph.costs.get(t.name, GUESS["other"])))
    chosen = [c for c in chosen if "long" not in c[1].labels]
    return chosen + [("through the command or a script", t) for t in others]


def cost(graph, test):
    return graph.costs.get(test.name, GUESS["unit" if graph.program_of(test) else "other"])


def fill(graph, chosen, seconds, workers):
    """What fits into the time, the nearest first, and what does not."""
    taken, left, room = [], [], 0.8 * seconds * workers
    for c in chosen:
        fits = cost(graph, c[1]) <= min(room, MOST * seconds)
        (taken if fits else left).append(c)
        room -= cost(graph, c[1]) if fits else 0
    return taken, left


def build(graph, tests):
    """The programs of the tests, and the command where one runs it."""
    made = set(graph.inputs) | set(graph.needed_to_run)
    root = str(graph.build) + os.sep
    targets = {os.path.relpath(f, root) for t in tests for f in t.files & made if f.startswith(root)}
    return not targets or subprocess.run(["ninja", "-C", str(graph.build), *sorted(targets)]).returncode == 0


def run_all(graph, tests, seconds, workers):
    end = time.monotonic() + seconds

    def run(test):
        left = end - time.monotonic()
        begin = time.monotonic()
        result, text = test.run(min(left, MOST * seconds)) if left > 0.5 else ("not begun", "")
        return test, result, text, time.monotonic() - begin

    counts, costs = {}, {}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for test, result, text, took in pool.map(run, tests):
            counts[result] = counts.get(result, 0) + 1
            if result in ("passed", "out of time"):
                costs[test.name] = took if result == "passed" else max(took, cost(graph, test), seconds)
            print(f"{result:12} {took:6.1f} s  {test.name}", flush=True)
            if result == "failed":
                print(text)
    graph.keep_quick_costs(costs)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("base", nargs="?", default="main")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--list", action="store_true")
    o = parser.parse_args()
    if not (pathlib.Path(o.build) / ".ninja_deps").exists():
        return print(f"quick: error: {o.build}: must be a build, got none: run make first") or 1
    subprocess.run(["ninja", "-C", o.build, "build.ninja"], stdout=subprocess.DEVNULL, check=True)  # new files
    changed = changed_files(o.base)
    graph, workers = build_graph.read_graph(o.build), os.cpu_count() or 1
    taken, left = fill(graph, choose(graph, changed), o.seconds, workers)
    print(f"quick: {len(changed)} files changed since {o.base}; {len(taken) + len(left)} tests are of them, {len(taken)} fit "
          f"into {o.seconds:.0f} s; make test runs all")
    for why, test in taken if o.list else []:
        print(f"  {test.name} ({why}, {cost(graph, test):.1f} s)")
    if o.list:
        return 0
    if not build(graph, [t for _, t in taken]):
        return 1
    os.environ.setdefault("KILN_TEST_SHARE", "24")
    counts = run_all(graph, [t for _, t in taken], o.seconds, workers)
    print("quick: " + (", ".join(f"{n} {result}" for result, n in sorted(counts.items())) or "nothing to run"))
    return 1 if counts.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
