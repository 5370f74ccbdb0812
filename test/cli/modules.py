#!/usr/bin/env python3
"""Modules through the command: known by what they are, described, and given or not given what a model has by default.

usage: modules.py KILN      runs in .venv, which `make test` makes
"""
import json
import os
import pathlib
import random
import shutil
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

DTYPES = [np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]


class Room:
    def __init__(self, kiln, path):
        self.kiln, self.path, self.failures = kiln, path, 0

    def run(self, *command, code=0):
        r = subprocess.run([self.kiln, *map(str, command)], capture_output=True, text=True, env={**os.environ, "KILN_CACHE_DIR": ""})
        self.check(r.returncode == code, f"{' '.join(map(str, command))}: exit code {code}, got {r.returncode}: {r.stderr[-300:]}")
        return r.stdout + r.stderr

    def check(self, right, what):
        if not right:
            self.failures += 1
            print(f"FAILED {what}")

    def outputs(self, model, names, *more):
        out = self.path / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.run("run", model, "--threads", 1, "--output-dir", out, *more)
        return [np.load(out / f"{n}.npy") if (out / f"{n}.npy").exists() else None for n in names]


def value(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def random_array(rng, dtype, shape):
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    if np.issubdtype(dtype, np.floating):
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


def save(room, nodes, inputs, outputs, initializers, ir=10, name="m.onnx"):
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir)
    path = room.path / name
    path.write_bytes(model.SerializeToString())
    return path


def check_defaults(room, seed):
    """Inputs of random types and shapes, some with initializers: each run gives some of these and leaves the others."""
    rng, choice = np.random.default_rng(seed), random.Random(seed)
    x = rng.normal(size=(2, 3)).astype(np.float32)
    defaults = {f"w{k}": random_array(rng, choice.choice(DTYPES), choice.choice([(), (1,), (3,), (2, 3), (5, 1, 2)]))
                for k in range(choice.randint(1, 5))}
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    nodes += [helper.make_node("Concat", [f"{n}f", f"{n}f"], [f"{n}o"], axis=0) for n in defaults]
    nodes = [helper.make_node("Reshape", [n, "flat"], [f"{n}f"]) for n in defaults] + nodes
    wanted = ["y", *(f"{n}o" for n in defaults)]
    outs = [value("y", x), *(helper.make_tensor_value_info(f"{n}o", helper.np_dtype_to_tensor_dtype(w.dtype), [2 * w.size])
                             for n, w in defaults.items())]
    path = save(room, nodes, [value("x", x), *(value(n, w) for n, w in defaults.items())], outs,
                [numpy_helper.from_array(w, n) for n, w in defaults.items()] +
                [numpy_helper.from_array(np.array([-1], np.int64), "flat")])
    np.save(room.path / "x.npy", x)
    given = {n: random_array(rng, w.dtype, w.shape) for n, w in defaults.items() if choice.random() < 0.5}
    for n, w in given.items():
        np.save(room.path / f"{n}.npy", w)
    files = [f"--input={n}={room.path / n}.npy" for n in ["x", *given]]
    module = room.path / "m.so"
    asked = ["*"] if choice.random() < 0.5 else list(defaults)
    room.run("compile", path, "-o", module, "--threads", 1, *(f"--overridable={n}" for n in asked))
    want = [np.maximum(x, 0), *(np.concatenate([given.get(n, w).reshape(-1)] * 2) for n, w in defaults.items())]
    for subject in (path, module):
        got = room.outputs(subject, wanted, *files, *(["--reference"] if subject == path else []))
        for name, a, b in zip(wanted, got, want):
            room.check(a is not None and np.array_equal(a, b), f"seed {seed}, {subject.name}, {name}: {a} for {b}")
    report = room.path / "r.json"
    for subject in (path, module):
        room.run("inspect", subject, "--json", report)
        ports = {p["name"]: p for p in json.loads(report.read_text())["inputs"]}
        room.check(set(ports) == {"x", *defaults}, f"seed {seed}: inspect lists {set(ports)}")
        for n, w in defaults.items():
            shown = ports.get(n, {}).get("default")
            room.check(shown is not None and np.allclose(np.array(shown, np.float64), w.reshape(-1)[:4].astype(np.float64), 1e-5),
                       f"seed {seed}: default of {n}: {shown} for {w.reshape(-1)[:4]}")


def check_folding(room):
    """Without being asked for, initializers stay constants; in IR 3 they always are."""
    w = np.array([[2.0, 1.0], [0.5, 4.0]], np.float32)
    x = np.ones((1, 2), np.float32)
    for ir in (3, 10):
        path = save(room, [helper.make_node("MatMul", ["x", "w"], ["y"])], [value("x", x), value("w", w)], [value("y", x)],
                    [numpy_helper.from_array(w, "w")], ir)
        room.run("compile", path, "-o", room.path / "m.so", "--threads", 1)
        room.check("optional" not in room.run("inspect", room.path / "m.so"), "an initializer must be a constant by default")
        np.save(room.path / "w.npy", 2 * w)
        text = room.run("run", path, f"--input=w={room.path / 'w.npy'}", "--fill", "ones", code=ir == 3)
        room.check("y: f32[1x2] 5 10" in text if ir > 3 else "input" in text, f"IR {ir}: {text}")
        text = room.run("compile", path, "-o", room.path / "m.so", "--overridable", "w", code=ir == 3)
        room.check(ir > 3 or "IR version must be 4" in text, f"IR {ir}: {text}")
    text = room.run("compile", path, "-o", room.path / "m.so", "--overridable", "v", code=1)
    room.check("must be an input of the model" in text, text)


