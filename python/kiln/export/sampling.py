# SPDX-License-Identifier: Apache-2.0
"""Sampling as a part of a decoder's graph: a step gives tokens, and its caller does no arithmetic."""
from __future__ import annotations

import collections
import os
from typing import Optional, Union

import numpy as np
import onnx

from . import rewriting

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
# What acts on each token's vector alone, when its other operands are vectors or numbers: the token may be taken before.
POINTWISE = {
    "Add", "Sub", "Mul", "Div", "Tanh", "Cast", "Identity", "Neg", "Relu", "Sigmoid", "Clip", "Sqrt", "Pow", "Erf",
}  # fmt: skip
PRODUCTS = {("", "MatMul"), ("ai.onnx", "MatMul"), ("com.microsoft", "MatMulNBits")}  # by a matrix


def with_sampling(
    model: Union[onnx.ModelProto, str, "os.PathLike[str]"],
    logits: str = "logits",
    *,
    most_k: int = 64,
    positions: str = "last",
    keep_logits: bool = False,
) -> onnx.ModelProto:
    """A copy of a decoder's model that gives tokens in place of its logits (batch, tokens, vocabulary).

    Its output is `token` (batch, 1): of the last position, of the one that `positions` says (a tensor (batch,) of the graph, or
    a new input), or with positions "each" of every one: (batch, tokens). Its further inputs are, for each row of the batch,

    temperature  0: the likeliest token; else logits are divided by it
    top_k        tokens that are left: of the likeliest ones, `most_k` at most; 0: `most_k`
    top_p        of those: as few of the likeliest as have this share of their probability, at least one
    uniform      (batch, 1 or tokens), in [0, 1): chooses among these by their probabilities

    so one step may serve requests of any kinds, and has the same tokens whenever it has the same numbers. Of equal
    logits the first is the likelier. Operators are ONNX's own, of opset 18 or later.
    """
    made = rewriting.copy_of(model)
    value = rewriting.port(made.graph.output, logits, "logits")
    shape = rewriting.shape_of(value)
    if len(shape) != 3 or not isinstance(shape[2], int):
        raise ValueError(f"{logits}: must be (batch, tokens, vocabulary), its vocabulary a number, got {tuple(shape)}")
    if not 1 <= most_k <= shape[2]:
        raise ValueError(f"most_k: must be 1 to {shape[2]}, the vocabulary, got {most_k}")
    b = rewriting.Builder(made, "sampling")
    rows, taken = logits, shape[1]
    if positions != "each":
        rows, taken = _take(b, logits, shape, positions, keep_logits), 1
    if value.type.tensor_type.elem_type != FLOAT:
        rows = b.add("Cast", rows, to=FLOAT)
    _choose(b, rows, [shape[0], taken], most_k)
    if not keep_logits:
        made.graph.output.remove(value)
    b.output("token", INT64, [shape[0], taken])
    b.finish()
    return made


def _take(b: rewriting.Builder, logits: str, shape: list, positions: str, keep_logits: bool) -> str:
    """One position's logits (batch, 1, vocabulary), taken as early as the graph's algebra allows."""
    at, behind = _earliest(b.graph, logits) if not keep_logits else (logits, [])
    if positions == "last":
        taken = b.add("Slice", at, b.constant([-1]), b.constant([np.iinfo(np.int64).max]), b.constant([1]))
    else:
        if positions not in b.tensors:
            b.input(positions, INT64, [shape[0]])
        where = b.add("Unsqueeze", positions, b.constant([1]))
        taken = b.add("GatherND", at, where, batch_dims=1)
        taken = b.add("Unsqueeze", taken, b.constant([1]))
    renamed = {at: taken}
    for node in behind:  # again, for the token alone
        inputs = [renamed.get(name, name) for name in node.input]
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.name, copied.input[:], copied.output[:] = b.name(node.op_type), inputs, [b.name(node.op_type)]
        renamed[node.output[0]] = copied.output[0]
        b.nodes.append(copied)
        b.graph.node.remove(node)
    return renamed.get(logits, taken)


