"""The operators: for each a function that adds a node or a few to a graph, with operands that are there or new.

OPERATORS has rows of name, first and last opset of the form, weight, and the function. A function may be wrong about what is valid:
the evaluation of the node then rejects it.
"""
import numpy as np
from onnx import helper, TensorProto

from build import float_types
from evaluate import (BF16, BOOL, F16, F32, F64, FLOATS, I32, I64, I8, INTS, ONNX_TYPE, SIGNED, U8, UNSIGNED, Reject, is_float)

NUMBERS = FLOATS + INTS
OPERATORS = []


def row(name, since=1, until=99, weight=1.0):
    def add(function):
        OPERATORS.append((name, since, until, weight, function))
        return function
    return add


def simple(names, types, since=1, weight=1.0, attrs=None, ranges=None):
    """Maps of one tensor."""
    for name in names:
        def function(g, name=name):
            v = g.pick(types(g) if callable(types) else types)
            if ranges and name in ranges:
                v = within(g, v, *ranges[name])
            g.node(name, [v], **(attrs(g, name) if attrs else {}))
        OPERATORS.append((name, since, 99, weight, function))


def within(g, v, low, high):
    """|v| brought into a range, where it is not."""
    a = v.array.astype(np.float64)
    if not a.size or (np.nanmin(a) >= low and np.nanmax(a) <= high):
        return v
    if low == -1 and high == 1:
        return g.node("Tanh", [v])[0]
    v = g.node("Abs", [v])[0]
    return g.node("Add", [v, g.param(np.asarray(low + 0.25, v.dtype))])[0] if low > 0 else v


floats = float_types
simple(["Relu"], floats, weight=4)
simple(["Neg", "Abs", "Sign"], lambda g: floats(g) + [I32, I64, I8])
simple(["Identity"], NUMBERS + [BOOL])
simple(["Exp", "Tanh", "Sigmoid", "Erf", "Sqrt"], floats, weight=1.5, ranges={"Sqrt": (0, np.inf)})
simple(["Ceil", "Floor", "Cos", "Sin", "Reciprocal", "Softplus", "Softsign", "Atan", "Asinh", "Sinh", "Cosh", "Tan", "Log", "Acos", "Asin", "Atanh", "Acosh"],
       floats, since=9, weight=0.5,
       ranges={"Log": (0.1, np.inf), "Acos": (-1, 1), "Asin": (-1, 1), "Atanh": (-1, 1), "Acosh": (1, np.inf), "Reciprocal": (0.1, np.inf)})
simple(["Round"], floats, since=11)
simple(["IsNaN"], floats, since=9, weight=0.4)
simple(["IsInf"], [F32, F64], since=10, weight=0.4)
simple(["Not"], [BOOL])
simple(["BitwiseNot"], INTS, since=18, weight=0.5)
simple(["HardSwish"], floats, since=14)
simple(["Mish"], floats, since=18)
simple(["LeakyRelu", "Elu"], floats, weight=0.8, attrs=lambda g, n: {"alpha": g.choice([None, 0.1, 1.5])})
simple(["Selu"], floats, weight=0.5)
simple(["Celu"], floats, since=12, weight=0.5, attrs=lambda g, n: {"alpha": g.choice([None, 0.5])})
simple(["ThresholdedRelu"], floats, since=10, attrs=lambda g, n: {"alpha": g.choice([None, 0.0, 0.5])})
simple(["HardSigmoid"], floats, attrs=lambda g, n: {"alpha": g.choice([None, 0.3])})
simple(["Gelu"], floats, since=20, weight=2, attrs=lambda g, n: {"approximate": g.choice(["none", "tanh"])})
simple(["Swish"], floats, since=24)
simple(["Shrink"], [F32, F16], since=9, weight=0.5, attrs=lambda g, n: {"lambd": 0.5, "bias": g.choice([0.0, 0.25])})


@row("Swish")
@row("HardSwish")
def sigmoid_product(g):
    v = g.pick(floats(g))
    g.node("Mul", [v, g.node(g.choice(["Sigmoid", "HardSigmoid", "Tanh"]), [v])[0]])


def pairs(names, types, since=7, weight=1.0, result=None):
    for name in names:
        def function(g, name=name):
            a = g.pick(types(g) if callable(types) else types)
            b = g.like(a)
            g.node(name, [a, b] if g.chance(0.7) else [b, a])
        OPERATORS.append((name, since, 99, weight, function))


def numbers(g):
    return floats(g) * 3 + [I32, I64] + (INTS if g.opset >= 14 else [])


pairs(["Add", "Mul", "Sub"], numbers, weight=4)
pairs(["Equal", "Greater", "Less"], lambda g: floats(g) + [I32, I64], since=9, weight=0.7)
pairs(["GreaterOrEqual", "LessOrEqual"], lambda g: floats(g) + [I32, I64], since=12, weight=0.5)
pairs(["And", "Or", "Xor"], [BOOL], weight=0.6)
pairs(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], INTS, since=18, weight=0.4)


@row("Div", 7, weight=2)
def div(g):
    a = g.pick(floats(g) * 4 + [I32, I64])
    if is_float(a.dtype) and g.chance(0.5):
        b = g.like(a)
        b = g.node("Add", [g.node("Abs", [b])[0], g.param(np.asarray(0.5, a.dtype))])[0]
    else:
        b = g.param(g.random_array(a.dtype, a.shape[-1:], 1, 7))
    g.node("Div", [a, b])


@row("Mod", 10, weight=0.7)
def mod(g):
    a = g.pick([F32, F64, I32, I64, I8, U8])
    fmod = 1 if is_float(a.dtype) else g.integer(0, 1)
    b = g.random_array(a.dtype, a.shape[-1:], 1, 7)
    if a.dtype in SIGNED + FLOATS and g.chance(0.5):
        b = (-b).astype(a.dtype)
    g.node("Mod", [a, g.param(b)], fmod=fmod)


@row("Pow", 7, weight=1)
def pow_(g):
    a = g.pick(floats(g) * 3 + ([I32, I64] if g.opset >= 12 else []))
    if not is_float(a.dtype):
        return g.node("Pow", [a, g.param(np.asarray(g.choice([0, 1, 2, 3]), a.dtype))])
    e = g.choice([2, 3, 0.5, -1, 1, 0, -2, 1.5, 4])
    if e != int(e):
        a = within(g, a, 0, np.inf)
    elif e < 0:
        a = within(g, a, 0.1, np.inf)
    t = g.choice([a.dtype, I64 if e == int(e) and g.opset >= 12 else a.dtype])
    return g.node("Pow", [a, g.param(np.asarray(e, t))])


@row("BitShift", 11, weight=0.4)
def bit_shift(g):
    a = g.pick(UNSIGNED)
    g.node("BitShift", [a, g.param(g.random_array(a.dtype, a.shape[-1:], 0, 7))], direction=g.choice(["LEFT", "RIGHT"]))


@row("Max", 8, weight=1.5)
@row("Min", 8, weight=1.5)
@row("Sum", 8)
@row("Mean", 8, weight=0.5)
def variadic(g, name=None):
    name = g.choice(["Max", "Min", "Sum", "Mean"])
    a = g.pick(floats(g) + ([I32, I64] if name in ("Max", "Min") and g.opset >= 12 else []))
    g.node(name, [a] + [g.like(a) for _ in range(g.integer(0, 3))])


@row("PRelu", 9)
def prelu(g):
    a = g.pick(floats(g), least=1)
    shape = a.shape[-1:] if g.chance(0.5) else (a.shape[1],) + (1,) * (a.rank - 2) if a.rank > 1 else a.shape
    g.node("PRelu", [a, g.param(g.random_array(a.dtype, shape))])


