# SPDX-License-Identifier: Apache-2.0
"""Sessions with state: recurrences, growing caches, forks, files, wrong use."""
import os
import re

import kiln
import numpy as np
import pytest
import random_decoders
from onnx.parser import parse_model

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
CELL = HEAD + """g (float[2,3] x, float[2,4] h, float[3,4] w, float[4,4] u) => (float[2,4] hn, float[2,4] y) {
 a=MatMul(x,w) b=MatMul(h,u) c=Add(a,b) hn=Tanh(c) y=Exp(hn) }"""
CACHE = HEAD + """g (float[b,3,p,4] past_0, float[b,3,t,4] x) => (float[b,3,kv,4] present_0, float[b,3,t,4] y)
<int64[1] ax={2}> { present_0=Concat<axis=2>(past_0,x) s=ReduceSum<keepdims=1>(present_0,ax) y=Add(x,s) }"""
CACHES = {"f32": np.float32, "f16": np.float16, "i8": np.int8}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "cache.so"
    kiln.compile(parse_model(CACHE), states="auto", dims={"b": (1, 4), "p": (1, 40), "t": (1, 4), "kv": "p+t"}, output=path,
                 cache=False)
    return kiln.load(path)


def test_a_recurrence_keeps_its_state():
    session = kiln.compile(parse_model(CELL), states="h=hn", cache=False).session()
    rng = np.random.default_rng(0)
    w, u = (rng.standard_normal((n, 4)).astype("f") for n in (3, 4))
    h = np.zeros((2, 4), "f")
    assert [p.name for p in session.inputs] == ["x", "w", "u"] and session.states == ("h",)
    for _ in range(5):
        x = rng.standard_normal((2, 3)).astype("f")
        h = np.tanh(x @ w + h @ u)
        np.testing.assert_allclose(session(x, w=w, u=u), np.exp(h), rtol=1e-5)
    np.testing.assert_allclose(session.state("h"), h, rtol=1e-5)
    session(x, w, u, h=np.ones((2, 4), "f"))
    np.testing.assert_allclose(session.state("h"), np.tanh(x @ w + np.ones((2, 4)) @ u), rtol=1e-5)


