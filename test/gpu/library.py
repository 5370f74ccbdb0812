#!/usr/bin/env python3
"""Compiles models for a GPU with the kernels of a library, measured and not, and compares with the reference interpreter.

usage: library.py KILN                      on this machine's NVIDIA GPU; skipped where there is none
       library.py KILN FAKES WORKER         on the stand-ins in the folder FAKES: kernels of Kiln's own are refused there
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SKIP = 77
MISSING = ("libcuda.so.1 must be installed", "there must be an NVIDIA GPU", "the library NVRTC must be found", "name its file:")
# of the rounding of what is stored, and of the bias where that is halves as well
TOLERANCES = {None: ("1e-4", "1e-5"), "tf32": ("1e-2", "1e-2"), "f16": ("1e-2", "1e-2"), "bf16": ("8e-2", "8e-2")}
GROUPS = "groups"


def matrix(random, *shape):
    return (random.standard_normal(shape) * 0.1).astype(np.float32)


def save(folder, name, nodes, inputs, output, constants):
    def info(n, shape):
        return helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)

    graph = helper.make_graph(nodes, name, [info(n, s) for n, s in inputs.items()], [info("y", output)],
                              [numpy_helper.from_array(v, n) for n, v in constants.items()])
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def models(folder):
    """Models of one kernel each, channels last of a copy to the result besides: the library, what of it they need, and the model."""
    for what, model in products(folder):
        yield "cublaslt", what, model
    for what, model in convolutions(folder):
        yield "cudnn", what, model


def products(folder):
    random = np.random.default_rng(3)
    node = helper.make_node
    layer = [node("MatMul", ["x", "w"], ["t"]), node("Add", ["t", "b"], ["u"])]
    yield "a bias and relu", save(folder, "relu", layer + [node("Relu", ["u"], ["y"])], {"x": [96, 200]}, [96, 128],
                                  {"w": matrix(random, 200, 128), "b": matrix(random, 128)})
    yield "a bias and a residual", save(folder, "residual", layer + [node("Add", ["u", "r"], ["y"])],
                                        {"x": [2, 48, 256], "r": [2, 48, 128]}, [2, 48, 128],
                                        {"w": matrix(random, 256, 128), "b": matrix(random, 128)})
    gelu = [node("Gelu", ["u"], ["y"], approximate="tanh")]
    yield "a bias and gelu", save(folder, "gelu", layer + gelu, {"x": [96, 200]}, [96, 128],
                                  {"w": matrix(random, 200, 128), "b": matrix(random, 128)})
    yield "a batch", save(folder, "batch", [node("MatMul", ["q", "k"], ["y"])], {"q": [2, 4, 64, 32], "k": [2, 4, 32, 64]}, [2, 4, 64, 64], {})
    yield "sides that no tile divides", save(folder, "odd", layer[:1] + [node("Add", ["t", "b"], ["y"])], {"x": [50, 37]}, [50, 45],
                                             {"w": matrix(random, 37, 45), "b": matrix(random, 45)})
    yield "transposed operands", save(folder, "turned", [node("Gemm", ["x", "w", "b"], ["y"], transA=1, transB=1, alpha=0.5)], {"x": [64, 80]},
                                      [80, 96], {"w": matrix(random, 96, 64), "b": matrix(random, 96)})
    # few enough operations for the interpreter, also where the row is padded to the 16 of tensor cores
    yield "one row", save(folder, "row", layer[:1] + [node("Add", ["t", "b"], ["y"])], {"x": [1, 128]}, [1, 200],
                          {"w": matrix(random, 128, 200), "b": matrix(random, 200)})


def convolutions(folder):
    random = np.random.default_rng(4)
    node = helper.make_node

    def convolution(name, channels, results, kernel, size, behind=(), others={}, is_last=False, **attributes):
        groups, strides, dilations = attributes.get("group", 1), attributes.get("strides", [1, 1]), attributes.get("dilations", [1, 1])
        pads = attributes.get("pads", [0] * 4)
        out = [(size[i] + pads[i] + pads[i + 2] - (kernel - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(2)]
        first, y = [2, channels, *size], [2, results, *out]
        nodes = [node("Conv", ["c" if is_last else "x", "w", "b"], ["t"], **attributes)]
        nodes += [node(kind, read, ["v" if is_last and made == "y" else made]) for kind, read, made in behind]
        if is_last:
            nodes = [node("Transpose", ["x"], ["c"], perm=[0, 3, 1, 2]), *nodes, node("Transpose", ["v"], ["y"], perm=[0, 2, 3, 1])]
            first, y = [2, *size, channels], [2, *out, results]
        inputs = {"x": first, **{n: y for n in others}}
        return save(folder, name, nodes, inputs, y, {"w": matrix(random, results, channels // groups, kernel, kernel), "b": matrix(random, results)})

    relu, same = [("Relu", ["t"], "y")], {"pads": [1] * 4}
    yield "channels last", convolution("last", 16, 24, 3, [10, 12], relu, is_last=True, **same)
    yield "channels first", convolution("first", 16, 24, 3, [10, 12], relu, **same)
    yield "a residual", convolution("sum", 16, 24, 3, [10, 12], [("Add", ["t", "r"], "u"), ("Relu", ["u"], "y")], {"r"}, **same)
    yield "steps of two", convolution("steps", 8, 24, 5, [14, 12], relu, is_last=True, strides=[2, 2], pads=[2] * 4)
    yield "rows that are not read to their end", convolution("rest", 8, 24, 3, [10, 12], relu, strides=[2, 2])
    yield GROUPS, convolution("groups", 32, 32, 3, [10, 12], relu, is_last=True, group=2, **same)
    yield "holes, and uneven sides", convolution("holes", 16, 24, 3, [11, 12], relu, is_last=True, dilations=[2, 2], pads=[2, 1, 1, 2])


class Command:
    def __init__(self, kiln, fakes, worker, folder):
        self.kiln, self.folder = kiln, folder
        self.target = "cuda:sm_90a" if fakes else "cuda"
        self.compiling, self.running = dict(os.environ, KILN_CACHE_DIR=""), dict(os.environ, KILN_CACHE_DIR="")
        if not fakes:
            return
        # NVRTC looks for a driver, too, and must not find the stand-in.
        script = folder / "worker.sh"
        script.write_text(f'#!/bin/sh\nexport LD_LIBRARY_PATH="{fakes}" FAKE_CUDA_BYTES=1000000000\nexec "{worker}" "$@"\n')
        script.chmod(0o755)
        self.compiling.update(KILN_WORKER=str(script), KILN_CUBLASLT=f"{fakes}/libcublasLt.so.13", KILN_CUDNN=f"{fakes}/libcudnn.so.9")
        self.running.update(LD_LIBRARY_PATH=str(fakes), FAKE_CUDA_BYTES="1000000000")

    def __call__(self, env, *arguments):
        done = subprocess.run([str(a) for a in (self.kiln, *arguments, f"--target={self.target}")], capture_output=True, text=True, env=env)
        return done.returncode, done.stdout + done.stderr


def check(command, backend, model, dtype, is_fake):
    """What is wrong, or None."""
    folder = command.folder
    how = [f"--dtype={dtype}"] if dtype else []
    rtol, atol = TOLERANCES[dtype]
    near = ["--rtol", rtol, "--atol", atol, f"--backends={backend},always"]
    code, text = command(command.compiling, "compile", model, *how, f"--backends={backend},always", "-o", folder / "m.kmod")
    runs = [["verify"], ["run", "--reference"]]
    if is_fake and "1 of 1 kernels" not in text:
        runs = []  # the stand-in for a driver runs no kernel of Kiln's
    for run in runs:
        if code == 0 and f"by {backend}" in text:
            code, text = command(command.running, *run, model, *how, *near)
    if code or f"by {backend}" not in text:
        return text or f"ended with {code}"
    results = ["--tuned", folder / "tuned.sqlite", "-o", folder / "m.kmod"]
    code, text = command(command.compiling, "compile", model, *how, f"--backends={backend}", "--tune", "1", *results)
    if code or "1 that they have kernels for" not in text:
        return text
    won = f"by {backend}: " in text
    if is_fake and not won:
        return text
    code, text = command(command.compiling, "compile", model, *how, f"--backends={backend}", *results)  # as it is known
    return text or f"ended with {code}" if code or won != (f"by {backend}: " in text) else None


def main():
    kiln, fakes, worker = (sys.argv[1:] + [None, None])[:3]
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        command = Command(kiln, fakes and pathlib.Path(fakes).resolve(), worker and pathlib.Path(worker).resolve(), pathlib.Path(scratch))
        for backend, what, model in models(pathlib.Path(scratch)):
            for dtype in (None, "f16") if fakes else TOLERANCES:
                if what == GROUPS and dtype in ("f16", "bf16"):
                    continue  # their sums are stored in f32, which no library is offered
                text = check(command, backend, model, dtype, bool(fakes))
                if text and any(m in text for m in MISSING):
                    print("skipped:", text.strip().splitlines()[-1])
                    return SKIP
                wrong += text is not None
                print("ok   " if text is None else "WRONG", backend, dtype or "f32", what, (text or "").strip()[-500:], flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
