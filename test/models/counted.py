#!/usr/bin/env python3
"""Compares graphs whose extents only the run knows with ONNX Runtime on random data, and checks what is refused.

usage: counted.py KILN [PATTERN]...     in the Python environment of `make test`
"""
import fnmatch
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

try:
    import numpy
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

RNG = numpy.random.default_rng(11)
CASES, REFUSED = {}, {}


def normal(*shape):
    return RNG.standard_normal(shape).astype(numpy.float32)


def sparse(share, *shape):
    """Floats of which about that share is not 0."""
    return normal(*shape) * (RNG.random(shape) < share).astype(numpy.float32)


def text(lines):
    """Nodes: "Y, Z = Op(A, B) attribute=value"; constants by their values, as in $[0, 1]."""
    nodes, constants = [], []
    for line in lines.strip().splitlines():
        left, right = line.strip().split(" = ", 1)
        op, rest = right.split("(", 1)
        inputs, attributes = rest.split(")", 1)
        names = []
        for k, name in enumerate(part.strip() for part in inputs.split(";")):
            if name.startswith("$"):
                value = numpy.array(eval(name[1:]))
                value = value.astype(numpy.float32) if value.dtype == numpy.float64 else value
                constants.append(numpy_helper.from_array(value, f"c{len(constants)}"))
                name = constants[-1].name
            names.append(name)
        pairs = {key: eval(value) for key, value in (word.split("=") for word in attributes.split())}
        nodes.append(helper.make_node(op, names, [n.strip() for n in left.split(",")], **pairs))
    return nodes, constants


def model_of(lines, feeds, outputs):
    nodes, constants = text(lines)
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "counted", ports, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def case(name, lines, outputs, **feeds):
    CASES[name] = (lines, outputs, feeds)


def refused(name, lines, outputs, words, **feeds):
    REFUSED[name] = (lines, outputs, words, feeds)


def define_many_boxes():
    """Boxes that overlap a little, a lot, or lie in one another, as detectors give them, and how many may be taken."""
    n, far = 200, numpy.iinfo(numpy.int64).max
    corners = RNG.random((2, n, 2)).astype(numpy.float32)
    sizes = RNG.random((2, n, 2)).astype(numpy.float32) * 0.3
    boxes = numpy.concatenate([corners, corners + sizes], 2)
    scores = RNG.random((2, 7, n)).astype(numpy.float32)
    kinds = {
        "apart": numpy.concatenate([corners, corners + 1e-3], 2),
        "some": boxes,
        "turned": boxes[..., [2, 3, 0, 1]],
        "heaps": numpy.repeat(boxes[:, :10], n // 10, 1),
        "empty": numpy.concatenate([corners, corners], 2),
    }
    for kind, b in kinds.items():
        for name, most in (("few", 30), ("far", far)):
            case(f"suppress_{kind}_{name}", f"Y = NonMaxSuppression(B; S; $[{most}]; $[0.4]; $[0.05])", ["Y"], B=b, S=scores)
        case(f"suppress_{kind}_run", "Y = NonMaxSuppression(B; S; K; I; T)", ["Y"], B=b, S=scores, K=numpy.array([41]),
             I=numpy.array([0.3], numpy.float32), T=numpy.array([0.5], numpy.float32))
        case(f"suppress_{kind}_centered", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.5]) center_point_box=1", ["Y"],
             B=numpy.abs(b), S=scores)
    ties = numpy.round(scores * 4) / 4
    ties[0, 0], ties[1, 1, ::2] = 0, -0.0
    case("suppress_ties", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.4])", ["Y"], B=boxes, S=ties)
    case("suppress_negative", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.4]; $[-0.5])", ["Y"], B=boxes, S=ties - 0.75)
    lowest = scores - numpy.where(scores < 0.3, numpy.inf, 0).astype(numpy.float32)
    case("suppress_infinite", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.4])", ["Y"], B=boxes, S=lowest)
    holes = numpy.where(scores < 0.3, numpy.nan, scores)
    case("suppress_nan", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.4]; $[0.1])", ["Y"], B=boxes, S=holes)
    case("suppress_nothing", "Y = NonMaxSuppression(B; S; $[9]; $[0.4]; $[2.0])", ["Y"], B=boxes, S=scores)
    case("suppress_none", "Y = NonMaxSuppression(B; S; K; $[0.4])", ["Y"], B=boxes, S=scores, K=numpy.array([0]))
    case("suppress_whole", f"Y = NonMaxSuppression(B; S; $[{far}]; $[1.0])", ["Y"], B=boxes, S=scores)
    case("suppress_one_box", f"Y = NonMaxSuppression(B; S; $[{far}]; $[0.4])", ["Y"], B=boxes[:, :1], S=scores[..., :1])
    case("suppress_chosen", f"""
        M = Greater(S; $[0.8])
        I = NonZero(M)
        N = Squeeze(I; $[0])
        R = Gather(B; N) axis=1
        W = Gather(S; N)
        U = Unsqueeze(W; $[0,1])
        Y = NonMaxSuppression(R; U; $[{far}]; $[0.4])""", ["Y"], B=boxes[:1], S=scores[0, 0])


