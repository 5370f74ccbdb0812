#!/usr/bin/env python3
"""Every kind of bad input through the `kiln` command: each must give its message and its exit code (0 right, 1 mismatch,
unsupported or bad input, 2 usage), never crash, and leak nothing when the command is built with the sanitizers.

usage: bad_input.py KILN [-k SUBSTRING]

One row a case: name, arguments, exit code, pattern of stderr. In the arguments {NAME} is the path of file NAME of FILES
(made on first use), {dir} the scratch folder. Needs the standard library only: the ONNX files are written here.
"""
import concurrent.futures
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

F32, I64 = 1, 7


# --- protobuf and ONNX, as far as the cases need them

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(number, values):
    return b"".join(field(number, v) for v in values)


def value_info(name, shape, dtype=F32):
    dims = fields(1, [field(2 if isinstance(d, str) else 1, d) for d in shape])
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims)))


def node(op, inputs, outputs, name="", domain=""):
    return fields(1, inputs) + fields(2, outputs) + field(3, name) + field(4, op) + field(7, domain)


def tensor(name, shape, raw=None, external=None, dtype=F32):
    out = fields(1, shape) + field(2, dtype) + field(8, name)
    if raw is not None:
        out += field(9, raw)
    for key, value in (external or {}).items():
        out += field(13, field(1, key) + field(2, str(value)))
    return out + (field(14, 1) if external else b"")


def model(nodes, inputs=(("x", (2, 4)),), outputs=(("y", (2, 4)),), initializers=(), opsets=(("", 17),)):
    """The graph comes last, so that every cut of the file cuts it."""
    graph = fields(1, nodes) + field(2, "g") + fields(5, initializers)
    graph += fields(11, [value_info(*i) for i in inputs]) + fields(12, [value_info(*o) for o in outputs])
    heads = [(field(1, d) if d else b"") + field(2, v) for d, v in opsets]
    return field(1, 8) + fields(8, heads) + field(7, graph)


def weighted(weight):
    return model([node("MatMul", ["x", "w"], ["y"], "product")], initializers=[weight])


def npy(shape, descr="<f4", data=None):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}\n".encode()
    count = 1
    for extent in shape:
        count *= extent
    body = bytes(count * int(descr[2:])) if data is None else data
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + body


def noise(n):
    return random.Random(n).randbytes(64 + 37 * n)


def damaged(data, seed):
    r, out = random.Random(seed), bytearray(data)
    for _ in range(r.randint(1, 6)):
        out[r.randrange(len(out))] = r.randrange(256)
    return bytes(out)


