#!/usr/bin/env python3
"""Definitions in TC notation and schedules through the `kiln` command: every test below is a claim.

usage: tc.py KILN [-k SUBSTRING]
Needs the standard library only: the ONNX models are written here.
"""
import pathlib
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "error"))
from bad_input import field, model, node, npy, tensor, varint  # noqa: E402

MATMUL = """def matmul(float(M, K) A, float(K, N) B) -> (C) {
  C(m, n) +=! A(m, k) * B(k, n)
}
"""
TWO = """def scale(float(N) X) -> (Y) { Y(i) = 2 * X(i) }
def softmax(float(N, D) X) -> (Y) {
  T(n) max=! X(n, d)
  S(n) +=! exp(X(n, d) - T(n))
  Y(n, d) = exp(X(n, d) - T(n)) / S(n)
}
"""
WINDOW = "def window(float(H, W) X, float(KH, KW) F) -> (Y) { Y(h, w) +=! X(h + i, w + j) * F(i, j) }\n"
BLOCKED = """# as a person writes it
split C.m 8 guard C.mo C.mi
reorder C.mo C.k C.mi C.n
vectorize C.n
"""
HALVES = """def halves(float16(M, K) A, float16(K, N) B) -> (C) {
  C(m, n) +=! float(A(m, k)) * float(B(k, n))
}
"""
HOLES = "split C.m ?tile{4,8} guard C.mo C.mi\nreorder C.mo C.k C.mi C.n\n?{vectorize,unroll,tensorise} C.n\n"
SIZES = ["--size", "M=20", "--size", "K=30", "--size", "N=17"]


class Run:
    def __init__(self, kiln, folder):
        self.kiln, self.folder, self.wrong = kiln, folder, []

    def path(self, name, data=None):
        p = self.folder / name
        if data is not None:
            p.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(p)

    def __call__(self, *args, code=0):
        done = subprocess.run([self.kiln, *args], capture_output=True, text=True, timeout=120, cwd=self.folder)
        if done.returncode != code:
            raise AssertionError(f"kiln {' '.join(args)}: exit code must be {code}, got {done.returncode}:\n"
                                 f"{done.stdout[-800:]}{done.stderr[-800:]}")
        return done.stdout + done.stderr


def want(text, pattern):
    if not re.search(pattern, text):
        raise AssertionError(f"must match {pattern}, got:\n{text[-1500:]}")


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


# --- running

def test_a_definition_runs_with_given_inputs(run):
    file = run.path("mm.tc", MATMUL)
    a, b = run.path("a.npy", npy((2, 2), data=floats(1, 2, 3, 4))), run.path("b.npy", npy((2, 1), data=floats(5, 7)))
    c = run.path("c.npy", npy((2, 1), data=floats(19, 43)))
    out = run("tc", file, "--size=M=2", "--size=K=2", "--size=N=1", f"--input=A={a}", f"--input=B={b}", f"--expect=C={c}")
    want(out, r"C: f32\[2x1\] 19 43\nC: matches")


def test_the_entry_is_the_last_definition_unless_named(run):
    file = run.path("two.tc", TWO)
    want(run("tc", file, "--size=N=3", "--size=D=5", "--reference"), r"Y: f32\[3x5\].*\nY: matches")
    want(run("tc", file, "--size=N=3", "--entry=scale", "--fill=ones"), r"Y: f32\[3\] 2 2 2")
    want(run("tc", file, "--size=N=3", "--entry=relu", code=1), r"definition of the file \(scale, softmax\), got relu")


def test_missing_sizes_are_listed_with_what_to_add(run):
    file = run.path("mm.tc", MATMUL)
    want(run("tc", file, "--size=K=4", code=1), r"every size must be given.*'M', 'N': add --size M=64 --size N=64")


def test_a_compiled_definition_is_a_module(run):
    file = run.path("mm.tc", MATMUL)
    run("compile", file, *SIZES, "-o", run.path("mm.so"))
    want(run("run", run.path("mm.so")), r"C: f32\[20x17\]")
    want(run("inspect", file), r"definition +matmul, line 1: sizes M, K, N; inputs A, B; outputs C")
    want(run("bench", file, *SIZES, "--iterations=3"), r"latency +min [\d.]+  median [\d.]+")
    want(run("tc", file, *SIZES, "--bench", "--iterations=3"), r"latency +min [\d.]+  median [\d.]+")
    want(run("check", file, *SIZES), r"can be compiled")


