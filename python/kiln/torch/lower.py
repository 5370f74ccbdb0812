# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX: the graph that is written, and the table of operators.

Each operator is a function of elementwise.py, indices.py, sums.py or windows.py. It takes the graph
under construction, the FX node, and the arguments by the names of the operator's schema; it gives a
value, or a list of them for an operator with several results. Extents are numbers, or a Size if they
are dynamic. A function raises Refused for forms that it cannot write; the node is left to PyTorch.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any, Callable, Optional, Sequence

import torch
from torch import fx

from . import onnx

aten = torch.ops.aten
KINDS = {
    torch.float32: onnx.FLOAT,
    torch.float64: onnx.DOUBLE,
    torch.float16: onnx.FLOAT16,
    torch.bfloat16: onnx.BFLOAT16,
    torch.int8: onnx.INT8,
    torch.int16: onnx.INT16,
    torch.int32: onnx.INT32,
    torch.int64: onnx.INT64,
    torch.uint8: onnx.UINT8,
    torch.bool: onnx.BOOL,
}
TABLE: dict[str, Callable] = {}
INLINE_BYTES = 1024  # constants up to this are in the model's bytes, others borrowed


class Refused(Exception):
    """An operator, or a form of it, that cannot be written."""


class Size:
    """A dynamic extent, an expression of Dynamo's symbols. Operators that need a number are refused."""

    def __init__(self, expr, places: dict):
        self.expr, self.places = expr, places  # of a symbol: (input, axis)

    def __index__(self):
        raise Refused(f"the size {self.expr} is not known")

    __int__ = __float__ = __bool__ = __index__

    def __hash__(self):
        return hash(self.expr)

    def __eq__(self, other):
        return self.expr == getattr(other, "expr", other)

    def _with(self, expr):
        return int(expr) if expr.is_Integer else Size(expr, self.places)

    def __add__(self, other):
        return self._with(self.expr + getattr(other, "expr", other))

    def __sub__(self, other):
        return self._with(self.expr - getattr(other, "expr", other))

    def __mul__(self, other):
        return self._with(self.expr * getattr(other, "expr", other))

    def __rsub__(self, other):
        return self._with(other - self.expr)

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other):
        raise Refused(f"the size {self.expr} is compared")

    __gt__ = __le__ = __ge__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __lt__

    def write(self, model: onnx.Model) -> str:
        """Writes the expression; gives a list of one value."""
        return self._write(model, self.expr)

    def _write(self, model, e) -> str:
        if e.is_Integer:
            return model.ints([int(e)])
        if e.is_Symbol:
            source, axis = self.places[e]
            return model.node("Gather", [model.node("Shape", [source], "sizes"), model.ints([axis])], "sizes", axis=0)
        if e.is_Add or e.is_Mul:
            parts = [self._write(model, x) for x in e.args]
            out = parts[0]
            for p in parts[1:]:
                out = model.node("Add" if e.is_Add else "Mul", [out, p], "sizes")
            return out
        if e.func.__name__ in ("FloorDiv", "CleanDiv", "IntTrueDiv"):
            return model.node("Div", [self._write(model, x) for x in e.args], "sizes")
        raise Refused(f"the size {e} is not written")


def op(*names: str):
    def add(function):
        for name in names:
            TABLE[name] = function
        return function

    return add


def name_of(target: Any) -> str:
    """ "aten.add" of an overload."""
    packet = getattr(target, "overloadpacket", None)
    return str(packet) if packet is not None else getattr(target, "__name__", str(target))


