# SPDX-License-Identifier: Apache-2.0
"""Modules: compiled, loaded, called, asked, kept; errors, and the cost of a call."""
import gc
import inspect
import os
import pickle
import re
import subprocess
import sys
import threading

import kiln
import numpy as np
import pytest
from conftest import ROOT
from kiln import _compile, _library
from models import F32, I64, WIDTH, data, expected, model_of, peak_kb, product, weights
from onnx import TensorProto, helper


@pytest.fixture(scope="module")
def module():
    return kiln.compile(product(), dims={"N": 3}, threads=1, cache=False)


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_model_is_compiled_from_a_proto_bytes_and_a_path(module, tmp_path):
    x = data(3)
    proto = product()
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    close(module(x), expected(x))
    for source in (proto.SerializeToString(), path, str(path)):
        close(kiln.compile(source, dims={"N": 3}, cache=False)(x), expected(x))


def test_ports_and_what_a_module_is_made_for_are_told(module):
    assert module.inputs == (kiln.Port("x", "f32", (3, WIDTH)),)
    assert module.outputs == (kiln.Port("y", "f32", (3, WIDTH)),)
    assert module.about.target == "x86_64" and module.about.threads == 1 and module.dims == ()
    assert module.memory.model_weight_bytes == WIDTH * WIDTH * 4
    assert "f32[3, 16] x" in repr(module)


def test_inputs_are_taken_by_place_and_by_name(module):
    x = data(3)
    close(module(x=x), expected(x))
    (only,) = module.run(x)
    close(only, expected(x))
    for bad in ((lambda: module(), "input x: must be given"), (lambda: module(z=x), "must be one of x, got z"),
                (lambda: module(x, x), "at most 1"), (lambda: module(x, x=x), "given once")):
        with pytest.raises(kiln.BadInput, match=bad[1]):
            bad[0]()


def test_tensors_are_used_where_they_lie(module):
    x, y = data(3), np.zeros((3, WIDTH), np.float32)
    from kiln import _arrays, _library

    adapter = _arrays.adapter_of(x)
    address, owner = adapter.lend(x)
    assert _library.DLTensor.from_address(address).data == x.ctypes.data
    assert module(x, out=y) is y
    close(y, expected(x))
    x.flags.writeable = False  # NumPy gives no capsule of it
    address, owner = adapter.lend(x)
    assert _library.DLTensor.from_address(address).data == x.ctypes.data
    close(module(x), expected(x))
    assert module._idle[0].inputs[0] is not None


def test_what_is_not_row_major_and_lists_of_numbers_are_copied(module):
    x = data(3)
    close(module(x[:, ::-1]), expected(x[:, ::-1]))
    close(module(np.asfortranarray(x)), expected(x))
    close(module(x.tolist()), expected(x))


def test_weights_in_memory_are_borrowed():
    w = weights(5)
    proto = product(w=w)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w")
    x = data(3)
    for kind in (w, w.tobytes()):
        module = kiln.compile(proto, dims={"N": 3}, files={"w": kind}, cache=False)
        close(module(x), expected(x, w))
    with pytest.raises(kiln.BadInput, match='file "w" must be readable'):
        kiln.compile(proto, dims={"N": 3}, cache=False)


def test_a_range_of_a_dimension_is_one_module():
    module = kiln.compile(product(), dims={"N": (1, 8)}, threads=1, cache=False)
    assert module.dims == (kiln.DimRange("N", 1, 8, 1),) and module.inputs[0].shape == (-1, WIDTH)
    for n in (1, 3, 8):
        close(module(data(n)), expected(data(n)))
    with pytest.raises(kiln.BadInput):
        module(data(9))


def test_packed_elements_and_sequences_have_ranges():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng()
    for kind, name, low, high in ((TensorProto.INT4, "int4", -8, 8), (TensorProto.UINT2, "uint2", 0, 4)):
        node = helper.make_node("Transpose", ["x"], ["y"])
        model = model_of([node], [("x", kind, ["a", "b"])], [("y", kind, ["b", "a"])], opset=25)
        module = kiln.compile(model, dims={"a": (1, 5), "b": (1, 9)}, threads=1, cache=False)
        for shape in ((3, 5), (5, 9), (1, 1), (5, 3), (4, 9)):
            x = rng.integers(low, high, shape).astype(getattr(ml_dtypes, name))
            np.testing.assert_array_equal(module(x).astype(np.int8), x.T.astype(np.int8))
    nodes = [helper.make_node("Split", ["x", "two"], ["u", "v"]), helper.make_node("SequenceConstruct", ["v", "u"], ["y"])]
    model = model_of(nodes, [("x", F32, ["a", 3])], [], [("two", np.array([1, 2]))])
    nodes[0].attribute.append(helper.make_attribute("axis", 1))
    model.graph.node[0].CopyFrom(nodes[0])
    model.graph.output.append(helper.make_tensor_sequence_value_info("y", F32, None))
    module = kiln.compile(model, dims={"a": (1, 8)}, threads=1, cache=False)
    assert [p.name for p in module.outputs] == ["y[0]", "y[1]"]
    for n in (3, 8, 1):
        x = rng.standard_normal((n, 3)).astype(np.float32)
        for got, want in zip(module(x), (x[:, 1:], x[:, :1])):
            np.testing.assert_array_equal(got, want)


