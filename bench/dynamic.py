#!/usr/bin/env python3
"""One module for ranges of named dimensions against modules for one shape each, and ONNX Runtime.

usage: dynamic.py BUILD MODEL.onnx MODULE.kmod NAME=N[,NAME=N...]... [--threads N] [--runs N] [--processor]

MODULE is `kiln compile MODEL.onnx --dim NAME=LEAST..MOST ... -o MODULE.kmod`. For each shape that is given: the relative
L2 error of its outputs against ONNX Runtime's, its time, and its ratio to the time of a module compiled for that shape
alone and to ONNX Runtime's. The three run in turns; a time is the median, a ratio the median of those of the turns.
Inputs of floats are normal, those of integers 0 or 1; an input named ids or input_ids is uniform in [0, 1000), a mask all ones.
"""
import argparse, pathlib, subprocess, sys, tempfile, time
import numpy as np
import onnx
import onnxruntime as ort
from kiln_rt import Session, dl_tensor

CODES = {"f": 2, "i": 0, "u": 1, "b": 6}


def tensor(array):
    return dl_tensor(array.ctypes.data, (1, 0), array.shape, CODES[array.dtype.kind], array.dtype.itemsize * 8)


def make_inputs(model, dims):
    rng = np.random.default_rng(1)
    given = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        if dtype.kind == "f":
            given[value.name] = rng.standard_normal(shape).astype(dtype)
        elif value.name.endswith("ids"):
            given[value.name] = rng.integers(0, 1000, shape).astype(dtype)
        else:
            given[value.name] = np.ones(shape, dtype)
    return given


def bind(session, given, outputs):
    results = [np.zeros_like(x) for x in outputs]
    arrays = list(given.values())
    session.bind_tensors([tensor(a) for a in arrays], [tensor(r) for r in results], arrays, results)
    session.outputs = results
    return session


def time_ms(run, clock):
    start = clock()
    run()
    return (clock() - start) * 1e3


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=pathlib.Path)
    arguments.add_argument("model", type=pathlib.Path)
    arguments.add_argument("module", type=pathlib.Path)
    arguments.add_argument("shapes", nargs="+")
    arguments.add_argument("--threads", type=int, default=0)
    arguments.add_argument("--processor", action="store_true", help="time of the processor, for one thread on a busy machine")
    arguments.add_argument("--runs", type=int, default=15)
    arguments.add_argument("--tolerance", type=float, default=1e-4)
    o = arguments.parse_args()
    model = onnx.load(o.model, load_external_data=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = o.threads
    reference = ort.InferenceSession(str(o.model), options, providers=["CPUExecutionProvider"])
    dynamic = Session(o.build, o.module, threads=o.threads)
    clock = time.process_time if o.processor else time.perf_counter
    wrong = 0
    print(f"{'shape':32} {'error':>9} {'ms':>9} {'/static':>8} {'/ort':>8}")
    for text in o.shapes:
        dims = {k: int(v) for k, v in (x.split("=") for x in text.split(","))}
        given = make_inputs(model, dims)
        want = reference.run(None, given)
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "static.kmod"
            bound = [x for k, v in dims.items() for x in ("--dim", f"{k}={v}")]
            subprocess.run([o.build / "kiln", "compile", o.model, *bound, "--threads", str(o.threads), "-o", path],
                           check=True, capture_output=True)
            static = bind(Session(o.build, path, threads=o.threads), given, want)
            bind(dynamic, given, want).run()
            error = max(np.linalg.norm((a - b).ravel()) / max(np.linalg.norm(b.ravel()), 1e-30)
                        for a, b in zip(dynamic.outputs, want))
            runs = [dynamic.run, static.run, lambda: reference.run(None, given)]
            for run in runs:
                run()
            times = np.array([[time_ms(run, clock) for run in runs] for _ in range(o.runs)])
            static.close()
        ratio = np.median(times[:, :1] / times[:, 1:], axis=0)
        wrong += not error <= o.tolerance
        print(f"{text:32} {error:9.2e} {np.median(times[:, 0]):9.3f} {ratio[0]:8.2f} {ratio[1]:8.2f}", flush=True)
    dynamic.close()
    sys.exit(f"{wrong} shapes differ by more than {o.tolerance}" if wrong else 0)


if __name__ == "__main__":
    main()
