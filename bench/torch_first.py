#!/usr/bin/env python3
"""The time to the first result of torch.compile: Kiln's backend beside Inductor, each in a fresh process without caches.

usage: bench/torch_first.py [--sample 10] [--seed 1] [--device cpu|cuda] [--dtype f32|f16] [--threads N] [--seconds 300] [--beside 1]
                            [--sources torchvision,timm,transformers] [--only NAME] [--json FILE]

Models are drawn as bench/torch_random.py draws them. The clock starts before the first call of the compiled model, with the model
on the device and PyTorch's libraries loaded by a call of the eager model, and stops when the result is there. Of Kiln's time a line
says how much is Dynamo's and AOTAutograd's (trace), and how much the compiler's and the loading's (kiln). Each process may use
--threads processors, Inductor's workers included; --beside so many models are done at a time. Where Inductor has no result in
--seconds, the ratio is to these.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
import torch_random  # noqa: E402
from zoo import tensors, vary  # noqa: E402


def run_one(args):
    import warnings

    warnings.simplefilter("ignore")
    import torch
    import torch._dynamo

    import kiln.torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, inputs = torch_random.build(args.only, 1, torch)
    if sum(p.numel() for p in model.parameters()) > args.most_params * 1e6:
        return print(json.dumps({"skip": True}))
    model = model.eval()
    dtype = {"f32": torch.float32, "f16": torch.float16}[args.dtype]

    def sync():
        if args.device == "cuda":
            torch.cuda.synchronize()

    with torch.no_grad():
        vary(model, torch)
        model = model.to(args.device, dtype)
        inputs = [x.to(args.device, dtype) if x.is_floating_point() else x.to(args.device) for x in inputs]
        want = tensors(model(*inputs), torch)
        sync()
        if args.way == "kiln":
            run = torch.compile(model, backend=kiln.torch.backend, options={"threads": args.threads, "cache": False})
        else:
            run = torch.compile(model)
        start = time.perf_counter()
        got = tensors(run(*inputs), torch)
        sync()
        told = {"first": time.perf_counter() - start}
    told["error"] = torch_random.error(got, want, torch)
    if args.way == "kiln":
        reports = kiln.torch.report()
        told.update(
            trace=sum(r.trace_seconds for r in reports), kiln=sum(r.seconds for r in reports), nodes=sum(r.nodes for r in reports),
            left=sum(r.fallback for r in reports), graphs=len(reports), why=[r.eager for r in reports if r.eager],
        )  # fmt: skip
    print(json.dumps(told))


def measure(name, args):
    told = {"name": name}
    for way in ("kiln", "inductor"):
        command = [sys.executable, __file__, "--way", way, "--only", name]
        for key in ("device", "dtype", "threads", "most_params"):
            command += ["--" + key.replace("_", "-"), str(getattr(args, key))]
        with tempfile.TemporaryDirectory() as cache:
            caches = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache + "/triton", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                      "TORCHINDUCTOR_COMPILE_THREADS": str(args.threads)}  # fmt: skip
            try:
                said = subprocess.run(command, capture_output=True, text=True, timeout=args.seconds, env={**os.environ, **caches})
                told[way] = json.loads(said.stdout.strip().splitlines()[-1])
            except (ValueError, IndexError):
                told[way] = {"failed": (said.stderr.strip().splitlines() or ["?"])[-1][:90]}
            except subprocess.TimeoutExpired:
                told[way] = {"failed": f"no result in {args.seconds} s", "least": args.seconds}
        if told[way].get("skip"):
            return told
    return told


def show(told):
    k, i = told["kiln"], told["inductor"]
    if "failed" in k:
        return f"{told['name'][:44]:<44} Kiln: {k['failed']}; Inductor: {i.get('failed') or i['first']}"
    text = f"{told['name'][:44]:<44} {k['first']:6.2f} s ({k['trace']:.2f} trace, {k['kiln']:.2f} kiln); "
    text += f"{k['nodes']} operators, {k['left']} left, error {k['error']:.0e}; Inductor: "
    if "failed" in i:
        return text + i["failed"]
    return text + f"{i['first']:6.2f} s, error {i['error']:.0e}; {k['first'] / i['first']:.3f}"


def ratio(told):
    """Of the first results; at most this, where Inductor had none in its time. None: there is none."""
    k, i = told["kiln"], told["inductor"]
    least = i.get("first") or i.get("least")
    return k["first"] / least if "first" in k and least else None


def drawn(args):
    lists = [[args.only]] if args.only else torch_random.names(args.sources.split(","))
    rng = random.Random(args.seed)
    for one in lists:
        rng.shuffle(one)
    while any(lists):
        for one in lists:
            if one:
                yield one.pop()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="f32", choices=["f32", "f16"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--most-params", type=float, default=60, help="millions")
    parser.add_argument("--sources", default="torchvision,timm,transformers")
    parser.add_argument("--seconds", type=int, default=300, help="a model may take")
    parser.add_argument("--beside", type=int, default=1)
    parser.add_argument("--only")
    parser.add_argument("--json")
    parser.add_argument("--way", choices=["kiln", "inductor"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        return run_one(args)
    names, found = drawn(args), []
    with concurrent.futures.ThreadPoolExecutor(args.beside) as pool:
        while len(found) < args.sample:
            batch = [n for n, _ in zip(names, range(args.sample - len(found)))]
            if not batch:
                break
            for told in pool.map(lambda n: measure(n, args), batch):
                if "inductor" not in told:
                    continue  # too large
                found.append(told)
                print(show(told), flush=True)
                if args.json:
                    with open(args.json, "a") as f:
                        f.write(json.dumps(told) + "\n")
    ratios = [r for r in map(ratio, found) if r is not None]
    print(
        f"{len(found)} models, {len(ratios)} compared, {sum('least' in t['inductor'] for t in found)} of them to Inductor's time limit: "
        f"Kiln's first result in {torch_random.mean(ratios):.3f} of Inductor's time (geometric mean), at most "
        f"{max(ratios, default=0):.3f}, {sum(r < 1 / 3 for r in ratios)} below a third"
    )


if __name__ == "__main__":
    main()
