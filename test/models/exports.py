#!/usr/bin/env python3
"""Compares exports of scikit-learn, XGBoost and LightGBM (skl2onnx, onnxmltools) with the estimator's own predictions and with
ONNX Runtime, on random data. For a Python environment of its own:

    python3 -m venv E && E/bin/pip install scikit-learn skl2onnx onnxmltools xgboost lightgbm onnxruntime
    E/bin/python test/models/exports.py build/kiln [--keep FOLDER] [PATTERN]...

Labels must be equal to both. Numbers must lie within 1e-4 of the greatest size and 1e-5 of the estimator's: models sum their
terms in f32. Rows where features
that the estimator compares in f64 stand within 1e-6 of a threshold do not occur: features are multiples of 1/64.
"""
import argparse
import fnmatch
import pathlib
import subprocess
import sys
import tempfile
import warnings

try:
    import lightgbm
    import numpy as np
    import onnx
    import onnxruntime
    import sklearn
    import skl2onnx
    import xgboost
    from onnxmltools.convert import convert_lightgbm, convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)
from sklearn import (calibration, cluster, compose, cross_decomposition, decomposition, discriminant_analysis, dummy, ensemble,
                     feature_extraction, feature_selection, gaussian_process, impute, isotonic, kernel_approximation, linear_model,
                     mixture, multiclass, multioutput, naive_bayes, neighbors, neural_network, pipeline, preprocessing, random_projection, svm, tree)

FEATURES, ROWS = 6, 64
make_attribute = onnx.helper.make_attribute


def attribute_of_integers(key, value, *rest, **how):
    """skl2onnx 1.20 gives lists of booleans where integers are meant, which protobuf refuses from version 5 on."""
    if isinstance(value, list):
        value = [int(v) if isinstance(v, (bool, np.bool_)) else v for v in value]
    return make_attribute(key, value, *rest, **how)


onnx.helper.make_attribute = attribute_of_integers
RNG = np.random.default_rng(3)


def numbers(rows, low=-128, high=128):
    return (RNG.integers(low, high, (rows, FEATURES)) / 64).astype(np.float32)


X = numbers(500)
SCORE = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2]) + 0.5 * X[:, 3]
TWO, THREE, REAL = (SCORE > 0).astype(int), np.digitize(SCORE, [-1, 1]), SCORE.astype(np.float32)
HOLES = X.copy()
HOLES[RNG.random(X.shape) < 0.1] = np.nan
CASES = {}


def case(name, model, target, data=X, **how):
    CASES[name] = (model, target, data, how)