def test_extents_that_a_run_finds_cut_the_output():
    node = helper.make_node("NonZero", ["x"], ["y"])
    module = kiln.compile(model_of([node], [("x", F32, [4])], [("y", I64, [1, "n"])]), cache=False)
    np.testing.assert_array_equal(module(np.array([0, 2, 0, 1], np.float32)), [[1, 3]])
    np.testing.assert_array_equal(module(np.array([0, 0, 0, 0], np.float32)), np.zeros((1, 0)))


def test_types_that_numpy_lacks_are_those_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind, name in ((TensorProto.BFLOAT16, "bfloat16"), (TensorProto.INT4, "int4")):
        node = helper.make_node("Identity", ["x"], ["y"])
        module = kiln.compile(model_of([node], [("x", kind, [5])], [("y", kind, [5])]), cache=False)
        x = np.array([1, -2, 3, 0, 7]).astype(getattr(ml_dtypes, name))
        got = module(x)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32))


def test_several_outputs_are_a_tuple():
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)]
    module = kiln.compile(model_of(nodes, [("x", F32, [4])], [("a", F32, [2]), ("b", F32, [2])]), cache=False)
    a, b = module(np.arange(4, dtype=np.float32))
    np.testing.assert_array_equal(np.concatenate([a, b]), np.arange(4))
    with pytest.raises(kiln.BadInput, match="must be 2 tensors"):
        module(np.arange(4, dtype=np.float32), out=a)


def test_inputs_with_a_default_may_be_left_out():
    proto = product()
    proto.graph.input.append(helper.make_tensor_value_info("w", F32, [WIDTH, WIDTH]))
    module = kiln.compile(proto, dims={"N": 3}, overridable=["w"], cache=False)
    x, w = data(3), weights(9)
    assert module.inputs[1].is_optional
    close(module(x), expected(x))
    close(module(x, w), expected(x, w))


def test_failures_carry_the_node_and_the_place(module):
    node = helper.make_node("NoSuchOperator", ["x"], ["y"], name="strange one")
    with pytest.raises(kiln.Unsupported) as caught:
        kiln.compile(model_of([node], [("x", F32, [4])], [("y", F32, [4])]), name="odd.onnx", cache=False)
    e = caught.value
    assert e.node == "strange one" and e.messages[0].node_index == 0 and e.place.startswith("odd.onnx")
    assert isinstance(e, NotImplementedError) and e.nodes == ["strange one"]
    assert pickle.loads(pickle.dumps(e)).node == "strange one"
    with pytest.raises(kiln.BadInput, match="dtype: must be f32, got f64") as caught:
        module(data(3).astype(np.float64))
    assert caught.value.place == 'input 0 "x"' and isinstance(caught.value, ValueError)
    with pytest.raises(kiln.BadInput, match="must be readable"):
        kiln.compile("absent.onnx")
    with pytest.raises(TypeError, match="no option speed"):
        kiln.compile(product(), speed=11)
    close(module(data(3)), expected(data(3)))


def test_a_module_explains_profiles_and_verifies_itself(module):
    assert "kernel k0" in module.explain() and isinstance(module.explain(json_=True), dict)
    assert all(v.passed for v in module.verify(seed=3))
    (launch,) = module.profile(data(3))
    assert launch.nodes == ("mm", "act") and launch.ns > 0
    close(module.reference(data(3))[0], expected(data(3)))
    assert module.report()["inputs"]


def test_progress_and_dumps_are_told():
    steps = []
    module = kiln.compile(product(), dims={"N": 3}, cache=False, dump="prim", progress=lambda *a: steps.append(a))
    assert steps[-1][1] == steps[-1][2] and "mm" not in steps and "relu" not in module.dumps
    assert "+=!" in module.dumps["prim"]

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kiln.compile(product(), dims={"N": 3}, cache=False, progress=stop)


