#!/usr/bin/env python3
"""examples/llm/serve.py: requests of random lengths, together and in chunks, get the tokens that each gets alone, and greedy ones
those that NumPy finds for the whole sequence; blocks are scarce, so that requests wait, join and leave. In many steps no memory is lost.

usage: serve.py BUILD_DIR [--steps 2000]      needs numpy and onnx
"""
import os
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples/llm")]
os.environ["KILN_LIBRARY"] = sys.argv[1]

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.parser import parse_model
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import kiln
import serve
from kiln import export

WIDTH, WORDS, PLACES, HEADS = 16, 97, 64, 2
BLOCK, BLOCKS = 4, 61
TEXT = f"""<ir_version: 9, opset_import: ["" : 20]>
decoder (int64[batch,tokens] input_ids, int64[batch,kv] attention_mask, int64[batch,tokens] position_ids,
         float[batch,{HEADS},past,{WIDTH // HEADS}] past_0_key, float[batch,{HEADS},past,{WIDTH // HEADS}] past_0_value)
  => (float[batch,tokens,{WORDS}] logits, float[batch,{HEADS},kv,{WIDTH // HEADS}] present_0_key,
      float[batch,{HEADS},kv,{WIDTH // HEADS}] present_0_value)
<int64 zero={{0}}, int64 one={{1}}, int64 two={{2}}, int64[2] a12={{1,2}}, int64[1] a0={{0}}, int64[1] a1={{1}}, float hidden={{-1e30}},
 float scale={{0.5}}, int64[4] split={{0,0,{HEADS},-1}}, int64[3] joined={{0,0,-1}}> {{
 x0=Gather(words,input_ids) x1=Gather(places,position_ids) x=Add(x0,x1)
 q0=MatMul(x,wq) k0=MatMul(x,wk) v0=MatMul(x,wv) q1=Reshape(q0,split) k1=Reshape(k0,split) v1=Reshape(v0,split)
 q=Transpose<perm=[0,2,1,3]>(q1) k=Transpose<perm=[0,2,1,3]>(k1) v=Transpose<perm=[0,2,1,3]>(v1)
 present_0_key=Concat<axis=2>(past_0_key,k) present_0_value=Concat<axis=2>(past_0_value,v)
 sp=Shape(past_0_key) p=Gather(sp,two) si=Shape(input_ids) t=Gather(si,one) kv=Add(p,t)
 rows0=Range(p,kv,one) rows=Unsqueeze(rows0,a1) keys0=Range(zero,kv,one) keys=Unsqueeze(keys0,a0)
 before=LessOrEqual(keys,rows) there0=Cast<to=9>(attention_mask) there=Unsqueeze(there0,a12) seen=And(before,there)
 kt=Transpose<perm=[0,1,3,2]>(present_0_key) s0=MatMul(q,kt) s1=Mul(s0,scale) s=Where(seen,s1,hidden)
 w=Softmax<axis=-1>(s) o0=MatMul(w,present_0_value) o1=Transpose<perm=[0,2,1,3]>(o0) o=Reshape(o1,joined)
 h=Add(x,o) logits=MatMul(h,wo) }}"""


