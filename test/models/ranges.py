#!/usr/bin/env python3
"""Compiles models of models/ once for ranges of named dimensions and runs the modules at several shapes, in one session,
whose outputs must be ONNX Runtime's: a relative L2 error of at most 1e-4.

usage: ranges.py KILN MODELS_DIR      needs numpy, onnx and onnxruntime

The weights of a model with named dimensions are those of the same model without: MODELS_DIR/NAME.weights are made of
models/NAME.json where they are missing.
"""
import pathlib, subprocess, sys, tempfile

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "models")]
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime as ort  # noqa: E402
import weights  # noqa: E402
from dynamic import bind, make_inputs  # noqa: E402
from kiln_rt import Session  # noqa: E402

TOLERANCE = 1e-4
CASES = [
    ("mobilenet_v2_dyn", ["batch=1..6"], [{"batch": n} for n in (1, 2, 3, 5, 6)]),
    ("unet_dyn", ["batch=1..1", "height=32..64/16", "width=32..96/16"],
     [{"batch": 1, "height": h, "width": w} for h, w in ((32, 32), (48, 80), (64, 96), (64, 48))]),
]


def error_of(got, want):
    return np.linalg.norm((got - want).ravel()) / max(np.linalg.norm(want.ravel()), 1e-30)


def check(kiln, model, ranges, shapes, folder):
    module = folder / "m.kmod"
    dims = [x for r in ranges for x in ("--dim", r)]
    done = subprocess.run([kiln, "compile", model, *dims, "--threads", "2", "-o", module], capture_output=True, text=True)
    if done.returncode:
        return [done.stderr]
    graph = onnx.load(model, load_external_data=False)
    reference = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    session, wrong = Session(kiln.parent, module, threads=2), []
    for shape in shapes:
        given = make_inputs(graph, shape)
        want = reference.run(None, given)
        bind(session, given, want).run()
        errors = [error_of(a, b) for a, b in zip(session.outputs, want)]
        print(f"{model.stem} at {shape}: relative L2 error {max(errors):.1e}", flush=True)
        if not max(errors) <= TOLERANCE:
            wrong.append(f"{model.stem} at {shape}: must be at most {TOLERANCE}, got {max(errors)}")
    session.close()
    return wrong


def extents_model(path, has_kernel):
    """Outputs that are numbers made of a dimension, which nothing but the shape of an input says; with a map beside, or with no kernel but theirs."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    ints = [onnx.numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (("three", 3), ("turned", [1, 0]), ("zero", [0]))]
    nodes = [node("Shape", ["x"], ["shape"]), node("Size", ["x"], ["size"]), node("Mul", ["shape", "three"], ["thrice"]),
             node("Gather", ["shape", "turned"], ["other"]), node("Gather", ["shape", "zero"], ["first"]),
             node("Concat", ["first", "thrice", "first"], ["joined"], axis=0), node("Cast", ["other"], ["narrow"], to=onnx.TensorProto.INT32)]
    made = [("shape", 7, [2]), ("size", 7, []), ("other", 7, [2]), ("joined", 7, [4]), ("narrow", 6, [2])]
    if has_kernel:
        nodes.append(node("Relu", ["x"], ["y"]))
        made.append(("y", 1, ["b", 7]))
    graph = onnx.helper.make_graph(nodes, "extents", [info("x", 1, ["b", 7])], [info(*m) for m in made], ints)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def scatters_model(path):
    """Updates along the dimension: as many as a run has are written, whatever stands behind them from the run before."""
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    numbers = [onnx.numpy_helper.from_array(np.asarray(v), n) for n, v in (("old", np.arange(10, 19, dtype=np.float32)), ("first", np.int64(0)),
                                                                          ("last", np.array([1], np.int64)))]
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("Abs", ["x"], ["size"]), node("Sign", ["size"], ["one"]), node("CumSum", ["one", "first"], ["sum"]),
             node("Cast", ["sum"], ["place"], to=onnx.TensorProto.INT64), node("Unsqueeze", ["place", "last"], ["places"]),
             node("ScatterElements", ["old", "place", "x"], ["elements"], axis=0), node("ScatterND", ["old", "places", "x"], ["nd"]),
             node("ScatterElements", ["old", "place", "x"], ["sums"], axis=0, reduction="add"),
             node("MaxPool", ["z"], ["most", "where"], **windows), node("MaxUnpool", ["most", "where"], ["unpooled"], **windows)]
    made = [("elements", 1, [9]), ("nd", 1, [9]), ("sums", 1, [9]), ("unpooled", 1, ["b", 2, 4, 6])]
    graph = onnx.helper.make_graph(nodes, "scatters", [info("x", 1, ["b"]), info("z", 1, ["b", 2, 4, 6])], [info(*m) for m in made], numbers)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    kiln, made, wrong = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), []
    for name, ranges, shapes in CASES:
        if not (made / f"{name}.weights").exists():
            weights.fill(ROOT / "models", made, name)
        with tempfile.TemporaryDirectory() as folder:
            wrong += check(kiln, made / f"{name}.onnx", ranges, shapes, pathlib.Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        for has_kernel in (False, True):
            model = pathlib.Path(folder) / f"extents_{has_kernel}.onnx"
            extents_model(model, has_kernel)
            wrong += check(kiln, model, ["b=1..6"], [{"b": n} for n in (6, 3, 1, 2, 5)], pathlib.Path(folder))
            wrong += check(kiln, model, ["b=4"], [{"b": 4}], pathlib.Path(folder))
        model = pathlib.Path(folder) / "scatters.onnx"
        scatters_model(model)
        wrong += check(kiln, model, ["b=1..8"], [{"b": n} for n in (3, 8, 1, 6, 2, 5)], pathlib.Path(folder))
    for text in wrong:
        print(text, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