# --- schedules

def test_a_script_schedules_the_whole_definition_by_its_own_index_names(run):
    file, script = run.path("mm.tc", MATMUL), run.path("blocked.sched", BLOCKED)
    want(run("tc", file, *SIZES, "--schedule", script, "--reference"), r"C: matches")
    want(run("tc", file, *SIZES, "--schedule", script, "--emit=loop"), r"for C.mo:3 \{\s+for C.k:30 \{\s+for C.mi:8")
    want(run("tc", file, *SIZES, "--schedule", run.path("naive.sched", ""), "--reference"), r"C: matches")


def test_no_rule_of_kilns_own_is_refused(run):
    file = run.path("scores.tc", "def scores(float(Q, D) X, float(K, D) Y) -> (S) { S(q, k) +=! X(q, d) * Y(k, d) }\n")
    for size in (17, 33, 65, 130):  # odd numbers of panels and of tiles: both nests fuse loops for the threads
        out = run("tc", file, f"--size=Q={size}", "--size=D=16", f"--size=K={size}", "--threads=2", "--emit=schedule")
        if "refused" in out:
            raise AssertionError(f"must be scheduled by the first rule that fits, got:\n{out}")
        want(run("tc", file, f"--size=Q={size}", "--size=D=16", f"--size=K={size}", "--threads=2", "--reference"), "S: matches")


def test_a_refused_line_is_named(run):
    file = run.path("mm.tc", MATMUL)
    script = run.path("wrong.sched", "# first\n\nsplit C.m 8 guard C.mo C.mi\nsplit C.q 8 guard a b\n")
    want(run("tc", file, *SIZES, "--schedule", script, code=1), r"schedule: line 4: ")
    script = run.path("wrong.sched", "# first\nkernel matmul\nparallel C.k\n")
    want(run("tc", file, *SIZES, "--schedule", script, code=1), r"schedule: line 3: ")


def two_kernels(run):
    weights = [tensor("w", (8, 8), floats(*(0.1 * i for i in range(64))))]
    nodes = [node("MatMul", ["x", "w"], ["h"], "product"), node("Softmax", ["h"], ["y"], "soft")]
    return run.path("two.onnx", model(nodes, [("x", (4, 8))], [("y", (4, 8))], weights))


def check_round_trip(run, *args, given=()):
    script = run.path("printed.sched", run("compile", *args, *given, "--dump=schedule"))
    run("compile", *args, *given, "-o", run.path("own.so"))
    run("compile", *args, "-o", run.path("again.so"), "--schedule", script)
    if (run.folder / "own.so").read_bytes() != (run.folder / "again.so").read_bytes():
        raise AssertionError("a printed schedule must give the same module")
    return pathlib.Path(script).read_text()


def test_printed_schedules_give_the_same_module(run):
    text = check_round_trip(run, two_kernels(run))
    if len(re.findall(r"^kernel \w+$", text, re.M)) < 2:
        raise AssertionError(f"must have a section a kernel, got:\n{text}")
    check_round_trip(run, run.path("two.tc", TWO), "--size=N=37", "--size=D=133")
    check_round_trip(run, run.path("mm.tc", MATMUL), *SIZES)
    whole = check_round_trip(run, run.path("mm.tc"), *SIZES, given=["--schedule", run.path("blocked.sched", BLOCKED)])
    want(whole, r"kernel matmul\n# 1 launches, 20400 flops, 5800 bytes\nsplit C.m 8 guard C.mo C.mi\n")
    weighted = pathlib.Path("build/models/mobilenet_v2_b1.onnx").resolve()
    if weighted.with_suffix(".weights").exists():
        check_round_trip(run, str(weighted))


