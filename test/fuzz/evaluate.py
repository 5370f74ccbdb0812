"""One node at a time, evaluated: by NumPy where ONNX Runtime leaves the specification or lacks a type, else by ONNX Runtime.

A value is known as several arrays, its *members*: the first as the evaluation gives it, in the others every node's result (and
what a sum adds up) is moved at random, by as much as a right implementation may round. How far the members of an output lie apart
says what rounding can do to it (judge.py).
"""
import math
import os

import ml_dtypes
import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it keeps a thread that sends reports
import onnxruntime as ort  # noqa: E402
from onnx import TensorProto, helper

from recurrent import CELLS, recurrent

ort.set_default_logger_severity(4)
BF16 = np.dtype(ml_dtypes.bfloat16)
ONNX_TYPE = {np.dtype(t): v for t, v in [
    (np.float32, TensorProto.FLOAT), (np.float64, TensorProto.DOUBLE), (np.float16, TensorProto.FLOAT16), (BF16, TensorProto.BFLOAT16),
    (np.int8, TensorProto.INT8), (np.int16, TensorProto.INT16), (np.int32, TensorProto.INT32), (np.int64, TensorProto.INT64),
    (np.uint8, TensorProto.UINT8), (np.uint16, TensorProto.UINT16), (np.uint32, TensorProto.UINT32), (np.uint64, TensorProto.UINT64),
    (np.bool_, TensorProto.BOOL)]}
NUMPY_TYPE = {v: k for k, v in ONNX_TYPE.items()}
FLOATS = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BF16]
SIGNED = [np.dtype(t) for t in (np.int8, np.int16, np.int32, np.int64)]
UNSIGNED = [np.dtype(t) for t in (np.uint8, np.uint16, np.uint32, np.uint64)]
INTS = SIGNED + UNSIGNED
BOOL = np.dtype(np.bool_)
F32, F64, F16, I64, I32, U8, I8 = (np.dtype(t) for t in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8))
UNIT = {F32: 2.0**-24, F64: 2.0**-53, F16: 2.0**-11, BF16: 2.0**-8}  # unit roundoff
LEAST = {F32: 2.0**-149, F64: 2.0**-1074, F16: 2.0**-24, BF16: 2.0**-133}  # the least subnormal


# whose value at 0 is 0
KEEP_ZERO = set("Sqrt Sin Tan Sinh Tanh Asin Atan Asinh Atanh Erf Softsign Elu Selu Celu Gelu Mish "
                "Swish".split())


class Reject(Exception):
    """A node that is not valid, or not worth having."""


def is_float(dtype):
    return dtype in UNIT


# --- NumPy: elementwise operators, in double where the type is less, rounded once

def _erf(x):
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def _gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2)) if x.size else x


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _f32(v):
    return float(np.float32(v))


MAPS = {  # of floats alone
    "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin, "Asinh": np.arcsinh, "Atan": np.arctan, "Atanh": np.arctanh, "Ceil": np.ceil,
    "Cos": np.cos, "Cosh": np.cosh, "Erf": _erf, "Exp": np.exp, "Floor": np.floor, "Log": np.log, "Reciprocal": lambda x: 1 / x, "Round": np.rint,
    "Sigmoid": _sigmoid, "Sin": np.sin, "Sinh": np.sinh, "Softplus": _softplus, "Softsign": lambda x: x / (1 + np.abs(x)), "Sqrt": np.sqrt,
    "Tan": np.tan, "Tanh": np.tanh, "Gelu": _gelu, "Mish": lambda x: x * np.tanh(_softplus(x)),
    "Swish": lambda x, alpha=1.0: x * _sigmoid(_f32(alpha) * x), "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(_f32(alpha) * x + _f32(beta), 0, 1),
    "Elu": lambda x, alpha=1.0: np.where(x < 0, _f32(alpha) * np.expm1(np.minimum(x, 0)), x),
    "Celu": lambda x, alpha=1.0: np.maximum(x, 0) + np.minimum(0, _f32(alpha) * np.expm1(x / _f32(alpha))),
    "Selu": lambda x, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875:
        _f32(gamma) * np.where(x <= 0, _f32(alpha) * np.expm1(np.minimum(x, 0)), x),
    "LeakyRelu": lambda x, alpha=0.01: np.where(x < 0, _f32(alpha) * x, x),
    "ThresholdedRelu": lambda x, alpha=1.0: np.where(x > _f32(alpha), x, 0),
    "IsNaN": np.isnan}
