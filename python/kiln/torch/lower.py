# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX, a function for each operator.

A function takes the graph that is written, the FX node, and the arguments by the names of the
operator's schema; it gives a value, or a list of them for an operator with several results. Shapes
are known. What it cannot say it refuses, and the node is left to PyTorch.
"""
from __future__ import annotations

import math
import operator
import struct
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
    """An operator, or a form of it, that is not written."""


class Size:
    """An extent that only a run knows, as an expression of Dynamo's symbols. It is no number: who needs one is refused."""

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
        """The value of the expression, as a list of one."""
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
    """"aten.add" of an overload."""
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
        self.places: dict = {}  # of symbols of sizes that only a run knows: (input, axis)
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
        """Arguments as they stand, with numbers, and sizes, in place of nodes that are these."""
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


# --- elementwise ---

UNARY = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "erf": "Erf", "exp": "Exp", "floor": "Floor",
    "log": "Log", "neg": "Neg", "reciprocal": "Reciprocal", "relu": "Relu", "round": "Round", "sigmoid": "Sigmoid",
    "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "tan": "Tan", "tanh": "Tanh",
    "logical_not": "Not", "isnan": "IsNaN", "isinf": "IsInf",
}  # fmt: skip


def _unary(kind):
    def write(g: Graph, node, a):
        source = torch.bool if kind == "Not" else g.dtype(a.self) if kind in ("IsNaN", "IsInf") else g.dtype(node)
        return g.node(kind, g.as_type(a.self, source))

    return write


for _name, _kind in UNARY.items():
    TABLE["aten." + _name] = _unary(_kind)


@op("aten.rsqrt")
def rsqrt(g, node, a):
    return g.node("Reciprocal", g.node("Sqrt", g.as_type(a.self, g.dtype(node))))


@op("aten.exp2", "aten.log2", "aten.log10", "aten.log1p", "aten.expm1")
def based(g, node, a):
    t, x = g.dtype(node), g.as_type(a.self, g.dtype(node))
    name = name_of(node.target)
    if name == "aten.exp2":
        return g.node("Pow", g.scalar(2, t), x)
    if name == "aten.log1p":
        return g.node("Log", g.node("Add", x, g.scalar(1, t)))
    if name == "aten.expm1":
        return g.node("Sub", g.node("Exp", x), g.scalar(1, t))
    return g.node("Mul", g.node("Log", x), g.scalar(1 / math.log(2 if name == "aten.log2" else 10), t))


@op("aten.trunc")
def trunc(g, node, a):
    x = g.value(a.self)
    return g.node("Mul", g.node("Sign", x), g.node("Floor", g.node("Abs", x)))


@op("aten.gelu")
def gelu(g, node, a):
    return g.node("Gelu", g.value(a.self), approximate=a.approximate)


@op("aten.silu")
def silu(g, node, a):
    return g.node("Mul", g.value(a.self), g.node("Sigmoid", g.value(a.self)))


@op("aten.mish")
def mish(g, node, a):
    return g.node("Mish", g.value(a.self))


@op("aten.hardsigmoid")
def hardsigmoid(g, node, a):
    return g.node("HardSigmoid", g.value(a.self), alpha=1 / 6, beta=0.5)


@op("aten.hardswish")
def hardswish(g, node, a):
    return g.node("HardSwish", g.value(a.self))


@op("aten.softplus")
def softplus(g, node, a):
    if a.beta != 1:
        raise Refused("beta")
    return g.node("Softplus", g.value(a.self))


@op("aten.elu", "aten.leaky_relu")
def elu(g, node, a):
    if name_of(node.target) == "aten.leaky_relu":
        return g.node("LeakyRelu", g.value(a.self), alpha=float(a.negative_slope))
    if a.input_scale != 1:
        raise Refused("input_scale")
    y = g.node("Elu", g.value(a.self), alpha=float(a.alpha))
    return y if a.scale == 1 else g.node("Mul", y, g.scalar(a.scale, g.dtype(node)))


@op("aten.prelu", "aten._prelu_kernel")
def prelu(g, node, a):
    w = g.value(a.weight)
    if g.rank(a.weight) == 1 and g.rank(a.self) > 1:
        w = g.reshape(w, [-1] + [1] * (g.rank(a.self) - 2))
    return g.node("PRelu", g.value(a.self), w)


@op("aten.hardtanh", "aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.relu6")
def clamp(g, node, a):
    t, name = g.dtype(node), name_of(node.target)
    low = getattr(a, "min", getattr(a, "min_val", 0 if name == "aten.relu6" else None))
    high = getattr(a, "max", getattr(a, "max_val", 6 if name == "aten.relu6" else None))
    x = g.as_type(a.self, t)
    if low is not None:
        x = g.node("Max", x, g.as_type(low, t))
    return x if high is None else g.node("Min", x, g.as_type(high, t))


def _binary(kind):
    def write(g: Graph, node, a):
        t = g.dtype(node)
        return g.node(kind, g.as_type(a.self, t), g.as_type(a.other, t))

    return write


for _name, _kind in {"mul": "Mul", "maximum": "Max", "minimum": "Min"}.items():
    TABLE["aten." + _name] = _binary(_kind)


@op("aten.add", "aten.sub", "aten.rsub")
def add(g, node, a):
    t, name = g.dtype(node), name_of(node.target)
    x, y = (a.other, a.self) if name == "aten.rsub" else (a.self, a.other)
    x, y = g.as_type(x, t), g.as_type(y, t)
    if a.alpha != 1:
        if name == "aten.rsub":
            raise Refused("alpha")
        y = g.node("Mul", y, g.scalar(a.alpha, t))
    if t == torch.bool:
        return g.node("Or", x, y)
    return g.node("Add" if name == "aten.add" else "Sub", x, y)


