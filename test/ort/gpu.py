#!/usr/bin/env python3
"""Kiln's provider on an NVIDIA GPU: results beside ONNX Runtime's on the processor, shapes of runs, EPContext, threads, and
tensors that stay in the GPU's memory.

usage: KILN_ORT=build/libkiln_ort.so gpu.py [MODEL.onnx...]      models are timed, too

Skipped (77) where there is no driver. The device is ONNX Runtime's, where it finds the GPU, else the option target=cuda.
KILN_ORT_TARGET=opencl takes an OpenCL device in the GPU's place.
"""
import ctypes
import os
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(__file__))
import numpy as np
import onnx
import onnxruntime as ort

import provider
from kiln_ort import LIBRARY, PROVIDER, bind_on_device, devices, floats, on_device, plain


TARGET = os.environ.get("KILN_ORT_TARGET", "cuda")


def gpu_options(config=None, **named):
    devices()
    found = [d for d in ort.get_ep_devices() if d.ep_name == PROVIDER and d.ep_metadata["kiln_target"] == TARGET]
    so = ort.SessionOptions()
    so.log_severity_level = 2
    for key, value in (config or {}).items():
        so.add_session_config_entry(key, value)
    so.add_provider_for_devices((found or devices())[:1], {**({} if found else {"target": TARGET}), **named})
    return so, bool(found)


def has_memory():
    """Whether this ONNX Runtime lets a provider register a device's memory: since 1.24."""
    return tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 24)


def session(model, config=None, **named):
    data = model if isinstance(model, str) else model.SerializeToString()
    s = ort.InferenceSession(data, gpu_options(config, **named)[0])
    s.disable_fallback()
    return s


def close(got, want, what):
    error = np.linalg.norm((got - want).ravel()) / max(np.linalg.norm(want.ravel()), 1e-30)
    print(f"  {what}: relative L2 error {error:.2e}")
    assert error < 1e-3, what


def check_small():
    m = provider.mlp()
    x = floats(4, 8)
    close(session(m).run(None, {"x": x})[0], plain(m, {"x": x})[0], "fixed shapes")
    m = provider.mlp("batch")
    s = session(m)
    for batch in (1, 3, 1):
        x = floats(batch, 8, seed=batch)
        close(s.run(None, {"x": x})[0], plain(m, {"x": x})[0], f"the shapes of a run, batch {batch}")
    x = floats(4, 4)
    close(session(provider.with_inverse()).run(None, {"x": x})[0], plain(provider.with_inverse(), {"x": x})[0], "around a foreign node")


def check_contexts():
    x = floats(4, 8)
    with tempfile.TemporaryDirectory() as folder:
        source, target = os.path.join(folder, "m.onnx"), os.path.join(folder, "m_ctx.onnx")
        onnx.save(provider.mlp(), source)
        session(source, {"ep.context_enable": "1", "ep.context_file_path": target})
        start = time.perf_counter()
        s = session(target, load_contexts="1")
        print(f"  EPContext loaded in {1e3 * (time.perf_counter() - start):.1f} ms")
        close(s.run(None, {"x": x})[0], plain(provider.mlp(), {"x": x})[0], "EPContext")


def check_threads():
    m = provider.mlp()
    s, x = session(m), floats(4, 8)
    want, wrong = plain(m, {"x": x})[0], []

    def work():
        for _ in range(50):
            if not np.allclose(s.run(None, {"x": x})[0], want, rtol=1e-3, atol=1e-4):
                wrong.append(1)

    run_threads(lambda i: work(), 4)
    print("  threads: 200 runs,", len(wrong), "wrong")
    assert not wrong