RELU = model([node("Relu", ["x"], ["y"], "relu")])
MATMUL = weighted(tensor("w", (4, 4), struct.pack("<16f", *range(16))))
MATMUL_TC = b"""def matmul(float(M, K) A, float(K, N) B) -> (C) {
  C(m, n) +=! A(m, k) * B(k, n)
}
"""
MM = "{mm.tc} --size M=4 --size K=4 --size N=4"
FILES = {
    "relu.onnx": RELU,
    "mm.tc": MATMUL_TC,
    "pack.tc": b"def f(float(N...) X) -> (Y) { Y(i...) = 2 * X(i...) }\n",
    "syntax.tc": MATMUL_TC.replace(b"+=!", b"+!"),
    "range.tc": MATMUL_TC.replace(b"B(k, n)", b"B(k + 1, n) where k in 0:K"),
    "dependent.tc": b"def f(float(N) X) -> (Y) { Y(i) +=! X(k) where i in 0:N, k in 0:i + 1 }\n",
    "ranks.tc": b"def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i, j) = X(i) * X(j) }\n",
    "sized.tc": b"def f(float(N) X) -> (Y) { Y(N) = X(N) }\n",
    "reach.tc": b"def f(float(N) X) -> (Y) { Y = repeat_edge(X, 1, 1) }\n",
    "lowest.tc": b"def f(float(N) X) -> (Y) { Y(i) = max(lowest(float), X(i)) }\n",
    "recurrent.tc": b"def f(float(N) S) -> (H) { H(i) = max(H(i - 1) + S(i), 0) }\n",
    "zero.tc": b"def f\0",
    "nothing.tc": b"# nothing\n",
    "empty.tc": b"",
    "unbound.tc": b'onnx Swish 1.. domain "my.domain"\ndef f(float(N) X) -> (Y) { Y(i) = Z(i) }\n',
    "good.sched": b"split C.m 8 guard a b\n",
    "word.sched": b"# one\nsplitt C.m 8 guard a b\n",
    "loop.sched": b"split C.q 8 guard a b\n",
    "holes.sched": b"split C.m ?{4,8} guard a b\n",
    "open.sched": b"split C.m ?{4,8 guard a b\n",
    "kernel.sched": b"kernel k0_contract_matmull\n",
    "noname.sched": b"kernel\n",
    "twice.sched": b"kernel a\nkernel a\n",
    "zero.sched": b"split\0",
    "matmul.onnx": MATMUL,
    "named.onnx": model([node("Relu", ["x"], ["y"])], [("x", ("batch", 4))], [("y", ("batch", 4))]),
    "empty.onnx": b"",
    "text.onnx": b"This is no model.\n",
    "no_graph.onnx": field(1, 8) + field(8, field(2, 17)),
    "future_opset.onnx": model([node("Relu", ["x"], ["y"])], opsets=[("", 9999)]),
    "no_opset.onnx": model([node("Relu", ["x"], ["y"])], opsets=()),
    "cycle.onnx": model([node("Add", ["x", "b"], ["a"], "first"), node("Relu", ["a"], ["b"], "second"),
                         node("Relu", ["b"], ["y"], "third")]),
    "self_cycle.onnx": model([node("Add", ["x", "y"], ["y"], "ouroboros")]),
    "twice.onnx": model([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]),
    "no_output.onnx": model([node("Relu", ["x"], ["z"])]),
    "missing_file.onnx": weighted(tensor("w", (4, 4), external={"location": "absent.bin", "offset": 0, "length": 64})),
    "past_end.onnx": weighted(tensor("w", (4, 4), external={"location": "small.bin", "offset": 4096, "length": 64})),
    "short.onnx": weighted(tensor("w", (4, 4), external={"location": "small.bin", "offset": 0, "length": 64})),
    "huge_offset.onnx": weighted(tensor("w", (4, 4), external={"location": "small.bin", "offset": 2**63 - 16,
                                                               "length": 64})),
    "negative_offset.onnx": weighted(tensor("w", (4, 4), external={"location": "small.bin", "offset": -64})),
    "escape.onnx": weighted(tensor("w", (4, 4), external={"location": "../small.bin"})),
    "small.bin": bytes(32),
    "negative.onnx": model([node("Relu", ["x"], ["y"])], [("x", (2, -3))], [("y", (2, -3))]),
    "overflow.onnx": model([node("Relu", ["x"], ["y"])], [("x", (2**40, 2**40))], [("y", (2**40, 2**40))]),
    "negative_weight.onnx": weighted(tensor("w", (4, -4), bytes(64))),
    "overflow_weight.onnx": weighted(tensor("w", (2**33, 2**33), bytes(64))),
    "short_weight.onnx": weighted(tensor("w", (4, 4), bytes(60))),
    "missing_weight.onnx": model([node("MatMul", ["x", "w"], ["y"], "product")]),
    "shapes.onnx": weighted(tensor("w", (5, 4), bytes(80))),
    "unknown_op.onnx": model([node("Frobnicate", ["x"], ["a"], "strange"), node("Relu", ["a"], ["b"], "fine"),
                              node("Defenestrate", ["b"], ["y"], "stranger")]),
    "unknown_domain.onnx": model([node("Relu", ["x"], ["a"], "foreign", "com.example"),
                                  node("Warp", ["a"], ["y"], "other", "com.example")],
                                 opsets=[("", 17), ("com.example", 1)]),
    "undeclared_domain.onnx": model([node("Relu", ["x"], ["y"], "foreign", "com.example")]),
    "x.npy": npy((2, 4)),
    "i64.npy": npy((2, 4), "<i8"),
    "rank.npy": npy((8,)),
    "shape.npy": npy((4, 2)),
    "ones.npy": npy((2, 4), data=struct.pack("<8f", *[1] * 8)),
    "cut.npy": npy((2, 4))[:-5],
    "text.npy": b"1 2 3\n",
    "complex.npy": npy((2, 4), "<c8"),
    "negative.npy": npy((2, 4)).replace(b"(2, 4)", b"(2,-4)"),
    "huge.npy": npy((2**62, 4), data=bytes(32)),
    "text.npz": b"PK, but no archive\n",
    "text.pb": b"This is no tensor.\n",
    "text.so": b"This is no module.\n",
}

