#!/usr/bin/env python3
"""Static libraries: what they compute is bit for bit what the module computes on one thread; they link without a runtime, in C and C++.

usage: static_library.py KILN      runs in .venv, which `make test` makes; CC and CXX are the compilers (cc, c++)
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PYTHON = pathlib.Path(".venv/bin/python")
if __name__ == "__main__" and not sys.prefix.endswith(".venv"):
    if not PYTHON.exists():
        print(f"skipped: there is no {PYTHON} (make test makes it)")
        sys.exit(77)
    os.execv(PYTHON, [str(PYTHON), "-W", "ignore", *sys.argv])

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import share

NODES = pathlib.Path("/usr/share/libonnx-testdata/data/node")
# Of each kind of plan: sums, libm's functions, views and copies of inputs, several outputs, types, integers, extents and indices that
# only a run knows, loops, and what has a state.
CASES = """add and2d cast_FLOAT_to_FLOAT16 cast_DOUBLE_to_FLOAT16 conv_with_strides_padding convtranspose dropout_default
dynamicquantizelinear erf gather_0 gather_elements_0 gemm_all_attributes identity isnan logsoftmax_axis_0 lstm_defaults matmulinteger
maxpool_with_argmax_2d_precomputed_pads mod_mixed_sign_float64 nonzero_example pow qlinearconv qlinearmatmul_2D argmax_keepdims_example
scatter_elements_with_axis split_equal_parts_1d tan transpose_all_permutations_2 unique_sorted_without_axis where_long_example""".split()
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
EM_AARCH64 = 183
MODEL = pathlib.Path("build/models/mobilenet_v2_b1.onnx").resolve()
ARM_CC = "aarch64-linux-gnu-gcc"
TYPES = {"f64": "f8", "f32": "f4", "f16": "f2", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4",
         "u64": "u8", "bool": "?"}


class Room:
    """A folder, and what went wrong in it."""

    def __init__(self, kiln, path):
        self.kiln, self.path, self.failures = kiln, path, 0

    def check(self, right, what):
        if not right:
            self.failures += 1
            print(f"FAILED {what}")

    def run(self, *command, code=0, where=None):
        command = [str(c) for c in command]
        r = subprocess.run(command, capture_output=True, text=True, cwd=where, env={**os.environ, "KILN_CACHE_DIR": ""}, timeout=900)
        self.check(r.returncode == code, f"{' '.join(command)}: exit code {code}, got {r.returncode}: {(r.stdout + r.stderr)[-1500:]}")
        return r.stdout + r.stderr

    def compile(self, model, out, *options, code=0):
        return self.run(self.kiln, "compile", model, "-o", self.path / out, *options, code=code)


def parameters(header):
    """Types and names of the function's parameters, by its declaration."""
    declared = re.search(r"^int (\w+)_run\((.*)\);", header, re.M)
    return declared.group(1), [re.match(r"(.*?)\*?(\w+)$", p.strip()).groups() for p in declared.group(2).split(", ")]


# Runs parts on threads of their own, the last range first; exits if there are more than |most|.
SPREAD = """#include <pthread.h>
typedef struct range { m_part *part; const void *job; int64_t begin, end; } range;
static int n_spread;
static void *run_range(void *argument) {
  const range *r = argument;
  r->part(r->job, r->begin, r->end);
  return NULL;
}
static void spread(void *pool, m_part *part, const void *job, int64_t extent, int64_t most) {
  pthread_t threads[8];
  range ranges[8];
  const int64_t own = *(const int *)pool, n = own < most ? own : most;
  if (most < 2 || most > extent) exit(8);
  for (int64_t i = n - 1; i >= 0; i--) {
    ranges[i] = (range){part, job, extent * i / n, extent * (i + 1) / n};
    if (pthread_create(&threads[i], NULL, run_range, &ranges[i])) exit(7);
  }
  for (int64_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
  n_spread++;
}
"""


