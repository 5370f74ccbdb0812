#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a call from Python costs beside the kernels: a product of 3 by 16 elements, by kiln.Module and by ONNX Runtime's session.

usage: python_call.py [--rounds N] [--calls N]

Rounds of calls of both are interleaved. Prints the medians of a call's processor time in microseconds, and ONNX Runtime's over Kiln's.
Needs numpy, onnx and onnxruntime, and KILN_LIBRARY if Kiln is not installed."""
import argparse
import pathlib
import statistics
import sys
import time

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]
import kiln  # noqa: E402
from models import data, product  # noqa: E402


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=41)
    p.add_argument("--calls", type=int, default=500)
    a = p.parse_args()
    model, x = product(), data(3)
    module = kiln.compile(model, dims={"N": 3}, threads=1, cache=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x}
    np.testing.assert_allclose(module(x), session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)
    calls = {"kiln": lambda: module(x), "onnxruntime": lambda: session.run(None, feeds)}
    times = {name: [] for name in calls}
    for _ in range(a.rounds):
        for name, call in calls.items():
            begin = time.process_time()
            for _ in range(a.calls):
                call()
            times[name].append((time.process_time() - begin) / a.calls * 1e6)
    medians = {name: statistics.median(t) for name, t in times.items()}
    for name, t in medians.items():
        print(f"{name:12} {t:6.1f} us")
    print(f"ONNX Runtime / Kiln: {medians['onnxruntime'] / medians['kiln']:.2f}")


if __name__ == "__main__":
    main()