ANY_MAPS = {"Relu": lambda x: np.maximum(x, x.dtype.type(0)), "Neg": np.negative, "Abs": np.abs, "Sign": np.sign, "Not": np.logical_not,
            "BitwiseNot": np.invert, "Identity": lambda x: x}
PAIRS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal,
         "Less": np.less, "LessOrEqual": np.less_equal, "And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor, "BitwiseAnd": np.bitwise_and,
         "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor, "PRelu": lambda x, s: np.where(x < 0, x * s, x).astype(x.dtype)}


def _div(a, b):
    if is_float(a.dtype):
        return a / b
    if a.size and not np.all(b):
        raise Reject("division of integers by zero")
    q = a // b
    return (q + ((a % b != 0) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _mod(a, b, fmod=0):
    if not is_float(a.dtype) and not np.all(b):
        raise Reject("remainder of zero")
    return np.fmod(a, b) if fmod else np.mod(a, b)


def to_integer(x, dtype):
    """Floats as integers: cut off, and where they are too large, of which ONNX says nothing, the nearest, as Kiln says (ops/cast.c)."""
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0)
    is_less, is_more = x <= float(least), x >= float(most)
    return np.where(is_less, dtype.type(least), np.where(is_more, dtype.type(most), np.where(is_less | is_more, 0, x).astype(dtype)))


def _shift(a, b, direction):
    if np.any(b >= 8 * a.dtype.itemsize):
        raise Reject("shift out of range")
    return np.left_shift(a, b) if direction == "LEFT" else np.right_shift(a, b)


def _clip(x, low=None, high=None):
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _fold(f):
    def fold(*xs):
        out = xs[0]
        for x in xs[1:]:
            out = f(out, x)
        return out
    return fold


MANY = {"Max": _fold(np.maximum), "Min": _fold(np.minimum), "Div": _div, "Mod": _mod, "BitShift": _shift, "Clip": _clip,
        "Where": lambda c, a, b: np.where(c, a, b), "Sum": _fold(np.add)}


def _matmul_integer(a, b, za=0, zb=0):
    return (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb)


def _narrowed(f, xs, dtype, attrs):
    """f in double of |xs|, rounded once to |dtype|."""
    out = np.asarray(f(*[x.astype(np.float64) if is_float(x.dtype) else x for x in xs], **attrs))
    return out if out.dtype == BOOL else out.astype(dtype)


# --- NumPy: sums and statistics, in double

def _axes_of(xs, attrs, rank):
    """The axes that a reduction is over; None: over none."""
    axes = attrs.get("axes", xs[1].tolist() if len(xs) > 1 and xs[1] is not None else None)
    if axes is None or len(axes) == 0:
        return None if attrs.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(a + rank if a < 0 else a for a in axes)


def _log_sum_exp(x, **how):
    most = np.max(x, axis=how["axis"], keepdims=True, initial=-np.inf)
    most = np.where(np.isfinite(most), most, 0)
    out = np.log(np.sum(np.exp(x - most), **dict(how, keepdims=True))) + most
    return out if how["keepdims"] else np.squeeze(out, how["axis"])


REDUCTIONS = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k), "ReduceProd": np.prod,
              "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)), "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
              "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)), "ReduceLogSumExp": _log_sum_exp}


def _reduced(op, xs, attrs):
    axes = _axes_of(xs, attrs, xs[0].ndim)
    if axes is None or (op == "ReduceMean" and not xs[0].size):
        return None
    how = {"axis": axes, "keepdims": bool(attrs.get("keepdims", 1))}
    if is_float(xs[0].dtype):
        return [_narrowed(lambda x: REDUCTIONS[op](x, **how), xs[:1], xs[0].dtype, {})]
    if op in ("ReduceSum", "ReduceProd"):  # what is too large wraps
        return [np.asarray(REDUCTIONS[op](xs[0], dtype=xs[0].dtype, **how))]
    return None


