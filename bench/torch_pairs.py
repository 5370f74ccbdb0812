#!/usr/bin/env python3
"""What a call through torch.compile costs over the module that it runs, call beside call.

usage: bench/torch_pairs.py [--threads 2] [--rounds 300] [--seconds 60] [--processor] [--lean|--frozen] NAME...
       a NAME is torchvision/resnet18, timm/..., transformers/bert and the like

The ways to run one model take turns, so that what else the machine does meets all of them; each is `kiln bench`'s module in one
process, on the same inputs:

  torch    the function that torch.compile gave; with --lean Dynamo does not look at the model's modules before each call, with
           --frozen it is the function of kiln.torch.compile
  module   the module, called from Python: its outputs are new tensors
  given    the same with outputs given: as `kiln bench`, which writes the same outputs again and again

Of each the least time and the median, and the ratio to `given`: of the least times, and the median of the ratios of neighbours.
`bench` is kiln bench's least time of runs before and after. With --processor times are the processor's, of all threads of the process,
which a busy machine changes less: of use with --threads 1, since threads that wait spin.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "bench")]
import torch

import kiln.torch
import torch_random


def bench_least(module, threads):
    """The least time of kiln bench, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        path, told = os.path.join(folder, "m.so"), os.path.join(folder, "m.json")
        module.save(path)
        command = os.environ.get("KILN", str(ROOT / "build/kiln"))
        subprocess.run([command, "bench", path, "--json", told, "--threads", str(threads)], capture_output=True)
        return json.loads(pathlib.Path(told).read_text())["min_ms"]


def take_turns(ways, rounds, seconds, clock):
    """Times of each way in ms: a call of each in turn, every other round in the opposite order."""
    names, times, end = list(ways), {n: [] for n in ways}, time.monotonic() + seconds
    for _ in range(3):
        for n in names:
            ways[n]()
    while len(times[names[0]]) < rounds and time.monotonic() < end:
        for n in names:
            start = clock()
            ways[n]()
            times[n].append((clock() - start) * 1e3)
        names.reverse()
    return times


def compare(name, args):
    torch.manual_seed(0)
    torch._dynamo.reset()
    kiln.torch.reset()
    model, inputs = torch_random.build(name, 1, torch)
    model = model.eval()
    with torch.no_grad():
        torch_random.vary(model, torch)
        options = {"threads": args.threads, "cache": False}
        if args.lean:
            options["guard_filter_fn"] = torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
        if args.frozen:
            compiled = kiln.torch.compile(model, **options)
        else:
            compiled = torch.compile(model, backend=kiln.torch.backend, options=options)
        compiled(*inputs)
        modules = kiln.torch.modules()
        if len(modules) != 1:
            return print(f"{name:32} has {len(modules)} modules, must have one")
        module = modules[0]
        takes = [x for port in module.inputs for x in inputs if tuple(x.shape) == port.shape][: len(module.inputs)]
        if len(takes) != len(module.inputs):
            return print(f"{name:32} its module takes other tensors than the model")
        outputs = [torch.empty_like(y) for y in module.run(*takes)]
        ways = {
            "torch": lambda: compiled(*inputs),
            "module": lambda: module.run(*takes),
            "given": lambda: module.run(*takes, out=outputs if len(outputs) > 1 else outputs[0]),
        }
        first = bench_least(module, args.threads)
        times = take_turns(ways, args.rounds, args.seconds, time.process_time if args.processor else time.perf_counter)
        bench = min(first, bench_least(module, args.threads))
    least = {n: min(t) for n, t in times.items()}
    text = [f"{name:32} {len(times['given']):4} rounds, outputs {sum(y.nbytes for y in outputs) / 1e3:.0f} kB"]
    for n, t in times.items():
        pairs = statistics.median(a / b for a, b in zip(t, times["given"]))
        text.append(f"  {n:7} least {least[n]:8.3f} ms ({least[n] / least['given']:.3f}), median {statistics.median(t):8.3f}, of pairs {pairs:.3f}")
    print("\n".join([*text, f"  bench   least {bench:8.3f} ms ({bench / least['given']:.3f})"]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processor", action="store_true")
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--frozen", action="store_true")
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(args.threads)
    for name in args.names:
        compare(name, args)


if __name__ == "__main__":
    main()
