# SPDX-License-Identifier: Apache-2.0
"""States that a step updates where they are: of each kind of update, random steps beside the module without state, and the plan's count of
states that are stored over their inputs."""
import os
import re

import kiln
import numpy as np
import pytest
from kiln import _arrays
from onnx.parser import parse_model

READ = "p=Transpose<perm=[0,2,1]>(present) y=MatMul(q,p)"
BOTH = "float[2,1,3] q, float[2,2,3] x, float[2,16,3] past) => (float[2,1,16] y, float[2,16,3] present)"
ROWS = BOTH.replace("[2,", "[b,")
# Of each: the opset, the graph, the least and the end of its indices, and its states.
FORMS = {
    "tensor_scatter": (24, f"(int64[2] at, {BOTH} {{ present=TensorScatter<axis=1>(past,x,at) {READ} }}", (0, 15)),
    "tensor_scatter_ranged": (24, f"(int64[b] at, {ROWS} {{ present=TensorScatter<axis=1>(past,x,at) {READ} }}", (0, 15)),
    "ring": (24, f'(int64[2] at, {BOTH} {{ present=TensorScatter<axis=1,mode="circular">(past,x,at) {READ} }}', (0, 99)),
    "ring_ranged": (24, f'(int64[b] at, {ROWS} {{ present=TensorScatter<axis=1,mode="circular">(past,x,at) {READ} }}', (0, 99)),
    "scatter_nd": (18, f"(int64[2,2,2] at, {BOTH} {{ present=ScatterND(past,at,x) {READ} }}", (-2, 2)),
    "scatter_elements": (18, f"(int64[2,2,3] at, {BOTH} {{ present=ScatterElements<axis=1>(past,at,x) {READ} }}", (-16, 16)),
    "codes": (24, """(int64[2] at, float[2,1,3] q, float[2,2,3] x, int8[2,16,3] past) => (float[2,1,16] y, int8[2,16,3] present)
      <float s={0.05}, int8 z={3}> { c=QuantizeLinear(x,s,z) present=TensorScatter<axis=1>(past,c,at) f=DequantizeLinear(present,s,z)
      p=Transpose<perm=[0,2,1]>(f) y=MatMul(q,p) }""", (0, 15)),
    "f8": (24, """(int64[2] at, float[2,1,3] q, float[2,2,3] x, float8e4m3fn[2,16,3] past)
      => (float[2,1,16] y, float8e4m3fn[2,16,3] present)
      <float s={0.5}> { c=Cast<to=17>(x) present=TensorScatter<axis=1>(past,c,at) f=Cast<to=1>(present)
      p=Transpose<perm=[0,2,1]>(f) y=MatMul(q,p) }""", (0, 15)),
    "pool": (20, """(int64[2,2] at, int64[2,8] slots, float[2,3,1] q, float[2,3] x, float[3,4,3] past)
      => (float[2,8,1] y, float[3,4,3] present) <int64[2] flat={-1,3}> {
      f=Reshape(past,flat) r=Gather<axis=0>(f,slots) y=MatMul(r,q) present=ScatterND(past,at,x) }""", (0, 3)),
    "pool_own": (20, """(int64[2,2,2] at, int64[2,8] slots, float[2,3,1] q, float[2,2,8] x, float[3,4,3] past)
      => (float[2,8,1] y, float[3,4,3] present) <int64[2] flat={-1,3}> {
      f=Reshape(past,flat) r=Gather<axis=0>(f,slots) y=MatMul(r,q) u=MatMul(x,r) present=ScatterND(past,at,u) }""", (0, 3)),
    "where": (18, """(int64[1] at, float[2,1,3] q, float[2,1,3] x, float[2,16,3] past) => (float[2,1,16] y, float[2,16,3] present)
      <int64 a={0}, int64 b={16}, int64 c={1}, int64[3] sh={1,16,1}> { r=Range(a,b,c) m=Equal(r,at) m3=Reshape(m,sh)
      present=Where(m3,x,past) p=Transpose<perm=[0,2,1]>(present) y=MatMul(q,p) }""", (-2, 18)),
    "where_ranged": (18, """(int64[b,1,1] at, float[b,1,3] q, float[b,1,3] x, float[b,16,3] past)
      => (float[b,1,16] y, float[b,16,3] present) <int64 a={0}, int64 e={16}, int64 c={1}, int64[3] sh={1,16,1}> { r=Range(a,e,c)
      r3=Reshape(r,sh) m=Equal(r3,at) present=Where(m,x,past) p=Transpose<perm=[0,2,1]>(present) y=MatMul(q,p) }""", (-2, 18)),
    "where_between": (18, """(int64[2] at, float[2,1,3] q, float[2,1,3] x, float[2,16,3] past)
      => (float[2,1,16] y, float[2,16,3] present)
      <int64 a={0}, int64 b={16}, int64 c={1}, int64 d={3}, int64[3] sh={1,16,1}, int64[3] each={2,1,1}> { r=Range(a,b,c)
      r3=Reshape(r,sh) f=Reshape(at,each) e=Add(f,d) g=GreaterOrEqual(r3,f) l=Less(r3,e) m=And(g,l)
      present=Where(m,x,past) p=Transpose<perm=[0,2,1]>(present) y=MatMul(q,p) }""", (-4, 18)),
    "slices": (18, """(float[2,1,3] q, float[2,4,3] x, float[2,16,3] past) => (float[2,1,16] y, float[2,16,3] present)
      <int64[1] a={0}, int64[1] b={5}, int64[1] c={9}, int64[1] d={16}, int64[1] ax={1}> { h=Slice(past,a,b,ax) t=Slice(past,c,d,ax)
      present=Concat<axis=1>(h,x,t) p=Transpose<perm=[0,2,1]>(present) y=MatMul(q,p) }""", (0, 1)),
}
COPIED = {  # whose old elements are combined with, read beside the new ones, or are results themselves
    "scatter_add": (18, f'(int64[2,2,3] at, {BOTH} {{ present=ScatterElements<axis=1,reduction="add">(past,at,x) {READ} }}', (-16, 16)),
    "scatter_max": (18, f'(int64[2,2,2] at, {BOTH} {{ present=ScatterND<reduction="max">(past,at,x) {READ} }}', (-2, 2)),
    "both": (18, f"""(int64[2,2,2] at, {BOTH} {{ present=ScatterND(past,at,x) b=Add(past,present) p=Transpose<perm=[0,2,1]>(b)
      y=MatMul(q,p) }}""", (-2, 2)),
    "given_back": (18, f"""(int64[2,2,2] at, {BOTH.replace('present)', 'present, float[2,16,3] old)')}
      {{ old=Identity(past) present=ScatterND(past,at,x) {READ} }}""", (-2, 2)),
    "own": (18, f"""(int64[2,2,2] at, {BOTH} <int64[1] a={{0}}, int64[1] b={{2}}, int64[1] ax={{1}}>
      {{ h=Slice(past,a,b,ax) u=Add(x,h) present=ScatterND(past,at,u) {READ} }}""", (-2, 2)),
}


