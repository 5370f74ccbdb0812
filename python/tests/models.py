# SPDX-License-Identifier: Apache-2.0
"""Small models for the tests."""
import numpy as np
from onnx import TensorProto, helper


def model_of(nodes, inputs, outputs, weights=(), opset=21):
    """|inputs| and |outputs|: (name, type, shape); |weights|: (name, array)."""

    def info(ports):
        return [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in ports]

    constants = [
        helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape, a.tobytes(), raw=True)
        for name, a in weights
    ]
    graph = helper.make_graph(nodes, "test", info(inputs), info(outputs), constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


WIDTH = 16
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def weights(seed=0):
    return np.random.default_rng(seed).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def product(rows="N", width=WIDTH, w=None):
    """y = relu(x w)"""
    w = weights() if w is None else w
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="mm"),
        helper.make_node("Relu", ["t"], ["y"], name="act"),
    ]
    return model_of(nodes, [("x", F32, [rows, width])], [("y", F32, [rows, width])], [("w", w)])


def data(rows, width=WIDTH, seed=1):
    return np.random.default_rng(seed).standard_normal((rows, width)).astype(np.float32)


def expected(x, w=None):
    return np.maximum(x @ (weights() if w is None else w), 0)


def peak_kb():
    """Resident memory now."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
