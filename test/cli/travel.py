#!/usr/bin/env python3
"""Modules for other processors: they run where they may, as they would at home, and are refused elsewhere with what is missing.

usage: travel.py KILN      the emulator is qemu-x86_64 (Debian: qemu-user); without it only this machine is one
"""
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

# Definitions whose code differs from processor to processor: products, halves, integers, functions, what is rounded.
DEFINITIONS = """
def product(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }
def halves(float16(M, N) A, bfloat16(M, N) B) -> (C) { C(m, n) = float16(float(A(m, n)) * 3.0 + float(B(m, n))) }
def codes(float(M, N) A) -> (C) { C(m, n) = uint8(min(max(round(A(m, n) * 40.0) + 128.0, 0.0), 255.0)) }
def dots(uint8(M, K) A, int8(K, N) B) -> (C) { C(m, n) +=! int32(A(m, k)) * int32(B(k, n)) }
def wide(double(M, K) A, int64(M, K) B) -> (C) { C(m) +=! A(m, k) * double(B(m, k) / 3 - B(m, k) % 5) }
def functions(float(M, N) A) -> (C) { C(m, n) = floor(A(m, n) * 5.0) + exp(A(m, n)) + tanh(A(m, n)) + sqrt(abs(A(m, n))) + sin(A(m, n)) }
def most(float(M, N) A) -> (C) { C(m) max=! A(m, n) }
def up(float16(N) A) -> (C) { C(n) = float(A(n)) }
def down(float(N) A) -> (C) { C(n) = float16(A(n)) }
def turned(float(M, N) A) -> (C) { C(n, m) = A(m, n) where n in 0:N }
"""
SIZES = {"product": {"M": 37, "K": 50, "N": 70}, "halves": {"M": 7, "N": 45}, "codes": {"M": 5, "N": 67},
         "dots": {"M": 9, "K": 64, "N": 33}, "wide": {"M": 6, "K": 43}, "functions": {"M": 4, "N": 39},
         "most": {"M": 5, "N": 77}, "up": {"N": 65536}, "down": {"N": 65536}, "turned": {"M": 35, "N": 21}}
# All halves; and numbers beside halves and in the middle of two, of all signs and sizes, and random bits.
INPUTS = {"up": ("<f2", b"".join(struct.pack("<H", k) for k in range(65536))),
          "down": ("<f4", b"".join(struct.pack("<I", (k << 16 & 0x80000000) + ((k & 0x1fff) * 0x8191 ^ k >> 3) + 0x32000000)
                                   if k % 4 else struct.pack("<I", k * 2654435761 & 0xFFFFFFFF) for k in range(65536)))}
# Targets, and what a processor must say that it has to be one.
TARGETS = {"x86-64": [], "x86-64-v2": ["sse4_2"], "sandybridge": ["avx"], "x86-64-v3": ["avx2", "fma"],
           "znver2": ["avx2", "fma"], "x86-64-v4": ["avx512f"], "icelake-server": ["avx512f"], "native": []}
# Models of the emulator: the targets whose code they run.
MODELS = {"qemu64": ["x86-64"], "Nehalem": ["x86-64", "x86-64-v2"], "Haswell": ["x86-64", "x86-64-v2", "sandybridge", "x86-64-v3"],
          "Skylake-Client": ["x86-64", "x86-64-v2", "x86-64-v3"], "EPYC": ["x86-64", "x86-64-v2", "x86-64-v3", "znver2"],
          "max": ["x86-64", "x86-64-v2", "sandybridge", "x86-64-v3", "znver2"]}
MISSING = re.compile(r"missing: ([a-z0-9. ]+)$")


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env={**os.environ, "KILN_CACHE_DIR": ""})


class Failures:
    n = 0

    def check(self, right, what, detail=""):
        if not right:
            self.n += 1
            print(f"FAILED {what}: {detail}".rstrip())


