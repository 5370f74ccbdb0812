#!/usr/bin/env python3
"""Random models in which a kernel sees another's result through a view that its own form does not have: products through
reshapes that cut across their rows, sums of what a condition on the summed index chooses, convolutions of a number, windows
finished by maps of fewer dims. Each is compiled for every kind of target and judged by the reference interpreter.

usage: views.py KILN      needs numpy and onnx. KILN_SEED in the environment: others
"""
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import judged  # noqa: E402
import share  # noqa: E402
import numpy as np  # noqa: E402

TARGETS = ("cpu", "opencl", "sim:cuda:sm_90a")


class Model(judged.Model):
    def weights(self, *shape):
        return self.constant(self.rng.standard_normal(shape).astype(np.float32))


def factors(m, n):
    """A random shape of |n| elements, whose extents need not be products of any other shape's."""
    shape = []
    while n > 1 and len(shape) < 4:
        divisors = [d for d in range(1, n + 1) if n % d == 0]
        shape.append(divisors[m.integers(0, len(divisors) - 1)])
        n //= shape[-1]
    shape.append(n)
    return [int(e) for e in m.rng.permutation(shape)]


def product_through_reshape(m):
    batch = [m.integers(1, 4) for _ in range(m.integers(0, 2))]
    rows, columns, depth = m.integers(1, 24), m.integers(1, 24), m.integers(1, 9)
    b = m.input(*batch, depth, columns) if m.integers(0, 1) else m.weights(depth, columns)
    shape = factors(m, math.prod(batch) * rows * columns)
    y = m.add("MatMul", m.input(*batch, rows, depth), b)
    if m.integers(0, 2) == 0:
        y = m.add("Sigmoid", y)
    y = m.add("Reshape", y, m.constant(np.array(shape)))
    if m.integers(0, 1):
        m.add("Mul", y, m.input(*shape[-2:]))


def sum_by_condition(m):
    planes, rows, columns, copies = m.integers(4, 20), m.integers(4, 16), 2 * m.integers(2, 8), m.integers(1, 4)
    x = m.add("Trilu", m.input(1, planes, rows, columns), upper=m.integers(0, 1))
    if m.integers(0, 1):
        x = m.add("Tile", x, m.constant(np.array([1, copies, 1, 1])))
        planes *= copies
    if m.integers(0, 1):
        x = m.add("Reshape", x, m.constant(np.array([1, planes * rows, columns])))
        axes = [0, 1]
    else:
        axes = [0, 1, 2]
    m.add(("ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2")[m.integers(0, 3)], x, m.constant(np.array(axes)))


def product_of_a_number(m):
    x = m.add("Where", m.constant(np.array(m.integers(0, 1) == 0)), m.input(), m.constant(np.float32(0.5)))
    op = ("Conv", "ConvTranspose", "MatMul", "MaxPool", "AveragePool", "GlobalAveragePool", "Softmax")[m.integers(0, 6)]
    image = [m.integers(1, 2), m.integers(1, 4), m.integers(3, 6), m.integers(3, 6)]
    x = m.add("Expand", x, m.constant(np.array(image)))
    if op == "Conv":
        m.add(op, x, m.weights(m.integers(1, 16), image[1], 3, 3), strides=[m.integers(1, 3)] * 2)
    elif op == "ConvTranspose":
        m.add(op, x, m.weights(image[1], m.integers(1, 8), 3, 3), strides=[m.integers(1, 2)] * 2)
    elif op == "MatMul":
        m.add(op, x, m.weights(image[3], m.integers(1, 16)))
    elif op.endswith("Pool") and not op.startswith("Global"):
        m.add(op, x, kernel_shape=[2, 2])
    else:
        m.add(op, x)


def windows_with_finish(m):
    """A convolution channel by channel, a normalization of which the run gives the scale, and another behind it."""
    n = m.integers(1, 3)
    channels, kernel = m.integers(2, 12), [m.integers(1, 4) for _ in range(n)]
    x = m.input(m.integers(1, 4), channels, *[k + m.integers(2, 8) for k in kernel])
    if m.integers(0, 1):
        x = m.add("Mul", x, m.weights(*[1] * (n + 1)))
    x = m.add("Conv", x, m.weights(channels, 1, *kernel), group=channels, strides=[m.integers(1, 3) for _ in range(n)],
              pads=[m.integers(0, k // 2) for k in kernel] * 2)
    runs = m.integers(1, 15)  # which of scale, bias, mean and variance the run gives
    given = [m.input(channels) if runs >> k & 1 else m.constant(m.rng.uniform(0.5, 2, channels).astype(np.float32)) for k in range(4)]
    x = m.add("BatchNormalization", x, *given)
    behind = m.integers(0, 3)
    if behind == 1:
        m.add("Relu", x)
    elif behind == 2:
        m.add("Pad", x, m.constant(np.array([0, 0] + [1] * n + [0, 0] + [0] * n)))
    elif behind == 3:
        m.add("Conv", x, m.weights(2 * channels, 1, *[1] * n), group=channels)


KINDS = (product_through_reshape, sum_by_condition, product_of_a_number, windows_with_finish)


def main():
    judge = judged.Judge()
    for number in share.some(range(160)):
        kind = KINDS[number % len(KINDS)]
        m = Model(np.random.default_rng([judged.SEED, number]))
        kind(m)
        with judged.saved(m) as path:
            for target in TARGETS:
                judge.run(path, f"{kind.__name__} {judged.SEED}:{number}", target)
    judge.end()


if __name__ == "__main__":
    main()
