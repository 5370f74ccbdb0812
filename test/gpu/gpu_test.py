#!/usr/bin/env python3
"""Runs models on this machine's NVIDIA GPU and compares them with the reference interpreter; skipped where there is none.

usage: gpu_test.py KILN MODEL...        (.onnx; .tc files are verified, at ragged sizes)
"""
import pathlib
import subprocess
import sys
import tempfile

SKIP = 77
MISSING = ("driver: libcuda.so.1 must be installed", "device: there must be an NVIDIA GPU", "the library NVRTC must be found")


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def check(kiln, model, scratch):
    if model.suffix == ".tc":
        return run(kiln, "verify", model, "--target=cuda")
    module = scratch / "m.kmod"
    code, text = run(kiln, "run", model, "--target=cuda", "--reference", "--rtol", "1e-3", "--atol", "1e-4")
    if code == 0:
        code, text = run(kiln, "compile", model, "--target=cuda", "-o", module)
    if code == 0:
        code, text = run(kiln, "bench", module, "--iterations", "5", "--profile")  # graphs, and events
    return code, text


def main():
    kiln, models = sys.argv[1], [pathlib.Path(m) for m in sys.argv[2:]]
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for model in models:
            code, text = check(kiln, model, pathlib.Path(scratch))
            if code and any(m in text for m in MISSING):
                print("skipped:", text.strip().splitlines()[-1])
                return SKIP
            wrong += code != 0
            print("WRONG" if code else "ok   ", model.name, "" if code == 0 else text.strip()[-500:], flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
