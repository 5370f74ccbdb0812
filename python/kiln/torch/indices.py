# SPDX-License-Identifier: Apache-2.0
"""Core ATen to ONNX: shapes, slices, gathers and scatters."""

from __future__ import annotations

import torch

from .lower import Refused, name_of, op

# --- shapes ---


@op(
    "aten.view",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.flatten",
    "aten.unflatten",
    "prims.collapse_view",
)
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


@op(
    "aten.full_like",
    "aten.zeros_like",
    "aten.ones_like",
    "aten.full",
    "aten.new_full",
    "aten.new_zeros",
    "aten.new_ones",
    "aten.empty_like",
    "aten.new_empty",
)
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
    """For a dense tensor: flattens it in memory order, and gathers the elements that the strides address."""
    have = g.fake(a.self)
    order = sorted(range(have.dim()), key=lambda k: (-have.stride(k), k))
    if not have.permute(order).is_contiguous() or have.storage_offset() != 0:
        raise Refused("as_strided of a tensor that is not dense")
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
    """Wraps negative indices, which count from the end."""
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
    # Indexed axes are transposed to the front for GatherND, and the result is transposed back.
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
    # Indexed axes are at the front for ScatterND; in the values they are where PyTorch's
    # rules put them: at the first indexed axis if these are adjacent, otherwise in front.
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
