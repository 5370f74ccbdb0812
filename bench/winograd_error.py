#!/usr/bin/env python3
"""Errors of Winograd's convolutions beside those of plain sums, on data of many kinds, outliers among them.

usage: winograd_error.py [--kiln build/kiln] [--seed S] [--tiles N]

An error is counted in units of u * sum(|w| |x|) over the terms of the output, u = 2^-24: the largest over the outputs of
each kind of data. The first table emulates F(4x4, 3x3) of one tile in f32, without a guard, by how many times the sum of
the squares of the tile's data exceeds the least of its windows: `spread` in src/template/cpu/winograd_plan.c was chosen by it.
The second runs convolutions with Kiln, which computes the tiles that exceed it by plain sums, beside --no-winograd.
Needs numpy and onnx.
"""
import argparse
import pathlib
import subprocess
import tempfile

import numpy as np
import onnx
from onnx import helper as h
from onnx import numpy_helper as nh

R = np.sqrt(2)
INPUT = np.array([[1, 0, -2.5, 0, 1, 0], [0, -R, -2, R / 2, 1, 0], [0, R, -2, -R / 2, 1, 0],
                  [0, -R / 2, -.5, R, 1, 0], [0, R / 2, -.5, -R, 1, 0], [0, 1, 0, -2.5, 0, 1]])
KERNEL = np.array([[1, 0, 0], [-2 / 3, -R / 3, -1 / 3], [-2 / 3, R / 3, -1 / 3], [1 / 6, R / 6, 1 / 3],
                   [1 / 6, -R / 6, 1 / 3], [0, 0, 1]])
OUTPUT = np.array([[1, 1, 1, 1, 1, 0], [0, R / 2, -R / 2, R, -R, 0], [0, .5, .5, 2, 2, 0],
                   [0, R / 4, -R / 4, 2 * R, -2 * R, 1]])
BINS = [5, 8, 16, 32, 64, 128, 256, 512, 1024, 1e5, 1e12]


# --- kinds of data, (n, c, h, w) ---

def gauss(rng, s):
    return rng.standard_normal(s)


def relu(rng, s):
    return np.maximum(rng.standard_normal(s), 0)


def lognormal(rng, s):
    return np.exp(2 * rng.standard_normal(s))


def student(rng, s):
    return rng.standard_t(2, s)


def uneven(rng, s):
    """Pixels whose scale changes over the image by orders of magnitude."""
    steps = rng.standard_normal((s[0], 1) + s[2:]) * .35
    return rng.standard_normal(s) * np.exp(np.cumsum(np.cumsum(steps, 2), 3))


def outlier(rng, s):
    """One element of each image is up to 10^6 times the others."""
    x = rng.standard_normal(s)
    x[np.arange(s[0]), rng.integers(0, s[1], s[0]), rng.integers(0, s[2], s[0]), rng.integers(0, s[3], s[0])] = \
        10 ** rng.uniform(0, 6, s[0])
    return x


KINDS = (gauss, relu, lognormal, student, uneven, outlier)


# --- one tile, emulated ---

def along(matrix, x, axis, dtype):
    """matrix times x along |axis|, each step rounded to |dtype|."""
    x = np.moveaxis(x, axis, 0)
    out = np.zeros((matrix.shape[0],) + x.shape[1:], dtype)
    for i, row in enumerate(matrix.astype(dtype)):
        for a, factor in enumerate(row):
            out[i] += factor * x[a]
    return np.moveaxis(out, 0, axis)


def transformed(x, w):
    u = along(KERNEL, along(KERNEL, w.astype(float), 2, float), 3, float).astype("f4")
    v = along(INPUT, along(INPUT, x, 2, "f4"), 3, "f4")
    m = np.zeros((x.shape[0], w.shape[0], 6, 6), "f4")
    for c in range(x.shape[1]):
        m += v[:, None, c] * u[None, :, c]
    return along(OUTPUT, along(OUTPUT, m, 2, "f4"), 3, "f4")