def compiled(opset, text):
    model = parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\ng {text}')
    dims = {"dims": {"b": (1, 3)}} if "[b" in text else {}
    module = kiln.compile(model, states="auto", cache=False, dump="plan", **dims)
    return module, kiln.compile(model, cache=False, **dims)


def in_place(module):
    plans = module.dumps["plan"]
    states = re.findall(r"state: output (\d+) is the next run's input (\d+)", plans)
    copies = sum(plans.count(f"copy to output {o}: input {i}:") for o, i in set(states))
    assert states and copies in (0, len(states))
    return copies > 0


def random_input(rng, port, batch, ends):
    shape = [n if isinstance(n, int) and n >= 0 else batch for n in port.shape]
    if port.name == "slots":
        return rng.integers(0, 12, size=shape)
    if port.dtype == "i64":
        return rng.integers(*ends, size=shape)
    return rng.standard_normal(shape).astype("f")


def expect_same(got, want):
    if want.dtype == np.float32:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(np.asarray(got).view(np.uint8), np.asarray(want).view(np.uint8))


def steps(module, plain, ends):
    """Random steps: on the state, on a tensor in its place, with the result given away, and of the module itself."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng, session = np.random.default_rng(seed), module.session()
    names, past = [p.name for p in plain.outputs], None
    port = next(p for p in plain.inputs if p.name == "past")
    for i in range(40):
        if i % 20 == 0:
            session.reset()
            batch = int(rng.integers(1, 4))
            past = np.zeros([n if isinstance(n, int) and n >= 0 else batch for n in port.shape], _arrays.numpy_dtype(port.dtype))
        given = {p.name: random_input(rng, p, batch, ends) for p in session.inputs}
        if rng.integers(4) == 0:
            past = plain(**given, past=past)[names.index("present")]
            before = past.copy()
            if rng.integers(2):
                for name, value in zip(names, module(**given, past=past)):
                    expect_same(value, plain(**given, past=past)[names.index(name)])
            got = session(**given, past=past)
            expect_same(past, before)
        else:
            got = session(**given)
        want = dict(zip(names, plain(**given, past=past)))
        for name, value in zip([p.name for p in session.outputs], got if isinstance(got, (list, tuple)) else [got]):
            expect_same(value, want[name])
        past = want["present"]
        expect_same(session.state("past"), past)
        if rng.integers(8) == 0:
            other, session = session, session.fork()
            other(**given)
            expect_same(session.state("past"), past)


@pytest.mark.parametrize("form", FORMS)
def test_updates_are_stored_in_place(form):
    opset, text, ends = FORMS[form]
    module, plain = compiled(opset, text)
    assert in_place(module)
    steps(module, plain, ends)


@pytest.mark.parametrize("form", COPIED)
def test_old_elements_that_are_read_are_kept(form):
    opset, text, ends = COPIED[form]
    module, plain = compiled(opset, text)
    assert not in_place(module)
    steps(module, plain, ends)


def test_a_caller_may_give_one_tensor_for_both():
    module, plain = compiled(*FORMS["ring"][:2])
    rng = np.random.default_rng()
    past = rng.standard_normal((2, 16, 3)).astype("f")
    given = {"at": np.array([3, 15]), "q": rng.standard_normal((2, 1, 3)).astype("f"), "x": rng.standard_normal((2, 2, 3)).astype("f")}
    want = plain(**given, past=past)
    y = np.empty_like(want[0])
    module(**given, past=past, out=[y, past])
    expect_same(y, want[0])
    expect_same(past, want[1])
    with pytest.raises(kiln.BadInput, match="must not overlap"):
        plain(**given, past=past, out=[y, past])


def random_update(rng):
    """A graph that replaces a band of one or two axes, its ends data, the band told by comparisons in any form; and whether it is narrow."""
    shape, lines, inits, narrow = [2, 12, 10], [], [], False
    seen = None
    for axis in rng.permutation(3)[: rng.integers(1, 3)]:
        n = shape[axis]
        width = int(rng.integers(1, n + 1))
        narrow |= width <= n // 2
        last = ",".join(str(n if i == axis else 1) for i in range(3))
        inits += [f"int64 b{axis}={{{n}}}", f"int64[3] s{axis}={{{last}}}", f"int64 w{axis}={{{width}}}", f"int64 l{axis}={{{width - 1}}}",
                  f"int64[1] k{axis}={{{axis}}}"]
        lines += [f"r{axis}=Range(zero,b{axis},one)", f"p{axis}=Reshape(r{axis},s{axis})", f"f{axis}=Gather(at,k{axis})"]
        low, high = (str(rng.choice(x)) for x in ((f"GreaterOrEqual(p{axis},f{axis})", f"LessOrEqual(f{axis},p{axis})"),
                                                   (f"Less(p{axis},e{axis})", f"Greater(e{axis},p{axis})")))
        lines += [f"e{axis}=Add(f{axis},w{axis})", f"g{axis}={low}", f"h{axis}={high}"]
        if rng.integers(2):
            lines.append(f"m{axis}=And(g{axis},h{axis})")
        else:
            lines += [f"ng{axis}=Not(g{axis})", f"nh{axis}=Not(h{axis})", f"o{axis}=Or(nh{axis},ng{axis})", f"m{axis}=Not(o{axis})"]
        lines.append(f"seen{axis}={f'And({seen},m{axis})' if seen else f'Identity(m{axis})'}")
        seen = f"seen{axis}"
    if rng.integers(2):
        lines.append(f"present=Where({seen},x,past)")
    else:
        lines += [f"other=Not({seen})", "present=Where(other,past,x)"]
    kind = str(rng.choice(["float", "int8"]))
    inits += ["int64 zero={0}", "int64 one={1}"]
    given = "float[2,12,10] v" if kind == "int8" else "float[2,12,10] x"
    front = "c=Round(v) x=Cast<to=3>(c) " if kind == "int8" else ""
    text = f"""(int64[3] at, {given}, {kind}[2,12,10] past) => (float[2,1,10] y, {kind}[2,12,10] present) <{', '.join(inits)}, int64[1] ax={{1}}> {{
      {front}{' '.join(lines)} f=Cast<to=1>(present) y=ReduceSum<keepdims=1>(f,ax) }}"""
    return text, narrow


def test_random_bands_are_stored_in_place():
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    rng = np.random.default_rng(seed)
    for _ in range(6):
        text, narrow = random_update(rng)
        print(text)
        module, plain = compiled(18, text)
        assert in_place(module) == narrow
        steps(module, plain, (-6, 14))
