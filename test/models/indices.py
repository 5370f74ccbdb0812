#!/usr/bin/env python3
"""Indices that only the run knows: right ones are taken, one that is out of range fails the run with a message that names the
node, the axis and the index, on every target; --clamp-indices takes all. Constants out of range are refused when compiling.

usage: indices.py KILN [PATTERN]...     in the Python environment of `make test`
"""
import fnmatch
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

try:
    import numpy
    import onnx
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

RNG = numpy.random.default_rng(25)
CASES = {}
MS, ML = "com.microsoft", "ai.onnx.ml"
TARGETS = [["--reference"], ["--threads=2"], ["--target=sim"], ["--target=sim:cuda:sm_90a"], ["--target=opencl"],
           ["--no-connect"]]


def normal(*shape):
    return RNG.standard_normal(shape).astype(numpy.float32)


def integers(low, high, *shape, dtype=numpy.int64):
    return RNG.integers(low, high, shape).astype(dtype)


class Use:
    """Input |k|'s elements, or those of its slice |of|, choose along |axis|: least <= index < end."""

    def __init__(self, k, axis, least, end, of=...):
        self.k, self.axis, self.least, self.end, self.of = k, axis, least, end, of


def case(name, op, inputs, uses, outputs=1, domain="", opset=17, **attributes):
    CASES[name] = (op, inputs, uses, outputs, domain, opset, attributes)


def from_end(k, axis, extent, of=...):
    return Use(k, axis, -extent, extent, of)


case("gather", "Gather", [normal(5, 7), integers(-5, 5, 3, 4)], [from_end(1, 0, 5)])
case("gather_i32_axis", "Gather", [normal(3, 9, 4), integers(-9, 9, 6, dtype=numpy.int32)], [from_end(1, 1, 9)], axis=1)
case("gather_scalar", "Gather", [normal(6, 3), numpy.array(-2)], [from_end(1, 0, 6)])
case("gather_many", "Gather", [normal(17), integers(-17, 17, 4099)], [from_end(1, 0, 17)])
case("gather_elements", "GatherElements", [normal(4, 6), integers(-4, 4, 3, 6)], [from_end(1, 0, 4)], axis=0)
case("gather_nd", "GatherND", [normal(3, 5, 4), numpy.stack([integers(-3, 3, 7), integers(-5, 5, 7)], -1)],
     [from_end(1, 0, 3, (..., 0)), from_end(1, 1, 5, (..., 1))])
case("gather_nd_batch", "GatherND", [normal(2, 5, 4), integers(-5, 5, 2, 3, 1)], [from_end(1, 1, 5)], batch_dims=1)
case("scatter_elements", "ScatterElements", [normal(5, 4), integers(-5, 5, 3, 4), normal(3, 4)], [from_end(1, 0, 5)])
case("scatter_old", "Scatter", [normal(5, 4), integers(-4, 4, 5, 2), normal(5, 2)], [from_end(1, 1, 4)], opset=9, axis=1)
case("scatter_nd_add", "ScatterND", [normal(4, 3, 5), numpy.stack([integers(-4, 4, 6), integers(-3, 3, 6)], -1), normal(6, 5)],
     [from_end(1, 0, 4, (..., 0)), from_end(1, 1, 3, (..., 1))], reduction="add")
case("max_unpool", "MaxUnpool", [normal(1, 1, 2, 2), integers(0, 16, 1, 1, 2, 2)], [Use(1, 0, 0, 16)], kernel_shape=[2, 2],
     strides=[2, 2])
