"""Many small cases, each a node with its inputs and the outputs that it must give, run as few models by the `kiln` command.

A case that is refused, or whose model crashes, is found by running halves of its model.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnx
from onnx import helper, numpy_helper

SIZE = 40  # cases a model
LIMIT = 600  # seconds of a run: no more than a stopper of what hangs


class Case:
    """|inputs| are arrays (None: omitted), those whose places are in |constant| known when compiling; |want| the outputs.

    |tolerance| None: equal, and so are signs of zeros; NaN equals NaN. Else |got - want| <= a + r * |want|, (r, a);
    integers differ by less than one, or by a.
    """

    def __init__(self, name, op, inputs, want, constant=(), tolerance=None, domain="", opset=18, **attributes):
        self.name, self.op, self.inputs, self.want = name, op, list(inputs), [None if w is None else numpy.asarray(w) for w in want]
        self.constant, self.tolerance, self.domain, self.opset = set(constant), tolerance, domain, opset
        self.attributes = attributes


def element_type(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def model_of(cases):
    nodes, ports, results, constants, feeds = [], [], [], [], {}
    for k, c in enumerate(cases):
        names = []
        for i, x in enumerate(c.inputs):
            names.append("" if x is None else f"x{k}_{i}")
            if x is None:
                continue
            x = numpy.asarray(x)
            if i in c.constant:
                constants.append(numpy_helper.from_array(x, names[-1]))
            else:
                ports.append(helper.make_tensor_value_info(names[-1], element_type(x), x.shape))
                feeds[names[-1]] = x
        outputs = ["" if w is None else f"y{k}_{i}" for i, w in enumerate(c.want)]
        results += [onnx.ValueInfoProto(name=name) for name in outputs if name]
        nodes.append(helper.make_node(c.op, names, outputs, name=f"n{k}", domain=c.domain, **c.attributes))
    opsets = [helper.make_opsetid("", cases[0].opset)] + [helper.make_opsetid(d, 1) for d in ("com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training")]
    graph = helper.make_graph(nodes, "cases", ports, results, constants)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds


def run_model(kiln, folder, cases, options):
    """(None, outputs by name), or (what was said, {})."""
    model, feeds = model_of(cases)
    folder = pathlib.Path(folder)
    onnx.save(model, folder / "m.onnx")
    command = [kiln, "run", folder / "m.onnx", "--no-cache", "--outputs", folder / "y.npz", *options]
    for name, value in feeds.items():
        (folder / f"{name}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())
        command += ["--input", f"{name}={folder}/{name}.pb"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"hangs: more than {LIMIT} s", {}
    if done.returncode:
        lines = [x for x in (done.stderr + done.stdout).splitlines() if "error" in x or "Sanitizer" in x]
        return f"exit code {done.returncode}: " + (lines[0] if lines else done.stderr[-300:]), {}
    with numpy.load(folder / "y.npz") as outputs:
        return None, dict(outputs)


def difference(got, want, tolerance):
    """None, or how the two differ."""
    if want.dtype.name == "bfloat16" and got.dtype.itemsize == 2:  # a type that NumPy has not: its bits
        got = got.view(want.dtype)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"is {got.dtype} {got.shape}, must be {want.dtype} {want.shape}"
    if want.dtype.kind in "biu":
        units = tolerance[1] if tolerance and tolerance[1] >= 1 else 0
        bad = got != want if not units else abs(got.astype(numpy.float64) - want.astype(numpy.float64)) > units
    else:
        a, b = got.astype(numpy.float64), want.astype(numpy.float64)
        both_nan = numpy.isnan(a) & numpy.isnan(b)
        if tolerance is None:
            bad = ~both_nan & ((a != b) | (numpy.signbit(a) != numpy.signbit(b)))
        else:
            bad = ~numpy.isclose(a, b, rtol=tolerance[0], atol=tolerance[1], equal_nan=True)
    if not bad.any():
        return None
    at = tuple(int(i) for i in numpy.argwhere(bad)[0]) if bad.ndim else ()
    return f"differs in {bad.sum()} of {bad.size} elements, first at {at}: got {got[at]!r}, must be {want[at]!r}"


def compare(cases, outputs):
    """What is wrong, by the name of the case."""
    wrong = {}
    for k, c in enumerate(cases):
        for i, want in enumerate(c.want):
            why = difference(outputs[f"y{k}_{i}"], want, c.tolerance) if want is not None else None
            if why:
                wrong.setdefault(c.name, f"output {i} {why}")
    return wrong


def run_judged(kiln, cases, options, judge):
    """What |judge|, of some cases and their outputs by name, says is wrong; and what Kiln refused: both by the name of the case."""
    wrong, refused, groups = {}, {}, {}
    for c in cases:
        groups.setdefault(c.opset, []).append(c)
    some = [group[at:at + SIZE] for group in groups.values() for at in range(0, len(group), SIZE)]
    while some:
        one = some.pop(0)
        with tempfile.TemporaryDirectory() as folder:
            why, outputs = run_model(kiln, folder, one, options)
        if why is None:
            wrong.update(judge(one, outputs))
        elif len(one) == 1:
            refused[one[0].name] = why
        else:  # which of them it is: halves
            some[:0] = [one[:len(one) // 2], one[len(one) // 2:]]
    return wrong, refused


def run(kiln, cases, *options):
    """What is wrong, by the name of the case."""
    wrong, refused = run_judged(kiln, cases, options, compare)
    return {**wrong, **refused}


def report(wrong, n):
    """Prints what is wrong; the exit code."""
    for name, why in wrong.items():
        print(f"FAILED {name}: {why}")
    print(f"{n - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong or n == 0 else 0