LOADED = ("check", "compile", "run")  # all must refuse a bad model in the same words
MODELS = [
    # name, file, pattern of stderr
    ("missing model", "{dir}/absent.onnx", r"absent\.onnx: error: file: must be readable, got: .*No such file"),
    ("missing definition", "{dir}/absent.tc", r"absent\.tc: error: file: must be readable, got: .*No such file"),
    ("definition with a wrong syntax", "{syntax.tc}", r"syntax\.tc:2:\d+: error: "),
    ("zero byte in a definition", "{zero.tc}", r"zero\.tc: error: file: must be text, got a zero byte"),
    ("file without a definition", "{nothing.tc}", r"nothing\.tc: error: must have a definition, got none"),
    ("empty definition", "{empty.tc}", r"empty\.tc: error: must have a definition, got none"),
    ("folder as model", "{dir}", r"error: file: must be readable, got: "),
    ("empty file", "{empty.onnx}", r"empty\.onnx: error: file: must be readable, got: an empty file"),
    ("text", "{text.onnx}", r"text\.onnx: byte 0: error: ModelProto: .*this is no ONNX file"),
    ("no graph", "{no_graph.onnx}", r"error: graph: must have an output, got no graph"),
    ("opset of the future", "{future_opset.onnx}", r"error: opset: must be at most \d+, got 9999"),
    ("no opset", "{no_opset.onnx}", r"error: .*opset_import"),
    ("cycle", "{cycle.onnx}", r'error: graph: must not have cycles, got one of .*"first".*"second"'),
    ("cycle of one node", "{self_cycle.onnx}", r'error: graph: must not have cycles, got one of .*"ouroboros"'),
    ("a name given twice", "{twice.onnx}", r'output 0: must be a name that is given once, got "y" again'),
    ("an output that nothing gives", "{no_output.onnx}", r'output "y": must be .* got a name that nothing produces'),
    ("missing external file", "{missing_file.onnx}", r'external data: file ".*absent\.bin" must be readable, got: No such'),
    ("external offset past the end", "{past_end.onnx}", r'"w".*external data.*32'),
    ("external data past the end", "{short.onnx}", r'"w".*external data.*32'),
    ("external offset that overflows", "{huge_offset.onnx}", r'"w": external data: offset must be a number from 0 to 2\^62, got "9223372036854775792"'),
    ("negative external offset", "{negative_offset.onnx}", r'"w".*external data.*-64'),
    ("external file outside the folder", "{escape.onnx}", r'must be a relative path without "\.\.", got "\.\./small\.bin"'),
    ("negative dimension", "{negative.onnx}", r'input "x": .*-3'),
    ("overflowing dimensions", "{overflow.onnx}", r'input "x": .*(1099511627776|overflow|bytes|elements)'),
    ("negative dimension of a weight", "{negative_weight.onnx}", r'"w".*-4'),
    ("overflowing dimensions of a weight", "{overflow_weight.onnx}", r'initializer "w": '),
    ("weight with too few bytes", "{short_weight.onnx}", r'"w".*64.*60'),
    ("missing initializer", "{missing_weight.onnx}", r'"product".*input 1: must be .*got "w", which nothing produces'),
    ("shapes that do not fit", "{shapes.onnx}", r'"product" \(MatMul\).*error: the inner extents must be equal, got 4 and 5'),
    ("unknown operators", "{unknown_op.onnx}", r'(?s)"strange".*Frobnicate.*"stranger".*Defenestrate'),
    ("unknown domain", "{unknown_domain.onnx}", r'(?s)"foreign".*com\.example.*"other".*com\.example'),
    ("undeclared domain", "{undeclared_domain.onnx}", r'"foreign".*domain "com\.example": must be declared'),
    ("damaged module", "{text.so}", r"text\.so: byte 0: error: ModelProto: .* this is no ONNX file"),
]

