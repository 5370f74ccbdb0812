#!/usr/bin/env python3
"""Attention as PyTorch's exporter writes it: softmax whose NaNs, of rows without a key, become 0 (Softmax, IsNaN, Where), in front
of the product with the values. Random shapes, with masks that are added or chosen by, constants and inputs, that leave rows
without any key, or without masks. Each is compiled for every kind of target and judged by the reference interpreter; for GPUs
with tensor cores it must be one kernel.

usage: safe_softmax.py KILN      needs numpy and onnx. KILN_SEED in the environment: others
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import judged  # noqa: E402
import share  # noqa: E402
import numpy as np  # noqa: E402
from onnx import TensorProto  # noqa: E402

TARGETS = (("cpu", "f32"), ("opencl", "f32"), ("sim:cuda:sm_90a", "f16"))
MASKS = ("none", "causal", "constant", "added", "chosen", "row")


def attention(rng, batch, heads, queries, keys, depth, mask):
    """softmax(Q K^T / sqrt(depth) + mask), its NaNs 0, by V."""
    m = judged.Model(rng)
    q, k, v = (m.input(batch, heads, n, depth, name=name) for name, n in (("q", queries), ("k", keys), ("v", keys)))
    scores = m.add("MatMul", m.add("Mul", q, m.constant(np.float32(depth**-0.5))), m.add("Transpose", k, perm=[0, 1, 3, 2]))
    hidden, zero = m.constant(np.float32(-np.inf)), m.constant(np.float32(0))
    if mask == "causal":
        scores = m.add("Where", m.constant(np.tril(np.ones((queries, keys), bool), keys - queries)), scores, hidden)
    if mask == "constant":  # some rows have no key
        visible = rng.random((1, 1, queries, keys)) < 0.5
        visible[..., rng.integers(queries), :] = False
        scores = m.add("Where", m.constant(visible), scores, hidden)
    if mask == "added":
        given = m.input(batch, 1, queries, keys)
        scores = m.add("Add", scores, m.add("Where", m.add("Greater", given, zero), given, hidden))
    if mask == "chosen":  # keys by batch: what is there of a sequence
        scores = m.add("Where", m.input(batch, 1, 1, keys, elem=TensorProto.BOOL), scores, hidden)
    if mask == "row":
        scores = m.add("Where", m.add("Greater", m.input(queries, 1), zero), scores, hidden)
    weights = m.add("Softmax", scores, axis=-1)
    weights = m.add("Where", m.add("IsNaN", weights), zero, weights)
    m.add("Transpose", m.add("MatMul", weights, v), perm=[0, 2, 1, 3])
    return m


def main():
    judge = judged.Judge()
    for turn, number in enumerate(share.some(range(36))):  # every kind of mask, whatever the share
        rng, mask = np.random.default_rng([judged.SEED, number]), MASKS[turn % len(MASKS)]
        shape = [int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(3, 40)), int(rng.integers(40, 70)), 16 * int(rng.integers(1, 4))]
        with judged.saved(attention(rng, *shape, mask)) as path:
            for target, dtype in TARGETS:
                judge.run(path, f"{mask} {shape}", target, dtype)
            plan, why = judge.plan(path, "cuda:sm_90a", "f16")
            judge.check(plan and "_stream_" in plan, f"{mask} {shape}: must be attention in one kernel, got {why or plan[:400]}")
    judge.end()


if __name__ == "__main__":
    main()
