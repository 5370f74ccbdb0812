#!/usr/bin/env python3
"""Values of a model as outputs (--mark), and two ways to compute a model beside each other (kiln compare).

usage: compare.py KILN      runs in .venv, which `make test` makes
"""
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


TESTS = [a_marked_value_is_an_output, all_values_can_be_marked, marks_go_with_ranges_and_with_outputs, the_cache_knows_marks,
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