def test_a_cache_grows_and_is_cut_forked_and_stored(cache, tmp_path):
    rng = np.random.default_rng(1)
    session, past = cache.session(), np.zeros((2, 3, 1, 4), "f")
    assert session.state("past_0") is None
    for i in range(9):
        x = rng.standard_normal((2, 3, rng.integers(1, 5), 4)).astype("f")
        y = session(x)
        past = np.concatenate([past, x], 2)
        np.testing.assert_allclose(y, x + past.sum(2, keepdims=True), rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(session.state("past_0"), past)
        if i == 3:
            fork = session.fork()
            fork(x)
            np.testing.assert_array_equal(fork.state("past_0"), np.concatenate([past, x], 2))
            np.testing.assert_array_equal(session.state("past_0"), past)
        if i == 5:
            session.truncate(5)
            past = past[:, :, :5]
            session.save(tmp_path / "state")
            session.reset()
            assert session.state("past_0") is None
            session.load(tmp_path / "state")
        np.testing.assert_array_equal(session.state("past_0"), past)


def test_wrong_use_is_told(cache):
    session = cache.session()
    x = np.zeros((2, 3, 4, 4), "f")
    with pytest.raises(kiln.BadInput, match="dimension p: must be 1 to 40"):
        for _ in range(12):
            session(x)
    with pytest.raises(kiln.BadInput, match="length: must be 0 to 41"):
        session.truncate(100)
    session.truncate(5)
    with pytest.raises(kiln.BadInput, match=r"shape: must be \[2, 3, 4, 4\], got \[1, 3, 4, 4\]"):
        session(x[:1])  # another batch than the state's
    with pytest.raises(kiln.BadInput, match="input x: must be given"):
        session()
    plain = kiln.compile(parse_model(CELL), cache=False)
    with pytest.raises(kiln.BadInput, match="must have states"):
        plain.session()
    for wrong, message in (("h=y2", "no output"), ("x=hn", "one type and shape"), ("auto", "input named past"),
                           (("h=hn", "h=y"), "one state, got them in two")):
        with pytest.raises(kiln.BadInput, match=message):
            kiln.compile(parse_model(CELL), states=wrong, cache=False)


def decoder_pair(rng, folder, cache, most):
    """A random decoder with its cache as state, and without. Its logits are most of its work, so that few variants are made."""
    model = random_decoders.make(rng, layers=int(rng.integers(1, 3)), groups=int(rng.integers(1, 3)), words=4001, cache=cache)
    dims = {"batch": (1, 2), "tokens": (1, 3), "past": (0, most), "kv": "past+tokens"}
    for name, states in (("state", "auto"), ("plain", None)):
        kiln.compile(model, dims=dims, output=folder / f"{name}.so", cache=False, **({"states": states} if states else {}))
    return kiln.load(folder / "state.so"), kiln.load(folder / "plain.so")


@pytest.mark.parametrize("cache", ("f32", "f16", "i8"))
def test_tokens_with_state_are_those_without(cache, tmp_path):
    """Over 200 steps, of chunks and of single tokens; with runs between that fail, or whose result the caller takes."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    with_state, plain = decoder_pair(rng, tmp_path, cache, 240)
    session = with_state.session()
    for batch in (2, 1):
        past = [np.zeros((batch, p.shape[1], 0, p.shape[3]), CACHES[cache]) for p in plain.inputs[1:]]
        ids, session_of_before = rng.integers(4001, size=(batch, 3)), None
        session.reset()
        while past[0].shape[2] + ids.shape[1] <= 240:
            want, *present = plain(ids, *past)
            if rng.integers(8) == 0:
                with pytest.raises(kiln.BadInput, match="must lie in"):
                    session(np.full((batch, int(rng.integers(1, 4))), 4001))
            got = session(ids)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
            if rng.integers(50) == 0:
                session_of_before, session = session, session.fork()
            ids = want[:, -1:].argmax(-1) if rng.integers(6) else rng.integers(4001, size=(batch, int(rng.integers(1, 4))))
            past = present
        for name, value in zip(session.states, past):
            assert_same_cache(session.state(name), value)
        assert session_of_before is None or session_of_before.state(session.states[0]).shape[2] < 240


def assert_same_cache(got, want):
    if want.dtype == np.int8:
        assert np.abs(got.astype(int) - want).max() <= 1
    else:
        np.testing.assert_allclose(got.astype("f"), want.astype("f"), rtol=2e-3, atol=2e-3 if want.dtype == np.float16 else 1e-4)


FORMS = {  # caches that grow along other axes, with what is read of them
    "outermost": (18, """g (float[p,4] past_0, float[t,4] x) => (float[kv,4] present_0, float[1,4] y)
 <int64[1] ax={0}> { present_0=Concat<axis=0>(past_0,x) y=ReduceSum<keepdims=1>(present_0,ax) }"""),
    "innermost": (18, """g (float[b,4,p] past_0, float[b,4,t] x) => (float[b,4,kv] present_0, float[b,4,1] y)
 <int64[1] ax={2}> { present_0=Concat<axis=-1>(past_0,x) y=ReduceSum<keepdims=1>(present_0,ax) }"""),
    "maximum": (18, """g (float[b,p,3,4] past_0, float[b,t,3,4] x) => (float[b,kv,3,4] present_0, float[b,1,3,4] y)
 <int64[1] ax={1}> { present_0=Concat<axis=1>(past_0,x) y=ReduceMax<keepdims=1>(present_0,ax) }"""),
    "both": (18, """g (float[b,p,4] past_0, float[b,t,4] x) => (float[b,kv,4] present_0, float[b,1,4] y)
 <int64[1] ax={1}> { h=Neg(x) present_0=Concat<axis=1>(past_0,h) z=ReduceSum<keepdims=1>(present_0,ax)
  w=ReduceSum<keepdims=1>(past_0,ax) y=Add(z,w) }"""),
    "attention": (23, """g (float[b,2,p,4] past_key, float[b,2,p,4] past_value, float[b,2,t,4] q, float[b,2,t,4] k, float[b,2,t,4] v)
 => (float[b,2,t,4] y, float[b,2,kv,4] present_key, float[b,2,kv,4] present_value)
 { y,present_key,present_value=Attention<is_causal=1>(q,k,v,,past_key,past_value) }"""),
}


@pytest.mark.parametrize("form", FORMS)
def test_caches_grow_along_any_axis(form, tmp_path):
    opset, text = FORMS[form]
    model = parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    dims = {"t": (1, 3), "p": (0, 40), "kv": "p+t", **({"b": (1, 2)} if "[b," in text else {})}
    for name, states in (("state", {"states": "auto"}), ("plain", {})):
        kiln.compile(model, dims=dims, output=tmp_path / f"{name}.so", cache=False, **states)
    session, plain, rng = kiln.load(tmp_path / "state.so").session(), kiln.load(tmp_path / "plain.so"), np.random.default_rng()

    def zeros(port, tokens):
        named = {"b": 2, "p": 0, "t": tokens}
        shape = next(v for v in model.graph.input if v.name == port.name).type.tensor_type.shape.dim
        return np.zeros([named[d.dim_param] if d.dim_param else d.dim_value for d in shape], "f")
    for _ in range(3):
        session.reset()
        past = {p.name: zeros(p, 1) for p in plain.inputs if p.name in session.states}
        for _ in range(13):
            tokens = int(rng.integers(1, 4))
            given = {p.name: rng.standard_normal(zeros(p, tokens).shape).astype("f") for p in session.inputs}
            want = dict(zip([p.name for p in plain.outputs], plain(**given, **past)))
            np.testing.assert_allclose(session(**given), want["y"], rtol=1e-5, atol=1e-4)
            past = {n: want[n.replace("past", "present")] for n in past}
        for name, value in past.items():
            np.testing.assert_array_equal(session.state(name), value)


def test_a_step_makes_no_copy_of_a_cache():
    """Keys and values are read where they are: no variant has memory between its kernels for as many as there are."""
    model = random_decoders.make(np.random.default_rng(), layers=1, groups=4, heads=4, dim=32)
    dims = {"batch": 1, "tokens": (1, 2), "past": (0, 2047), "kv": "past+tokens"}
    plans = kiln.compile(model, states="auto", dims=dims, cache=False, dump="plan").dumps["plan"]
    arenas = [int(n) for n in re.findall(r"^arena (\d+) bytes", plans, re.M)]
    assert arenas and max(arenas) < 4 * 4 * 2048 * 32 / 4
