# SPDX-License-Identifier: Apache-2.0
"""Graphs of models by PyTorch's two exporters."""
from __future__ import annotations

import contextlib
import pathlib
import warnings
from typing import Any, Iterator

import onnx
import torch

from . import EXAMPLE, Exported, graphs, rewriting


def _example(graph: graphs.Graph) -> tuple[torch.Tensor, ...]:
    return tuple(graph.make_inputs(EXAMPLE).values())


def _named_axes(ports: list[graphs.Port]) -> dict[str, dict[int, str]]:
    return {p.name: {i: a for i, a in enumerate(p.axes) if isinstance(a, str)} for p in ports}


@contextlib.contextmanager
def _no_packed_sequences() -> Iterator[None]:
    """Models without a mask of the user's look for sequences packed in a row: by operators that tracing cannot export."""
    from transformers import masking_utils

    find = getattr(masking_utils, "find_packed_sequence_indices", None)
    if find is None:
        yield
        return
    masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = find


def _torchscript(graph: graphs.Graph, path: pathlib.Path, opset: int) -> onnx.ModelProto:
    with _no_packed_sequences():
        torch.onnx.export(
            graph.module, _example(graph), str(path), dynamo=False, opset_version=opset,
            input_names=[p.name for p in graph.inputs], output_names=[p.name for p in graph.outputs],
            dynamic_axes=_named_axes(graph.inputs + graph.outputs),
        )  # fmt: skip
    return onnx.load(path)


def _dynamo(graph: graphs.Graph, path: pathlib.Path, opset: int) -> onnx.ModelProto:
    named = list(_named_axes(graph.inputs).values())
    arguments = _count_named(graph.module)
    shapes: Any = tuple(named[:arguments]) + ((tuple(named[arguments:]),) if len(named) > arguments else ())
    program = torch.onnx.export(
        graph.module, _example(graph), dynamo=True, opset_version=opset, dynamic_shapes=shapes,
        input_names=[p.name for p in graph.inputs], output_names=[p.name for p in graph.outputs], verbose=False,
    )  # fmt: skip
    return program.model_proto


def _count_named(module: torch.nn.Module) -> int:
    """How many arguments the module has by name, before those of *past."""
    code = module.forward.__func__.__code__
    return code.co_argcount - 1


def _set_axes(values: Any, ports: list[graphs.Port]) -> None:
    """Gives the axes of inputs and outputs their names; exporters make up others."""
    by_name = {p.name: p for p in ports}
    for value in values:
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for axis in by_name[value.name].axes:
            dim = shape.dim.add()
            if isinstance(axis, str):
                dim.dim_param = axis
            else:
                dim.dim_value = axis


def write_graph(graph: graphs.Graph, path: pathlib.Path, exporter: str, opset: int) -> Exported:
    """Exports one graph to |path|, with its weights in |path|.data."""
    most = {"torchscript": 20, "dynamo": 23}[exporter]
    made = min(opset, most)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        model = (_torchscript if exporter == "torchscript" else _dynamo)(graph, path, made)
    if opset > made:
        from onnx import version_converter

        model = version_converter.convert_version(model, opset)
    _set_axes(model.graph.input, graph.inputs)
    _set_axes(model.graph.output, graph.outputs)
    rewriting.save(model, path)
    return Exported(path, graph)
