#!/usr/bin/env python3
"""Compares loops that the plan runs, whose counts and conditions only the run knows, with ONNX Runtime, by
modules in memory, from files, and by the interpreter, and checks errors.

usage: loops.py LIBRARIES [PATTERN]...     in the Python environment of `make test`; LIBRARIES: the build's folder
"""
import given_shapes as graphs  # whose case table and comparison these are
from given_shapes import c, f, fails, i64, np, r

graphs.CASES.clear()
graphs.FAILING.clear()

X=r.rand(3,4).astype(f)
c('sum_n',"""g (int64 n, float[3,4] x) => (float[3,4] y) <bool t={1}> {
 y=Loop(n,t,x)<body = b (int64 i, bool ci, float[3,4] s) => (bool co, float[3,4] so) { co=Identity(ci) d=Sin(s) so=Add(d,x) }> }""",
 *[dict(n=i64(k),x=X) for k in (0,1,2,7,1000)])
c('rows_n',"""g (int64 n, float[3,4] x) => (float[3,4] y, float[k,3,4] z) <bool t={1}> {
 y,z=Loop(n,t,x)<body = b (int64 i, bool ci, float[3,4] s) => (bool co, float[3,4] so, float[3,4] row) { co=Identity(ci) d=Sin(s) so=Add(d,x) row=Exp(s) }> }""",
 *[dict(n=i64(k),x=X) for k in (0,1,2,7,1000)])
c('until',"""g (float[4] x, float lim) => (float[4] y, int64 steps) <bool t={1}, int64 zero={0}, int64 one={1}, int64[1] ax={0}> {
 y,steps=Loop("",t,x,zero)<body = b (int64 i, bool ci, float[4] s, int64 n) => (bool co, float[4] so, int64 no) { so=Add(s,x) m=ReduceSum<keepdims=0>(so,ax) co=Less(m,lim) no=Add(n,one) }> }""",
 *[dict(x=np.abs(r.rand(4)).astype(f)+.1,lim=f(k)) for k in (0,1,20,300)])
c('while_rows',"""g (int64 n, float[4] x, float lim) => (float[4] y, float[k] z, int64[k] w) <bool t={1}, int64[1] ax={0}> {
 y,z,w=Loop(n,t,x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float mo, int64 io) { so=Add(s,x) m=ReduceSum<keepdims=0>(so,ax) mo=Identity(m) co=Less(m,lim) io=Identity(i) }> }""",
 *[dict(n=i64(q),x=np.abs(r.rand(4)).astype(f)+.1,lim=f(k)) for q,k in ((5,0),(0,9),(100,1),(3,100),(100,60))])
c('swap',"""g (int64 n, float[4] x, float[4] z) => (float[4] p, float[4] q, float[4] w) <bool t={1}> {
 p,q,w=Loop(n,t,x,z,x)<body = b (int64 i, bool ci, float[4] a, float[4] bb, float[4] cc) => (bool co, float[4] ao, float[4] bo, float[4] co2) { co=Identity(ci) ao=Identity(bb) bo=Identity(a) co2=Identity(cc) }> }""",
 *[dict(n=i64(k),x=r.rand(4).astype(f),z=r.rand(4).astype(f)) for k in (0,1,2,5)])
c('nested',"""g (int64 n, int64 m, float[4] x) => (float[4] y, float[k,4] rows) <bool t={1}> {
 y,rows=Loop(n,t,x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] ro) { co=Identity(ci) h=Mul(s,x)
   q=Loop(m,t,h)<body = bb (int64 j, bool cj, float[4] u) => (bool co2, float[4] uo) { co2=Identity(cj) jf=Cast<to=1>(j) if1=Cast<to=1>(i) v=Add(u,jf) v2=Sub(v,if1) uo=Tanh(v2) }>
   so=Add(q,s) ro=Neg(so) }> }""",
 *[dict(n=i64(a),m=i64(b),x=r.rand(4).astype(f)) for a,b in ((0,0),(1,0),(0,3),(3,2),(5,9))])
