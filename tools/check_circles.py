#!/usr/bin/env python3
"""Checks that units do not call each other in circles: a unit, which is a .c file, needs another one where its code uses
a function that the other defines, and a circle is a strongly connected component of that graph.

usage: check_circles.py BUILD_DIR [--most N]    prints each circle; exit 1 if there are more than N (0) of them

Read from the objects of a build. A function that is called through a row of a table (a pass, a rule, an operator, a
target) is called back: such circles are what the tables are for, and --tables counts them, too.
"""
import argparse
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def objects(build):
    """The sources of the compiler and their newest objects: libraries that share sources compile them twice."""
    found = {}
    for path in sorted(build.glob("CMakeFiles/kiln_*.dir/**/*.o"), key=lambda p: p.stat().st_mtime):
        source = str(path).split(".dir/", 1)[1].removesuffix(".o")
        if source.startswith(("src/", "ops/")) and not (ROOT / source).exists():
            continue  # it was moved since
        if source.startswith(("src/", "ops/", "ops_table_made", "backends_made")):
            found[source] = path
    return found


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(found, with_tables):
    """The source that defines each function, or also each table; and by source the symbols that its code uses, or its
    tables as well."""
    source_of = {str(path): source for source, path in found.items()}
    defined, used = {}, {source: set() for source in found}
    for line in run("nm", "-A", "--extern-only", "--defined-only", *source_of).splitlines():
        path, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        if kind == "T" or with_tables:
            defined[name] = source_of[path]
    source = section = None
    for line in run("readelf", "--relocs", "--wide", *source_of).splitlines():
        words = line.split()
        if line.startswith("File: "):
            source = source_of[line.removeprefix("File: ")]
        elif line.startswith("Relocation section"):
            section = words[2].strip("'").removeprefix(".rela")
        elif len(words) >= 5 and section and (section.startswith(".text") or with_tables):
            used[source].add(words[4])
    return defined, used


def edges(defined, used):
    """needs[a][b]: the symbols of |b| that |a| uses."""
    needs = {}
    for source, names in used.items():
        needs[source] = {}
        for name in names:
            other = defined.get(name, source)
            if other != source:
                needs[source].setdefault(other, []).append(name)
    return needs


def circles(needs):
    """Strongly connected components of more than one unit, by Tarjan's algorithm without recursion."""
    number, low, stack, result = {}, {}, [], []
    for root in sorted(needs):
        work = [] if root in number else [(root, iter(sorted(needs[root])))]
        if work:
            number[root] = low[root] = len(number)
            stack.append(root)
        while work:
            unit, rest = work[-1]
            for other in rest:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    work.append((other, iter(sorted(needs[other]))))
                    break
                if other in stack:
                    low[unit] = min(low[unit], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == number[unit]:
                    at = stack.index(unit)
                    if len(stack) - at > 1:
                        result.append(sorted(stack[at:]))
                    del stack[at:]
    return sorted(result)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build", type=pathlib.Path)
    options.add_argument("--most", type=int, default=0)
    options.add_argument("--why", action="store_true", help="the symbols, too")
    options.add_argument("--tables", action="store_true", help="rows of tables call, too")
    asked = options.parse_args()
    needs = edges(*symbols(objects(asked.build), asked.tables))
    found = circles(needs)
    for circle in found:
        print(" ".join(circle))
        for unit in circle if asked.why else ():
            for other in circle:
                if other in needs[unit]:
                    print(f"    {unit} -> {other}: {' '.join(sorted(needs[unit][other]))}")
    print(f"circles: {len(found)} among {len(needs)} units, at most {asked.most} may be")
    return len(found) > asked.most


if __name__ == "__main__":
    sys.exit(main())
