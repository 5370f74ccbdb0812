#!/usr/bin/env python3
"""Compares graphs whose shapes a run is given or computes with ONNX Runtime, at several values each, and checks errors.

usage: given_shapes.py LIBRARIES [PATTERN]...     in the Python environment of `make test`; LIBRARIES: the build's folder
"""
import fnmatch
import os
import pathlib
import sys
import tempfile

os.environ["KILN_LIBRARY"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))

try:
    import numpy as np
    import onnxruntime
    from onnx.parser import parse_model
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import kiln  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
i64 = np.int64
f = np.float32
r = np.random.RandomState(0)
CASES, FAILING = {}, []


def c(name, text, *feeds):
    CASES[name] = (HEAD + text, feeds)


def fails(name, words, **feed):
    FAILING.append((name, words, feed))


c('range_runtime',"""g (int64 n) => (int64[m] y) <int64 zero={0}, int64 one={1}> { y=Range(zero,n,one) }""",
  dict(n=i64(0)),dict(n=i64(7)),dict(n=i64(1000)),dict(n=i64(-3)))
c('range_all',"""g (int64 a, int64 n, int64 d) => (int64[m] y) { y=Range(a,n,d) }""",
  dict(a=i64(3),n=i64(20),d=i64(2)),dict(a=i64(3),n=i64(-20),d=i64(-7)),dict(a=i64(3),n=i64(3),d=i64(1)),dict(a=i64(1<<40),n=i64((1<<40)+9),d=i64(2)))
c('range_float',"""g (float a, float n, float d) => (float[m] y) { y=Range(a,n,d) }""",
  dict(a=f(3),n=f(20.5),d=f(2)),dict(a=f(3),n=f(-20),d=f(-.7)))
c('range_start',"""g (int64 a, int64 n) => (int64[m] y) <int64 one={1}> { y=Range(a,n,one) }""",
  dict(a=i64(3),n=i64(20)),dict(a=i64(-3),n=i64(20)),dict(a=i64(-30),n=i64(-20)),dict(a=i64(1<<40),n=i64((1<<40)+9)))
c('if_empty',"""g (float[8,4] box, float[8] sc) => (int64[k] y) <int64 zero={0}, float[1] th={0.3}, int64[1] a0={0}> {
 hot=Greater(sc,th) nz=NonZero(hot) nt=Squeeze(nz,a0) n=Size(nt) empty=Equal(n,zero)
 y=If(empty)<then_branch = a () => (int64[0] e) { e=Constant<value=int64[0]{}>() }, else_branch = b () => (int64[q] f) { f=Identity(nt) }> }""",
 dict(box=r.rand(8,4).astype(f),sc=np.zeros(8,f)),dict(box=r.rand(8,4).astype(f),sc=r.rand(8).astype(f)),dict(box=r.rand(8,4).astype(f),sc=np.ones(8,f)))
c('if_shapes',"""g (bool c, float[8,4] x, float[3,6] z) => (float[a,b] y) {
 y=If(c)<then_branch = a () => (float[8,4] e) { e=Neg(x) }, else_branch = b () => (float[3,6] f) { f=Exp(z) }> }""",
 dict(c=np.bool_(True),x=r.rand(8,4).astype(f),z=r.rand(3,6).astype(f)),dict(c=np.bool_(False),x=r.rand(8,4).astype(f),z=r.rand(3,6).astype(f)))
c('expand',"""g (float[1,3] x, int64[2] s) => (float[a,b] y) { y=Expand(x,s) }""",
  dict(x=r.rand(1,3).astype(f),s=np.array([5,3])),dict(x=r.rand(1,3).astype(f),s=np.array([0,3])),dict(x=r.rand(1,3).astype(f),s=np.array([5,1])))
c('const_of_shape',"""g (int64[2] s) => (float[a,b] y) { y=ConstantOfShape<value=float[1]{2.5}>(s) }""",
  dict(s=np.array([5,3])),dict(s=np.array([0,3])),dict(s=np.array([1,1])))