def program(header, name, weights=None, null=()):
    """A C program that reads a file for each input and writes one for each output; |null|: inputs that are not given. Where the
    function takes a parallel_for, it gets one of as many threads as the program's argument says, or none."""
    prefix, takes = parameters(header)
    macro = prefix.upper()
    is_parallel = "parallel_for" in (p for _, p in takes)
    text = [f'#include "{name}.h"', "#include <stdio.h>", "#include <stdlib.h>", SPREAD if is_parallel else "", "static void *room(size_t bytes, const char *path) {",
            "  void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);", '  FILE *f = path ? fopen(path, "rb") : NULL;',
            "  if (!p || (path && (!f || fread(p, 1, bytes, f) != bytes))) exit(9);", "  if (f) fclose(f);", "  return p;", "}", "",
            "static void keep(const void *p, size_t bytes, const char *path) {", '  FILE *f = fopen(path, "wb");',
            "  if (!f || fwrite(p, 1, bytes, f) != bytes || fclose(f)) exit(9);", "}", "", "int main(int argc, char **argv) {",
            "  int n = argc > 1 ? atoi(argv[1]) : 0;", "  (void)n;"]
    args, after = [], []
    for kind, p in takes:
        kind = kind.replace("const ", "").strip()
        if p == "workspace":
            text.append(f"  void *workspace = room({macro}_WORKSPACE_BYTES, NULL);")
        elif p in ("parallel_for", "pool"):
            args.append({"parallel_for": "n > 0 ? spread : NULL", "pool": "&n"}[p])
            continue
        elif p == "weights":
            text.append(f'  const void *weights = room({macro}_WEIGHTS_BYTES, "{weights}");')
        elif p.endswith("_shape") and kind == "int64_t":
            text.append(f"  int64_t *{p} = room(64, NULL);")
            after.append(f'  keep({p}, 64, "{p}");')
        elif p in null:
            args.append("NULL")
            continue
        else:
            bytes_ = f"{macro}_{p.upper()}_ELEMS * sizeof({kind})"
            text.append(f"  {kind} *{p} = room({bytes_}, " + (f'"{p}");' if p.startswith("in_") else "NULL);"))
            if p.startswith("out_"):
                after.append(f'  keep({p}, {bytes_}, "{p}");')
        args.append(p)
    text += [f"  const int code = {prefix}_run({', '.join(args)});", "  if (code) return code < 0 ? 100 - code : code;", *after,
             *(["  if (n > 0 && !n_spread) return 6;"] if is_parallel else []),
             "  return 0;", "}", ""]
    return "\n".join(text)


def ports(room, module):
    report = room.path / "report.json"
    room.run(room.kiln, "inspect", module, "--json", report)
    r = json.loads(report.read_text())
    return r["inputs"], r["outputs"]


def random_value(rng, port):
    kind = np.dtype(TYPES[port["dtype"]])
    if kind == np.bool_:
        return rng.random(port["shape"]) < 0.5
    return rng.normal(size=port["shape"]).astype(kind) if kind.kind == "f" else rng.integers(0, 2, port["shape"]).astype(kind)


def plain(name):
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def compare(room, model, *options, given=None, weights=None, null=(), arm=False, threads=1, spread=()):
    """Compiles the model both ways, with |given| values of inputs or random ones, and compares all bytes of the outputs. |arm|: the
    library is for AArch64, runs in an emulator, and may round otherwise. With |threads| it takes a parallel_for, and gets it with each
    number of |spread|."""
    for old in room.path.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    what = f"{model} {' '.join(options)}"
    many = ["--threads", str(threads)]
    room.compile(model, "m.so", *many, *options)
    inputs, outputs = ports(room, room.path / "m.so")
    if any(p["dtype"] not in TYPES for p in inputs + outputs):
        return False
    room.compile(model, "m.a", *(many if threads > 1 else []), *options, *(["--weights", room.path / weights] if weights else []), *(["--target=neon"] if arm else []))
    rng = np.random.default_rng(7)
    files = []
    for p in inputs:
        if f"in_{plain(p['name'])}" in null:
            continue
        value = (given or {}).get(p["name"], None)
        value = np.array(random_value(rng, p) if value is None else value, order="C")
        np.save(room.path / "in.npy", value)
        (room.path / f"in_{plain(p['name'])}").write_bytes(value.tobytes())
        files += ["--input", f"{p['name']}={room.path / plain(p['name'])}.npy"]
        (room.path / "in.npy").rename(room.path / f"{plain(p['name'])}.npy")
    room.run(room.kiln, "run", room.path / "m.so", *many, *files, "--output-dir", room.path / "want")
    header = (room.path / "m.h").read_text()
    (room.path / "main.c").write_text(program(header, "m", weights, null))
    room.run(ARM_CC if arm else CC, "-std=c11", *WARNINGS, "-static", "-pthread", "main.c", "m.a", "-lm", "-o", "main", where=room.path)
    for n in spread or [None]:
        for old in room.path.glob("out_*"):
            old.unlink()
        room.run(*(["qemu-aarch64"] if arm else []), "./main", *([n] if n is not None else []), where=room.path)
        check_outputs(room, outputs, f"{what} {'' if n is None else f'with {n} threads'}", arm)
    return True