CASES = [
    # name, arguments, exit code, pattern of stderr
    ("good model", "check {relu.onnx}", 0, r"^$"),
    ("good run", "run {matmul.onnx} --input x={x.npy}", 0, r"^$"),
    ("inspect what cannot be compiled", "inspect {unknown_op.onnx}", 0, r"^$"),
    ("inspect named dimensions", "inspect {named.onnx}", 0, r"^$"),
    ("inspect a module", "inspect {relu.so}", 0, r"^$"),
    ("check a module", "check {relu.so}", 1, r"relu\.so: error: check: must be a model, got a module"),
    ("verify a module", "verify {relu.so}", 1, r"relu\.so: error: verify: must be a model, got a module"),
    ("compile a module", "compile {relu.so} -o {dir}/o.so", 1, r"relu\.so: error: compile: must be a model, got a module"),
    ("reference of a module", "run {relu.so} --reference", 2, r"--reference: must be given with a model, got a module"),
    ("target of a module", "run {relu.so} --target=cpu", 2, r"--target: must be given with a model, got a module"),
    ("dtype of a module", "bench {relu.so} --dtype f16", 2, r"--dtype: must be given with a model, got a module"),
    ("orchestrating a module", "run {relu.so} --orchestrate", 2, r"--orchestrate: must be given with a model, got a module"),
    ("a shape of a module", "run {relu.so} --shape x=2x4", 2, r"--shape: must be given with a model, got a module"),
    ("a dimension of a module without", "run {relu.so} --dim n=2", 2, r"--dim: must be left out: the module's shapes are fixed, got n=2"),
    ("no cache for a module", "run {relu.so} --no-cache", 2, r"--no-cache: must be given with a model, got a module"),
    # inputs
    ("wrong input name", "run {relu.onnx} --input z={x.npy}", 1, r"--input: must be .*name of an input \(x\), got 'z'"),
    ("wrong input dtype", "run {relu.onnx} --input x={i64.npy}", 1, r'input 0 "x": error: dtype: must be f32, got i64'),
    ("wrong input rank", "run {relu.onnx} --input x={rank.npy}", 1,
     r'input 0 "x": error: shape: must be \[2, ?4\], got \[8\]'),
    ("wrong input shape", "run {relu.onnx} --input x={shape.npy}", 1,
     r'input 0 "x": error: shape: must be \[2, ?4\], got \[4, ?2\]'),
    ("wrong dtype to a module", "run {relu.so} --input x={i64.npy}", 1, r"dtype: must be f32, got i64"),
    # GPUs: without a driver (or with one) nothing of this runs
    ("unknown GPU", "compile {relu.onnx} -o {dir}/o.kmod --target=cuda:sm_10", 2,
     r"options: error: target: a GPU must be opencl or one of cuda:sm_75, .*cuda:sm_100a, .*hip:gfx942, got cuda:sm_10$"),
    ("GPU without a name", "compile {relu.onnx} -o {dir}/o.kmod --target=cuda:", 2, r"a GPU must be opencl or one of .*, got cuda:$"),
    ("unknown target", "run {relu.onnx} --target=hip", 2,
     r"options: error: target: name must be x86-64-v2, x86-64-v3, x86-64-v4, a processor of x86-64 by LLVM's name .*, got hip$"),
    ("tuned for an unknown device", "compile {relu.onnx} -o {dir}/o.kmod --target=opencl --tuned-for Card --tuned {dir}/t.sqlite", 1,
     r"relu\.onnx: error: tuned for: must be a device .*, got \"Card\"; measured were kernels on: none"),
    ("text as tuned results", "compile {relu.onnx} -o {dir}/o.kmod --target=opencl --tuned-for Card --tuned {text.npz}", 1,
     r"text\.npz: error: tuned results: must be a database of version 1 that can be written, got: file is not a database"),
    ("tuned results in no folder", "compile {relu.onnx} -o {dir}/o.kmod --target=opencl --tuned-for Card --tuned {dir}/no/t", 1,
     r"no/t: error: tuned results: must be a database .*, got: unable to open"),
    ("tuning and tuned for", "compile {relu.onnx} -o {dir}/o.kmod --tune 2 --tuned-for Card", 2,
     r"--tuned-for: must be left out with --tune, got 'Card'"),
    ("time to tune below 0", "compile {relu.onnx} -o {dir}/o.kmod --tune-seconds=-1", 2, r"must be a number, 0 or more"),
    ("GPU that is not there", "run {relu.onnx} --target=opencl --device 4096", 1,
     r"opencl: error: (driver: libOpenCL\.so\.1 must be installed|device: must be 0 to \d+, got 4096|device: there must be one)"),
    ("dtype of integers", "compile {relu.onnx} -o {dir}/o.kmod --target=opencl --dtype=int8", 2,
     r"options: error: dtype: must be f16, bf16 or tf32, got int8"),
    ("dtype that models have", "compile {relu.onnx} -o {dir}/o.kmod --target=opencl --dtype=f32", 2,
     r"options: error: dtype: must be f16, bf16 or tf32, got f32"),
    ("wrong dtype to bench", "bench {relu.onnx} --input x={i64.npy}", 1, r"dtype: must be f32, got i64"),
    ("missing input file", "run {relu.onnx} --input x={dir}/absent.npy", 1,
     r"absent\.npy: error: npy: must be a readable file"),
    ("folder as input", "run {relu.onnx} --input x={dir}", 1, r"error: npy: must be a readable file"),
    ("cut .npy", "run {relu.onnx} --input x={cut.npy}", 1, r"cut\.npy: error: npy: must hold all elements"),
    ("text as .npy", "run {relu.onnx} --input x={text.npy}", 1, r"text\.npy: error: npy: must begin with the magic"),
    ("complex .npy", "run {relu.onnx} --input x={complex.npy}", 1, r"complex\.npy: error: npy: element type must be"),
    ("negative .npy", "run {relu.onnx} --input x={negative.npy}", 1,
     r"negative\.npy: error: npy: header must have a shape"),
    ("huge .npy", "run {relu.onnx} --input x={huge.npy}", 1, r"error: .*(extents|2\^62|elements)"),
    ("text as .pb", "run {relu.onnx} --input x={text.pb}", 1, r"text\.pb: byte 0: error: TensorProto: "),
    ("missing .pb", "run {relu.onnx} --input x={dir}/absent.pb", 1, r"absent\.pb: error: file: must be readable"),
    ("missing .npz", "run {relu.onnx} --inputs {dir}/absent.npz", 1,
     r"absent\.npz: error: npz: must be a readable zip"),
    ("text as .npz", "run {relu.onnx} --inputs {text.npz}", 1, r"text\.npz: error: npz: must be a readable zip"),
    ("wrong name in .npz", "run {relu.onnx} --inputs {other.npz}", 1,
     r"other\.npz: error: npz: must hold inputs only \(x\), got 'y'"),
    # expectations
    ("difference", "run {relu.onnx} --fill zeros --expect y={ones.npy}", 1, r"^$"),
    ("no difference", "run {relu.onnx} --fill zeros --expect y={x.npy}", 0, r"^$"),
    ("difference of shape", "run {relu.onnx} --expect y={shape.npy}", 1, r"^$"),
    ("wrong output name", "run {relu.onnx} --expect z={x.npy}", 1,
     r"--expect: must be .*name of an output \(y\), got 'z'"),
    ("missing expectation", "run {relu.onnx} --expect y={dir}/absent.npy", 1,
     r"absent\.npy: error: npy: must be a readable file"),
    # definitions
    ("good definition", f"tc {MM} --schedule {{good.sched}} --reference", 0, r"^$"),
    ("missing size", "tc {mm.tc} --size M=4 --size N=4", 1,
     r"mm\.tc: error: definition matmul: .*'K': add --size K=64$"),
    ("missing sizes in compile", "compile {mm.tc} -o {dir}/o.so", 1, r"add --size M=64 --size K=64 --size N=64$"),
    ("size that the definition has not", f"tc {MM} --size Q=1", 1, r"mm\.tc:1:5: error: matmul: .*Q"),
    ("size given twice", f"tc {MM} --size M=5", 1, r"mm\.tc: error: size M: must have one value, got 4 and 5"),
    ("negative size", "tc {mm.tc} --size M=-4 --size K=4 --size N=4", 1, r"mm\.tc:1:\d+: error: M: .*negative, got -4"),
    ("overflowing sizes", "tc {mm.tc} --size M=4611686018427387904 --size K=4 --size N=4", 1,
     r"must have fewer than 2\^62 bytes"),
    ("more memory than there is", "tc {mm.tc} --size M=1099511627776 --size K=1 --size N=1", 1, r"error: .*memory"),
    ("size without a value", "tc {mm.tc} --size M", 2, r"--size: must be NAME=N, got 'M'"),
    ("size that is no number", "tc {mm.tc} --size M=four", 2, r"--size: must be NAME=N, got 'M=four'"),
    ("unknown entry", f"tc {MM} --entry matmuls", 1,
     r"mm\.tc: error: entry: must be a definition of the file \(matmul\)"),
    ("unknown entry to verify", "verify {mm.tc} --entry matmuls", 1,
     r"mm\.tc: error: entry: must be a definition of the file \(matmul\), got matmuls"),
    ("tc of a model", "tc {relu.onnx}", 1, r"relu\.onnx: error: tc: must be a file that ends in \.tc"),
    ("wrong shape of a definition's input", f"tc {MM} --input A={{x.npy}}", 1, r'"A".*must be .*4'),
    ("wrong name of a definition's input", f"tc {MM} --input C={{x.npy}}", 1, r"name of an input \(A, B\), got 'C'"),
    ("verify a definition out of range", "verify {range.tc}", 1, r"range\.tc:2:\d+: error: "),
    ("range that depends on an index", "verify {dependent.tc}", 1, r"dependent\.tc:1:\d+: error: i: .*as in k <= i \? X\(k\) : 0"),
    ("tensor of two ranks", "verify {ranks.tc}", 1, r"ranks\.tc:1:40: error: Y: expected 1 dimensions but found 2"),
    ("size as an index", "verify {sized.tc}", 1, r"sized\.tc:1:\d+: error: N: is a size; an index needs another name"),
    ("boundary of more axes than there are", "tc {reach.tc} --size N=4", 1, r"reach\.tc:1:\d+: error: Y: in this call"),
    ("least number of a type", "verify {lowest.tc}", 0, r""),
    ("recurrence", "verify {recurrent.tc}", 1, r"recurrent\.tc:1:\d+: error: H: undefined variable"),
    ("verify no definition", "verify {nothing.tc}", 1, r"nothing\.tc: error: must have a definition, got none"),
    ("unknown level to emit", f"tc {MM} --emit soup", 2, r"--emit: must be graph, prim, .*opencl, got 'soup'"),
    ("several levels in one file", f"tc {MM} --emit c,asm -o {{dir}}/x", 2, r"-o: must be left out"),
    ("-o without what is printed", f"tc {MM} -o {{dir}}/x", 2, r"-o: must be given with --emit, --search or the --target"),
    ("folder without levels", f"tc {MM} --dump-dir {{dir}}/x", 2, r"--dump-dir: must be given with the levels"),
    ("unknown rule", "compile {relu.onnx} -o {dir}/o.so --without-rule=constants,soup", 2,
     r"without: must be a rule or a pass that can be left out \(narrow, constants, .* winograd, .*\), got 'soup'"),
    ("a pass that must run", "compile {relu.onnx} -o {dir}/o.so --without=lower", 2, r"that can be left out \(.*\), got 'lower'"),
    ("unknown pass to print", "compile {relu.onnx} --dump-after=inline,soup", 2, r"dump after: must be a pass \(read, .* weights\), got 'soup'"),
    ("unknown place to stop", "compile {relu.onnx} -o {dir}/o.so --stop-after=lower", 2, r"stop after: must be a number of steps.*got 'lower'"),
    ("unknown scheduler", f"tc {MM} --scheduler soup", 1, r'scheduler: must be rules, max, min or preserve3, the last three with \+promote or without, got "soup"'),
    ("promotion by the rules", f"tc {MM} --scheduler rules+promote", 1, r'scheduler: must be .*\+promote.* got "rules\+promote"'),
    ("scheduler beside a schedule", f"tc {MM} --scheduler max --schedule {{good.sched}}", 1,
     r'scheduler: must be left out where a schedule is given, got "max"'),
    ("entry of a model", "run {relu.onnx} --entry f", 1, r"entry: must be given with a \.tc file, got f"),
    ("operators for a definition", f"run {MM} --ops {{mm.tc}}", 1, r"operators: must be given with an ONNX model"),
    ("shape of a definition's input", f"run {MM} --shape A=4x4", 1, r"shape: must be given with an ONNX model"),
    ("pack of too many dimensions", "verify {pack.tc} --size N.rank=300000000", 1, r"N\.\.\.: .*in \[0, 8\]"),
    ("emit into a missing folder", f"tc {MM} --emit c -o {{dir}}/absent/x.c", 1,
     r"x\.c: error: dump: must be writable"),
    ("unknown target", f"tc {MM} --target soup", 2, r"options: error: target: name must be .*got soup"),
    # schedules
    ("missing schedule", f"tc {MM} --schedule {{dir}}/absent", 1,
     r"absent: error: schedule: must be a readable text file"),
    ("folder as schedule", f"tc {MM} --schedule {{dir}}", 1, r"error: schedule: must be a readable text file"),
    ("zero byte in a schedule", f"tc {MM} --schedule {{zero.sched}}", 1,
     r"error: schedule: must be a readable text file"),
    ("unknown primitive", f"tc {MM} --schedule {{word.sched}}", 1, r'schedule: line 2: error: .*splitt'),
    ("unknown loop", f"tc {MM} --schedule {{loop.sched}}", 1, r"schedule: line 1: error: split: "),
    ("unknown kernel", f"tc {MM} --schedule {{kernel.sched}}", 1,
     r'line 1: error: .*got "k0_contract_matmull": did you mean "k0_contract_matmul"'),
    ("unknown kernel of a model", "run {matmul.onnx} --schedule {kernel.sched}", 1,
     r"line 1: error: kernel: must be one of the model's"),
    ("script without a kernel for a model", "run {matmul.onnx} --schedule {good.sched}", 1,
     r"section: must begin with a line `kernel NAME`"),
    ("kernel without a name", f"tc {MM} --schedule {{noname.sched}}", 1, r"line 1: error: kernel: must be followed by"),
    ("kernel given twice", f"tc {MM} --schedule {{twice.sched}}", 1,
     r"line 2: error: kernel: each kernel must have one script"),
    ("holes without a search", f"tc {MM} --schedule {{holes.sched}}", 1, r"line 1: error: holes must be filled"),
    ("search without a schedule", f"tc {MM} --search 3", 1, r"search: must have a schedule with holes"),
    ("search in an open hole", f"tc {MM} --schedule {{open.sched}} --search 3", 1, r"line 1.*error: "),
    # operators of the user's
    ("missing file of operators", "run {relu.onnx} --ops {dir}/absent.tc", 1,
     r"absent\.tc: error: file: must be readable"),
    ("file of operators without one", "run {relu.onnx} --ops {mm.tc}", 1,
     r"mm\.tc: error: operators: must have a line"),
    ("wrong text of an operator", "run {relu.onnx} --ops {syntax.tc}", 1, r"syntax\.tc:2:\d+: error: "),
    ("operator with an unknown name", "run {relu.onnx} --ops {unbound.tc}", 1, r"unbound\.tc:2:\d+: error: .*Z"),
    # dimensions and shapes
    ("unbound dimension", "compile {named.onnx} -o {dir}/o.so", 1,
     r"dimension 'batch' is symbolic: bind it with --dim batch=N"),
    ("unbound dimension in run", "run {named.onnx}", 1, r"bind it with --dim batch=N"),
    ("bound dimension", "run {named.onnx} --dim batch=3", 0, r"^$"),
    ("unknown dimension", "run {named.onnx} --dim time=3", 1,
     r'dimension "time": must be a named dimension of the model'),
    ("negative value of a dimension", "run {named.onnx} --dim batch=-3", 1, r'"batch": must not be negative, got -3'),
    ("overflowing value of a dimension", "check {named.onnx} --dim batch=4611686018427387904", 1,
     r'input "x": error: '),
    ("two values of a dimension", "run {named.onnx} --dim batch=3 --dim batch=4", 1,
     r"must have one value, got 3 and 4"),
    ("shape of an unknown input", "run {relu.onnx} --shape z=1x2", 1, r'input "z": must be an input of the model'),
    ("shape of another rank", "run {relu.onnx} --shape x=8", 1, r'input "x": rank must be 2, got the rank 1'),
    ("negative shape", "run {named.onnx} --shape x=-1x4", 1, r'"x": .*-1'),
    # outputs
    ("compile into a missing folder", "compile {relu.onnx} -o {dir}/absent/o.so", 1,
     r"absent/o\.so: error: must be writable: No such"),
    ("compile onto a folder", "compile {relu.onnx} -o {dir}", 1, r"error: must be writable"),
    ("dump into a missing folder", "compile {relu.onnx} -o {dir}/o.so --dump=graph --dump-dir {dir}/absent/dump", 1,
     r"graph\.txt: error: dump: must be writable"),
    ("outputs into a file's folder", "run {relu.onnx} --output-dir {x.npy}/out", 1,
     r"y\.npy: error: output: must be writable"),
    ("outputs into a missing folder", "run {relu.onnx} --outputs {dir}/absent/o.npz", 1,
     r"o\.npz: error: output: must be writable"),
    ("JSON into a missing folder", "bench {relu.onnx} --iterations 1 --json {dir}/absent/o.json", 1,
     r"o\.json: error: output: must be writable"),
    ("JSON onto a full disk", "bench {relu.onnx} --iterations 1 --json /dev/full", 1,
     r"/dev/full: error: output: must be writable"),
    ("trace into a missing folder", "bench {relu.onnx} --iterations 1 --trace {dir}/absent/o.json", 1,
     r"o\.json: error: output: must be writable"),
    ("page into a missing folder", "report {relu.onnx} -o {dir}/absent/o.html", 1,
     r"o\.html: error: report: must be writable"),
    ("report into a missing folder", "inspect {relu.onnx} --json {dir}/absent/o.json", 1,
     r"o\.json: error: output: must be writable"),
    ("results into a missing folder", "test {dir} --json {dir}/absent/o.json", 1,
     r"o\.json: error: output: must be writable"),
    ("tests in a missing folder", "test {dir}/absent", 1, r"absent: error: test: must be a readable directory"),
    # modules
    ("good module", "run {relu.so} --input x={x.npy}", 0, r"^$"),
    ("missing module", "run {dir}/absent.so", 1, r"absent\.so: error: file: must be readable, got: No such file"),
    ("cut module, inspected", "inspect {cut.so}", 1, r"cut\.so: error: must be a module made by kiln compile"),
    ("cut module", "run {cut.so}", 1, r"cut\.so: error: must be a module made by kiln compile"),
    ("module with damaged code", "run {code.so}", 1,
     r"code\.so: error: damaged module: the checksum of its code must match"),
    ("module with a damaged plan", "run {plan.so}", 1,
     r"plan\.so: error: damaged module: the checksum of its plan must match"),
    ("a shared object that is no module", "run {plain.so}", 1,
     r"plain\.so: error: must be a module made by kiln compile"),
    # usage
    ("no command", "", 2, r"^usage: kiln"),
    ("unknown command", "frobnicate", 2, r"kiln: no command 'frobnicate'"),
    ("no model", "run", 2, r"^usage: kiln run"),
    ("two models", "run {relu.onnx} {relu.onnx}", 2, r"kiln run: error: arguments: too many"),
    ("unknown option", "run {relu.onnx} --frobnicate", 2, r"options: must be one of .*, got '--frobnicate'"),
    ("option without value", "run {relu.onnx} --seed", 2, r"--seed: needs a value"),
    ("flag with a value", "bench {relu.onnx} --profile=yes", 2, r"--profile: takes no value, got 'yes'"),
    ("no number", "bench {relu.onnx} --iterations many", 2,
     r"--iterations: must be a whole number, 0 or more, got 'many'"),
    ("negative number", "run {relu.onnx} --rtol -1", 2, r"--rtol: must be a number, 0 or more, got '-1'"),
    ("not a number", "run {relu.onnx} --rtol nan", 2, r"--rtol: must be a number, 0 or more, got 'nan'"),
    ("too many threads", "run {relu.onnx} --threads 5000", 2, r"--threads: must be 0 to 1024, got '5000'"),
    ("no -o", "compile {relu.onnx}", 2, r"-o: must name the module to write"),
    ("unknown fill", "run {relu.onnx} --fill sevens", 2,
     r"--fill: must be random, zeros, ones or arange, got 'sevens'"),
    ("unknown dump", "compile {relu.onnx} -o {dir}/o.so --dump=soup", 2,
     r"--dump: must be graph, prim, loop, schedule, orchestration, plan, c, llvm, asm, cuda, hip or opencl, got 'soup'"),
    ("dimension without value", "run {named.onnx} --dim batch", 2, r"--dim: must be NAME=N, NAME=LEAST\.\.MOST, NAME=LEAST\.\.MOST/STEP or NAME=P\+Q, got 'batch'"),
    ("dimension that is no number", "run {named.onnx} --dim batch=x", 2, r"--dim: must be NAME=N, NAME=LEAST\.\.MOST, NAME=LEAST\.\.MOST/STEP or NAME=P\+Q, got 'batch=x'"),
    ("range without end", "run {named.onnx} --dim batch=1..", 2, r"NAME=LEAST\.\.MOST/STEP or NAME=P\+Q, got 'batch=1\.\.'"),
    ("range in memory", "run {named.onnx} --dim batch=1..4", 1, r"dimension batch: must have one value here, got a range"),
    ("range for code without modules", "compile {named.onnx} --dim batch=1..4 --target hip:gfx90a -o {dir}/o.so", 1,
     r"dimension batch: must have one value for HIP, got a range"),
    ("shape that is none", "run {named.onnx} --shape x=1xx4", 2, r"--shape: must be INPUT=1x3x224x224, .*, got 'x=1xx4'"),
    ("input without file", "run {relu.onnx} --input x", 2, r"--input: must be NAME=FILE, got 'x'"),
    ("expectation without file", "run {relu.onnx} --expect y", 2, r"--expect: must be NAME=FILE, got 'y'"),
]


