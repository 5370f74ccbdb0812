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


# --- trees ---

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER"]
COMPARE = [np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal, lambda x, v: x in v]


class Node:
    """An inner node, or a leaf with weights {target: weight}."""

    def __init__(self, weights=None, mode=0, feature=0, value=0.0, missing=False, yes=None, no=None):
        self.weights, self.mode, self.feature, self.value, self.missing = weights, mode, feature, value, missing
        self.yes, self.no = yes, no

    def reach(self, row):
        node = self
        while node.weights is None:
            x = row[node.feature]
            holds = COMPARE[node.mode](x, node.value) or (node.missing and np.isnan(x))
            node = node.yes if holds else node.no
        return node.weights


def grow(depth, features, modes, targets, leaf_targets=1, positive=False, early=0.15):
    if depth == 0 or RNG.random() < early:
        draw = RNG.random if positive else RNG.standard_normal
        chosen = RNG.choice(targets, leaf_targets, replace=False)
        return Node({int(t): float(np.float32(draw())) for t in chosen})
    mode = int(RNG.choice(modes))
    value = float(RNG.choice([-2, -1, 0, 1, 2, 1.5, np.inf, -np.inf, np.nan], p=[0.18] * 5 + [0.04, 0.02, 0.02, 0.02]))
    if mode == 6:
        value = set(RNG.choice(9, RNG.integers(1, 6), replace=False).astype(float) - 4)
    return Node(None, mode, int(RNG.integers(features)), value, bool(RNG.integers(2)),
                grow(depth - 1, features, modes, targets, leaf_targets, positive, early),
                grow(depth - 1, features, modes, targets, leaf_targets, positive, early))


def listed_nodes(root):
    """The nodes of a tree, parents first, in a shuffled order of children."""
    found = [root]
    for node in found:
        if node.weights is None:
            found += [node.yes, node.no] if RNG.random() < 0.5 else [node.no, node.yes]
    return found


def attributes_of(trees, prefix):
    """Versions 1 and 3."""
    a = {f"nodes_{k}": [] for k in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                                    "missing_value_tracks_true")}
    a |= {f"{prefix}_{k}": [] for k in ("treeids", "nodeids", "ids", "weights")}
    for tree, root in enumerate(trees):
        nodes = listed_nodes(root)
        number = {id(n): 3 * i + 1 for i, n in enumerate(nodes)}
        for n in nodes:
            leaf = n.weights is not None
            for key, value in (("treeids", tree), ("nodeids", number[id(n)]), ("featureids", n.feature),
                               ("modes", "LEAF" if leaf else MODES[n.mode]), ("values", n.value),
                               ("truenodeids", 0 if leaf else number[id(n.yes)]),
                               ("falsenodeids", 0 if leaf else number[id(n.no)]),
                               ("missing_value_tracks_true", int(n.missing))):
                a["nodes_" + key].append(value)
            for target, weight in (n.weights or {}).items():
                for key, value in (("treeids", tree), ("nodeids", number[id(n)]), ("ids", target), ("weights", weight)):
                    a[f"{prefix}_{key}"].append(value)
    return a