@row("Where", 9, weight=2)
def where(g):
    a = g.pick(floats(g) * 3 + [I64, I32, BOOL])
    if g.chance(0.6):
        b = g.like(a)
        c = g.node("Not", [a])[0] if a.dtype == BOOL else g.node(g.choice(["Greater", "Less"]), [a, b])[0]
        zero = g.param(np.zeros((), a.dtype)) if g.chance(0.5) else b
    else:
        c, zero = g.like(a, [BOOL]), g.like(a)
    g.node("Where", [c, a, zero] if g.chance(0.6) else [c, zero, a])


@row("Clip", 7, weight=1.5)
def clip(g):
    a = g.pick(floats(g) * 3 + ([I32, I64, I8, U8] if g.opset >= 12 else []))
    low, high = (-1.0, 2.0) if is_float(a.dtype) else (1, 5)
    if g.opset < 11:
        if not is_float(a.dtype):
            raise Reject("floats alone")
        return g.node("Clip", [a], min=g.choice([None, low]), max=g.choice([None, high]))
    return g.node("Clip", [a, g.choice([None, g.scalar(low, a.dtype)]), g.choice([None, g.scalar(high, a.dtype)])])


@row("Cast", 9, weight=3)
def cast(g):
    a = g.pick(NUMBERS + [BOOL])
    to = g.choice(g.types * 2 + [F32, I32, I64, BOOL] + FLOATS + INTS)
    if is_float(a.dtype) and not is_float(to) and to != BOOL:
        info = np.iinfo(to)
        x = a.array.astype(np.float64)
        if x.size and (not np.isfinite(x).all() or x.min() <= max(info.min, -2.0**62) - 0.5 or x.max() >= min(info.max, 2.0**62)):
            raise Reject("out of range: undefined")
    g.node("Cast", [a], to=ONNX_TYPE[to])


@row("CastLike", 15, weight=0.4)
def cast_like(g):
    a, b = g.pick([I32, I64, BOOL, F16]), g.pick(floats(g))
    g.node("CastLike", [a, b])


@row("Dropout", 13, weight=0.3)
def dropout(g):
    g.node("Dropout", [g.pick([F32, F64]), g.scalar(0.3, F32)], outputs=g.integer(1, 2))


# --- reductions

def axes_of(g, v, least=1):
    n = g.integer(least, max(v.rank, least))
    axes = sorted(int(k) for k in g.rng.permutation(v.rank)[:n])
    return [k - v.rank if g.chance(0.3) else k for k in axes]


REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]


def reduction(g, name):
    since = 13 if name == "ReduceSum" else 18
    types = floats(g) * 3
    if name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
        types = types + [I32, I64]
    if name in ("ReduceMax", "ReduceMin") and g.opset >= 12:
        types = types + [I8, U8] + ([BOOL] if g.opset >= 20 else [])
    v = g.pick(types, least=1)
    if name == "ReduceLogSum":
        v = within(g, v, 0.1, np.inf)
    axes, keep = axes_of(g, v), g.integer(0, 1)
    if g.chance(0.15):
        return g.node(name, [v], keepdims=keep)
    if g.opset >= since:
        return g.node(name, [v, g.ints(axes)], keepdims=keep)
    return g.node(name, [v], axes=axes, keepdims=keep)


for _name in REDUCTIONS:
    OPERATORS.append((_name, 7, 99, 1.5 if _name in ("ReduceSum", "ReduceMean", "ReduceMax") else 0.5, lambda g, name=_name: reduction(g, name)))


@row("ArgMax", 7)
@row("ArgMin", 7, weight=0.5)
def arg(g):
    v = g.pick(floats(g) + [I32, I8, U8] if g.opset >= 13 else [F32, I32], least=1)
    g.node(g.choice(["ArgMax", "ArgMin"]), [v], axis=g.integer(-v.rank, v.rank - 1), keepdims=g.integer(0, 1),
           select_last_index=g.integer(0, 1) if g.opset >= 12 else None)


@row("CumSum", 11, weight=1)
def cumsum(g):
    v = g.pick([F32, F64, I32, I64], least=1)
    g.node("CumSum", [v, g.scalar(g.integer(-v.rank, v.rank - 1))], exclusive=g.integer(0, 1), reverse=g.integer(0, 1))


@row("TopK", 10, weight=1)
def topk(g):
    v = g.pick([F32, F64] + ([I64, I32] if g.opset >= 11 else []), least=1, where=lambda v: min(v.shape) > 0)
    axis = g.integer(-v.rank, v.rank - 1)
    k = g.integer(1, v.shape[axis])
    attrs = {"axis": axis} | ({"largest": g.integer(0, 1)} if g.opset >= 11 else {})
    g.node("TopK", [v, g.ints(k)], outputs=2, **attrs)


@row("Softmax", 7, weight=2)
@row("LogSoftmax", 7)
@row("Hardmax", 7, weight=0.5)
def softmax(g):
    v = g.pick(floats(g), least=1)
    g.node(g.choice(["Softmax", "Softmax", "LogSoftmax", "Hardmax"]), [v], axis=g.choice([-1, v.rank - 1, g.integer(0, v.rank - 1)]) if g.opset >= 11
           else g.integer(0, v.rank - 1))


# --- normalizations

def per(g, v, axis):
    c = v.shape[axis]
    return g.param(g.random_array(v.dtype, [c], 0.5, 1.5)), g.param(g.random_array(v.dtype, [c], -1, 1))


@row("BatchNormalization", 9, weight=1.5)
def batch_normalization(g):
    v = g.pick([F32, F64], least=2)
    s, b = per(g, v, 1)
    m, var = per(g, v, 1)
    var = g.param(g.random_array(v.dtype, [v.shape[1]], 0.2, 2))
    g.node("BatchNormalization", [v, s, b, m, var], epsilon=g.choice([None, 1e-3]))


@row("InstanceNormalization", 7)
def instance_normalization(g):
    v = g.pick([F32], least=3)
    g.node("InstanceNormalization", [v, *per(g, v, 1)], epsilon=1e-2)


@row("LayerNormalization", 17, weight=2)
def layer_normalization(g):
    v = g.pick([F32, F64, F16], least=1)
    axis = g.choice([-1, g.integer(-v.rank, v.rank - 1)])
    shape = v.shape[axis:] if axis < 0 else v.shape[axis:]
    s, b = g.param(g.random_array(v.dtype, shape, 0.5, 1.5)), g.param(g.random_array(v.dtype, shape, -1, 1))
    g.node("LayerNormalization", [v, s] + ([b] if g.chance(0.7) else []), axis=axis, epsilon=1e-2)


@row("RMSNormalization", 23)
def rms_normalization(g):
    v = g.pick([F32, F64], least=1)
    g.node("RMSNormalization", [v, g.param(g.random_array(v.dtype, v.shape[-1:], 0.5, 1.5))], axis=-1, epsilon=1e-2)


@row("GroupNormalization", 21, weight=0.7)
def group_normalization(g):
    v = g.pick([F32], least=3)
    n = g.choice([k for k in (1, 2, 3, 4) if v.shape[1] % k == 0])
    g.node("GroupNormalization", [v, *per(g, v, 1)], num_groups=n, epsilon=1e-2)