def define_linear():
    case("LinearRegression", linear_model.LinearRegression(), REAL)
    case("Ridge", linear_model.Ridge(), np.stack([REAL, 2 * REAL + 1], 1))
    case("Lasso", linear_model.Lasso(0.01), REAL)
    case("LogisticRegression_2", linear_model.LogisticRegression(), TWO)
    case("LogisticRegression_3", linear_model.LogisticRegression(), THREE)
    case("OneVsRest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), THREE)
    case("SGDClassifier", linear_model.SGDClassifier(loss="log_loss", random_state=0), THREE)
    case("RidgeClassifier", linear_model.RidgeClassifier(), THREE)
    case("LinearSVC", svm.LinearSVC(), THREE)
    case("PoissonRegressor", linear_model.PoissonRegressor(), np.abs(REAL))
    case("LDA", discriminant_analysis.LinearDiscriminantAnalysis(), THREE)


def define_machines():
    for kernel in ("linear", "poly", "rbf", "sigmoid"):
        case(f"SVC_{kernel}", svm.SVC(kernel=kernel), THREE)
    case("SVC_2", svm.SVC(), TWO)
    case("SVC_probability_2", svm.SVC(probability=True, random_state=0), TWO)
    case("SVC_probability_3", svm.SVC(probability=True, random_state=0), THREE)
    case("NuSVC", svm.NuSVC(nu=0.3), THREE)
    case("SVR", svm.SVR(), REAL)
    case("NuSVR", svm.NuSVR(), REAL)
    case("LinearSVR", svm.LinearSVR(), REAL)
    case("OneClassSVM", svm.OneClassSVM(nu=0.3), None)


def define_trees():
    case("DecisionTreeRegressor", tree.DecisionTreeRegressor(), REAL)
    case("DecisionTreeRegressor_2", tree.DecisionTreeRegressor(max_depth=6), np.stack([REAL, 2 * REAL + 1], 1))
    case("DecisionTreeClassifier_2", tree.DecisionTreeClassifier(max_depth=5), TWO)
    case("DecisionTreeClassifier_3", tree.DecisionTreeClassifier(), THREE)
    case("RandomForestRegressor", ensemble.RandomForestRegressor(20), REAL)
    case("RandomForestClassifier_2", ensemble.RandomForestClassifier(20, max_depth=6), TWO)
    case("RandomForestClassifier_3", ensemble.RandomForestClassifier(20), THREE)
    case("ExtraTreesRegressor", ensemble.ExtraTreesRegressor(20, max_depth=8), REAL)
    case("ExtraTreesClassifier", ensemble.ExtraTreesClassifier(20, max_depth=8), THREE)
    case("GradientBoostingRegressor", ensemble.GradientBoostingRegressor(n_estimators=30), REAL)
    case("GradientBoostingClassifier_2", ensemble.GradientBoostingClassifier(n_estimators=30), TWO)
    case("GradientBoostingClassifier_3", ensemble.GradientBoostingClassifier(n_estimators=30), THREE)
    case("HistGradientBoostingRegressor", ensemble.HistGradientBoostingRegressor(max_iter=30), REAL, HOLES)
    case("HistGradientBoostingClassifier_2", ensemble.HistGradientBoostingClassifier(max_iter=30), TWO, HOLES)
    case("HistGradientBoostingClassifier_3", ensemble.HistGradientBoostingClassifier(max_iter=30), THREE, HOLES)
    case("AdaBoostClassifier", ensemble.AdaBoostClassifier(tree.DecisionTreeClassifier(max_depth=2), n_estimators=10), THREE)
    case("AdaBoostRegressor", ensemble.AdaBoostRegressor(n_estimators=10), REAL)
    case("BaggingClassifier", ensemble.BaggingClassifier(n_estimators=5), THREE)
    case("BaggingRegressor", ensemble.BaggingRegressor(n_estimators=5), REAL)
    case("VotingClassifier", ensemble.VotingClassifier([("a", tree.DecisionTreeClassifier(max_depth=4)), ("b", linear_model.LogisticRegression())], voting="soft", flatten_transform=False), THREE)
    case("VotingRegressor", ensemble.VotingRegressor([("a", tree.DecisionTreeRegressor(max_depth=4)), ("b", linear_model.LinearRegression())]), REAL)
    case("StackingClassifier", ensemble.StackingClassifier([("a", tree.DecisionTreeClassifier(max_depth=4)), ("b", linear_model.LogisticRegression())]), TWO)
    case("IsolationForest", ensemble.IsolationForest(n_estimators=20, random_state=0), None)
    case("CalibratedClassifierCV", calibration.CalibratedClassifierCV(tree.DecisionTreeClassifier(max_depth=4)), THREE)


def define_others():
    case("MLPClassifier", neural_network.MLPClassifier((16,), max_iter=300, random_state=0), THREE)
    case("MLPRegressor", neural_network.MLPRegressor(hidden_layer_sizes=(16,), max_iter=300, random_state=0), REAL)
    case("GaussianNB", naive_bayes.GaussianNB(), THREE)
    case("BernoulliNB", naive_bayes.BernoulliNB(), THREE)
    case("MultinomialNB", naive_bayes.MultinomialNB(), THREE, X + 2)
    case("KNeighborsClassifier", neighbors.KNeighborsClassifier(5), THREE)
    case("KNeighborsRegressor", neighbors.KNeighborsRegressor(5), REAL)
    case("KMeans", cluster.KMeans(4, n_init=1, random_state=0), None)
    case("GaussianMixture", mixture.GaussianMixture(3, random_state=0), None)
    case("PCA", decomposition.PCA(3), None)
    case("TruncatedSVD", decomposition.TruncatedSVD(3), None)
    case("StandardScaler", preprocessing.StandardScaler(), None)
    case("MinMaxScaler", preprocessing.MinMaxScaler(), None)
    case("RobustScaler", preprocessing.RobustScaler(), None)
    case("MaxAbsScaler", preprocessing.MaxAbsScaler(), None)
    for norm in ("l1", "l2", "max"):
        case(f"Normalizer_{norm}", preprocessing.Normalizer(norm), None, np.abs(X) + 1)
    case("Binarizer", preprocessing.Binarizer(threshold=0.2), None)
    case("KBinsDiscretizer", preprocessing.KBinsDiscretizer(4, encode="onehot-dense"), None)
    case("PolynomialFeatures", preprocessing.PolynomialFeatures(2), None)
    case("SimpleImputer", impute.SimpleImputer(), None, HOLES)
    case("KNNImputer", impute.KNNImputer(n_neighbors=3), None, HOLES)
    whole = RNG.integers(0, 5, (500, FEATURES)).astype(np.int64)
    case("OneHotEncoder", preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), None, whole)
    case("OrdinalEncoder", preprocessing.OrdinalEncoder(), None, whole)
    case("VarianceThreshold", feature_selection.VarianceThreshold(0.5), None)
    case("SelectKBest", feature_selection.SelectKBest(k=3), THREE)
    case("Pipeline", pipeline.make_pipeline(impute.SimpleImputer(), preprocessing.StandardScaler(), decomposition.PCA(4),
                                            ensemble.RandomForestClassifier(10, max_depth=5)), THREE, HOLES)
    case("ColumnTransformer", pipeline.make_pipeline(
        compose.ColumnTransformer([("a", preprocessing.StandardScaler(), [0, 1, 2]), ("b", preprocessing.MinMaxScaler(), [3, 4])]),
        linear_model.LogisticRegression()), TWO)
    case("MultiOutputRegressor", multioutput.MultiOutputRegressor(tree.DecisionTreeRegressor(max_depth=4)), np.stack([REAL, -REAL], 1))
    case("GaussianProcessRegressor", gaussian_process.GaussianProcessRegressor(), REAL)


