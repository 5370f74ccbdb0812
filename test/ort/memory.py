#!/usr/bin/env python3
"""Kiln's provider with tensors in a GPU's memory, on a driver that is played (test/gpu/fake_cuda.c): which copies there are,
streams, what stays allocated, and that each failure of the driver is an error of ONNX Runtime's.

usage: LD_LIBRARY_PATH=build/fake_cuda FAKE_CUDA_ANY=1 FAKE_CUDA_BYTES=100000000 KILN_ORT=build/libkiln_ort.so memory.py [TEST...]

Each kernel of that driver copies its first argument to its second, so the models here do nothing else. Skipped (77) without
NVRTC, which compiles them, or with an ONNX Runtime before 1.24.
"""
import ctypes
import ctypes.util
import gc
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import spied  # before kiln_ort, whose library it replaces
import numpy as np
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as H

from kiln_ort import NVIDIA, PROVIDER, Logs, bind_on_device, devices, floats, model, on_device, plain


class Fake(ctypes.Structure):
    """fake_cuda of test/gpu/fake_cuda.h."""

    _fields_ = [("n_devices", ctypes.c_int), ("major", ctypes.c_int), ("minor", ctypes.c_int), ("memory_bytes", ctypes.c_size_t)]
    _fields_ += [(name, ctypes.c_int) for name in ("fail_launch", "launches", "captures", "replays", "waits", "maps", "window_maps",
                                                   "threads", "early", "version", "live")]
    _fields_ += [("most_shared", ctypes.c_uint)]
    _fields_ += [(name, ctypes.c_int) for name in ("copies", "host_copies", "fail_call")]


driver = ctypes.CDLL("libcuda.so.1")
driver.fake_cuda_state.restype = ctypes.POINTER(Fake)
fake = driver.fake_cuda_state().contents


def gpu():
    devices()
    return next(d for d in ort.get_ep_devices() if d.ep_name == PROVIDER and d.ep_metadata["kiln_target"] == "cuda")


def session(m, severity=3, **options):
    so = ort.SessionOptions()
    so.log_severity_level = severity
    so.add_provider_for_devices([gpu()], {"cache": "0", **options})
    s = ort.InferenceSession(m if isinstance(m, bytes) else m.SerializeToString(), so)
    s.disable_fallback()
    return s


def reshape(to=(8, 4), lead=4):
    return model([H.make_node("Reshape", ["x", "s"], ["y"])], {"x": (T.FLOAT, [lead, 8])}, {"y": (T.FLOAT, to)}, {"s": np.array([8, 4] if lead == 4 else [-1, 4])})


def around_a_foreign_node():
    nodes = [
        H.make_node("Reshape", ["x", "s"], ["a"], name="before"),
        H.make_node("Inverse", ["a"], ["i"], name="foreign", domain="com.microsoft"),
        H.make_node("Reshape", ["i", "t"], ["y"], name="behind"),
    ]
    return model(nodes, {"x": (T.FLOAT, [2, 8])}, {"y": (T.FLOAT, [8, 2])}, {"s": np.array([4, 4]), "t": np.array([8, 2])})


def chain():
    """Two parts of Kiln's, the second of which reads what the first and a foreign node made."""
    nodes = [
        H.make_node("Reshape", ["x", "s"], ["a"], name="first"),
        H.make_node("Inverse", ["a"], ["i"], name="foreign", domain="com.microsoft"),
        H.make_node("Add", ["a", "i"], ["y"], name="last"),
    ]
    return model(nodes, {"x": (T.FLOAT, [2, 8])}, {"y": (T.FLOAT, [4, 4])}, {"s": np.array([4, 4])})