@row("LayerNormalization")
def layer_normalization_parts(g):
    v = g.pick(floats(g), least=2)
    attrs = {"axes": [-1], "keepdims": 1} if g.opset < 18 else {"keepdims": 1}
    axes = [g.ints(-1)] if g.opset >= 18 else []
    d = g.node("Sub", [v, g.node("ReduceMean", [v] + axes, **attrs)[0]])[0]
    two = g.param(np.asarray(2, v.dtype), constant=True)
    var = g.node("ReduceMean", [g.node("Pow", [d, two])[0]] + axes, **attrs)[0]
    g.node("Div", [d, g.node("Sqrt", [g.node("Add", [var, g.param(np.asarray(0.1, v.dtype), constant=True)])[0]])[0]])


@row("LRN", 7, weight=0.6)
def lrn(g):
    v = g.pick([F32], rank=4)
    g.node("LRN", [v], size=g.choice([1, 3, 5]), alpha=g.choice([None, 0.1]))


@row("LpNormalization", 7, weight=0.4)
def lp_normalization(g):
    v = within(g, g.pick([F32, F64], least=1), 0.1, np.inf)
    g.node("LpNormalization", [v], axis=g.integer(-v.rank, v.rank - 1), p=g.integer(1, 2))


@row("MeanVarianceNormalization", 9, weight=0.4)
def mean_variance(g):
    g.node("MeanVarianceNormalization", [g.pick([F32], rank=4)])


# --- moving data

ANY = NUMBERS + [BOOL]


def anything(g):
    return g.types * 3 + ANY


def factors(g, n):
    """A random shape of |n| elements."""
    shape = []
    while n > 1 and len(shape) < 4:
        d = g.choice([k for k in range(1, n + 1) if n % k == 0] or [1])
        shape.append(d)
        n //= d
    shape.append(n)
    if g.chance(0.2):
        shape.insert(g.integer(0, len(shape)), 1)
    return shape