c('long_known',"""g (float[4] x) => (float[4] y, float[2000,4] z) <bool t={1}, int64 n={2000}> {
 y,z=Loop(n,t,x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] row) { co=Identity(ci) d=Sin(s) so=Add(d,x) row=Identity(so) }> }""",
 dict(x=r.rand(4).astype(f)))
c('after',"""g (int64 n, float[4] x) => (float y, float[4] z) <bool t={1}, int64[1] ax={0}> {
 a=Exp(x) q,rows=Loop(n,t,a)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] ro) { co=Identity(ci) so=Mul(s,x) ro=Add(so,a) }>
 e=ReduceSum<keepdims=0>(rows) y=Sqrt(e) z=Add(q,a) }""",
 *[dict(n=i64(k),x=r.rand(4).astype(f)) for k in (0,1,5,30)])
c('const_state',"""g (int64 n, float[4] x) => (float[4] y) <bool t={1}, float[4] z={1,2,3,4}> {
 y=Loop(n,t,z)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so) { co=Identity(ci) so=Add(s,x) }> }""",
 *[dict(n=i64(k),x=r.rand(4).astype(f)) for k in (0,1,5)])
c('gather_i',"""g (int64 n, float[9,4] x) => (float[4] y, float[k,4] z) <bool t={1}, float[4] z0={0,0,0,0}> {
 y,z=Loop(n,t,z0)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so, float[4] zo) { co=Identity(ci) row=Gather<axis=0>(x,i) so=Add(s,row) zo=Identity(row) }> }""",
 *[dict(n=i64(k),x=r.rand(9,4).astype(f)) for k in (0,1,9)])
c('in_if',"""g (bool c, int64 n, float[4] x) => (float[4] y) <bool t={1}> {
 y=If(c)<then_branch = a () => (float[4] e) { e=Loop(n,t,x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so) { co=Identity(ci) so=Add(s,x) }> }, else_branch = b2 () => (float[4] f2) { f2=Neg(x) }> }""",
 *[dict(c=np.bool_(q),n=i64(k),x=r.rand(4).astype(f)) for q,k in ((1,0),(1,3),(0,1<<40),(0,3))])
c('two',"""g (int64 n, float[4] x) => (float[4] y, float[4] z, float[4] w) <bool t={1}> {
 y=Loop(n,t,x)<body = b (int64 i, bool ci, float[4] s) => (bool co, float[4] so) { co=Identity(ci) so=Add(s,x) }>
 z=Loop(n,t,y)<body = b2 (int64 i2, bool ci2, float[4] s2) => (bool co2, float[4] so2) { co2=Identity(ci2) so2=Mul(s2,y) }> w=Add(y,z) }""",
 *[dict(n=i64(k),x=r.rand(4).astype(f)) for k in (0,1,3)])
c('scan',"""g (float[4] s0, float[700,4] x) => (float[4] y, float[700,4] z) {
 y,z=Scan<num_scan_inputs=1, body = b (float[4] s, float[4] row) => (float[4] so, float[4] zo) { so0=Add(s,row) so=Tanh(so0) zo=Mul(so,row) }>(s0,x) }""",
 dict(s0=r.rand(4).astype(f),x=r.rand(700,4).astype(f)))
c('scan_back',"""g (float[4] s0, float[4,700] x) => (float[4] y, float[4,700] z) {
 y,z=Scan<num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1], scan_input_directions=[1], scan_output_directions=[1], body = b (float[4] s, float[4] row) => (float[4] so, float[4] zo) { so0=Add(s,row) so=Tanh(so0) zo=Mul(so,row) }>(s0,x) }""",
 dict(s0=r.rand(4).astype(f),x=r.rand(4,700).astype(f)))
