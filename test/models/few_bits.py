#!/usr/bin/env python3
"""Products with weights of few bits, of random forms and sizes, against sums in double precision with a bound from their terms.

usage: few_bits.py KILN [--seed N] [--cases N] [--target T]     in the Python environment of `make test`

MatMulNBits of 2, 4 and 8 bits and DequantizeLinear of int4 and uint4 in front of a MatMul: rows from 1 to 64 and more, columns and
depths that fill no tile and no block, blocks of 16 to 256, scales in f32 and f16, zero points that are packed, of real numbers, or
none; rows of zeros and of NaN. A sum of n terms differs by at most n + 8 roundings of the sum of their absolute values, of codes
and zero points apart. With accuracy_level 4 a number of a block may differ by half of the block's largest one over 127, too, as
ONNX Runtime rounds it.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

ROUNDING = {numpy.float32: 2.0 ** -24, numpy.float16: 2.0 ** -11}


def packed(codes, bits):
    """Numbers of few bits, the first in the low ones of a byte, along the last axis."""
    per = 8 // bits
    wide = numpy.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per) * per), numpy.uint8)
    wide[..., :codes.shape[-1]] = codes
    parts = wide.reshape(*wide.shape[:-1], -1, per) << (numpy.arange(per, dtype=numpy.uint8) * bits)
    return numpy.bitwise_or.reduce(parts, -1).astype(numpy.uint8)


class Case:
    """A random product: x (rows, k), codes and zero points (n, k), scales (n, k)."""

    def __init__(self, rng):
        self.rng = rng
        self.rows = int(rng.choice([1, 1, 2, 3, 5, 7, 16, 31, int(rng.integers(1, 65)), int(rng.integers(65, 200))]))
        self.n = int(rng.choice([1, 7, 32, 64, 96, int(rng.integers(1, 200))]))
        self.k = int(rng.choice([16, 33, 255, 256, 384, int(rng.integers(1, 600))]))
        self.block = int(rng.choice([16, 32, 64, 128, 256]))
        self.bits = int(rng.choice([2, 4, 4, 4, 8]))
        self.level = int(rng.choice([0, 1, 4, 4]))
        self.dtype = [numpy.float32, numpy.float16][int(rng.random() < 0.3)]
        self.zeros = str(rng.choice(["none", "packed", "real"]))
        self.blocks = -(-self.k // self.block)
        self.x = rng.standard_normal((self.rows, self.k)).astype(self.dtype)
        if rng.random() < 0.3:
            self.x[rng.integers(self.rows)] = rng.choice([0, 1e-6, numpy.nan])
            self.x[rng.integers(self.rows), :self.block] = 0
        whole = [d for d in range(1, self.rows + 1) if self.rows % d == 0]
        part = int(rng.choice(whole))
        self.lead = [[self.rows], [self.rows], [1, self.rows], [part, self.rows // part]][int(rng.integers(0, 4))]
        self.codes = rng.integers(0, 2 ** self.bits, (self.n, self.blocks * self.block)).astype(numpy.uint8)
        self.scales = (rng.standard_normal((self.n, self.blocks)) / 16).astype(self.dtype)

    def __str__(self):
        return (f"{self.lead} x {self.k} x {self.n}, {self.bits} bits, blocks of {self.block}, level {self.level}, {numpy.dtype(self.dtype).name}, "
                f"zero points: {self.zeros}")

    def spread(self, by_block):
        return numpy.repeat(by_block.astype(numpy.float64), self.block, 1)[:, :self.k]

    def quantised(self, x):
        """What numbers may differ by that are rounded to a block's largest over 127: half of it, and a rounding of the step."""
        wide = numpy.zeros((self.rows, self.blocks * self.block))
        wide[:, :self.k] = abs(x)
        steps = wide.reshape(self.rows, self.blocks, self.block).max(2) / 127
        return numpy.repeat(steps, self.block, 1)[:, :self.k] * (0.5 + 2.0 ** -14)

    def expected(self, points):
        x, codes = self.x.astype(numpy.float64), self.codes[:, :self.k].astype(numpy.float64)
        scales, points = self.spread(self.scales), self.spread(points)
        want = x @ ((codes - points) * scales).T
        terms = abs(x) @ ((codes + abs(points)) * abs(scales)).T
        bound = (self.k + 8) * 2.0 ** -24 * terms
        if self.level == 4:
            bound += self.quantised(x) @ ((codes + abs(points)) * (self.k + 8) * 2.0 ** -24 * abs(scales)).T
            bound += self.quantised(x) @ (abs(codes - points) * abs(scales)).T
        return want, bound + ROUNDING[self.dtype] * abs(want) + (2.0 ** -25 if self.dtype == numpy.float16 else 0)

    def nbits(self):
        codes = packed(self.codes.reshape(self.n, self.blocks, self.block), self.bits)
        held, points = [numpy_helper.from_array(codes, "b"), numpy_helper.from_array(self.scales, "s")], None
        if self.zeros == "packed":
            points = self.rng.integers(0, 2 ** self.bits, (self.n, self.blocks))
            held.append(numpy_helper.from_array(packed(points.astype(numpy.uint8), self.bits), "z"))
        elif self.zeros == "real":
            points = (self.rng.standard_normal((self.n, self.blocks)) + 2 ** (self.bits - 1)).astype(self.dtype)
            held.append(numpy_helper.from_array(points, "z"))
        else:
            points = numpy.full((self.n, self.blocks), 2 ** (self.bits - 1))
        node = helper.make_node("MatMulNBits", ["x", *[t.name for t in held]], ["y"], domain="com.microsoft", K=self.k, N=self.n,
                                bits=self.bits, block_size=self.block, accuracy_level=self.level)
        return [node], held, points

    def dequantized(self):
        """The same by DequantizeLinear, scales of columns or of blocks along k, in f32."""
        self.bits, self.dtype, self.level = 4, numpy.float32, 0
        self.x, self.scales = self.x.astype(numpy.float32), self.scales.astype(numpy.float32)
        is_signed, by_column = self.rng.random() < 0.5, self.rng.random() < 0.3
        self.codes %= 16
        points = self.rng.integers(0, 16, (self.n, self.blocks))
        if self.zeros == "none":
            points[:] = 8 if is_signed else 0
        if by_column:
            self.scales[:], points[:] = self.scales[:, :1], points[:, :1]
        kind, shift = (TensorProto.INT4, 8) if is_signed else (TensorProto.UINT4, 0)
        def codes_of(name, values):
            array = values.astype(numpy.int64) - shift
            return helper.make_tensor(name, kind, array.shape, packed((array & 15).astype(numpy.uint8).reshape(1, -1), 4).tobytes(), raw=True)
        part = (lambda a: a[:, 0]) if by_column else (lambda a: a.T)
        held = [codes_of("b", self.codes[:, :self.k].T), numpy_helper.from_array(part(self.scales).copy(), "s")]
        if self.zeros != "none":
            held.append(codes_of("z", part(points)))
        about = dict(axis=1) if by_column else dict(axis=0, block_size=self.block)
        return [helper.make_node("DequantizeLinear", [t.name for t in held], ["w"], **about),
                helper.make_node("MatMul", ["x", "w"], ["y"])], held, points

    def check(self, kiln, target, folder):
        nodes, held, points = self.dequantized() if self.rng.random() < 0.3 else self.nbits()
        t = helper.np_dtype_to_tensor_dtype(numpy.dtype(self.dtype))
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", t, [*self.lead, self.k])],
                                  [helper.make_tensor_value_info("y", t, [*self.lead, self.n])], held)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "m.onnx")
        numpy.save(folder / "x.npy", self.x.reshape(*self.lead, self.k))
        made = subprocess.run([kiln, "run", folder / "m.onnx", f"--input=x={folder / 'x.npy'}", "--output-dir", folder, "--no-cache",
                               "--quiet", f"--target={target}"], capture_output=True, text=True)
        if made.returncode:
            return made.stderr.strip()
        got, (want, bound) = numpy.load(folder / "y.npy").astype(numpy.float64).reshape(self.rows, self.n), self.expected(points)
        wrong = ~(abs(got - want) <= bound) & ~(numpy.isnan(got) & numpy.isnan(want))
        if not wrong.any():
            return None
        at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
        return f"y{at}: must be {want[at]:.9g} within {bound[at]:.3g}, got {got[at]:.9g}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("kiln")
    ap.add_argument("--seed", type=int, default=time.time_ns() % 2 ** 32)
    ap.add_argument("--cases", type=int, default=40)
    ap.add_argument("--target", default="cpu")
    args = ap.parse_args()
    print(f"seed {args.seed}")
    rng, failed = numpy.random.default_rng(args.seed), 0
    for i in range(args.cases):
        case = Case(rng)
        with tempfile.TemporaryDirectory() as folder:
            wrong = case.check(args.kiln, args.target, pathlib.Path(folder))
        if wrong:
            failed += 1
            print(f"case {i}: {case}: FAILED: {wrong}", flush=True)
    print(f"{args.cases - failed} of {args.cases} are right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