def _constant_ranks(graph: onnx.GraphProto) -> dict[str, int]:
    ranks = {t.name: len(t.dims) for t in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            ranks[node.output[0]] = next((len(a.t.dims) for a in node.attribute if a.name == "value"), 0)
        elif node.op_type in ("Transpose", "Identity", "Cast", "DequantizeLinear") and node.input[0] in ranks:
            ranks[node.output[0]] = ranks[node.input[0]]
    return ranks


def _token_operand(node: onnx.NodeProto, ranks: dict[str, int]) -> Optional[str]:
    """The operand of a node that acts on each token's vector of it alone."""
    if (node.domain, node.op_type) not in PRODUCTS and (node.domain not in ("", "ai.onnx") or node.op_type not in POINTWISE):
        return None
    moving = [name for name in node.input if name and name not in ranks]
    if len(moving) != 1 or len(node.output) != 1:
        return None
    if (node.domain, node.op_type) in PRODUCTS:
        return moving[0] if node.input[0] == moving[0] and ranks.get(node.input[1]) == (3 if node.domain == "com.microsoft" else 2) else None
    return moving[0] if all(ranks.get(name, 0) <= 1 for name in node.input) else None


def _earliest(graph: onnx.GraphProto, logits: str) -> tuple[str, list[onnx.NodeProto]]:
    """The first tensor of those that lead to the logits by nodes that act on each token alone, and these nodes."""
    made = {out: node for node in graph.node for out in node.output}
    ranks, outputs = _constant_ranks(graph), {value.name for value in graph.output}
    uses = collections.Counter(name for node in graph.node for name in node.input)
    at, behind = logits, []
    while at in made and uses[at] == (1 if behind else 0) and (not behind or at not in outputs):
        before = _token_operand(made[at], ranks)
        if before is None:
            break
        behind.insert(0, made[at])
        at = before
    return at, behind


def _choose(b: rewriting.Builder, rows: str, shape: list, most_k: int) -> None:
    """Adds the output `token` of logits (batch, tokens, vocabulary)."""
    per_row = [
        b.add("Unsqueeze", b.input(name, dtype, [shape[0]]), b.constant([1, 2]))
        for name, dtype in (("temperature", FLOAT), ("top_k", INT64), ("top_p", FLOAT))
    ]
    temperature, top_k, top_p = per_row
    uniform = b.add("Unsqueeze", b.input("uniform", FLOAT, shape), b.constant([2]))
    zero, one = b.constant(0.0, np.float32), b.constant(1.0, np.float32)
    values, indices = b.add("TopK", rows, b.constant([most_k]), n_out=2)
    first = b.add("Slice", values, b.constant([0]), b.constant([1]), b.constant([2]))
    is_greedy = b.add("LessOrEqual", temperature, zero)
    scale = b.where(is_greedy, one, temperature)
    likely = b.add("Exp", b.add("Div", b.add("Sub", values, first), scale))
    # The first top_k of them, and none but the first where the temperature is 0.
    ranks, all_of_them = b.constant(np.arange(most_k)[None, None]), b.constant(most_k)
    is_limited = b.add("Greater", top_k, b.constant(0))
    limit = b.where(is_greedy, b.constant(1), b.where(is_limited, top_k, all_of_them))
    weights = b.where(b.add("Less", ranks, limit), likely, zero)
    # Those in front of which there is less than top_p of the whole; there is nothing in front of the first.
    total = b.add("ReduceSum", weights, b.constant([2]), keepdims=1)
    before = b.add("CumSum", weights, b.constant(2), exclusive=1)
    is_left = b.add("Or", b.add("Less", before, b.add("Mul", top_p, total)), b.add("Equal", ranks, b.constant(0)))
    weights = b.where(is_left, weights, zero)
    # The last of those in front of which there is at most uniform of their sum.
    before = b.add("CumSum", weights, b.constant(2), exclusive=1)
    bound = b.add("Mul", uniform, b.add("ReduceSum", weights, b.constant([2]), keepdims=1))
    is_reached = b.add("And", b.add("LessOrEqual", before, bound), b.add("Greater", weights, zero))
    reached = b.where(is_reached, ranks, b.constant(0))
    place = b.add("ReduceMax", reached, b.constant([2]), keepdims=1)
    b.add("Squeeze", b.add("GatherElements", indices, place, axis=2), b.constant([2]), out="token")
