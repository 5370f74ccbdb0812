# SPDX-License-Identifier: Apache-2.0
"""Decoders with a paged cache: rows of a batch have lengths of their own, and join and leave between steps."""
from __future__ import annotations

import dataclasses
import os
from typing import Optional, Union

import onnx

from . import rewriting

INT64 = onnx.TensorProto.INT64
LAST = "last_token"  # the tensor (batch,) of each row's last token in a run, for with_sampling(positions=LAST)
FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


@dataclasses.dataclass
class _Cache:
    """An input that an output continues: present = Concat(past, new)."""

    past: onnx.ValueInfoProto
    present: onnx.ValueInfoProto
    new: str
    axis: int  # of the tokens

    @property
    def others(self) -> list[int]:
        """The axes but those of the rows and the tokens."""
        return [a for a in range(1, len(rewriting.shape_of(self.past))) if a != self.axis]


def paged(
    model: Union[onnx.ModelProto, str, "os.PathLike[str]"],
    *,
    block_size: int = 16,
    ids: str = "input_ids",
    mask: str = "attention_mask",
    positions: Optional[str] = "position_ids",
) -> onnx.ModelProto:
    """A copy of a decoder's model whose caches are pools of blocks (blocks, block_size, heads, dim).

    A cache is an input that an output continues, present = Concat(past, new). Both become the pool, before a run
    and after it, of the same names. The inputs `mask` (batch, past + tokens) and `positions` (batch, tokens)
    go, and there are, of int64,

    lengths  (batch,)        tokens of the row in the cache
    counts   (batch,)        of the row's new tokens those that are some; the others are padding behind them
    table    (batch, pages)  the row's blocks, in the order of its tokens: enough for lengths + counts

    Block 0 belongs to nobody: padding is written there, and tables are filled up with it. Positions None: the model
    finds them by the mask. Logits of padding mean nothing; the last token of a row is number counts - 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size: must be positive, got {block_size}")
    made = rewriting.copy_of(model)
    caches = _find_caches(made.graph)
    ports = {name: rewriting.port(made.graph.input, name, "input") for name in (ids, mask, positions) if name}
    axes = rewriting.shape_of(ports[ids])
    if len(axes) != 2 or axes[0] != rewriting.shape_of(caches[0].past)[0]:
        raise ValueError(f"{ids}: must be (batch, tokens), its batch that of the caches, got {tuple(axes)}")
    if not positions:
        _refuse_counted_positions(made.graph)
    front, back = rewriting.Builder(made, "paged"), rewriting.Builder(made, "written")
    for name in (mask, positions):
        if name:
            made.graph.input.remove(ports[name])
    slots, places = _add_places(front, axes, block_size, ids, mask, positions, ports)
    for cache in caches:
        _page(front, back, cache, block_size, slots, places)
    front.finish(in_front=True)
    back.finish()
    del made.graph.value_info[:]
    return made


def _find_caches(graph: onnx.GraphProto) -> list[_Cache]:
    made = {out: node for node in graph.node for out in node.output}
    inputs = {value.name: value for value in graph.input}
    caches = []
    for value in graph.output:
        node = made.get(value.name)
        while node is not None and node.op_type == "Identity":
            node = made.get(node.input[0])
        if node is None or node.op_type != "Concat" or len(node.input) != 2 or node.input[0] not in inputs:
            continue
        past = inputs[node.input[0]]
        rank = len(rewriting.shape_of(past))
        axis = next(a.i for a in node.attribute if a.name == "axis") % max(rank, 1)
        cache = _Cache(past, value, node.input[1], axis)
        sizes = [rewriting.shape_of(past)[a] for a in cache.others]
        if axis == 0 or not all(isinstance(n, int) for n in sizes):
            raise ValueError(f"{past.name}: must be (batch, ..., past, ...), its other extents numbers, got {tuple(sizes)}")
        caches.append(cache)
    if not caches:
        raise ValueError("model: an output must be Concat(INPUT, ...), as of a cache and the new keys, got none")
    return caches


def _refuse_counted_positions(graph: onnx.GraphProto) -> None:
    """Positions that are counted from extents are those of the longest row: numbers of a Range that become floats or choose
    rows of a table. What compares them, as a causal mask does, is right, as rows end where the longest ends."""
    tables = {t.name for t in graph.initializer if t.data_type in FLOATS}
    counted: set[str] = set()
    for node in graph.node:
        if node.op_type == "Range":
            counted.update(node.output)
        is_counted = [name in counted for name in node.input]
        if not any(is_counted) or node.op_type in COMPARISONS:
            continue
        to = next((a.i for a in node.attribute if a.name == "to"), None)
        chooses = node.op_type in ("Gather", "GatherND", "GatherElements")
        if (node.op_type == "Cast" and to in FLOATS) or (chooses and node.input[0] in tables and is_counted[1]):
            raise ValueError(
                f"positions: must be an input of the model or follow from the mask, got some that node {node.name} ({node.op_type})"
                " counts: export it with positions (--position-ids)"
            )
        if (is_counted[0] or len(node.input) == 2) and not chooses:
            counted.update(node.output)


def _add_places(
    b: rewriting.Builder, axes: list, block_size: int, ids: str, mask: str, positions: Optional[str], ports: dict
) -> tuple[str, str]:
    """Adds the inputs, the mask and the positions. Gives the slots of the cached tokens in a pool (batch, past), those of a row
    behind the padding in front of it, and where the new ones go: (batch, tokens, 2), block and offset."""
    batch, zero, one = axes[0], b.constant(0), b.constant(1)
    first_axis, last_axis, size = b.constant([0]), b.constant([1]), b.constant(block_size)
    lengths = b.add("Unsqueeze", b.input("lengths", INT64, [batch]), last_axis)
    counts = b.input("counts", INT64, [batch])
    table = b.input("table", INT64, [batch, "pages"])
    n_pages = b.add("Squeeze", b.add("Shape", table, start=1, end=2), first_axis)
    n_tokens = b.add("Squeeze", b.add("Shape", ids, start=1, end=2), first_axis)
    past = b.add("Mul", n_pages, size)
    old = b.add("Unsqueeze", b.add("Range", zero, past, one), first_axis)
    new = b.add("Unsqueeze", b.add("Range", zero, n_tokens, one), first_axis)
    # The cached tokens of a row end where those of the longest end, so that distances are the tokens'.
    number = b.add("Sub", old, b.add("Sub", past, lengths))
    is_old = b.add("GreaterOrEqual", number, zero)
    number = b.where(is_old, number, zero)
    slots = b.add("Add", b.add("Mul", _block(b, table, number, size), size), b.add("Mod", number, size))
    # A row of padding alone still looks at one token: there is no mean of none.
    shown = b.add("Unsqueeze", b.add("Max", counts, one), last_axis)
    kind = ports[mask].type.tensor_type.elem_type
    seen = b.add("Concat", is_old, b.add("Less", b.add("Add", new, b.add("Mul", lengths, zero)), shown), axis=1)
    b.add("Cast", seen, to=kind, out=mask)
    at = b.add("Add", lengths, new)
    if positions:
        b.add("Cast", at, to=ports[positions].type.tensor_type.elem_type, out=positions)
    is_new = b.add("Less", new, b.add("Unsqueeze", counts, last_axis))
    at = b.where(is_new, at, zero)
    block = b.where(is_new, _block(b, table, at, size), zero)
    places = [b.add("Unsqueeze", x, b.constant([2])) for x in (block, b.add("Mod", at, size))]
    b.add("Sub", b.add("Max", counts, one), one, out=LAST)
    return slots, b.add("Concat", *places, axis=2)


def _block(b: rewriting.Builder, table: str, number: str, size: str) -> str:
    return b.add("GatherElements", table, b.add("Div", number, size), axis=1)


def _page(
    front: rewriting.Builder, back: rewriting.Builder, cache: _Cache, block_size: int, slots: str, places: str
) -> None:
    """Makes the pool of the cache's ports: what is cached is gathered from it, what is new written to it."""
    graph, name = front.graph, cache.past.name
    shape, kind = rewriting.shape_of(cache.past), cache.past.type.tensor_type.elem_type
    order = [0, cache.axis, *cache.others]  # of a pool's rows, beside those of the cache
    sizes = [shape[a] for a in cache.others]
    for values, port in ((graph.input, cache.past), (graph.output, cache.present)):
        values.remove(port)
    pool = front.input(f"{name}", kind, ["blocks", block_size, *sizes])
    old = front.name("past")
    for node in graph.node:
        for i, given in enumerate(node.input):
            if given == name:
                node.input[i] = old
    flat = front.add("Reshape", pool, front.constant([-1, *sizes]))
    rows = front.add("Gather", flat, slots, axis=0)
    front.add("Transpose", rows, perm=[order.index(a) for a in range(len(order))], out=old)
    whole = back.name("present")  # what attention reads
    for node in graph.node:
        for names in (node.input, node.output):
            for i, given in enumerate(names):
                if given == cache.present.name:
                    names[i] = whole
    new = back.add("Transpose", cache.new, perm=order)
    back.add("ScatterND", pool, places, new, out=cache.present.name)
    back.output(cache.present.name, kind, ["blocks", block_size, *sizes])