case("tensor_scatter", "TensorScatter", [normal(2, 8, 3), normal(2, 3, 3), integers(0, 6, 2)], [Use(2, 1, 0, 6)], opset=24)
case("reverse_sequence", "ReverseSequence", [normal(6, 4), integers(0, 7, 4)], [Use(1, 0, 0, 7)])
case("nll", "NegativeLogLikelihoodLoss", [normal(6, 5), integers(0, 5, 6)], [Use(1, 1, 0, 5)])
case("cross_entropy", "SoftmaxCrossEntropyLoss", [normal(6, 5, 3), integers(0, 5, 6, 3)], [Use(1, 1, 0, 5)])
case("array_feature_extractor", "ArrayFeatureExtractor", [normal(3, 8), integers(0, 8, 4)], [Use(1, 1, 0, 8)], domain=ML)
case("roi_align", "RoiAlign", [normal(2, 1, 6, 6), numpy.array([[0, 0, 4, 4], [1, 1, 5, 3]], numpy.float32), integers(0, 2, 2)],
     [Use(2, 0, 0, 2)], output_height=2, output_width=2, sampling_ratio=2)
case("embed_layer_normalization", "EmbedLayerNormalization",
     [integers(0, 9, 2, 4, dtype=numpy.int32), integers(0, 2, 2, 4, dtype=numpy.int32), normal(9, 6), normal(5, 6), normal(2, 6),
      normal(6), normal(6)], [Use(0, 0, 0, 9), Use(1, 0, 0, 2)], outputs=2, domain=MS)
case("rotary", "RotaryEmbedding", [normal(1, 2, 3, 8), integers(0, 7, 1, 3), normal(7, 4), normal(7, 4)], [from_end(1, 0, 7)],
     domain=MS)
case("group_query", "GroupQueryAttention",
     [normal(2, 1, 8), normal(2, 1, 8), normal(2, 1, 8), normal(2, 2, 6, 4), normal(2, 2, 6, 4),
      integers(0, 6, 2, dtype=numpy.int32), numpy.array(6, numpy.int32)], [Use(5, 2, 0, 6)], outputs=3, domain=MS, num_heads=2,
     kv_num_heads=2)