def check_outputs(room, outputs, what, arm):
    for p in outputs:
        want = np.load(room.path / "want" / f"{p['name']}.npy")
        file = room.path / f"out_{plain(p['name'])}"
        got = np.frombuffer(file.read_bytes(), TYPES[p["dtype"]]) if file.exists() else np.zeros(0)
        found = room.path / f"out_{plain(p['name'])}_shape"
        if found.exists():
            shape = np.frombuffer(found.read_bytes(), np.int64)[:want.ndim]
            room.check(list(shape) == list(want.shape), f"{what}: {p['name']}: shape {want.shape}, got {shape}")
            got = got.reshape(p["shape"])[tuple(slice(n) for n in shape)]
        right = np.allclose(got, want.reshape(-1), 1e-4, 1e-5) if arm else want.tobytes() == got.tobytes()
        room.check(right, f"{what}: {p['name']}: {want.reshape(-1)[:4]}, got {got.reshape(-1)[:4]}")


def tensor_of(path):
    tensor = TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def check_nodes(room):
    """ONNX's node tests, with their data."""
    names = CASES if int(os.environ.get("KILN_TEST_SHARE", "6")) <= 1 else CASES[:2] + share.some(CASES[2:])
    for name in names:
        folder = NODES / f"test_{name}"
        if not folder.is_dir():
            room.check(not NODES.is_dir(), f"{folder}: must be there")
            continue
        model = onnx.load(folder / "model.onnx")
        values = [tensor_of(p) for p in sorted((folder / "test_data_set_0").glob("input_*.pb"))]
        compare(room, folder / "model.onnx", given=dict(zip((i.name for i in model.graph.input), values)))


def check_definitions(room):
    compare(room, definition(room), "--size", "N=100")
    compare(room, pathlib.Path("examples/tc/softmax.tc").resolve(), "--entry", "softmax", "--size", "N=33", "--size", "C=70")


SCALE = "def scale(float(N) X) -> (Y) { Y(n) = 2 * X(n) + exp(X(n)) }\n"


def definition(room, text=SCALE):
    folder = pathlib.Path(tempfile.mkdtemp(dir=room.path.parent))
    (folder / "scale.tc").write_text(text)
    return folder / "scale.tc"


def mlp(room, rows=5, seed=3):
    """A model with weights, an input with a default, a result that is a view of another, and an index that must be in range."""
    rng = np.random.default_rng(seed)
    f = lambda *shape: rng.normal(size=shape).astype(np.float32)
    v = helper.make_tensor_value_info
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Gather", ["r", "at"], ["y"], axis=1), helper.make_node("Transpose", ["x"], ["turned"])]
    graph = helper.make_graph(nodes, "mlp", [v("x", 1, [rows, 70]), v("b", 1, [90]), v("at", 7, [3])],
                              [v("y", 1, [rows, 3]), v("turned", 1, [70, rows])],
                              [numpy_helper.from_array(a, n) for n, a in (("w", f(70, 90)), ("b", f(90)))])
    folder = pathlib.Path(tempfile.mkdtemp(dir=room.path.parent))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), folder / "mlp.onnx")
    return folder / "mlp.onnx"


def check_weights(room):
    model = mlp(room)
    at = {"at": np.array([0, 89, 7])}
    compare(room, model, "--overridable=b", given=at)
    compare(room, model, "--overridable=b", given=at, null=["in_b"])
    compare(room, model, given=at, weights="m.weights")
    main, file = room.path / "main", room.path / "m.weights"
    file.write_bytes(file.read_bytes()[:8] + bytes(8) + file.read_bytes()[16:])
    room.run("./main", where=room.path, code=102)  # weights of another library
    (room.path / "in_at").write_bytes(np.array([0, 90, 7]).tobytes())
    compare(room, model, given=at)
    (room.path / "in_at").write_bytes(np.array([0, 90, 7]).tobytes())
    room.run("./main", where=room.path, code=1)  # the first check
    room.check(re.search("^ +1  .*index along axis 1", (room.path / "m.h").read_text(), re.M), "the header lists checks")
    (room.path / "main.c").write_text((room.path / "main.c").read_text().replace("workspace)", "(char *)workspace + 8)"))
    room.run(CC, "-std=c11", "main.c", "m.a", "-lm", "-o", main, where=room.path)
    room.run("./main", where=room.path, code=101)
    bytes_ = (room.path / "m.a").read_bytes(), (room.path / "m.h").read_bytes()
    room.compile(model, "m.a")
    room.check(bytes_ == ((room.path / "m.a").read_bytes(), (room.path / "m.h").read_bytes()), "the same model gives the same bytes")