c('scan_back2',"""g (float[2,4] s0, float[2,4,700] x, float[700,2] u) => (float[2,4] y, float[2,700,4] z) {
 y,z=Scan<num_scan_inputs=2, scan_input_axes=[-1,0], scan_output_axes=[-2], scan_input_directions=[0,1], scan_output_directions=[1], body = b (float[2,4] s, float[2,4] row, float[2] uu) => (float[2,4] so, float[2,4] zo) { so0=Add(s,row) so=Tanh(so0) m=ReduceSum<keepdims=0>(uu) zo=Mul(so,m) }>(s0,x,u) }""",
 dict(s0=r.rand(2,4).astype(f),x=r.rand(2,4,700).astype(f),u=r.rand(700,2).astype(f)))


W = r.randn(96, 96).astype(f) * 0.1
branches = [{"c": np.bool_(q), "n": i64(2), "x": r.rand(96, 96).astype(f) * f(0.1), "w": W} for q in (0, 1)]
form = "float[96,96]"
c("branch", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y, {form} z) {{
 y,z=If(c)<then_branch = a () => ({form} e, {form} f) {{ e=MatMul(x,w) f=Exp(e) }},
  else_branch = b () => ({form} g2, {form} h) {{ q=MatMul(w,x) g2=Tanh(q) h=Identity(x) }}> }}""", *branches)
c("branch_used", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y) {{
 s=Sin(x) d=If(c)<then_branch = a () => ({form} e) {{ e=MatMul(s,w) }}, else_branch = b () => ({form} g2) {{ g2=Identity(s) }}>
 k=Not(c) u=If(k)<then_branch = a2 () => ({form} e2) {{ e2=MatMul(d,w) }}, else_branch = b2 () => ({form} g3) {{ g3=MatMul(w,d) }}> y=Add(u,d) }}""",
  *branches)  # fmt: skip
c("branch_nested", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y) {{
 y=If(c)<then_branch = a () => ({form} e) {{ m=MatMul(x,w) k=Not(c)
   e=If(k)<then_branch = a2 () => ({form} e2) {{ e2=MatMul(m,w) }}, else_branch = b2 () => ({form} g3) {{ g3=MatMul(w,m) }}> }},
  else_branch = b () => ({form} g2) {{ g2=MatMul(w,x) }}> }}""", *branches)
c("branch_in_loop", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y, {form} z) <bool t={{1}}, int64 one={{1}}> {{
 y,z=Loop(n,t,x,w)<body = b (int64 i, bool ci, {form} s, {form} u) => (bool co, {form} so, {form} uo) {{ co=Identity(ci) k=Less(i,one)
  so=If(k)<then_branch = a () => ({form} e) {{ e1=MatMul(s,w) e=Tanh(e1) }}, else_branch = b2 () => ({form} g2) {{ g1=MatMul(u,s) g2=Tanh(g1) }}>
  uo=Identity(s) }}> }}""", *branches)
