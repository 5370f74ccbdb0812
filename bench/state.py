#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A decoder's step with its cache as state of a session beside the same step with the cache as tensors of the caller, by cache length.

usage: state.py [--layers N] [--groups N] [--heads N] [--dim N] [--cache f32|f16|i8] [--most N] [--runs N] [--threads N]

Each line: the length; microseconds of a step with state, and of one without (its outputs are allocated once); their ratio; and the
share of the copy bandwidth at which the step with state reads weights and cache, both measured in this process. Runs of all three are
interleaved; figures are medians, of processor time for one thread and of the clock for more. Needs numpy and onnx, and KILN_LIBRARY if Kiln is not installed."""
import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]
import kiln  # noqa: E402
import random_decoders  # noqa: E402

TYPES = {"f32": np.float32, "f16": np.float16, "i8": np.int8}


def seconds(call, clock):
    begin = clock()
    call()
    return clock() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 4), ("groups", 8), ("heads", 8), ("dim", 64), ("most", 4096), ("runs", 30), ("threads", 1)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--cache", choices=TYPES, default="f32")
    a = p.parse_args()
    rng = np.random.default_rng(0)
    model = random_decoders.make(rng, a.layers, a.groups, a.heads, a.dim, words=64, cache=a.cache)
    weights = sum(np.prod(w.dims, dtype=np.int64) * 4 for w in model.graph.initializer)
    options = {"dims": {"batch": 1, "tokens": (1, 2), "past": (0, a.most), "kv": "past+tokens"}, "threads": a.threads, "cache": False}
    with tempfile.TemporaryDirectory() as folder:
        kiln.compile(model, states="auto", output=f"{folder}/state.so", **options)
        kiln.compile(model, output=f"{folder}/plain.so", **options)
        session, plain = (kiln.load(f"{folder}/{n}.so") for n in ("state", "plain"))
    session = session.session()
    memory = np.ones(32 << 20, np.float32)
    there = np.zeros_like(memory)
    clock = time.process_time if a.threads == 1 else time.perf_counter
    print(f"{'length':>8}{'state us':>12}{'plain us':>12}{'plain/state':>13}{'share':>8}   {a.cache} cache, {a.threads} threads")
    one = np.zeros((1, 1), np.int64)
    for length in [n for n in (16, 64, 256, 512, 1024, 2048, 4096) if n <= a.most]:
        past = [(rng.standard_normal((1, a.groups, length, a.dim)) * 3).astype(TYPES[a.cache]) for _ in range(2 * a.layers)]
        names = [f"past_{i}_{k}" for i in range(a.layers) for k in ("key", "value")]
        session.reset()
        session(one, **{n: x[:, :, :-1] for n, x in zip(names, past)})
        given = [one, *past]
        outputs = plain(*given)
        times = {"state": [], "plain": [], "copy": []}
        for i in range(a.runs + 3):
            found = [seconds(call, clock) for call in (lambda: session(one), lambda: plain(*given, out=outputs), lambda: np.copyto(there, memory))]
            session.truncate(length)
            for key, t in zip(times, found):
                if i >= 3:
                    times[key].append(t)
        state, other, copy = (statistics.median(t) for t in times.values())
        bytes_read = weights + sum(x.nbytes for x in past)
        share = bytes_read / state / (2 * memory.nbytes / copy)
        print(f"{length:>8}{state * 1e6:>12.0f}{other * 1e6:>12.0f}{other / state:>13.2f}{share:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