def write_inputs(room):
    for name, (dtype, data) in INPUTS.items():
        head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({len(data) // int(dtype[2])},), }}"
        head += " " * (-(len(head) + 11) % 64) + "\n"
        (room / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def inputs_of(room, name):
    return ["--input", f"A={room / name}.npy"] if name in INPUTS else []


def compile_all(kiln, room, failures):
    for name, sizes in SIZES.items():
        for target in TARGETS:
            r = run(kiln, "compile", room / "d.tc", "--entry", name, *[f"--size={k}={v}" for k, v in sizes.items()],
                    "--target", target, "--threads", 1, "-o", room / f"{name}.{target}.so")
            failures.check(r.returncode == 0, f"compile {name} for {target}", r.stderr)


def results(kiln, room, name, prefix, target, out):
    out.mkdir(exist_ok=True)
    return run(*prefix, kiln, "run", room / f"{name}.{target}.so", "--threads", 1, "--output-dir", out,
               *inputs_of(room, name))


def same(room, a, b):
    x, y = (sorted((room / d).glob("*.npy")) for d in (a, b))
    return bool(x) and [p.read_bytes() for p in x] == [p.read_bytes() for p in y]


def near(kiln, room, name, target, want):
    """The module's results beside those of this machine's code, by the command's own comparison."""
    tolerance = "0" if name in INPUTS else "2e-5"
    r = run(kiln, "run", room / f"{name}.{target}.so", "--threads", 1, "--rtol", tolerance, "--atol", tolerance, "--expect",
            f"C={want / 'C.npy'}", *inputs_of(room, name))
    return r.returncode == 0, r.stdout + r.stderr


def check_home(kiln, room, failures):
    """Every module runs here with right results or names what is missing."""
    ran = set()
    for name in SIZES:
        r = results(kiln, room, name, [], "native", room / f"{name}.want")
        failures.check(r.returncode == 0, f"run {name} here", r.stderr)
        for target in TARGETS:
            right, text = near(kiln, room, name, target, room / f"{name}.want")
            refused = MISSING.search(text.strip())
            failures.check(right or refused, f"{name} for {target} here", text)
            if right:
                ran.add((name, target))
    return ran


def check_model(kiln, room, model, ran, failures):
    for name in SIZES:
        for target in TARGETS:
            out = room / f"{name}.{target}.{model}"
            r = results(kiln, room, name, ["qemu-x86_64", "-cpu", model], target, out)
            text = "\n".join(l for l in r.stderr.splitlines() if not l.startswith("qemu-x86_64: warning"))
            if r.returncode == 0 and (name, target) in ran:
                here = room / f"{name}.{target}.here"
                results(kiln, room, name, [], target, here)
                right, why = near_files(kiln, room, name, target, here, out)
                failures.check(right, f"{name} for {target} on {model} differs from here", why)
            failures.check(r.returncode == 0 or (r.returncode == 1 and MISSING.search(text.strip())),
                           f"{name} for {target} on {model} must run or be refused, code {r.returncode}", text)
            failures.check(r.returncode == 0 or target not in MODELS[model], f"{name} for {target} must run on {model}", text)
            if target in ("x86-64-v4", "icelake-server") and name == "product":
                failures.check("avx512f" in text, f"{name} for {target} on {model} must name avx512f", text)


def near_files(kiln, room, name, target, a, b):
    """libm's functions may round otherwise on another processor; nothing else does."""
    if same(room, a, b):
        return True, ""
    if name != "functions":
        return False, "bytes differ"
    r = run(kiln, "run", room / f"{name}.{target}.so", "--threads", 1, "--rtol", "1e-6", "--atol", "1e-6", "--expect",
            f"C={b / 'C.npy'}")
    return r.returncode == 0, r.stdout + r.stderr


def main():
    kiln = pathlib.Path(sys.argv[1]).resolve()
    failures = Failures()
    if os.uname().machine != "x86_64":
        print("skipped: needs x86-64")
        return 77
    with tempfile.TemporaryDirectory() as name:
        room = pathlib.Path(name)
        (room / "d.tc").write_text(DEFINITIONS)
        write_inputs(room)
        compile_all(kiln, room, failures)
        ran = check_home(kiln, room, failures)
        # a sanitizer's shadow, emulated, takes gigabytes a run
        has_emulator = shutil.which("qemu-x86_64") is not None and b"__asan_init" not in kiln.read_bytes()
        emulated = share.some(MODELS) if has_emulator else []
        for model in emulated:
            check_model(kiln, room, model, ran, failures)
        r = run(kiln, "compile", room / "d.tc", "--entry", "most", "--size=M=3", "--size=N=4", "--target", "no-such-cpu", "-o",
                room / "x.so")
        failures.check(r.returncode == 2 and "no-such-cpu" in r.stderr and "x86-64-v3" in r.stderr, "a target that is none", r.stderr)
    print(f"{len(SIZES) * len(TARGETS)} modules, {len(emulated)} emulated processors, {failures.n} failures")
    return 1 if failures.n else 0


if __name__ == "__main__":
    sys.exit(main())