def plain(x, w, dtype):
    rows, columns = x.shape[2] - 2, x.shape[3] - 2
    out = np.zeros((x.shape[0], w.shape[0], rows, columns), dtype)
    x, w = x.astype(dtype), w.astype(dtype)
    for a in range(3):
        for b in range(3):
            for c in range(x.shape[1]):
                out += x[:, None, c, a:a + rows, b:b + columns] * w[None, :, c, a, b, None, None]
    return out


def units(got, x, w):
    return np.abs(got - plain(x, w, float)) / (plain(np.abs(x), np.abs(w), float) * 2.0**-24 + 1e-300)


def emulate(rng, tiles):
    print("emulated, without a guard: Winograd's largest error / that of plain sums, by the spread of the tile's squares")
    print(f"{'C':>4} {'data':10}" + "".join(f"{f'< {b:g}':>12}" for b in BINS))
    for c in (3, 16, 64, 256):
        for kind in KINDS:
            n = max(4, tiles * 3 // c)
            x, w = kind(rng, (n, c, 6, 6)).astype("f4"), rng.standard_normal((8, c, 3, 3)).astype("f4")
            squares = (x.astype(float)**2).sum(1)
            windows = sum(squares[:, a:a + 4, b:b + 4] for a in range(3) for b in range(3))
            corners = windows[:, 0, 0] + windows[:, 0, 3] + windows[:, 3, 0] + windows[:, 3, 3]
            spread = corners / windows.min((1, 2))
            winograd, sums = (units(y, x, w).max((1, 2, 3)) for y in (transformed(x, w), plain(x, w, "f4")))
            cells = []
            for low, high in zip([0] + BINS, BINS):
                k = (spread >= low) & (spread < high)
                cells.append(f"{winograd[k].max():.0f} / {sums[k].max():.0f}" if k.any() else "-")
            print(f"{c:4} {kind.__name__:10}" + "".join(f"{x:>12}" for x in cells), flush=True)


# --- whole convolutions, by Kiln ---

def measure(rng, kiln):
    print("\nKiln, one thread: largest error by default / with --no-winograd, both in u sum(|w| |x|)")
    shapes = [(int(rng.integers(1, 3)), *(int(v) for v in rng.integers(16, 97, 2)), *(int(v) for v in rng.integers(14, 60, 2)))
              for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        d = pathlib.Path(folder)
        for n, c, k, rows, columns in shapes:
            w = (rng.standard_normal((k, c, 3, 3)) / np.sqrt(9 * c)).astype("f4")
            graph = h.make_graph([h.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], "g",
                                 [h.make_tensor_value_info("x", 1, [n, c, rows, columns])],
                                 [h.make_tensor_value_info("y", 1, None)], [nh.from_array(w, "w")])
            onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8), d / "m.onnx")
            cells = []
            for kind in KINDS:
                x = kind(rng, (n, c, rows, columns)).astype("f4")
                np.save(d / "x.npy", x)
                worst = []
                for options in ([], ["--no-winograd"]):
                    subprocess.run([kiln, "run", d / "m.onnx", "--input", f"x={d}/x.npy", "--outputs", d / "out.npz",
                                    "--threads", "1", "--no-cache", *options], check=True, capture_output=True)
                    got = np.load(d / "out.npz")["y"]
                    worst.append(units(got, np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w).max())
                cells.append(f"{kind.__name__} {worst[0]:.0f} / {worst[1]:.0f}")
            print(f"{n} x {c} x {rows} x {columns} to {k}: " + ", ".join(cells), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kiln", default="build/kiln")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--tiles", type=int, default=400)
    a = p.parse_args()
    rng = np.random.default_rng(a.seed)
    emulate(rng, a.tiles)
    measure(rng, a.kiln)


if __name__ == "__main__":
    main()