def _lrn(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    square, sums = x * x, np.zeros_like(x)
    for c in range(x.shape[1]):
        sums[:, c] = square[:, max(0, c - (size - 1) // 2):c + size // 2 + 1].sum(1)
    return x / (_f32(bias) + _f32(alpha) / size * sums) ** _f32(beta)


def _normalized(x, axes, epsilon):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + epsilon)


def _instance_norm(x, scale, bias, epsilon=1e-5):
    per = (-1,) + (1,) * (x.ndim - 2)
    return _normalized(x, tuple(range(2, x.ndim)), _f32(epsilon)) * scale.reshape(per) + bias.reshape(per)


def _mean_variance(x, axes=(0, 2, 3)):
    mean = x.mean(tuple(axes), keepdims=True)
    return (x - mean) / (np.sqrt(((x - mean) ** 2).mean(tuple(axes), keepdims=True)) + 1e-9)


def rows_of(x, axis, opset):
    """|x| with the elements of a row of Softmax or Hardmax as its last axis: those from |axis| on before opset 13."""
    if opset < 13:
        n = math.prod(x.shape[axis + x.ndim if axis < 0 else axis:])
        return x.reshape(x.size // max(n, 1), n)
    return np.moveaxis(x, axis, -1)


def of_rows(rows, shape, axis, opset):
    """What rows_of made of an array of that shape, put back."""
    return rows.reshape(shape) if opset < 13 else np.moveaxis(rows, -1, axis)


def row_axis(node):
    """The axis of a Softmax, LogSoftmax or Hardmax, and its opset."""
    opset = node.opsets.get("", 1)
    return node.attrs.get("axis", -1 if opset >= 13 else 1), opset


def _hardmax(x, axis, opset):
    rows = rows_of(x, axis, opset)
    ones = np.arange(rows.shape[-1]) == np.argmax(rows, -1)[..., None]  # a NaN is the largest, as the standard's own reference has it
    return of_rows(ones, x.shape, axis, opset).astype(x.dtype)


def _softmax(x, axis, opset, is_log):
    rows = rows_of(x, axis, opset)
    rows = rows - np.max(rows, axis=-1, keepdims=True)
    e = np.exp(rows)
    rows = rows - np.log(e.sum(-1, keepdims=True)) if is_log else e / e.sum(-1, keepdims=True)
    return of_rows(rows, x.shape, axis, opset)


def _dft(x, length, axis, inverse, onesided):
    axis = int(axis) + x.ndim if axis < 0 else int(axis)
    z = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0]
    n = z.shape[axis] if length is None else int(length)
    z = (np.fft.ifft if inverse else np.fft.fft)(z, n, axis)
    z = np.take(z, range(n // 2 + 1), axis) if onesided else z
    return np.stack([z.real, z.imag], -1)


STATISTICS = {"LRN": _lrn, "InstanceNormalization": _instance_norm, "MeanVarianceNormalization": _mean_variance,  # whose runtime's may be a root of less than 0
              "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdims=True)}


def _statistics(op, xs, attrs, opset):
    """The result in double; None where NumPy's part does not have it."""
    if not is_float(xs[0].dtype) or not xs[0].size:
        return None
    dtype = xs[0].dtype
    if op in STATISTICS:
        return [_narrowed(STATISTICS[op], xs, dtype, attrs)]
    if op == "Hardmax":
        return [_hardmax(xs[0], attrs.get("axis", -1 if opset >= 13 else 1), opset)]
    if op in ("Softmax", "LogSoftmax"):
        return [_narrowed(lambda x: _softmax(x, attrs.get("axis", -1 if opset >= 13 else 1), opset, op == "LogSoftmax"), xs, dtype, {})]
    if op == "DFT":
        length = xs[1] if len(xs) > 1 else None
        axis = attrs.get("axis", 1) if opset < 20 else xs[2] if len(xs) > 2 else -2
        if attrs.get("inverse") and attrs.get("onesided"):
            return None
        return [_narrowed(lambda x: _dft(x, length, axis, attrs.get("inverse", 0), attrs.get("onesided", 0)), xs[:1], dtype, {})]
    return None


def _quick_gelu(x, alpha=1.702):
    return x * _sigmoid(_f32(alpha) * x)


def by_numpy(op, xs, attrs, opset=23):
    """The result, or None: NumPy's part of this file does not have it."""
    present = [x for x in xs if x is not None]
    dtype = present[0].dtype if present else None
    if op in MAPS and is_float(dtype):
        return [_narrowed(MAPS[op], xs, dtype, attrs)]
    if op in ANY_MAPS and (op != "Relu" or is_float(dtype) or dtype in INTS):
        return [np.asarray(ANY_MAPS[op](*xs)).astype(BOOL if op == "Not" else dtype)]
    if op in PAIRS:
        out = np.asarray(PAIRS[op](*xs))
        return [out if out.dtype == BOOL else out.astype(dtype)]
    if op == "MatMulInteger" and all(np.ndim(x) == 0 for x in xs[2:]):  # ONNX Runtime's saturates on some processors
        return [_matmul_integer(*[x if k < 2 else int(x) for k, x in enumerate(xs)]).astype(np.int32)]
    if op == "Pad" and attrs.get("mode") == "wrap" and len(xs) < 4 and xs[0].size:  # ONNX Runtime's is wrong beyond one extent
        n = xs[0].ndim
        if not (xs[1] < 0).any():
            return [np.pad(xs[0], [(xs[1][k], xs[1][k + n]) for k in range(n)], mode="wrap")]
    if op in REDUCTIONS:
        return _reduced(op, xs, attrs)
    if op in ("ArgMax", "ArgMin") and xs[0].size and is_float(xs[0].dtype):  # ONNX Runtime's pass over a NaN
        axis, x = attrs.get("axis", 0), xs[0]
        f = np.argmax if op == "ArgMax" else np.argmin
        last = bool(attrs.get("select_last_index", 0))
        at = x.shape[axis] - 1 - f(np.flip(x, axis), axis=axis, keepdims=True) if last else f(x, axis=axis, keepdims=True)
        return [(at if attrs.get("keepdims", 1) else np.squeeze(at, axis)).astype(np.int64)]
    if op in ("Sum", "Mean") and is_float(dtype):
        return [_narrowed(lambda *ys: _fold(np.add)(*ys) / (len(ys) if op == "Mean" else 1), xs, dtype, {})]
    if op in ("ReduceMax", "ReduceMin") and xs[0].size and not attrs.get("noop_with_empty_axes"):  # ONNX Runtime's may lose a NaN
        axes = attrs.get("axes", xs[1].tolist() if len(xs) > 1 and xs[1] is not None else None) or range(xs[0].ndim)
        f = np.max if op == "ReduceMax" else np.min
        return [f(xs[0], axis=tuple(axes), keepdims=bool(attrs.get("keepdims", 1)))]
    if op == "Where":
        return [np.where(*xs)]
    if op == "DynamicQuantizeLinear" and not xs[0].any():  # a range of 0 has a scale of 0; ONNX Runtime's is 1
        return [np.zeros(xs[0].shape, np.uint8), np.zeros([], xs[0].dtype), np.zeros([], np.uint8)]
    if op in MANY and not (op == "Clip" and "min" in attrs or op == "Clip" and "max" in attrs):
        return [np.asarray(MANY[op](*xs, **attrs)).astype(dtype)]
    if op in ("Cast", "CastLike") and is_float(dtype):
        to = NUMPY_TYPE.get(attrs["to"]) if op == "Cast" else xs[1].dtype
        return [to_integer(xs[0], to)] if to in INTS else None
    if op == "Pow" and is_float(dtype) and dtype != F64:
        return [_narrowed(np.power, xs, dtype, attrs)]
    return _statistics(op, xs, attrs, opset) if present else None


# --- ONNX Runtime, a session for each node

OPTIONS = ort.SessionOptions()
OPTIONS.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
OPTIONS.intra_op_num_threads = 1
OPTIONS.inter_op_num_threads = 1
OPTIONS.log_severity_level = 4


def session_of(model):
    return ort.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])


def value_info(name, dtype, shape):
    return helper.make_tensor_value_info(name, ONNX_TYPE[dtype], shape)


def model_of(nodes, inputs, outputs, opsets, inits=(), infos=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits, value_info=list(infos))
    imports = [helper.make_opsetid(d, v) for d, v in opsets.items()]
    newest = opsets.get("", 1)
    return helper.make_model(graph, opset_imports=imports, ir_version=10 if newest >= 21 else 8 if newest >= 15 else 7)


class Evaluator:
    """A node, ready to be evaluated on arrays of the same types and ranks as |example|."""

    def __init__(self, node, example, opsets):
        self.node, self.attrs = node, {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.attrs = {k: v.decode() if isinstance(v, bytes) else v for k, v in self.attrs.items()}
        self.names = list(example)
        self.opsets, self.session, self.widened = opsets, None, False
        self.example = example

    def of_magnitudes(self):
        """The same, but for factors that are attributes: these multiply by their magnitude, and by no less than 1."""
        if not {"alpha", "beta"} & set(self.attrs):
            return self
        node = onnx.NodeProto.FromString(self.node.SerializeToString())
        for a in node.attribute:
            if a.name in ("alpha", "beta"):
                a.f = max(1, abs(a.f))
        return Evaluator(node, self.example, self.opsets)

    def open(self, types):
        node = self.node
        if self.widened and node.op_type in ("Cast", "EyeLike", "RandomUniformLike") and self.attrs.get("to", self.attrs.get("dtype")) == TensorProto.BFLOAT16:
            node = onnx.NodeProto.FromString(node.SerializeToString())
            for a in node.attribute:
                if a.name in ("to", "dtype"):
                    a.i = TensorProto.FLOAT
        inputs = [value_info(n, t, [None] * self.example[n].ndim) for n, t in types.items()]
        outputs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        self.session = session_of(model_of([node], inputs, outputs, self.opsets))

    def by_runtime(self, arrays):
        narrow = [a.dtype for a in arrays.values() if is_float(a.dtype)]
        halves = [t for t in narrow if t in (F16, BF16)]
        to = self.attrs.get("to") if self.node.op_type == "Cast" else None
        if self.session is None:
            self.widened = any(t == BF16 for t in narrow) or to == TensorProto.BFLOAT16
            try:
                self.open({n: a.dtype if not self.widened or not is_float(a.dtype) else F32 for n, a in arrays.items()})
            except Exception as e:  # whatever it raises: a type that it lacks, or a node that is wrong
                if self.widened or not halves:
                    raise Reject(str(e).splitlines()[0]) from None
                self.widened = True
        if self.session is None:
            try:
                self.open({n: F32 if is_float(a.dtype) else a.dtype for n, a in arrays.items()})
            except Exception as e:
                raise Reject(str(e).splitlines()[0]) from None
        feed = {n: a.astype(F32) if self.widened and is_float(a.dtype) else a for n, a in arrays.items()}
        try:
            out = self.session.run(None, feed)
        except Exception as e:
            raise Reject(str(e).splitlines()[0]) from None
        if to is not None:
            return [a.astype(NUMPY_TYPE[to]) for a in out]
        if self.widened:
            back = halves[0] if halves else BF16
            out = [a.astype(back) if isinstance(a, np.ndarray) and a.dtype == F32 else a for a in out]
        return out

    def check_window(self, x):
        """A window beyond the padded input: some say no element, ONNX Runtime one, where it is cut off towards zero."""
        kernel = self.attrs["kernel_shape"]
        pads, dilations = self.attrs.get("pads", [0] * 2 * len(kernel)), self.attrs.get("dilations", [1] * len(kernel))
        for k, n in enumerate(kernel):
            if x.shape[2 + k] + pads[k] + pads[k + len(kernel)] < (n - 1) * dilations[k] + 1:
                raise Reject("a window that does not fit")

    def check_corners(self, x, scales):
        """ONNX's own test data have the length before it is rounded down (2.4 of 4 by 0.6), ONNX Runtime that of the result."""
        lengths = np.array(x.shape) * scales.astype(F64)
        if self.attrs.get("coordinate_transformation_mode") == "align_corners" and (lengths != np.floor(lengths)).any():
            raise Reject("corners of a length that is not whole")

    def with_infinities(self, out, arrays):
        """A pool's results where all of a window is -inf, of which ONNX Runtime makes the least number."""
        x = arrays[self.names[0]]
        if not is_float(x.dtype) or not (x == -np.inf).any():
            return out
        of_others = self.by_runtime({self.names[0]: np.where(x == -np.inf, -1, 0).astype(x.dtype)})
        is_all = of_others[0] == -1
        infinite = [np.full_like(out[0], -np.inf), *of_others[1:]]
        return [np.where(is_all, a, b) for a, b in zip(infinite, out)]

    def top_of_nothing(self, x, k):
        """TopK of no elements, where some ONNX Runtimes divide by zero."""
        axis, shape = self.attrs.get("axis", -1), list(x.shape)
        shape[axis] = int(k.item())
        if shape[axis] > x.shape[axis]:
            raise Reject("more than there are")
        return [np.empty(shape, x.dtype), np.empty(shape, np.int64)]

    def __call__(self, arrays):
        """The outputs, in order, for arrays by name."""
        xs = [arrays[n] if n else None for n in self.node.input]
        if self.node.op_type == "Resize" and len(xs) > 2 and xs[2] is not None and xs[2].size:
            self.check_corners(xs[0], xs[2])
        if self.node.op_type in ("MaxPool", "AveragePool", "LpPool") and self.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
            self.check_window(xs[0])
        with np.errstate(all="ignore"):
            try:
                out = by_numpy(self.node.op_type, xs, self.attrs, self.opsets.get("", 1)) if not self.node.domain else None
                if self.node.op_type == "QuickGelu":
                    out = [_narrowed(_quick_gelu, xs, xs[0].dtype, self.attrs)]
                if self.node.op_type == "FastGelu":
                    out = [_narrowed(lambda x, bias=0.0: _gelu(x + bias, "tanh"), [x for x in xs if x is not None], xs[0].dtype, {})]
                if self.node.op_type == "TopK" and not xs[0].size:
                    out = self.top_of_nothing(*xs)
                if self.node.op_type in CELLS:
                    out = recurrent(self.node.op_type, xs, self.attrs)
                    out = out and [a for a, n in zip(out, self.node.output) if n]
                out = out and [np.asarray(a) for a in out]
            except (ValueError, TypeError) as e:
                raise Reject(str(e)) from None
            if out is None:
                out = self.by_runtime(arrays)
                if self.node.op_type in ("MaxPool", "GlobalMaxPool"):
                    out = self.with_infinities(out, arrays)
        if not all(isinstance(a, np.ndarray) and a.dtype in ONNX_TYPE for a in out):
            raise Reject("no tensor of a type that is tried")
        return out


# --- what rounding may do

EXACT = set("""Abs Neg Ceil Floor Round Sign Relu Identity Not And Or Xor BitShift BitwiseAnd BitwiseOr BitwiseXor BitwiseNot Max Min Clip Where Equal
Greater GreaterOrEqual Less LessOrEqual IsNaN IsInf Reshape Transpose Flatten Squeeze Unsqueeze Expand Tile Concat Split Slice Pad Gather
GatherElements GatherND Scatter DepthToSpace SpaceToDepth ReverseSequence Trilu EyeLike OneHot CenterCropPad Compress NonZero Unique
Shape Size ConstantOfShape Constant BitCast Dropout ArgMax ArgMin TopK ReduceMax ReduceMin GlobalMaxPool MaxPool MaxUnpool MaxRoiPool Hardmax
ThresholdedRelu NonMaxSuppression SequenceAt Optional OptionalGetElement If""".split())
ONCE = set("""Add Sub Mul Div Sqrt Reciprocal Mod Cast CastLike PRelu LeakyRelu Shrink Range QuantizeLinear DequantizeLinear
DynamicQuantizeLinear""".split())  # rounded once
SUMS = set("Sum Mean MatMul Gemm Conv ConvTranspose Einsum ReduceSum ReduceMean ReduceL1 ReduceSumSquare CumSum AveragePool GlobalAveragePool FusedMatMul".split())
PRODUCTS = set("MatMul Gemm Conv ConvTranspose Einsum FusedMatMul".split())  # of two operands, which are both moved
ROUNDED_TERMS = PRODUCTS | {"ReduceSumSquare"}  # a term is itself a product that is rounded
ZERO_SIGN = set("Relu Max Min Clip Round Ceil Floor Sign ReduceMax ReduceMin GlobalMaxPool MaxPool Mod Hardmax TopK Sum Mean ThresholdedRelu".split())


def operand_labels(equation):
    return equation.replace(" ", "").split("->")[0].split(",")


def summed_labels(equation):
    """The labels of an Einsum that it sums over; None: of one with an ellipsis, or whose result is implied."""
    if "->" not in equation or "." in equation:
        return None
    return "".join(sorted(set("".join(operand_labels(equation))) - set(equation.split("->")[1])))


def terms_of(op, xs, outs, node):
    """How many terms an element of the result is a sum of, roughly: from above."""
    if op in ("Softmax", "LogSoftmax"):
        return max(1, rows_of(xs[0], *row_axis(node)).shape[-1])
    out = max((o.size for o in outs), default=1)
    sizes = [x.size for x in xs if x is not None]
    if op in ("MatMul", "MatMulInteger", "QLinearMatMul", "FusedMatMul"):
        return xs[0].shape[-1] if xs[0].ndim else 1
    if op in ("Conv", "ConvTranspose", "DeformConv", "QLinearConv", "ConvInteger"):
        bias = int(op in ("Conv", "ConvTranspose") and len(xs) > 2)
        if op == "ConvTranspose":  # every one of its channels, at every tap
            return xs[1].shape[0] * int(np.prod(xs[1].shape[2:])) + bias
        return int(np.prod(xs[1].shape[1:])) * (2 if op == "Conv" and xs[1].shape[2:] == (3, 3) else 1) + bias
    if op in ("GlobalAveragePool", "GlobalLpPool", "InstanceNormalization", "GroupNormalization"):
        return max(1, int(np.prod(xs[0].shape[1 if op == "GroupNormalization" else 2:])))
    if op in ("MeanVarianceNormalization", "LayerNormalization", "SkipLayerNormalization", "LpPool", "AveragePool"):
        return max(1, int(np.prod(xs[0].shape)) // (1 if op == "MeanVarianceNormalization" else xs[0].shape[0]))
    if op == "RMSNormalization":
        return math.prod(xs[0].shape[node.attrs.get("axis", -1) % xs[0].ndim:])
    if op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):  # a sum over classes for each, of which all are added up
        return xs[0].shape[1] if node.attrs.get("reduction") == "none" else xs[0].size
    if op in ("LSTM", "GRU", "RNN"):
        return 4 * xs[0].shape[0] * (xs[0].shape[-1] + xs[2].shape[-1])
    if op == "Einsum" and summed_labels(node.attrs["equation"]) is not None:
        extents = {c: e for t, x in zip(operand_labels(node.attrs["equation"]), xs) for c, e in zip(t, x.shape)}
        return math.prod(extents[c] for c in summed_labels(node.attrs["equation"]))
    if op in ("Sum", "Mean"):
        return len(xs)
    if op in ("Loop", "Scan"):
        return 64
    return max(1, *[s // max(out, 1) for s in sizes]) if op.startswith("Reduce") else max([1, *[x.shape[k] for x in xs if x is not None and x.ndim
                                                                                              for k in range(x.ndim)]])


def last_place(x, unit):
    """One unit in the last place of each |x|, for a unit roundoff of |unit|."""
    return np.exp2(np.frexp(x)[1] - 1.0) * 2 * unit


def nudge(a, relative, steps, rng, zeros=False, units=UNIT):
    """|a| with every element moved by up to |relative| of itself and |steps| units in the last place; |zeros|: their sign is free."""
    if not is_float(a.dtype) or not a.size:
        return a
    with np.errstate(all="ignore"):
        x = a.astype(np.float64)
        last = np.maximum(last_place(x, units[a.dtype]), LEAST[a.dtype] if units is UNIT else LEAST[F16])
        moves = x * relative * rng.uniform(-1, 1, a.shape) / last + steps * rng.uniform(-1, 1, a.shape)
        if a.dtype == F64:  # there is no wider type to move it in: by whole units, less than one by one at times
            moves = np.floor(moves + rng.uniform(0, 1, a.shape))
        moved = x + last * moves
        moved = np.where(np.isfinite(x) & (x != 0), moved, x)
        if zeros:
            moved = np.where(x == 0, rng.choice([0.0, -0.0], a.shape), moved)
        return moved.astype(a.dtype)


# What a map may be wrong by in absolute terms, in units of the roundoff: where its own definition subtracts, or a constant dwarfs it.
ABSOLUTE = {"HardSigmoid": lambda x: 1 + np.abs(x), "HardSwish": lambda x: np.abs(x), "Gelu": np.abs, "FastGelu": lambda x: 2 * np.abs(x), "QuickGelu": np.abs, "BiasGelu": lambda x: np.abs(x) + 1,
            "Elu": lambda x: 1.0, "Celu": lambda x: 1.0, "Selu": lambda x: 2.0, "Sin": lambda x: 0.1, "Cos": lambda x: 0.1, "Erf": lambda x: 0.1,
            "Acos": lambda x: 1.0, "Acosh": lambda x: 1.0, "Shrink": lambda x: 1 + np.abs(x)}
BIASED = ("FastGelu", "BiasGelu")  # maps of the sum of their operands
# Those whose result may be wrong by the roundoff of the largest element that it is made of, times this.
BY_NORM = {"DFT": 8, "STFT": 8, "If": 8, "Loop": 32, "Scan": 32, "LSTM": 16, "GRU": 16, "RNN": 16, "Resize": 32, "Upsample": 32, "GridSample": 16, "AffineGrid": 4, "Det": 8,
           "RoiAlign": 8, "LogSoftmax": 4, "SoftmaxCrossEntropyLoss": 4, "LayerNormalization": 4, "SkipLayerNormalization": 4, "InstanceNormalization": 4,
           "GroupNormalization": 4, "MeanVarianceNormalization": 4, "BlackmanWindow": 4, "HannWindow": 4, "HammingWindow": 4, "DeformConv": 8}


# What subtracts a mean, which is a sum and rounded twice: of elements that are nearly equal that is all there is.
CENTRED = ("MeanVarianceNormalization", "LayerNormalization", "SkipLayerNormalization", "InstanceNormalization", "GroupNormalization")
LOGS = ("ReduceLogSum", "ReduceLogSumExp", "LogSoftmax", "SoftmaxCrossEntropyLoss")


def may_be_transformed(x, w, attrs):
    """A dense convolution of f32, of stride 1, by windows of 2 or 3 elements along both dims."""
    plain = all(v == 1 for name in ("strides", "dilations") for v in attrs.get(name, [])) and attrs.get("group", 1) == 1
    return plain and x.dtype == F32 and w.ndim == 4 and set(w.shape[2:]) <= {2, 3}


class Local:
    """How far a right implementation of one node may be from another: what its operands and its results are moved by.

    |node| is its Evaluator. |is_scaled|: an operand is dequantized, and the scales of a product may be multiplied first, which
    rounds once more.
    """

    def __init__(self, op, xs, outs, units, node, is_scaled=False):
        self.op, self.units = op, units
        self.log = 0  # how many roundoffs of 1 the logarithm of a sum may be off
        self.zeros = op in ZERO_SIGN or op not in EXACT and op not in ONCE
        self.relative, self.steps = {}, 0
        self.norm = BY_NORM.get(op, 0)
        if op in EXACT and not self.norm:
            return
        self.steps = 1 if op in ONCE or op in SUMS else 3
        if op in ONCE or op in MAPS or op == "Pow":
            return
        n = terms_of(op, xs, outs, node)
        if op in LOGS:  # log(S (1 + e)) = log(S) + e, of n terms and their exponentials
            self.log = n + 6
        roundings = (2 * n - 1 if op in ROUNDED_TERMS else n - 1) + is_scaled
        # Of many terms of one sign the errors of partial sums go the same way, by the root of their number where they are
        # random; what moves the terms moves the result of few. One rounding leaves no choice: half a unit moves nothing. Of
        # two products the last roundings may lie a unit apart: what is more than a half moves by one, now and then.
        if n > 2 or op not in SUMS or op == "Mean":
            self.steps = max(self.steps, math.sqrt(n) / 2)
        else:
            self.steps = 0.55 if roundings > 1 else 0.5
        if any(x.dtype in (F16, BF16) for x in xs):  # what is not stored may stay as wide as it was computed
            self.steps = max(self.steps, 1)
        least = 3 if op == "BatchNormalization" else 2 * (op in CENTRED and n > 1)  # x a + (b - mean a) subtracts, too
        for t in UNIT:  # sums of several operands may be rounded to their type after each
            unit = units[t] if op in ("Sum", "Mean") else min(units[t], units[F32])
            self.relative[t] = unit * ((n + is_scaled) / 2 if op in PRODUCTS else (n - 1) / 2 if op in ROUNDED_TERMS else max(n - 2, least))
        if op == "Conv" and may_be_transformed(xs[0], xs[1], node.attrs):  # by Winograd's algorithm: its error is of a tile's elements together
            self.norm = 16

    def moved_inputs(self, arrays, kept, rng):
        """The operands |arrays| by name, moved; but for those that are no numbers, |kept|."""
        if not self.relative:
            return arrays
        return {n: a if n in kept else nudge(a, self.relative.get(a.dtype, 0), 0, rng, units=self.units) for n, a in arrays.items()}

    def moved_outputs(self, outs, xs, rng):
        return [self.moved_output(nudge(a, 0, self.steps, rng, self.zeros, self.units), xs, rng) for a in outs]

    def moved_output(self, a, xs, rng):
        if not is_float(a.dtype) or not a.size or not (self.norm or self.log or self.steps and (self.op in ABSOLUTE or self.op in MAPS)):
            return a
        with np.errstate(all="ignore"):
            unit = max(self.units[a.dtype], self.units[F32]) if a.dtype != F64 else self.units[F64]
            amount = 0.0
            if self.norm:
                sizes = [np.abs(x.astype(F64)) for x in [a] + [x for x in xs if is_float(x.dtype)]]
                amount = self.norm * unit * max([1.0 if self.op.endswith("Window") else 1e-30] + [float(np.max(x, initial=0, where=np.isfinite(x))) for x in sizes])
            if self.log:  # the sum may be stored
                kept = self.units[F64] if a.dtype == F64 else min(self.units[a.dtype], self.units[F32])
                amount = amount + self.log * kept + self.units[a.dtype]
            like = [x for x in xs if x.shape == a.shape and is_float(x.dtype)]
            if self.op in ABSOLUTE and like:
                of = sum(x.astype(F64) for x in xs) if self.op in BIASED else like[0].astype(F64)
                amount = amount + 2 * self.units[a.dtype] * ABSOLUTE[self.op](of)
            if self.op in MAPS:  # below the normal numbers, a map of these may give zero
                amount = amount + float(np.finfo(a.dtype).tiny if a.dtype != BF16 else 2.0**-126)
            x = a.astype(F64)
            if self.op in MAPS and self.op in KEEP_ZERO and like:  # nothing is rounded there
                amount = np.where((like[0] == 0) & (x == 0), 0, amount)
            return np.where(np.isfinite(x) & np.isfinite(amount), x + amount * rng.uniform(-1, 1, a.shape), x).astype(a.dtype)
