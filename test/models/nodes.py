#!/usr/bin/env python3
"""Runs ONNX's node tests through compiled code: at least FLOOR of them must pass, and none may crash or hang.

usage: nodes.py KILN NODE_TEST_DIR RESULTS.json      standard library only
"""
import json
import pathlib
import subprocess
import sys

FLOOR = 832  # just below what passes; raised when more does


def main():
    kiln, tests, results = sys.argv[1:]
    done = subprocess.run([kiln, "test", tests, "--json", results], capture_output=True, text=True, errors="replace")
    rows = json.loads(pathlib.Path(results).read_text())
    passed = sum(r["result"] == "passed" for r in rows)
    broken = [f"{r['test']}: {r['why']}" for r in rows if r["why"].startswith(("crashes", "hangs"))]
    for line in broken:
        print(line)
    print(done.stdout.splitlines()[-1], f"(at least {FLOOR} must pass)")
    if passed < FLOOR:
        print(done.stdout)
    return 1 if broken or passed < FLOOR else 0


if __name__ == "__main__":
    sys.exit(main())
