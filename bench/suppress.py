#!/usr/bin/env python3
"""Times NonMaxSuppression as detectors have it, and Unique, against ONNX Runtime: processor time of a run on one thread, interleaved.

usage: bench/suppress.py [PATTERN]...

An image has 20 objects: boxes around each, with scores of its class above the threshold of 0.25, and scores below it
everywhere else. In the others each box has a random score in each class, and all are above the threshold.
"""
import fnmatch
import pathlib
import sys
import tempfile
import time

from compare import Kiln, compile_module, ort_session
import numpy as np
import onnx
from onnx import helper, numpy_helper

RNG = np.random.default_rng(5)
ROUNDS = 15


def image(n, classes, objects=20):
    centres = RNG.random((objects, 2)) * 600
    of = RNG.integers(0, objects, n)
    at = centres[of] + RNG.normal(0, 4, (n, 2))
    sizes = 30 + 60 * RNG.random((objects, 2))[of] + RNG.normal(0, 3, (n, 2))
    boxes = np.concatenate([at - sizes / 2, at + sizes / 2], 1)
    scores = RNG.random((classes, n)) * 0.2
    hits = RNG.random(n) < 0.02
    scores[RNG.integers(0, classes, objects)[of[hits]], np.nonzero(hits)[0]] = 0.25 + 0.7 * RNG.random(hits.sum())
    return boxes[None], scores[None], 0.25


def crowd(n, classes):
    at, sizes = RNG.random((n, 2)) * 600, 20 + 100 * RNG.random((n, 2))
    return np.concatenate([at, at + sizes], 1)[None], RNG.random((1, classes, n)), 1e-8


def suppression(kind, n, classes, most):
    boxes, scores, threshold = kind(n, classes)
    feeds = {"B": boxes.astype(np.float32), "S": scores.astype(np.float32)}
    constants = [numpy_helper.from_array(np.array([v], t), k)
                 for k, v, t in (("K", most, np.int64), ("I", 0.45, np.float32), ("T", threshold, np.float32))]
    return helper.make_node("NonMaxSuppression", ["B", "S", "K", "I", "T"], ["Y"]), constants, feeds


def unique(n, different):
    return helper.make_node("Unique", ["X"], ["Y", "I", "J", "N"]), [], {"X": RNG.integers(0, different, n)}


CASES = {
    "yolo_8400x80_most_100": lambda: suppression(image, 8400, 80, 100),
    "yolo_8400x80_most_300": lambda: suppression(image, 8400, 80, 300),
    "yolo_25200x80_most_100": lambda: suppression(image, 25200, 80, 100),
    "ssd_8732x81_all_most_100": lambda: suppression(crowd, 8732, 81, 100),
    "ssd_8732x81_all_most_200": lambda: suppression(crowd, 8732, 81, 200),
    "one_class_4000_all": lambda: suppression(crowd, 4000, 1, 1 << 31),
    "one_class_25200": lambda: suppression(image, 25200, 1, 1 << 31),
    "unique_1000000_of_1000": lambda: unique(1000000, 1000),
    "unique_100000_of_100000": lambda: unique(100000, 100000),
}


def time_of(run):
    start = time.process_time()
    run()
    return (time.process_time() - start) * 1e3


def main():
    print("| operator | compile s | Kiln ms | ONNX Runtime ms |\n|---|---|---|---|")
    for name, make in CASES.items():
        if not any(fnmatch.fnmatch(name, p) for p in sys.argv[1:] or ["*"]):
            continue
        node, constants, feeds = make()
        ports = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
        outputs = [helper.make_tensor_value_info(o, onnx.TensorProto.INT64, None) for o in node.output]
        graph = helper.make_graph([node], name, ports, outputs, constants)
        with tempfile.TemporaryDirectory() as folder:
            path, module = pathlib.Path(folder) / "m.onnx", pathlib.Path(folder) / "m.so"
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
            start = time.perf_counter()
            compile_module(path, 1, [], module)
            seconds = time.perf_counter() - start
            kiln, session = Kiln(module, 1), ort_session(path, 1)
            kiln.bind(feeds)
            for got, want in zip(kiln.run(), session.run(None, feeds)):
                got = got.reshape(-1)[:want.size].reshape(want.shape)
                assert (got == want).all(), f"{name}: results must be equal"
            times = [(time_of(kiln.run), time_of(lambda: session.run(None, feeds))) for _ in range(ROUNDS)]
            mine, other = np.median(times, 0)
            print(f"| {name} | {seconds:.2f} | {mine:.2f} | {other:.2f} |", flush=True)


if __name__ == "__main__":
    main()
