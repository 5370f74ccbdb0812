# SPDX-License-Identifier: Apache-2.0
"""Random decoders with a cache of keys and values, as ONNX graphs: rotary embedding, grouped heads, caches of f32, f16 or i8."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CACHES = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "i8": TensorProto.INT8}
CODE = 1 / 24  # of i8 caches


class Graph:
    def __init__(self):
        self.nodes, self.weights, self.n = [], [], 0

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        self.nodes.append(helper.make_node(kind, list(inputs), [f"v{self.n}"], **attributes))
        return f"v{self.n}"

    def name(self, value, name):
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def const(self, value):
        self.n += 1
        self.weights.append(numpy_helper.from_array(np.asarray(value), f"c{self.n}"))
        return f"c{self.n}"


def heads_of(g, x, weight, heads, dim):
    shape = g.const(np.array([0, 0, heads, dim], np.int64))
    return g.op("Transpose", g.op("Reshape", g.op("MatMul", x, g.const(weight)), shape), perm=[0, 2, 1, 3])


def rotated(g, x, dim, cos, sin):
    half = g.const(np.array([dim // 2, dim // 2], np.int64))
    g.n += 1
    first, last = f"a{g.n}", f"b{g.n}"
    g.nodes.append(helper.make_node("Split", [x, half], [first, last], axis=-1))
    turned = g.op("Concat", g.op("Neg", last), first, axis=-1)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


def appended(g, past, new, present, cache):
    """The cache with the new rows, and its values."""
    if cache == "i8":
        scale, zero = g.const(np.float32(CODE)), g.const(np.int8(0))
        new = g.op("QuantizeLinear", new, scale, zero)
    elif cache == "f16":
        new = g.op("Cast", new, to=TensorProto.FLOAT16)
    g.nodes.append(helper.make_node("Concat", [past, new], [present], axis=2))
    if cache == "i8":
        return g.op("DequantizeLinear", present, scale, zero)
    return g.op("Cast", present, to=TensorProto.FLOAT) if cache == "f16" else present


def make(rng, layers=2, groups=2, heads=4, dim=8, words=37, cache="f32"):
    """Inputs input_ids (batch, tokens) and past_N_key, past_N_value (batch, groups, past, dim); outputs logits and present_N_..."""
    g, width, repeats = Graph(), heads * dim, heads // groups

    def weight(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype("f")
    one, two, zero = (g.const(np.int64(i)) for i in (1, 2, 0))
    past, tokens = (g.op("Gather", g.op("Shape", n), i) for n, i in (("past_0_key", two), ("input_ids", one)))
    kv = g.op("Add", past, tokens)
    rows, keys = g.op("Range", past, kv, one), g.op("Range", zero, kv, one)
    a0, a1, a2 = (g.const(np.array([i], np.int64)) for i in range(3))
    seen = g.op("LessOrEqual", g.op("Unsqueeze", keys, a0), g.op("Unsqueeze", rows, a1))
    turn = g.op("Mul", g.op("Unsqueeze", g.op("Cast", rows, to=TensorProto.FLOAT), a1),
                g.const((100.0 ** -(np.arange(dim) % (dim // 2) * 2 / dim)).astype("f")[None]))
    cos, sin = g.op("Cos", turn), g.op("Sin", turn)
    x = g.op("Gather", g.const(rng.standard_normal((words, width)).astype("f")), "input_ids")
    for i in range(layers):
        q = rotated(g, heads_of(g, x, weight(width, width), heads, dim), dim, cos, sin)
        k = rotated(g, heads_of(g, x, weight(width, groups * dim), groups, dim), dim, cos, sin)
        v = heads_of(g, x, weight(width, groups * dim), groups, dim)
        k = appended(g, f"past_{i}_key", k, f"present_{i}_key", cache)
        v = appended(g, f"past_{i}_value", v, f"present_{i}_value", cache)
        split = g.const(np.array([0, groups, repeats, -1, dim], np.int64))
        k, v = (g.op("Unsqueeze", y, a2) for y in (k, v))
        scores = g.op("MatMul", g.op("Reshape", q, split), g.op("Transpose", k, perm=[0, 1, 2, 4, 3]))
        scores = g.op("Where", seen, g.op("Mul", scores, g.const(np.float32(dim ** -0.5))), g.const(np.float32(-1e30)))
        o = g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
        o = g.op("Reshape", o, g.const(np.array([0, heads, -1, dim], np.int64)))
        o = g.op("Reshape", g.op("Transpose", o, perm=[0, 2, 1, 3]), g.const(np.array([0, 0, width], np.int64)))
        x = g.op("Add", x, g.op("MatMul", o, g.const(weight(width, width))))
        x = g.op("Add", x, g.op("MatMul", g.op("Tanh", g.op("MatMul", x, g.const(weight(width, 2 * width)))),
                                g.const(weight(2 * width, width))))
    g.nodes.append(helper.make_node("MatMul", [x, g.const(weight(width, words))], ["logits"]))
    kinds = [f"{i}_{what}" for i in range(layers) for what in ("key", "value")]

    def port(name, element, *shape):
        return helper.make_tensor_value_info(name, element, shape)
    inputs = [port("input_ids", TensorProto.INT64, "batch", "tokens")]
    inputs += [port(f"past_{k}", CACHES[cache], "batch", groups, "past", dim) for k in kinds]
    outputs = [port("logits", TensorProto.FLOAT, "batch", "tokens", words)]
    outputs += [port(f"present_{k}", CACHES[cache], "batch", groups, "kv", dim) for k in kinds]
    graph = helper.make_graph(g.nodes, "decoder", inputs, outputs, g.weights)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 20)])
