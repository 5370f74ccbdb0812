#!/usr/bin/env python3
"""Compiles models whose numbers and extents depend on ranged dimensions, runs the modules at several values in one
session, and compares with NumPy (onnx.reference): small models of one kind each, and random shape arithmetic.

usage: symbolic.py KILN [SEED [COUNT]]      needs numpy and onnx; with a seed, COUNT (1) random models from that seed on
"""
import itertools, pathlib, random, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.parser import parse_model
from onnx.reference import ReferenceEvaluator

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / "bench"), str(pathlib.Path(__file__).parents[1])]
import share  # noqa: E402
from kiln_rt import Session, dl_tensor  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
CODES = {"f": 2, "i": 0, "b": 6}
N_RANDOM = 24

# name, ranges, text; sums of dimensions follow from values
CASES = [
    # positions that begin at the length of a cache
    ("offset", {"p": (0, 40), "t": (1, 9)}, {}, """g (float[p,4] k, float[t,4] x) => (float[t,4] y)
        <int64 zero={0}, int64 one={1}, int64[1] ax={1}> {
        sk=Shape(k) p=Gather(sk,zero) sx=Shape(x) n=Gather(sx,zero) r=Range(zero,n,one) q=Add(r,p) f=Cast<to=1>(q) c=Cos(f)
        u=Unsqueeze(c,ax) y=Mul(x,u) }"""),
    ("causal", {"p": (0, 33), "t": (1, 17)}, {"kv": "p+t"}, """g (float[p,4] k, float[t,kv] x) => (float[t,kv] y)
        <int64 zero={0}, int64 one={1}, int64[1] a0={0}, int64[1] a1={1}, float neg={-10000.0}> {
        sk=Shape(k) p=Gather(sk,zero) sx=Shape(x) n=Gather(sx,zero) m=Gather(sx,one) r=Range(zero,n,one) q=Add(r,p)
        qq=Unsqueeze(q,a1) c=Range(zero,m,one) cc=Unsqueeze(c,a0) ok=LessOrEqual(cc,qq) z=Where(ok,x,neg) y=Softmax(z) }"""),
    # the extent that an index counts back from
    ("scattered", {"n": (1, 20), "e": (0, 20)}, {}, """g (float[n] x, float[e] w) => (float[n] y)
        <int64 zero={0}, int64 one={1}> {
        sx=Shape(x) n=Squeeze(sx) sw=Shape(w) m=Squeeze(sw) r=Range(zero,m,one) d=Mod(r,n) y=ScatterElements<axis=0, reduction="add">(x,d,w) }"""),
    ("flattened", {"b": (1, 3), "h": (1, 20), "w": (1, 20)}, {}, """g (float[b,3,h,w] x) => (float[b,3,hw] y)
        <int64[3] sh={0,3,-1}> { y=Reshape(x,sh) }"""),
    ("flattened_twice", {"h": (2, 9), "w": (2, 9), "c": (2, 5)}, {}, """g (float[h,w,c] x) => (float[n] y)
        <int64[1] sh={-1}> { e=Exp(x) y=Reshape(e,sh) }"""),
    ("attended", {"h": (1, 9), "w": (1, 9)}, {}, """g (float[4,h,w] x) => (float[hw,4] y)
        <int64[2] sh={4,-1}> { f=Reshape(x,sh) ft=Transpose<perm=[1,0]>(f) s=MatMul(ft,f) p=Softmax(s) y=MatMul(p,ft) }"""),
    ("mean", {"h": (1, 12), "w": (1, 12)}, {}, """g (float[2,3,h,w] x) => (float[2,3,1,1] y, float[2,3] z)
        <int64[3] sh={2,3,-1}, int64[1] ax={2}> { y=GlobalAveragePool(x) f=Reshape(x,sh) z=ReduceMean<keepdims=0>(f,ax) }"""),
    ("pooled", {"b": (1, 4), "l": (2, 40)}, {}, """g (float[b,8,l] x) => (float[b,8,m] y, float[b,8,m] z)
        { y=AveragePool<kernel_shape=[4],strides=[2],pads=[1,1]>(x) z=MaxPool<kernel_shape=[3],strides=[2],pads=[1,1]>(x) }"""),
    ("strided", {"h": (5, 40), "w": (5, 40)}, {}, """g (float[1,3,h,w] x, float[4,3,3,3] k) => (float[1,4,u,v] y)
        { y=Conv<strides=[2,3],pads=[1,0,1,0]>(x,k) }"""),
    ("summed", {"b": (1, 4), "l": (1, 80)}, {}, """g (float[b,l] x) => (float[b,l] y, float[b,l] z)
        <int64 ax={1}> { y=CumSum(x,ax) z=CumSum<exclusive=1,reverse=1>(x,ax) }"""),
    ("top", {"b": (1, 4), "l": (5, 200)}, {}, """g (float[b,l] x) => (float[b,5] y, int64[b,5] i)
        <int64[1] k={5}> { y,i=TopK(x,k) }"""),
    # ramps of two dimensions with one greatest value
    ("resized", {"h": (1, 12), "w": (1, 12)}, {}, """g (float[1,2,h,w] x) => (float[1,2,u,v] y, float[1,2,u,v] z)
        <float[4] s={1,1,2,2}> { y=Resize<mode="linear">(x,"",s) z=Resize<mode="cubic",coordinate_transformation_mode="asymmetric">(x,"",s) }"""),
    ("resized_to", {"h": (2, 12), "w": (2, 12)}, {}, """g (float[1,2,h,w] x, float[1,2,w,h] like) => (float[1,2,w,h] y)
        { s=Shape(like) y=Resize<mode="linear",coordinate_transformation_mode="align_corners">(x,"","",s) }"""),
    # a ramp has max(0, m) elements, which are m: no axis is stretched
    ("ramped", {"b": (1, 3), "n": (12, 90)}, {}, """g (float[b,2,n] x) => (float[b,2,m] y)
        <int64 zero={0}, int64 one={1}, int64[1] a0={0}, int64[1] a1={1}> {
        w=MaxPool<kernel_shape=[4],strides=[3]>(x) v=MaxPool<kernel_shape=[2],strides=[2]>(w)
        s=Shape<start=2>(v) m=Squeeze(s) r=Range(zero,m,one) f=Cast<to=1>(r) c=Unsqueeze(f,a1) q=Unsqueeze(f,a0)
        d=Sub(c,q) e=Mul(d,c) p=MatMul(v,e) h=Add(p,f) i=Mul(h,v) j=Add(i,f) k=Mul(j,v) y=Add(k,f) }"""),
    # what an exporter writes that gives every attribute; a division that rounds down as h begins at 1
    ("resized_down", {"h": (1, 40), "w": (3, 40)}, {}, """g (float[1,2,h,w] x) => (float[1,2,u,v] y)
        <int64[2] b={1,2}, int64 one={1}, int64 four={4}> {
        s=Shape<start=2>(x) l=Sub(s,one) d=Div(l,four) e=Add(d,one) t=Concat<axis=0>(b,e)
        y=Resize<mode="linear",keep_aspect_ratio_policy="stretch",antialias=0,exclude_outside=0>(x,"","",t) }"""),
    ("tiled", {"a": (1, 6), "b": (1, 6)}, {}, """g (float[a,b] x) => (float[n,m] y)
        { s=Shape(x) y=Tile(x,s) }"""),
    ("ramps", {"h": (1, 9), "w": (1, 9)}, {}, """g (float[h,w] x) => (int64[h] a, int64[w] b)
        <int64 zero={0}, int64 one={1}> { s=Shape(x) h=Gather(s,zero) w=Gather(s,one) a=Range(zero,h,one) b=Range(zero,w,one) }"""),
    ("hot", {"n": (1, 9), "d": (1, 9)}, {}, """g (float[n] x, float[d] z) => (float[n,d] y)
        <int64 zero={0}, int64 one={1}, float[2] v={0.0,1.0}> {
        s=Shape(x) n=Squeeze(s) u=Shape(z) d=Squeeze(u) r=Range(zero,n,one) y=OneHot(r,d,v) }"""),
    # whose scale is the square root of a dimension
    ("attention_depth", {"b": (1, 3), "s": (1, 9), "d": (1, 24)}, {}, """g (float[b,2,s,d] q, float[b,2,s,d] k, float[b,2,s,4] v) => (float[b,2,s,4] y)
        { y=Attention<is_causal=1>(q,k,v) }"""),
    # steps behind the run's length
    ("lstm", {"t": (1, 9), "b": (1, 4), "w": (1, 5)}, {}, """g (float[t,b,w] x, float[2,12,w] k, float[2,12,3] r, float[2,24] c)
        => (float[t,2,b,3] y, float[2,b,3] h, float[2,b,3] o) { y,h,o=LSTM<hidden_size=3,direction="bidirectional">(x,k,r,c) }"""),
    ("gru", {"t": (1, 9), "b": (1, 4)}, {}, """g (float[t,b,2] x, float[1,9,2] k, float[1,9,3] r, float[1,18] c)
        => (float[t,1,b,3] y, float[1,b,3] h) { y,h=GRU<hidden_size=3,direction="reverse",linear_before_reset=1>(x,k,r,c) }"""),
    ("rnn", {"t": (1, 20), "b": (1, 4)}, {}, """g (float[t,b,2] x, float[1,3,2] k, float[1,3,3] r)
        => (float[t,1,b,3] y, float[1,b,3] h) { y,h=RNN<hidden_size=3>(x,k,r) }"""),
    ("scan", {"t": (1, 17), "b": (1, 4)}, {}, """g (float[b] s, float[t,b] x, float[t,b] z) => (float[b] e, float[t,b] y)
        { e,y=Scan<num_scan_inputs=2, body = body (float[b] a, float[b] u, float[b] v) => (float[b] n, float[b] o)
        { m=Mul(a,u) n=Add(m,v) o=Tanh(n) }>(s,x,z) }"""),
    ("scan_backwards", {"t": (1, 17), "b": (1, 4)}, {}, """g (float[b] s, float[t,b] x, float[b,t] z) => (float[b] e, float[b,t] y)
        { e,y=Scan<num_scan_inputs=2, scan_input_directions=[0,1], scan_input_axes=[0,1], scan_output_directions=[1], scan_output_axes=[1],
        body = body (float[b] a, float[b] u, float[b] v) => (float[b] n, float[b] o) { m=Mul(a,u) n=Add(m,v) o=Tanh(n) }>(s,x,z) }"""),
    ("linear_attention", {"b": (1, 3), "t": (1, 9)}, {}, """g (float[b,t,8] q, float[b,t,8] k, float[b,t,6] v, float[b,2,4,3] p)
        => (float[b,t,6] y, float[b,2,4,3] s) { y,s=LinearAttention<update_rule="linear",q_num_heads=2,kv_num_heads=2>(q,k,v,p) }"""),
    # whose roots the run computes
    ("transformed", {"b": (1, 3), "n": (2, 20)}, {}, """g (float[b,n,1] x) => (float[b,n,2] y, float[b,m,2] z, float[b,5,2] w)
        <int64 axis={1}, int64 five={5}> { y=DFT(x,"",axis) z=DFT<onesided=1>(x,"",axis) w=DFT(x,five,axis) }"""),
    ("transformed_back", {"n": (2, 20)}, {}, """g (float[2,n,3,2] x) => (float[2,n,3,2] y)
        <int64 axis={1}> { y=DFT<inverse=1>(x,"",axis) }"""),
    ("frames", {"b": (1, 3), "l": (12, 40)}, {}, """g (float[b,l,1] x, float[8] w) => (float[b,f,5,2] y)
        <int64 step={3}, int64 n={8}> { y=STFT(x,step,w,n) }"""),
    ("cropped", {"h": (1, 12), "w": (1, 12)}, {}, """g (float[h,w] x, float[w,h] like) => (float[w,h] y, float[5,w] z)
        <int64[1] five={5}> { s=Shape(like) y=CenterCropPad(x,s) z=CenterCropPad<axes=[0]>(x,five) }"""),
]
BY_RUNTIME = ("scan_backwards",)  # what onnx.reference does not know
OPSETS = {"transformed": 20, "transformed_back": 20, "attention_depth": 23, "linear_attention": 27}