def define_boosters():
    boosters = {"n_estimators": 30, "n_jobs": 1}
    for name, model, target in (("regressor", xgboost.XGBRegressor, REAL), ("classifier_2", xgboost.XGBClassifier, TWO),
                                ("classifier_3", xgboost.XGBClassifier, THREE)):
        case(f"XGBoost_{name}", model(max_depth=6, **boosters), target, HOLES)
        case(f"XGBoost_{name}_stumps", model(max_depth=2, **boosters), target)
    case("XGBoost_random_forest", xgboost.XGBRFRegressor(**boosters), REAL)
    case("XGBoost_logistic", xgboost.XGBRegressor(objective="reg:logistic", **boosters), TWO.astype(float), own=False)  # exported without the logistic function
    case("XGBoost_poisson", xgboost.XGBRegressor(objective="count:poisson", **boosters), np.abs(REAL))
    quiet = dict(boosters, verbose=-1)
    for name, model, target in (("regressor", lightgbm.LGBMRegressor, REAL), ("classifier_2", lightgbm.LGBMClassifier, TWO),
                                ("classifier_3", lightgbm.LGBMClassifier, THREE)):
        case(f"LightGBM_{name}", model(**quiet), target, HOLES)
        case(f"LightGBM_{name}_small", model(num_leaves=7, **quiet), target)
    case("LightGBM_random_forest", lightgbm.LGBMRegressor(boosting_type="rf", bagging_freq=1, bagging_fraction=0.7, **quiet), REAL, own=False)  # exported as a sum
    case("LightGBM_dart", lightgbm.LGBMRegressor(boosting_type="dart", **quiet), REAL)