def check_names(room):
    """Files are what they are, whatever they are called."""
    x = np.ones((2, 4), np.float32)
    path = save(room, [helper.make_node("Relu", ["x"], ["y"])], [value("x", x)], [value("y", x)], [])
    module = room.path / "m.so"
    room.run("compile", path, "-o", module, "--threads", 1)
    for source, what in ((path, "model"), (module, "module")):
        for suffix in (".onnx", ".so", ".kmod", ".bin", ""):
            copy = room.path / f"copy{suffix}"
            shutil.copy(source, copy)
            room.check("y: f32[2x4] 1 1" in room.run("run", copy, "--fill", "ones"), f"run a {what} called {copy.name}")
            text = room.run("inspect", copy)
            room.check(("target" in text) == (what == "module"), f"inspect a {what} called {copy.name}: {text}")
            if what == "module":
                for command in ("verify", "check", "explain", "orchestrate"):
                    room.check("must be a model, got a module" in room.run(command, copy, code=1), f"{command} a module")
    text = room.run("inspect", module)
    for word in ("x86_64", "processor", "features", "threads", "made by", "x f32 [2, 4]", "y f32 [2, 4]", "kernels"):
        room.check(word in text or word == "x86_64" and os.uname().machine != word, f"inspect must say {word}: {text}")


def check_dims(room):
    """Dimensions that follow from others, and that --shape names, bound and in ranges."""
    a, b = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("a", ["p", 4]), ("b", ["t", 4])))
    mask = helper.make_tensor_value_info("m", TensorProto.FLOAT, ["kv", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Concat", ["a", "b"], ["c"], axis=0), helper.make_node("Add", ["c", "m"], ["y"])]
    path = save(room, nodes, [a, b, mask], [y], [])
    for is_ in ("p+t", "2*p-4+(t)+1", "10-p-t", "5"):
        text = room.run("run", path, "--dim=p=3", "--dim=t=2", f"--dim=kv={is_}", "--fill", "ones")
        room.check("f32[5x4] 2" in text, f"kv={is_}: {text}")
    room.run("run", path, "--dim=p=3", "--dim=t=2", "--dim=kv=many", code=2)
    room.check("integer arithmetic" in room.run("run", path, "--dim=p=3", "--dim=t=2", "--dim=kv=kv+1", code=1), "a dimension of itself")
    module = room.path / "r.so"
    room.run("compile", path, "-o", module, "--dim=p=3", "--dim=t=1..4", "--dim=kv=p+t", "--threads", 1)
    room.check("f32[6x4] 2" in room.run("run", module, "--dim=t=3", "--fill", "ones"), "a sum of a value and a range")
    text = room.run("inspect", module)
    room.check("t 1..4" in text and "variants" in text, f"inspect of a range: {text}")
    room.check("must be NAME=N" in room.run("run", module, "--dim=p=3", code=2), "a dimension that the module has not")
    room.check("must be NAME=N" in room.run("run", module, "--dim=t=1..3", code=2), "a range for a module")
    fixed = save(room, [helper.make_node("Relu", ["X"], ["Y"])], [helper.make_tensor_value_info("X", TensorProto.FLOAT, [3, 10])],
                 [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)], [])
    for shape, dims in (("Nx10", ["N=7"]), ("[N, 10]", ["N=7"]), ("N,max", ["N=7", "max=10"]), ("7x10", [])):
        text = room.run("run", fixed, f"--shape=X={shape}", *(f"--dim={d}" for d in dims), "--fill", "ones")
        room.check("Y: f32[7x10] 1" in text, f"--shape {shape}: {text}")
    room.run("compile", fixed, "-o", module, "--shape=X=Nx10", "--dim=N=1..8", "--threads", 1)
    room.check("Y: f32[5x10] 1" in room.run("run", module, "--dim=N=5", "--fill", "ones"), "a range of a dimension that was named")
    for shape in ("x10", "Nx", "3x-", "3x3-", ""):
        room.check("--shape" in room.run("run", fixed, f"--shape=X={shape}", code=2), f"--shape {shape}")


def main():
    kiln = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory() as name:
        room = Room(kiln, pathlib.Path(name))
        for check in (check_names, check_dims, check_folding):
            check(room)
        for seed in range(12):
            check_defaults(room, seed)
    print(f"{room.failures} failures")
    return 1 if room.failures else 0


if __name__ == "__main__":
    sys.exit(main())
