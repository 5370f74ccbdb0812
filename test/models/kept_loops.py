#!/usr/bin/env python3
"""Checks what commands and calls do with loops of many iterations, which a module's plan keeps: random loops against ONNX Runtime, by a
module, the interpreter and a static library, with each kernel verified; and which loops are unrolled instead.

usage: kept_loops.py LIBRARIES [SEED]     in the Python environment of `make test`; LIBRARIES: the build's folder
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import time

from given_shapes import HEAD, kiln, np, onnxruntime, parse_model  # after its path is set

SEED = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
UNARY = ["Tanh", "Sin", "Neg", "Sigmoid", "Abs"]
BINARY = ["Add", "Mul", "Sub", "Max", "Min"]
ROW = "float[2,3]"
wrong = []


def expect(holds, name, words):
    if not holds:
        wrong.append(f"{name} (seed {SEED}): {words}")


def random_loop(rng):
    """A loop of known length over random states and rows; a value is bounded by Tanh before it is a state again."""
    n_states, n_rows, lines = rng.randint(1, 4), rng.randint(0, 3), []
    states = [f"s{k}" for k in range(n_states)]
    made = [*states, "x", "w"]
    for k in range(rng.randint(2, 7)):
        op = rng.choice(UNARY + BINARY)
        lines.append(f"v{k} = {op}({', '.join(rng.choice(made, 2 if op in BINARY else 1))})")
        made.append(f"v{k}")
    lines += [f"o{k} = Tanh({rng.choice(made)})" for k in range(n_states)]
    lines += [f"r{k} = Sin({rng.choice(made)})" for k in range(n_rows)]
    results = ["bool co"] + [f"{ROW} o{k}" for k in range(n_states)] + [f"{ROW} r{k}" for k in range(n_rows)]
    n = (1024 // len(lines) + 1) + rng.randint(0, 40)  # more are not unrolled
    ports = [f"{ROW} a{k}" for k in range(n_states)] + [f"float[{n},2,3] b{k}" for k in range(n_rows)]
    names = [f"a{k}" for k in range(n_states)] + [f"b{k}" for k in range(n_rows)]
    body = f"b (int64 i, bool ci, {', '.join(f'{ROW} {s}' for s in states)}) => ({', '.join(results)})"
    begin = ", ".join(rng.choice(["x", "w"], n_states))
    return (f"g ({ROW} x, {ROW} w) => ({', '.join(ports)}) <bool t={{1}}, int64 n={{{n}}}> {{ {', '.join(names)} = "
            f"Loop(n, t, {begin})<body = {body} {{ {' '.join(lines)} co = Identity(ci) }}> }}")  # fmt: skip


def near(got, want):
    return all(a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(map(np.asarray, got), want))


def run_tool(*args):
    done = subprocess.run([str(pathlib.Path(sys.argv[1]) / "kiln"), *args], capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


def check_commands(folder, name, text, rng):
    model = parse_model(HEAD + text)
    path, inputs = folder / f"{name}.onnx", {}
    path.write_bytes(model.SerializeToString())
    for port in model.graph.input:
        inputs[port.name] = rng.randn(*[d.dim_value for d in port.type.tensor_type.shape.dim]).astype(np.float32)
    want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    module = kiln.compile(path, output=folder / f"{name}.so")
    expect(near(kiln.load(folder / f"{name}.so").run(**inputs), want), name, "a module must give ONNX Runtime's results")
    here = kiln.compile(path)
    expect(near(here.run(**inputs), want), name, "a module in memory must give ONNX Runtime's results")
    expect(near(module.reference(**inputs), want), name, "the interpreter must give ONNX Runtime's results")
    verdicts = here.verify(seed=int(rng.randint(1 << 20)))
    expect(verdicts and all(v.passed for v in verdicts), name, f"kernels must be right, got {verdicts}")
    expect(any(v.kernel.startswith("part ") for v in verdicts), name, f"parts must be verified, got {verdicts}")
    expect("kernel" in here.explain(), name, "must be explained")
    seed = str(rng.randint(1000))
    for args in (("run", "--reference", "--seed", seed), ("run", "--reference", "--dtype", "f16", "--seed", seed),
                 ("run", "--reference", "--dtype", "bf16", "--seed", seed), ("bench", "--iterations", "2"), ("verify",),
                 ("explain",), ("compile", "--dump=schedule"), ("inspect",), ("compile", "-o", str(folder / f"{name}.a"))):  # fmt: skip
        code, said = run_tool(args[0], str(path), *args[1:])
        expect(code == 0, name, f"kiln {' '.join(args)} must succeed, got {said[-600:]}")


def check_result(folder, name, text, want=None, **inputs):
    model = parse_model(HEAD + text)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    if want is None:
        want = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, inputs)
    try:
        expect(near(kiln.compile(path).run(**inputs), want), name, "must give the results expected")
    except kiln.Error as error:
        expect(False, name, error)


def check_others(folder, rng):
    """Loops that are unrolled although they are long, or kept although they are short."""
    x, rows = rng.randn(4).astype(np.float32), rng.randn(600, 4).astype(np.float32)
    check_result(folder, "needs_iteration", """g (float[4] x, float[600,4] r) => (float[4] y) <bool t={1}, int64 n={600}> {
      q = SplitToSequence<axis=0, keepdims=0>(r) y = Loop(n, t, x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so) {
      co = Identity(ci) e = SequenceAt(q, i) so = Add(s, e) }> }""", x=x, r=rows)  # fmt: skip
    check_result(folder, "grows", """g (float[1] x) => (float[k] y) <bool t={1}, int64 n={600}, float[1] z={0.5}> {
      y = Loop(n, t, x)<body = b (int64 i, bool ci, float[k] s) => (bool co, float[j] so) {
      co = Identity(ci) so = Concat<axis=0>(s, z) }> }""", x=x[:1])  # fmt: skip
    for lim in (-1000, 0, 3, 1000):
        check_result(folder, "short_until", """g (float[4] x, float lim) => (float[4] y, float[k,4] rows) <bool t={1}, int64 n={7}, int64[1] ax={0}> {
          y, rows = Loop(n, t, x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] ro) {
          so = Add(s, x) m = ReduceSum<keepdims=0>(so, ax) co = Less(m, lim) ro = Exp(s) }> }""",
                     x=np.abs(x) / 8, lim=np.asarray(lim, np.float32))  # fmt: skip
    for n, cond in ((0, 1), (5, 0)):
        check_result(folder, "no_trips", f"""g (float[4] x) => (float[4] y, float[k,4] rows, float[4] z) <bool t={{{cond}}}, int64 n={{{n}}}> {{
          y, rows = Loop(n, t, x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] ro) {{
          co = Identity(ci) so = Add(s, x) ro = Exp(s) }}> e = ReduceSum<keepdims=0>(rows, a0) z = Add(y, e) }}""".replace(
            "<bool t", "<int64[1] a0={0}, bool t"), x=x)  # fmt: skip
    check_result(folder, "no_rows", """g (float[4] s, float[2,0,4] x) => (float[4] y, float[4,0] z) {
      y, z = Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], body = b (float[4] s0, float[2,4] row) => (float[4] so, float[4] zo) {
      m = ReduceSum<keepdims=0>(row, a0) so = Add(s0, m) zo = Tanh(so) }>(s, x) }""".replace("float[4,0] z) {", "float[4,0] z) <int64[1] a0={0}> {"),
                 [x, np.zeros((4, 0), np.float32)],  # ONNX Runtime divides by 0
                 s=x, x=np.zeros((2, 0, 4), np.float32))  # fmt: skip
    path = folder / "until.onnx"  # cannot be unrolled
    path.write_bytes(parse_model(HEAD + """g (float[4] x, float lim) => (float[4] y, float[k,4] rows) <bool t={1}, int64[1] ax={0}> {
      y, rows = Loop("", t, x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] ro) {
      so = Add(s, x) m = ReduceSum<keepdims=0>(so, ax) co = Less(m, lim) ro = Exp(s) }> }""").SerializeToString())
    for args, words in ((("explain",), ("step 0", "while", "part 0", "kernel k0")), (("explain", "--json", str(folder / "e")), ()),
                        (("compile", "--dump=prim,schedule,plan"), ("# part 1", "kernel k0", "while")),
                        (("run", "--reference", "--fill", "ones"), ())):  # fmt: skip
        code, said = run_tool(args[0], str(path), *args[1:])
        for word in words:
            expect(word in said, "until", f"kiln {' '.join(args)} must say {word!r}, got {said[-600:]}")
        expect(code == 0, "until", f"kiln {' '.join(args)} must succeed, got {said[-600:]}")
    explained = json.loads((folder / "e").read_text() if (folder / "e").exists() else "{}")
    expect(all("kernels" in part for part in explained.get("parts", [{}])), "until", f"parts must be explained, got {explained}")
    path = folder / "both_fail.onnx"
    path.write_bytes(parse_model(HEAD + """g (float[1] x) => (float[k] y) <bool t={1}, int64 n={5000}, float[1] z={0.5}> {
      y = Loop(n, t, x)<body = b (int64 i, bool ci, float[k] s) => (bool co, float[j] so) {
      co = Identity(ci) so = Concat<axis=0>(s, z) }> }""").SerializeToString())  # fmt: skip
    try:
        kiln.compile(path)
        expect(False, "both_fail", "must be refused")
    except kiln.Error as error:
        expect("state 0: must keep its type and shape" in str(error) and "at most 4096" in str(error), "both_fail", error)


def main():
    rng = np.random.RandomState(SEED)
    with tempfile.TemporaryDirectory() as name:
        for number in range(4):
            check_commands(pathlib.Path(name), f"random_{number}", random_loop(rng), rng)
        check_others(pathlib.Path(name), rng)
    print("\n".join(wrong) or f"the commands take loops that are kept (seed {SEED})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
