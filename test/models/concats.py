#!/usr/bin/env python3
"""Random models whose layers concatenate results so far, as dense connections do: along any axis, all results or some of them,
in order or not, with several readers, and with results of the model in between. Each is compiled for every kind of target and
judged by the reference interpreter. Of DenseNet's blocks no kernel may be a copy of concatenated tensors, on CPUs and GPUs.

usage: concats.py KILN      needs numpy and onnx. KILN_SEED in the environment: others
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import judged  # noqa: E402
import share  # noqa: E402
import numpy as np  # noqa: E402

TARGETS = ("cpu", "opencl", "sim:cuda:sm_90a")
DENSE = (("cpu", "f32"), ("x86-64-v4", "f32"), ("cuda:sm_90a", "f16"), ("cuda:sm_80", "f16"), ("cuda:sm_90a", "f32"))


class Model(judged.Model):
    """The model of an input `x`; |shapes|: of all results, |kept|: results that others read as well."""

    def __init__(self, rng, *shape):
        super().__init__(rng)
        self.shapes, self.kept = {self.input(*shape, name="x"): tuple(shape)}, []

    def weights(self, *shape):
        return self.constant((self.rng.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5).astype(np.float32))

    def add(self, shape, op, *inputs, **attributes):
        result = super().add(op, *inputs, **attributes)
        self.shapes[result] = tuple(shape)
        return result

    def results(self):
        used = {i for n in self.nodes for i in n.input}
        return [n.output[0] for n in self.nodes if n.output[0] in self.kept or n.output[0] not in used]


def computed(m, t, axis):
    """A result of |t|'s shape but for the axis: a product, a window or a map."""
    shape = list(m.shapes[t])
    kind = m.integers(0, 4)
    if kind == 0 and axis == len(shape) - 1:
        shape[-1] = 8 * m.integers(1, 4)
        return m.add(shape, "MatMul", t, m.weights(m.shapes[t][-1], shape[-1]))
    if kind <= 2 and len(shape) == 4 and axis == 1:
        size = 1 if kind == 1 else 3
        shape[1] = m.integers(1, 3) * (8 if m.chance(2) else 5)
        w = m.weights(shape[1], m.shapes[t][1], size, size)
        t = m.add(shape, "Conv", t, w, m.weights(shape[1]), pads=[size // 2] * 4)
        return m.add(shape, "Relu", t) if m.chance(2) else t
    if kind == 3 and len(shape) == 4:
        return m.add(shape, "MaxPool", t, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    return m.add(shape, ("Relu", "Sigmoid", "Neg")[m.integers(0, 2)], t)


def concatenated(m, parts, axis):
    shape = list(m.shapes[parts[0]])
    shape[axis] = sum(m.shapes[p][axis] for p in parts)
    return m.add(shape, "Concat", *parts, axis=axis)


def dense(rng):
    """Layers that read all results so far, or a random part of them."""
    rank = int(rng.integers(2, 5))
    shape = (1, 8 * int(rng.integers(1, 4)), *rng.integers(3, 9, size=2).tolist())[:rank] if rank == 4 else rng.integers(4, 17, size=rank).tolist()
    m = Model(rng, *shape)
    axis = 1 if rank == 4 and not m.chance(4) else m.integers(0, rank - 1)
    parts = ["x" if m.chance(3) else computed(m, "x", axis)]
    for _ in range(m.integers(2, 6)):
        some = list(parts)
        if m.chance(4) and len(some) > 1:
            some = some[m.integers(0, len(some) - 2):]
        if m.chance(5):
            m.rng.shuffle(some)
        whole = concatenated(m, some, axis) if len(some) > 1 else some[0]
        if m.chance(4) and whole != "x":
            m.kept.append(whole)
        read = m.add(m.shapes[whole], "Relu", whole) if m.chance(2) else whole
        new = computed(m, read, axis)
        if m.shapes[new][:axis] + m.shapes[new][axis + 1:] != m.shapes[parts[0]][:axis] + m.shapes[parts[0]][axis + 1:]:
            continue
        if m.chance(5):
            m.kept.append(new)
        parts.append(new)
    if len(parts) > 1:
        m.add(m.shapes[parts[0]], "Relu", concatenated(m, parts, axis))
    return m


def dense_block(rng, images, channels, growth, layers):
    """A block of DenseNet: batch normalization, ReLU, 1x1, ReLU, 3x3, of all results before."""
    m = Model(rng, images, channels, 14, 14)
    parts = [m.add(m.shapes["x"], "MaxPool", "x", kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)]
    for i in range(layers + 1):
        whole = concatenated(m, parts, 1) if i else parts[0]
        shape = m.shapes[whole]
        moments = [m.weights(shape[1]), m.weights(shape[1]), m.weights(shape[1])]
        t = m.add(shape, "BatchNormalization", whole, *moments, m.constant(np.ones(shape[1], np.float32)))
        t = m.add(shape, "Relu", t)
        middle = (images, 4 * growth, 14, 14)
        t = m.add(middle, "Relu", m.add(middle, "Conv", t, m.weights(4 * growth, shape[1], 1, 1)))
        last = (images, growth, 14, 14)
        parts.append(m.add(last, "Conv", t, m.weights(growth, 4 * growth, 3, 3), pads=[1] * 4))
    return m


def copies(plan):
    """Kernels that do nothing but copy operands of a concatenation."""
    return [line for line in plan.splitlines() if "_map_Concat:" in line]


def check_blocks(judge):
    for number, (channels, growth, layers) in enumerate(share.some([(64, 32, 3), (64, 32, 6), (48, 16, 12), (128, 8, 5)])):
        with judged.saved(dense_block(np.random.default_rng([judged.SEED, number]), 2, channels, growth, layers)) as path:
            for target, dtype in DENSE:
                plan, why = judge.plan(path, target, dtype, "--threads=2")
                judge.check(plan and not copies(plan), f"dense block {channels} + {layers} x {growth} {target} {dtype}: {(why or str(copies(plan)))[-300:]}")


def main():
    judge = judged.Judge()
    check_blocks(judge)
    for number in share.some(range(100)):
        with judged.saved(dense(np.random.default_rng([judged.SEED, number]))) as path:
            for target in TARGETS:
                judge.run(path, f"{judged.SEED}:{number}", target)
    judge.end()


if __name__ == "__main__":
    main()
