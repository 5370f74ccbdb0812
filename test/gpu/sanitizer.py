#!/usr/bin/env python3
"""Runs ONNX's node tests on this machine's NVIDIA GPU under a tool of compute-sanitizer: no kernel may do wrong.

usage: sanitizer.py [-k GLOB] [--seconds S] [--log FILE] KILN NODE_TEST_DIR TOOL [OPTION]...

TOOL is memcheck, racecheck, synccheck or initcheck, the options are those of `kiln test`, as --dtype=f16. The tests are run
in parts, some at the same time; what hangs loses its part, and no part begins after --seconds. What passes is not looked at,
nodes.py does: it is written to --log. Skipped where there is no GPU, or no compute-sanitizer.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP, MAX_PROCESSES, PART, LIMIT_S, GRACE_S = 77, 16, 24, 300, 15
MISSING = ("driver: libcuda.so.1 must be installed", "device: there must be an NVIDIA GPU", "the library NVRTC must be found")


def run(o, log, tests):
    """What the tests print, and the tool; None where there was no time."""
    if time.monotonic() > o.end:
        return None
    command = ["compute-sanitizer", "--tool", o.tool, "--log-file", str(log), o.kiln, "test", *tests, "--in-process",
               "--target=cuda", *o.options]
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace", start_new_session=True)
    try:
        text = child.communicate(timeout=min(LIMIT_S, o.end + GRACE_S - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # the tool's child, too
        text = f"hangs: {tests[0].name} to {tests[-1].name}\n{child.communicate()[0]}"
    return text, log.read_text(errors="replace") if log.exists() else ""


def errors(text, log):
    """What is wrong, in some lines; None: nothing."""
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", log)
    if summary and summary[1] == "0":
        return None
    return "\n".join(log.splitlines()[:40]) if summary else f"no summary: {text[:200]} ... {text[-500:]}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("-k", dest="glob", default="*")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--log", type=pathlib.Path, default=os.devnull)
    parser.add_argument("kiln")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tool")
    o, o.options = parser.parse_known_args()
    if not shutil.which("compute-sanitizer"):
        print("skipped: there is no compute-sanitizer")
        return SKIP
    o.end = time.monotonic() + o.seconds
    tests = sorted(t.parent for t in o.folder.glob("*/model.onnx") if fnmatch.fnmatch(t.parent.name, o.glob))
    n = (len(tests) + PART - 1) // PART
    parts = [tests[k::n] for k in range(n)]
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(
            min(os.cpu_count() or 1, MAX_PROCESSES)) as pool:
        results = list(pool.map(lambda k: run(o, pathlib.Path(scratch) / f"{k}.log", parts[k]), range(n)))
    if any(m in r[0] for r in results if r for m in MISSING):
        print("skipped: there is no GPU, or no NVRTC")
        return SKIP
    pathlib.Path(o.log).write_text("".join(r[0] for r in results if r))
    wrong = [e for e in (errors(*r) for r in results if r) if e]
    for e in wrong:
        print(e)
    passed = sum(int(m) for r in results if r for m in re.findall(r"^(\d+) passed", r[0], re.M))
    begun = sum(len(p) for p, r in zip(parts, results) if r)
    print(f"{o.tool}: {begun} of {len(tests)} tests, of which {passed} pass, in {n} parts, {len(wrong)} of them with errors")
    return 1 if wrong or begun < len(tests) or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