def raw(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


class Graph:
    """One partition as an ONNX model. |known| are tensors of nodes that are constants."""

    def __init__(self, name: str):
        self.model = onnx.Model(name)
        self.values: dict[fx.Node, Any] = {}
        self.files: dict[str, torch.Tensor] = {}  # external data
        self.places: dict = {}  # of symbols of dynamic sizes: (input, axis)
        self.place = ""

    # --- values ---

    def fake(self, x: fx.Node) -> torch.Tensor:
        return x.meta["val"]

    def size(self, n) -> Any:
        known = number(n)
        return Size(n.node.expr, self.places) if known is None else known

    def shape(self, x: fx.Node) -> list:
        return [self.size(n) for n in self.fake(x).shape]

    def resolve(self, value):
        """The arguments with numbers and sizes for the nodes that stand for them."""
        if isinstance(value, (list, tuple)):
            return [self.resolve(v) for v in value]
        if isinstance(value, fx.Node) and not is_tensor(value.meta.get("val")):
            inner = value.meta.get("val")
            is_number = isinstance(inner, torch.SymInt) or number(inner) is not None
            return self.size(inner) if is_number else value
        return self.size(value) if isinstance(value, torch.SymInt) else value

    def dtype(self, x) -> torch.dtype:
        return self.fake(x).dtype

    def rank(self, x) -> int:
        return self.fake(x).dim()

    def node(self, kind: str, *inputs, n=1, **attributes):
        return self.model.node(kind, inputs, self.place, n, **attributes)

    def constant(self, tensor: torch.Tensor) -> str:
        if tensor.dtype not in KINDS:
            raise Refused(f"constants of {tensor.dtype}")
        kind, shape = KINDS[tensor.dtype], list(tensor.shape)
        if tensor.numel() * tensor.element_size() <= INLINE_BYTES:
            return self.model.tensor(kind, shape, raw(tensor))
        name = f"w{len(self.files)}"
        self.files[name] = tensor.detach().contiguous()
        self.model.external(name, kind, shape)
        return name

    def scalar(self, value, dtype: torch.dtype) -> str:
        return self.model.tensor(KINDS[dtype], [], raw(torch.tensor(value, dtype=dtype).reshape(1)))

    def value(self, x) -> str:
        return self.values[x]

    def cast(self, value: str, have: torch.dtype, want: torch.dtype) -> str:
        return value if have == want else self.node("Cast", value, to=KINDS[want])

    def as_type(self, x, dtype: torch.dtype) -> str:
        """A node or a number as a value of |dtype|."""
        if isinstance(x, fx.Node):
            return self.cast(self.value(x), self.dtype(x), dtype)
        return self.scalar(x, dtype)

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", value, self.model.ints(shape), allowzero=1 if 0 in shape else None)

    def axis(self, x, dim: int) -> int:
        return dim % max(self.rank(x), 1)

    def axes(self, x, dims) -> list[int]:
        if dims is None or dims == []:
            return list(range(self.rank(x)))
        return [self.axis(x, d) for d in ([dims] if isinstance(dims, int) else dims)]


# --- nodes ---


def arguments(node: fx.Node, resolve: Callable) -> SimpleNamespace:
    """The arguments by name, with defaults, and with numbers for nodes of known value."""
    schema = node.target._schema
    out = SimpleNamespace()
    for i, argument in enumerate(schema.arguments):
        name = argument.name
        if i < len(node.args):
            value = node.args[i]
        elif name in node.kwargs:
            value = node.kwargs[name]
        else:
            value = argument.default_value
        setattr(out, name, resolve(value))
    return out


def is_tensor(value) -> bool:
    return isinstance(value, torch.Tensor)


def number(value) -> Optional[Any]:
    """A SymInt or number as a number; None if it is unknown."""
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        node = value.node
        if node.is_constant() or node.maybe_as_int() is not None:
            return node.maybe_as_int()
    return None


def types_refused(node: fx.Node) -> Optional[str]:
    values = [node.meta.get("val")] + [n.meta.get("val") for n in node.all_input_nodes]
    for value in values:
        for v in value if isinstance(value, (tuple, list)) else (value,):
            if is_tensor(v) and (v.dtype not in KINDS or v.layout != torch.strided):
                return f"{v.dtype} is no type that is compiled"
            if is_tensor(v) and v.dim() > 8:
                return "more than 8 axes"
    return None


def why_not(node: fx.Node) -> Optional[str]:
    """The reason why a node is left to PyTorch; None if it can be written."""
    if node.target is operator.getitem:
        return why_not(node.args[0]) if isinstance(node.args[0], fx.Node) else "getitem"
    if not isinstance(node.target, torch._ops.OpOverload):
        return "no operator"
    if name_of(node.target) not in TABLE:
        return "it is not among the operators that are written"
    return types_refused(node)


def write(g: Graph, node: fx.Node) -> None:
    g.place = node.name
    if node.target is operator.getitem:
        source, i = node.args
        part = g.values[source][i]
        if part is None:
            if node.users:
                raise Refused(f"result {i} of {source.name}")
            part = ""
        g.values[node] = part
        return
    g.values[node] = TABLE[name_of(node.target)](g, node, arguments(node, g.resolve))
