#!/usr/bin/env python3
"""Attention as PyTorch's exporter writes it: softmax whose NaNs, of rows without a key, become 0 (Softmax, IsNaN, Where), in front
of the product with the values. Random shapes, with masks that are added or chosen by, constants and inputs, that leave rows
without any key, or without masks. Each is compiled for every kind of target and judged by the reference interpreter; for GPUs
with tensor cores it must be one kernel.

usage: safe_softmax.py KILN      needs numpy and onnx. KILN_SEED in the environment: others
"""
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

TARGETS = (("cpu", "f32"), ("opencl", "f32"), ("sim:cuda:sm_90a", "f16"))
MASKS = ("none", "causal", "constant", "added", "chosen", "row")


def attention(rng, batch, heads, queries, keys, depth, mask):
    """softmax(Q K^T / sqrt(depth) + mask), its NaNs 0, by V; and what it is given."""
    f32, b8 = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL
    given = [helper.make_tensor_value_info(n, f32, s) for n, s in
             (("q", (batch, heads, queries, depth)), ("k", (batch, heads, keys, depth)), ("v", (batch, heads, keys, depth)))]
    constants, nodes = [], []

    def constant(array, name):
        constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(op, *inputs, **attributes):
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    scores = add("MatMul", add("Mul", "q", constant(np.float32(depth**-0.5), "scale")), add("Transpose", "k", perm=[0, 1, 3, 2]))
    hidden = constant(np.float32(-np.inf), "hidden")
    if mask == "causal":
        scores = add("Where", constant(np.tril(np.ones((queries, keys), bool), keys - queries), "mask"), scores, hidden)
    if mask == "constant":  # some rows have no key
        visible = rng.random((1, 1, queries, keys)) < 0.5
        visible[..., rng.integers(queries), :] = False
        scores = add("Where", constant(visible, "mask"), scores, hidden)
    if mask == "added":
        given.append(helper.make_tensor_value_info("m", f32, (batch, 1, queries, keys)))
        scores = add("Add", scores, add("Where", add("Greater", "m", constant(np.float32(0), "zero")), "m", hidden))
    if mask == "chosen":  # keys by batch: what is there of a sequence
        given.append(helper.make_tensor_value_info("m", b8, (batch, 1, 1, keys)))
        scores = add("Where", "m", scores, hidden)
    if mask == "row":
        given.append(helper.make_tensor_value_info("m", f32, (queries, 1)))
        scores = add("Where", add("Greater", "m", constant(np.float32(0), "zero")), scores, hidden)
    weights = add("Softmax", scores, axis=-1)
    weights = add("Where", add("IsNaN", weights), constant(np.float32(0), "nothing"), weights)
    result = add("Transpose", add("MatMul", weights, "v"), perm=[0, 2, 1, 3])
    graph = helper.make_graph(nodes, "safe", given, [helper.make_tensor_value_info(result, f32, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def main():
    kiln, seed = sys.argv[1], int(os.environ.get("KILN_SEED", 7))
    wrong = n = 0
    for turn, number in enumerate(share.some(range(36))):  # every kind of mask, whatever the share
        rng, mask = np.random.default_rng([seed, number]), MASKS[turn % len(MASKS)]
        shape = [int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(3, 40)), int(rng.integers(40, 70)), 16 * int(rng.integers(1, 4))]
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(attention(rng, *shape, mask), f"{folder}/m.onnx")
            for target, dtype in TARGETS:
                command = [kiln, "run", f"{folder}/m.onnx", f"--target={target}", "--reference", "--no-cache"]
                command += [f"--dtype={dtype}"] if dtype != "f32" else []
                done = subprocess.run(command, capture_output=True, text=True, errors="replace")
                n += 1
                if done.returncode and "no OpenCL driver" in done.stderr:
                    n -= 1
                elif done.returncode:
                    wrong += 1
                    print(f"FAILED {mask} {shape} {target}: exit code {done.returncode}: {(done.stderr + done.stdout)[-300:]}")
            command = [kiln, "compile", f"{folder}/m.onnx", "--target=cuda:sm_90a", "--dtype=f16", "--no-cache", "--dump=plan"]
            plan = subprocess.run(command, capture_output=True, text=True).stdout
            n += 1
            if "_stream_" not in plan:
                wrong += 1
                print(f"FAILED {mask} {shape}: must be attention in one kernel, got {plan[:400]}")
    print(f"{n - wrong} passed, {wrong} failed")
    return 1 if wrong or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