def make(rng, folder):
    model = parse_model(TEXT)
    shapes = {"words": (WORDS, WIDTH), "places": (PLACES, WIDTH), "wo": (WIDTH, WORDS)}
    shapes |= {name: (WIDTH, WIDTH) for name in ("wq", "wk", "wv")}
    arrays = {n: rng.standard_normal(s).astype("f") for n, s in shapes.items()}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    onnx.checker.check_model(model)
    made = export.with_sampling(export.paged(model, block_size=BLOCK), positions="last_token", most_k=32)
    export.save(made, f"{folder}/paged.onnx")
    dims = {"batch": (1, 8), "tokens": (1, 4), "pages": (1, PLACES // BLOCK), "blocks": BLOCKS}
    return arrays, kiln.compile(f"{folder}/paged.onnx", dims=dims, states="auto", threads=1, dump="plan")


def likeliest(a, tokens):
    """The next token, from the whole sequence, and by how much it is the likeliest."""
    x = (a["words"][tokens] + a["places"][: len(tokens)]).astype(np.float64)
    q, k, v = ((x @ a[n]).reshape(-1, HEADS, WIDTH // HEADS).swapaxes(0, 1) for n in ("wq", "wk", "wv"))
    s = q @ k.swapaxes(1, 2) * 0.5
    s[:, np.triu(np.ones(s.shape[1:], bool), 1)] = -np.inf
    w = np.exp(s - s.max(2, keepdims=True))
    y = (x + (w / w.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(-1, WIDTH)) @ a["wo"]
    best = np.sort(y[-1])
    return int(y[-1].argmax()), best[-1] - best[-2]


def requests_of(seed, n):
    """The same ones for the same seed."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(n):
        n_prompt = int(rng.integers(1, 30))
        ids = [int(t) for t in rng.integers(WORDS, size=n_prompt)]
        settings = {"temperature": float(rng.choice([0, 0.8, 3])), "top_k": int(rng.choice([0, 3, 20])), "top_p": float(rng.choice([0.5, 1]))}
        made.append(serve.Request(ids, int(rng.integers(1, PLACES - n_prompt)), **settings, seed=i))
    return made


def check_in_place(module):
    """Each variant stores the new keys and values over its input, the pool, and copies neither."""
    plans = module.dumps["plan"]
    states = re.findall(r"state: output (\d+) is the next run's input (\d+)", plans)
    if states and all(plans.count(f"copy to output {o}: input {i}:") == states.count((o, i)) for o, i in states):
        return 0
    print("FAILED: pools must be updated in place, got", re.findall("(?:copy|state).*", plans))
    return 1


def check_tokens(a, module, seed):
    together, alone = serve.Server(module), serve.Server(module, batch=1, chunk=1)
    requests, wrong, n_checked = requests_of(seed, 40), 0, 0
    got, want = together.serve(requests), alone.serve(requests_of(seed, 40))
    for request, g, w in zip(requests, got, want):
        if g != w or len(g) != request.tokens:
            wrong += 1
            print(f"FAILED: {request}: must give {w}, as alone, got {g}")
        for i in range(len(g) if request.temperature == 0 else 0):
            token, gap = likeliest(a, request.ids[: request.n_prompt + i])
            n_checked += gap > 1e-3  # decided by more than rounding
            if gap > 1e-3 and token != g[i]:
                wrong += 1
                print(f"FAILED: {request}: token {i} must be {token}, got {g[i]}")
    if together.runs * 2 > alone.runs or n_checked < 100 or len(together.free) != BLOCKS - 1:
        wrong += 1
        print(f"FAILED: {together.runs} runs beside {alone.runs} alone, {n_checked} tokens checked, {len(together.free)} blocks free")
    print(f"{sum(map(len, got))} tokens in {together.runs} runs; {alone.runs} one at a time")
    return wrong


def resident_kib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def check_memory(module, n_steps):
    """Resident memory after all steps beside that after the first quarter."""
    server, seed, begin, start = serve.Server(module), 0, 0, time.monotonic()
    for step in range(n_steps):
        if not server.waiting:
            for request in requests_of(seed % 4, 20):
                server.submit(request)
            seed += 1
        server.step()
        if step == n_steps // 4:
            begin = resident_kib()
    grown = resident_kib() - begin
    print(f"{n_steps} steps, {time.monotonic() - start:.0f} s: {grown} KiB more than after a quarter of them")
    if grown > 1024:
        print("FAILED: memory must not grow by more than 1024 KiB")
    return grown > 1024


def main():
    import tempfile

    seed = int(os.environ.get("KILN_SEED", np.random.default_rng().integers(1 << 30)))
    print("KILN_SEED", seed)
    n_steps = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 2000
    with tempfile.TemporaryDirectory() as folder:
        a, module = make(np.random.default_rng(seed), folder)
        wrong = check_in_place(module) + check_tokens(a, module, seed) + check_memory(module, n_steps)
    print("all right" if not wrong else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