def model_of(op, inputs, outputs, domain, opset, attributes, constants=()):
    names = ["" if v is None else f"x{k}" for k, v in enumerate(inputs)]
    ports = [helper.make_tensor_value_info(f"x{k}", helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
             for k, v in enumerate(inputs) if v is not None and k not in constants]
    if op == "GroupQueryAttention":  # whose total length must be known
        constants = (6,)
        ports = [p for p in ports if p.name != "x6"]
    weights = [numpy_helper.from_array(inputs[k], f"x{k}") for k in constants]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="picker", domain=domain, **attributes)
    graph = helper.make_graph([node], "g", ports, [onnx.ValueInfoProto(name=name) for name in results], weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MS, 1), helper.make_opsetid(ML, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


class Runner:
    def __init__(self, kiln, folder):
        self.kiln, self.folder, self.failures, self.runs = kiln, pathlib.Path(folder), [], 0
        self.targets = [t for t in TARGETS if t != ["--target=opencl"] or self.has_opencl()]

    def has_opencl(self):
        path = self.folder / "probe.onnx"
        onnx.save(model_of("Gather", [normal(3), integers(0, 3, 2)], 1, "", 17, {}), path)
        return subprocess.run([self.kiln, "run", path, "--target=opencl"], capture_output=True).returncode == 0

    def run(self, path, feeds, options, command="run"):
        args = [self.kiln, command, path, *options]
        for name, value in feeds.items():
            numpy.save(self.folder / f"{name}.npy", value)
            args.append(f"--input={name}={self.folder / name}.npy")
        self.runs += 1
        done = subprocess.run(args, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    def want(self, what, got, code, pattern=""):
        if got[0] != code or not re.search(pattern, got[1]):
            self.failures.append(f"{what}: want {code} and {pattern!r}, got {got[0]}:\n{got[1]}")


def feeds_of(inputs, op):
    return {f"x{k}": v for k, v in enumerate(inputs) if v is not None and not (op == "GroupQueryAttention" and k == 6)}


def spoilt(value, use, bad):
    """A copy with |bad| at one place that |use| reads, and the index that the message must have."""
    out = value.copy()
    part = out[use.of]
    if part.ndim == 0:
        return numpy.array(bad, value.dtype)
    part[tuple(RNG.integers(0, n) for n in part.shape)] = bad
    return out


def message(use, bad, op):
    range_of = rf"must lie in \[{use.least}, {use.end}\) along axis {use.axis}"
    return rf'\S+: node 0 "picker" \({op}\): error: .*: {range_of}, got an index of {bad}'


def check_case(r, name):
    op, inputs, uses, outputs, domain, opset, attributes = CASES[name]
    path = r.folder / f"{name}.onnx"
    onnx.save(model_of(op, inputs, outputs, domain, opset, attributes), path)
    feeds = feeds_of(inputs, op)
    for i, target in enumerate(r.targets):
        r.want(f"{name} {target}", r.run(path, feeds, target), 0)
        for k, use in enumerate(uses):  # one a target: just behind, just before, far off
            bad = (use.end, use.least - 1, use.end + int(RNG.integers(1, 1 << 30)))[(i + k) % 3]
            wrong = dict(feeds)
            wrong[f"x{use.k}"] = spoilt(inputs[use.k], use, bad)
            r.want(f"{name} {target} {bad}", r.run(path, wrong, target), 1, message(use, bad, op))
            if i == 0:
                r.want(f"{name} clamped", r.run(path, wrong, ["--clamp-indices", "--reference"]), 0)


def check_constants(r, name):
    op, inputs, uses, outputs, domain, opset, attributes = CASES[name]
    if op == "GroupQueryAttention":
        return
    for use in uses:
        wrong = list(inputs)
        wrong[use.k] = spoilt(inputs[use.k], use, use.end)
        path = r.folder / f"{name}_constant.onnx"
        onnx.save(model_of(op, wrong, outputs, domain, opset, attributes, constants=(use.k,)), path)
        pattern = rf'node 0 "picker" \({op}\).*error: .*must lie in \[{use.least}, {use.end}\) along axis {use.axis}, got'
        r.want(f"{name} constant", r.run(path, {}, [], command="check"), 1, pattern)


def check_branch(r):
    """An index of a branch that is not taken is not looked at, nor is that of an iteration behind a loop's end."""
    data = numpy_helper.from_array(normal(4), "data")
    then = helper.make_graph([helper.make_node("Gather", ["data", "i"], ["t"], name="then")], "then", [],
                             [helper.make_tensor_value_info("t", 1, [2])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "other", [], [helper.make_tensor_value_info("e", 1, [2])])
    graph = helper.make_graph([helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)], "g",
                              [helper.make_tensor_value_info("c", 9, []), helper.make_tensor_value_info("i", 7, [2]),
                               helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("y", 1, [2])], [data])
    path = r.folder / "branch.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    for target in r.targets:
        feeds = {"c": numpy.array(False), "i": numpy.array([1, 9]), "x": normal(2)}
        r.want(f"branch not taken {target}", r.run(path, feeds, target), 0)
        feeds["c"] = numpy.array(True)
        r.want(f"branch taken {target}", r.run(path, feeds, target), 1, r'"then" \(Gather\): error: i: must lie in \[-4, 4\)')


def check_loop(r):
    body = helper.make_graph([helper.make_node("Gather", ["data", "s"], ["v"], name="in loop"),
                              helper.make_node("Add", ["s", "one"], ["next"]),
                              helper.make_node("Less", ["next", "limit"], ["more"]),
                              helper.make_node("Add", ["sum", "v"], ["total"])], "body",
                             [helper.make_tensor_value_info("n", 7, []), helper.make_tensor_value_info("go", 9, []),
                              helper.make_tensor_value_info("s", 7, []), helper.make_tensor_value_info("sum", 1, [])],
                             [helper.make_tensor_value_info("more", 9, []), helper.make_tensor_value_info("next", 7, []),
                              helper.make_tensor_value_info("total", 1, [])])
    weights = [numpy_helper.from_array(normal(4), "data"), numpy_helper.from_array(numpy.array(1), "one"),
               numpy_helper.from_array(numpy.array(8), "most"), numpy_helper.from_array(numpy.array(0, numpy.float32), "zero"),
               numpy_helper.from_array(numpy.array(True), "yes")]
    graph = helper.make_graph([helper.make_node("Loop", ["most", "yes", "begin", "zero"], ["end", "y"], body=body)], "g",
                              [helper.make_tensor_value_info("begin", 7, []), helper.make_tensor_value_info("limit", 7, [])],
                              [helper.make_tensor_value_info("end", 7, []), helper.make_tensor_value_info("y", 1, [])], weights)
    path = r.folder / "loop.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    for target in r.targets:
        r.want(f"loop {target}", r.run(path, {"begin": numpy.array(0), "limit": numpy.array(4)}, target), 0)
        r.want(f"loop beyond {target}", r.run(path, {"begin": numpy.array(0), "limit": numpy.array(6)}, target), 1,
               r'"in loop" \(Gather\): error: .*must lie in \[-4, 4\) along axis 0, got an index of (4|5)')


def check_module(r):
    """Modules, for fixed shapes and for ranges, keep the table."""
    inputs = [normal(9, 4), integers(-9, 9, 2, 3)]
    model = model_of("Gather", inputs, 1, "", 17, {})
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    path, module = r.folder / "ranged.onnx", r.folder / "ranged.so"
    onnx.save(model, path)
    for dim in ("n=2", "n=1..64"):
        r.want(f"compile {dim}", r.run(path, {}, ["-o", module, "--dim", dim], command="compile"), 0)
        feeds = dict(feeds_of(inputs, "Gather"))
        r.want(f"module {dim}", r.run(module, feeds, []), 0)
        feeds["x1"] = spoilt(inputs[1], from_end(1, 0, 9), 9)
        r.want(f"module {dim} wrong", r.run(module, feeds, []), 1, message(from_end(1, 0, 9), 9, "Gather"))


def check_definition(r):
    path = r.folder / "lut.tc"
    path.write_text("def lut(float(N) Lut, int32(B, R) I) -> (O) { O(b, r) = Lut(I(b, r)) }\n")
    table, own = normal(10), integers(0, 10, 3, 5, dtype=numpy.int32)
    sizes = ["--size", "N=10", "--size", "B=3", "--size", "R=5"]
    r.want("definition", r.run(path, {"Lut": table, "I": own}, [*sizes, "--reference"], command="tc"), 0)
    own[1, 2] = 10
    r.want("definition wrong", r.run(path, {"Lut": table, "I": own}, sizes, command="tc"), 1,
           r"lut.tc:1:\d+: error: Lut\(I\(b, r\)\): must lie in \[0, 10\) along axis 0, got an index of 10")
    held = r.folder / "held.tc"
    held.write_text("def lut(float(N) Lut, int32(B, R) I) -> (O) { O(b, r) = Lut(min(max(I(b, r), 0), N - 1)) }\n")
    r.want("definition that holds it", r.run(held, {"Lut": table, "I": own}, sizes, command="tc"), 0)


def main():
    kiln, patterns = sys.argv[1], sys.argv[2:] or ["*"]
    chosen = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in patterns)] if sys.argv[2:] else share.some(CASES)
    with tempfile.TemporaryDirectory() as folder:
        r = Runner(kiln, folder)
        for name in chosen:
            check_case(r, name)
            check_constants(r, name)
        if not sys.argv[2:]:
            for check in (check_branch, check_loop, check_module, check_definition):
                check(r)
    print("\n".join(r.failures))
    print(f"{r.runs} runs of {len(chosen)} cases on {len(r.targets)} targets, {len(r.failures)} wrong")
    sys.exit(len(r.failures) > 0)


if __name__ == "__main__":
    main()
