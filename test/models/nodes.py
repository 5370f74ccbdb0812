#!/usr/bin/env python3
"""Runs ONNX's node tests through compiled code: at least FLOOR of them must pass, and none may crash or hang.

usage: nodes.py KILN NODE_TEST_DIR RESULTS.json FLOOR [OPTION]...      standard library only

The options are those of `kiln test`, as --target=opencl. Where the target has no device, it is skipped.
"""
import json
import pathlib
import subprocess
import sys

SKIP = 77
MISSING = ("libOpenCL.so.1 must be installed", "libcuda.so.1 must be installed", "device: there must be")


def main():
    kiln, tests, results, floor, *options = sys.argv[1:]
    done = subprocess.run([kiln, "test", tests, "--json", results, *options], capture_output=True, text=True, errors="replace")
    rows = json.loads(pathlib.Path(results).read_text())
    passed = sum(r["result"] == "passed" for r in rows)
    if passed == 0 and any(m in r["why"] for r in rows for m in MISSING):
        print("skipped:", rows[0]["why"])
        return SKIP
    broken = [f"{r['test']}: {r['why']}" for r in rows if r["why"].startswith(("crashes", "hangs"))]
    for line in broken:
        print(line)
    print(done.stdout.splitlines()[-1], f"(at least {floor} must pass)")
    if passed < int(floor):
        print(done.stdout)
    return 1 if broken or passed < int(floor) else 0


if __name__ == "__main__":
    sys.exit(main())
