#!/usr/bin/env python3
"""kiln reduce: models that a command of this test fails on are reduced to what the command looks for.

usage: reduce.py KILN
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper as nh

KILN = str(pathlib.Path(sys.argv[1]).resolve())
N = h.make_node
failed = 0


def check(what, right):
    global failed
    if not right:
        failed += 1
        print(f"FAILED {what}")


def model(nodes, inputs, outputs, inits=()):
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info(n, 1, s) for n, s in inputs], [h.make_tensor_value_info(n, 1, None) for n in outputs],
                     [nh.from_array(np.asarray(a), n) for n, a in inits])
    return h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8)


def reduce(m, script, *options):
    """The reduced model, how the command ended and what it said; |script| fails with 3 where |m| is as it looks for."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(m, f"{folder}/m.onnx")
        made = []
        for _ in range(2):
            r = subprocess.run([KILN, "reduce", "m.onnx", "-o", "r.onnx", *options, "--", "sh", "-c", script, "sh", "{}"], cwd=folder, capture_output=True, text=True)
            made.append(pathlib.Path(folder, "r.onnx").read_bytes() if r.returncode == 0 else b"")
        check("the same model twice", made[0] == made[1])
        check("no trial left", not list(pathlib.Path(folder).glob("*trial*")))
        return onnx.load_model_from_string(made[0]) if made[0] else None, r.returncode, r.stdout + r.stderr


def ops(m):
    return [n.op_type for n in m.graph.node]


def extents(m):
    return [d.dim_value for v in m.graph.input for d in v.type.tensor_type.shape.dim] + [d for t in m.graph.initializer for d in t.dims]


VALID = f"'{KILN}' check \"$1\" >&2 || exit 0; "
w = np.random.default_rng(0).standard_normal((12, 12)).astype(np.float32)
chain = [N("Relu", ["x"], ["a"]), N("MatMul", ["a", "w"], ["b"]), N("Tanh", ["b"], ["c"]), N("Softmax", ["c"], ["d"]), N("Add", ["d", "a"], ["e"]),
         N("Exp", ["c"], ["other"])]
long = chain + [N("Sigmoid", [f"s{i}" if i else "e"], [f"s{i + 1}"]) for i in range(20)]
deep = model(long, [("x", [6, 12])], ["s20", "other"], [("w", w)])

r, code, said = reduce(deep, VALID + "grep -q MatMul $1 && exit 3; exit 0")
check("a product alone: exit code", code == 0)
check("a product alone", r and ops(r) == ["MatMul"] and len(r.graph.output) == 1)
check("the smallest extents", r and set(extents(r)) == {1})
if r:
    onnx.checker.check_model(r)

r, code, said = reduce(deep, VALID + "grep -q MatMul $1 && grep -q Softmax $1 && exit 3; exit 0")
check("what lies between stays", r and ops(r) == ["MatMul", "Tanh", "Softmax"])
r, code, said = reduce(deep, "grep -q Softmax $1 && kill -SEGV $$; exit 0")
check("a signal", r and ops(r) == ["Softmax"])
r, code, said = reduce(deep, "grep -q Softmax $1 && exit 3; grep -q MatMul $1 && exit 4; exit 0")
check("another exit code is another failure", r and ops(r) == ["Softmax"])
r, code, said = reduce(deep, "grep -q Tanh $1 && echo the message; exit 1", "--match", "the message")
check("what the command prints", r and ops(r) == ["Tanh"])
r, code, said = reduce(deep, "exit 0")
check("a command that is right", r is None and code == 1 and "must fail on the whole model" in said)
r, code, said = reduce(model(chain, [("x", ["rows", 12])], ["e", "other"], [("w", w)]), VALID + "grep -q Softmax $1 && exit 3; exit 0")
check("a named dimension", r and "Softmax" in ops(r) and len(ops(r)) <= 4)


def branch(name, op):
    return h.make_graph([N(op, ["a"], [name])], name, [], [h.make_tensor_value_info(name, 1, [4])])


body = h.make_graph([N("Tanh", ["s"], ["t"]), N("Identity", ["go"], ["on"])], "body",
                    [h.make_tensor_value_info("i", 7, []), h.make_tensor_value_info("go", 9, []), h.make_tensor_value_info("s", 1, [4])],
                    [h.make_tensor_value_info("on", 9, []), h.make_tensor_value_info("t", 1, [4])])
nested = model([N("Relu", ["x"], ["a"]), N("If", ["c"], ["b"], then_branch=branch("p", "Tanh"), else_branch=branch("q", "Erf")),
                N("Loop", ["n", "c", "b"], ["y"], body=body)], [("x", [4])], ["y"], [("c", True), ("n", np.int64(3))])
r, code, said = reduce(nested, VALID + "grep -q Erf $1 && exit 3; exit 0")
check("a branch in place of If and Loop", r and ops(r) == ["Erf"])
if r:
    onnx.checker.check_model(r)

for arguments in (["m.onnx"], ["m.onnx", "--"], ["m.onnx", "--no-such", "--", "true"]):
    check(f"usage: {arguments}", subprocess.run([KILN, "reduce", *arguments], capture_output=True).returncode == 2)
print(f"reduce: {failed} failed")
sys.exit(bool(failed))