def test_a_section_replaces_one_kernel(run):
    onnx = two_kernels(run)
    name = re.findall(r"^kernel (\w*contract\w*)$", run("compile", onnx, "--dump=schedule"), re.M)[0]
    script = run.path("plain.sched", f"kernel {name}\n")
    want(run("run", onnx, "--schedule", script, "--reference"), r"y: matches")
    want(run("verify", onnx, "--schedule", script), r"0 wrong")
    plain = run("compile", onnx, "--schedule", script, "--dump=loop")
    if plain == run("compile", onnx, "--dump=loop"):
        raise AssertionError("the section must replace the kernel's schedule")
    script = run.path("plain.sched", f"kernel {name}s\n")
    want(run("run", onnx, "--schedule", script, code=1), rf'schedule: line 1: .*got "{name}s": did you mean "{name}"')
    script = run.path("plain.sched", "vectorize y.i0\n")
    want(run("run", onnx, "--schedule", script, code=1), r"section: must begin with a line `kernel NAME`")


# --- code

def test_every_level_can_be_printed(run):
    file = run.path("mm.tc", MATMUL)
    levels = {"prim": r"C\(m:20, n:17 \| k:30\) \+=!", "loop": r"^kernel ", "schedule": r"^kernel ", "c": r"#include",
              "llvm": r"target triple", "asm": r"\.text"}
    for level, pattern in levels.items():
        want(run("tc", file, *SIZES, "--emit", level), pattern)
    run("tc", file, *SIZES, "--emit=c", "-o", run.path("mm.c"))
    want((run.folder / "mm.c").read_text(), r"#include <stdint.h>")
    run("tc", file, *SIZES, "--emit", ",".join(levels), "--dump-dir", run.path("dump"))
    for level, pattern in levels.items():
        want((run.folder / "dump" / f"{level}.txt").read_text(), pattern)
    want(run("tc", file, *SIZES, "--emit=c,asm", "-o", run.path("x"), code=2), r"-o: must be left out")


def test_code_for_other_machines_can_be_printed(run):
    file = run.path("mm.tc", MATMUL)
    want(run("tc", file, *SIZES, "--target=neon"), r"fmla|fmul")
    want(run("tc", file, *SIZES, "--target=avx2"), r"%ymm")
    want(run("tc", file, *SIZES, "--target=c"), r"#include")
    want(run("tc", file, *SIZES, "--target=hip:gfx90a"), r"__attribute__\(\(global, amdgpu_flat_work_group_size")
    want(run("tc", file, *SIZES, "--target=cuda:sm_80", "--emit=cuda"), r"__global__")
    want(run("compile", file, *SIZES, "--target=hip:gfx90a", "-o", run.path("x.kmod"), code=1), r"must be for this machine, another processor of x86-64 or a GPU of CUDA")
    want(run("tc", file, *SIZES, "--target=pdp11", code=2), r"name must be .*avx2, .*neon, got pdp11")


def test_the_simulator_computes_the_same_and_counts_bytes(run):
    file, script = run.path("mm.tc", MATMUL), run.path("blocked.sched", BLOCKED)
    out = run("tc", file, *SIZES, "--target=sim", "--reference")
    want(out, r"kernel k0_contract_matmul: 20400 flops, 5800 bytes at least\n(.*\n)*.*L1")
    want(out, r"C: matches")
    want(run("tc", file, *SIZES, "--target=sim:opencl", "--reference"), r"scope +shared .*\n(.*\n)*C: matches")
    halves = run.path("halves.tc", HALVES)
    for _ in range(2):  # the second time the cache knows the kernel, whose instructions run all the same
        want(run("tc", halves, "--size=M=32", "--size=K=32", "--size=N=32", "--target=sim:cuda:sm_80", "--reference"), r"C: matches")
        want(run("tc", halves, "--size=M=128", "--size=K=768", "--size=N=3072", "--target=cuda:sm_90a", "--emit=cuda"), r"wgmma")
    want(run("tc", file, *SIZES, "--target=sim:cuda:sm_1", code=2), r"a GPU must be opencl or one of cuda:sm_75")
    want(run("tc", file, *SIZES, "--target=sim", "--schedule", script, "--reference"), r"kernel matmul: (.*\n)*C: matches")
    want(run("tc", run.path("two.tc", TWO), "--size=N=9", "--size=D=33", "--target=sim", "--reference"), r"Y: matches")


