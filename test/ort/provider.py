#!/usr/bin/env python3
"""Kiln as an execution provider of ONNX Runtime: what is taken, compiled ahead or for the shapes of runs, kept as
EPContext, run by threads, and refused.

usage: KILN_ORT=build/libkiln_ort.so [ORT_SPY=build/libort_spy.so] provider.py [TEST...]

With the spy, all tests together must call each entry of ONNX Runtime's table that ort/abi.h declares, and no other: a
wrong place of an entry shows.
"""
import os
import pathlib
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import spied  # before kiln_ort, whose library it replaces
import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state as C
from onnx import TensorProto as T
from onnx import helper as H

from kiln_ort import PROVIDER, Logs, devices, floats, model, options, peak_kb, plain, session, taken

F32 = T.FLOAT


def mlp(batch=4, weights_seed=1):
    nodes = [
        H.make_node("MatMul", ["x", "w"], ["h"], name="mm"),
        H.make_node("Add", ["h", "b"], ["s"], name="bias"),
        H.make_node("Relu", ["s"], ["y"], name="act"),
    ]
    weights = {"w": floats(8, 16, seed=weights_seed), "b": floats(16, seed=2)}
    return model(nodes, {"x": (F32, [batch, 8])}, {"y": (F32, [batch, 16])}, weights)


def with_inverse(shape=(4, 4)):
    """Three nodes of Kiln's around one that only ONNX Runtime has, and one beside it."""
    nodes = [
        H.make_node("Add", ["x", "w"], ["a"], name="before"),
        H.make_node("Inverse", ["a"], ["i"], name="foreign", domain="com.microsoft"),
        H.make_node("Mul", ["a", "a"], ["m"], name="beside"),
        H.make_node("MatMul", ["i", "m"], ["y"], name="behind"),
    ]
    return model(nodes, {"x": (F32, shape)}, {"y": (F32, shape)}, {"w": np.eye(4, dtype=np.float32) * 9})


class Registered(unittest.TestCase):
    def test_the_processor_is_a_device(self):
        self.assertEqual(len(devices()), 1)
        self.assertEqual(devices()[0].ep_metadata["kiln_target"], "cpu")
        self.assertEqual(devices()[0].ep_vendor, "Kiln")

    def test_a_model_runs(self):
        s = session(mlp())
        self.assertEqual(s.get_providers()[0], PROVIDER)
        x = floats(4, 8)
        np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(mlp(), {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_options_are_checked(self):
        for name, value, says in (("threads", "many", "must be 0 to 1024"), ("dims", "batch", "NAME=N"),
                                  ("target", "pdp11", "x86-64-v2")):
            with self.assertRaisesRegex(Exception, says), Logs():
                session(mlp(), provider={name: value})


class Partition(unittest.TestCase):
    def test_what_is_refused_falls_back_and_is_named(self):
        with Logs() as log:
            s = session(with_inverse(), severity=2)
        self.assertRegex(log.text, r'node "foreign" \(Inverse\) is left to other providers: .*Inverse')
        self.assertEqual(taken(log.text), (3, 4, 2))
        x = floats(4, 4)
        np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(with_inverse(), {"x": x})[0], rtol=1e-4, atol=1e-5)

    def test_texts_stay_outside(self):
        nodes = [
            H.make_node("Cast", ["x"], ["t"], name="to_text", to=T.STRING),
            H.make_node("Cast", ["t"], ["n"], name="from_text", to=T.FLOAT),
            H.make_node("Neg", ["n"], ["y"], name="neg"),
        ]
        m = model(nodes, {"x": (F32, [3])}, {"y": (F32, [3])})
        with Logs() as log:
            s = session(m, severity=2, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL)
        self.assertEqual(taken(log.text)[0], 1)
        np.testing.assert_allclose(s.run(None, {"x": np.float32([1, 2, 3])})[0], [-1, -2, -3])

    def test_control_flow_is_taken_whole(self):
        branch = lambda op: H.make_graph([H.make_node(op, ["a", "w"], ["r"])], op, [], [H.make_tensor_value_info("r", F32, [4])])
        nodes = [
            H.make_node("Neg", ["x"], ["a"], name="neg"),
            H.make_node("If", ["c"], ["y"], name="if", then_branch=branch("Add"), else_branch=branch("Mul")),
        ]
        m = model(nodes, {"x": (F32, [4]), "c": (T.BOOL, [])}, {"y": (F32, [4])}, {"w": floats(4)})
        with Logs() as log:
            s = session(m, severity=1)
        self.assertEqual(taken(log.text), (2, 2, 1))
        for c in (True, False):
            feeds = {"x": floats(4, seed=3), "c": np.array(c)}
            np.testing.assert_allclose(s.run(None, feeds)[0], plain(m, feeds)[0], rtol=1e-6)

    def test_a_whole_loop_is_left_where_its_body_is(self):
        body = H.make_graph(
            [H.make_node("Inverse", ["v"], ["v2"], domain="com.microsoft", name="inner"), H.make_node("Identity", ["c"], ["c2"])],
            "body",
            [H.make_tensor_value_info("i", T.INT64, []), H.make_tensor_value_info("c", T.BOOL, []), H.make_tensor_value_info("v", F32, [2, 2])],
            [H.make_tensor_value_info("c2", T.BOOL, []), H.make_tensor_value_info("v2", F32, [2, 2])],
        )
        nodes = [H.make_node("Loop", ["n", "", "x"], ["l"], name="loop", body=body), H.make_node("Neg", ["l"], ["y"], name="neg")]
        m = model(nodes, {"x": (F32, [2, 2])}, {"y": (F32, [2, 2])}, {"n": np.array(2, dtype=np.int64)})
        with Logs() as log:
            s = session(m, severity=2)
        self.assertIn('node "loop" (Loop)', log.text)
        x = np.float32([[2, 1], [0, 4]])
        np.testing.assert_allclose(s.run(None, {"x": x})[0], -x, rtol=1e-5)

    def test_levels_split_and_join(self):
        # Two branches meet behind the foreign node; the one beside it is of the first part.
        nodes = [
            H.make_node("Neg", ["x"], ["a"]), H.make_node("Inverse", ["a"], ["b"], domain="com.microsoft"),
            H.make_node("Neg", ["b"], ["c"]), H.make_node("Abs", ["a"], ["d"]), H.make_node("Add", ["d", "c"], ["e"]),
            H.make_node("Inverse", ["e"], ["f"], domain="com.microsoft"), H.make_node("Add", ["f", "d"], ["y"]),
        ]
        m = model(nodes, {"x": (F32, [3, 3])}, {"y": (F32, [3, 3])})
        with Logs() as log:
            s = session(m, severity=2)
        self.assertEqual(taken(log.text), (5, 7, 3))
        x = floats(3, 3, seed=5)
        np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(m, {"x": x})[0], rtol=1e-3, atol=1e-4)