def check_memory():
    """Bound tensors of the device: used where they lie, changed by whoever has the address, made by the session, from DLPack."""
    m = provider.mlp()
    s, x, y = session(m), on_device(floats(4, 8)), on_device(np.zeros((4, 16), np.float32))
    binding, where = s.io_binding(), y.data_ptr()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    for seed in (1, 2, 3):
        x.update_inplace(floats(4, 8, seed=seed))
        s.run_with_iobinding(binding)
        close(y.numpy(), plain(m, {"x": floats(4, 8, seed=seed)})[0], f"bound, seed {seed}")
    assert y.data_ptr() == where
    made = s.io_binding()
    made.bind_ortvalue_input("x", x)
    bind_on_device(made, "y")
    s.run_with_iobinding(made)
    out = made.get_outputs()[0]
    assert out.device_name() != "cpu", out.device_name()
    close(out.numpy(), y.numpy(), "an output of the session's, on the device")
    check_torch(s, m)


def check_torch(s, m):
    try:
        import torch
    except ImportError:
        return
    if not torch.cuda.is_available():
        return
    x, y = torch.randn(4, 8, device="cuda"), torch.empty(4, 16, device="cuda")
    binding = s.io_binding()
    binding.bind_input("x", "cuda", 0, np.float32, x.shape, x.data_ptr())
    binding.bind_output("y", "cuda", 0, np.float32, y.shape, y.data_ptr())
    for _ in range(3):
        x.normal_()
        torch.cuda.synchronize()
        s.run_with_iobinding(binding)
        close(y.cpu().numpy(), plain(m, {"x": x.cpu().numpy()})[0], "PyTorch's memory")
    if hasattr(ort.OrtValue, "from_dlpack"):
        value = ort.OrtValue.from_dlpack(x)
        assert value.data_ptr() == x.data_ptr()
        binding.bind_ortvalue_input("x", value)
        s.run_with_iobinding(binding)
        close(y.cpu().numpy(), plain(m, {"x": x.cpu().numpy()})[0], "PyTorch's memory by DLPack")


def check_sessions():
    """Threads, each with a binding of its own, on two sessions."""
    models = [provider.mlp(), provider.mlp(weights_seed=7)]
    sessions, wrong = [session(m) for m in models], []

    def work(i):
        m, s = models[i % 2], sessions[i % 2]
        x, y = on_device(floats(4, 8)), on_device(np.zeros((4, 16), np.float32))
        binding = s.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for k in range(50):
            given = floats(4, 8, seed=100 * i + k)
            x.update_inplace(given)
            s.run_with_iobinding(binding)
            if not np.allclose(y.numpy(), plain_mlp(given, i % 2), rtol=1e-3, atol=1e-4):
                wrong.append((i, k))

    weights = [(floats(8, 16, seed=seed), floats(16, seed=2)) for seed in (1, 7)]

    def plain_mlp(x, which):
        w, b = weights[which]
        return np.maximum(x @ w + b, 0)

    run_threads(work, 6)
    print("  sessions beside each other: 300 runs on the device,", len(wrong), "wrong")
    assert not wrong


def run_threads(work, n):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def check_model(path):
    types = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    s = session(path)
    feeds = {}
    for i in s.get_inputs():
        values = floats(*i.shape) if i.type == "tensor(float)" else np.zeros(i.shape)
        feeds[i.name] = values.astype(types[i.type])
    got, want = s.run(None, feeds), plain(path, feeds)
    for i, (g, w) in enumerate(zip(got, want)):
        close(g, w, f"{os.path.basename(path)} output {i}")
    times = []
    for _ in range(50):
        start = time.perf_counter()
        s.run(None, feeds)
        times.append(1e3 * (time.perf_counter() - start))
    print(f"  {os.path.basename(path)}: {statistics.median(times):.3f} ms a run, copies included")


def main():
    driver = {"cuda": "libcuda.so.1", "opencl": "libOpenCL.so.1"}[TARGET]
    try:
        ctypes.CDLL(driver)
    except OSError:
        print(f"skipped: there is no {driver}")
        return 77
    print(f"{LIBRARY}: ONNX Runtime {ort.__version__} {'offers' if gpu_options()[1] else 'does not offer'} a device for {TARGET}")
    check_small()
    check_contexts()
    check_threads()
    if gpu_options()[1] and TARGET == "cuda" and has_memory():
        check_memory()
        check_sessions()
    for path in sys.argv[1:]:
        check_model(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