# --- verification

def test_every_definition_of_a_file_is_verified_at_sizes_that_fit(run):
    out = run("verify", run.path("all.tc", MATMUL + TWO + WINDOW))
    want(out, r"kernels checked, 0 wrong")
    for name in "matmul", "scale", "softmax", "window":
        if len(set(re.findall(rf"^{name} .*$", out, re.M))) < 3:
            raise AssertionError(f"{name}: must be checked at three choices of sizes, got:\n{out}")
    want(run("verify", run.path("all.tc"), "--size", "K=5", "--entry=matmul"), r"matmul K=5 M=\d+ N=\d+\n")
    want(run("verify", run.path("all.tc"), "--entry=matmul", "--target=sim:cuda:sm_90a"), r"\d+ kernels checked, 0 wrong")


def test_verify_takes_the_sizes_that_a_definition_says(run):
    literal = run.path("literal.tc", """def f(float(128, 512) A, float(512, 128) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }
def g(float(M, 2048) A, float(2048, 512) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }
""")
    want(run("verify", literal), r"f\n(.*\n)*g M=1\n(.*\n)*[1-9]\d* kernels checked, 0 wrong")


def test_a_wrong_definition_is_shown_with_line_and_caret(run):
    wrong = run.path("wrong.tc", MATMUL + "def past(float(N) X) -> (Y) {\n  Y(i) = X(i + 1) where i in 0:N\n}\n")
    want(run("verify", wrong, code=1), r"wrong\.tc:5:\d+: error: .*\n.*X\(i \+ 1\).*\n +\^")
    want(run("verify", run.path("cut.tc", MATMUL[:-3]), code=1), r"cut\.tc:\d+:\d+: error: ")


# --- operators of the user's

GELU = """onnx Swish 1.. domain "my.domain" (beta = 1.0) = swish
def swish(float(N...) X) -> (Y) { Y(i...) = X(i...) / (1 + exp(-beta * X(i...))) }
onnx Relu 6.. = relu
def relu(float(N...) X) -> (Y) { Y(i...) = X(i...) > 0 ? X(i...) : 0.25 * X(i...) }
"""


def custom(run):
    beta = field(5, field(1, "beta") + varint(2 << 3 | 5) + struct.pack("<f", 2) + field(20, 1))
    nodes = [node("Swish", ["x"], ["h"], "act", "my.domain") + beta, node("Relu", ["h"], ["y"], "leak")]
    return run.path("custom.onnx", model(nodes, opsets=(("", 17), ("my.domain", 1))))


def test_a_users_operator_is_as_good_as_any(run):
    onnx, ops = custom(run), run.path("gelu.tc", GELU)
    x = run.path("x.npy", npy((2, 4), data=floats(0, -1, 1, 2, -2, 3, -3, 4)))
    y = run.path("y.npy", npy((2, 4), data=floats(0, -0.0298007, 0.880797, 1.964028, -0.0089931, 2.992582, -0.0018545,
                                                  3.998659)))
    want(run("run", onnx, code=1), r"operator Swish of domain my\.domain: must be a supported one")
    want(run("run", onnx, "--ops", ops, f"--input=x={x}", f"--expect=y={y}", "--reference"), r"y: matches.*\n.*y: matches")
    want(run("verify", onnx, "--ops", ops), r"0 wrong")
    want(run("check", onnx, "--ops", ops), r"every node can be compiled")


def test_mistakes_in_a_users_operator_are_shown_in_its_file(run):
    onnx = custom(run)
    want(run("run", onnx, "--ops", run.path("none.tc", MATMUL), code=1), r"none\.tc: error: operators: must have a line")
    past = GELU.replace("X(i...) / (", "X(i...) / Z(").replace("swish(float(N...) X)", "swish(float(N...) X, float Z)")
    want(run("run", onnx, "--ops", run.path("past.tc", past), code=1), r"past\.tc|Swish: ")
    cut = GELU.replace("beta *", "gamma *")
    want(run("run", onnx, "--ops", run.path("cut.tc", cut), code=1), r"cut\.tc:2:\d+: error: .*gamma")