class Copies(unittest.TestCase):
    def test_the_gpu_is_a_device_with_memory(self):
        self.assertEqual(gpu().device.type, ort.OrtHardwareDeviceType.GPU)
        self.assertEqual(gpu().device.vendor_id, NVIDIA)
        self.assertEqual(gpu().ep_metadata["kiln_device"], "0")

    def test_bound_tensors_are_used_where_they_lie(self):
        s, x = session(reshape()), floats(4, 8)
        given, taken = on_device(x), on_device(np.zeros((8, 4), np.float32))
        binding = s.io_binding()
        binding.bind_ortvalue_input("x", given)
        binding.bind_ortvalue_output("y", taken)
        before, launches, replays = fake.copies, fake.launches, fake.replays
        for _ in range(3):
            s.run_with_iobinding(binding)
        self.assertEqual(fake.copies, before)
        self.assertGreater(fake.launches, launches)
        self.assertGreater(fake.replays, replays)
        np.testing.assert_array_equal(taken.numpy(), x.reshape(8, 4))

    def test_outputs_are_made_on_the_device(self):
        s, x = session(reshape()), floats(4, 8)
        binding = s.io_binding()
        binding.bind_ortvalue_input("x", on_device(x))
        bind_on_device(binding, "y")
        before = fake.copies
        s.run_with_iobinding(binding)
        self.assertEqual(fake.copies, before)
        out = binding.get_outputs()[0]
        self.assertNotEqual(out.device_name().lower(), "cpu")
        np.testing.assert_array_equal(out.numpy(), x.reshape(8, 4))

    def test_tensors_of_the_host_are_copied_once(self):
        s, x = session(reshape()), floats(4, 8)
        for _ in range(3):
            before = fake.copies
            np.testing.assert_array_equal(s.run(None, {"x": x})[0], x.reshape(8, 4))
            self.assertEqual(fake.copies - before, 2)

    def test_a_foreign_node_gets_and_gives_copies(self):
        m, x = around_a_foreign_node(), floats(2, 8)
        s = session(m)
        for _ in range(3):
            before = fake.copies
            np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(m, {"x": x})[0], rtol=1e-4, atol=1e-5)
            self.assertEqual(fake.copies - before, 4)

    def test_tensors_between_parts_stay_on_the_device(self):
        m, x = chain(), floats(2, 8)
        s = session(m)
        given = on_device(x)
        binding = s.io_binding()
        binding.bind_ortvalue_input("x", given)
        bind_on_device(binding, "y")
        copies, host_copies = fake.copies, fake.host_copies
        s.run_with_iobinding(binding)
        self.assertEqual(fake.host_copies - host_copies, 2)  # to and from the foreign node
        self.assertEqual(fake.copies - copies, 2)

    def test_values_are_copied_between_devices(self):
        x = floats(5, 7)
        a, b = on_device(x), on_device(np.zeros_like(x))
        before = fake.host_copies
        ort.copy_tensors([a], [b])
        self.assertEqual(fake.host_copies, before)
        np.testing.assert_array_equal(b.numpy(), x)
        stream = gpu().create_sync_stream() if hasattr(gpu(), "create_sync_stream") else None
        if stream is not None:
            c = on_device(np.zeros_like(x))
            ort.copy_tensors([a], [c], stream)
            np.testing.assert_array_equal(c.numpy(), x)

    def test_shapes_of_runs(self):
        s = session(reshape(to=("m", 4), lead="n"))
        for n in (4, 2, 4, 6):
            x = floats(n, 8, seed=n)
            np.testing.assert_array_equal(s.run(None, {"x": x})[0], x.reshape(2 * n, 4))
            binding = s.io_binding()
            binding.bind_ortvalue_input("x", on_device(x))
            bind_on_device(binding, "y")
            s.run_with_iobinding(binding)
            np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), x.reshape(2 * n, 4))


