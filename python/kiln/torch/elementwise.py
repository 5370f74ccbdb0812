# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX: operators on elements."""

from __future__ import annotations

import math

import torch
from torch import fx

from .lower import TABLE, Graph, Refused, name_of, op

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
