#!/usr/bin/env python3
"""Compares operators of com.microsoft with ONNX Runtime on random data, a node a model.

usage: contrib.py KILN [PATTERN]...     in the Python environment of `make test`
"""
import fnmatch
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

CASES = {}
RNG = numpy.random.default_rng(7)
MS = "com.microsoft"


class Weight:
    """An input that the model holds."""

    def __init__(self, array):
        self.array = array


def normal(*shape, dtype=numpy.float32, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype(dtype)


def integers(low, high, *shape, dtype=numpy.int64):
    return RNG.integers(low, high, shape).astype(dtype)


def scalar(value, dtype=numpy.float32):
    return numpy.array(value, dtype)


def case(name, op, inputs, n_outputs=1, domain=MS, rtol=1e-4, atol=1e-5, **attributes):
    """`n_outputs` may be a list of whether each is wanted."""
    wanted = [True] * n_outputs if isinstance(n_outputs, int) else n_outputs
    CASES[name] = (op, inputs, wanted, domain, rtol, atol, attributes)


def model_of(op, inputs, wanted, domain, attributes):
    names, ports, weights = [], [], []
    for k, value in enumerate(inputs):
        names.append("" if value is None else f"x{k}")
        if isinstance(value, Weight):
            weights.append(numpy_helper.from_array(value.array, f"x{k}"))
        elif value is not None:
            kind = helper.np_dtype_to_tensor_dtype(value.dtype)
            ports.append(helper.make_tensor_value_info(f"x{k}", kind, value.shape))
    outputs = [f"y{k}" if use else "" for k, use in enumerate(wanted)]
    node = helper.make_node(op, names, outputs, domain=domain, **attributes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    graph = helper.make_graph([node], op, ports, results, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MS, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(kiln, name, folder):
    """None, or what is wrong."""
    op, inputs, wanted, domain, rtol, atol, attributes = CASES[name]
    path = folder / "model.onnx"
    path.write_bytes(model_of(op, inputs, wanted, domain, attributes).SerializeToString())
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feed = {f"x{k}": v for k, v in enumerate(inputs) if v is not None and not isinstance(v, Weight)}
    command = [kiln, "run", path, "--threads", "1", "--rtol", str(rtol), "--atol", str(atol)]
    for port, value in feed.items():
        numpy.save(folder / f"{port}.npy", value)
        command += ["--input", f"{port}={folder}/{port}.npy"]
    for port, value in zip(session.get_outputs(), session.run(None, feed)):
        numpy.save(folder / f"{port.name}.npy", value)
        command += ["--expect", f"{port.name}={folder}/{port.name}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def define_norms():
    x, skip = normal(2, 5, 24), normal(2, 5, 24)
    gamma, beta, bias = normal(24), normal(24), normal(24)
    case("rms", "SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-5, axis=-1, stash_type=1)
    case("skip", "SkipLayerNormalization", [x, skip, gamma, beta, bias], [True, False, False, True], epsilon=1e-5)
    case("skip_bare", "SkipLayerNormalization", [x, skip, gamma])
    case("skip_broadcast", "SkipLayerNormalization", [x, normal(5, 24), gamma, beta], epsilon=1e-5)
    case("skip_first", "SkipLayerNormalization", [x, normal(1, 5, 24), gamma, beta], epsilon=1e-5)
    case("skip_rms", "SkipSimplifiedLayerNormalization", [x, skip, gamma], [True, False, False, True], epsilon=1e-6)
    case("skip_rms_bias", "SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-6)
    ids = integers(0, 30, 2, 5, dtype=numpy.int32)
    segments = integers(0, 2, 2, 5, dtype=numpy.int32)
    tables = [Weight(normal(30, 24)), Weight(normal(8, 24)), Weight(normal(2, 24)), Weight(gamma), Weight(beta)]
    mask = (numpy.arange(5) < [[3], [5]]).astype(numpy.int32)
    case("embed", "EmbedLayerNormalization", [ids, segments, *tables, mask], 2, epsilon=1e-5)
    case("embed_no_mask", "EmbedLayerNormalization", [ids, segments, *tables], 3, epsilon=1e-5)
    words = [ids, None, tables[0], tables[1], None, *tables[3:]]
    case("embed_words", "EmbedLayerNormalization", words, 2, epsilon=1e-5)
    places = integers(0, 8, 2, 5, dtype=numpy.int32)
    case("embed_positions", "EmbedLayerNormalization", [ids, segments, *tables, mask, places], 2, epsilon=1e-5)
    case("embed_positions_shared", "EmbedLayerNormalization", [ids, segments, *tables, mask, places[:1]], 2)


def define_activations():
    x, bias = normal(2, 5, 24), normal(24)
    case("gelu", "Gelu", [x])
    case("fast_gelu", "FastGelu", [x])
    case("fast_gelu_bias", "FastGelu", [x, bias])
    case("bias_gelu", "BiasGelu", [x, bias])
    case("quick_gelu", "QuickGelu", [x], alpha=1.5)
    case("quick_gelu_default", "QuickGelu", [x])


def main():
    kiln, patterns = sys.argv[1], sys.argv[2:] or ["*"]
    for define in (define_norms, define_activations):
        define()
    names = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in patterns)]
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            wrong = check(kiln, name, pathlib.Path(folder))
        if wrong:
            failed += 1
            print(f"{name}: FAILED: {wrong}", flush=True)
    print(f"{len(names) - failed} of {len(names)} agree")
    return 1 if failed or not names else 0


if __name__ == "__main__":
    sys.exit(main())
