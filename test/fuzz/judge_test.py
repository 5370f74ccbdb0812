#!/usr/bin/env python3
"""Does the judge of the graphs find what is wrong, and let pass what rounding may do? Faults are planted in right results.

A fault of 2 units in the last place for each term of a sum, and of 6 of an operator that is no sum, must be found; other orders of
a sum, and each operator's own result in double rounded to its type, must pass.
"""
import sys

import numpy as np

from build import Graph
from evaluate import F16, F32, F64, UNIT, last_place
from judge import FEW, HALVES, MANY, MOST, Members, compare

rng = np.random.default_rng(7)
failed = checked = 0


def positive(dtype, *shape):
    return rng.uniform(0.5, 2, shape).astype(dtype)


def verdict(g, name, got, seed, units=UNIT):
    """As the fuzzer has it: few members, and more where these say that it is wrong."""
    for n in (FEW, MANY, MOST):
        v = compare(got, Members(g, 0, n, seed, units).at[name])
        if not v.why or n > FEW and not v.is_rare:
            break
    return v.why


def expect(what, why, wrong):
    global failed, checked
    checked += 1
    if bool(why) != wrong:
        failed += 1
        print(f"FAILED {what}: {'not found' if wrong else 'a false alarm: ' + why}")


def graph(op, arrays, opset=18, kept=(), **attrs):
    g = Graph(np.random.default_rng(1), opset)
    values = [g.param(a, constant=k in kept) for k, a in enumerate(arrays)]
    return g, g.node(op, values, check=False, **attrs)[0]


def plant(a, steps):
    """One element of |a|, moved by so many units in the last place."""
    at = tuple(int(rng.integers(n)) for n in a.shape)
    got = a.copy()
    got[at] = (a.astype(F64)[at] + steps * last_place(a.astype(F64)[at], UNIT[a.dtype])).astype(a.dtype)
    return got


def check(what, g, y, steps, others):
    for seed in range(5):
        for sign in (1, -1):
            expect(f"{what}, {steps} units", verdict(g, y.name, plant(y.array, sign * steps), seed), True)
        expect(f"{what}, {64 * steps} units", verdict(g, y.name, plant(y.array, 64 * steps), seed), True)
        if y.size > 1 and not np.array_equal(y.array, np.roll(y.array, 1)):
            expect(f"{what}, shifted", verdict(g, y.name, np.roll(y.array, 1), seed), True)
        for other in others:
            expect(f"{what}, another right result", verdict(g, y.name, other.astype(y.dtype), seed), False)


def check_moved(what, g, y, amount, other):
    """Of what is wrong by an amount, not by its own last places: one element moved by |amount| is found, |other| is right."""
    for seed in range(5):
        got = y.array.copy()
        at = tuple(int(rng.integers(n)) for n in got.shape)
        got[at] += amount
        expect(f"{what}, {amount:.3g} more", verdict(g, y.name, got, seed), True)
        expect(f"{what}, another right result", verdict(g, y.name, other, seed), False)


for n in (1, 2, 7, 64, 1000):
    a, b = positive(F32, 3, n), positive(F32, n, 5)
    blocks = sum((a[:, k::4] @ b[k::4]).astype(F32) for k in range(4))
    g, y = graph("MatMul", [a, b])
    check(f"MatMul of {n} terms", g, y, 2 * max(n, 2), [a.astype(F64) @ b.astype(F64), blocks])
    g, y = graph("ReduceSum", [a, np.array([1])], kept=(1,))
    running = np.zeros([3, 1], F32)
    for k in range(n):
        running += a[:, k:k + 1]
    check(f"ReduceSum of {n} terms", g, y, 2 * max(n, 2), [a.astype(F64).sum(1, keepdims=True), running])

for n in (2, 3, 64):
    a = positive(F32, 3, n)
    g, y = graph("ReduceSumSquare", [a, np.array([1])], kept=(1,))
    squares = (a * a).astype(F32)
    check(f"ReduceSumSquare of {n} terms", g, y, 2 * max(n, 2), [(a.astype(F64) ** 2).sum(1, keepdims=True), squares.sum(1, keepdims=True)])
    least = np.full([3, n], -11, F32)  # one term of 1 and small ones: the logarithm is small, and has the sum's error whole
    least[:, 0] = 0
    g, y = graph("ReduceLogSumExp", [least, np.array([1])], kept=(1,))
    running = np.float32(0)
    for k in range(n):
        running += np.exp(least[0, k])
    check_moved(f"ReduceLogSumExp of {n} terms", g, y, 4 * (n + 6) * UNIT[F32], np.full([3, 1], np.log(running), F32))