def check_links(room):
    """Two libraries in one program and in one shared object; C of all kinds and C++; without libc."""
    room.compile(definition(room), "one.a", "--size", "N=16")
    room.compile(mlp(room), "libtwo.a")
    (room.path / "both.c").write_text('#include "one.h"\n#include "libtwo.h"\nvoid *both[2] = {(void *)one_run, (void *)two_run};\n')
    for compiler, languages in ((CC, ("c90", "c11", "c17")), (CXX, ("c++11", "c++17"))):
        for language in languages:
            strict = [] if language == "c90" else WARNINGS  # which has neither stdint.h nor bool
            (room.path / "use.c").write_text('#include "one.h"\n#include "libtwo.h"\nint (*f)(const float *, float *, void *) = one_run;\n')
            source = ["-xc++" if compiler == CXX else "-xc", "use.c"]
            room.run(compiler, f"-std={language}", *strict, "-c", *source, "-o", "use.o", where=room.path)
    room.run(CC, "-shared", "-fPIC", "both.c", "one.a", "libtwo.a", "-lm", "-o", "both.so", where=room.path)
    shown = room.run("nm", "-D", "--defined-only", "both.so", where=room.path).split()
    room.check({n for n in shown if "one" in n or "two" in n} == {"one_run", "two_run"}, f"kernels are hidden, got {shown}")
    (room.path / "bare.c").write_text("""#include "one.h"
static float x[ONE_IN_X_ELEMS], y[ONE_OUT_Y_ELEMS];
void _start(void) {
  const int code = one_run(x, y, 0) || y[ONE_OUT_Y_ELEMS - 1] != 1.0f;
  __asm__ volatile("syscall" : : "a"(60), "D"(code));
  for (;;) {}
}
""")
    room.run(CC, "-std=c11", "-O1", "-ffreestanding", "-nostdlib", "-static", "-Wl,--fatal-warnings", "bare.c", "one.a", "-o", "bare",
             where=room.path)
    room.run("./bare", where=room.path)


def check_targets(room):
    model = definition(room)
    compare(room, model, "--size", "N=1000", "--target=x86-64-v2")
    compare(room, mlp(room), "--target=x86-64-v3", given={"at": np.array([1, 2, 3])})
    room.compile(mlp(room), "arm.a", "--target=neon")
    data = (room.path / "arm.a").read_bytes()
    heads = [m.start() for m in re.finditer(b"\x7fELF", data)]
    room.check(heads and all(data[h + 18] == EM_AARCH64 for h in heads), "objects must be of AArch64")
    if not shutil.which(ARM_CC) or not shutil.which("qemu-aarch64"):
        return print(f"not run for AArch64: there is no {ARM_CC}, or no qemu-aarch64")
    compare(room, model, "--size", "N=1000", arm=True)
    compare(room, mlp(room), given={"at": np.array([1, 2, 3])}, arm=True)
    if MODEL.exists():
        compare(room, MODEL, arm=True)


def check_parallel(room):
    """A parallel_for of the caller's: with it, without it, and where no kernel is worth two threads."""
    compare(room, definition(room), "--size", "N=200000", threads=3, spread=(0, 1, 3, 5))
    compare(room, mlp(room, rows=600), given={"at": np.array([0, 89, 7])}, weights="m.weights", threads=4, spread=(0, 4))
    compare(room, definition(room), "--size", "N=16", threads=2)
    if MODEL.exists():
        compare(room, MODEL, threads=2, spread=(2, 3))
    room.compile(definition(room), "one.a", "--size", "N=9000", "--threads", "2")
    (room.path / "use.cpp").write_text('#include "one.h"\nextern "C" void f(void *, one_part *p, const void *j, int64_t n, int64_t) { p(j, 0, n); }\n'
                                       "one_parallel_for *g = f;\nint (*h)(const float *, float *, void *, one_parallel_for *, void *) = one_run;\n")
    room.run(CXX, "-std=c++11", *WARNINGS, "-c", "use.cpp", "-o", "use.o", where=room.path)


def check_refusals(room):
    model = definition(room)
    size = ["--size", "N=8"]
    for file, options, says in ((model, ["--target=cuda:sm_90a", *size], "a static library must be for a processor"),
                                (mlp(room, "batch"), ["--dim", "batch=1..8"], "must have one value in a static library")):
        said = room.compile(file, "no.a", *options, code=1)
        room.check(says in said, f"{options}: {said}")
        room.check(not (room.path / "no.a").exists() and not (room.path / "no.h").exists(), f"{options}: nothing is left")
    said = room.compile(model, "no.so", "--weights", room.path / "w", *size, code=2)
    room.check("must come with -o OUT.a" in said, said)


def check_models(room):
    if MODEL.exists():
        compare(room, MODEL)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "room"
        path.mkdir()
        room = Room(str(pathlib.Path(sys.argv[1]).resolve()), path)
        for check in (check_definitions, check_weights, check_links, check_targets, check_parallel, check_refusals, check_nodes, check_models):
            check(room)
    print(f"{room.failures} wrong")
    return 1 if room.failures else 0


if __name__ == "__main__":
    sys.exit(main())