class Attributes(unittest.TestCase):
    def check(self, m, *names):
        feeds = {name: floats(*shape, seed=i) for i, (name, shape) in enumerate(names)}
        with Logs() as log:
            s = session(m, severity=1)
        self.assertEqual(taken(log.text)[0], taken(log.text)[1])
        np.testing.assert_allclose(s.run(None, feeds)[0], plain(m, feeds)[0], rtol=1e-5, atol=1e-6)

    def test_tensors(self):
        value = H.make_tensor("v", F32, [1], [3.5])
        nodes = [H.make_node("Shape", ["x"], ["s"]), H.make_node("ConstantOfShape", ["s"], ["c"], value=value),
                 H.make_node("Add", ["x", "c"], ["y"])]
        self.check(model(nodes, {"x": (F32, ["n", 3])}, {"y": (F32, ["n", 3])}), ("x", (2, 3)))

    def test_texts_and_numbers(self):
        nodes = [H.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=2, activations=["LeakyRelu"], activation_alpha=[0.25], direction="reverse"),
                 H.make_node("LeakyRelu", ["y"], ["z"], alpha=0.125)]
        m = model(nodes, {"x": (F32, [4, 1, 3])}, {"z": (F32, [4, 1, 1, 2])}, {"w": floats(1, 2, 3), "r": floats(1, 2, 2)})
        self.check(m, ("x", (4, 1, 3)))

    def test_lists_of_numbers(self):
        nodes = [H.make_node("Conv", ["x", "w"], ["c"], strides=[2, 1], pads=[1, 0, 1, 0]), H.make_node("Transpose", ["c"], ["y"], perm=[0, 2, 3, 1])]
        self.check(model(nodes, {"x": (F32, [1, 2, 6, 5])}, {"y": (F32, [1, 3, 3, 4])}, {"w": floats(4, 2, 3, 3)}), ("x", (1, 2, 6, 5)))


