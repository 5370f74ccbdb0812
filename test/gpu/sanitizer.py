#!/usr/bin/env python3
"""Runs ONNX's node tests on this machine's NVIDIA GPU under a tool of compute-sanitizer: no kernel may do wrong.

usage: sanitizer.py KILN NODE_TEST_DIR TOOL [GLOB]      TOOL: memcheck, racecheck, synccheck or initcheck

The tests, those whose name matches GLOB, are shared among some processes. What passes is not looked at: nodes.py does. Skipped
where there is no GPU, or no compute-sanitizer.
"""
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP, MAX_PROCESSES = 77, 16
MISSING = ("driver: libcuda.so.1 must be installed", "device: there must be an NVIDIA GPU", "the library NVRTC must be found")


def run(kiln, tool, log, tests):
    """What the tests print, and the tool."""
    command = ["compute-sanitizer", "--tool", tool, "--log-file", str(log), kiln, "test", *tests, "--in-process", "--target=cuda"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, errors="replace")
    return done.stdout + done.stderr, log.read_text(errors="replace") if log.exists() else ""


def main():
    kiln, folder, tool, glob = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], (sys.argv[4:] or ["*"])[0]
    if not shutil.which("compute-sanitizer"):
        print("skipped: there is no compute-sanitizer")
        return SKIP
    tests = sorted(t.parent for t in folder.glob("*/model.onnx") if fnmatch.fnmatch(t.parent.name, glob))
    n = max(1, min(os.cpu_count() or 1, MAX_PROCESSES, len(tests)))
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(n) as pool:
        parts = [pool.submit(run, kiln, tool, pathlib.Path(scratch) / f"{k}.log", tests[k::n]) for k in range(n)]
        results = [p.result() for p in parts]
    if any(m in text for text, _ in results for m in MISSING):
        print("skipped: there is no GPU, or no NVRTC")
        return SKIP
    wrong = 0
    for text, log in results:
        summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", log)
        if summary and summary[1] == "0":
            continue
        wrong += 1
        print("\n".join(log.splitlines()[:40]) if summary else f"no summary: {text[-500:]}")
    passed = sum(int(m) for text, _ in results for m in re.findall(r"^(\d+) passed", text, re.M))
    print(f"{tool}: {len(tests)} tests, of which {passed} pass, in {n} processes, {wrong} of them with errors")
    return 1 if wrong or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
