#!/usr/bin/env python3
"""Compares what the run decides with ONNX Runtime, on random operands of fresh seeds: axes and steps of Slice, sizes of Resize, lengths
of sequences, recurrences of many steps, and loops whose count or condition the run gives, in f32 and in halves.

usage: run_operands.py LIBRARIES [SEED]     in the Python environment of `make test`; LIBRARIES: the build's folder
"""
import pathlib
import sys
import tempfile
import time

from given_shapes import HEAD, kiln, np, onnxruntime, parse_model  # after its path is set
import ml_dtypes  # onnx needs it
from onnx import TensorProto, helper

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
f = np.float32
wrong = []


def compare(name, got, want, rtol=1e-4, atol=1e-5):
    for x, y in zip(map(np.asarray, got), map(np.asarray, want)):
        if x.shape != y.shape or not np.allclose(x.astype(f), y.astype(f), rtol, atol):
            worst = np.abs(x.astype(f) - y.astype(f)).max() if x.shape == y.shape and x.size else ""
            wrong.append(f"{name} (seed {SEED}): of shape {y.shape}, got {x.shape} {worst}")


class Checked:
    """A model compiled once, and ONNX Runtime's session of it."""

    def __init__(self, folder, name, model, **options):
        path = folder / f"{name}.onnx"
        path.write_bytes(model if isinstance(model, bytes) else parse_model(HEAD + model).SerializeToString())
        self.name, self.path = name, path
        self.module = kiln.compile(path, **options)
        self.session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def want(self, **feed):
        return self.session.run(None, feed)

    def check(self, **feed):
        compare(self.name, self.module.run(**feed), self.want(**feed))

    def fails(self, words, **feed):
        try:
            self.module.run(**feed)
            wrong.append(f"{self.name} (seed {SEED}): must fail with {words!r}")
        except kiln.Error as error:
            if words not in str(error):
                wrong.append(f"{self.name} (seed {SEED}): must fail with {words!r}, got {error}")


def check_slices(folder, rng):
    shape, n = tuple(rng.randint(1, 9, 3)), rng.randint(1, 4)
    c = Checked(folder, "slice", f"g (float[{','.join(map(str, shape))}] x, int64[{n}] s, int64[{n}] e, int64[{n}] a, int64[{n}] d) => (float[p,q,r] y) {{ y=Slice(x,s,e,a,d) }}")
    for _ in range(20):
        axes = rng.permutation(3)[:n] - 3 * rng.randint(0, 2, n)
        steps = rng.choice([-(1 << 40), -3, -2, -1, 1, 2, 3, 1 << 40], n)
        ends = np.where(rng.rand(n) < 0.2, rng.choice([-(1 << 62), 1 << 62], n), rng.randint(-12, 12, n))
        c.check(x=rng.rand(*shape).astype(f), s=rng.randint(-12, 12, n), e=ends, a=axes, d=steps)
    one, x = np.ones(n, int), rng.rand(*shape).astype(f)
    c.fails("a: must lie in [-3, 3)", x=x, s=0 * one, e=one, a=3 + 0 * one, d=one)
    c.fails("d: must lie in [1", x=x, s=0 * one, e=one, a=np.arange(n), d=0 * one)


def check_resize(folder, rng):
    mode = rng.choice(["nearest", "linear", "cubic"])
    coords = rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    b, ch, h, w = rng.randint(1, 3), rng.randint(1, 5), rng.randint(2, 9), rng.randint(2, 9)
    c = Checked(folder, "resize", f"""g (float[{b},{ch},{h},{w}] x, int64[4] s) => (float[p,q,r,t] y) {{
      y=Resize<mode="{mode}", coordinate_transformation_mode="{coords}", nearest_mode="floor">(x,"","",s) }}""", threads=1)
    x = rng.randn(b, ch, h, w).astype(f)
    for _ in range(3):
        c.check(x=x, s=np.array([b, ch, *rng.randint(1, 24, 2)]))
    c.fails("sizes", x=x, s=np.array([b + 1, ch, 4, 4]))


