#!/usr/bin/env python3
"""ONNX's node tests through ONNX Runtime, alone and with Kiln as provider: with it all must pass that pass without.

usage: KILN_ORT=build/libkiln_ort.so nodes.py [--every N] [--least N] [--json FILE] [-k PATTERN]

Each test runs in a process of a pool of one, which is made anew where a test ends it. --every: only each Nth test.
--least: so many more must pass with Kiln than without.
"""
import argparse
import ctypes
import fnmatch
import json
import multiprocessing
import os
import re
import sys
import warnings

sys.path.insert(0, os.path.dirname(__file__))
warnings.simplefilter("ignore")
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"


def load_tests():
    from onnx.backend.test import loader

    return sorted(loader.load_model_tests(kind="node"), key=lambda t: t.name)


def as_array(value):
    import numpy as np
    import onnx

    if value is None or isinstance(value, (list, tuple)):
        return value
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def to_ort(array, type_):
    """A tensor of any type, of which NumPy need not have its own."""
    import onnx
    import onnxruntime as ort

    if array.dtype.isbuiltin == 1:
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(array.shape, type_)
    raw = onnx.numpy_helper.from_array(array).raw_data
    ctypes.memmove(value.data_ptr(), raw, len(raw))
    return value


def from_ort(value):
    import onnx

    if not value.is_tensor() or value.element_type() == onnx.TensorProto.STRING:
        return value.numpy()
    raw = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return onnx.numpy_helper.to_array(onnx.TensorProto(dims=value.shape(), data_type=value.element_type(), raw_data=raw))


def call(session, graph, feeds):
    """Through OrtValues where NumPy lacks a type of the interface."""
    codes = {p.name: p.type.tensor_type.elem_type for p in [*graph.input, *graph.output] if p.type.HasField("tensor_type")}
    if all(code <= 13 for code in codes.values()):
        return session.run(None, feeds)
    outs = session.run_with_ort_values(None, {n: to_ort(a, codes.get(n)) for n, a in feeds.items()})
    return [from_ort(v) for v in outs]


def is_similar(want, got, rtol, atol):
    import numpy as np

    if isinstance(want, (list, tuple)):
        return len(want) == len(got) and all(is_similar(w, g, rtol, atol) for w, g in zip(want, got))
    if want is None or got is None:
        return want is None and got is None
    want, got = as_array(want), as_array(got)
    if want.shape != got.shape:
        return False
    if want.dtype == object or got.dtype == object or want.dtype.kind in "US":
        return np.array_equal(want.astype(object), got.astype(object))
    if want.dtype.kind in "biu":
        return np.array_equal(want, got)
    rtol = max(rtol, {"float16": 2 * 2**-10, "bfloat16": 2 * 2**-7}.get(want.dtype.name, 0))  # two units in the last place
    return np.allclose(want.astype(np.float64), got.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def run(test, make):
    """None, or why it fails."""
    names = [i.name for i in test.model.graph.input]
    try:
        session = make(test.model.SerializeToString())
        for inputs, wanted in test.data_sets:
            feeds = {n: as_array(value) for n, value in zip(names, inputs) if value is not None}
            got = call(session, test.model.graph, feeds)
            if not is_similar(wanted, got, test.rtol, test.atol):
                return "other results"
    except Exception as error:  # noqa: BLE001
        return str(error).replace("\n", " ")[:400] or type(error).__name__
    return None


def alone(data):
    import onnxruntime as ort

    so = ort.SessionOptions()
    so.log_severity_level = 4
    return ort.InferenceSession(data, so, providers=["CPUExecutionProvider"])


def with_kiln(data):
    import kiln_ort

    session = kiln_ort.session(data, severity=4)
    session.disable_fallback()
    return session


def work(pipe, chosen):
    import kiln_ort

    kiln_ort.devices()
    tests = {t.name: t for t in load_tests() if t.name in chosen}
    pipe.send("ready")
    while True:
        try:
            name, which = pipe.recv()
        except EOFError:
            return
        pipe.send(run(tests[name], alone if which == "alone" else with_kiln))


class Worker:
    def __init__(self, chosen):
        self.chosen, self.process = chosen, None

    def start(self):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.chosen), daemon=True)
        self.process.start()
        other.close()
        assert self.pipe.recv() == "ready"

    def ask(self, name, which):
        if self.process is None:
            self.start()
        try:
            self.pipe.send((name, which))
            if self.pipe.poll(300):
                return self.pipe.recv()
            why = "hangs"
        except (EOFError, BrokenPipeError):
            why = "crashes"
        self.process.kill()
        self.process = None
        return why


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--json")
    parser.add_argument("-k", default="*")
    args = parser.parse_args()
    names = [t.name for t in load_tests() if fnmatch.fnmatch(t.name, args.k)][:: args.every]
    worker = Worker(set(names))
    rows = [{"test": n, "alone": worker.ask(n, "alone"), "kiln": worker.ask(n, "kiln")} for n in names]
    if args.json:
        with open(args.json, "w") as f:
            json.dump(rows, f, indent=1)
    lost = [r for r in rows if r["alone"] is None and r["kiln"] is not None]
    broken = [r for r in rows if re.match("crashes|hangs", r["kiln"] or "")]
    gained = [r for r in rows if r["alone"] is not None and r["kiln"] is None]
    for r in lost + broken:
        print(f"{r['test']}: {r['kiln']}")
    counts = [sum(r[which] is None for r in rows) for which in ("alone", "kiln")]
    print(f"{len(rows)} node tests: ONNX Runtime alone passes {counts[0]}, with Kiln {counts[1]}: {len(gained)} more, {len(lost)} fewer")
    return 1 if lost or broken or len(gained) < args.least else 0


if __name__ == "__main__":
    sys.exit(main())
