#!/usr/bin/env python3
"""The programs of examples/llm: tokens of a small random decoder, whose cache stays in the session, by chunks and one by one, are
those that NumPy finds for the whole sequence at each step.

usage: llm.py KILN GENERATE BUILD_DIR      needs numpy and onnx; GENERATE: examples/llm/generate.c, built
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.parser import parse_model
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, WORDS, N = 16, 61, 24
TEXT = f"""<ir_version: 9, opset_import: ["" : 20]>
decoder (int64[batch,tokens] input_ids, int64[batch,kv] attention_mask, float[batch,1,past,{WIDTH}] past_0_key,
         float[batch,1,past,{WIDTH}] past_0_value)
  => (float[batch,tokens,{WORDS}] logits, float[batch,1,kv,{WIDTH}] present_0_key, float[batch,1,kv,{WIDTH}] present_0_value)
<int64 zero={{0}}, int64 one={{1}}, int64 two={{2}}, int64[1] a1={{1}}, int64[2] a12={{1,2}}, int64[1] a0={{0}}, float hidden={{-1e30}},
 float scale={{0.25}}> {{
 x=Gather(words,input_ids)
 q0=MatMul(x,wq) k0=MatMul(x,wk) v0=MatMul(x,wv) q=Unsqueeze(q0,a1) k=Unsqueeze(k0,a1) v=Unsqueeze(v0,a1)
 present_0_key=Concat<axis=2>(past_0_key,k) present_0_value=Concat<axis=2>(past_0_value,v)
 sp=Shape(past_0_key) p=Gather(sp,two) si=Shape(input_ids) t=Gather(si,one) kv=Add(p,t)
 rows0=Range(p,kv,one) rows=Unsqueeze(rows0,a1) keys0=Range(zero,kv,one) keys=Unsqueeze(keys0,a0)
 before=LessOrEqual(keys,rows) there0=Cast<to=9>(attention_mask) there=Unsqueeze(there0,a12) seen=And(before,there)
 kt=Transpose<perm=[0,1,3,2]>(present_0_key) s0=MatMul(q,kt) s1=Mul(s0,scale) s=Where(seen,s1,hidden)
 w=Softmax<axis=-1>(s) o0=MatMul(w,present_0_value) o=Squeeze(o0,a1) h=Add(x,o) logits=MatMul(h,wo) }}"""


def make(rng, path):
    model = parse_model(TEXT)
    weights = {"words": (WORDS, WIDTH), "wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "wo": (WIDTH, WORDS)}
    arrays = {n: rng.standard_normal(s).astype("f") for n, s in weights.items()}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    onnx.save(model, path)
    return arrays


def likeliest(a, tokens):
    """The next token, from the whole sequence."""
    x = a["words"][tokens].astype(np.float64)
    s = (x @ a["wq"]) @ (x @ a["wk"]).T * 0.25
    s[np.triu(np.ones_like(s, bool), 1)] = -np.inf
    w = np.exp(s - s.max(1, keepdims=True))
    y = (x + w / w.sum(1, keepdims=True) @ (x @ a["wv"])) @ a["wo"]
    best = np.sort(y[-1])
    assert best[-1] - best[-2] > 1e-3, "the test's tokens must be decided by more than rounding: take another seed"
    return int(y[-1].argmax())


def stays(plans):
    """Whether each state of each variant is stored over its input: plans copy no state, and tell that its output is the input's memory."""
    states = re.findall(r"state: output (\d+) is the next run's input (\d+)", plans)
    return states and all(plans.count(f"copy to output {o}: input {i}:") == states.count((o, i)) for o, i in set(states))


def main():
    kiln, generate, build = sys.argv[1:4]
    rng, wrong = np.random.default_rng(int(os.environ.get("KILN_SEED", 5))), 0
    with tempfile.TemporaryDirectory() as folder:
        a = make(rng, f"{folder}/d.onnx")
        command = [kiln, "compile", f"{folder}/d.onnx", "-o", f"{folder}/d.so", "--state", "auto", "--no-cache", "--quiet"]
        command += ["--dim", "batch=1..2", "--dim", "tokens=1..8", "--dim", "past=0..64", "--dim", "kv=past+tokens"]
        plans = subprocess.run(command + ["--dump=plan"], check=True, capture_output=True, text=True).stdout
        if not stays(plans):
            wrong += 1
            print("FAILED: keys and values must be appended in place, got", re.findall("(?:copy|state).*", plans))
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "KILN_LIBRARY": build}
        programs = [[generate, f"{folder}/d.so"], [sys.executable, str(ROOT / "examples/llm/generate.py"), f"{folder}/d.so", "--ids"]]
        for chunk in (1, 3, 8):
            prompt = [int(t) for t in rng.integers(WORDS, size=11)]
            want = []
            for _ in range(N):
                want.append(likeliest(a, prompt + want))
            for program in programs:
                options = ["--tokens", str(N), "--chunk", str(chunk)]
                done = subprocess.run(program + [str(t) for t in prompt] + options, capture_output=True, text=True, env=environment)
                if done.returncode or [int(t) for t in done.stdout.split()] != want:
                    wrong += 1
                    print(f"FAILED {program[0]} chunk {chunk}: must give {want}, got {done.stdout} {done.stderr}")
        drawn = [subprocess.run([generate, f"{folder}/d.so", "--temperature", "5", "--seed", s, "7"], capture_output=True, text=True,
                                env=environment).stdout for s in ("2", "2", "4")]
        if drawn[0] != drawn[1] or drawn[0] == drawn[2]:
            wrong += 1
            print(f"FAILED: equal seeds must give equal tokens, others others, got {drawn}")
        steps = []
        for draft in ("0", "1", "4", "7"):  # 7 and the last token: the most that a step takes
            for temperature in ("0", "0.4"):
                options = ["--temperature", temperature, "--tokens", "50", "--chunk", "8", "--draft", draft, "--verbose"]
                done = subprocess.run(programs[1] + ["5", "9", "5", "9"] + options, capture_output=True, text=True, env=environment)
                steps.append((done.stdout, int(done.stderr.split()[2]) if done.returncode == 0 else done.stderr))
        if any(s[0] != steps[i % 2][0] for i, s in enumerate(steps)) or not steps[6][1] < steps[0][1]:
            wrong += 1
            print(f"FAILED: guessed tokens must save steps and change no token, got {steps}")
        past = subprocess.run([generate, f"{folder}/d.so", "--tokens", "80", "7"], capture_output=True, text=True, env=environment)
        if past.returncode == 0 or "dimension past: must be 0 to 64" not in past.stderr:
            wrong += 1
            print(f"FAILED: a full cache must be told, got {past.stderr}")
    print("all right" if not wrong else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
