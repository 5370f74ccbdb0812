"""Sums as a plain loop adds them, one term after the other in the type that sums are kept in: a right implementation that random roundings do not stand for.

Where terms are alike each addition rounds the same way, so that the sum of 768 times 0.64 is off by 200 units in the last place and not by the root of that.
"""
import functools
import math

import numpy as np

from evaluate import F32, F64, _axes_of, is_float, of_rows, operand_labels, rows_of, summed_labels

LANES = (1, 4, 16)  # sums beside each other, the terms dealt out in turn, that are added up in the end
MOST = 1 << 20  # multiplications of a product that is added up here

OF_TERM = {"ReduceSum": lambda x: x, "ReduceMean": lambda x: x, "GlobalAveragePool": lambda x: x, "ReduceL1": np.abs, "ReduceL2": np.square,
           "ReduceSumSquare": np.square, "ReduceLogSum": lambda x: x}
OF_SUM = {"ReduceMean": lambda s, n: s / n, "GlobalAveragePool": lambda s, n: s / n, "ReduceL2": lambda s, n: np.sqrt(s),
          "ReduceLogSum": lambda s, n: np.log(s)}


def add_up(terms, lanes):
    """The sums over the first axis."""
    n = terms.shape[0]
    padded = np.concatenate([terms, np.zeros((-n % lanes,) + terms.shape[1:], terms.dtype)])
    sums = np.cumsum(padded.reshape(-(-n // lanes), lanes, *terms.shape[1:]), axis=0, dtype=terms.dtype)[-1]
    return np.cumsum(sums, axis=0, dtype=terms.dtype)[-1]


def running(op, xs, attrs, lanes, opset=23):
    """The result, or None: not of this operator and type."""
    x = xs[0]
    if not is_float(x.dtype) or not x.size:
        return None
    wide = F64 if x.dtype == F64 else F32
    with np.errstate(all="ignore"):
        if op == "MatMul":
            if min(a.ndim for a in xs) < 2 or not 0 < x.size * xs[1].shape[-1] <= MOST or x.shape[-1] != xs[1].shape[-2]:
                return None
            return [product(*[a.astype(wide) for a in xs], lanes).astype(x.dtype)]
        if op in ("Sum", "Mean"):
            return [folded(op, xs, LANES.index(lanes))] if x.dtype == wide else None
        if op == "Softmax":
            return [softmax(x, attrs.get("axis", -1 if opset >= 13 else 1), opset, wide, lanes)]
        if op == "Einsum":
            return einsum(xs, attrs["equation"], wide, lanes)
        if op not in OF_TERM:
            return None
        axes = tuple(range(2, x.ndim)) if op == "GlobalAveragePool" else _axes_of(xs, attrs, x.ndim)
        if axes is None:
            return None
        kept = [k for k in range(x.ndim) if k not in axes]
        terms = OF_TERM[op](np.transpose(x, (*sorted(axes), *kept)).astype(wide)).reshape(-1, *[x.shape[k] for k in kept])
        y = add_up(terms, lanes)
        y = OF_SUM.get(op, lambda s, n: s)(y, wide.type(terms.shape[0]))
        return [np.asarray(y).astype(x.dtype).reshape([1 if k in axes else e for k, e in enumerate(x.shape)] if attrs.get("keepdims", 1) else y.shape)]


def product(a, b, lanes):
    rank = max(a.ndim, b.ndim)
    a, b = (x.reshape((1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    return add_up(np.moveaxis(a, -1, 0)[..., None] * np.moveaxis(b, -2, 0)[..., None, :], lanes)


def folded(op, xs, first):
    """A sum or mean of operands, the one of that number first."""
    y = functools.reduce(np.add, xs[first % len(xs):] + xs[:first % len(xs)])
    return y / y.dtype.type(len(xs)) if op == "Mean" else y


def softmax(x, axis, opset, wide, lanes):
    """Where one term dwarfs the others, each of these is rounded by the sum's last place, which may be twice the result's."""
    rows = rows_of(x.astype(F64), axis, opset)
    e = np.exp(rows - np.max(rows, -1, keepdims=True, initial=-np.inf)).astype(wide)
    sums = add_up(np.moveaxis(e, -1, 0), lanes)
    return of_rows((e / sums[..., None]).astype(x.dtype), x.shape, axis, opset)


def einsum(xs, equation, wide, lanes):
    summed = summed_labels(equation)
    if not summed or min(x.size for x in xs) == 0:
        return None
    from_, to = equation.replace(" ", "").split("->")
    extents = {c: e for t, x in zip(operand_labels(equation), xs) for c, e in zip(t, x.shape)}
    if math.prod(extents.values()) > MOST:
        return None
    terms = np.einsum(f"{from_}->{summed}{to}", *[x.astype(wide) for x in xs])
    return [add_up(terms.reshape(-1, *terms.shape[len(summed):]), lanes).astype(xs[0].dtype)]


# --- what subtracts a mean

def groups_of(op, x, xs, attrs, opset):
    """|x| in a shape whose last axes, from a number on, have one mean; then its scale and bias, shaped likewise. None: of no such operator."""
    if op == "MeanVarianceNormalization":
        axes = [a % x.ndim for a in attrs.get("axes", (0, 2, 3))]
        return np.moveaxis(x, axes, range(-len(axes), 0)), x.ndim - len(axes), (), axes
    if op == "LayerNormalization":
        return x, attrs.get("axis", -1) % x.ndim, xs[1:], None
    channels = (-1,) + (1,) * (x.ndim - 2)
    if op == "InstanceNormalization":
        return x, 2, [a.reshape(channels) for a in xs[1:]], None
    if op == "GroupNormalization" and x.size:
        n = attrs["num_groups"]
        per = n if opset < 21 else x.shape[1]
        split = x.reshape(x.shape[0], n, -1, *x.shape[2:])
        return split, 2, [np.broadcast_to(a.reshape(n, -1), (n, x.shape[1] // n)).reshape(*split.shape[1:3], *channels[1:]) for a in xs[1:] if a.size == per], None
    return None


@np.errstate(all="ignore")
def centred(op, xs, attrs, opset, rng, units):
    """A normalization in double whose means are off, by as much as plain sums in the operand's type are: the rest of |x| - mean is all there is
    where the elements of a group are nearly equal. None: not of this operator and type."""
    if not is_float(xs[0].dtype) or not xs[0].size:
        return None
    unit = max(units[xs[0].dtype], units[F32]) if xs[0].dtype != F64 else units[F64]  # the mean may be stored
    found = groups_of(op, *[a.astype(F64) for a in xs[:1]], [a.astype(F64) for a in xs], attrs, opset)
    if found is None:
        return None
    x, first, scales, axes = found
    axis = tuple(range(first, x.ndim))
    n = int(np.prod(x.shape[first:]))
    mean = x.mean(axis, keepdims=True)
    wide = np.transpose(x, (*axis, *range(first))).reshape(n, -1).astype(F64 if xs[0].dtype == F64 else F32)
    off = np.max([np.abs(add_up(wide, lanes).astype(F64) / n - mean.reshape(-1)) for lanes in LANES], 0).reshape(mean.shape)
    off = off + unit * (1 + np.sqrt(n)) * np.abs(x).mean(axis, keepdims=True) * (n > 1)
    rest = x - (mean + off * rng.uniform(-1, 1, mean.shape))
    variance = (rest**2).mean(axis, keepdims=True)
    epsilon = float(np.float32(attrs.get("epsilon", 1e-5)))
    y = rest / (np.sqrt(variance) + 1e-9 if axes is not None else np.sqrt(variance + epsilon))
    y = y * scales[0] if scales else y
    y = y + scales[1] if len(scales) > 1 else y
    y = y if axes is None else np.moveaxis(y, range(-len(axes), 0), axes)
    return [y.reshape(xs[0].shape).astype(xs[0].dtype)]
