#!/usr/bin/env python3
"""Compiles small models once for ranges of named dimensions, runs the modules at several shapes and compares with ONNX
Runtime: |got - want| <= 1e-5 + 1e-4 |want|. What cannot be compiled so must be refused with the words that are given.

usage: dynamic.py KILN [TARGET [MODEL...]]      needs numpy, onnx and onnxruntime; without what the target needs it skips itself
"""
import pathlib, subprocess, sys, tempfile
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / "bench"), str(pathlib.Path(__file__).parents[1])]
sys.path.append(str(pathlib.Path(__file__).parents[2] / "python/tests"))
import random_decoders  # noqa: E402
import share  # noqa: E402
from kiln_rt import Session, dl_tensor  # noqa: E402


def weights(name, *shape):
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32), name)


def model(nodes, inputs, outputs, constants):
    def value(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph(nodes, "m", [value(*i) for i in inputs], [value(*o) for o in outputs], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(made)
    return made


def vision():
    """A strided and a 3x3 convolution, pooling, a residual, a concatenation, a mean, a classifier."""
    n = helper.make_node
    return model(
        [n("Conv", ["x", "w0", "b0"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
         n("Relu", ["a"], ["b"]),
         n("Conv", ["b", "w1"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
         n("Add", ["b", "c"], ["d"]),
         n("MaxPool", ["d"], ["e"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
         n("Conv", ["e", "w2"], ["f"], kernel_shape=[1, 1]),
         n("Concat", ["e", "f"], ["g"], axis=1),
         n("GlobalAveragePool", ["g"], ["h"]),
         n("Flatten", ["h"], ["i"]),
         n("Gemm", ["i", "w3", "b3"], ["y"], transB=1)],
        [("x", ["batch", 3, 30, 34])], [("y", ["batch", 10]), ("e", ["batch", 16, 8, 9])],
        [weights("w0", 16, 3, 3, 3), weights("b0", 16), weights("w1", 16, 16, 3, 3), weights("w2", 24, 16, 1, 1),
         weights("w3", 10, 40), weights("b3", 10)])


def words():
    """A table of rows, and two batches that are independent."""
    n = helper.make_node
    return model(
        [n("Gather", ["table", "ids"], ["a"]), n("MatMul", ["a", "w"], ["b"]), n("Softmax", ["b"], ["y"], axis=-1),
         n("Add", ["z", "z"], ["t"])],
        [("ids", ["batch", 5], TensorProto.INT64), ("z", ["rows", 7])], [("y", ["batch", 5, 12]), ("t", ["rows", 7])],
        [weights("table", 50, 32), weights("w", 32, 12)])


def mlp():
    """Products of as many rows as the batch says, none too, with maps and a softmax of whole rows behind them."""
    n = helper.make_node
    return model(
        [n("Gemm", ["x", "w0", "b0"], ["a"]), n("Relu", ["a"], ["b"]), n("MatMul", ["b", "w1"], ["c"]), n("Add", ["c", "x"], ["d"]),
         n("MatMul", ["d", "w2"], ["e"]), n("Softmax", ["e"], ["y"], axis=-1)],
        [("x", ["batch", 64])], [("y", ["batch", 80]), ("d", ["batch", 64])],
        [weights("w0", 64, 192), weights("b0", 192), weights("w1", 192, 64), weights("w2", 64, 80)])


def attention():
    """Four heads over a sequence and a row in front of it, a mask, a residual; and sums and maxima along the sequence."""
    n, ints = helper.make_node, lambda name, *v: numpy_helper.from_array(np.array(v, np.int64), name)
    heads = lambda x: [n("MatMul", ["s", f"w{x}"], [f"{x}0"]), n("Reshape", [f"{x}0", "split"], [f"{x}1"])]
    return model(
        [n("Shape", ["x"], ["x_shape"]), n("Gather", ["x_shape", "zero"], ["rows"]), n("Concat", ["rows", "row"], ["one_row"], axis=0),
         n("Expand", ["first", "one_row"], ["front"]),
         n("Concat", ["front", "x"], ["s"], axis=1), *heads("q"), *heads("k"), *heads("v"),
         n("Transpose", ["q1"], ["q"], perm=[0, 2, 1, 3]), n("Transpose", ["k1"], ["k"], perm=[0, 2, 3, 1]),
         n("Transpose", ["v1"], ["v"], perm=[0, 2, 1, 3]),
         n("MatMul", ["q", "k"], ["a"]), n("Mul", ["a", "scale"], ["b"]), n("Softmax", ["b"], ["p"], axis=-1),
         n("MatMul", ["p", "v"], ["c"]), n("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]), n("Reshape", ["d", "join"], ["e"]),
         n("MatMul", ["e", "wo"], ["f"]), n("Add", ["f", "s"], ["y"]),
         n("ReduceSum", ["x", "axis"], ["total"], keepdims=0), n("ReduceMax", ["x"], ["top"], axes=[1], keepdims=0),
         n("Softmax", ["x"], ["along"], axis=1)],
        [("x", ["batch", "seq", 48])],
        [("y", ["batch", "rows", 48]), ("total", ["batch", 48]), ("top", ["batch", 48]), ("along", ["batch", "seq", 48])],
        [weights("wq", 48, 48), weights("wk", 48, 48), weights("wv", 48, 48), weights("wo", 48, 48), weights("first", 1, 1, 48),
         ints("split", 0, 0, 4, 12), ints("join", 0, 0, 48), ints("axis", 1), ints("zero", 0), ints("row", 1, 48),
         numpy_helper.from_array(np.array(12 ** -0.5, np.float32), "scale")])


def spatial():
    """Borders that lie where the image ends: convolutions, pooling, an upsampling and the concatenation behind it."""
    n = helper.make_node
    return model(
        [n("Conv", ["x", "w0", "b0"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), n("Relu", ["a"], ["b"]),
         n("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
         n("Conv", ["c", "w1"], ["d"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
         n("ConvTranspose", ["d", "w2"], ["e"], kernel_shape=[2, 2], strides=[2, 2]),
         n("Concat", ["b", "e"], ["f"], axis=1),
         n("Conv", ["f", "w3"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
        [("x", ["batch", 3, "height", "width"])], [("y", ["batch", 2, "height", "width"])],
        [weights("w0", 8, 3, 3, 3), weights("b0", 8), weights("w1", 16, 8, 3, 3), weights("w2", 16, 8, 2, 2),
         weights("w3", 2, 16, 3, 3)])


def image_mean():
    return model([helper.make_node("GlobalAveragePool", ["x"], ["y"])],
                 [("x", [1, 3, "height", "width"])], [("y", [1, 3, 1, 1])], [])


def cached():
    """A cache to which what is new is appended, with a mask over both."""
    n = helper.make_node
    return model(
        [n("Concat", ["past", "new"], ["all"], axis=1), n("MatMul", ["new", "w"], ["q"]),
         n("Transpose", ["all"], ["k"], perm=[0, 2, 1]), n("MatMul", ["q", "k"], ["m"]), n("Add", ["m", "mask"], ["a"]),
         n("Softmax", ["a"], ["p"], axis=-1),
         n("MatMul", ["p", "all"], ["y"])],
        [("past", [2, "past", 32]), ("new", [2, "t", 32]), ("mask", ["t", "kv"])], [("all", [2, "kv", 32]), ("y", [2, "t", 32])], [weights("w", 32, 32)])


def decoder():
    """One layer of a language model with rotary embedding, grouped heads and a cache of keys and values."""
    return random_decoders.make(np.random.default_rng(3), layers=1)


def batch_mean():
    return model([helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=0)],
                 [("x", ["batch", 8])], [("y", [8])], [])


def flattened():
    return model([helper.make_node("Flatten", ["x"], ["y"], axis=2)], [("x", ["a", "b", 4])], [("y", ["ab", 4])], [])


TARGET = sys.argv[2] if len(sys.argv) > 2 else "cpu"
RUN = [
    (vision, ["batch=1..9"], [{"batch": n} for n in (1, 2, 3, 4, 5, 7, 9)]),
    (vision, ["batch=2..8/2"], [{"batch": n} for n in (2, 6, 8)]),
    (mlp, ["batch=0..200"], [{"batch": n} for n in (1, 131, 0, 200, 17, 64, 2)]),
    (words, ["batch=1..6", "rows=3..40"], [{"batch": b, "rows": r} for b, r in ((1, 3), (5, 4), (6, 40), (3, 17))]),
    (attention, ["batch=1..3", "seq=1..40"], [{"batch": b, "seq": n} for b, n in
                                             ((1, 1), (1, 17), (2, 31), (3, 5), (3, 40), (1, 32), (2, 33), (1, 2))]),
    (batch_mean, ["batch=1..6"], [{"batch": n} for n in (1, 2, 3, 5, 6)]),
    (image_mean, ["height=2..9", "width=3..3"], [{"height": h, "width": 3} for h in (2, 3, 7, 9)]),
    (image_mean, ["height=2..9", "width=2..9"], [{"height": h, "width": w} for h, w in ((2, 2), (9, 4), (3, 9), (9, 9))]),
    (flattened, ["a=2..6", "b=2..6"], [{"a": a, "b": b} for a, b in ((2, 2), (6, 3), (5, 6), (6, 6))]),
    (spatial, ["batch=1..2", "height=8..40/2", "width=16..48/16"],
     [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 8, 16), (2, 10, 32), (1, 22, 48), (2, 40, 48), (1, 38, 16))]),
    (spatial, ["batch=1..1", "height=100..200/4", "width=128..192/16"],
     [{"batch": 1, "height": h, "width": w} for h, w in ((100, 128), (104, 144), (152, 192), (200, 192))]),
    (cached, ["past=1..70", "t=1..8", "kv=past+t"], [{"past": p, "t": t, "kv": p + t} for p, t in ((1, 1), (69, 1), (5, 3), (70, 8), (33, 7))]),
    (decoder, ["batch=1..2", "past=0..40", "tokens=1..8"], [{"batch": b, "past": p, "tokens": t} for b, p, t in
                                                           ((1, 0, 1), (2, 0, 7), (1, 40, 1), (2, 23, 8), (1, 1, 2), (2, 31, 1), (1, 17, 5))]),
]
REFUSED = [
    (vision, ["batch=5..2"], "must go from 0 or more upwards"),
    (vision, ["batch=1..8/3"], "in whole steps"),
    (vision, ["bunch=1..8"], "must be the extent of an axis of an input"),
]


def make_inputs(made, dims, rng):
    given = {}
    for value in made.graph.input:
        kind = value.type.tensor_type
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        given[value.name] = (rng.integers(0, 37, shape) if kind.elem_type == TensorProto.INT64
                             else rng.standard_normal(shape).astype(np.float32))
    return given


def run_at(kiln, module, folder, given, want):
    command = [kiln, "run", module, "--rtol", "1e-4", "--atol", "1e-5", "--threads", "2"]
    for name, array in given.items():
        np.save(folder / f"{name}.npy", array)
        command += ["--input", f"{name}={folder / name}.npy"]
    for name, array in want.items():
        np.save(folder / f"want_{name}.npy", array)
        command += ["--expect", f"{name}={folder / ('want_' + name)}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout + done.stderr


def tensor(array):
    code = {"f": 2, "i": 0}[array.dtype.kind]
    return dl_tensor(array.ctypes.data, (1, 0), array.shape, code, array.dtype.itemsize * 8)


def run_session(kiln, module, runs):
    """All shapes one after the other, and back, in one session, whose memory grows."""
    session = Session(pathlib.Path(kiln).parent, module, threads=2)
    wrong = None
    for given, want in runs + runs[::-1]:
        got = [np.full_like(x, 77) for x in want.values()]
        session.bind_tensors([tensor(x) for x in given.values()], [tensor(x) for x in got], given, got)
        session.outputs = got
        session.run()
        for x, name in zip(got, want):
            if not np.allclose(x, want[name], rtol=1e-4, atol=1e-5):
                wrong = f"{name} differs in a session, at {[x.shape for x in given.values()]}"
    session.close()
    return wrong


def compile_ranges(kiln, made, folder, ranges):
    onnx.save(made, folder / "m.onnx")
    command = [kiln, "compile", folder / "m.onnx", "--threads", "2", "--target", TARGET, "-o", folder / "m.kmod"]
    for r in ranges:
        command += ["--dim", r]
    return subprocess.run(command, capture_output=True, text=True)


def check(kiln, folder, build, ranges, shapes):
    made = build()
    done = compile_ranges(kiln, made, folder, ranges)
    if done.returncode:
        return done.stderr
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    rng = np.random.default_rng(7)
    runs = []
    for dims in shapes:
        given = make_inputs(made, dims, rng)
        runs.append((given, dict(zip(names, session.run(names, given)))))
        wrong = run_at(kiln, folder / "m.kmod", folder, *runs[-1])
        if wrong:
            return f"at {dims}: {wrong}"
    return run_session(kiln, folder / "m.kmod", runs)


def check_outside(kiln, folder):
    """Extents outside of the ranges, and inputs that disagree, are refused by the module."""
    if compile_ranges(kiln, words(), folder, ["batch=1..6", "rows=3..40"]).returncode:
        return "must compile"
    for dims, words_of in (("batch=7", "dimension batch: must be 1 to 6"), ("batch=0", "dimension batch: must be 1 to 6")):
        done = subprocess.run([kiln, "run", folder / "m.kmod", "--dim", dims, "--dim", "rows=3"], capture_output=True, text=True)
        if done.returncode == 0 or words_of not in done.stderr:
            return done.stdout + done.stderr
    return None


def check_uses(kiln, folder):
    """What works on one program refuses a range, and says of which dimension."""
    onnx.save(vision(), folder / "m.onnx")
    (folder / "empty.schedule").write_text("")
    for command in (["verify"], ["explain"], ["run"],
                    ["compile", "--schedule", folder / "empty.schedule", "-o", folder / "m.kmod"]):
        done = subprocess.run([kiln, command[0], folder / "m.onnx", "--dim", "batch=1..4", *command[1:]], capture_output=True, text=True)
        if done.returncode == 0 or "dimension batch: must have one value" not in done.stderr:
            return f"{command}: {done.stdout + done.stderr}"
    return None


def has_device(kiln):
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(batch_mean(), f"{folder}/m.onnx")
        return subprocess.run([kiln, "run", f"{folder}/m.onnx", "--dim", "batch=2", "--target", TARGET], capture_output=True).returncode == 0


def main():
    kiln, failed, names = sys.argv[1], 0, sys.argv[3:]
    if TARGET != "cpu" and not has_device(kiln):
        print(f"skipped: there is no device for {TARGET}")
        return 77
    for build, ranges, shapes in [c for c in RUN if c[0].__name__ in names] or share.some(RUN):
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(kiln, pathlib.Path(folder), build, ranges, shapes)
        failed += wrong is not None
        print(f"{build.__name__} {' '.join(ranges)}: {'passed' if wrong is None else 'FAILED: ' + wrong}", flush=True)
    for build, ranges, words_of in REFUSED:
        with tempfile.TemporaryDirectory() as folder:
            done = compile_ranges(kiln, build(), pathlib.Path(folder), ranges)
        right = done.returncode != 0 and words_of in done.stderr
        failed += not right
        print(f"{build.__name__} {' '.join(ranges)}: {'refused' if right else 'FAILED: ' + done.stderr}", flush=True)
    for check_one, what in ((check_outside, "outside of the ranges"), (check_uses, "uses of one program")):
        with tempfile.TemporaryDirectory() as folder:
            wrong = check_one(kiln, pathlib.Path(folder))
        failed += wrong is not None
        print(f"{what}: {'refused' if wrong is None else 'FAILED: ' + wrong}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