c('slice',"""g (float[9,7] x, int64[2] s, int64[2] e) => (float[a,b] y) { y=Slice(x,s,e) }""",
  dict(x=r.rand(9,7).astype(f),s=np.array([2,3]),e=np.array([5,100])),dict(x=r.rand(9,7).astype(f),s=np.array([-4,-100]),e=np.array([-1,1<<62])),dict(x=r.rand(9,7).astype(f),s=np.array([5,0]),e=np.array([2,7])))
c('slice_back',"""g (float[9,7] x, int64[1] s, int64[1] e) => (float[a,b] y) <int64[1] ax={1}, int64[1] st={-2}> { y=Slice(x,s,e,ax,st) }""",
  dict(x=r.rand(9,7).astype(f),s=np.array([5]),e=np.array([1])),dict(x=r.rand(9,7).astype(f),s=np.array([-1]),e=np.array([-100])))
c('slice_use',"""g (float[9,7] x, int64[1] s, int64[1] e) => (float[b] y, float m) <int64[1] ax={1}, int64[1] a0={0}> { z=Slice(x,s,e,ax) y=ReduceSum<keepdims=0>(z,a0) q=Exp(z) m=ReduceSum<keepdims=0>(q) }""",
  dict(x=r.rand(9,7).astype(f),s=np.array([2]),e=np.array([6])),dict(x=r.rand(9,7).astype(f),s=np.array([3]),e=np.array([3])))
c('tile',"""g (float[2,3] x, int64[2] s) => (float[a,b] y) { y=Tile(x,s) }""",
  dict(x=r.rand(2,3).astype(f),s=np.array([2,3])),dict(x=r.rand(2,3).astype(f),s=np.array([1,0])))
c('topk',"""g (float[4,20] x, int64[1] k) => (float[a,b] y, int64[a,b] i) { y,i=TopK(x,k) }""",
  dict(x=r.rand(4,20).astype(f),k=np.array([3])),dict(x=r.rand(4,20).astype(f),k=np.array([20])),dict(x=r.rand(4,20).astype(f),k=np.array([0])))
c('onehot',"""g (int64[4] x, int64 d, float[2] v) => (float[a,b] y) { y=OneHot(x,d,v) }""",
  dict(x=np.array([0,3,-1,7]),d=i64(8),v=np.array([1,2],f)),dict(x=np.array([0,3,-1,7]),d=i64(3),v=np.array([1,2],f)))
c('reshape',"""g (float[4,6] x, int64[2] s) => (float[a,b] y) { y=Reshape(x,s) }""",
  dict(x=r.rand(4,6).astype(f),s=np.array([3,8])),dict(x=r.rand(4,6).astype(f),s=np.array([24,1])))
c('reshape_part',"""g (float[4,6] x, int64[1] s) => (float[a,b] y) <int64[1] m={-1}> { t=Concat<axis=0>(s,m) y=Reshape(x,t) }""",
  dict(x=r.rand(4,6).astype(f),s=np.array([3])),dict(x=r.rand(4,6).astype(f),s=np.array([24])))
c('pad',"""g (float[4,6] x, int64[4] s) => (float[a,b] y) { y=Pad(x,s) }""",
  dict(x=r.rand(4,6).astype(f),s=np.array([3,1,0,2])),dict(x=r.rand(4,6).astype(f),s=np.array([-1,1,0,-2])))
c('split',"""g (float[6,8] x, int64[2] s) => (float[a,b] y, float[a,c] z) { y,z=Split<axis=1>(x,s) }""",
  dict(x=r.rand(6,8).astype(f),s=np.array([3,5])),dict(x=r.rand(6,8).astype(f),s=np.array([0,8])))