class Shapes:
    """A random graph: numbers computed of the dimensions, and tensors whose elements and extents are made of them."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.ranges = {"a": (self.rng.choice((1, 2)), self.rng.randint(3, 9)), "b": (1, self.rng.randint(2, 8)),
                       "c": (self.rng.choice((0, 1, 3)), self.rng.randint(4, 20))}
        self.points = [dict(zip(self.ranges, p)) for p in itertools.product(*(range(a, b + 1) for a, b in self.ranges.values()))]
        self.nodes, self.constants, self.outputs, self.numbers = [], [], [], []
        for value, axes in (("x", "ab"), ("z", "c")):
            shape = self.node("Shape", [value])
            for i, axis in enumerate(axes):
                self.numbers.append((self.node("Gather", [shape, self.constant(i)]), [p[axis] for p in self.points]))

    def node(self, op, inputs, **attributes):
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def constant(self, value, dtype=np.int64):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def add_number(self):
        op = self.rng.choice(["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Where"])
        (a, at), (b, bt) = self.rng.choice(self.numbers), self.rng.choice(self.numbers)
        if op in ("Div", "Mod"):
            k = self.rng.randint(2, 4)
            b, bt = self.constant(k), [k] * len(at)
        if op == "Where":
            self.numbers.append((self.node(op, [self.node("Less", [a, b]), a, b]), [min(p) for p in zip(at, bt)]))
            return
        compute = {"Add": lambda x, y: x + y, "Sub": lambda x, y: x - y, "Mul": lambda x, y: x * y, "Div": lambda x, y: x // y,
                   "Mod": lambda x, y: x % y, "Min": min, "Max": max}[op]
        values = [compute(*p) for p in zip(at, bt)]
        if all(-1000 < v < 1000 for v in values) and (op not in ("Div", "Mod") or min(at) >= 0):
            self.numbers.append((self.node(op, [a, b]), values))

    def extent(self, most=300, least=1):
        for _ in range(50):
            name, values = self.rng.choice(self.numbers)
            if least <= min(values) and max(values) <= most:
                return name
        return self.node("Add", [self.numbers[0][0], self.constant(1)])

    def as_list(self, name):
        return self.node("Unsqueeze", [name, self.constant([0])])

    def as_float(self, name):
        return self.node("Cast", [name], to=TensorProto.FLOAT)

    def ramp(self):
        start = self.rng.choice(self.numbers)[0]
        end = self.node("Add", [start, self.extent()])
        return self.as_float(self.node("Range", [start, end, self.constant(1)]))

    def add_output(self):
        flat = lambda: self.node("Reshape", ["x", self.constant([-1])])
        kind = self.rng.randrange(10)
        if kind == 0:
            made = self.node("Sin", [self.node("Mul", [self.ramp(), self.as_float(self.rng.choice(self.numbers)[0])])])
        elif kind == 1:
            filled = self.node("ConstantOfShape", [self.as_list(self.extent())], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.5]))
            made = self.node("Add", [filled, self.as_float(self.rng.choice(self.numbers)[0])])
        elif kind == 2:
            made = self.node("Expand", ["z", self.node("Concat", [self.as_list(self.extent(40)), self.constant([1])], axis=0)])
        elif kind == 3:
            made = self.node("Tile", [self.rng.choice(["z", flat()]), self.as_list(self.extent(12))])
        elif kind == 4:
            made = self.node("CumSum", [self.rng.choice([flat(), self.ramp()]), self.constant(0)])
        elif kind == 5:
            made = self.node("Pad", ["x", self.node("Concat", [self.as_list(self.extent(9)), self.constant([0, 1]), self.as_list(self.extent(9))], axis=0)])
        elif kind == 6:
            part = [self.constant([0]), self.as_list(self.extent(400)), self.constant([0])]
            made = self.node("Slice", [self.node("Concat", [self.ramp(), "z", flat()], axis=0), *part])
        elif kind == 7:
            limit = self.as_float(self.rng.choice(self.numbers)[0])
            ramp = self.ramp()
            made = self.node("Where", [self.node("Less", [ramp, limit]), ramp, self.constant(-1, np.float32)])
        elif kind == 8:
            made = self.node("Div", ["x", self.as_float(self.extent())])
        else:
            made = self.node("Softmax", [self.node("Mul", [self.ramp(), self.constant(0.1, np.float32)])])
        if self.rng.randrange(3) == 0:
            made = self.node("ReduceSum", [made], keepdims=0)
        self.outputs.append(made)

    def model(self):
        for _ in range(self.rng.randint(3, 10)):
            self.add_number()
        for _ in range(self.rng.randint(1, 3)):
            self.add_output()
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "m", [info("x", 1, ["a", "b"]), info("z", 1, ["c"])],
                                  [info(o, 1, None) for o in self.outputs], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def runtime_of(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def tensor(array):
    return dl_tensor(array.ctypes.data, (1, 0), array.shape, CODES[array.dtype.kind], array.dtype.itemsize * 8)


def points_of(ranges, sums, rng):
    """The corners, the values next to the least ones, and others; the order is by chance, too."""
    some = [{n: v[k] for n, v in ranges.items()} for k in (0, 1)]
    for _ in range(10):
        some.append({n: rng.choice((a, min(a + 1, b), b, rng.randint(a, b), rng.randint(a, b))) for n, (a, b) in ranges.items()})
    rng.shuffle(some)
    return [{**p, **{n: eval(form, {}, p) for n, form in sums.items()}} for p in some]


def make_inputs(model, dims, rng):
    given = {}
    for value in model.graph.input:
        shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim]
        given[value.name] = rng.standard_normal(shape).astype(np.float32)
    return given


def check(kiln, folder, model, ranges, sums, points=None, make_reference=ReferenceEvaluator):
    onnx.save(model, folder / "m.onnx")
    command = [kiln, "compile", folder / "m.onnx", "--threads", "2", "-o", folder / "m.kmod"]
    for name, (least, most) in ranges.items():
        command += ["--dim", f"{name}={least}..{most}"]
    for name, form in sums.items():
        command += ["--dim", f"{name}={form}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr
    reference, session = make_reference(model), Session(pathlib.Path(kiln).parent, folder / "m.kmod", threads=2)
    rng, wrong = np.random.default_rng(5), None
    for dims in points or points_of(ranges, sums, random.Random(5)):
        given = make_inputs(model, dims, rng)
        want = [np.asarray(x) for x in reference.run(None, given)]
        got = [np.full_like(x, 77) for x in want]
        session.bind_tensors([tensor(x) for x in given.values()], [tensor(x) for x in got], given, got)
        session.outputs = got
        try:
            session.run()
        except RuntimeError as problem:
            wrong = f"at {dims}: {problem}"
        for k, (a, b) in enumerate(zip(got, want)):
            if not np.allclose(a, b, rtol=1e-4, atol=1e-5):
                wrong = f"output {k} differs at {dims}"
        if wrong:
            break
    session.close()
    return wrong


def main():
    kiln, failed = sys.argv[1], 0
    cases = [(name, parse_model(HEAD.replace("18", str(OPSETS.get(name, 18))) + text), ranges, sums) for name, ranges, sums, text in CASES] if len(sys.argv) < 3 else []
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for seed in range(first, first + (int(sys.argv[3]) if len(sys.argv) > 3 else 1 if len(sys.argv) > 2 else N_RANDOM)):
        made = Shapes(seed)
        cases.append((f"random {seed}", made.model(), made.ranges, {}))
    cases = [c for c in cases if onnxruntime or c[0] not in BY_RUNTIME]
    for name, model, ranges, sums in share.some(cases):
        with tempfile.TemporaryDirectory() as folder:
            make_reference = runtime_of if name in BY_RUNTIME else ReferenceEvaluator
            wrong = check(kiln, pathlib.Path(folder), model, ranges, sums, make_reference=make_reference)
        failed += wrong is not None
        print(f"{name}: {'passed' if wrong is None else 'FAILED: ' + wrong}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