def export(model, data, rows):
    """The model with |rows| rows."""
    kind = type(model).__module__.split(".")[0]
    if kind in ("xgboost", "lightgbm"):
        convert = convert_xgboost if kind == "xgboost" else convert_lightgbm
        how = {} if kind == "xgboost" else {"zipmap": True}
        return convert(model, initial_types=[("X", FloatTensorType([rows, FEATURES]))], target_opset=15, **how)
    made = skl2onnx.to_onnx(model, data[:1], target_opset={"": 18, "ai.onnx.ml": 3})
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = rows
    return made


def predictions(model, data):
    """The estimator's own label or number, and its probabilities, margins or distances."""
    if hasattr(model, "predict"):
        yield np.asarray(model.predict(data))
        for name in ("predict_proba", "decision_function"):
            try:
                yield np.asarray(getattr(model, name)(data))
                return
            except AttributeError:
                pass
    else:
        yield np.asarray(model.transform(data))


def plain(value):
    """A list of maps from labels to scores as an array."""
    if isinstance(value, list):
        return np.array([[row[k] for k in sorted(row)] for row in value], np.float32)
    return np.asarray(value)


def differs(got, want, what):
    if want.size != got.size or want.dtype.kind in "OUS":
        return None  # another form: the pair's margin instead of two, ...
    want, got = want.reshape(got.shape), got.astype(want.dtype)
    if want.dtype.kind in "iub" or (want == np.round(want)).all() and np.abs(want).max() < 1e6:
        wrong = int((np.round(got) != want).sum()) if want.dtype.kind == "f" else int((got != want).sum())
        return f"{wrong} of {want.size} differ from {what}" if wrong else None
    off = np.abs(got - want).max()
    bound = 1e-5 + 1e-4 * np.abs(want[np.isfinite(want)]).max()
    return f"differs from {what} by {off:.3g}, more than {bound:.3g}" if not off <= bound else None


def check(kiln, name, folder):
    model, target, data, how = CASES[name]
    given = data[:ROWS].copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data, target)
        made = export(model, data, ROWS)
        own = list(predictions(model, given))
    path = folder / f"{name}.onnx"
    onnx.save(made, path)
    np.save(folder / "x.npy", given)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    port = session.get_inputs()[0].name
    others = [plain(v) for v in session.run(None, {port: given})]
    out = folder / "out"
    out.mkdir(exist_ok=True)
    done = subprocess.run([kiln, "run", path, "--no-cache", "--input", f"{port}={folder}/x.npy", "--output-dir", out],
                          capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1][:300]
    wrong = []
    for i, (output, other) in enumerate(zip(session.get_outputs(), others)):
        got = np.load(out / f"{output.name}.npy")
        wrong.append(differs(got, other, "ONNX Runtime"))
        if i < len(own) and how.get("own", True):
            wrong.append(differs(got, own[i], "the estimator"))
    return "; ".join(w for w in wrong if w) or None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kiln")
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--keep")
    args = parser.parse_args()
    for define in (define_linear, define_machines, define_trees, define_others, define_boosters):
        define()
    names = [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in args.patterns)]
    wrong = 0
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(args.keep or made)
        folder.mkdir(exist_ok=True)
        for name in names:
            try:
                message = check(args.kiln, name, folder)
            except Exception as failed:  # of converters and ONNX Runtime
                message = f"not exported: {type(failed).__name__}: {str(failed)[:200]}"
            wrong += message is not None
            print(f"{name}: {message or 'right'}", flush=True)
    print(f"{len(names) - wrong} of {len(names)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