c("loop_in_branch", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y) <bool t={{1}}> {{
 y=If(c)<then_branch = a () => ({form} e) {{ e=Loop(n,t,x)<body = b (int64 i, bool ci, {form} s) => (bool co, {form} so) {{ co=Identity(ci)
   q=MatMul(s,w) so=Tanh(q) }}> }}, else_branch = b2 () => ({form} g2) {{ g2=MatMul(w,x) }}> }}""", *branches)
c("branch_constant", f"""g (bool c, int64 n, {form} x, {form} w) => ({form} y) <{form} k={{{",".join(["0.5"] * 96 * 96)}}}> {{
 y=If(c)<then_branch = a () => ({form} e) {{ e=MatMul(x,w) }}, else_branch = b2 () => ({form} g2) {{ g2=Identity(k) }}> }}""", *branches)

UNARY = ["Tanh", "Sin", "Neg", "Sigmoid", "Abs"]
BINARY = ["Add", "Mul", "Sub", "Max"]


def random_body(rng, names):
    """Nodes, and the values that they make, of one shape."""
    lines, made = [], list(names)
    for k in range(rng.randint(2, 7)):
        a, b = rng.choice(made), rng.choice(made)
        op = rng.choice(UNARY + BINARY)
        lines.append(f"v{k} = {op}({a}, {b})" if op in BINARY else f"v{k} = {op}({a})")
        made.append(f"v{k}")
    return lines, made


def random_loop(seed):
    """A loop of random states, rows and body, inside of another one or not, ended by its count or by a condition."""
    rng = np.random.RandomState(seed)
    n_states, n_rows = rng.randint(1, 4), rng.randint(0, 3)
    states = [f"s{k}" for k in range(n_states)]
    lines, made = random_body(rng, [*states, "x", "w"])
    outs = [f"o{k} = Identity({rng.choice(made)})" for k in range(n_states)]
    rows = [f"r{k} = Identity({rng.choice(made)})" for k in range(n_rows)]
    ends = "m = ReduceMax<keepdims=0>(o0) co = Less(m, lim)" if rng.rand() < 0.5 else "co = Identity(ci)"
    form = "float[2,3]"
    ins = ", ".join(f"{form} {s}" for s in states)
    results = ", ".join(["bool co"] + [f"{form} o{k}" for k in range(n_states)] + [f"{form} r{k}" for k in range(n_rows)])
    text = " ".join([*lines, *outs, *rows, ends])
    begin = ", ".join(rng.choice(["x", "w", "y0"], n_states))
    names = [f"a{k}" for k in range(n_states)] + [f"b{k}" for k in range(n_rows)]
    ports = ", ".join([f"{form} a{k}" for k in range(n_states)] + [f"float[n,2,3] b{k}" for k in range(n_rows)])
    loop = f"{', '.join(names)} = Loop(n, t, {begin})<body = b (int64 i, bool ci, {ins}) => ({results}) {{ {text} }}>"
    if rng.rand() < 0.3:
        q = ", ".join(f"float[2,3] q{k}" for k in range(n_states))
        outer = " ".join([f"p{k} = Add(q{k}, a{k})" for k in range(n_states)])
        loop = loop.replace(f"Loop(n, t, {begin})", f"Loop(n, t, {', '.join(f'q{k}' for k in range(n_states))})")
        first = ", ".join(f"p{k}" for k in range(n_states))
        first_ports = ", ".join(f"{form} p{k}" for k in range(n_states))
        results = ", ".join(["bool oc"] + [f"{form} p{k}" for k in range(n_states)])
        loop = (f"{first.replace('p', 'z')} = Loop(m2, t, {begin})<body = ob (int64 oi, bool ic, {q}) => ({results}) "
                f"{{ {loop} {outer} oc = Identity(ic) }}>")  # fmt: skip
        ports = first_ports.replace(" p", " z")
    feeds = [{"n": i64(n), "m2": i64(m), "lim": f(lim), "x": r.randn(2, 3).astype(f), "w": r.randn(2, 3).astype(f)}
             for n, m, lim in ((0, 2, 1), (1, 0, 1), (4, 3, 0.3), (9, 1, 5))]  # fmt: skip
    c(f"random_{seed}", f"g (int64 n, int64 m2, float lim, {form} x, {form} w) => ({ports}) <bool t={{1}}> {{ y0 = Mul(x, w) {loop} }}",
      *feeds)  # fmt: skip


for number in range(12):
    random_loop(number)

fails("rows_n", "iterations: must be at most 1024", n=i64(1025), x=X)
fails("while_rows", "iterations: must be at most 1024", n=i64(5000), x=np.zeros(4, f), lim=f(1))
fails("gather_i", "must lie in", n=i64(10), x=r.rand(9, 4).astype(f))

if __name__ == "__main__":
    graphs.main(also_files=True, also_reference=True)