def result_type(g, x, y) -> torch.dtype:
    def sample(v):
        return torch.empty([1] * min(g.rank(v), 1), dtype=g.dtype(v)) if isinstance(v, fx.Node) else v

    return torch.result_type(sample(x), sample(y))


@op("aten.div", "aten.floor_divide")
def div(g, node, a):
    t = g.dtype(node)
    x, y = g.as_type(a.self, t), g.as_type(a.other, t)
    mode = "floor" if name_of(node.target) == "aten.floor_divide" else getattr(a, "rounding_mode", None)
    if mode is None:
        return g.node("Div", x, y)
    if not t.is_floating_point:
        if mode == "trunc":
            return g.node("Div", x, y)
        wide = g.cast(x, t, torch.float64), g.cast(y, t, torch.float64)
        return g.cast(g.node("Floor", g.node("Div", *wide)), torch.float64, t)
    q = g.node("Div", x, y)
    if mode == "floor":
        return g.node("Floor", q)
    return g.node("Mul", g.node("Sign", q), g.node("Floor", g.node("Abs", q)))


@op("aten.remainder", "aten.fmod")
def remainder(g, node, a):
    t = g.dtype(node)
    x, y = g.as_type(a.self, t), g.as_type(a.other, t)
    if name_of(node.target) == "aten.fmod":
        return g.node("Mod", x, y, fmod=1)
    if not t.is_floating_point:
        return g.node("Mod", x, y, fmod=0)
    return g.node("Sub", x, g.node("Mul", y, g.node("Floor", g.node("Div", x, y))))


@op("aten.pow")
def power(g, node, a):
    t = g.dtype(node)
    x = g.as_type(a.self, t)
    e = a.exponent
    if e == 2:
        return g.node("Mul", x, x)
    if e == 0.5:
        return g.node("Sqrt", x)
    if e == -0.5:
        return g.node("Reciprocal", g.node("Sqrt", x))
    if e == -1:
        return g.node("Reciprocal", x)
    return g.node("Pow", x, g.as_type(e, t))


@op("aten.atan2")
def atan2(g, node, a):
    raise Refused("atan2")


def _compare(kind):
    def write(g: Graph, node, a):
        t = result_type(g, a.self, a.other)
        x, y = g.as_type(a.self, t), g.as_type(a.other, t)
        if t == torch.bool and kind not in ("Equal", "Different"):
            x, y = g.cast(x, t, torch.int32), g.cast(y, t, torch.int32)
        if kind == "Different":
            return g.node("Not", g.node("Equal", x, y))
        return g.node(kind, x, y)

    return write


for _name, _kind in {
    "eq": "Equal", "ne": "Different", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}.items():  # fmt: skip
    TABLE["aten." + _name] = _compare(_kind)


def _logical(kind):
    def write(g: Graph, node, a):
        t = g.dtype(node)
        if name_of(node.target).startswith("aten.bitwise") and t != torch.bool:
            return g.node("Bitwise" + kind, g.as_type(a.self, t), g.as_type(a.other, t))
        return g.node(kind, g.as_type(a.self, torch.bool), g.as_type(a.other, torch.bool))

    return write


for _name, _kind in {"and": "And", "or": "Or", "xor": "Xor"}.items():
    TABLE["aten.logical_" + _name] = TABLE["aten.bitwise_" + _name] = _logical(_kind)


@op("aten.bitwise_not")
def bitwise_not(g, node, a):
    return g.node("Not" if g.dtype(node) == torch.bool else "BitwiseNot", g.value(a.self))


@op("aten.where")
def where(g, node, a):
    t = g.dtype(node)
    return g.node("Where", g.as_type(a.condition, torch.bool), g.as_type(a.self, t), g.as_type(a.other, t))


@op("aten.masked_fill")
def masked_fill(g, node, a):
    t = g.dtype(node)
    return g.node("Where", g.value(a.mask), g.as_type(a.value, t), g.as_type(a.self, t))


@op("aten.addcmul", "aten.addcdiv")
def addcmul(g, node, a):
    t = g.dtype(node)
    kind = "Mul" if name_of(node.target) == "aten.addcmul" else "Div"
    y = g.node(kind, g.as_type(a.tensor1, t), g.as_type(a.tensor2, t))
    if a.value != 1:
        y = g.node("Mul", y, g.scalar(a.value, t))
    return g.node("Add", g.as_type(a.self, t), y)


@op("aten._to_copy", "prims.convert_element_type")
def to_copy(g, node, a):
    x = a.self if hasattr(a, "self") else a.a
    return g.cast(g.value(x), g.dtype(x), g.dtype(node))


