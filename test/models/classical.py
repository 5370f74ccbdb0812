#!/usr/bin/env python3
"""Compares models of ai.onnx.ml, a node each with random attributes, with a direct evaluation in numpy.

usage: classical.py KILN [PATTERN]...     in the Python environment of `make test`
"""
import fnmatch
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

CASES = {}
RNG = np.random.default_rng(11)
POSTS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def listed(array):
    return [float(v) for v in np.ravel(array)]


def case(name, op, inputs, results, opset=3, rtol=1e-5, atol=1e-6, fails=False, **attributes):
    """|results|: arrays, None where an output is not wanted; |fails|: the run must fail."""
    CASES[name] = (op, inputs, results, opset, rtol, atol, fails, attributes)


def model_of(op, inputs, results, opset, attributes):
    names = [f"x{i}" for i in range(len(inputs))]
    outputs = ["" if value is None else f"y{i}" for i, value in enumerate(results)]
    node = helper.make_node(op, names, outputs, domain="ai.onnx.ml", **attributes)
    ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in zip(names, inputs)]
    graph = helper.make_graph([node], op, ports, [onnx.ValueInfoProto(name=name) for name in outputs if name])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(kiln, name, folder):
    """None, or what is wrong."""
    op, inputs, results, opset, rtol, atol, fails, attributes = CASES[name]
    path = folder / "model.onnx"
    path.write_bytes(model_of(op, inputs, results, opset, attributes).SerializeToString())
    command = [kiln, "run", path, "--threads", "1", "--no-cache", "--rtol", str(rtol), "--atol", str(atol)]
    for kind, option, values in (("x", "--input", inputs), ("y", "--expect", results)):
        for i, value in enumerate(values):
            if value is not None:
                np.save(folder / f"{kind}{i}.npy", value)
                command += [option, f"{kind}{i}={folder}/{kind}{i}.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    if fails:
        return None if done.returncode != 0 and fails in done.stderr else "must fail: " + done.stderr.strip()
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


# --- direct evaluations ---


def logistic(x):
    return 1 / (1 + np.exp(-x))


def probit(x):
    """Winitzki's approximation of sqrt(2) * erfinv(2x - 1)."""
    y = 2 * x - 1
    log = np.log((1 - y) * (1 + y))
    v = 2 / (3.14159 * 0.147) + 0.5 * log
    return np.sign(y) * 1.41421356 * np.sqrt(-v + np.sqrt(v * v - log / 0.147))


def transform(post, x):
    if post == "LOGISTIC":
        return logistic(x)
    if post == "PROBIT":
        return probit(x)
    if post == "NONE":
        return x
    exp = np.exp(x - x.max(axis=1, keepdims=True))
    if post == "SOFTMAX":
        return exp / exp.sum(axis=1, keepdims=True)
    zero = np.abs(x) <= 1e-7
    total = np.where(zero, 0, exp).sum(axis=1, keepdims=True)
    return np.where(zero, x * np.exp(-x.max(axis=1, keepdims=True)), exp) / total


# --- cases ---


def define_linear():
    x = normal(7, 5)
    for post in POSTS:
        scale, bias, atol = (0.02, 0.5, 1e-4) if post == "PROBIT" else (1, 0.1, 1e-6)
        w, b = normal(3, 5) * np.float32(scale), np.full(3, bias, np.float32)
        scores = x.astype(np.float64) @ w.T.astype(np.float64) + b
        case(f"regressor_{post}", "LinearRegressor", [x], [transform(post, scores).astype(np.float32)], atol=atol,
             coefficients=listed(w), intercepts=listed(b), targets=3, post_transform=post)
        labels = np.array([3, 1, 7])[scores.argmax(axis=1)]
        case(f"classifier_{post}", "LinearClassifier", [x], [labels, transform(post, scores).astype(np.float32)],
             atol=atol, coefficients=listed(w), intercepts=listed(b), classlabels_ints=[3, 1, 7], post_transform=post)
        if post == "PROBIT":
            continue
        one = scores[:, :1]
        both = np.hstack([logistic(-one), logistic(one)] if post == "LOGISTIC" else [1 - one, one])
        case(f"classifier_of_two_{post}", "LinearClassifier", [x],
             [np.where(one[:, 0] > 0, 9, 4), both.astype(np.float32)], coefficients=listed(w[:1]),
             intercepts=listed(b[:1]), classlabels_ints=[4, 9], post_transform=post)
    whole = RNG.integers(-5, 5, (6, 4))
    w = normal(2, 4)
    case("classifier_of_integers", "LinearClassifier", [whole], [(whole @ w.T).argmax(axis=1), None],
         coefficients=listed(w), intercepts=[0.0, 0.0], classlabels_ints=[0, 1])
    case("regressor_of_a_vector", "LinearRegressor", [x[0]], [(x[:1] @ w[:1, :1].repeat(5, 1).T)],
         coefficients=[float(w[0, 0])] * 5)
    case("classifier_with_strings", "LinearClassifier", [x], [None, x @ np.eye(5, 2, dtype=np.float32)],
         coefficients=listed(np.eye(5, 2).T), intercepts=[0.0, 0.0], classlabels_strings=["a", "b"])


def define_scaling():
    x = normal(5, 4)
    scale, offset = normal(4), normal(4)
    case("scaler", "Scaler", [x], [(x - offset) * scale], scale=listed(scale), offset=listed(offset))
    whole = RNG.integers(0, 4, (5, 4))
    case("scaler_of_integers", "Scaler", [whole], [((whole - 0.5) * 2.5).astype(np.float32)], scale=[2.5], offset=[0.5])
    for dtype in (np.float32, np.float64, np.int32):
        many = (normal(6, 5) * 8).astype(dtype)
        many[2] = 0
        f = many.astype(np.float64)
        for norm, by in (("MAX", f.max(axis=1)), ("L1", np.abs(f).sum(axis=1)), ("L2", np.sqrt((f * f).sum(axis=1)))):
            y = f / np.where(by == 0, 1, by)[:, None]
            case(f"normalizer_{norm}_{np.dtype(dtype).name}", "Normalizer", [many], [y.astype(np.float32)], norm=norm)
    missing = x.copy()
    missing[::2, 1:3] = np.nan
    filled = np.where(np.isnan(missing), offset, missing)
    case("imputer", "Imputer", [missing], [filled], imputed_value_floats=listed(offset), replaced_value_float=np.nan)
    case("imputer_of_integers", "Imputer", [whole], [np.where(whole == 2, 9, whole)], imputed_value_int64s=[9],
         replaced_value_int64=2)
    case("binarizer", "Binarizer", [x], [(x > np.float32(0.2)).astype(np.float32)], threshold=0.2)


def encoded(x, keys, values, otherwise):
    table = {}
    for key, value in zip(keys, values):
        table.setdefault("nan" if key != key else key, value)
    return [table.get("nan" if v != v else v, otherwise) for v in x.ravel().tolist()]


def define_encoders():
    for n in (1, 3, 16, 100):
        whole = RNG.integers(-n, 2 * n, (4, 30))
        keys = RNG.integers(-n, 2 * n, n).tolist()
        values, floats = RNG.integers(0, 50, n).tolist(), listed(normal(n))
        want = np.array(encoded(whole, keys, values, -7)).reshape(4, 30)
        case(f"encoder_of_integers_{n}", "LabelEncoder", [whole], [want], keys_int64s=keys, values_int64s=values,
             default_int64=-7)
        want = np.array(encoded(whole, keys, floats, 0.5), np.float32).reshape(4, 30)
        case(f"encoder_to_floats_{n}", "LabelEncoder", [whole], [want], keys_int64s=keys, values_floats=floats,
             default_float=0.5)
        x = whole.astype(np.float32)
        x[0, :3] = np.nan, np.inf, -0.0
        keys = [float(k) for k in keys] + [np.nan, -np.inf]
        want = np.array(encoded(x, keys, [*values, 77, 78], -1)).reshape(4, 30)
        case(f"encoder_of_floats_{n}", "LabelEncoder", [x], [want], keys_floats=keys, values_int64s=[*values, 77, 78])
    whole = RNG.integers(0, 9, (3, 5))
    keys, values = np.array([2, 5, 7], np.int64), np.array([1.5, -2, 8])
    want = np.array(encoded(whole, keys.tolist(), values.tolist(), 4.0)).reshape(3, 5)
    tensors = [helper.make_tensor(name, kind, [n], v) for name, kind, n, v in
               (("k", onnx.TensorProto.INT64, 3, keys), ("v", onnx.TensorProto.DOUBLE, 3, values),
                ("d", onnx.TensorProto.DOUBLE, 1, [4.0]))]
    case("encoder_of_tensors", "LabelEncoder", [whole], [want], opset=4, keys_tensor=tensors[0],
         values_tensor=tensors[1], default_tensor=tensors[2])
    categories = [5, 3, 8]
    hot = (whole[..., None] == categories).astype(np.float32)
    case("one_hot", "OneHotEncoder", [whole], [hot], cats_int64s=categories)
    case("one_hot_of_floats", "OneHotEncoder", [whole.astype(np.float32)], [hot], cats_int64s=categories)
    known = RNG.choice(categories, (3, 5))
    case("one_hot_of_known", "OneHotEncoder", [known], [(known[..., None] == categories).astype(np.float32)],
         cats_int64s=categories, zeros=0)
    case("one_hot_of_unknown", "OneHotEncoder", [whole], [hot], cats_int64s=categories, zeros=0, fails="OneHotEncoder")
    parts = [normal(4, 3), normal(4, 2), normal(4, 1)]
    wide = np.hstack([parts[0][:, :2], parts[1], np.zeros((4, 1), np.float32), parts[2]])
    case("features", "FeatureVectorizer", parts, [wide], inputdimensions=[2, 3, 1])


def main():
    kiln, *patterns = sys.argv[1:]
    for define in (define_linear, define_scaling, define_encoders):
        define()
    names = [n for n in CASES if not patterns or any(fnmatch.fnmatch(n, p) for p in patterns)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            message = check(kiln, name, pathlib.Path(folder))
            wrong += message is not None
            if message:
                print(f"{name}: {message}\n")
    print(f"{len(names) - wrong} of {len(names)} right")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
