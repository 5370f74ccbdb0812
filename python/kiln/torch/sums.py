# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX: reductions, products, attention, norms and softmax."""

from __future__ import annotations

import math

import torch
from torch import fx

from .lower import TABLE, Graph, Refused, name_of, op

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
    return g.node("Where", g.node("IsNaN", y), g.scalar(0.0, t), y)  # fully masked rows are zero


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
    flat = g.reshape(g.value(x), [shape[0] * groups, 1, -1])  # a group is a row
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
    """With statistics of the batch, over all axes but the channels."""
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