def define_many_values():
    """Vectors of more elements than are compared with one another."""
    n = 3000
    kinds = {
        "f32": numpy.round(normal(n) * 100) / 100,
        "zeros": numpy.where(RNG.random(n) < 0.5, -0.0, numpy.round(normal(n))).astype(numpy.float32),
        "equal": numpy.full(n, -3, numpy.float32),
        "different": RNG.permutation(n).astype(numpy.float32) - 500,
        "infinite": numpy.where(RNG.random(n) < 0.1, -numpy.inf, normal(n)).astype(numpy.float32),
        "i64": RNG.integers(-(1 << 62), 1 << 62, n // 3)[RNG.integers(0, n // 3, n)],
        "small": RNG.integers(-300, 300, n),
        "i8": RNG.integers(-128, 128, n).astype(numpy.int8),
    }
    for kind, x in kinds.items():
        for ordered in (0, 1):
            case(f"unique_many_{kind}_{ordered}", f"Y, I, J, N = Unique(X) sorted={ordered}", ["Y", "I", "J", "N"],
                 X=x.reshape(30, -1))
    case("unique_many_chosen", """
        R = Compress(X; C)
        Y, I, J, N = Unique(R) sorted=1""", ["Y", "I", "J", "N"], X=RNG.integers(0, 50, n), C=RNG.random(n) < 0.4)


def define():
    for share in (0.0, 0.3, 1.0):
        x = sparse(share, 7, 9)
        case(f"non_zero_{share}", "Y = NonZero(X)", ["Y"], X=x)
        case(f"gather_{share}", """
            I = NonZero(X)
            T = Transpose(I) perm=[1,0]
            V = GatherND(X; T)
            S = ReduceSum(V) keepdims=0
            M = ReduceMax(V) keepdims=0
            N = Size(V)""", ["T", "V", "S", "N"] + (["M"] if share else []), X=x)
    case("many", "Y = NonZero(X)", ["Y"], X=sparse(0.01, 3, 400, 50))
    case("integers", "Y = NonZero(X)", ["Y"], X=RNG.integers(0, 2, (5, 1, 4)))
    case("bools", "Y = NonZero(X)", ["Y"], X=RNG.random((65, 3)) < 0.4)
    case("fill", """
        S = Shape(X)
        F = ConstantOfShape(S) value=onnx.helper.make_tensor("",1,[1],[2.0])
        Y = NonZero(F)
        Z = Squeeze(Y; $[0])""", ["Z"], X=normal(2000))
    keep = RNG.random(40) < 0.5
    rows = normal(40, 6)
    case("compress", "Y = Compress(X; C) axis=0", ["Y"], X=rows, C=keep)
    case("compress_short", "Y = Compress(X; C) axis=-1", ["Y"], X=rows, C=numpy.array([True, False, True, True]))
    case("compress_flat", "Y = Compress(X; C)", ["Y"], X=rows, C=keep)
    case("product", """
        R = Compress(X; C) axis=0
        Y = MatMul(R; W)
        P = Softmax(Y) axis=0
        Q = Softmax(Y) axis=1
        A = ReduceMean(Y) axes=[0] keepdims=1
        D = Sub(Y; A)
        U = Unsqueeze(D; $[0])""", ["Y", "P", "Q", "A", "U"], X=rows, C=keep, W=normal(6, 5))
    case("product_of_columns", """
        R = Compress(X; C) axis=0
        T = Transpose(R) perm=[1,0]
        Y = MatMul(T; R)""", ["Y"], X=rows, C=keep)
    case("reshape", """
        R = Compress(X; C) axis=0
        F = Reshape(R; $[-1])
        H = Reshape(F; $[-1,2,3])
        N = Relu(H)
        G = Flatten(N)""", ["F", "H", "G"], X=rows, C=keep)
    case("concat", """
        R = Compress(X; C) axis=0
        Q = Compress(X; D) axis=0
        Y = Concat(R; X; Q) axis=0
        S = Shape(Y)
        T = Slice(Y; $[2]; $[30]; $[0])
        L = Slice(R; $[-3]; $[1000]; $[0])
        E = Gather(Y; $-1) axis=0""", ["Y", "S", "T", "L", "E"], X=rows, C=keep, D=RNG.random(40) < 0.3)
    case("pad", """
        R = Compress(X; C) axis=0
        Y = Pad(R; $[1,2,3,0])
        Z = CumSum(R; $0)
        K = ReduceMin(R) axes=[0]
        L = ArgMax(R) axis=0""", ["Y", "Z", "K", "L"], X=rows, C=keep)
    case("range", """
        I = NonZero(C)
        S = Shape(I)
        N = Gather(S; $1)
        R = Range($0; N; $1)
        Y = Mul(R; R)""", ["R", "Y", "N"], C=keep)
    case("scatter", """
        I = NonZero(X)
        T = Transpose(I) perm=[1,0]
        V = GatherND(X; T)
        W = Neg(V)
        Y = ScatterND(X; T; W)""", ["Y"], X=sparse(0.4, 6, 8))
    case("twice", """
        R = Compress(X; C) axis=0
        P = Relu(R)
        Y = NonZero(P)
        T = Transpose(Y) perm=[1,0]
        V = GatherND(P; T)
        U = Unique(V) sorted=1""", ["Y", "V", "U"], X=rows, C=keep)
    few = RNG.integers(0, 5, (30,)).astype(numpy.float32)
    for ordered in (0, 1):
        case(f"unique_{ordered}", f"Y, I, J, N = Unique(X) sorted={ordered}", ["Y", "I", "J", "N"], X=few)
        case(f"unique_rows_{ordered}", f"Y, I, J, N = Unique(X) axis=0 sorted={ordered}", ["Y", "I", "J", "N"],
             X=RNG.integers(0, 2, (20, 3)).astype(numpy.float32))
        case(f"unique_columns_{ordered}", f"Y, I, J, N = Unique(X) axis=1 sorted={ordered}", ["Y", "I", "J", "N"],
             X=RNG.integers(0, 2, (2, 12, 2)))
    boxes = RNG.random((2, 60, 4)).astype(numpy.float32)
    scores = RNG.random((2, 3, 60)).astype(numpy.float32)
    case("boxes", "Y = NonMaxSuppression(B; S; $[10]; $[0.3]; $[0.4])", ["Y"], B=boxes, S=scores)
    case("boxes_all", "Y = NonMaxSuppression(B; S; K; $[0.5])", ["Y"], B=boxes, S=scores, K=numpy.array([7]))
    case("boxes_centered", "Y = NonMaxSuppression(B; S; $[100]; $[0.2]; T) center_point_box=1", ["Y"], B=boxes, S=scores,
         T=numpy.array([0.7], numpy.float32))
    case("boxes_gathered", """
        I = NonMaxSuppression(B; S; $[10]; $[0.3]; $[0.4])
        N = Gather(I; $2) axis=1
        F = Reshape(B; $[-1,4])
        Y = Gather(F; N) axis=0""", ["Y"], B=boxes[:1], S=scores[:1])
    define_many_boxes()
    define_many_values()
    case("added_equal", """
        R = Compress(X; C) axis=0
        Q = Compress(X; D) axis=0
        Y = Add(R; Q)""", ["Y"], X=rows, C=keep, D=keep)
    refused("added", """
        R = Compress(X; C) axis=0
        Q = Compress(X; D) axis=0
        Y = Add(R; Q)""", ["Y"], "Add: error: axis 0 of", X=rows, C=keep, D=~keep)
    refused("added_fixed", """
        R = Compress(X; C) axis=0
        Y = Add(R; X)""", ["Y"], "Add: error: axis 0 of", X=rows, C=keep)
    refused("multiplied", """
        R = Compress(X; C) axis=1
        Y = MatMul(R; W)""", ["Y"], "MatMul: error: axis 1 of R", X=rows, C=keep[:6], W=normal(6, 5))
    refused("batched", """
        R = Compress(B; C) axis=0
        Y = MatMul(R; W)""", ["Y"], "MatMul: error: axis 0 of R", B=normal(3, 2, 5), C=keep[:3], W=normal(9, 5, 4))
    refused("reshaped", """
        R = Compress(X; C) axis=0
        Y = Reshape(R; $[20,6])""", ["Y"], "Reshape: error: axis 0 of R", X=rows, C=keep)


def save(folder, lines, outputs, feeds):
    model = model_of(lines, feeds, outputs).SerializeToString()
    (folder / "model.onnx").write_bytes(model)
    command = ["--threads", "2", "--rtol", "1e-4", "--atol", "1e-5"]
    for name, value in feeds.items():
        numpy.save(folder / f"{name}.npy", value)
        command += ["--input", f"{name}={folder}/{name}.npy"]
    return model, command


def check(kiln, name, folder):
    """None, or what is wrong."""
    lines, outputs, feeds = CASES[name]
    model, options = save(folder, lines, outputs, feeds)
    results = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for port, value in zip(outputs, results):
        numpy.save(folder / f"{port}.npy", value)
        options += ["--expect", f"{port}={folder}/{port}.npy"]
    done = subprocess.run([kiln, "run", folder / "model.onnx", "--reference", *options], capture_output=True, text=True)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def check_refused(kiln, name, folder):
    lines, outputs, words, feeds = REFUSED[name]
    _, options = save(folder, lines, outputs, feeds)
    done = subprocess.run([kiln, "run", folder / "model.onnx", *options], capture_output=True, text=True)
    if done.returncode == 0 or words not in done.stderr:
        return f"must be refused with \"{words}\", got {done.stderr or done.stdout}"
    return None


def main():
    kiln, *patterns = sys.argv[1:]
    define()
    wrong = 0
    names = [(n, check) for n in CASES] + [(n, check_refused) for n in REFUSED]
    names = [(n, f) for n, f in names if any(fnmatch.fnmatch(n, p) for p in patterns)] if patterns else share.some(names)
    with tempfile.TemporaryDirectory() as folder:
        for name, test in names:
            why = test(kiln, name, pathlib.Path(folder))
            wrong += why is not None
            if why is not None:
                print(f"{name}: {why}")
    print(f"{len(names) - wrong} of {len(names)} are as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