class Threads(unittest.TestCase):
    def test_concurrent_runs(self):
        s, wrong = session(around_a_foreign_node()), []
        want = {seed: plain(around_a_foreign_node(), {"x": floats(2, 8, seed=seed)})[0] for seed in range(4)}

        def work(seed):
            for _ in range(30):
                if not np.allclose(s.run(None, {"x": floats(2, 8, seed=seed)})[0], want[seed], rtol=1e-4, atol=1e-5):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class Memory(unittest.TestCase):
    def test_memory_is_used_again(self):
        s = session(around_a_foreign_node())
        x = floats(2, 8)
        for _ in range(3):
            s.run(None, {"x": x})
        before = fake.live
        for _ in range(20):
            s.run(None, {"x": x})
        self.assertEqual(fake.live, before)

    def test_sessions_leave_nothing(self):
        x = floats(2, 8)

        def once():
            s = session(chain())
            s.run(None, {"x": x})
            binding = s.io_binding()
            binding.bind_ortvalue_input("x", on_device(x))
            bind_on_device(binding, "y")
            s.run_with_iobinding(binding)

        once()
        gc.collect()
        before = fake.live
        for _ in range(3):
            once()
        gc.collect()
        self.assertEqual(fake.live, before)

    def test_memory_that_is_out_is_an_error(self):
        s = session(reshape(to=("m", 4), lead="n"))
        x = np.zeros((4_000_000, 8), np.float32)  # 128 MB
        with Logs() as log, self.assertRaisesRegex(Exception, "memory|[Aa]lloc"):
            s.run(None, {"x": x})
        self.assertRegex(log.text, "must fit into the memory of Fake 0")
        np.testing.assert_array_equal(s.run(None, {"x": x[:4]})[0], x[:4].reshape(8, 4))

    def test_what_is_kept_is_given_back_where_memory_is_out(self):
        values = [on_device(np.zeros(10_000_000, np.float32)) for _ in range(2)]  # 40 MB each, of 100
        del values
        self.assertEqual(on_device(np.ones(20_000_000, np.float32)).numpy()[-1], 1)


class Failures(unittest.TestCase):
    def test_each_failure_of_the_driver_is_an_error(self):
        m, x = around_a_foreign_node(), floats(2, 8)
        want = plain(m, {"x": x})

        def once():
            s = session(m)
            for _ in range(3):  # enqueued, captured, replayed
                got = s.run(None, {"x": x})
            return got

        once()
        gc.collect()
        live, failed, n = fake.live, 0, 0
        with Logs() as log:
            while True:
                n += 1
                fake.fail_call = n
                try:
                    once()
                except Exception as e:
                    failed += 1
                    self.assertRegex(str(e), "Kiln|cuda|CUDA|[Aa]lloc|[Mm]emory", n)
                finally:
                    reached = fake.fail_call <= 0
                    fake.fail_call = 0
                gc.collect()
                if not reached:
                    break
        print(f"{n - 1} calls of the driver failed, {failed} made an error; others were not needed")
        self.assertGreater(failed, 20)
        for got, right in zip(once(), want):
            np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
        gc.collect()
        self.assertLessEqual(fake.live, live + 8)


def main():
    nvrtc = any(os.path.exists(os.path.join(d, "libnvrtc.so.13")) for d in os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    if not nvrtc and not ctypes.util.find_library("nvrtc"):
        print("skipped: there is no NVRTC")
        return 77
    if tuple(map(int, ort.__version__.split(".")[:2])) < (1, 24):
        print("skipped: ONNX Runtime must be 1.24 or newer")
        return 77
    ran = unittest.main(verbosity=1, exit=False)
    if not spied.SPY or len(sys.argv) > 1 or not ran.result.wasSuccessful():
        return not ran.result.wasSuccessful()
    called, places = spied.called(), spied.declared()
    idle = spied.OF_GPUS - {places[place] for place in called & set(places)}
    print(f"of ONNX Runtime's functions for GPUs, not called: {sorted(idle)}; live objects of the driver: {fake.live}")
    return bool(idle) or not called <= set(places) or fake.live != 0


if __name__ == "__main__":
    sys.exit(main())