def recurrent(op, n, batch, wide, hidden, direction, has_lens, rng):
    gates, dirs = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], 2 if direction == "bidirectional" else 1
    names = ["x", "w", "r", "b"] + (["lens"] if has_lens else [])
    outs = ["y", "h"] + (["c"] if op == "LSTM" else [])
    attrs = {"linear_before_reset": int(rng.randint(2))} if op == "GRU" else {}
    node = helper.make_node(op, names, outs, hidden_size=hidden, direction=direction, **attrs)
    weights = {"w": (dirs, gates * hidden, wide), "r": (dirs, gates * hidden, hidden), "b": (dirs, 2 * gates * hidden)}
    info, value = TensorProto.FLOAT, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node], "g", [value("x", info, [n, batch, wide])] + ([value("lens", TensorProto.INT32, [batch])] if has_lens else []),
        [value(o, info, None) for o in outs],
        [helper.make_tensor(k, info, s, (0.4 * rng.randn(*s)).astype(f).ravel()) for k, s in weights.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check_recurrences(folder, rng):
    for op in ("LSTM", "GRU", "RNN"):
        direction = rng.choice(["forward", "reverse", "bidirectional"])
        n, batch, wide, hidden = 4097 + rng.randint(0, 50), rng.randint(1, 3), rng.randint(1, 5), rng.randint(1, 7)
        has_lens = bool(rng.randint(2))
        c = Checked(folder, f"{op}_{direction}_{n}", recurrent(op, n, batch, wide, hidden, direction, has_lens, rng), threads=1)
        feed = {"x": rng.randn(n, batch, wide).astype(f)}
        if has_lens:
            feed["lens"] = rng.randint(1, n + 1, batch).astype(np.int32)
        compare(c.name, c.module.run(**feed), c.want(**feed), 1e-3, 1e-4)
        compare(c.name + " by the interpreter", c.module.reference(**feed), c.want(**feed), 1e-3, 1e-4)


def check_ranged(folder, rng):
    """One module for all numbers of steps in a range."""
    for op in ("LSTM", "GRU", "RNN"):
        direction = rng.choice(["forward", "reverse", "bidirectional"])
        least, wide, hidden, has_lens = rng.randint(0, 3), rng.randint(1, 4), rng.randint(1, 5), bool(rng.randint(2))
        c = Checked(folder, f"ranged_{op}_{direction}", recurrent(op, "s", 2, wide, hidden, direction, has_lens, rng),
                    threads=1, dims={"s": (int(least), 9)}, output=folder / f"{op}.so")  # fmt: skip
        for n in (max(least, 1), 2, 5, 9):
            feed = {"x": rng.randn(n, 2, wide).astype(f)}
            if has_lens:
                feed["lens"] = rng.randint(1, n + 1, 2).astype(np.int32)
            c.check(**feed)


def check_lengths(folder, rng):
    """A length is at least 0 and at most the steps, whatever is given: ONNX Runtime refuses others."""
    for op in ("LSTM", "GRU", "RNN"):
        n, batch = rng.randint(2, 6), 4
        c = Checked(folder, f"lengths_{op}", recurrent(op, n, batch, 2, 3, "forward", True, rng), threads=1)
        x, lens = rng.randn(n, batch, 2).astype(f), np.array([n + 5, 0, -7, n - 1], np.int32)
        got = c.module.run(x=x, lens=lens)
        held = c.want(x=x, lens=np.array([n, 1, 1, n - 1], np.int32))
        for g, h in zip(got, held):
            g, h = np.asarray(g), h.copy()
            h[..., 1:3, :] = 0  # no step: the initial state
            compare(c.name, [g], [h])


def check_halves(folder, rng):
    for dtype, kind, rtol in (("f16", np.float16, 2e-2), ("bf16", ml_dtypes.bfloat16, 1e-1)):
        c = Checked(folder, f"loop_{dtype}", """g (int64 n, float[16,16] x, float[16,16] w) => (float[16,16] y, float[k,16,16] rows) <bool t={1}> {
          y, rows = Loop(n, t, x)<body = b (int64 i, bool ci, float[16,16] s) => (bool co, float[16,16] so, float[16,16] ro) {
          co = Identity(ci) m = MatMul(s, w) so = Tanh(m) ro = Add(so, x) }> }""", dtype=dtype, threads=1)
        feed = {"x": rng.randn(16, 16).astype(f), "w": (0.2 * rng.randn(16, 16)).astype(f)}
        for n in (0, 1, 5):
            given = {k: v.astype(kind) for k, v in feed.items()}
            got = [np.asarray(y).astype(f) for y in c.module.run(n=np.asarray(n), **given)]
            compare(c.name, got, c.want(n=np.asarray(n), **feed), rtol, rtol)


def main():
    rng = np.random.RandomState(SEED)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for check in (check_slices, check_resize, check_recurrences, check_ranged, check_lengths, check_halves):
            begin = time.time()
            check(folder, rng)
            print(f"{check.__name__}: {time.time() - begin:.1f} s")
    print("\n".join(wrong) or f"what the run decides is right (seed {SEED})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
