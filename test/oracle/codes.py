#!/usr/bin/env python3
"""Casts to and from the types of 8 bits and fewer, against ml_dtypes by way of ONNX's numpy_helper.

usage: codes.py KILN      runs in .venv, which `make test` makes

Every code is cast to float32; all float32 numbers beside a code's, between it and the next one, and random
ones of all exponents, are cast to the type, with and without saturation.
"""
import os
import pathlib
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

FLOATS = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]
SHORT = ["FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2"]
POWERS = ["FLOAT8E8M0"]
BITS = {"FLOAT4E2M1": 4, "INT4": 4, "UINT4": 4, "INT2": 2, "UINT2": 2}


def dtype(name):
    return helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))


def all_codes(name):
    t = dtype(name)
    return np.arange(2 ** BITS.get(name, 8), dtype=np.uint8).view(t)


def around(name):
    """Numbers at and between the codes of a type, and random ones."""
    codes = all_codes(name).astype(np.float32)
    codes = np.unique(codes[np.isfinite(codes)])
    middles = (codes[1:].astype(np.float64) + codes[:-1]).astype(np.float32) / np.float32(2)
    rng = np.random.default_rng(5)
    wild = rng.integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = rng.normal(size=20000).astype(np.float32) * np.exp2(rng.integers(-20, 20, 20000)).astype(np.float32)
    points = [codes, middles, np.nextafter(middles, np.float32(-np.inf)), np.nextafter(middles, np.float32(np.inf)),
              codes * np.float32(1.5), wild, near, np.float32([0.0, -0.0, np.inf, -np.inf, np.nan])]
    return np.concatenate(points)


def by_kiln(kiln, x_name, x, to, attributes):
    """|x| cast, as a tensor file of ONNX's format through the command."""
    with tempfile.TemporaryDirectory() as room:
        case = pathlib.Path(room) / "test_case"
        data = case / "test_data_set_0"
        data.mkdir(parents=True)
        want = attributes.pop("want")
        node = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, to), **attributes)
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", getattr(TensorProto, x_name), x.shape)],
                                  [helper.make_tensor_value_info("y", getattr(TensorProto, to), x.shape)])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11), case / "model.onnx")
        (data / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
        (data / "output_0.pb").write_bytes(numpy_helper.from_array(want, "y").SerializeToString())
        done = subprocess.run([kiln, "test", str(case), "--rtol=0", "--atol=0"], capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr


def check(kiln, x_name, x, to, want, **attributes):
    right, said = by_kiln(kiln, x_name, x, to, {**attributes, "want": want})
    if not right:
        print(f"{x_name} to {to} {attributes}: {said}")
    return right


def main():
    kiln = sys.argv[1]
    right = True
    for name in FLOATS + SHORT + POWERS:
        codes = all_codes(name)
        right &= check(kiln, name, codes, "FLOAT", codes.astype(np.float32))
    for name in FLOATS:
        x = around(name)
        right &= check(kiln, "FLOAT", x, name, x.astype(dtype(name)), saturate=0)
        right &= check(kiln, "FLOAT", x, name, numpy_helper.saturate_cast(x, dtype(name)))
    x = around("FLOAT4E2M1")
    right &= check(kiln, "FLOAT", x, "FLOAT4E2M1", x.astype(dtype("FLOAT4E2M1")))
    for name in SHORT[1:]:
        x = np.arange(-20, 21, 0.5, dtype=np.float32)
        right &= check(kiln, "FLOAT", x, name, np.trunc(x).astype(np.int32).astype(dtype(name)))
        x = np.arange(-40, 40, dtype=np.int32)
        right &= check(kiln, "INT32", x, name, x.astype(dtype(name)))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
