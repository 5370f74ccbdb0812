#!/usr/bin/env python3
"""Runs tests of a build with counters (cmake --preset coverage) and writes which share of lines and branches they run, by folder.

usage: coverage.py BUILD_DIR [-o docs/bench/coverage.md] [-R REGEX] [-E REGEX] [--add] [--report]
                   [--what TEXT]

-R and -E choose the tests, as for ctest; what is labelled long is left out. KILN_TEST_SHARE says how many of cases that are alike
are run. --add keeps what earlier runs have counted, --report runs none; --what says on the page
which tests these were. Needs clang-19 and llvm-19: its counters must be read by its own llvm-cov.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROFDATA, COV = "llvm-profdata-19", "llvm-cov-19"
FOLDERS = ("src", "ops", "tools/kiln")


def run_tests(build, profiles, choice, keeps):
    """What fails is told by ctest, and counts all the same."""
    profiles.mkdir(exist_ok=True)
    for old in [] if keeps else profiles.glob("*.profraw"):
        old.unlink()
    environment = os.environ | {"LLVM_PROFILE_FILE": str(profiles / "%4m.profraw")}  # processes add to four files a program
    subprocess.run(["ctest", "--test-dir", str(build), "-LE", "long", "-j", str(os.cpu_count()), *choice], env=environment)


def merge(profiles):
    merged = profiles / "all.profdata"
    raw = [str(p) for p in profiles.glob("*.profraw")]
    if not raw:
        sys.exit(f"coverage: error: {profiles}: must hold counters of a run, got none")
    subprocess.run([PROFDATA, "merge", "-sparse", "--failure-mode=warn", *raw, "-o", str(merged)], check=True)
    return merged


def counted(build, merged):
    """Figures of each source file, in whichever program it ran: functions are known by their names and forms."""
    objects = [str(build / name) for name in ("libkiln.so", "kiln", "kiln-worker")]
    rest = [word for o in objects[1:] for word in ("-object", o)]
    text = subprocess.run([COV, "export", "-summary-only", f"-instr-profile={merged}", objects[0], *rest], stdout=subprocess.PIPE,
                          text=True, check=True).stdout
    return {os.path.relpath(f["filename"], ROOT): f["summary"] for f in json.loads(text)["data"][0]["files"]}


def by_folder(files):
    """Folder -> [lines, lines run, branches, branches run]; a branch is a condition's way, there are two of each."""
    table = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name, summary in files.items():
        if not name.startswith(tuple(f + "/" for f in FOLDERS)):
            continue
        for key in (os.path.dirname(name), "all"):
            for k, figure in enumerate(("lines", "branches")):
                table[key][2 * k] += summary[figure]["count"]
                table[key][2 * k + 1] += summary[figure]["covered"]
    return table


def share(part, whole):
    return f"{100 * part / whole:.1f} %" if whole else "-"


def page(table, files, what):
    rows = [f"| {'**all**' if name == 'all' else f'`{name}/`'} | {t[0]} | {share(t[1], t[0])} | {t[2]} | {share(t[3], t[2])} |"
            for name, t in sorted(table.items(), key=lambda r: (r[0] == "all", r[0]))]
    least = sorted((s["branches"]["covered"] / s["branches"]["count"], n, s) for n, s in files.items()
                   if s["branches"]["count"] >= 50 and n.startswith(tuple(f + "/" for f in FOLDERS)))[:15]
    low = [f"| `{n}` | {share(s['lines']['covered'], s['lines']['count'])} | {share(b, 1)} |" for b, n, s in least]
    return "\n".join([
        "# Coverage", "",
        "**Measured:** the share of lines and of branches, a condition's outcomes, that tests run, by folder, as llvm-cov counts them",
        f"({datetime.date.today()}): {what}. A line that runs is not yet tested: `tools/mutate.py FILE` tries that.", "",
        "<!-- not run: it builds with counters, and takes an hour -->", "```sh", "make coverage", "```", "",
        "| folder | lines | run | branches | taken |", "|---|---|---|---|---|", *rows, "",
        "The files of 50 branches and more of which the fewest are taken:", "",
        "| file | lines run | branches taken |", "|---|---|---|",
        *low, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build")
    parser.add_argument("-o", default=str(ROOT / "docs/bench/coverage.md"))
    parser.add_argument("-R", default="")
    parser.add_argument("-E", default="")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--what", default="")
    o = parser.parse_args()
    build = pathlib.Path(o.build).resolve()
    profiles = build / "profiles"
    choice = [word for flag in "RE" if getattr(o, flag) for word in (f"-{flag}", getattr(o, flag))]
    if not o.report:
        run_tests(build, profiles, choice, o.add)
    files = counted(build, merge(profiles))
    what = o.what or f"the tests without the label `long`{', `' + ' '.join(choice) + '`' if choice else ''}"
    what += f", one in {os.environ.get('KILN_TEST_SHARE', '6')} of cases that are alike"
    pathlib.Path(o.o).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(o.o).write_text(page(by_folder(files), files, what))
    return 0


if __name__ == "__main__":
    sys.exit(main())
