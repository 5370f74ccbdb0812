"""ONNX Runtime with Kiln as provider, for tests: the library is registered once, sessions are made by one call."""
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as H

LIBRARY = os.path.abspath(os.environ["KILN_ORT"])
PROVIDER = "KilnExecutionProvider"
NVIDIA = 0x10DE
_registered = False


def devices():
    global _registered
    if not _registered:
        ort.register_execution_provider_library("kiln", LIBRARY)
        _registered = True
    return [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER and d.device.type == ort.OrtHardwareDeviceType.CPU]


def options(provider=None, config=None, level=None, overrides=None, severity=3):
    so = ort.SessionOptions()
    so.log_severity_level = severity
    if level is not None:
        so.graph_optimization_level = level
    for key, value in (config or {}).items():
        so.add_session_config_entry(key, value)
    for name, value in (overrides or {}).items():
        so.add_free_dimension_override_by_name(name, value)
    so.add_provider_for_devices(devices()[:1], {"threads": "1", "cache": "0", **(provider or {})})
    return so


def session(model, **named):
    return ort.InferenceSession(model if isinstance(model, (str, bytes)) else model.SerializeToString(), options(**named))


def plain(model, feeds):
    """What ONNX Runtime alone gives."""
    so = ort.SessionOptions()
    so.log_severity_level = 3
    model = model if isinstance(model, (str, bytes)) else model.SerializeToString()
    return ort.InferenceSession(model, so, providers=["CPUExecutionProvider"]).run(None, feeds)


def on_device(array):
    return ort.OrtValue.ortvalue_from_numpy(array, "gpu", 0, vendor_id=NVIDIA)


def bind_on_device(binding, name):
    """An output that the session makes on the device; before 1.27 IOBinding.bind_output(name, "cuda") knows no vendor."""
    binding._iobinding.bind_output(name, ort.OrtDevice.make("gpu", 0, NVIDIA)._get_c_device())


def model(nodes, inputs, outputs, weights=(), opset=17, ir=8, functions=()):
    """inputs, outputs: name=(type, shape); weights: name=array"""
    def infos(ports):
        return [H.make_tensor_value_info(name, type_, shape) for name, (type_, shape) in ports.items()]

    tensors = [onnx.numpy_helper.from_array(value, name) for name, value in dict(weights).items()]
    graph = H.make_graph(nodes, "g", infos(inputs), infos(outputs), tensors)
    opsets = [H.make_opsetid("", opset), H.make_opsetid("com.microsoft", 1)]
    return H.make_model(graph, opset_imports=opsets, ir_version=ir, functions=list(functions))


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Logs:
    """What ONNX Runtime logs, which goes to the process's standard error."""

    def __enter__(self):
        sys.stderr.flush()
        self.saved = os.dup(2)
        self.file = os.memfd_create("log")
        os.dup2(self.file, 2)
        return self

    def __exit__(self, *_):
        sys.stderr.flush()
        os.dup2(self.saved, 2)
        os.close(self.saved)
        os.lseek(self.file, 0, 0)
        with os.fdopen(self.file, "rb") as f:
            self.text = f.read().decode()


def taken(log):
    """(taken, all, parts) as Kiln logs it last."""
    found = re.findall(r"Kiln takes (\d+) of (\d+) nodes, in (\d+) parts", log)
    return tuple(map(int, found[-1])) if found else None


def peak_kb():
    with open("/proc/self/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
