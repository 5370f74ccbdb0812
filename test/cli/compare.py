#!/usr/bin/env python3
"""Values of a model as outputs (--mark), and two ways to compute a model beside each other (kiln compare).

usage: compare.py KILN      runs in .venv, which `make test` makes
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path(".venv/bin/python")
if __name__ == "__main__" and not sys.prefix.endswith(".venv"):
    if not PYTHON.exists():
        print(f"skipped: there is no {PYTHON} (make test makes it)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), "-W", "ignore", *sys.argv])

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Room:
    def __init__(self, kiln, path):
        self.kiln, self.path = kiln, path
        self.x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
        self.w = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
        np.save(path / "x.npy", self.x)
        self.model = self.save("m.onnx", self.w)

    def save(self, name, w, batch=4):
        """x @ w, its Relu, and the sum of a row of it."""
        nodes = [helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Relu", ["product"], ["positive"]),
                 helper.make_node("ReduceSum", ["positive", "axes"], ["y"], keepdims=0)]
        constants = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([1]), "axes")]
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 8])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch])], constants)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), self.path / name)
        return self.path / name

    def run(self, *command, code=0, **environment):
        env = {**os.environ, "KILN_CACHE_DIR": "", **environment}
        r = subprocess.run([self.kiln, *map(str, command)], capture_output=True, text=True, env=env, timeout=300)
        assert r.returncode == code, f"{' '.join(map(str, command))}: exit code {code}, got {r.returncode}: {r.stdout}{r.stderr[-400:]}"
        return r.stdout + r.stderr

    def outputs(self, model, *more):
        self.run("run", model, "--input", f"x={self.path}/x.npy", "--outputs", self.path / "out.npz", *more)
        return dict(np.load(self.path / "out.npz"))


def want(text, pattern):
    assert re.search(pattern, text, re.M), f"must have {pattern}, got: {text}"


# --- values as outputs


def a_marked_value_is_an_output(room):
    product = room.x @ room.w
    for target in ((), ("--target=sim",), ("--no-connect",)):
        out = room.outputs(room.model, "--mark", "product", *target)
        assert list(out) == ["y", "product"], list(out)
        np.testing.assert_allclose(out["product"], product, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(out["y"], np.maximum(product, 0).sum(1), rtol=1e-4, atol=1e-6)
    want(room.run("run", room.model, "--mark", "product", "--mark", "positive", "--reference"),
         r"^y: matches.*\nproduct: matches.*\npositive: matches")


def all_values_can_be_marked(room):
    out = room.outputs(room.model, "--mark", "*")
    assert list(out) == ["y", "product", "positive"], list(out)
    room.run("compile", room.model, "--mark", "*", "-o", room.path / "m.so")
    assert list(room.outputs(room.path / "m.so")) == ["y", "product", "positive"]


def marks_go_with_ranges_and_with_outputs(room):
    model = room.save("dynamic.onnx", room.w, "N")
    out = room.outputs(model, "--dim", "N=4", "--mark", "y", "--mark", "positive")
    assert list(out) == ["y", "positive"] and out["positive"].shape == (4, 8)
    room.run("compile", model, "--dim", "N=1..8", "--mark", "product", "-o", room.path / "r.so")
    np.testing.assert_allclose(room.outputs(room.path / "r.so")["product"], room.x @ room.w, rtol=1e-4, atol=1e-6)


def the_cache_knows_marks(room):
    for marks in ((), ("--mark", "product"), ()):
        text = room.run("compile", room.model, "-o", room.path / "c.so", *marks, KILN_CACHE_DIR=str(room.path / "cache"))
        assert ("product" in room.run("inspect", room.path / "c.so").split("kernels")[0]) == bool(marks), text


def a_value_that_there_is_not_is_an_error_of_usage(room):
    for command in ("run", "bench", "check", "explain", "verify"):
        want(room.run(command, room.model, "--mark", "produkt", code=2),
             r'^options: error: mark: must be a value that a node of the model computes, got "produkt": did you mean "product"\?$')
    want(room.run("run", room.model, "--mark", "x", code=2), 'got "x"$')
    want(room.run("run", room.model, "--mark", "\x1b[1m", code=2), r'got "\\x1b\[1m"$')
    source = room.path / "m.tc"
    source.write_text("def f(float(N) A) -> (C) { C(n) = A(n) }\n")
    want(room.run("run", source, "--size", "N=3", "--mark", "C", code=1), "mark: must be given with an ONNX model")
    room.run("compile", room.model, "-o", room.path / "m.so")
    want(room.run("run", room.path / "m.so", "--mark", "product", code=2), "--mark: must be given with a model, got a module")


# --- two beside each other


def the_same_model_is_the_same(room):
    room.run("compile", room.model, "-o", room.path / "m.so")
    for a, b, judge in ((room.model, room.path / "m.so", "the reference interpreter"), (room.path / "m.so", room.path / "m.so", "a tolerance")):
        text = room.run("compare", a, b, "--iterations", 3, "--warmup", 1, "--json", room.path / "c.json")
        want(text, rf"^y: same: relative L2 difference [\d.e-]+, largest [\d.e-]+\n1 of 1 outputs are the same, judged by {judge}$")
        want(text, r"^A  min [\d.]+  median [\d.]+  p90 [\d.]+ ms  .*\nB  min .*\nB takes [\d.]+ times as long as A$")
        report = json.loads((room.path / "c.json").read_text())
        assert report["outputs"][0]["same"] and report["b"]["median_ms"] > 0 and report["ratio"] > 0, report
    want(room.run("compare", room.model, room.path / "m.so", "--rtol", "1e-4", "--iterations", 1), "judged by a tolerance")


def a_difference_is_named(room):
    w = room.w.copy()
    w[0, 0] += 1e-3
    other = room.save("other.onnx", w)
    text = room.run("compare", room.model, other, "--iterations", 1, code=1)
    want(text, r"^y: DIFFERS: .*; B is wrong: element \d+ must be within \S+ of \S+, got \S+ \(\d+ elements\)$")
    text = room.run("compare", room.model, other, "--all-layers", code=1)
    want(text, r"^product: DIFFERS")
    assert " times as long" not in text
    wrong = room.save("wrong.onnx", w, 3)
    room.run("compare", room.model, wrong, code=1)
    room.run("compile", wrong, "-o", room.path / "w.so")
    room.run("compare", room.model, room.path / "w.so", code=1)


def all_layers_are_compared(room):
    text = room.run("compare", room.model, room.model, "--all-layers", "--no-connect")
    want(text, r"^y: same.*\nproduct: same.*\npositive: same.*\n3 of 3 outputs are the same")


def onnx_runtime_is_the_other(room):
    room.run("compile", room.model, "--mark", "*", "-o", room.path / "marked.so")
    python = ("--python", sys.executable, "--iterations", 2)
    for a, b in ((room.model, "onnxruntime"), ("onnxruntime", room.model), (room.path / "marked.so", f"onnxruntime:{room.model}")):
        text = room.run("compare", a, b, *python)
        want(text, r"^y: same: ")
        want(text, r"onnxruntime(:\S+)? \(\d+\.\d+\S*\)$")
        assert ("product: same" in text) == ("marked" in str(a)), text
    want(room.run("compare", room.model, "onnxruntime", "--all-layers", *python), "3 of 3 outputs are the same, judged by the reference")
    assert not list(pathlib.Path(tempfile.gettempdir()).glob("kiln-compare-*")) or os.environ.get("CTEST_PARALLEL_LEVEL")


def who_is_missing_is_said(room):
    want(room.run("compare", room.model, "onnxruntime", "--python", "no-such-python", code=1),
         r"^onnxruntime: error: must run the model in no-such-python \(--python names another\), got: ")
    fake = room.path / "python"
    fake.write_text("#!/bin/sh\necho error there is no \x1b[1m runtime\n")
    fake.chmod(0o755)
    want(room.run("compare", room.model, "onnxruntime", "--python", fake, code=1), r"got: there is no \\x1b\[1m runtime$")
    for a, b in (("onnxruntime", "onnxruntime"), (room.path / "m.so", "onnxruntime"), (room.model, "onnxruntime:x.so")):
        room.run("compile", room.model, "-o", room.path / "m.so")
        want(room.run("compare", a, b, code=2), "^kiln compare: error: onnxruntime: must be ")
    want(room.run("compare", room.path / "m.so", room.path / "m.so", "--all-layers", code=2), "--all-layers: must be given with a model")
    room.run("compare", room.model, code=2)
    room.run("compare", room.model, "none.onnx", code=1)


TESTS = [the_same_model_is_the_same, a_difference_is_named, all_layers_are_compared, onnx_runtime_is_the_other, who_is_missing_is_said,
         a_marked_value_is_an_output, all_values_can_be_marked, marks_go_with_ranges_and_with_outputs, the_cache_knows_marks,
         a_value_that_there_is_not_is_an_error_of_usage]


def main():
    n_failed = 0
    for test in TESTS:
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(Room(sys.argv[1], pathlib.Path(folder)))
                print(f"ok    {test.__name__}")
            except AssertionError as e:
                n_failed += 1
                print(f"WRONG {test.__name__}: {e}")
    print(f"{len(TESTS) - n_failed} passed, {n_failed} failed")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
