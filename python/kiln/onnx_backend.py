# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend interface: `kiln.onnx_backend.prepare(model).run(inputs)`.

Models are compiled at their first run, when the lengths of sequences and shapes given as inputs are
known. Inputs that must be known when compiling are bound as constants.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from . import errors
from ._compile import compile as _compile
from .module import Module


def _is_list(value) -> bool:
    return value is None or isinstance(value, (list, tuple))


def _kind(value_info) -> str:
    return value_info.type.WhichOneof("value") or ""


def _is_sequence(kind) -> bool:
    if kind.WhichOneof("value") == "optional_type":
        return _is_sequence(kind.optional_type.elem_type)
    return kind.WhichOneof("value") == "sequence_type"


@dataclasses.dataclass
class _Given:
    """Inputs by Kiln's names: a sequence "x" is "x[0]", "x[1]", ..."""

    arrays: dict[str, np.ndarray]
    lengths: dict[str, int]
    shapes: dict[str, tuple]


# The inputs that become constants, from try to try: as few as possible.
_BINDINGS = (
    lambda i, x: False,
    lambda i, x: x.dtype.kind in "iub" and x.ndim <= 1 and i > 0,
    lambda i, x: x.size <= 16 and x.ndim <= 1 and i > 0,
    lambda i, x: x.dtype.kind in "iub" or x.size <= 16,
    lambda i, x: i > 0,
)


class Prepared(BackendRep):
    """A prepared model; `module` is that of the last run."""

    def __init__(self, model: onnx.ModelProto, target: Optional[str], options: dict):
        self.model, self.target, self.options = model, target, options
        self.inputs = list(model.graph.input)
        self.module: Optional[Module] = None
        self._modules: dict = {}

    def _given(self, inputs: Sequence[Any]) -> _Given:
        given = _Given({}, {}, {})
        defaults = {t.name for t in self.model.graph.initializer}
        ports = [p for p in self.inputs if p.name not in defaults]
        if len(inputs) > len(ports):
            ports = self.inputs
        for port, value in zip(ports, inputs):
            if not _is_list(value) and _kind(port) not in ("sequence_type", "optional_type"):
                given.arrays[port.name] = np.asarray(value)
                continue
            parts = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
            given.lengths[port.name] = -1 if value is None else len(parts)
            for k, part in enumerate(parts):
                name = f"{port.name}[{k}]"
                given.arrays[name] = np.asarray(part)
                given.shapes[name] = given.arrays[name].shape
        if any(a.dtype.kind in "OUS" for a in given.arrays.values()):
            raise errors.Unsupported("inputs: must be numbers, got strings")
        return given

    def _compile(self, given: _Given):
        first, seen = None, set()
        for is_bound in _BINDINGS:
            bound = {n: a for i, (n, a) in enumerate(given.arrays.items()) if is_bound(i, a)}
            if tuple(bound) in seen:
                continue
            seen.add(tuple(bound))
            try:
                free = [n for n in given.arrays if n not in bound]
                return (
                    _compile(
                        self.model, target=self.target, dims=given.lengths, shapes=given.shapes, constants=bound,
                        overridable=list(given.arrays), **self.options,
                    ),
                    free,
                )  # fmt: skip
            except errors.Error as e:
                first = first or e
        raise first

    def run(self, inputs: Any, **kwargs: Any) -> tuple:
        if isinstance(inputs, dict):
            inputs = [inputs[p.name] for p in self.inputs if p.name in inputs]
        given = self._given(inputs)
        key = tuple((n, a.shape, a.dtype) for n, a in given.arrays.items()), tuple(given.lengths.items())
        key += (tuple(a.tobytes() for a in given.arrays.values() if a.nbytes <= 1024),)
        if key not in self._modules:
            self._modules[key] = self._compile(given)
        self.module, free = self._modules[key]
        places = {p.name for p in self.module.inputs}
        results = self.module.run(**{n: given.arrays[n] for n in free if n in places})
        return self._outputs({p.name: r for p, r in zip(self.module.outputs, results)}, results)

    def _outputs(self, found: dict, results: Sequence[Any]) -> tuple:
        names, out = [p.name for p in self.model.graph.output], []
        for port in self.model.graph.output:
            if port.name in found:
                out.append(found[port.name])
                continue
            parts = []
            while f"{port.name}[{len(parts)}]" in found:
                parts.append(found[f"{port.name}[{len(parts)}]"])
            out.append(parts if _is_sequence(port.type) else parts[0] if parts else None)
        try:
            return namedtupledict("Outputs", names)(*out)
        except ValueError:  # names that are no Python identifiers
            return tuple(out)


class KilnBackend(Backend):
    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        kind = device.partition(":")[0].upper()
        return Prepared(model, {"CPU": None, "CUDA": "cuda"}.get(kind, device), kwargs)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple:
        arrays = [np.asarray(x) for x in inputs]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(node.input, arrays)
        ]
        outs = [helper.make_empty_tensor_value_info(name) for name in node.output]
        for port, (dtype, shape) in zip(outs, outputs_info or ()):
            kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
            port.CopyFrom(helper.make_tensor_value_info(port.name, kind, shape))
        model = helper.make_model(helper.make_graph([node], "node", ports, outs), **kwargs)
        return cls.run_model(model, arrays, device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0].upper() in ("CPU", "CUDA", "OPENCL")


is_compatible = KilnBackend.is_compatible
prepare = KilnBackend.prepare
run_model = KilnBackend.run_model
run_node = KilnBackend.run_node
supports_device = KilnBackend.supports_device