def attributes_of_five(trees, dtype):
    """Version 5, whose leaves have one weight."""
    inner, leaves, roots = [], [], []
    for root in trees:
        nodes = listed_nodes(root)
        roots.append(len(inner))
        inner += [n for n in nodes if n.weights is None]
        leaves += [n for n in nodes if n.weights is not None]
    place = {id(n): i for i, n in enumerate(inner)} | {id(n): i for i, n in enumerate(leaves)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    members = [v for n in inner if n.mode == 6 for v in [*n.value, np.nan]]
    splits = [0.0 if n.mode == 6 else n.value for n in inner]
    a = {"nodes_splits": helper.make_tensor("s", kind, [len(inner)], splits),
         "nodes_modes": helper.make_tensor("m", onnx.TensorProto.UINT8, [len(inner)], [n.mode for n in inner]),
         "leaf_weights": helper.make_tensor("w", kind, [len(leaves)], [w for n in leaves for w in n.weights.values()]),
         "leaf_targetids": [t for n in leaves for t in n.weights], "tree_roots": roots,
         "nodes_featureids": [n.feature for n in inner], "nodes_missing_value_tracks_true": [int(n.missing) for n in inner]}
    for way in ("yes", "no"):
        name = {"yes": "true", "no": "false"}[way]
        a[f"nodes_{name}nodeids"] = [place[id(getattr(n, way))] for n in inner]
        a[f"nodes_{name}leafs"] = [int(getattr(n, way).weights is not None) for n in inner]
    if members:
        a["membership_values"] = helper.make_tensor("v", kind, [len(members)], members)
    return a


def scores_of(trees, x, n_targets, function="SUM"):
    scores = np.zeros((len(x), n_targets))
    for i, row in enumerate(x):
        for target in range(n_targets):
            found = [w[target] for w in (t.reach(row) for t in trees) if target in w]
            if found:
                scores[i, target] = {"SUM": sum, "AVERAGE": sum, "MIN": min, "MAX": max}[function](found)
    return scores / (len(trees) if function == "AVERAGE" else 1)


def inputs_of(rows, features, dtype=np.float32):
    x = RNG.integers(-3, 4, (rows, features)).astype(dtype)
    if np.dtype(dtype).kind == "f":
        for value, share in ((np.nan, 0.15), (np.inf, 0.05), (-np.inf, 0.05), (-0.0, 0.05), (1.5, 0.1)):
            x[RNG.random(x.shape) < share] = value
    return x


def regressor(name, trees, x, n_targets=1, function="SUM", post="NONE", base=None, **bounds):
    scores = scores_of(trees, x, n_targets, function) + (base or 0)
    y = transform(post, scores) if n_targets > 1 or post == "PROBIT" else scores
    a = attributes_of(trees, "target") | ({"base_values": base} if base else {})
    case(name, "TreeEnsembleRegressor", [x], [y.astype(np.float32)], n_targets=n_targets, aggregate_function=function,
         post_transform=post, **a, **bounds)


def define_regressors():
    ways = range(6)
    for rows in (1, 40):  # walking, and by bits where trees are small
        x = inputs_of(rows, 4)
        for mode in ways:
            regressor(f"{MODES[mode]}_{rows}", [grow(4, 4, [mode], [0]) for _ in range(5)], x)
        for depth in (0, 1, 3, 5, 6, 7, 9):  # of up to 32 leaves, of up to 64, of more
            trees = [grow(depth, 4, ways, [0], early=0.02) for _ in range(6)]
            regressor(f"depth_{depth}_{rows}", trees, x, atol=1e-5)
        for function in ("SUM", "AVERAGE", "MIN", "MAX"):
            trees = [grow(3, 4, ways, [0]) for _ in range(7)]
            regressor(f"{function}_{rows}", trees, x, function=function, base=[0.5])
            trees = [grow(3, 4, ways, [0, 1, 2], 2) for _ in range(4)]
            regressor(f"{function}_of_several_{rows}", trees, x, 4, function, base=[0.5, 1.0, 2.0, 3.0])
        for post in POSTS:
            trees = [grow(3, 4, ways, [0, 1, 2], 3, positive=True, early=0)]
            regressor(f"{post}_{rows}", trees, x, 3, post=post, rtol=1e-3)
    x = inputs_of(30, 300)
    regressor("many_columns", [grow(6, 300, ways, [0]) for _ in range(30)], x, atol=1e-5)
    lopsided = Node({0: 1.0})
    for i in range(45):
        lopsided = Node(None, 0, 0, float(i - 20), False, Node({0: float(i)}), lopsided)
    regressor("lopsided", [lopsided, Node({0: 0.25})], np.arange(-25, 25, dtype=np.float32)[:, None])
    for rows in (1, 20):  # trees of one target each follow each other, or would be too many
        trees = [grow(3, 4, ways, [i % 3]) for i in range(8)]
        regressor(f"a_target_each_{rows}", trees, inputs_of(rows, 4), 3)
        regressor(f"mostly_one_target_{rows}", [*trees, *(grow(3, 4, ways, [1]) for i in range(20))], inputs_of(rows, 4), 3)


def classifier(name, trees, x, labels, post="NONE", base=None, **bounds):
    targets = {t for tree in trees for n in listed_nodes(tree) for t in n.weights or {}}
    scores = scores_of(trees, x, len(labels))
    if len(targets) > 1 or len(labels) > 2:
        scores = scores + (base or 0)
        y, chosen = transform(post, scores), scores.argmax(axis=1)
    else:
        one = scores[:, list(targets)] + (base or 0)
        positive = all(w >= 0 for tree in trees for n in listed_nodes(tree) for w in (n.weights or {}).values())
        chosen = (one[:, 0] > (0.5 if positive else 0)).astype(int)
        y = np.hstack([logistic(-one), logistic(one)] if post == "LOGISTIC" else [(1 if positive else 0) - one, one])
        if targets == {1}:
            y = transform(post, scores)
    a = attributes_of(trees, "class") | ({"base_values": base} if base else {})
    case(name, "TreeEnsembleClassifier", [x], [np.array(labels)[chosen], y.astype(np.float32)], classlabels_int64s=labels,
         post_transform=post, **a, **bounds)


def define_classifiers():
    ways = range(6)
    for rows in (1, 40):
        x = inputs_of(rows, 4)
        for post in POSTS[:4]:
            for positive in (False, True):
                name, grown = f"{post}_{positive}_{rows}", {"positive": positive}
                classifier(f"three_{name}", [grow(3, 4, ways, [0, 1, 2], 3, **grown) for _ in range(5)], x, [5, 3, 9], post)
                classifier(f"two_{name}", [grow(3, 4, ways, [0, 1], 2, **grown) for _ in range(5)], x, [5, 3], post)
                for only in (0, 1):
                    trees = [grow(3, 4, ways, [only], **grown) for _ in range(3)]
                    classifier(f"only_{only}_{name}", trees, x, [5, 3], post, base=[0.25] if only == 0 else None)
        trees = [grow(3, 4, ways, [i % 3]) for i in range(9)]
        classifier(f"a_class_each_{rows}", trees, x, [0, 1, 2], base=[0.1, 0.2, 0.3])
        stump = Node(None, 0, 0, 0.0, False, Node({0: 0.5, 1: 0.5, 2: 0.5}), Node({0: 0.0, 1: 0.5, 2: 0.5}))
        classifier(f"ties_{rows}", [stump, stump], x, [0, 1, 2])
    whole = inputs_of(20, 4, np.int64)
    classifier("of_integers", [grow(4, 4, ways, [0, 1, 2], 3) for _ in range(3)], whole, [0, 1, 2])


def define_ensembles():
    for rows in (1, 20):
        for dtype in (np.float32, np.float64):
            x = inputs_of(rows, 4, dtype)
            trees = [grow(d, 4, range(7), [0, 1], early=0) for d in (1, 3, 5, 7)]
            for number, function in enumerate(("AVERAGE", "SUM", "MIN", "MAX")):
                y = scores_of(trees, x, 2, function).astype(dtype)
                case(f"five_{function}_{np.dtype(dtype).name}_{rows}", "TreeEnsemble", [x], [y], opset=5, n_targets=2,
                     aggregate_function=number, post_transform=0, **attributes_of_five(trees, dtype))
    x = inputs_of(4, 2)
    broken = attributes_of([grow(2, 2, [0], [0], early=0)], "target")
    for name, key, value, message in (("feature", "nodes_featureids", 2, "columns of the input"),
                                      ("child", "nodes_truenodeids", 99, "in range"),
                                      ("cycle", "nodes_truenodeids", 1, "once"),
                                      ("mode", "nodes_modes", "BRANCH_MEMBER", "nodes_modes"),
                                      ("target", "target_ids", 1, "weight")):
        a = broken | {key: [value, *broken[key][1:]]}
        case(f"broken_{name}", "TreeEnsembleRegressor", [x], [np.zeros((4, 1), np.float32)], n_targets=1, fails=message, **a)


# --- support vector machines ---


def kernel_of(kind, x, vectors, gamma, coef0, degree):
    x, vectors = x.astype(np.float64), vectors.astype(np.float64)
    if kind == "RBF":
        return np.exp(-gamma * ((x[:, None] - vectors[None]) ** 2).sum(axis=2))
    dot = x @ vectors.T
    return {"LINEAR": dot, "POLY": (gamma * dot + coef0) ** degree, "SIGMOID": np.tanh(gamma * dot + coef0)}[kind]


def couple(r):
    """Probabilities of classes from those of pairs, r[i, j] of i against j (Wu, Lin, Weng, algorithm 2)."""
    n = len(r)
    q = -r.T * r
    np.fill_diagonal(q, [(r[np.arange(n) != i, i] ** 2).sum() for i in range(n)])
    p = np.full(n, 1 / n)
    for _ in range(100):
        qp = q @ p
        pqp = p @ qp
        if np.abs(qp - pqp).max() < 0.005 / n:
            break
        for i in range(n):
            step = (pqp - qp[i]) / q[i, i]
            p[i] += step
            pqp = (pqp + step * (step * q[i, i] + 2 * qp[i])) / (1 + step) ** 2
            qp = (qp + step * q[i]) / (1 + step)
            p /= 1 + step
    return p


def define_machines():
    x = normal(9, 4)
    params = [0.3, 0.2, 3.0]
    for kind in ("LINEAR", "POLY", "RBF", "SIGMOID"):
        vectors, weights = normal(6, 4), normal(6)
        y = (kernel_of(kind, x, vectors, *params) @ weights + np.float32(0.3))[:, None]
        a = {"n_supports": 6, "support_vectors": listed(vectors), "coefficients": listed(weights), "rho": [0.3],
             "kernel_type": kind, "kernel_params": params}
        case(f"machine_{kind}", "SVMRegressor", [x], [y.astype(np.float32)], rtol=1e-4, **a)
        case(f"machine_of_one_class_{kind}", "SVMRegressor", [x], [np.where(y > 0, 1, -1).astype(np.float32)], one_class=1, **a)
        for n in (2, 3, 5):
            machine_of_classes(f"machine_of_{n}_classes_{kind}", n, kind, params, x)
    w = normal(4)
    case("machine_without_vectors", "SVMRegressor", [x], [(x @ w + np.float32(0.3))[:, None]], n_supports=0,
         coefficients=listed(w), rho=[0.3], kernel_params=[0.0, 0.0, 0.0])
    w = normal(3, 4)
    scores = x @ w.T + np.float32(0.3)
    case("classes_without_vectors", "SVMClassifier", [x], [scores.argmax(axis=1), scores], coefficients=listed(w), rho=[0.3],
         classlabels_ints=[0, 1, 2], kernel_params=[0.0, 0.0, 0.0])


def machine_of_classes(name, n, kind, params, x):
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    vectors, weights = normal(3 * n, 4), normal(n - 1, 3 * n)
    rho, a, b = normal(len(pairs)), -np.abs(normal(len(pairs))), normal(len(pairs))
    kernels = kernel_of(kind, x, vectors, *params)
    scores = np.stack([kernels[:, 3 * i:3 * i + 3] @ weights[j - 1, 3 * i:3 * i + 3]
                       + kernels[:, 3 * j:3 * j + 3] @ weights[i, 3 * j:3 * j + 3] + rho[p]
                       for p, (i, j) in enumerate(pairs)], axis=1)
    votes = np.zeros((len(x), n))
    against = np.zeros((len(x), n, n))
    for p, (i, j) in enumerate(pairs):
        votes[np.arange(len(x)), np.where(scores[:, p] > 0, i, j)] += 1
        against[:, i, j] = np.clip(1 - logistic(scores[:, p] * a[p] + b[p]), 1e-7, 1 - 1e-7)
        against[:, j, i] = 1 - against[:, i, j]
    labels = [7, 5, 1, 0, 2][:n]
    chosen = np.array(labels)[votes.argmax(axis=1)]
    attributes = {"vectors_per_class": [3] * n, "support_vectors": listed(vectors), "coefficients": listed(weights),
                  "rho": listed(rho), "kernel_type": kind, "kernel_params": params, "classlabels_ints": labels}
    plain = np.hstack([-scores, scores]) if n == 2 else scores
    case(name, "SVMClassifier", [x], [chosen, plain.astype(np.float32)], rtol=1e-4, atol=1e-5, **attributes)
    probabilities = np.stack([couple(r) for r in against])
    case(f"{name}_with_probabilities", "SVMClassifier", [x], [chosen, probabilities.astype(np.float32)], rtol=1e-4,
         atol=1e-5, prob_a=listed(a), prob_b=listed(b), **attributes)


def main():
    kiln, *patterns = sys.argv[1:]
    for define in (define_linear, define_scaling, define_encoders, define_regressors, define_classifiers, define_ensembles,
                   define_machines):
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