def test_passes_are_dumped_with_levels_and_without():
    module = kiln.compile(product(), dims={"N": 3}, cache=False, dump_after="fission")
    assert list(module.dumps) == ["after-fission"]
    module = kiln.compile(product(), dims={"N": 3}, cache=False, dump=["prim", "loop"], dump_after=["fission", "plan"])
    assert set(module.dumps) == {"prim", "loop", "after-fission", "after-plan"}


def tuning_steps(**options):
    """The steps that tuning reports for a model with a kernel of several candidates."""
    steps = []

    def tell(phase, done, total):
        if phase == "tune":
            steps.append(done)
            options.get("interrupt", lambda: None)()

    given = {k: v for k, v in options.items() if k != "interrupt"}
    model = product(width=64, w=np.zeros((64, 64), np.float32))
    try:
        kiln.compile(model, dims={"N": 64}, threads=1, cache=False, tune=4, progress=tell, **given)
    except KeyboardInterrupt:
        steps.append("interrupted")
    return steps


def test_tuning_ends_where_it_is_told_to():
    def interrupt():
        raise KeyboardInterrupt

    everything = tuning_steps()
    stop = kiln.Stop()
    assert len(everything) > 2 and not stop.is_set()
    stop.set()
    assert stop.is_set() and len(tuning_steps(stop=stop)) < len(everything)
    interrupted = tuning_steps(interrupt=interrupt)
    assert interrupted[-1] == "interrupted" and len(interrupted) - 1 < len(everything)


def test_every_option_of_the_c_api_has_a_form_in_python():
    text = re.sub("//.*", "", (ROOT.parent / "include/kiln/compile.h").read_text())
    (struct,) = re.findall(r"typedef struct kiln_compile_options \{(.*?)\} kiln_compile_options;", text, re.S)
    fields = [re.search(r"(\w+)\s*$", line).group(1) for line in struct.split(";") if line.strip()]
    assert [name for name, *_ in _library.CompileOptions._fields_] == fields
    by_others = {
        "struct_size": None, "read_only": None,  # of bindings
        "ranges": "dims", "sums": "dims", "constant_names": "constants", "constant_values": "constants",
        "on_dump": "dump", "dump_user": "dump", "on_progress": "progress", "progress_user": "progress",
    }  # fmt: skip
    names = set(inspect.signature(kiln.compile).parameters) | _compile.PLAIN
    assert not [f for f in fields if f not in names and f not in by_others and f.removeprefix("n_") not in {*names, *by_others}]
    assert {name for name in by_others.values() if name} <= names


def test_options_that_are_not_there_are_refused():
    for call in (lambda: kiln.compile(product(), tun=3), lambda: kiln.tc("def f(float(N) X) -> (Y) { Y(n) = X(n) }", tun=3)):
        with pytest.raises(TypeError, match="no option tun; there are .*tune_seconds"):
            call()


def test_modules_are_saved_loaded_and_pickled(module, tmp_path):
    x = data(3)
    module.save(tmp_path / "m.so")
    loaded = kiln.load(tmp_path / "m.so")
    for other in (loaded, pickle.loads(pickle.dumps(module)), pickle.loads(pickle.dumps(loaded)),
                  kiln.compile(product(), dims={"N": 3}, cache=False, output=tmp_path / "n.so")):
        np.testing.assert_array_equal(other(x), module(x))
    assert (tmp_path / "n.so").stat().st_size > 0
    with pytest.raises(kiln.Unsupported, match="its model is needed"):
        loaded.explain()
    with pytest.raises(kiln.Unsupported, match="its model is needed"):
        loaded.memory
    code = f"import kiln, sys; assert 'kiln._compile' in sys.modules; kiln.load({str(tmp_path / 'm.so')!r})"
    path = os.pathsep.join(p for p in sys.path if p)
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


def test_a_call_leaks_nothing(module):
    x = data(3)
    for _ in range(2000):
        module(x)
    gc.collect()
    before = peak_kb()
    for _ in range(100_000):
        module(x)
    assert peak_kb() - before < 512
    for _ in range(200):
        with pytest.raises(kiln.BadInput):
            module(x.astype(np.float64))
    assert peak_kb() - before < 1024


def test_threads_run_side_by_side():
    """Two threads that run a module concurrently get their own results, and do not wait for each other."""
    n = 512
    w = np.random.default_rng(2).standard_normal((n, n)).astype(np.float32)
    module = kiln.compile(product(n, n, w), threads=1, cache=False)
    xs = [np.random.default_rng(i).standard_normal((n, n)).astype(np.float32) for i in range(2)]
    want = [module(x) for x in xs]
    wrong = []

    def work(i):
        for _ in range(40):
            if not np.array_equal(module(xs[i]), want[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and len(module._idle) == 2  # a session each: neither waited for the other
