#!/usr/bin/env python3
"""Runs the light_* real-model tests of the ONNX Python package through the `kiln` command: the input is arange(n) / n as f32,
the outputs are in NAME_output_K.pb, the tolerance is ONNX's.

usage: light.py KILN LIGHT_DIR [NAME...]      standard library only
"""
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile


def write_input(path, shape):
    n = math.prod(shape)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    values = array.array("f", (i / n for i in range(n)))
    if sys.byteorder == "big":
        values.byteswap()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes())


def run(kiln, model, folder):
    """None, or what is wrong."""
    report = folder / "report.json"
    command = [kiln, "inspect", model, "--json", report]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    about = json.loads(report.read_text())
    command = [kiln, "run", model, "--rtol", "1e-3", "--atol", "1e-7"]
    for k, port in enumerate(about["inputs"]):
        write_input(folder / f"input_{k}.npy", port["shape"])
        command += ["--input", f"{port['name']}={folder}/input_{k}.npy"]
    for k, port in enumerate(about["outputs"]):
        command += ["--expect", f"{port['name']}={model.with_name(f'{model.stem}_output_{k}.pb')}"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def main():
    kiln, data, names = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    models = sorted(m for m in data.glob("light_*.onnx") if not names or m.stem in names)
    failed = 0
    for model in models:
        with tempfile.TemporaryDirectory() as scratch:
            wrong = run(kiln, model, pathlib.Path(scratch))
        failed += wrong is not None
        print(f"{model.stem}: {'passed' if wrong is None else 'FAILED: ' + wrong}", flush=True)
    print(f"{len(models) - failed} passed, {failed} failed")
    return 1 if failed or not models else 0


if __name__ == "__main__":
    sys.exit(main())