@row("Reshape", 7, weight=4)
def reshape(g):
    v = g.pick(anything(g))
    if v.size and v.shape and g.chance(0.5) or g.sizes[0] is not None:  # merge or split axes that lie together
        shape = list(v.shape)
        if len(shape) > 1 and g.chance(0.5):
            k = g.integer(0, len(shape) - 2)
            shape[k:k + 2] = [shape[k] * shape[k + 1]]
        elif shape:
            k = g.integer(0, len(shape) - 1)
            d = g.choice([d for d in range(1, shape[k] + 1) if shape[k] % d == 0] or [1])
            shape[k:k + 1] = [d, shape[k] // d] if g.chance(0.5) else [shape[k] // max(d, 1), d]
    else:
        shape = factors(g, v.size) if v.size else list(v.shape)
    if shape and v.size and g.chance(0.4) or g.sizes[0] is not None and shape:
        shape[0 if g.sizes[0] is not None and g.chance(0.7) else g.integer(0, len(shape) - 1)] = -1
    g.node("Reshape", [v, g.ints(shape)])


@row("Transpose", 7, weight=4)
def transpose(g):
    v = g.pick(anything(g), least=1)
    perm = [int(k) for k in g.rng.permutation(v.rank)]
    if v.rank > 1 and g.chance(0.5):
        perm = list(range(v.rank))
        perm[-1], perm[-2] = perm[-2], perm[-1]
    g.node("Transpose", [v], perm=None if g.chance(0.1) else perm)


@row("Flatten", 9, weight=0.6)
def flatten(g):
    v = g.pick(anything(g), least=1)
    g.node("Flatten", [v], axis=g.integer(0 if g.opset < 11 else -v.rank, v.rank))


def with_axes(g, name, v, axes, since=13):
    return g.node(name, [v, g.ints(axes)]) if g.opset >= since else g.node(name, [v], axes=axes)


@row("Squeeze", 7)
def squeeze(g):
    v = g.pick(anything(g), where=lambda v: 1 in v.shape)
    with_axes(g, "Squeeze", v, [k for k, e in enumerate(v.shape) if e == 1 and g.chance(0.8)] or [v.shape.index(1)])


@row("Unsqueeze", 7)
def unsqueeze(g):
    v = g.pick(anything(g), most=4)
    with_axes(g, "Unsqueeze", v, sorted({g.integer(0, v.rank) for _ in range(g.integer(1, 2))}))


@row("Expand", 8)
def expand(g):
    v = g.pick(anything(g), most=4)
    shape = [g.integer(2, 4) if e == 1 and g.chance(0.7) else g.choice([e, 1]) for e in v.shape]
    g.node("Expand", [v, g.ints(([g.integer(1, 3)] if g.chance(0.4) else []) + shape)])


@row("Tile", 7)
def tile(g):
    v = g.pick(anything(g), least=1)
    g.node("Tile", [v, g.ints([g.choice([1, 1, 2, 3]) for _ in range(v.rank)])])


@row("Concat", 7, weight=4)
def concat(g):
    v = g.pick(anything(g), least=1)
    axis = g.integer(0, v.rank - 1)
    def fits(w):
        return w.rank == v.rank and all(a == b for k, (a, b) in enumerate(zip(v.shape, w.shape)) if k != axis)
    parts = [v]
    for _ in range(g.integer(1, 3)):
        roll = g.rng.random()
        if roll < 0.3:
            parts.append(v)
        elif roll < 0.7:
            parts.append(g.pick([v.dtype], where=fits, fresh=0))
        else:
            shape = list(v.shape)
            shape[axis] = g.choice([1, 2, 3, 5])
            parts.append(g.param(g.random_array(v.dtype, shape)))
    g.rng.shuffle(parts)
    g.node("Concat", parts, axis=axis if g.chance(0.7) else axis - v.rank)


@row("Split", 7, weight=2)
def split(g):
    v = g.pick(anything(g), least=1, where=lambda v: max(v.shape, default=0) > 1)
    axis = int(np.argmax(v.shape)) if g.chance(0.5) else g.integer(0, v.rank - 1)
    n = min(g.integer(2, 3), v.shape[axis])
    if n < 2:
        raise Reject("short")
    cuts = sorted(int(k) for k in g.rng.permutation(np.arange(1, v.shape[axis]))[:n - 1])
    lengths = [b - a for a, b in zip([0] + cuts, cuts + [v.shape[axis]])]
    if g.opset >= 13:
        outs = g.node("Split", [v, g.ints(lengths)], outputs=n, axis=axis)
    else:
        outs = g.node("Split", [v], outputs=n, axis=axis, split=lengths)
    if g.chance(0.3):
        g.node("Concat", list(reversed(outs)), axis=axis)


@row("Slice", 7, weight=4)
def slice_(g):
    v = g.pick(anything(g), least=1)
    axes = sorted({g.integer(0, v.rank - 1) for _ in range(g.integer(1, 2))})
    starts, ends, steps = [], [], []
    for k in axes:
        n = v.shape[k]
        step = 1 if g.opset < 10 else g.choice([1, 1, 1, 2, 3, -1, -2])
        a, b = sorted([g.integer(0, max(n, 1)), g.integer(0, max(n, 1))])
        if a == b and n:
            a, b = (0, b) if b else (0, n)
        if step < 0:
            a, b = b - 1, a - 1 if a else -2**62
        elif g.chance(0.3):
            a, b = a - n if a < n else a, g.choice([2**63 - 1, 2**31 - 1, b])
        starts.append(a), ends.append(b), steps.append(step)
    if g.opset < 10:
        return g.node("Slice", [v], starts=starts, ends=ends, axes=axes)
    signed = [k - v.rank if g.chance(0.3) else k for k in axes]
    return g.node("Slice", [v, g.ints(starts), g.ints(ends), g.ints(signed), g.ints(steps)])


@row("Pad", 7, weight=3)
def pad(g):
    v = g.pick(floats(g) * 4 + ([I32, I64, U8, BOOL] if g.opset >= 13 else []), least=1)
    mode = g.choice(["constant"] * 3 + ["reflect", "edge"] + (["wrap"] if g.opset >= 19 else []))
    pads = [g.choice([0, 0, 1, 2]) for _ in range(2 * v.rank)]
    if mode == "constant" and g.chance(0.2):
        pads[g.integer(0, 2 * v.rank - 1)] = -1
    if mode == "reflect":
        pads = [min(p, max(0, v.shape[k % v.rank] - 1)) for k, p in enumerate(pads)]
    if g.opset < 11:
        return g.node("Pad", [v], pads=pads, mode=mode, value=g.choice([None, 1.5]))
    value = [] if mode != "constant" or g.chance(0.4) else [g.scalar(0.5 if is_float(v.dtype) else 1, v.dtype)]
    return g.node("Pad", [v, g.ints(pads)] + value, mode=mode)


def indices(g, n, shape, types=(I64, I32)):
    if n < 1:
        raise Reject("nothing to choose from")
    a = g.rng.integers(-n if g.chance(0.3) and g.opset >= 11 else 0, n, shape)
    return g.param(np.asarray(a).astype(g.choice(list(types))))


@row("Gather", 7, weight=3)
def gather(g):
    v = g.pick(anything(g), least=1)
    axis = g.integer(0, v.rank - 1)
    g.node("Gather", [v, indices(g, v.shape[axis], [g.integer(1, 5) for _ in range(g.integer(0, 2))])], axis=axis)


@row("GatherElements", 11)
def gather_elements(g):
    v = g.pick(anything(g), least=1)
    axis = g.integer(0, v.rank - 1)
    shape = [g.integer(1, max(e, 1)) if k != axis else g.integer(1, 6) for k, e in enumerate(v.shape)]
    g.node("GatherElements", [v, indices(g, v.shape[axis], shape)], axis=axis)


def tuples(g, v, depth, lead):
    a = np.stack([g.rng.integers(0, max(v.shape[k], 1), lead) for k in range(depth)], -1)
    return a.astype(I64)


@row("GatherND", 11)
def gather_nd(g):
    v = g.pick(anything(g), least=1, where=lambda v: v.size > 0)
    g.node("GatherND", [v, g.param(tuples(g, v, g.integer(1, v.rank), [g.integer(1, 4) for _ in range(g.integer(1, 2))]))])


@row("ScatterND", 11, weight=1.5)
def scatter_nd(g):
    v = g.pick(floats(g) * 3 + [I64, I32], least=1, where=lambda v: v.size > 0)
    depth = g.integer(1, v.rank)
    reduction = g.choice([None, None] + (["add", "mul"] if g.opset >= 16 else []) + (["max", "min"] if g.opset >= 18 else []))
    i = tuples(g, v, depth, [g.integer(1, 5)])
    if reduction is None:
        i = np.unique(i, axis=0)
    u = g.random_array(v.dtype, [i.shape[0]] + list(v.shape[depth:]))
    g.node("ScatterND", [v, g.param(i), g.param(u)], reduction=reduction)


@row("ScatterElements", 11)
def scatter_elements(g):
    v = g.pick(floats(g) * 3 + [I64, I32], least=1, where=lambda v: v.size > 0)
    axis = g.integer(0, v.rank - 1)
    reduction = g.choice([None, None] + (["add", "mul"] if g.opset >= 16 else []) + (["max", "min"] if g.opset >= 18 else []))
    shape = [g.integer(1, e) for e in v.shape]
    i = np.argsort(g.rng.random(shape[:axis] + [v.shape[axis]] + shape[axis + 1:]), axis=axis).take(range(shape[axis]), axis=axis)
    g.node("ScatterElements", [v, g.param(i.astype(I64)), g.param(g.random_array(v.dtype, shape))], axis=axis, reduction=reduction)


@row("DepthToSpace", 11, weight=0.7)
def depth_to_space(g):
    v = g.pick(floats(g), rank=4)
    b = g.choice([k for k in (1, 2, 3) if v.shape[1] % (k * k) == 0])
    g.node("DepthToSpace", [v], blocksize=b, mode=g.choice(["DCR", "CRD"]))


@row("SpaceToDepth", 7, weight=0.7)
def space_to_depth(g):
    v = g.pick(floats(g), rank=4)
    g.node("SpaceToDepth", [v], blocksize=g.choice([k for k in (1, 2, 3) if v.shape[2] % k == 0 and v.shape[3] % k == 0]))


@row("ReverseSequence", 10, weight=0.5)
def reverse_sequence(g):
    v = g.pick([F32, F64, I64, I32], least=2)
    t = g.integer(0, 1)
    g.node("ReverseSequence", [v, g.param(g.rng.integers(1, max(v.shape[t], 1) + 1, [v.shape[1 - t]]).astype(I64))], time_axis=t, batch_axis=1 - t)


@row("Trilu", 14)
def trilu(g):
    v = g.pick([F32, F64, I64], least=2)
    g.node("Trilu", [v] + ([g.scalar(g.integer(-3, 3))] if g.chance(0.6) else []), upper=g.integer(0, 1))


@row("EyeLike", 9, weight=0.4)
def eye_like(g):
    g.node("EyeLike", [g.pick([F32, F64, I64, I32], rank=2)], k=g.integer(-2, 2))


@row("OneHot", 11, weight=0.7)
def one_hot(g):
    d = g.integer(2, 7)
    v = g.param(g.rng.integers(-d, d, g.shape(most=2)).astype(I64))
    g.node("OneHot", [v, g.ints(d), g.param(g.random_array(g.choice([F32, I64]), [2]), constant=True)], axis=g.integer(-1, v.rank))


@row("Compress", 9, weight=0.4)
def compress(g):
    v = g.pick(floats(g) + [I64], least=1)
    axis = g.integer(0, v.rank - 1)
    g.node("Compress", [v, g.param(g.rng.random(v.shape[axis]) < 0.6)], axis=axis)


@row("NonZero", 9, weight=0.4)
def non_zero(g):
    g.node("NonZero", [g.pick([F32, I64, BOOL, I32], least=1)])


@row("Unique", 11, weight=0.4)
def unique(g):
    v = g.pick([F32, I64, F64, I8], least=1)
    g.node("Unique", [v], outputs=g.integer(1, 4), sorted=g.integer(0, 1), axis=g.choice([None, g.integer(0, v.rank - 1)]))


@row("Shape", 7, weight=0.7)
def shape_of(g):
    v = g.pick()
    attrs = {"start": g.integer(0, 1)} if g.opset >= 15 and g.chance(0.3) else {}
    s = g.node("Shape", [v], **attrs)[0]
    if g.chance(0.6) and not attrs and v.size:
        filled = helper.make_tensor("v", TensorProto.FLOAT, [1], [g.choice([0.0, 1.5])])
        g.node("ConstantOfShape", [s], value=filled)
    elif g.chance(0.5) and not attrs:
        g.node("Reshape", [g.pick(where=lambda w: w.size == v.size, fresh=0), s])


@row("Size", 7, weight=0.2)
def size_of(g):
    g.node("Size", [g.pick()])


@row("Range", 11, weight=0.4)
def range_(g):
    t = g.choice([I64, I32, F32])
    start, step = g.integer(-3, 3), g.choice([1, 2, -1])
    g.node("Range", [g.scalar(x, t) for x in (start, start + step * g.integer(1, 20), step)])


@row("CenterCropPad", 18, weight=0.4)
def center_crop_pad(g):
    v = g.pick([F32, I64], least=1)
    g.node("CenterCropPad", [v, g.ints([max(1, e + g.integer(-2, 3)) for e in v.shape])])


@row("ConstantOfShape", 9, weight=0.2)
def constant_of_shape(g):
    g.node("ConstantOfShape", [g.ints(g.shape(most=3))], value=helper.make_tensor("v", TensorProto.INT64, [1], [7]))


# --- products

@row("MatMul", 7, weight=6)
def matmul(g):
    a = g.pick(floats(g) * 4 + ([I32, I64] if g.opset >= 9 else []), least=1)
    k = a.shape[-1]
    if g.chance(0.25) and a.rank >= 2:
        b = g.pick([a.dtype], least=2, where=lambda w: w.shape[-2] == k and w.rank <= a.rank and
                   all(x == y or 1 in (x, y) for x, y in zip(a.shape[-w.rank:-2], w.shape[:-2])), fresh=0)
    else:
        shape = [k, g.extent()] if g.chance(0.8) else list(a.shape[:-2]) + [k, g.extent()]
        if g.chance(0.05):
            shape = [k]
        b = g.param(g.random_array(a.dtype, shape) if not is_float(a.dtype) else
                    (g.random_array(a.dtype, shape).astype(F64) / max(k, 1)**0.5).astype(a.dtype))
    y = g.node("MatMul", [a, b])[0]
    if g.chance(0.4) and y.rank:
        g.node("Add", [y, g.param(g.random_array(a.dtype, y.shape[-1:]))])


@row("Gemm", 7, weight=2)
def gemm(g):
    a = g.pick([F32, F64], rank=2)
    ta, tb = g.integer(0, 1), g.integer(0, 1)
    m, k = a.shape[::-1] if ta else a.shape
    n = g.extent()
    b = g.param(g.random_array(a.dtype, [n, k] if tb else [k, n]))
    c = [g.param(g.random_array(a.dtype, g.choice([[n], [1, n], [m, n], [m, 1], []])))] if g.chance(0.7) or g.opset < 11 else []
    g.node("Gemm", [a, b] + c, transA=ta, transB=tb, alpha=g.choice([None, 0.5]), beta=g.choice([None, 2.0]))


@row("Einsum", 12, weight=1)
def einsum(g):
    a = g.pick([F32, F64], least=2, most=4)
    letters = "abcd"[:a.rank]
    kept = [c for c in letters if g.chance(0.6)]
    if g.chance(0.3):
        g.rng.shuffle(kept)
        return g.node("Einsum", [a], equation=f"{letters}->{''.join(kept)}")
    shared = g.choice(list(letters))
    n = g.extent()
    b = g.param(g.random_array(a.dtype, [a.shape[letters.index(shared)], n]))
    out = [c for c in letters if c != shared or g.chance(0.2)] + ["z"]
    g.rng.shuffle(out)
    return g.node("Einsum", [a, b], equation=f"{letters},{shared}z->{''.join(out)}")


@row("Softmax", 7, weight=1.5)
def attention(g):
    a = g.pick(floats(g), rank=3, where=lambda v: v.size > 0)
    heads = g.choice([h for h in (1, 2, 3, 4) if a.shape[-1] % h == 0])
    b, t, e = a.shape
    lead = 0 if g.sizes[0] is not None else b
    def head():
        w = g.param((g.random_array(F32, [e, e]) / e**0.5).astype(a.dtype))
        v = g.node("MatMul", [a, w])[0]
        v = g.node("Reshape", [v, g.ints([lead, t if lead else 0, heads, e // heads])])[0]
        return g.node("Transpose", [v], perm=[0, 2, 1, 3])[0]
    q, k, v = head(), head(), head()
    s = g.node("MatMul", [q, g.node("Transpose", [k], perm=[0, 1, 3, 2])[0]])[0]
    s = g.node("Mul", [s, g.param(np.asarray((e // heads)**-0.5, a.dtype))])[0]
    if g.chance(0.4):
        mask = np.where(np.tri(t, dtype=bool) if g.chance(0.5) else g.rng.random((t, t)) < 0.8, 0, g.choice([-1e9, -np.inf, -1e4]))
        mask[np.arange(t), np.arange(t)] = 0
        if a.dtype != F16:
            s = g.node("Add", [s, g.param(mask.astype(a.dtype))], check=False)[0]
    p = g.node("Softmax", [s], axis=-1 if g.opset >= 11 else 3)[0]
    o = g.node("Transpose", [g.node("MatMul", [p, v])[0]], perm=[0, 2, 1, 3])[0]
    g.node("Reshape", [o, g.ints([lead, t if lead else 0, e])])


@row("Attention", 23, weight=1)
def attention_23(g):
    b, h, t, s, d = g.integer(1, 2), g.integer(1, 3), g.extent(), g.extent(), g.choice([2, 4, 8])
    q, k, v = (g.param(g.random_array(F32, [b, h, n, d])) for n in (t, s, s))
    g.node("Attention", [q, k, v], is_causal=g.integer(0, 1), softcap=g.choice([None, 2.0]))


# --- windows

def image(g, ranks=(3, 4, 4, 4, 5), types=None):
    return g.pick(types or [F32], rank=g.choice(ranks), where=lambda v: v.size > 0 and max(v.shape[2:]) <= 40, fresh=0.3)


def window(g, v, strided=True):
    spatial = v.shape[2:]
    kernel = [min(g.choice([1, 2, 3, 3, 3, 5]), max(e, 1)) for e in spatial]
    if g.chance(0.5):
        kernel = [min(kernel[0], *[max(e, 1) for e in spatial])] * len(spatial)
    attrs = {"kernel_shape": kernel}
    if strided and g.chance(0.4):
        attrs["strides"] = [g.choice([1, 2, 3]) for _ in spatial]
    if g.chance(0.2) and all(2 * (k - 1) < e for k, e in zip(kernel, spatial)):
        attrs["dilations"] = [2] * len(spatial)
    if g.chance(0.6):
        attrs["pads"] = [min(g.choice([0, 1, 1, 2]), k - 1) for k in kernel * 2] if g.chance(0.4) else [k // 2 if k > 1 else 0 for k in kernel] * 2
    elif g.chance(0.2) and "dilations" not in attrs:
        steps = attrs.get("strides", [1] * len(spatial))
        skips = any(k < s and (e - 1) // s * s + k < e for e, k, s in zip(spatial, kernel, steps))  # padding would be negative: ONNX is silent, and nobody agrees
        attrs["auto_pad"] = "VALID" if skips else g.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    return attrs


@row("Conv", 7, weight=6)
def conv(g):
    v = image(g, types=[F32, F32, F16] if F16 in g.types else [F32])
    c = v.shape[1]
    attrs = window(g, v)
    groups = [k for k in range(1, c + 1) if c % k == 0]
    group = g.choice(groups) if g.chance(0.3) else g.choice([1, 1, c])
    m = group * g.choice([1, 1, 2, 3, 4]) if group > 1 else g.choice([1, 3, 4, 8, 12, 16, 20, 32])
    w = g.random_array(F32, [m, c // group] + attrs["kernel_shape"]) / max(1, (c // group) * np.prod(attrs["kernel_shape"]))**0.5
    b = [g.param(g.random_array(v.dtype, [m]))] if g.chance(0.5) else []
    y = g.node("Conv", [v, g.param(w.astype(v.dtype))] + b, group=group, **attrs)[0]
    if g.chance(0.3) and y.dtype == F32:
        s, o = per(g, y, 1)
        mean, _ = per(g, y, 1)
        y = g.node("BatchNormalization", [y, s, o, mean, g.param(g.random_array(F32, [m], 0.5, 2))])[0]
    if g.chance(0.4):
        g.node(g.choice(["Relu", "Relu", "LeakyRelu", "Sigmoid", "Tanh"]), [y])


@row("Add", 7, weight=1.5)
def residual(g):
    v = image(g, ranks=(4,))
    c = v.shape[1]
    y = v
    for _ in range(g.integer(1, 2)):
        k = g.choice([1, 3])
        w = g.param((g.random_array(F32, [c, c, k, k]) / (c * k * k)**0.5).astype(F32))
        y = g.node("Relu", [g.node("Conv", [y, w, g.param(g.random_array(F32, [c]))], kernel_shape=[k, k], pads=[k // 2] * 4)[0]])[0]
    g.node("Add", [v, y])


@row("GlobalAveragePool", 7, weight=0.7)
def squeeze_excite(g):
    v = image(g, ranks=(4,))
    c = v.shape[1]
    s = g.node("GlobalAveragePool", [v])[0]
    for m, n in ((c, max(1, c // 2)), (max(1, c // 2), c)):
        s = g.node("Conv", [s, g.param((g.random_array(F32, [n, m, 1, 1]) / m**0.5).astype(F32))], kernel_shape=[1, 1])[0]
        s = g.node("Sigmoid" if n == c else "Relu", [s])[0]
    g.node("Mul", [v, s])


@row("ConvTranspose", 7, weight=1)
def conv_transpose(g):
    v = image(g, ranks=(3, 4))
    c, k = v.shape[1], [g.choice([1, 2, 3]) for _ in v.shape[2:]]
    group = g.choice([1, 1] + [q for q in (2, 3, c) if c % q == 0])
    w = g.random_array(F32, [c, g.choice([1, 2, 5])] + k) / 2
    attrs = {"kernel_shape": k, "group": group, "strides": [g.choice([1, 2, 3]) for _ in k]}
    if g.chance(0.4):
        attrs["pads"] = [min(1, e - 1) for e in k] * 2
    if g.chance(0.3):
        attrs["output_padding"] = [s - 1 for s in attrs["strides"]]
    g.node("ConvTranspose", [v, g.param(w.astype(F32))] + ([g.param(g.random_array(F32, [w.shape[1] * group]))] if g.chance(0.5) else []), **attrs)


@row("MaxPool", 8, weight=1.5)
@row("AveragePool", 7, weight=1.5)
def pool(g):
    v = image(g)
    name = g.choice(["MaxPool", "AveragePool"])
    attrs = window(g, v)
    if name == "AveragePool" and g.opset < 19 or g.opset < 10:
        attrs.pop("dilations", None)
    if g.opset >= 10 and g.chance(0.3):
        attrs["ceil_mode"] = 1
    if name == "AveragePool" and g.chance(0.4):
        attrs["count_include_pad"] = 1
    g.node(name, [v], outputs=2 if name == "MaxPool" and g.chance(0.2) else 1, **attrs)


@row("LpPool", 18, weight=0.4)
def lp_pool(g):
    v = image(g)
    attrs = window(g, v)
    attrs.pop("dilations", None)
    g.node("LpPool", [v], p=g.choice([1, 2]), **attrs)


@row("GlobalAveragePool", 7)
@row("GlobalMaxPool", 7)
@row("GlobalLpPool", 7, weight=0.3)
def global_pool(g):
    g.node(g.choice(["GlobalAveragePool", "GlobalMaxPool", "GlobalMaxPool", "GlobalLpPool"]), [image(g)])


@row("MaxUnpool", 11, weight=0.3)
def max_unpool(g):
    v = image(g, ranks=(4,))
    y, i = g.node("MaxPool", [v], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    g.node("MaxUnpool", [y, i], kernel_shape=[2, 2], strides=[2, 2])


@row("Resize", 11, weight=1.5)
def resize(g):
    v = image(g, ranks=(3, 4, 4))
    mode = g.choice(["nearest", "linear", "cubic"] if v.rank == 4 else ["nearest", "linear"])
    coordinates = g.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attrs = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attrs["nearest_mode"] = g.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if mode == "cubic" and g.chance(0.5):
        attrs["cubic_coeff_a"] = -0.5
    if mode == "cubic" and g.chance(0.3):
        attrs["exclude_outside"] = 1
    if g.opset >= 18 and mode != "nearest" and g.chance(0.2):
        attrs["antialias"] = 1
    empty = g.param(np.zeros([0], F32), constant=True) if g.opset < 13 else None
    if g.chance(0.5):
        scales = [1.0, 1.0] + [g.choice([2.0, 0.5, 1.5, 3.0, 0.75, 1.0]) for _ in v.shape[2:]]
        return g.node("Resize", [v, empty, g.param(np.array(scales, F32), constant=True)], **attrs)
    sizes = list(v.shape[:2]) + [max(1, e + g.integer(-3, 6)) for e in v.shape[2:]]
    return g.node("Resize", [v, empty, empty, g.ints(sizes)], **attrs)


@row("Upsample", 9, 9, weight=1)
def upsample(g):
    v = image(g, ranks=(4,))
    g.node("Upsample", [v, g.param(np.array([1, 1, 2, g.choice([2, 3])], F32), constant=True)], mode=g.choice(["nearest", "linear"]))


@row("GridSample", 16, weight=0.5)
def grid_sample(g):
    v = image(g, ranks=(4,))
    grid = g.param(g.random_array(F32, [v.shape[0], g.integer(1, 5), g.integer(1, 5), 2], -1.3, 1.3))
    linear, cubic = ("linear", "cubic") if g.opset >= 20 else ("bilinear", "bicubic")
    g.node("GridSample", [v, grid], mode=g.choice([linear, "nearest", cubic]), padding_mode=g.choice(["zeros", "border", "reflection"]),
           align_corners=g.integer(0, 1))


@row("RoiAlign", 16, weight=0.3)
def roi_align(g):
    v = image(g, ranks=(4,))
    n = g.integer(1, 3)
    a = g.rng.uniform(0, 4, [n, 2])
    rois = np.concatenate([a, a + g.rng.uniform(1, 5, [n, 2])], 1).astype(F32)
    g.node("RoiAlign", [v, g.param(rois), g.param(g.rng.integers(0, v.shape[0], [n]).astype(I64))], output_height=g.integer(1, 3), output_width=2,
           sampling_ratio=g.integer(0, 2), mode=g.choice(["avg", "max"]))


@row("AffineGrid", 20, weight=0.3)
def affine_grid(g):
    n = g.integer(1, 2)
    g.node("AffineGrid", [g.param(g.random_array(F32, [n, 2, 3])), g.ints([n, 2, g.integer(2, 5), g.integer(2, 5)])], align_corners=g.integer(0, 1))


@row("Col2Im", 18, weight=0.3)
def col2im(g):
    h, w, k, c = g.integer(3, 6), g.integer(3, 6), g.integer(1, 2), g.integer(1, 3)
    v = g.param(g.random_array(F32, [g.integer(1, 2), c * k * k, (h - k + 1) * (w - k + 1)]))
    g.node("Col2Im", [v, g.ints([h, w]), g.ints([k, k])])


@row("DeformConv", 19, weight=0.3)
def deform_conv(g):
    n, c, h, w = 1, g.integer(1, 3), g.integer(3, 6), g.integer(3, 6)
    v, weight = g.param(g.random_array(F32, [n, c, h, w])), g.param(g.random_array(F32, [2, c, 2, 2]))
    g.node("DeformConv", [v, weight, g.param(g.random_array(F32, [n, 8, h - 1, w - 1], -0.9, 0.9))], kernel_shape=[2, 2])


@row("Det", 11, weight=0.3)
def det(g):
    k = g.integer(1, 4)
    g.node("Det", [g.param(g.random_array(F32, [g.integer(1, 3), k, k]))])


# --- quantization

def scale_of(v):
    x = np.abs(v.array.astype(F64))
    return float(max(x.max(initial=0, where=np.isfinite(x)), 1e-2) / 100)


@row("QuantizeLinear", 10, weight=2)
def quantize(g):
    v = g.pick([F32], least=1)
    t = g.choice([U8, I8])
    axis = g.integer(0, v.rank - 1) if g.opset >= 13 and g.chance(0.3) else None
    n = [] if axis is None else [v.shape[axis]]
    s = g.param(np.full(n, scale_of(v), F32) * g.rng.choice([1, 0.5, 2], n).astype(F32) if n else np.float32(scale_of(v)))
    z = g.param(g.rng.integers(0, 5, n).astype(t))
    attrs = {"axis": axis} if n else {}
    q = g.node("QuantizeLinear", [v, s, z], **attrs)[0]
    if g.chance(0.8):
        g.node("DequantizeLinear", [q, s, z], **attrs)


@row("DequantizeLinear", 10)
def dequantize(g):
    v = g.pick([U8, I8, I32])
    z = [] if v.dtype == I32 or g.chance(0.3) else [g.param(np.asarray(g.integer(0, 5), v.dtype))]
    g.node("DequantizeLinear", [v, g.param(np.float32(0.0625))] + z)


@row("MatMul", 13, weight=1.5)
@row("Conv", 13, weight=1)
def qdq_product(g):
    """A product between pairs of QuantizeLinear and DequantizeLinear."""
    v = g.pick([F32], least=2)
    def pair(v, scale, t, axis=None):
        s, z = g.param(np.asarray(scale, F32), constant=True), g.param(np.full(np.shape(scale), 0 if t == I8 else 3, t), constant=True)
        attrs = {"axis": axis} if axis is not None else {}
        return g.node("DequantizeLinear", [g.node("QuantizeLinear", [v, s, z], **attrs)[0], s, z], **attrs)[0]
    def weight(shape, axis):
        n = shape[axis]
        w, s = g.rng.integers(-127, 128, shape).astype(I8), np.full([n], 0.01, F32) * g.rng.uniform(0.5, 1, [n]).astype(F32)
        return g.node("DequantizeLinear", [g.param(w, constant=True), g.param(s, constant=True), g.param(np.zeros([n], I8), constant=True)], axis=axis)[0]
    a = pair(v, scale_of(v), g.choice([U8, I8]))
    if v.rank == 4 and g.chance(0.6):
        k = min(g.choice([1, 3]), *v.shape[2:])
        y = g.node("Conv", [a, weight([g.choice([1, 4, 8]), v.shape[1], k, k], 0)], kernel_shape=[k, k])[0]
    else:
        y = g.node("MatMul", [a, weight([v.shape[-1], g.choice([1, 4, 7, 16])], 1)])[0]
    if g.chance(0.5):
        y = g.node("Relu", [y])[0]
    pair(y, scale_of(y), g.choice([U8, I8]))


@row("DynamicQuantizeLinear", 11, weight=0.5)
def dynamic_quantize(g):
    v = g.pick([F32], least=1, where=lambda v: np.isfinite(v.array).all())  # ONNX says no scale for a NaN
    q, s, z = g.node("DynamicQuantizeLinear", [v], outputs=3)
    if v.rank >= 2:
        w = g.param(g.rng.integers(-127, 128, [v.shape[-1], g.extent()]).astype(I8))
        p = g.node("Cast", [g.node("MatMulInteger", [q, w, z])[0]], to=TensorProto.FLOAT)[0]
        g.node("Mul", [p, s])


@row("MatMulInteger", 10, weight=0.7)
def matmul_integer(g):
    a = g.pick([U8, I8], least=2)
    b = g.param(g.random_array(g.choice([U8, I8]), [a.shape[-1], g.extent()], 0, 100))
    g.node("MatMulInteger", [a, b] + ([g.param(np.asarray(g.integer(0, 9), a.dtype))] if g.chance(0.6) else []))


@row("ConvInteger", 10, weight=0.4)
def conv_integer(g):
    a = g.pick([U8], rank=4)
    k = min(2, *a.shape[2:])
    g.node("ConvInteger", [a, g.param(g.random_array(U8, [3, a.shape[1], k, k], 0, 100)), g.param(np.asarray(3, U8))])


@row("QLinearMatMul", 10, weight=0.5)
def qlinear_matmul(g):
    a = g.pick([U8, I8], least=2)
    t = a.dtype
    b = g.param(g.random_array(t, [a.shape[-1], g.extent()], 0, 100), constant=True)
    def s(x):
        return g.param(np.float32(x), constant=True)
    def z(x):
        return g.param(np.asarray(x, t), constant=True)
    g.node("QLinearMatMul", [a, s(0.02), z(3), b, s(0.01), z(2), s(0.05), z(1)])


@row("QLinearConv", 10, weight=0.4)
def qlinear_conv(g):
    a = g.pick([U8], rank=4)
    k = min(2, *a.shape[2:])
    def s(x, t=F32):
        return g.param(np.asarray(x, t), constant=True)
    g.node("QLinearConv", [a, s(0.02), s(3, U8), g.param(g.random_array(U8, [3, a.shape[1], k, k], 0, 100), constant=True), s(0.01), s(2, U8),
                           s(0.05), s(1, U8)])


# --- recurrences, signals, losses

@row("LSTM", 7, weight=0.7)
@row("GRU", 7, weight=0.5)
@row("RNN", 7, weight=0.4)
def recurrent(g):
    name, gates = g.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    v = g.pick([F32], rank=3, where=lambda v: v.size > 0 and v.shape[0] <= 9)
    h, direction = g.integer(1, 6), g.choice(["forward", "reverse", "bidirectional"])
    d = 2 if direction == "bidirectional" else 1
    w = g.param(g.random_array(F32, [d, gates * h, v.shape[2]], -0.7, 0.7))
    r = g.param(g.random_array(F32, [d, gates * h, h], -0.7, 0.7))
    b = g.param(g.random_array(F32, [d, 2 * gates * h], -0.5, 0.5)) if g.chance(0.6) else None
    attrs = {"linear_before_reset": g.integer(0, 1)} if name == "GRU" else {}
    g.node(name, [v, w, r, b], outputs=g.integer(1, 3 if name == "LSTM" else 2), hidden_size=h, direction=direction, **attrs)


@row("DFT", 17, 19, weight=0.3)
def dft(g):
    v = g.param(g.random_array(F32, [g.integer(1, 3), g.choice([2, 3, 5, 8, 12]), g.integer(1, 2)]))
    g.node("DFT", [v], axis=1, onesided=g.integer(0, 1) if v.shape[-1] == 1 else 0)


@row("STFT", 17, weight=0.2)
def stft(g):
    v = g.param(g.random_array(F32, [g.integer(1, 2), 32, 1]))
    g.node("STFT", [v, g.scalar(g.choice([3, 4, 8])), g.param(g.random_array(F32, [8]), constant=True)])


@row("HannWindow", 17, weight=0.1)
@row("HammingWindow", 17, weight=0.1)
@row("BlackmanWindow", 17, weight=0.1)
def window_function(g):
    g.node(g.choice(["HannWindow", "HammingWindow", "BlackmanWindow"]), [g.scalar(g.integer(2, 20))], periodic=g.integer(0, 1))


@row("NegativeLogLikelihoodLoss", 13, weight=0.2)
@row("SoftmaxCrossEntropyLoss", 13, weight=0.3)
def loss(g):
    v = g.pick([F32], least=2, where=lambda v: v.shape[1] > 0)
    labels = g.param(g.rng.integers(0, v.shape[1], v.shape[:1] + v.shape[2:]).astype(I64))
    g.node(g.choice(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]), [v, labels], reduction=g.choice(["none", "sum", "mean"]))


@row("NonMaxSuppression", 11, weight=0.2)
def non_max_suppression(g):
    n = g.integer(2, 8)
    a = g.rng.uniform(0, 4, [1, n, 2])
    boxes = np.concatenate([a, a + g.rng.uniform(0.5, 3, [1, n, 2])], 2).astype(F32)
    g.node("NonMaxSuppression", [g.param(boxes), g.param(g.rng.random([1, 2, n]).astype(F32)), g.scalar(g.integer(1, 5)), g.scalar(0.4, F32)])


# --- sub-graphs

STEADY = ["Relu", "Tanh", "Sigmoid", "Abs", "Neg"]


def steady(g, v):
    """A value of |v|'s type and shape, made of it by a few nodes."""
    for _ in range(g.integer(1, 3)):
        if is_float(v.dtype):
            v = g.node(g.choice(STEADY), [v])[0] if g.chance(0.5) else same_shape(g, v)
        else:
            v = g.node(g.choice(["Add", "Sub"]), [v, g.param(np.ones([], v.dtype))])[0]
    return v


def same_shape(g, v):
    w = g.node(g.choice(["Add", "Mul", "Sub", "Max"]), [v, g.like(v)])[0]
    if w.shape != v.shape:
        raise Reject("another shape")
    return w


def graph_of(sub, name, inputs, outputs):
    """The sub-graph as a message; its outputs have names of their own."""
    from evaluate import value_info
    infos = [value_info(v.name, v.dtype, [None] * v.rank) for v in inputs]
    outs = []
    for v in outs_named(sub, outputs):
        outs.append(value_info(v.name, v.dtype, [None] * v.rank))
    return helper.make_graph(sub.nodes(), name, infos, outs, sub.tensors())


def outs_named(sub, outputs):
    named = []
    for v in outputs:
        if v.name not in sub.by_name or v in named or v.kind in ("input", "init", "shape"):
            v = sub.node("Identity", [v], check=False)[0]
        named.append(v)
    return named


@row("If", 7, weight=1.5)
def if_(g):
    v = g.pick([F32, F64, I64], most=4)
    if g.chance(0.5):
        c = g.param(np.asarray(g.chance(0.5)))
    else:
        w = g.pick([F32, F64], where=lambda w: w.size > 0)
        axes = {"keepdims": 0}
        c = g.node("Greater", [g.node("ReduceMax", [w], **axes)[0], g.param(np.asarray(g.choice([-100, 0.3, 100]), w.dtype))])[0]
    if g.opset < 9 and c.kind == "node":
        raise Reject("Greater of a newer form")
    branches, names = {}, []
    for which in ("then_branch", "else_branch"):
        sub = g.sub()
        w = steady(sub, v)
        branches[which] = graph_of(sub, which[:4], [], [w])
        names += sub.captured()
    g.node("If", [c], captured=list(dict.fromkeys(names)), **branches)


@row("Loop", 11, weight=1)
def loop(g):
    from build import Value
    v = g.pick([F32, I64], most=3)
    sub = g.sub()
    i = sub.register(Value(g.name("i"), [np.array(0)] * len(g.sizes), np.array(0), "input"))
    c = sub.register(Value(g.name("c"), [np.array(True)] * len(g.sizes), np.array(True), "input"))
    s = sub.register(Value(g.name("s"), v.arrays, v.moved, "input"))
    new = steady(sub, s)
    if is_float(v.dtype):
        new = sub.node("Tanh", [new])[0]
    if g.chance(0.4):
        k = sub.node("Cast", [i], to=ONNX_TYPE[v.dtype])[0]
        new = sub.node("Add", [new, k])[0]
        if is_float(v.dtype):
            new = sub.node("Tanh", [new])[0]
    scan = [sub.node(g.choice(["Abs", "Neg"]), [new])[0]] if g.chance(0.6) else []
    body = graph_of(sub, "body", [i, c, s], [c, new] + scan)
    trips = g.scalar(g.integer(1, 5))
    g.node("Loop", [trips, g.scalar(True, BOOL), v], outputs=1 + len(scan), captured=sub.captured(), body=body)


@row("Scan", 11, weight=0.7)
def scan(g):
    from build import Value
    v = g.pick([F32], least=2, most=4, where=lambda v: 0 < v.shape[0] <= 9)
    sub = g.sub()
    state = g.param(g.random_array(F32, v.shape[1:]))
    s = sub.register(Value(g.name("s"), state.arrays, state.moved, "input"))
    x = sub.register(Value(g.name("e"), [a[0] for a in v.arrays], v.moved[0], "input"))
    new = sub.node("Tanh", [sub.node(g.choice(["Add", "Mul"]), [s, x])[0]])[0]
    if new.shape != s.shape:
        raise Reject("another shape")
    out = steady(sub, new)
    body = graph_of(sub, "body", [s, x], [new, out])
    g.node("Scan", [state, v], outputs=2, captured=sub.captured(), body=body, num_scan_inputs=1,
           scan_input_directions=[g.integer(0, 1)])


@row("SequenceAt", 11, weight=0.3)
def sequence(g):
    """A sequence that is built and read: two nodes that are only valid together, so evaluated as one If of a branch."""
    v = g.pick([F32, I64], least=1)
    sub = g.sub()
    q = g.name("q")
    out = g.name("t")
    at = sub.scalar(g.choice([0, -1, 1]))
    nodes = [helper.make_node("SequenceConstruct", [v.name, v.name], [q]), helper.make_node("SequenceAt", [q, at.name], [out])]
    if any(s.op == "Constant" for s in sub.steps):
        raise Reject("a constant on the way")
    from evaluate import value_info
    body = helper.make_graph(nodes, "then", [], [value_info(out, v.dtype, [None] * v.rank)], sub.tensors())
    other = g.sub()
    w = other.node("Identity", [v])[0]
    g.node("If", [g.scalar(True, BOOL)], captured=[v.name], then_branch=body, else_branch=graph_of(other, "else", [], [w]))


# --- com.microsoft

def contrib(name, weight=0.2):
    return row(name, 11, 99, weight)


@contrib("FusedMatMul")
def fused_matmul(g):
    a = g.pick([F32], least=2)
    tb = g.integer(0, 1)
    n = g.extent()
    g.node("FusedMatMul", [a, g.param(g.random_array(F32, [n, a.shape[-1]] if tb else [a.shape[-1], n]))], domain="com.microsoft", transB=tb, alpha=0.5)


@contrib("BiasGelu")
@contrib("FastGelu")
@contrib("QuickGelu")
def contrib_gelu(g):
    v = g.pick([F32], least=1)
    name = g.choice(["BiasGelu", "FastGelu", "QuickGelu"])
    g.node(name, [v] + ([g.param(g.random_array(F32, v.shape[-1:]))] if name != "QuickGelu" else []), domain="com.microsoft")


@contrib("SkipLayerNormalization")
def skip_layer_normalization(g):
    v = g.pick([F32], rank=3)
    s, b = per(g, v, 2)
    g.node("SkipLayerNormalization", [v, g.like(v) if g.chance(0.2) else v, s, b], domain="com.microsoft", epsilon=1e-2)