least = rng.uniform(-1, 1, [2, 48, 48])  # rows of 2304 before opset 13
g, y = graph("Softmax", [least], opset=9, axis=1)
e = np.exp(least - least.max((1, 2), keepdims=True)).reshape(2, -1)
check_moved("Softmax of 2304 terms", g, y, 4e3 * UNIT[F64] * float(y.array.max()), (e / np.cumsum(e, 1)[:, -1:]).reshape(y.shape))

for op in ("Add", "Mul", "Sub", "Div"):
    a, b = positive(F32, 4, 6), positive(F32, 6) / 8
    g, y = graph(op, [a, b])
    check(op, g, y, 2, [{"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide}[op](a.astype(F64), b.astype(F64))])
for op, exact in (("Exp", np.exp), ("Tanh", np.tanh), ("Log", np.log), ("Sqrt", np.sqrt)):
    for dtype in (F32, F16, F64):
        a = positive(dtype, 5, 5) + dtype.type(1)
        g, y = graph(op, [a])
        check(f"{op} of {dtype}", g, y, 6, [exact(a.astype(F64))])
x, w = positive(F32, 1, 4, 8, 8), positive(F32, 6, 4, 3, 3)
g, y = graph("Conv", [x, w], kernel_shape=[3, 3], pads=[1] * 4)
exact = np.zeros(y.shape)
padded = np.pad(x.astype(F64), ((0, 0), (0, 0), (1, 1), (1, 1)))
for i in range(3):
    for k in range(3):
        exact += np.einsum("nchw,mc->nmhw", padded[:, :, i:i + 8, k:k + 8], w[:, :, i, k].astype(F64))
check("Conv", g, y, 2 * 36, [exact])

for op, arrays, attrs in [("Transpose", [positive(F32, 3, 4)], {}), ("Relu", [positive(F32, 9)], {}), ("Where", [np.array([True, False]), positive(F32, 2), positive(F32, 2)], {}),
                          ("Concat", [positive(F32, 2), positive(F32, 3)], {"axis": 0})]:
    g, y = graph(op, arrays, **attrs)
    check(f"{op}, which moves data", g, y, 1, [y.array])

g, y = graph("Floor", [np.array([1.5, 2.0], F32)])
expect("Floor of a number that is known", verdict(g, y.name, np.array([1, 1], F32), 1), True)
g = Graph(np.random.default_rng(1), 18)
third = g.node("Div", [g.param(np.float32(1)), g.param(np.float32(3))], check=False)[0]
one = g.node("Mul", [third, g.param(np.float32(3))], check=False)[0]
whole = g.node("Floor", [one], check=False)[0]
for right in (0, 1):
    expect("Floor of what rounding puts on either side of 1", verdict(g, whole.name, np.float32(right), 1), False)
expect("Floor that neither side gives", verdict(g, whole.name, np.float32(3), 1), True)
special = np.array([np.nan, np.inf, -np.inf, 1], F32)
g, y = graph("Relu", [special])
for wrong in ([0, np.inf, 0, 1], [np.nan, 3e38, 0, 1], [np.nan, np.inf, np.nan, 1]):
    expect(f"Relu of {special}", verdict(g, y.name, np.array(wrong, F32), 1), True)
expect("Relu of special values", verdict(g, y.name, np.array([np.nan, np.inf, 0, 1], F32), 1), False)

# --- what ONNX leaves open, and no more than that

def expect_open(what, op, arrays, rights, wrongs, opset=18, kept=(), **attrs):
    g, y = graph(op, arrays, opset, kept, **attrs)
    for right in rights:
        expect(f"{what}: {right}", verdict(g, y.name, np.array(right, y.dtype).reshape(y.shape), 1), False)
    for wrong in wrongs:
        expect(f"{what}: {wrong}", verdict(g, y.name, np.array(wrong, y.dtype).reshape(y.shape), 1), True)


large, inf, nan = np.float32(3e38), np.inf, np.nan
row, column = np.array([[large, large, -large], [1, 2, 3]], F32), np.ones([3, 1], F32)
expect_open("MatMul whose partial sums are too large", "MatMul", [row, column], [[large, 6], [inf, 6]], [[large, inf], [large, 7]])
beside = row.copy()
beside[1, 0] = inf  # of another element
expect_open("MatMul with an infinity elsewhere", "MatMul", [beside, column], [[large, inf], [inf, inf]], [[large, 6]])
thirds = np.array([[large, large, large], [3, 3, 3]], F32)
expect_open("ReduceMean of a sum that is too large", "ReduceMean", [thirds, np.array([1])], [[large, 3], [inf, 3]], [[large, inf], [large, 4]], kept=(1,))
x = np.array([nan, 100, -3], F32)
expect_open("QuantizeLinear of NaN by a large scale", "QuantizeLinear", [x, np.float32(2e36), np.int8(0)], [[0, 0, 0], [-128, 0, 0]], [[0, 1, 0]])
x = np.array([[1, nan, 3, 2], [1, 2, 4, 3]], F32)
expect_open("Hardmax of a row with NaN", "Hardmax", [x], [[[0, 1, 0, 0], [0, 0, 1, 0]], [[0, 0, 1, 0], [0, 0, 1, 0]], [[1, 0, 0, 0], [0, 0, 1, 0]]],
            [[[0, 1, 0, 0], [0, 0, 0, 1]]], axis=-1)
data, at, more = np.array([[1, nan, 3]], F32), np.array([[0, 1, 2]]), np.array([[nan, 2, 1]], F32)
expect_open("ScatterElements that keeps the least, or NaN", "ScatterElements", [data, at, more], [[nan, nan, 1], [1, 2, 1]], [[nan, nan, 3]], kept=(1,), axis=1, reduction="min")
x = np.array([[[[large, 1, 1, 1, 1, 1, 1, 1]]]], F32)
g, y = graph("Resize", [x, np.zeros(0, F32), np.array([1, 1, 1, 2], F32)], kept=(1, 2), mode="cubic")
got = y.array.copy()
got[..., 0] = nan
expect("Resize beside what is too large", verdict(g, y.name, got, 1), False)
got = y.array.copy()
got[..., -1] = nan
expect("Resize far from what is too large", verdict(g, y.name, got, 1), True)
g = Graph(np.random.default_rng(1), 18)
pool = g.node("GlobalMaxPool", [g.param(np.array([[[nan, 1], [2, 1]]], F32))], check=False)[0]
y = g.node("GlobalMaxPool", [pool], check=False)[0]
for got in ([nan, 2], [1, 2]):
    expect(f"a pool of a pool of NaN: {got}", verdict(g, y.name, np.array(got, F32).reshape(y.shape), 1), False)
expect("a pool of a pool of numbers", verdict(g, y.name, np.array([nan, 3], F32).reshape(y.shape), 1), True)
for n, x in enumerate(np.zeros([2, 1, 2, 3, 2], F32) + np.array([0, 1.7], F32)[:, None, None, None, None]):  # no variance
    g, y = graph("MeanVarianceNormalization", [x])
    expect("MeanVarianceNormalization of equal elements", verdict(g, y.name, np.zeros(y.shape, F32), 1), False)
    expect("MeanVarianceNormalization that is NaN", verdict(g, y.name, np.full(y.shape, nan, F32), 1), True)
scales, codes = [np.float32(0.15169646), np.float32(0.009028888)], [np.array([[3], [7], [-9]], np.int8), np.array([[-101, 39, 111]], np.int8)]
g = Graph(np.random.default_rng(1), 18)
y = g.node("MatMul", [g.node("DequantizeLinear", [g.param(c), g.param(s)], check=False)[0] for c, s in zip(codes, scales)], check=False)[0]
folded = ((codes[0].astype(F32) @ codes[1].astype(F32)) * (scales[0] * scales[1])).astype(F32)
for seed in range(5):
    expect("a product of what is dequantized, of one scale", verdict(g, y.name, folded, seed), False)
    expect("a product of what is dequantized, 8 units", verdict(g, y.name, plant(y.array, 8), seed), True)


# --- what stands behind a value that is open, or only rounded

def chain(array, *nodes, opset=18):
    """A graph of one node behind the other; each is its operator, further operands and attributes. The last one's outputs."""
    g = Graph(np.random.default_rng(1), opset)
    ys = [g.param(array)]
    for op, more, attrs in nodes:
        ys = g.node(op, [ys[0], *[g.param(a, constant=a.dtype == np.int64) for a in more]], check=False, **attrs)
    return g, ys


def expect_all(what, g, y, rights, wrongs, units=UNIT):
    for wrong, arrays in ((False, rights), (True, wrongs)):
        for got in arrays:
            expect(f"{what}: {got}", verdict(g, y.name, np.array(got, y.dtype).reshape(y.shape), 1, units), wrong)


x = np.array([[1, nan], [0, 0]], F32)
for op, half in (("Softmax", 0.5), ("LogSoftmax", np.log(0.5))):
    g, (y,) = chain(x, (op, [], {"axis": 1}), opset=11)
    expect_all(f"{op} before opset 13 of NaN", g, y, [[nan, nan, half, half]], [[1, nan, half, half], [nan, nan, half, nan]])
for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    x, w, r = positive(F32, 3, 2, 4) / 4, positive(F32, 1, 2 * gates, 4) / 4, positive(F32, 1, 2 * gates, 2) / 4
    x[1, 0, 0] = nan
    g, (y,) = chain(x, (op, [w, r], {"hidden_size": 2}))
    lost, wrong = np.nan_to_num(y.array, nan=0.5), y.array.copy()
    wrong[0, 0, 0] = nan
    expect_all(f"{op} of NaN, which stays in its row of the batch", g, y, [y.array], [lost, wrong, plant(np.where(np.isnan(y.array), 0, y.array), 64)])
    expect(f"{op} of NaN", "" if np.isnan(y.array).reshape(3, -1).tolist() == [[False] * 4] + 2 * [[True, True, False, False]] else str(y.array), False)
x, w = np.zeros([2, 0], F32), np.zeros([0, 3], F32)
for op, more in (("Softmax", []), ("ReduceSum", [np.array([0])]), ("Sum", [x]), ("Mean", [x, x])):
    g, (y,) = chain(x, (op, more, {}))
    expect(f"{op} of no elements", verdict(g, y.name, y.array, 1), False)
g, (y,) = chain(x, ("MatMul", [w], {}))
expect("MatMul over no elements", verdict(g, y.name, np.zeros([2, 3], F32), 1), False)
a, b, c = np.array([[inf, 1], [1, 2]], F32), np.ones([2, 2], F32), np.array([[2], [-1]], F32)
g, (y,) = chain(a, ("MatMul", [b], {}), ("MatMul", [c], {}))
expect_all("a product of a product, of an infinity", g, y, [[nan, 3], [inf, 3], [-inf, 3]], [[1, 3], [nan, 4], [nan, inf]])
g, (y,) = chain(np.array([[inf, inf], [1, 2]], F32), ("MatMul", [c], {}))
expect_all("a product of infinities", g, y, [[nan, 0]], [[inf, 0], [nan, nan]])

x = np.array([0.5, 1, 2.0001, 2, 0.25], F32)
for op, rights, wrongs in [("ArgMax", [2, 3], [0, 1, 4]), ("Hardmax", [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], [[0, 1, 0, 0, 0]])]:
    g, ys = chain(x, ("Exp", [], {}), (op, [], {"axis": 0}))
    expect_all(f"{op} of halves", g, ys[0], rights, wrongs, HALVES)
    expect_all(f"{op} of f32", g, ys[0], rights[:1], rights[1:] + wrongs)
g = Graph(np.random.default_rng(1), 18)
values, places = g.node("TopK", [g.node("Exp", [g.param(x)], check=False)[0], g.ints(3)], outputs=2, check=False, axis=0)
expect_all("TopK of halves, places", g, places, [[2, 3, 1], [3, 2, 1]], [[2, 3, 0], [1, 3, 2], [2, 4, 1]], HALVES)
expect_all("TopK of halves, values", g, values, [np.exp(x[[2, 3, 1]]), np.exp(x[[3, 3, 1]])], [np.exp(x[[2, 1, 1]]), np.exp(x[[2, 3, 0]])], HALVES)
expect_all("TopK of f32, places", g, places, [[2, 3, 1]], [[3, 2, 1]])
g, (y,) = chain(x, ("Exp", [], {}), ("Greater", [np.exp(np.full(5, 2, F32))], {}))
expect_all("Greater of halves", g, y, [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0]], HALVES)
expect_all("Greater of f32", g, y, [[0, 0, 1, 0, 0]], [[0, 0, 0, 0, 0]])
g, ys = chain(x, ("Exp", [], {}), ("Unique", [], {}))
expect("Unique of halves that may be equal", verdict(g, ys[0].name, np.zeros(4, F32), 1, HALVES), False)
expect("Unique of f32 that are not", verdict(g, ys[0].name, np.zeros(4, F32), 1), True)

for op, more, other in [("OneHot", [np.array(5), np.array([0, 1], F32)], np.eye(5)[3]), ("Equal", [np.array(3)], True), ("Gather", [], 9)]:
    g = Graph(np.random.default_rng(1), 18)
    at = g.node("ArgMax", [g.node("Exp", [g.param(x)], check=False)[0]], check=False, axis=0)[0]
    data = np.array([7, 7, 7, 9, 7, 5], F32)
    y = g.node(op, [g.param(data), at] if op == "Gather" else [at, *[g.param(a) for a in more]], check=False)[0]
    expect(f"{op} of one of two places", verdict(g, y.name, np.array(other, y.dtype).reshape(y.shape), 1, HALVES), False)
    expect(f"{op} of a place that is known", verdict(g, y.name, np.array(other, y.dtype).reshape(y.shape), 1), True)
for op, more, attrs in (("Cast", [], {"to": 1}), ("CastLike", [np.float32(1)], {})):
    g, (y,) = chain(np.array([3191, -2049]), (op, more, attrs))
    expect_all(f"{op} of integers, in halves", g, y, [[3192, -2048], [3191, -2049]], [[3199, -2049], [3191, -2041]], HALVES)
    expect_all(f"{op} of integers", g, y, [[3191, -2049]], [[3192, -2049]])
x = np.array([nan, 3, -4], F32)
g, (y,) = chain(x, ("Cast", [], {"to": 7}), ("Sub", [np.int64(2)], {}))
expect_all("arithmetic with an integer of NaN", g, y, [[-2, 1, -6], [2**63 - 2, 1, -6], [5, 1, -6]], [[-2, 2, -6], [0, 1, 6]])
x, w = np.array([[nan, 1], [1, 1], [2, -1]], F32), np.array([[1, 0.5], [1, 0.25]], F32)
g, (y,) = chain(x, ("QuantizeLinear", [np.float32(0.5), np.int8(0)], {}), ("DequantizeLinear", [np.float32(0.5), np.int8(0)], {}), ("MatMul", [w], {}))
expect_all("a product with a quantized NaN", g, y, [[1, 0.25, 2, 0.75, 1, 0.75], [-63, 40, 2, 0.75, 1, 0.75]], [[1, 0.25, 2, 0.75, 1, 1], [1, 0.25, 2.5, 0.75, 1, 0.75]])
for x in (np.zeros(3, F32), np.zeros(0, F32)):
    g = Graph(np.random.default_rng(1), 18)
    y, scale, point = g.node("DynamicQuantizeLinear", [g.param(x)], outputs=3, check=False)
    expect_all(f"DynamicQuantizeLinear of {x}, the scale", g, scale, [0], [1, nan])
    expect_all(f"DynamicQuantizeLinear of {x}, which is 0 / 0", g, point, [0, 255], [])

g, (y,) = chain(np.array([13, 0.5], F32), ("Exp", [], {}), ("Mul", [np.array([34 / 442413.4, 1], F32)], {}), ("Sub", [np.array([32.429204, 0], F32)], {}), ("Tan", [], {}))
expect_all("Tan beside a pole", g, y, [y.array, [-1e6, y.array[1]]], [[y.array[0], 0], [y.array[0], -y.array[1]]])
x, scale, bias, mean, var = (np.array(v, F32).reshape(-1) for v in (0.7123, 1.3, 0.2, 0.7, 0.9))
g, (y,) = chain(x.reshape(1, 1), ("BatchNormalization", [scale, bias, mean, var], {"epsilon": 1e-5}))
factor = scale / np.sqrt(var + F32.type(1e-5))
expect_all("BatchNormalization of one element", g, y, [x * factor + (bias - mean * factor)], [y.array + F32.type(3e-6), y.array - F32.type(3e-6)])
x, labels = np.full([2, 3], -9, F32), np.array([0, 0])
x[:, 0] = 0
g, (y,) = chain(x, ("SoftmaxCrossEntropyLoss", [labels], {"reduction": "none"}))
expect_all("a loss near 0", g, y, [y.array, np.log(np.exp(x).sum(1))], [y.array + F32.type(6e-6), y.array * F32.type(2)])
a, b = np.array([2.5, 1, 1], F16), np.array([0.0816, 0.3, 0.125], F16)
g, (y,) = chain(a, ("Sum", [b], {}), ("Mul", [np.full(3, 3, F16)], {}))
wide = ((a.astype(F32) + b.astype(F32)) * 3).astype(F16)
expect_all("a product with a sum of halves that is not rounded", g, y, [wide, (a + b) * F16.type(3)], [plant(wide, 6), plant(wide, -6)])
for n in (2, 3, 6):
    x = np.full([1, n, 1, 1], 0.1, F32)
    x[0, 0] = np.nextafter(x[0, 0], F32.type(1))
    g, (y,) = chain(x, ("MeanVarianceNormalization", [], {"axes": [0, 1]}))
    d = x - np.mean(x, dtype=F32)
    expect_all(f"MeanVarianceNormalization of {n} nearly equal elements", g, y, [d / (np.sqrt(np.mean(d * d, dtype=F32)) + F32.type(1e-9))], [np.full(x.shape, 40, F32)])
    g, (y,) = chain(np.arange(n, dtype=F32).reshape(x.shape), ("MeanVarianceNormalization", [], {"axes": [0, 1]}))
    expect_all(f"MeanVarianceNormalization of {n} elements", g, y, [y.array], [plant(y.array, 400)])
for n, value in ((768, 0.6407314), (1000, 0.1), (4096, 1 / 3)):
    x = np.full([2, n], value, F32)
    sums = {lanes: np.cumsum(np.cumsum(x.reshape(2, -1, lanes), 1, dtype=F32)[:, -1], -1, dtype=F32)[:, -1] for lanes in (1, 2, 8)}
    g, (y,) = chain(x, ("ReduceSum", [np.array([1])], {"keepdims": 0}))
    check(f"ReduceSum of {n} equal terms", g, y, 2 * n, sums.values())
    g, (y,) = chain(x, ("MatMul", [np.ones([n, 1], F32)], {}))
    check(f"MatMul of {n} equal terms", g, y, 2 * n, [s[:, None] for s in sums.values()])
    g, (y,) = chain(x.reshape(2, 4, -1), ("Einsum", [], {"equation": "abc->a"}))
    check(f"Einsum of {n} equal terms", g, y, 2 * n, sums.values())
g, (y,) = chain(np.full([1, 1, 16, 4], 0.5, F32), ("Tanh", [], {}), ("GlobalAveragePool", [], {}))
expect_all("the mean of what is computed alike", g, y, [np.cumsum(np.full(64, np.tanh(0.5)), dtype=F32)[-1] / F32.type(64)], [plant(y.array, 128)])
a, b = positive(F32, 3, 8, 64), positive(F32, 8, 64, 5)
g, (y,) = chain(a, ("Einsum", [b], {"equation": "abc,bcd->da"}))
exact, running = np.einsum("abc,bcd->da", a.astype(F64), b.astype(F64)), np.zeros([5, 3], F32)
for i in range(8):
    for k in range(64):
        running += b[i, k][:, None] * a[:, i, k]
check("Einsum of 512 products", g, y, 2 * 512, [exact, running])

x = np.array([[2e19, 1, 3], [nan, 2, 3]], F32).reshape(2, 3, 1, 1)
g, (y,) = chain(x, ("LRN", [], {"size": 3}))
expect_all("LRN of squares that are too large, beside a NaN elsewhere", g, y, [np.r_[0, 0, y.array[0, 2].ravel(), y.array[1].ravel()]],
           [np.r_[y.array[0].ravel(), nan, 0, y.array[1, 2].ravel()]])
g, ys = chain(np.array([[1, nan, inf, 2], [1, 5, inf, 2]], F32), ("TopK", [np.array([2])], {"axis": 1, "outputs": 2}))
expect_all("TopK of NaN and an infinity", g, ys[0], [[nan, inf, inf, 5], [inf, nan, inf, 5]], [[nan, inf, inf, nan], [nan, inf, nan, 5], [nan, inf, inf, 2]])
for dtype, most in ((2, 255), (3, 127), (5, 32767), (12, 2**32 - 1), (7, 2**63 - 1)):
    least = 0 if dtype in (2, 12) else -most - 1
    g, (y,) = chain(np.array([-1e19, 1e20, -0.9, 3.9], F32), ("Cast", [], {"to": dtype}))
    wrongs = [[3, most, 0, 3], [least, least, 0, 3], [least, most, 1, 3], [least, most, 0, 4]]
    for right, got in [(True, [least, most, 0, 3]), *[(False, w) for w in wrongs]]:
        expect(f"Cast to {y.dtype} of what is too large: {got}", verdict(g, y.name, np.array(got, y.dtype), 1), not right)
scale = np.float32(0.0797)
g, (y,) = chain(np.log(np.array([28.5, 3], F32) * scale), ("Exp", [], {}),
                ("QuantizeLinear", [np.array(scale), np.array(0, np.uint8)], {}))
expect_all("QuantizeLinear of a tie in halves, by a scalar", g, y, [[28, 3], [29, 3]],
           [[27, 3], [28, 4]], HALVES)
g, (y,) = chain(np.array([0, 4], F32), ("Sqrt", [], {}), ("Cast", [], {"to": 9}))
expect_all("Sqrt of 0 is 0", g, y, [[0, 1]], [[1, 1], [0, 0]], HALVES)
x = np.array([[1.75, -0.75, 0.5, 2, -2]], F32)  # the zero point is 127.5, but for the scale's rounding
g = Graph(np.random.default_rng(1), 18)
codes, _, point = g.node("DynamicQuantizeLinear", [g.param(x)], outputs=3, check=False)
weights = np.array([[98], [-19], [59], [112], [-41]], np.int8)
y = g.node("MatMulInteger", [codes, g.param(weights), point], check=False)[0]
for units, is_wrong in ((HALVES, False), (UNIT, True)):
    expect("DynamicQuantizeLinear of a tie", verdict(g, codes.name, codes.array + 1 - (codes.array == 0), 1, units), is_wrong)
    expect("MatMulInteger of codes near a tie", verdict(g, y.name, (codes.array.astype(np.int32) - 128) @ weights.astype(np.int32), 1, units), is_wrong)
expect("MatMulInteger of codes near a tie, far off", verdict(g, y.name, y.array + 2000, 1, HALVES), True)
x = np.array([[1, nan, 3, nan, nan]], F32)
g = Graph(np.random.default_rng(1), 18)
inverse = g.node("Unique", [g.param(x)], outputs=4, sorted=0, axis=None, check=False)[2]
expect_all("Unique of NaN", g, inverse, [[0, 1, 2, 1, 1], [0, 0, 2, 0, 0]], [[1, 1, 2, 1, 1], [2, 1, 2, 1, 1]])
image = np.ones((1, 1, 4, 4), F32)
image[0, 0, 0, 0] = nan
g = Graph(np.random.default_rng(1), 18)
y = g.node("RoiAlign", [g.param(image), g.param(np.array([[0.6, 0.6, 2.8, 2.8]], F32)), g.param(np.zeros(1, np.int64))], output_height=1, output_width=1,
           sampling_ratio=1, check=False)[0]
expect_all("RoiAlign beside a NaN", g, y, [[[[1]]]], [[[[2]]]])

x = np.array([-0.3, 0.2, 0.9978, 0.4] + 60 * [1], F32)
g = Graph(np.random.default_rng(1), 18)
ys = g.node("DynamicQuantizeLinear", [g.node("Exp", [g.node("Log", [g.param(np.exp(x))], check=False)[0]], check=False)[0]], outputs=3, check=False)
code, scale = ys[0].array.astype(int), ys[1].array
for seed in range(5):
    expect("DynamicQuantizeLinear of f32", verdict(g, ys[0].name, ys[0].array, seed), False)
    expect("DynamicQuantizeLinear of f32, a code for another", verdict(g, ys[0].name, np.roll(ys[0].array, 1), seed), True)
    for more in (1, -1):
        got = (code + more * (np.arange(64) == 2)).astype(np.uint8)
        expect("DynamicQuantizeLinear of halves, a code beside", verdict(g, ys[0].name, got, seed, HALVES), False)
    for k in range(5):
        got = code.copy()
        got[k] += 12 if k < 2 else -12
        expect("DynamicQuantizeLinear of halves, twelve codes off", verdict(g, ys[0].name, got.astype(np.uint8), seed, HALVES), True)
    expect("DynamicQuantizeLinear, its scale", verdict(g, ys[1].name, plant(scale[None], 64)[0], seed), True)
for dtype in (F32, F64):
    x = np.full([2, 512], -10, dtype)
    x[:, 0] = 0
    x[:, 1:] -= rng.uniform(0, 0.01, [2, 511])  # which are rounded alike
    g, (y,) = chain(x, ("Softmax", [], {"axis": 1}))
    e, wrong = np.exp(x), y.array.copy()
    wrong[1, 0] -= 1024 * UNIT[dtype]
    expect_all(f"Softmax of {dtype}, of one large term", g, y, [e / np.cumsum(e, 1)[:, -1:], e / np.cumsum(e[:, ::-1], 1)[:, -1:]], [wrong])
x = np.array([-inf, -inf, 3, -inf], F32).reshape(1, 1, 4)
g, ys = chain(x, ("MaxPool", [], {"kernel_shape": [2], "outputs": 2}))
expect_all("MaxPool of infinities", g, ys[0], [[-inf, 3, 3]], [[-F32.type(3.4028235e38), 3, 3], [-inf, 3, inf], [0, 3, 3]])
expect_all("MaxPool of infinities, places", g, ys[1], [[0, 2, 2]], [[1, 2, 2], [-1, 2, 2]])
x = np.full([1, 1, 4, 4], nan, F32)
x[..., 2:] = 1
g, ys = chain(x, ("MaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2], "outputs": 2}))
expect_all("MaxPool of NaN alone, places", g, ys[1], [[0, 2, 8, 10], [5, 2, 9, 10]], [[0, 3, 8, 10]])
near = np.array([1.5, 0.25], F32)  # which of the two numbers that are chosen is the least rounding decides, in halves, and then what is left of a product
for op, attrs in (("ThresholdedRelu", {"alpha": 1.0}), ("Shrink", {"lambd": 1.0}), ("IsInf", {}), ("Less", {})):
    g = Graph(np.random.default_rng(1), 20)
    y = g.node("Exp", [g.param(near)], check=False)[0]
    y = g.node("Where", [g.node("Less", [y, g.param(np.exp(near + F32.type(1e-5)))], check=False)[0], y, g.param(np.zeros(2, F32))], check=False)[0]
    y = g.node(op, [g.node("Mul", [y, g.param(np.array([2, 100], F32))], check=False)[0], *([g.param(np.float32(3))] if op == "Less" else [])], check=False, **attrs)[0]
    other = np.array([0, 0], F32) if op in ("ThresholdedRelu", "Shrink") else ~y.array
    expect(f"{op} of one of two numbers that rounding chooses", verdict(g, y.name, other.astype(y.dtype), 1, HALVES), False)
    expect(f"{op} of a number that is known", verdict(g, y.name, other.astype(y.dtype), 1), True)
x = np.array([1, nan, inf, 2, 1], F32).reshape(1, 1, 5)
g, (y,) = chain(x, ("MaxPool", [], {"kernel_shape": [3]}))
expect_all("MaxPool of NaN and an infinity", g, y, [[inf, inf, inf], [nan, nan, inf]], [[inf, inf, nan], [inf, inf, 5]])
g, ys = chain(np.zeros(3, F32), ("Exp", [], {}), ("Sub", [np.ones(3, F32)], {}), ("DynamicQuantizeLinear", [], {"outputs": 3}))
expect_all("DynamicQuantizeLinear of no range but for rounding", g, ys[0], [[0, 0, 0], [0, 255, 128]], [])
near, rows = np.array([[2.0012, 2, 1, 2.0005, 1.999]], F32), np.array([[1], [20], [-300], [4], [-500]], F32)
g, (y,) = chain(near, ("Exp", [], {}), ("Hardmax", [], {"axis": 1}), ("MatMul", [rows], {}))
expect_all("a product with Hardmax of halves", g, y, [[1], [20], [4], [-500]], [[-1200]], HALVES)
expect_all("a product with Hardmax of f32", g, y, [[1]], [[20], [4], [-500], [-300]])
g, (y,) = chain(np.array([70000, 1000], F32), ("Mul", [np.float32(1)], {}), ("QuantizeLinear", [np.float32(1000), np.int8(0)], {}))
expect_all("what is larger than halves are, quantized", g, y, [[127, 1], [70, 1]], [[127, 3], [70, 0]], HALVES)
expect_all("what is no larger than f32 are, quantized", g, y, [[70, 1]], [[127, 1]])
x = (np.arange(64) * 0.731 % 1 + 0.5).astype(F32)  # codes of which some 25 lie near a tie
codes, weights = x * 128, rng.integers(-99, 99, [64, 1]).astype(np.int8)
g, (y,) = chain(codes[None], ("Mul", [np.float32(1)], {}), ("QuantizeLinear", [np.float32(1), np.uint8(0)], {}), ("MatMulInteger", [weights], {}))
off = np.where(np.abs(np.abs(codes - np.rint(codes)) - 0.5) < 0.02, np.sign(codes - np.rint(codes)), 0) @ weights
for seed in range(5):
    expect("a sum of codes near ties, in halves", verdict(g, y.name, (y.array + off / 2).astype(np.int32), seed, HALVES), False)
    expect("a sum of codes near ties, a code far off, in halves", verdict(g, y.name, y.array + 99 * 60, seed, HALVES), True)
    expect("a sum of codes that are known", verdict(g, y.name, y.array + 1, seed), True)

print(f"{checked} verdicts, {failed} not as they must be")
sys.exit(bool(failed or checked < 300))
