# SPDX-License-Identifier: Apache-2.0
"""Definitions called with tensors, and their derivatives against differences."""
import kiln
import numpy as np
import pytest
from kiln import gradient

MATMUL = "def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
# name: definition, shapes (of ints, where "i")
CASES = {
    "product and map": (
        """def mm(float(M, K) A, float(K, N) B) -> (C) {
           T(m, n) +=! A(m, k) * B(k, n)  C(m, n) = T(m, n) / (1 + exp(-1.702 * T(m, n))) }""",
        [(5, 4), (4, 6)],
    ),
    "strided convolution": (
        """def conv(float(N, C, H, W) I, float(M, C, KH, KW) K) -> (O) {
           O(n, m, h, w) +=! I(n, c, 2 * h + kh, w + kw) * K(m, c, kh, kw) }""",
        [(2, 3, 9, 6), (4, 3, 3, 2)],
    ),
    "softmax": (
        """def softmax(float(N, D) X) -> (Y) {
           M(n) max=! X(n, r_d)  E(n, d) = exp(X(n, d) - M(n))  S(n) +=! E(n, r_d)  Y(n, d) = E(n, d) / S(n) }""",
        [(3, 7)],
    ),
    "embedding": ("def emb(float(V, D) E, int32(N) I) -> (Y) { Y(n, d) = E(I(n), d) }", [(6, 3), "i5"]),
    "padding": (
        """def pad(float(N) X, float(K) W) -> (Y) {
           Y(i) +=! (i + k - 1 < 0 || i + k - 1 >= N) ? 0 : X(i + k - 1) * W(k) where i in 0:N, k in 0:K }""",
        [(8,), (3,)],
    ),
    "sum to a scalar": ("def s(float(N, M) X) -> (Y) { Y +=! X(n, m) * X(n, m) }", [(3, 4)]),
    "diagonal and row": ("def s(float(N, N) X) -> (Y) { Y(i) = X(i, i) * 2 + X(0, i) }", [(4, 4)]),
    "functions": (
        """def f(float(N) X) -> (Y) {
           Y(n) = tanh(X(n)) + sqrt(1 + X(n) * X(n)) - erf(X(n)) / 2 + max(X(n), 0) + pow(X(n), 3)
                + (X(n) > 0.5 ? sin(X(n)) : cos(X(n))) + abs(X(n)) + log(2 + X(n) * X(n)) }""",
        [(9,)],
    ),
    "a bias that is broadcast": (
        "def f(float(N, M) X, float(M) B, float S) -> (Y) { Y(n, m) = X(n, m) * S + B(m) }",
        [(3, 4), (4,), ()],
    ),
}


def test_sizes_are_those_of_the_tensors():
    mm = kiln.tc(MATMUL, threads=1, cache=False)
    for m, k, n in ((3, 4, 5), (8, 2, 3), (3, 4, 5)):
        a, b = np.ones((m, k), np.float32), np.full((k, n), 2, np.float32)
        np.testing.assert_array_equal(mm(a, b), np.full((m, n), 2 * k))
        np.testing.assert_array_equal(mm(B=b, A=a), np.full((m, n), 2 * k))
    assert mm.inputs == ["A", "B"] and mm.outputs == ["C"]
    assert mm.compile(M=3, K=4, N=5).outputs[0].shape == (3, 5)
    assert len({id(m) for m in mm._modules.values()}) == 2
    with pytest.raises(kiln.BadInput, match="K must be 4 as before, got 3"):
        mm(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32))


def test_a_mistake_is_told_with_its_place():
    with pytest.raises(kiln.BadInput) as caught:
        kiln.tc("def f(float(N) X) -> (Y) {\n  Y(n) = X(n) + Z(n) }", cache=False)
    assert caught.value.messages[0].line_column[0] == 2


@pytest.mark.parametrize("name", CASES)
def test_derived_gradients_are_those_of_differences(name):
    text, shapes = CASES[name]
    rng = np.random.default_rng(3)
    d = kiln.tc(text, threads=1, cache=False)
    xs = [
        rng.integers(0, 6, int(s[1:])).astype(np.int32) if isinstance(s, str) else
        rng.standard_normal(s).astype(np.float32).reshape(s)
        for s in shapes
    ]
    up = rng.standard_normal(np.shape(d(*xs))).astype(np.float32).reshape(np.shape(d(*xs)))
    found = d.gradient.module_for(*xs, up).run(*xs, up)
    floats = [x for x in xs if x.dtype == np.float32]
    assert len(found) == len(floats)
    for x, got in zip(floats, found):
        want = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            old, step = x[at], np.float32(1e-2)
            x[at] = old + step
            more = d(*xs).astype(np.float64)
            x[at] = old - step
            less = d(*xs).astype(np.float64)
            x[at] = old
            want[at] = ((more - less) * up).sum() / (2 * step)
        assert np.abs(want - got).max() <= 1e-2 * np.abs(want).max() + 1e-3


def test_a_gradient_is_the_users_where_given():
    own = "def g(float(N) X, float(N) D) -> (E) { E(n) = 5 * D(n) + 0 * X(n) }"
    d = kiln.tc("def f(float(N) X) -> (Y) { Y(n) = tgamma(X(n)) }", grad=own, cache=False)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(d.gradient(x, x), [5, 5, 5])


@pytest.mark.parametrize(
    "text, why",
    [
        ("def f(float(N) X) -> (Y) { Y(n) = tgamma(X(n)) }", "that of tgamma is not known"),
        ("def f(float(N) X) -> (Y) { Y *=! X(n) }", "written by '\\*=!'"),
        ("def f(T(n...) X) -> (Y) { Y(n...) = X(n...) }", "gradient: "),
        ("def f(float(N) X) -> (Y) { Y(n) = 0 where n in 0:N  Y(n) = X(n) }", "several statements"),
    ],
)
def test_what_cannot_be_derived_is_refused_with_the_reason(text, why):
    with pytest.raises(kiln.Unsupported, match=why):
        gradient.derive(text)
