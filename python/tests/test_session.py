# SPDX-License-Identifier: Apache-2.0
"""Sessions with state: recurrences, growing caches, forks, files, wrong use."""
import kiln
import numpy as np
import pytest
from onnx.parser import parse_model

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
CELL = HEAD + """g (float[2,3] x, float[2,4] h, float[3,4] w, float[4,4] u) => (float[2,4] hn, float[2,4] y) {
 a=MatMul(x,w) b=MatMul(h,u) c=Add(a,b) hn=Tanh(c) y=Exp(hn) }"""
CACHE = HEAD + """g (float[b,3,p,4] past_0, float[b,3,t,4] x) => (float[b,3,kv,4] present_0, float[b,3,t,4] y)
<int64[1] ax={2}> { present_0=Concat<axis=2>(past_0,x) s=ReduceSum<keepdims=1>(present_0,ax) y=Add(x,s) }"""


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
