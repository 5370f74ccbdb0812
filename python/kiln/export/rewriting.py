# SPDX-License-Identifier: Apache-2.0
"""Nodes that are added to an ONNX graph, and the ports that a graph has."""
from __future__ import annotations

import os
import pathlib
from typing import Any, Union

import numpy as np
import onnx
from onnx import helper, numpy_helper

LEAST_OPSET = 18  # the first in which axes of all reductions are inputs

Dim = Union[int, str]


def copy_of(model: Union[onnx.ModelProto, str, Any]) -> onnx.ModelProto:
    """A model of a ModelProto, which stays as it is, or of a file."""
    if isinstance(model, onnx.ModelProto):
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
    else:
        copied = onnx.load(model)
    opset = next((o.version for o in copied.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset < LEAST_OPSET:
        raise ValueError(f"model: opset must be {LEAST_OPSET} or later, got {opset}")
    return copied


def shape_of(value: onnx.ValueInfoProto) -> list[Dim]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def port(values: Any, name: str, what: str) -> onnx.ValueInfoProto:
    for value in values:
        if value.name == name:
            return value
    raise ValueError(f"{what}: must be one of {', '.join(v.name for v in values)}, got {name}")


class Builder:
    """Adds nodes to a graph, behind its own. Names begin with a word that no name of the graph begins with."""

    def __init__(self, model: onnx.ModelProto, word: str):
        self.graph = model.graph
        taken = {n for node in self.graph.node for n in (node.name, *node.input, *node.output)}
        taken |= {v.name for v in (*self.graph.input, *self.graph.output)} | {t.name for t in self.graph.initializer}
        self.tensors = taken
        while any(name.startswith(word + ".") for name in taken):
            word += "_"
        self.word, self.count, self.nodes = word, 0, []

    def name(self, of: str) -> str:
        self.count += 1
        return f"{self.word}.{self.count}.{of}"

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = self.name("constant")
        self.graph.initializer.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def add(self, op: str, *inputs: str, out: Any = None, n_out: int = 1, **attributes: Any) -> Any:
        """A node's output; several as a tuple."""
        outputs = [out or self.name(op) for _ in range(n_out)]
        self.nodes.append(helper.make_node(op, inputs, outputs, self.name(op), **attributes))
        return outputs[0] if n_out == 1 else tuple(outputs)

    def input(self, name: str, dtype: int, shape: list) -> str:
        for value in self.graph.input:
            if value.name == name:
                raise ValueError(f"input {name}: must not be there already")
        self.graph.input.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: int, shape: list) -> None:
        self.graph.output.append(helper.make_tensor_value_info(name, dtype, shape))

    def where(self, condition: str, yes: str, no: str) -> str:
        return self.add("Where", condition, yes, no)

    def finish(self, in_front: bool = False) -> None:
        """Puts the nodes behind the graph's own, or in front of them."""
        own = list(self.graph.node) if in_front else []
        if in_front:
            del self.graph.node[:]
        self.graph.node.extend([*self.nodes, *own])
        self.nodes = []


def save(model: onnx.ModelProto, path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes a model, and its large tensors to a file beside it, of the same name and .data."""
    path = pathlib.Path(path)
    data = path.name + ".data"
    for stale in (path, path.parent / data):
        stale.unlink(missing_ok=True)
    written = onnx.ModelProto()  # saving makes references to files of the large tensors
    written.CopyFrom(model)
    onnx.save(written, path, save_as_external_data=True, location=data, size_threshold=1024)