@op("aten.clone", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.contiguous", "aten.lift_fresh", "aten.copy")
def same(g, node, a):
    if name_of(node.target) == "aten.copy":
        y = g.as_type(a.src, g.dtype(node))
        return y if g.shape(a.src) == g.shape(node) else g.node("Expand", y, g.model.ints(g.shape(node)))
    return g.value(a.self)


# --- shapes ---


@op("aten.view", "aten._unsafe_view", "aten.reshape", "aten.squeeze", "aten.unsqueeze", "aten.flatten", "aten.unflatten", "prims.collapse_view")
def view(g, node, a):
    x = a.self if hasattr(a, "self") else a.a
    if getattr(a, "dtype", None) is not None:
        raise Refused("a view of another type")
    return g.reshape(g.value(x), g.shape(node))


@op("aten.permute", "aten.t", "aten.transpose", "aten.numpy_T")
def permute(g, node, a):
    n, name = g.rank(a.self), name_of(node.target)
    if name == "aten.permute":
        order = g.axes(a.self, a.dims)
    else:
        order = list(range(n))
        if name == "aten.transpose":
            i, k = g.axis(a.self, a.dim0), g.axis(a.self, a.dim1)
            order[i], order[k] = order[k], order[i]
        else:
            order.reverse()
    return g.value(a.self) if order == list(range(n)) else g.node("Transpose", g.value(a.self), perm=order)


@op("aten.expand", "aten.broadcast_to", "prims.broadcast_in_dim")
def expand(g, node, a):
    if name_of(node.target).startswith("prims"):
        raise Refused("broadcast_in_dim")
    x, shape = g.value(a.self), g.shape(node)
    return x if g.shape(a.self) == shape else g.node("Expand", x, g.model.ints(shape))


@op("aten.slice")
def slice_(g, node, a):
    axis = g.axis(a.self, a.dim)
    n = g.shape(a.self)[axis]
    start = 0 if a.start is None else a.start
    if g.shape(node) == g.shape(a.self):
        return g.value(a.self)
    start = max(start + n, 0) if start < 0 else min(start, n)
    end = start + g.shape(node)[axis] * a.step
    ints = g.model.ints
    return g.node("Slice", g.value(a.self), ints([start]), ints([end]), ints([axis]), ints([a.step]))


@op("aten.select")
def select(g, node, a):
    axis = g.axis(a.self, a.dim)
    i = a.index % g.shape(a.self)[axis]
    ints = g.model.ints
    part = g.node("Slice", g.value(a.self), ints([i]), ints([i + 1]), ints([axis]), ints([1]))
    return g.reshape(part, g.shape(node))


@op("aten.cat")
def cat(g, node, a):
    t = g.dtype(node)
    parts = [x for x in a.tensors if g.shape(x) != [0]]
    values = [g.as_type(x, t) for x in parts]
    return values[0] if len(values) == 1 else g.node("Concat", *values, axis=g.axis(node, a.dim))


@op("aten.stack")
def stack(g, node, a):
    axis = a.dim % g.rank(node)
    shape = [1 if k == axis else n for k, n in enumerate(g.shape(node))]
    return g.node("Concat", *[g.reshape(g.as_type(x, g.dtype(node)), shape) for x in a.tensors], axis=axis)


@op("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unsafe_split", "aten.unbind")
def split(g, node, a):
    outs = g.fake(node)
    axis = g.axis(a.self, a.dim)
    if name_of(node.target) == "aten.unbind":
        sizes = [1] * len(outs)
    else:
        sizes = [o.shape[axis] for o in outs]
    sizes = [g.size(n) for n in sizes]
    if len(sizes) == 1:
        parts = [g.value(a.self)]
    else:
        parts = g.node("Split", g.value(a.self), g.model.ints(sizes), n=len(sizes), axis=axis)
    if name_of(node.target) == "aten.unbind":
        parts = [g.reshape(p, [g.size(n) for n in o.shape]) for p, o in zip(parts, outs)]
    return parts


@op("aten.repeat")
def repeat(g, node, a):
    x = g.value(a.self)
    n = len(a.repeats) - g.rank(a.self)
    if n:
        x = g.reshape(x, [1] * n + g.shape(a.self))
    return g.node("Tile", x, g.model.ints(a.repeats))


@op("aten.flip")
def flip(g, node, a):
    axes, ints = g.axes(a.self, a.dims), g.model.ints
    n = len(axes)
    return g.node("Slice", g.value(a.self), ints([-1] * n), ints([-(2**62)] * n), ints(axes), ints([-1] * n))


@op("aten.roll")
def roll(g, node, a):
    if not a.dims:
        raise Refused("roll of all axes")
    x, ints = g.value(a.self), g.model.ints
    for shift, dim in zip(a.shifts, a.dims):
        axis = g.axis(a.self, dim)
        n = g.shape(a.self)[axis]
        k = -shift % n
        if k:
            back = g.node("Slice", x, ints([k]), ints([n]), ints([axis]))
            front = g.node("Slice", x, ints([0]), ints([k]), ints([axis]))
            x = g.node("Concat", back, front, axis=axis)
    return x


@op("aten.constant_pad_nd")
def pad(g, node, a):
    n, half = g.rank(a.self), len(a.pad) // 2
    before, after = [0] * n, [0] * n
    for k in range(half):
        before[n - 1 - k], after[n - 1 - k] = a.pad[2 * k], a.pad[2 * k + 1]
    return g.node("Pad", g.value(a.self), g.model.ints(before + after), g.scalar(a.value, g.dtype(node)), mode="constant")


@op("aten.reflection_pad1d", "aten.reflection_pad2d", "aten.replication_pad1d", "aten.replication_pad2d")
def pad_mode(g, node, a):
    n, half = g.rank(a.self), len(a.padding) // 2
    before, after = [0] * n, [0] * n
    for k in range(half):
        before[n - 1 - k], after[n - 1 - k] = a.padding[2 * k], a.padding[2 * k + 1]
    mode = "reflect" if "reflection" in name_of(node.target) else "edge"
    return g.node("Pad", g.value(a.self), g.model.ints(before + after), mode=mode)


@op("aten.pixel_shuffle", "aten.pixel_unshuffle")
def pixel_shuffle(g, node, a):
    if name_of(node.target) == "aten.pixel_shuffle":
        return g.node("DepthToSpace", g.value(a.self), blocksize=a.upscale_factor, mode="CRD")
    r = a.downscale_factor
    *lead, c, h, w = g.shape(a.self)
    n = len(lead)
    y = g.reshape(g.value(a.self), [*lead, c, h // r, r, w // r, r])
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return g.reshape(g.node("Transpose", y, perm=order), g.shape(node))


@op("aten.tril", "aten.triu")
def triangle(g, node, a):
    upper = int(name_of(node.target) == "aten.triu")
    return g.node("Trilu", g.value(a.self), g.scalar(a.diagonal, torch.int64), upper=upper)


@op("aten.full_like", "aten.zeros_like", "aten.ones_like", "aten.full", "aten.new_full", "aten.new_zeros", "aten.new_ones", "aten.empty_like", "aten.new_empty")
def filled(g, node, a):
    name = name_of(node.target)
    value = 1 if "ones" in name else 0 if "zeros" in name or "empty" in name else a.fill_value
    return g.node("Expand", g.as_type(value, g.dtype(node)), g.model.ints(g.shape(node)))


@op("aten.unfold")
def unfold(g, node, a):
    axis = g.axis(a.self, a.dimension)
    starts = torch.arange(g.shape(node)[axis]) * a.step
    index = g.constant(starts[:, None] + torch.arange(a.size)[None])
    y = g.node("Gather", g.value(a.self), index, axis=axis)
    n = g.rank(node)
    order = [k for k in range(n) if k != axis + 1] + [axis + 1]
    return y if order == list(range(n)) else g.node("Transpose", y, perm=order)


@op("aten.as_strided")
def as_strided(g, node, a):
    """Of a dense tensor: its elements as they lie in memory, and of these those at the index's places."""
    have = g.fake(a.self)
    order = sorted(range(have.dim()), key=lambda k: (-have.stride(k), k))
    if not have.permute(order).is_contiguous() or have.storage_offset() != 0:
        raise Refused("as_strided of what is not dense")
    x = g.value(a.self)
    if order != list(range(len(order))):
        x = g.node("Transpose", x, perm=order)
    offset = a.storage_offset or 0
    places = torch.full(a.size, offset, dtype=torch.int64)
    for k, (n, stride) in enumerate(zip(a.size, a.stride)):
        places += (torch.arange(n) * stride).reshape([n if i == k else 1 for i in range(len(a.size))])
    if places.numel() == have.numel() and torch.equal(places.reshape(-1), torch.arange(places.numel())):
        return g.reshape(x, a.size)
    if places.numel() > 1 << 20:
        raise Refused("as_strided of many elements")
    return g.node("Gather", g.reshape(x, [-1]), g.constant(places), axis=0)


# --- indexing ---


@op("aten.embedding")
def embedding(g, node, a):
    return g.node("Gather", g.value(a.weight), g.value(a.indices), axis=0)


@op("aten.index_select")
def index_select(g, node, a):
    return g.node("Gather", g.value(a.self), g.value(a.index), axis=g.axis(a.self, a.dim))


@op("aten.gather")
def gather(g, node, a):
    return g.node("GatherElements", g.value(a.self), g.value(a.index), axis=g.axis(a.self, a.dim))


def _wrapped(g, index, n: int) -> str:
    """Indices of which negative ones count from the end."""
    return g.cast(g.value(index), g.dtype(index), torch.int64)


@op("aten.index", "aten._unsafe_index")
def index(g, node, a):
    given = [(k, i) for k, i in enumerate(a.indices) if i is not None]
    if any(g.dtype(i) in (torch.bool, torch.uint8) for _, i in given):
        raise Refused("indexing by a mask")
    x, shape = g.value(a.self), g.shape(a.self)
    if len(given) == 1:
        k, i = given[0]
        return g.node("Gather", x, _wrapped(g, i, shape[k]), axis=k)
    axes = [k for k, _ in given]
    # The axes that are indexed go to the front, where GatherND takes them; their result goes back.
    order = axes + [k for k in range(len(shape)) if k not in axes]
    if order != list(range(len(shape))):
        x = g.node("Transpose", x, perm=order)
    common = list(torch.broadcast_shapes(*[g.shape(i) for _, i in given]))
    parts = []
    for k, i in given:
        v = _wrapped(g, i, shape[k])
        if g.shape(i) != common:
            v = g.node("Expand", v, g.model.ints(common))
        parts.append(g.reshape(v, [*common, 1]))
    y = g.node("GatherND", x, g.node("Concat", *parts, axis=len(common)))
    n, is_together = len(common), axes == list(range(axes[0], axes[0] + len(axes)))
    if not is_together or axes[0] == 0:
        return y
    back = list(range(n, n + axes[0])) + list(range(n)) + list(range(n + axes[0], g.rank(node)))
    return g.node("Transpose", y, perm=back)


@op("aten.index_put", "aten._unsafe_index_put")
def index_put(g, node, a):
    given = [(k, i) for k, i in enumerate(a.indices) if i is not None]
    t = g.dtype(node)
    if len(given) == 1 and given[0][0] == 0 and g.dtype(given[0][1]) == torch.bool:
        mask = given[0][1]
        if g.fake(a.values).numel() != 1 or a.accumulate:
            raise Refused("a mask with several values")
        m = g.reshape(g.value(mask), g.shape(mask) + [1] * (g.rank(a.self) - g.rank(mask)))
        return g.node("Where", m, g.reshape(g.as_type(a.values, t), [1] * g.rank(a.self)), g.value(a.self))
    if any(g.dtype(i) == torch.bool for _, i in given):
        raise Refused("a mask among several indices")
    axes, n = [k for k, _ in given], g.rank(a.self)
    common = list(torch.broadcast_shapes(*[g.shape(i) for _, i in given]))
    parts = []
    for k, i in given:
        v = _wrapped(g, i, g.shape(a.self)[k])
        if g.shape(i) != common:
            v = g.node("Expand", v, g.model.ints(common))
        parts.append(g.reshape(v, [*common, 1]))
    # The axes that are indexed are at the front for ScatterND; of the values theirs are where PyTorch's
    # rules have them: at the first of these axes where they are neighbours, else in front.
    rest = [k for k in range(n) if k not in axes]
    first = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    sizes = [g.shape(a.self)[k] for k in rest]
    want = sizes[:first] + common + sizes[first:]
    v = g.as_type(a.values, t)
    if g.shape(a.values) != want:
        v = g.node("Expand", v, g.model.ints(want))
    x, order = g.value(a.self), axes + rest
    if first:
        m = len(common)
        v = g.node("Transpose", v, perm=[*range(first, first + m), *range(first), *range(first + m, len(want))])
    if order != list(range(n)):
        x = g.node("Transpose", x, perm=order)
    reduction = "add" if a.accumulate else None
    y = g.node("ScatterND", x, g.node("Concat", *parts, axis=len(common)), v, reduction=reduction)
    return y if order == list(range(n)) else g.node("Transpose", y, perm=[order.index(k) for k in range(n)])


@op("aten.scatter", "aten.scatter_add", "aten.scatter_reduce")
def scatter(g, node, a):
    t, name = g.dtype(node), name_of(node.target)
    source = getattr(a, "src", None)
    if source is None:
        source = g.node("Expand", g.scalar(a.value, t), g.model.ints(g.shape(a.index)))
    elif g.shape(source) != g.shape(a.index):
        raise Refused("a source larger than its indices")
    else:
        source = g.as_type(source, t)
    kind = {"aten.scatter": None, "aten.scatter_add": "add"}.get(name, "?")
    if kind == "?":
        kind = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(a.reduce)
        if kind is None or not a.include_self:
            raise Refused(f"scatter_reduce of {a.reduce}")
    if getattr(a, "reduce", None) and name == "aten.scatter":
        raise Refused("scatter with a reduction")
    return g.node("ScatterElements", g.value(a.self), g.value(a.index), source, axis=g.axis(a.self, a.dim), reduction=kind)


@op("aten.slice_scatter", "aten.select_scatter")
def slice_scatter(g, node, a):
    axis = g.axis(a.self, a.dim)
    n, ints = g.shape(a.self)[axis], g.model.ints
    if name_of(node.target) == "aten.select_scatter":
        start, end, step = a.index % n, a.index % n + 1, 1
        shape = [1 if k == axis else m for k, m in enumerate(g.shape(a.self))]
        source = g.reshape(g.as_type(a.src, g.dtype(node)), shape)
    else:
        start, end, step = a.start or 0, n if a.end is None else a.end, a.step
        start, end = (min(max(v + n if v < 0 else v, 0), n) for v in (start, end))
        source = g.as_type(a.src, g.dtype(node))
    if step != 1:
        raise Refused("a step")
    parts = []
    if start > 0:
        parts.append(g.node("Slice", g.value(a.self), ints([0]), ints([start]), ints([axis])))
    parts.append(source)
    if end < n:
        parts.append(g.node("Slice", g.value(a.self), ints([end]), ints([n]), ints([axis])))
    return source if len(parts) == 1 else g.node("Concat", *parts, axis=axis)


# --- reductions ---


def _reduce(kind):
    def write(g: Graph, node, a):
        t = g.dtype(node)
        axes = g.axes(a.self, getattr(a, "dim", None))
        if g.rank(a.self) == 0:
            return g.as_type(a.self, t)
        keep = int(bool(getattr(a, "keepdim", False)))
        return g.node(kind, g.as_type(a.self, t), g.model.ints(axes), keepdims=keep)

    return write


for _name, _kind in {
    "sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
}.items():  # fmt: skip
    TABLE["aten." + _name] = _reduce(_kind)


@op("aten.max", "aten.min")
def extreme(g, node, a):
    name = name_of(node.target)
    kind = "Max" if name == "aten.max" else "Min"
    if hasattr(a, "other"):
        return g.node(kind, g.as_type(a.self, g.dtype(node)), g.as_type(a.other, g.dtype(node)))
    if not hasattr(a, "dim"):
        return g.node("Reduce" + kind, g.value(a.self), g.model.ints(g.axes(a.self, None)), keepdims=0)
    axis, keep = g.axis(a.self, a.dim), int(a.keepdim)
    values = g.node("Reduce" + kind, g.value(a.self), g.model.ints([axis]), keepdims=keep)
    return [values, g.node("Arg" + kind, g.value(a.self), axis=axis, keepdims=keep)]


@op("aten.any", "aten.all")
def any_(g, node, a):
    x = g.cast(g.as_type(a.self, torch.bool), torch.bool, torch.int32)
    kind = "ReduceMax" if name_of(node.target) == "aten.any" else "ReduceMin"
    axes = g.axes(a.self, getattr(a, "dim", None))
    y = g.node(kind, x, g.model.ints(axes), keepdims=int(bool(getattr(a, "keepdim", False))))
    return g.cast(y, torch.int32, torch.bool)


@op("aten.argmax", "aten.argmin")
def argmax(g, node, a):
    kind = "ArgMax" if name_of(node.target) == "aten.argmax" else "ArgMin"
    x = g.value(a.self)
    if a.dim is None:
        return g.reshape(g.node(kind, g.reshape(x, [-1]), axis=0, keepdims=0), g.shape(node))
    return g.node(kind, x, axis=g.axis(a.self, a.dim), keepdims=int(a.keepdim))


def _moments(g, x, axes, correction, keep, t):
    ints = g.model.ints
    value = g.as_type(x, t)
    n = math.prod(g.shape(x)[k] for k in axes)
    mean = g.node("ReduceMean", value, ints(axes), keepdims=1)
    off = g.node("Sub", value, mean)
    var = g.node("ReduceMean", g.node("Mul", off, off), ints(axes), keepdims=int(keep))
    correction = 1 if correction is None else correction
    if correction:
        var = g.node("Mul", var, g.scalar(n / max(n - correction, 0) if n > correction else math.nan, t))
    shape = [m for k, m in enumerate(g.shape(x)) if k not in axes]
    return var, mean if keep else g.reshape(mean, shape)


@op("aten.var", "aten.var_mean", "aten.std", "aten.std_mean")
def var(g, node, a):
    name = name_of(node.target)
    out = g.fake(node)
    t = (out[0] if isinstance(out, (tuple, list)) else out).dtype
    axes = g.axes(a.self, getattr(a, "dim", None))
    correction = getattr(a, "correction", None)
    if hasattr(a, "unbiased"):
        correction = int(a.unbiased)
    v, mean = _moments(g, a.self, axes, correction, bool(getattr(a, "keepdim", False)), t)
    if "std" in name:
        v = g.node("Sqrt", v)
    return [v, mean] if "mean" in name else v


@op("aten.linalg_vector_norm")
def vector_norm(g, node, a):
    t, axes = g.dtype(node), g.model.ints(g.axes(a.self, a.dim))
    x, keep = g.as_type(a.self, t), int(a.keepdim)
    if a.ord in (1, 2):
        return g.node("ReduceL1" if a.ord == 1 else "ReduceL2", x, axes, keepdims=keep)
    if a.ord == math.inf:
        return g.node("ReduceMax", g.node("Abs", x), axes, keepdims=keep)
    raise Refused(f"a norm of order {a.ord}")


@op("aten.cumsum")
def cumsum(g, node, a):
    return g.node("CumSum", g.as_type(a.self, g.dtype(node)), g.scalar(a.dim, torch.int64))


@op("aten.topk")
def topk(g, node, a):
    axis = g.axis(a.self, a.dim)
    return g.node("TopK", g.value(a.self), g.model.ints([a.k]), n=2, axis=axis, largest=int(a.largest), sorted=1)


@op("aten.sort")
def sort(g, node, a):
    axis = g.axis(a.self, a.dim)
    k = g.shape(a.self)[axis]
    return g.node("TopK", g.value(a.self), g.model.ints([k]), n=2, axis=axis, largest=int(a.descending), sorted=1)


# --- products ---


def _is_constant(x, value) -> bool:
    return not isinstance(x, fx.Node) and x == value


@op("aten.mm", "aten.bmm", "aten.matmul", "aten.mv", "aten.dot")
def matmul(g, node, a):
    other = next(getattr(a, k) for k in ("mat2", "other", "vec", "tensor") if hasattr(a, k))
    return g.node("MatMul", g.value(a.self), g.value(other))


@op("aten.addmm", "aten.baddbmm")
def addmm(g, node, a):
    t = g.dtype(node)
    x, y = (a.mat1, a.mat2) if hasattr(a, "mat1") else (a.batch1, a.batch2)
    out = g.node("MatMul", g.value(x), g.value(y))
    if a.alpha != 1:
        out = g.node("Mul", out, g.scalar(a.alpha, t))
    if a.beta == 0:
        return out
    bias = g.value(a.self)
    if a.beta != 1:
        bias = g.node("Mul", bias, g.scalar(a.beta, t))
    return g.node("Add", out, bias)


@op("aten.linear")
def linear(g, node, a):
    y = g.node("MatMul", g.value(a.input), g.node("Transpose", g.value(a.weight), perm=[1, 0]))
    return y if a.bias is None else g.node("Add", y, g.value(a.bias))


@op("aten.convolution")
def convolution(g, node, a):
    n = g.rank(a.weight) - 2

    def of(v):
        return list(v) * n if len(v) == 1 else list(v)

    given = [g.value(a.input), g.value(a.weight), g.value(a.bias) if a.bias is not None else None]
    common = dict(
        strides=of(a.stride), pads=of(a.padding) * 2, dilations=of(a.dilation), group=a.groups,
        kernel_shape=g.shape(a.weight)[2:],
    )  # fmt: skip
    if a.transposed:
        return g.node("ConvTranspose", *given, output_padding=of(a.output_padding), **common)
    return g.node("Conv", *given, **common)


SDPA = (
    "aten._scaled_dot_product_flash_attention_for_cpu", "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention", "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_fused_attention_overrideable", "aten.scaled_dot_product_attention",
    "aten._scaled_dot_product_attention_math_for_mps",
)  # fmt: skip


@op(*SDPA)
def attention(g, node, a):
    q, k, v, t = a.query, a.key, a.value, g.dtype(a.query)
    if getattr(a, "dropout_p", 0):
        raise Refused("dropout")
    scale = a.scale if a.scale is not None else 1 / math.sqrt(g.shape(q)[-1])
    keys, values, n = g.value(k), g.value(v), g.rank(q)
    groups = g.shape(q)[-3] // g.shape(k)[-3] if n >= 3 else 1
    if groups > 1:  # several heads share their keys
        keys, values = (_shared(g, x, groups) for x in (k, v))
    order = [*range(n - 2), n - 1, n - 2]
    scores = g.node("MatMul", g.value(q), g.node("Transpose", keys, perm=order))
    scores = g.node("Mul", scores, g.scalar(scale, t))
    bias = getattr(a, "attn_mask", None)
    bias = getattr(a, "attn_bias", None) if bias is None else bias
    rows, columns = g.shape(q)[-2], g.shape(k)[-2]
    if bias is not None and g.dtype(bias) == torch.bool:
        scores = g.node("Where", g.value(bias), scores, g.scalar(-math.inf, t))
    elif bias is not None:
        scores = g.node("Add", scores, g.as_type(bias, t))
    if getattr(a, "is_causal", False):
        keep = torch.ones(rows, columns, dtype=torch.bool).tril()
        scores = g.node("Where", g.constant(keep), scores, g.scalar(-math.inf, t))
    out = g.node("MatMul", g.node("Softmax", scores, axis=n - 1), values)
    return [out] + [None] * 8 if isinstance(g.fake(node), (tuple, list)) else out


def _shared(g, x, groups):
    *lead, heads, rows, width = g.shape(x)
    y = g.reshape(g.value(x), [*lead, heads, 1, rows, width])
    y = g.node("Expand", y, g.model.ints([*lead, heads, groups, rows, width]))
    return g.reshape(y, [*lead, heads * groups, rows, width])


# --- norms and softmax ---


@op("aten._softmax", "aten.softmax", "aten._log_softmax", "aten.log_softmax", "aten._safe_softmax")
def softmax(g, node, a):
    t, name = g.dtype(node), name_of(node.target)
    if g.rank(a.self) == 0:
        raise Refused("of a number")
    y = g.node("LogSoftmax" if "log" in name else "Softmax", g.as_type(a.self, t), axis=g.axis(a.self, a.dim))
    if name != "aten._safe_softmax":
        return y
    return g.node("Where", g.node("IsNaN", y), g.scalar(0.0, t), y)  # rows of which all is masked are zeros


@op("aten.native_layer_norm", "aten.layer_norm")
def layer_norm(g, node, a):
    out = g.fake(node)
    n, rank = len(a.normalized_shape), g.rank(a.input)
    t = (out[0] if isinstance(out, (tuple, list)) else out).dtype
    weight = g.as_type(a.weight, t) if a.weight is not None else g.constant(torch.ones(a.normalized_shape, dtype=t))
    bias = g.as_type(a.bias, t) if a.bias is not None else None
    y = g.node("LayerNormalization", g.as_type(a.input, t), weight, bias, axis=rank - n, epsilon=float(a.eps))
    return [y, None, None] if isinstance(out, (tuple, list)) else y


@op("aten.rms_norm", "aten._fused_rms_norm")
def rms_norm(g, node, a):
    out = g.fake(node)
    t = (out[0] if isinstance(out, (tuple, list)) else out).dtype
    n, rank = len(a.normalized_shape), g.rank(a.input)
    axes = g.model.ints(list(range(rank - n, rank)))
    x = g.cast(g.value(a.input), g.dtype(a.input), torch.float32)
    mean = g.node("ReduceMean", g.node("Mul", x, x), axes, keepdims=1)
    eps = torch.finfo(g.dtype(a.input)).eps if a.eps is None else a.eps
    root = g.node("Reciprocal", g.node("Sqrt", g.node("Add", mean, g.scalar(eps, torch.float32))))
    y = g.cast(g.node("Mul", x, root), torch.float32, t)
    y = y if a.weight is None else g.node("Mul", y, g.as_type(a.weight, t))
    return [y, None] if isinstance(out, (tuple, list)) else y


@op("aten.native_group_norm", "aten.group_norm")
def group_norm(g, node, a):
    out = g.fake(node)
    is_native = isinstance(out, (tuple, list))
    x = a.input
    shape, groups, t = g.shape(x), a.group if hasattr(a, "group") else a.num_groups, g.dtype(x)
    c = shape[1]
    flat = g.reshape(g.value(x), [shape[0] * groups, 1, -1])  # what one group has is one row
    ones = g.constant(torch.ones(math.prod(shape[1:]) // groups, dtype=t))
    y = g.node("LayerNormalization", flat, ones, axis=2, epsilon=float(a.eps))
    y = g.reshape(y, shape)
    side = [c] + [1] * (len(shape) - 2)
    if a.weight is not None:
        y = g.node("Mul", y, g.reshape(g.value(a.weight), side))
    if a.bias is not None:
        y = g.node("Add", y, g.reshape(g.value(a.bias), side))
    return [y, None, None] if is_native else y


@op("aten._native_batch_norm_legit_no_training", "aten._native_batch_norm_legit_functional", "aten.native_batch_norm")
def batch_norm(g, node, a):
    if getattr(a, "training", False) or getattr(a, "train", False):
        raise Refused("training")
    t, c = g.dtype(a.input), g.shape(a.input)[1]
    weight = g.as_type(a.weight, t) if a.weight is not None else g.constant(torch.ones(c, dtype=t))
    bias = g.as_type(a.bias, t) if a.bias is not None else g.constant(torch.zeros(c, dtype=t))
    given = [g.value(a.input), weight, bias, g.as_type(a.running_mean, t), g.as_type(a.running_var, t)]
    return [g.node("BatchNormalization", *given, epsilon=float(a.eps))] + [None] * 4


@op("aten._native_batch_norm_legit")
def instance_norm(g, node, a):
    """With the statistics of what is given: over all axes but that of the channels."""
    if not a.training or getattr(a, "running_mean", None) is not None:
        raise Refused("running statistics")
    t, rank, c = g.dtype(a.input), g.rank(a.input), g.shape(a.input)[1]
    axes = [k for k in range(rank) if k != 1]
    v, mean = _moments(g, a.input, axes, 0, True, t)
    root = g.node("Reciprocal", g.node("Sqrt", g.node("Add", v, g.scalar(a.eps, t))))
    y = g.node("Mul", g.node("Sub", g.value(a.input), mean), root)
    for kind, x in (("Mul", a.weight), ("Add", a.bias)):
        if x is not None:
            y = g.node(kind, y, g.reshape(g.as_type(x, t), [c] + [1] * (rank - 2)))
    return [y, g.reshape(mean, [c]), g.reshape(root, [c])]


# --- pooling and resizing ---


def _pool(g, x, a, n):
    def of(v, default):
        v = default if v is None or len(v) == 0 else v
        return list(v) * n if len(v) == 1 else list(v)

    kernel = of(a.kernel_size, [1])
    return kernel, of(a.stride, kernel), of(a.padding, [0])


def _batched(g, x, n):
    """Pooling takes a batch: one of it alone where there is none."""
    return g.value(x) if g.rank(x) == n + 2 else g.reshape(g.value(x), [1] + g.shape(x))


@op("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def max_pool(g, node, a):
    name = name_of(node.target)
    n = int(name.split("pool")[1][0])
    kernel, stride, padding = _pool(g, a.self, a, n)
    dilation = list(a.dilation) * n if len(a.dilation) == 1 else list(a.dilation)
    out = g.fake(node)
    several = isinstance(out, (tuple, list))
    if several and "with_indices" in name and any(
        u.target is operator.getitem and u.args[1] == 1 and u.users for u in node.users
    ):
        raise Refused("indices of maxima")
    y = g.node(
        "MaxPool", _batched(g, a.self, n), kernel_shape=kernel, strides=stride, pads=padding * 2, dilations=dilation,
        ceil_mode=int(a.ceil_mode),
    )  # fmt: skip
    shape = [g.size(m) for m in (out[0] if several else out).shape]
    if g.rank(a.self) != n + 2:
        y = g.reshape(y, shape)
    return [y, None] if several else y


@op("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(g, node, a):
    n = int(name_of(node.target).split("pool")[1][0])
    if getattr(a, "divisor_override", None):
        raise Refused("divisor_override")
    kernel, stride, padding = _pool(g, a.self, a, n)
    y = g.node(
        "AveragePool", _batched(g, a.self, n), kernel_shape=kernel, strides=stride, pads=padding * 2,
        ceil_mode=int(a.ceil_mode), count_include_pad=int(a.count_include_pad),
    )  # fmt: skip
    return y if g.rank(a.self) == n + 2 else g.reshape(y, g.shape(node))


@op("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d", "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_max_pool2d")
def adaptive_pool(g, node, a):
    name = name_of(node.target)
    n = int(name.split("pool")[1][0])
    kind = "Max" if "max" in name else "Average"
    out = g.fake(node)
    several = isinstance(out, (tuple, list))
    to = [g.size(m) for m in (out[0] if several else out).shape][-n:]
    x, have = _batched(g, a.self, n), g.shape(a.self)[-n:]
    ints = g.model.ints
    if to == [1] * n:
        rank = n + 2
        y = g.node("ReduceMax" if kind == "Max" else "ReduceMean", x, ints(list(range(rank - n, rank))), keepdims=1)
    elif all(h % t == 0 for h, t in zip(have, to)):
        sizes = [h // t for h, t in zip(have, to)]
        y = g.node(kind + "Pool", x, kernel_shape=sizes, strides=sizes)
    else:
        y = _uneven(g, x, have, to, n, kind)
    shape = [g.size(m) for m in (out[0] if several else out).shape]
    if g.rank(a.self) != n + 2:
        y = g.reshape(y, shape)
    return [y, None] if several else y


def _uneven(g, x, have, to, n, kind):
    """Windows of different sizes, an axis after the other: those of an axis are slices, each reduced."""
    for k in range(n):
        axis, parts, ints = 2 + k, [], g.model.ints
        for i in range(to[k]):
            low, high = i * have[k] // to[k], -(-(i + 1) * have[k] // to[k])
            part = g.node("Slice", x, ints([low]), ints([high]), ints([axis]))
            parts.append(g.node("ReduceMax" if kind == "Max" else "ReduceMean", part, ints([axis]), keepdims=1))
        x = parts[0] if len(parts) == 1 else g.node("Concat", *parts, axis=axis)
    return x


@op("aten.upsample_nearest1d", "aten.upsample_nearest2d", "aten.upsample_nearest3d", "aten._upsample_nearest_exact2d", "aten.upsample_bilinear2d", "aten.upsample_linear1d", "aten.upsample_trilinear3d", "aten.upsample_bicubic2d")
def upsample(g, node, a):
    name = name_of(node.target)
    x = a.self if hasattr(a, "self") else a.input
    have, want = g.shape(x), g.shape(node)
    align = bool(getattr(a, "align_corners", False))
    mode = "nearest" if "nearest" in name else "cubic" if "bicubic" in name else "linear"
    if mode == "nearest":
        how = dict(coordinate_transformation_mode="half_pixel" if "exact" in name else "asymmetric", nearest_mode="floor")
        if "exact" in name:
            how["nearest_mode"] = "round_prefer_ceil"
    else:
        how = dict(coordinate_transformation_mode="align_corners" if align else "pytorch_half_pixel")
        if mode == "cubic":
            how["cubic_coeff_a"] = -0.75
    n = len(have) - 2
    scales = getattr(a, "scale_factors", None)
    if scales is None:
        names = ("scales",) if n == 1 else ("scales_d", "scales_h", "scales_w")[3 - n :]
        scales = [getattr(a, s, None) for s in names]
        scales = None if any(s is None for s in scales) else scales
    if scales is not None and not align:
        if any(int(h * s) != w for h, s, w in zip(have[2:], scales, want[2:])):
            raise Refused("a scale that rounds")
        if any(abs(w / h - s) > 1e-6 * s for h, s, w in zip(have[2:], scales, want[2:])):
            raise Refused("a scale that is not that of the sizes")
    return g.node("Resize", g.value(x), None, None, g.model.ints(want), mode=mode, **how)


@op("aten.grid_sampler_2d", "aten.grid_sampler")
def grid_sampler(g, node, a):
    mode = ["linear", "nearest", "cubic"][a.interpolation_mode]
    padding = ["zeros", "border", "reflection"][a.padding_mode]
    return g.node(
        "GridSample", g.value(a.input), g.value(a.grid), mode=mode, padding_mode=padding,
        align_corners=int(a.align_corners),
    )  # fmt: skip


# --- all of it ---


def arguments(node: fx.Node, resolve: Callable) -> SimpleNamespace:
    """The arguments by name, with defaults; numbers that nodes stand for as numbers."""
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
    """A SymInt or number as a number; None: it is none that is known."""
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
    """Why a node is left to PyTorch; None: it is written."""
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