def model_cases():
    """Every bad model through every command that loads one."""
    for name, file, pattern in MODELS:
        for command in LOADED:
            if file.endswith(".so}") and command != "run":
                continue
            tail = " -o {dir}/none.so" if command == "compile" else ""
            yield f"{command}: {name}", f"{command} {file}{tail}", 1, pattern


def damage_cases(files):
    """Cut, random and damaged models: a message, no crash. A change of a byte may leave a good model."""
    for k in range(0, len(MATMUL), 9):
        files[f"cut{k}.onnx"] = MATMUL[:k]
        yield f"model cut at byte {k}", f"check {{cut{k}.onnx}}", 1, rf"cut{k}\.onnx: (byte \d+: )?error: "
    for k in range(16):
        files[f"noise{k}.onnx"] = noise(k)
        yield f"random bytes {k}", f"check {{noise{k}.onnx}}", 1, rf"noise{k}\.onnx: (byte \d+: )?error: "
    for k in range(24):
        files[f"damage{k}.onnx"] = damaged(MATMUL, k)
        yield f"damaged model {k}", f"run {{damage{k}.onnx}}", (0, 1), rf"^$|error: |warning: "


# --- running

def make_modules(kiln, folder):
    """Files that the command makes, and their damaged variants."""
    def run(*args):
        subprocess.run([kiln, *map(str, args)], check=True, capture_output=True)
    run("compile", folder / "relu.onnx", "-o", folder / "relu.so", "--threads", 1)
    run("run", folder / "relu.onnx", "--outputs", folder / "other.npz")  # holds y only
    good = (folder / "relu.so").read_bytes()
    (folder / "cut.so").write_bytes(good[:-100])
    for name, at in ("code.so", 1000), ("plan.so", len(good) - 150):
        (folder / name).write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
    plain = next(pathlib.Path(kiln).parent.glob("libkiln_rt.so*"), None)
    (folder / "plain.so").write_bytes(plain.read_bytes() if plain else b"\x7fELF" + bytes(200))


