# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX: pooling and resizing."""

from __future__ import annotations

import operator

from .lower import Refused, name_of, op


def _pool(g, x, a, n):
    def of(v, default):
        v = default if v is None or len(v) == 0 else v
        return list(v) * n if len(v) == 1 else list(v)

    kernel = of(a.kernel_size, [1])
    return kernel, of(a.stride, kernel), of(a.padding, [0])


def _batched(g, x, n):
    """Adds a batch axis of one if there is none, because pooling needs it."""
    return g.value(x) if g.rank(x) == n + 2 else g.reshape(g.value(x), [1] + g.shape(x))


@op("aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d", "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices")
def max_pool(g, node, a):
    name = name_of(node.target)
    n = int(name.split("pool")[1][0])
    kernel, stride, padding = _pool(g, a.self, a, n)
    dilation = list(a.dilation) * n if len(a.dilation) == 1 else list(a.dilation)
    out = g.fake(node)
    several = isinstance(out, (tuple, list))
    if (
        several
        and "with_indices" in name
        and any(u.target is operator.getitem and u.args[1] == 1 and u.users for u in node.users)
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


@op(
    "aten._adaptive_avg_pool2d",
    "aten._adaptive_avg_pool3d",
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_max_pool2d",
)
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
    """Pooling with windows of different sizes, axis by axis: each window is a slice that is reduced."""
    for k in range(n):
        axis, parts, ints = 2 + k, [], g.model.ints
        for i in range(to[k]):
            low, high = i * have[k] // to[k], -(-(i + 1) * have[k] // to[k])
            part = g.node("Slice", x, ints([low]), ints([high]), ints([axis]))
            parts.append(g.node("ReduceMax" if kind == "Max" else "ReduceMean", part, ints([axis]), keepdims=1))
        x = parts[0] if len(parts) == 1 else g.node("Concat", *parts, axis=axis)
    return x


@op(
    "aten.upsample_nearest1d",
    "aten.upsample_nearest2d",
    "aten.upsample_nearest3d",
    "aten._upsample_nearest_exact2d",
    "aten.upsample_bilinear2d",
    "aten.upsample_linear1d",
    "aten.upsample_trilinear3d",
    "aten.upsample_bicubic2d",
)
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