# --- search

def test_a_search_prints_the_best_right_filling(run):
    file, script = run.path("mm.tc", MATMUL), run.path("holes.sched", HOLES)
    out = run("tc", file, *SIZES, "--schedule", script, "--search=100", "-o", run.path("best.sched"))
    want(out, r"5 right, 0 wrong, 2 refused, such as: schedule: ")
    want(out, r"\?tile=[48] (vectorize|unroll)")
    best = (run.folder / "best.sched").read_text()
    want(best, r"split C.m [48] guard C.mo C.mi\nreorder C.mo C.k C.mi C.n\n(vectorize|unroll) C.n\n")
    want(run("tc", file, *SIZES, "--schedule", run.path("best.sched"), "--reference"), r"C: matches")


def test_a_search_draws_the_same_fillings_for_the_same_seed(run):
    file, script = run.path("mm.tc", MATMUL), run.path("holes.sched", "split C.m ?{2,3,4,5,6,7,8} guard a b\n")
    def fillings():
        out = run("tc", file, *SIZES, "--schedule", script, "--search=3", "--seed=4", "-o", run.path("best.sched"))
        return sorted(re.findall(r"x  (\d)$", out, re.M))
    first = fillings()
    if len(first) != 3 or first != fillings():
        raise AssertionError(f"must be the same three, got {first}")


def test_a_search_needs_holes_that_are_right(run):
    file = run.path("mm.tc", MATMUL)
    want(run("tc", file, *SIZES, "--search=3", code=1), r"search: must have a schedule with holes")
    script = run.path("open.sched", "# one\nsplit C.m ?{4,8 guard a b\n")
    want(run("tc", file, *SIZES, "--schedule", script, "--search=3", code=1), r"line 2")


# --- time

def processor_ms():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (usage.ru_utime + usage.ru_stime)


def test_a_small_definition_is_compiled_in_50_ms(run):
    """By processor time, of the whole process: a busy machine must not decide."""
    file, compiled, whole, used = run.path("mm.tc", MATMUL), [], [], []
    for _ in range(9):
        before, start = processor_ms(), time.monotonic()
        out = run("tc", file, *SIZES, "--threads=1", "--bench", "--iterations=1", "--warmup=0")
        whole.append(1e3 * (time.monotonic() - start))
        used.append(processor_ms() - before)
        compiled.append(float(re.search(r"compile +([\d.]+) ms", out)[1]))
    print(f"  definition to running code: {min(compiled):.1f} ms; the whole process: {min(whole):.1f} ms, "
          f"{min(used):.0f} ms of a processor (least of 9)")
    if b"__asan_init" in pathlib.Path(run.kiln).read_bytes():
        return  # what is measured then is the sanitizer
    if min(used) > 50:
        raise AssertionError(f"must take at most 50 ms of a processor, got {used}")


def test_what_is_unrolled_too_often_stays_a_loop(run):
    file, script = run.path("mm.tc", MATMUL), run.path("wide.sched", "reorder C.k C.m C.n\nunroll C.m\nvectorize C.n\n")
    before = processor_ms()
    run("tc", file, "--size=M=49", "--size=K=7", "--size=N=1024", "--schedule", script, "--reference")
    used = processor_ms() - before
    if used > 2000 and b"__asan_init" not in pathlib.Path(run.kiln).read_bytes():
        raise AssertionError(f"must compile in 2 seconds, got {used} ms")


def main():
    kiln, only = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[3] if sys.argv[2:3] == ["-k"] else ""
    n_wrong = n = 0
    for name, test in list(globals().items()):
        if not name.startswith("test_") or only not in name:
            continue
        n += 1
        with tempfile.TemporaryDirectory() as scratch:
            try:
                test(Run(kiln, pathlib.Path(scratch)))
                print(f"ok    {name[5:]}")
            except (AssertionError, subprocess.TimeoutExpired) as wrong:
                n_wrong += 1
                print(f"WRONG {name[5:]}: {wrong}")
    print(f"{n - n_wrong} passed, {n_wrong} failed")
    return 1 if n_wrong or not n else 0


if __name__ == "__main__":
    sys.exit(main())