def check(kiln, folder, case):
    """None, or what is wrong."""
    name, command, code, pattern = case
    args = [re.sub(r"\{(.*?)\}", lambda m: str(folder if m[1] == "dir" else folder / m[1]), a) for a in command.split()]
    leaks = 0 if "--target=opencl" in args else 1  # PoCL keeps what it allocated
    env = dict(os.environ, ASAN_OPTIONS=f"detect_leaks={leaks}:exitcode=99:allocator_may_return_null=1",
               UBSAN_OPTIONS="print_stacktrace=1:exitcode=98")
    try:
        done = subprocess.run([kiln, *args], capture_output=True, text=True, errors="replace", timeout=120, env=env, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"{name}: took over 120 s"
    codes = code if isinstance(code, tuple) else (code,)
    told = done.stderr[-3000:]
    if re.search("ERROR: (Address|Leak)Sanitizer|runtime error:", done.stderr):
        return f"{name}: the sanitizers complain: {told}"
    if done.returncode not in codes:
        return f"{name}: exit code must be {code}, got {done.returncode}; {told}"
    if not re.search(pattern, done.stderr.strip(), re.MULTILINE if pattern != r"^$" else 0):
        return f"{name}: message must match {pattern}, got {told}"
    if done.returncode == 1 and not (done.stderr.strip() or done.stdout.strip()):
        return f"{name}: must say why, got nothing"
    return None


def main():
    kiln, only = str(pathlib.Path(sys.argv[1]).resolve()), sys.argv[3] if sys.argv[2:3] == ["-k"] else ""
    files = dict(FILES)
    cases = [c for c in [*CASES, *model_cases(), *damage_cases(files)] if only in c[0]]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        for name, data in files.items():
            (folder / name).write_bytes(data)
        make_modules(kiln, folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            wrong = [w for w in pool.map(lambda c: check(kiln, folder, c), cases) if w]
    print("\n".join(wrong))
    print(f"{len(cases) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
