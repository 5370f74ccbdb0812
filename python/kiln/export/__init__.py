# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs of language models of transformers, as a user's exporter makes them: python -m kiln.export --help.

Needs torch, transformers, onnx and onnxscript; with exporter "genai" onnxruntime-genai instead of onnxscript.
"""
from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import warnings
from typing import Any, Iterator, Optional, Union

import onnx
import torch

from . import configs, graphs

EXPORTERS = ("dynamo", "torchscript", "genai")
OPSETS = range(18, 25)
RANGES = {"batch": (1, 8), "source": (1, 512), "tokens": (1, 512), "past": (0, 4096)}
SUMS = {"kv": "past+tokens"}
EXAMPLE = {"batch": 2, "source": 6, "tokens": 3, "past": 5}  # tracing takes 0 and 1 for constants


@dataclasses.dataclass
class Exported:
    """A graph that was written, and what it is to compute."""

    path: pathlib.Path
    graph: graphs.Graph

    def dim_options(self, ranges: dict[str, tuple[int, int]]) -> list[str]:
        """Options of `kiln compile`, as ["--dim", "batch=1..8", ...]."""
        out = []
        for dim in self.graph.dims:
            if dim in SUMS:
                out += ["--dim", f"{dim}={SUMS[dim]}"]
            else:
                least, most = ranges.get(dim, RANGES[dim])
                out += ["--dim", f"{dim}={least}..{most}" if least != most else f"{dim}={most}"]
        return out


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


def _save(model: onnx.ModelProto, path: pathlib.Path) -> None:
    data = path.name + ".data"
    for stale in (path, path.parent / data):
        stale.unlink(missing_ok=True)
    onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=1024)


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
    _save(model, path)
    return Exported(path, graph)


def export(
    model: str,
    directory: Union[str, "os.PathLike[str]"],
    *,
    tiny: bool = False,
    sizes: Optional[dict[str, int]] = None,
    weights: Optional[str] = None,
    seed: int = 1,
    exporter: str = "dynamo",
    opset: int = 18,
    with_cache: bool = True,
    attention: str = "sdpa",
    precision: str = "fp32",
) -> list[Exported]:
    """Writes the graphs of |model| into |directory|; the decoder is the first."""
    if exporter not in EXPORTERS:
        raise ValueError(f"exporter: must be one of {', '.join(EXPORTERS)}, got {exporter}")
    if opset not in OPSETS:
        raise ValueError(f"opset: must be {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    config = configs.make_config(model, tiny, sizes or {})
    if weights is None and pathlib.Path(model).is_dir() and any(pathlib.Path(model).glob("*.safetensors")):
        weights = model
    module = configs.make_model(config, weights, seed, attention)
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    if exporter == "genai":
        from . import genai

        path, graph = genai.build(module, config, folder, precision)
        return [Exported(path, graph)]
    config.to_json_file(folder / "config.json")
    return [write_graph(g, folder / f"{g.name}.onnx", exporter, opset) for g in graphs.graphs_of(module, config, with_cache)]
