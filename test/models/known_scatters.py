#!/usr/bin/env python3
"""Random scatters whose positions are constants (rules `scatters` and `constants`): results must be those of the reference
interpreter, which knows no rules, and of ONNX's reference on the same inputs; where nothing is added up, no scatter may be left.

usage: known_scatters.py KILN      in the Python environment of `make test`

A model is a chain of ScatterND and ScatterElements into an input or a filled tensor, with maps between them: slices with steps
of either sign, single rows, permutations, positions that repeat, negative ones. Updates are inputs, constants, or slices of
what is scattered into. KILN_SEED draws others.
"""
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import judged  # noqa: E402
import share  # noqa: E402
from judged import np, onnx  # noqa: E402

TARGETS = ["cpu", "sim:cuda:sm_90a", "opencl"]


def positions(m, extent, most):
    """Positions along an axis of |extent| elements, and whether they are distinct."""
    kind, n = m.integers(0, 3), m.integers(1, most)
    if kind == 0:  # a slice
        step = m.integers(1, 3) * (1 if m.chance(2) else -1)
        first = m.integers(0, extent - 1)
        at = np.arange(first, extent if step > 0 else -1, step)[:most]
    elif kind == 1:
        at = m.rng.permutation(extent)[:n]
    elif kind == 2:
        at = m.rng.integers(0, extent, n)  # may repeat
    else:
        at = np.array([m.integers(0, extent - 1)])
    if m.chance(3):
        at = at - extent
    return at.astype(np.int64), len(set(at % extent)) == len(at)


def updates(m, whole, shape, of):
    """A tensor of |shape|: an input, a constant, or the leading elements of |whole|."""
    kind = m.integers(0, 2)
    if kind == 0:
        return m.input(*shape)
    if kind == 1 or any(a > b for a, b in zip(shape, of)) or len(shape) != len(of):
        return m.constant(m.rng.standard_normal(shape).astype(np.float32))
    axes = np.arange(len(of))
    return m.add("Slice", whole, m.constant(np.zeros(len(of), np.int64)), m.constant(np.array(shape, np.int64)), m.constant(axes))


def scattered(m, whole, shape):
    """|whole| with elements replaced or combined, and whether what is added up has positions of its own."""
    if m.chance(2):  # rows along some leading axes
        depth = m.integers(1, len(shape))
        columns, apart = zip(*[positions(m, shape[k], 6) for k in range(depth)])
        index = np.stack(np.meshgrid(*columns, indexing="ij"), -1)
        given = updates(m, whole, (*index.shape[:-1], *shape[depth:]), shape)
        op, attributes = "ScatterND", {}
        distinct = all(apart)
    else:
        axis = m.integers(0, len(shape) - 1)
        at, distinct = positions(m, shape[axis], 6)
        extents = [len(at) if k == axis else m.integers(1, n) for k, n in enumerate(shape)]
        index = np.broadcast_to(at.reshape([-1 if k == axis else 1 for k in range(len(shape))]), extents).copy()
        if m.chance(3):  # another order in each row
            index = m.rng.permuted(index, axis=axis)
        given = updates(m, whole, tuple(extents), shape)
        op, attributes = "ScatterElements", {"axis": axis}
    how = m.rng.choice(["none", "add", "mul", "max", "min"]) if m.chance(3) else "none"
    if how != "none":
        attributes["reduction"] = str(how)
    return m.add(op, whole, m.constant(index), given, **attributes), how == "none" or distinct


def chain(rng):
    m = judged.Model(rng)
    shape = tuple(m.integers(1, 9) for _ in range(m.integers(1, 4)))
    x = m.input(*shape)
    t = m.add("ConstantOfShape", m.constant(np.array(shape, np.int64))) if m.chance(2) else x
    m.is_known = True
    for _ in range(m.integers(1, 3)):
        t, is_known = scattered(m, t, shape)
        m.is_known &= is_known
        if m.chance(2):
            t = m.add("Mul" if m.chance(2) else "Sub", t, x)
    m.add("Add", t, x)
    return m


def check_values(judge, path, m, name):
    """The interpreter's operators are Kiln's own: ONNX's reference tells whether a scatter means what it should."""
    from onnx.reference import ReferenceEvaluator

    feeds = {i.name: m.rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32) for i in m.inputs}
    want = ReferenceEvaluator(onnx.load(path)).run(None, feeds)[0]
    with tempfile.TemporaryDirectory() as folder:
        command = [judge.kiln, "run", path, "--no-cache", "--output-dir", folder]
        for key, value in feeds.items():
            np.save(f"{folder}/{key}.npy", value)
            command += ["--input", f"{key}={folder}/{key}.npy"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
        judge.check(not done.returncode, f"{name}: exit code {done.returncode}: {done.stderr[-300:]}")
        if not done.returncode:
            got = np.load(f"{folder}/{m.results()[0]}.npy")
            judge.check(np.allclose(got, want, rtol=1e-5, atol=1e-6), f"{name}: differs from ONNX's reference by {np.abs(got - want).max()}")


def main():
    judge = judged.Judge()
    for number in share.some(range(120)):
        name = f"{judged.SEED}:{number}"
        m = chain(np.random.default_rng([judged.SEED, number]))
        with judged.saved(m) as path:
            for target in TARGETS:
                judge.run(path, name, target)
            check_values(judge, path, m, name)
            if m.is_known:
                plan, why = judge.plan(path, "cpu", "f32", "--threads=2")
                judge.check(plan and "_scatter_" not in plan, f"{name}: a scatter is left: {why}")
    judge.end()


if __name__ == "__main__":
    main()
