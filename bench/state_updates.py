#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps that update a state in place beside the same steps of a module without state, by the state's length.

usage: state_updates.py [--lengths N,N,...] [--runs N]

cache: attention of one token over a cache of constant length (8 heads of 64, f32), whose row TensorScatter replaces. pool: a token gathers
256 rows of a pool of N blocks of 16 rows, and stores one. Each line: microseconds of a step with state and of one without, whose outputs
are allocated once, and their ratio; medians of interleaved runs, of processor time on one thread. Needs numpy and onnx, and KILN_LIBRARY
if Kiln is not installed."""
import argparse
import pathlib
import statistics
import sys
import time

import numpy as np
from onnx.parser import parse_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import kiln  # noqa: E402

HEAD = '<ir_version: 10, opset_import: ["" : 24]>\n'
GRAPHS = {
    "cache": """g (int64[1] at, float[1,8,1,64] q, float[1,8,1,64] k, float[1,8,1,64] v, float[1,8,N,64] past_k, float[1,8,N,64] past_v)
 => (float[1,8,1,64] y, float[1,8,N,64] present_k, float[1,8,N,64] present_v) <int64[1] one={1}> {
 present_k=TensorScatter<axis=2>(past_k,k,at) present_v=TensorScatter<axis=2>(past_v,v,at) n=Add(at,one)
 y=Attention(q,present_k,present_v,,,,n) }""",
    "pool": """g (int64[1,2] at, int64[1,256] slots, float[1,8,64,1] q, float[1,8,64] x, float[N,16,8,64] past)
 => (float[1,8,256,1] y, float[N,16,8,64] present) <int64[3] flat={-1,8,64}> {
 f=Reshape(past,flat) r=Gather<axis=0>(f,slots) t=Transpose<perm=[0,2,1,3]>(r) y=MatMul(t,q) present=ScatterND(past,at,x) }""",
}


def seconds(call):
    begin = time.process_time()
    call()
    return time.process_time() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lengths", default="256,1024,4096")
    p.add_argument("--runs", type=int, default=25)
    a = p.parse_args()
    rng = np.random.default_rng(0)
    print(f"{'':8}{'length':>8}{'state us':>12}{'plain us':>12}{'plain/state':>13}")
    for name, text in GRAPHS.items():
        for length in (int(n) for n in a.lengths.split(",")):
            model = parse_model(HEAD + text.replace("N,", f"{length},"))
            session = kiln.compile(model, states="auto" if name == "cache" else "past=present", threads=1).session()
            plain = kiln.compile(model, threads=1)
            given = {i.name: rng.integers(8, size=i.shape) if i.dtype == "i64" else rng.standard_normal(i.shape).astype("f") for i in plain.inputs}
            own = {n: x for n, x in given.items() if n not in session.states}
            outputs = list(plain(**given))
            times = [[], []]
            for i in range(a.runs + 3):
                for kept, call in zip(times, (lambda: session(**own), lambda: plain(**given, out=outputs))):
                    kept.append(seconds(call))
            state, other = (statistics.median(t[3:]) for t in times)
            print(f"{name:8}{length:>8}{state * 1e6:>12.0f}{other * 1e6:>12.0f}{other / state:>13.2f}", flush=True)


if __name__ == "__main__":
    main()