class Shapes(unittest.TestCase):
    def check(self, s, m, batches):
        for batch in batches:
            x = floats(batch, 8, seed=batch)
            np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(m, {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_shapes_of_runs_are_compiled_once(self):
        m = mlp("batch")
        s = session(m, severity=1)
        with Logs() as log:
            self.check(s, m, (1, 3, 1, 3, 0, 1))
        self.assertEqual(log.text.count("compiled for the shapes of a run"), 3)

    def test_the_least_used_module_goes(self):
        m = mlp("batch")
        s = session(m, severity=1, provider={"shapes": "2"})
        with Logs() as log:
            self.check(s, m, (1, 2, 1, 3, 1, 2))
        self.assertEqual(log.text.count("compiled for the shapes of a run"), 4)

    def test_ranges_are_one_module(self):
        m = mlp("batch")
        s = session(m, severity=1, provider={"dims": "batch=1..6"})
        with Logs() as log:
            self.check(s, m, (1, 2, 6))
        self.assertNotIn("compiled for", log.text)
        with self.assertRaisesRegex(Exception, "batch"), Logs():
            self.check(s, m, (7,))

    def test_a_bound_dimension_is_compiled_ahead(self):
        m = mlp("batch")
        with Logs() as log:
            for named in ({"provider": {"dims": "batch=5"}}, {"overrides": {"batch": 5}}):
                self.check(session(m, severity=1, **named), m, (5,))
        self.assertNotIn("compiled for", log.text)
        with self.assertRaisesRegex(Exception, "bytes|dimensions"), Logs():
            self.check(session(m, provider={"dims": "batch=5"}), m, (4,))

    def test_extents_that_only_a_run_finds(self):
        m = model([H.make_node("NonZero", ["x"], ["y"])], {"x": (F32, [3, 4])}, {"y": (T.INT64, [2, "n"])})
        s = session(m)
        for seed in range(3):
            x = np.maximum(floats(3, 4, seed=seed), 0)
            np.testing.assert_array_equal(s.run(None, {"x": x})[0], np.stack(np.nonzero(x)))
        np.testing.assert_array_equal(s.run(None, {"x": np.zeros((3, 4), np.float32)})[0].shape, (2, 0))

    def test_defaults_of_inputs_may_be_given(self):
        m = model([H.make_node("Add", ["x", "w"], ["y"])], {"x": (F32, [3]), "w": (F32, [3])}, {"y": (F32, [3])}, {"w": floats(3)})
        s = session(m)
        for feeds in ({"x": floats(3, seed=1)}, {"x": floats(3, seed=1), "w": floats(3, seed=2)}):
            np.testing.assert_allclose(s.run(None, feeds)[0], plain(m, feeds)[0], rtol=1e-6)


class Contexts(unittest.TestCase):
    def compile(self, folder, m, embed, **provider):
        source, target = os.path.join(folder, "m.onnx"), os.path.join(folder, "m_ctx.onnx")
        onnx.save(m, source)
        session(source, provider=provider, config={"ep.context_enable": "1", "ep.context_file_path": target, "ep.context_embed_mode": embed})
        return target

    def test_round_trip(self):
        x = floats(4, 8)
        for embed in "01":
            with tempfile.TemporaryDirectory() as folder:
                path = self.compile(folder, mlp(), embed)
                kept = onnx.load(path)
                self.assertEqual([n.op_type for n in kept.graph.node], ["EPContext"])
                self.assertEqual(len(kept.graph.initializer), 0)
                os.remove(os.path.join(folder, "m.onnx"))
                self.assertEqual(len(os.listdir(folder)), 1 if embed == "1" else 2)
                s = session(path, provider={"load_contexts": "1"})
                np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(mlp(), {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_around_a_foreign_node(self):
        x = floats(4, 4)
        with tempfile.TemporaryDirectory() as folder:
            path = self.compile(folder, with_inverse(), "0")
            self.assertEqual(sorted(n.op_type for n in onnx.load(path).graph.node), ["EPContext", "EPContext", "Inverse"])
            s = session(path, provider={"load_contexts": "1"})
            np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(with_inverse(), {"x": x})[0], rtol=1e-4, atol=1e-5)

    def test_ranges_round_trip(self):
        m = mlp("batch")
        with tempfile.TemporaryDirectory() as folder:
            s = session(self.compile(folder, m, "0", dims="batch=1..4"), provider={"load_contexts": "1"})
            for batch in (1, 4):
                x = floats(batch, 8)
                np.testing.assert_allclose(s.run(None, {"x": x})[0], plain(m, {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_a_program_is_loaded_at_the_users_word_only(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.compile(folder, mlp(), "0")
            with self.assertRaisesRegex(Exception, "load_contexts"), Logs():
                session(path)

    def test_a_file_of_another_folder_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.compile(folder, mlp(), "0")
            m = onnx.load(path)
            for name in ("../x.kmod", "/tmp/x.kmod", ""):
                for a in m.graph.node[0].attribute:
                    if a.name == "ep_cache_context":
                        a.s = name.encode()
                onnx.save(m, path)
                with self.assertRaisesRegex(Exception, "must name a file of the model's folder"), Logs():
                    session(path, provider={"load_contexts": "1"})

    def test_a_damaged_module_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.compile(folder, mlp(), "0")
            module = next(pathlib.Path(folder).glob("*.kmod"))
            module.write_bytes(module.read_bytes()[:-100])
            with self.assertRaisesRegex(Exception, "kmod"), Logs():
                session(path, provider={"load_contexts": "1"})

    def test_the_model_says_what_it_was_compiled_for(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = onnx.load(self.compile(folder, mlp(), "0"))
        info = {p.key: p.value for p in kept.metadata_props}
        mine = [value for value in info.values() if value.startswith(PROVIDER)]
        self.assertEqual(len(mine), 1, info)
        check, fits = C.get_model_compatibility_for_ep_devices, C.OrtCompiledModelCompatibility
        head, _, _ = mine[0].partition(";")
        self.assertEqual(check(devices(), mine[0]), fits.EP_SUPPORTED_OPTIMAL)
        self.assertEqual(check(devices(), head + ";another machine"), fits.EP_SUPPORTED_PREFER_RECOMPILATION)
        self.assertEqual(check(devices(), PROVIDER + " 0.0.1;"), fits.EP_UNSUPPORTED)

    def test_what_waits_for_shapes_stays_a_model(self):
        with tempfile.TemporaryDirectory() as folder, Logs() as log:
            source, target = os.path.join(folder, "m.onnx"), os.path.join(folder, "m_ctx.onnx")
            onnx.save(mlp("batch"), source)
            try:
                session(source, severity=2, config={"ep.context_enable": "1", "ep.context_file_path": target})
            except Exception:
                pass  # some releases want a context
        self.assertIn("not compiled ahead", log.text)


class Runs(unittest.TestCase):
    def test_threads_share_a_session(self):
        m = mlp("batch")
        s = session(m)
        wrong = []

        def work(seed):
            for i in range(20):
                x = floats(1 + (seed + i) % 3, 8, seed=seed)
                if not np.allclose(s.run(None, {"x": x})[0], np.maximum(x @ w + b, 0), rtol=1e-4, atol=1e-5):
                    wrong.append(seed)

        w, b = floats(8, 16, seed=1), floats(16, seed=2)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_an_index_out_of_range_is_an_error(self):
        m = model([H.make_node("Gather", ["x", "i"], ["y"], name="look")], {"x": (F32, [4]), "i": (T.INT64, [2])}, {"y": (F32, [2])})
        s = session(m)
        with self.assertRaisesRegex(Exception, "look"), Logs():
            s.run(None, {"x": floats(4), "i": np.array([0, 9])})
        feeds = {"x": floats(4), "i": np.array([0, 3])}
        np.testing.assert_array_equal(s.run(None, feeds)[0], plain(m, feeds)[0])

    def test_outputs_may_be_bound(self):
        s = session(mlp())
        x, y = floats(4, 8), np.zeros((4, 16), np.float32)
        binding = s.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
        s.run_with_iobinding(binding)
        np.testing.assert_allclose(y, plain(mlp(), {"x": x})[0], rtol=1e-5, atol=1e-6)

    def test_sessions_leave_nothing(self):
        m = model([H.make_node("Add", ["x", "w"], ["y"])], {"x": (F32, ["n", 250000])}, {"y": (F32, ["n", 250000])}, {"w": floats(250000)})
        data = m.SerializeToString()
        x = floats(1, 250000)

        def once():
            session(data).run(None, {"x": x})
            session(data, provider={"dims": "n=1"}).run(None, {"x": x})

        for _ in range(3):
            once()
        before = peak_kb()
        for _ in range(12):
            once()
        self.assertLess(peak_kb() - before, 4000)  # a weight is 1 MB


def main():
    ran = unittest.main(verbosity=1, exit=False)
    if not spied.SPY or len(sys.argv) > 1 or not ran.result.wasSuccessful():
        return not ran.result.wasSuccessful()
    called, places = spied.called(), spied.declared()
    idle = {name for place, name in places.items() if place not in called} - {"release_attribute"}  # after failures only
    print(f"{len(called)} of ONNX Runtime's functions are called; declared, and not called: {sorted(idle)}")
    return not idle <= spied.OF_GPUS or not called <= set(places)


if __name__ == "__main__":
    sys.exit(main())