c('mask',"""g (int64 n, float[16,16] x) => (float[a,b] y) <int64 zero={0}, int64 one={1}, int64[1] i0={0}, int64[1] i1={1}, float neg={-10000.0}> {
  r=Range(zero,n,one) c=Unsqueeze(r,i0) q=Unsqueeze(r,i1) ok=LessOrEqual(c,q) n1=Unsqueeze(n,i0) nn=Concat<axis=0>(n1,n1) z2=Concat<axis=0>(i0,i0) xs=Slice(x,z2,nn) y=Where(ok,xs,neg) }""",
  dict(n=i64(5),x=r.rand(16,16).astype(f)),dict(n=i64(0),x=r.rand(16,16).astype(f)),dict(n=i64(16),x=r.rand(16,16).astype(f)))
c('expand_add',"""g (float[1,3] x, int64[1] n) => (float[a,b] y) <int64 zero={0}, int64 one={1}, int64[1] three={3}, int64[1] i1={1}, int64[1] i0={0}> {
  s=Concat<axis=0>(n,three) e=Expand(x,s) ns=Squeeze(n,i0) r=Range(zero,ns,one) rf=Cast<to=1>(r) ru=Unsqueeze(rf,i1) y=Add(e,ru) }""",
  dict(x=r.rand(1,3).astype(f),n=np.array([5])),dict(x=r.rand(1,3).astype(f),n=np.array([0])))


fails("range_runtime", "n: must lie in", n=i64(1025))
fails("expand", "s: must lie in [0, 1024], got -1", x=r.rand(1, 3).astype(f), s=np.array([-1, 3]))
fails("topk", "k: must lie in [0, 20], got 21", x=r.rand(4, 20).astype(f), k=np.array([21]))
fails("reshape", "elements beyond", x=r.rand(4, 6).astype(f), s=np.array([5, 5]))
fails("mask", "must have the extent", n=i64(17), x=r.rand(16, 16).astype(f))


def run(module, model, feed):
    got = module.run(*[np.asarray(feed[port.name]) for port in model.graph.input])
    return [np.asarray(y) for y in got]


def run_reference(module, model, feed):
    return [np.asarray(y) for y in module.reference(*[np.asarray(feed[port.name]) for port in model.graph.input])]


def check(name, module, model, run=run, is_whole=True):
    """What is wrong, a line each; not |is_whole|: results have their largest shapes, of which the first elements count."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in CASES[name][1]:
        want = session.run(None, {key: np.asarray(value) for key, value in feed.items()})
        for x, y in zip(want, run(module, model, feed)):
            y = y if is_whole else y[tuple(slice(0, n) for n in x.shape)]
            if x.shape != y.shape or not np.allclose(x, y, 1e-5, 1e-6):
                yield f"{name}: of shape {x.shape}, got {y.shape} for {feed}"
    for _, words, feed in [row for row in FAILING if row[0] == name]:
        try:
            run(module, model, feed)
            yield f"{name}: must fail for {feed}"
        except kiln.Error as error:
            if words not in str(error):
                yield f"{name}: must fail with {words!r}, got {error}"


def main(also_files=False, also_reference=False):
    """|also_files|: modules are loaded from files, too; |also_reference|: the interpreter must give the same."""
    patterns = sys.argv[2:] or ["*"]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name in [n for n in CASES if any(fnmatch.fnmatch(n, p) for p in patterns)]:
            model = parse_model(CASES[name][0])
            path = pathlib.Path(folder) / f"{name}.onnx"
            path.write_bytes(model.SerializeToString())
            try:
                file = pathlib.Path(folder) / f"{name}.so" if also_files else None
                module = kiln.compile(path, output=file)
                wrong += list(check(name, module, model))
                if also_reference:
                    wrong += [f"reference: {line}" for line in check(name, module, model, run_reference, False)]
                if file:
                    wrong += list(check(name, kiln.load(file), model))
            except kiln.Error as error:
                wrong.append(f"{name}: {error}")
    print("\n".join(wrong) or f"{len(CASES)} graphs are right")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
