#!/usr/bin/env python3
"""Times kernels that are chosen by solving (docs/orchestration.md) against those of connecting.

usage: bench/orchestrate.py [--build DIR] [--threads N] [--rounds N] [--no-tune] [--processor-time]
                            [MODEL.onnx...]

Compiles every model (default: the five of Korch) with connecting, --orchestrate, and --orchestrate --tune 1, and runs the modules in
turns on random inputs, a run each. Prints how many launches each has, and the median over the rounds of a run's time with
connecting by that with the other: above 1 is faster, 1.000 if the module is the same; below, the geometric means. Predictions alone decide in the second: it
gets an empty cache directory of its own, while what --tune measures is kept in the user's. Idle threads sleep at once, so that no
module is in another one's way. --processor-time counts the time that all threads had a processor, for machines that
do other work: it does not see how evenly threads share the work.
"""
import argparse
import ctypes
import math
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import kiln_rt

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODELS = ("candy_b1", "efficientvit_b1_2048", "yolox_nano_b1", "yolov4_b1", "segformer_b0_b1", "segformer_b0_b16")


class Module(kiln_rt.Session):
    """A module with inputs and outputs of its own, all f32."""

    def __init__(self, build, path, threads):
        super().__init__(build, path, threads=threads, spin_us=-1)
        self.outputs = []
        given = [self.tensor(p, True) for p in self.inputs]
        results = [self.tensor(p, False) for p in self.output_ports]
        self.bind_tensors(given, results)

    def tensor(self, port, is_random):
        shape = [port.shape[i] for i in range(port.rank)]
        data = (ctypes.c_float * max(math.prod(shape), 1))()
        if is_random:
            numbers = random.Random(0)
            few = [numbers.uniform(-1, 1) for _ in range(4093)]
            for at in range(0, len(data), len(few)):
                n = min(len(few), len(data) - at)
                data[at:at + n] = few[:n]
        self.outputs.append(data)
        return kiln_rt.dl_tensor(ctypes.addressof(data), (1, 0), shape, 2, 32)


def compile_to(args, model, path, extra, directory):
    environment = dict(os.environ, KILN_CACHE_DIR=directory) if directory else None
    subprocess.run([args.build / "kiln", "compile", model, "-o", path, "--threads", str(args.threads), *extra],
                   check=True, env=environment, stdout=subprocess.DEVNULL)


def ratios_of(args, model, folder):
    """Launches of each way, and the median of connecting's time by its."""
    ways = [[], ["--orchestrate"], ["--orchestrate", "--tune", "1"]][:2 if args.no_tune else 3]
    modules = []
    for i, extra in enumerate(ways):
        path = folder / f"{i}.so"
        compile_to(args, model, path, extra, str(folder / "cache") if i == 1 else None)
        modules.append(Module(args.build, path, args.threads))
    for module in modules:
        module.run()
    ratios = [[] for _ in ways]
    clock = time.process_time if args.processor_time else time.perf_counter
    for n in range(args.rounds):
        times = [0.0] * len(modules)
        for i in range(len(modules)):
            k = (i + n) % len(modules)  # each is the first in turn
            start = clock()
            modules[k].run()
            times[k] = clock() - start
        for i, seconds in enumerate(times):
            ratios[i].append(times[0] / seconds)
    launches = [module.launches for module in modules]
    for module in modules:
        module.close()
    codes = [(folder / f"{i}.so").read_bytes() for i in range(len(ways))]
    return launches, [1.0 if code == codes[0] else statistics.median(r) for code, r in zip(codes, ratios)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    names = ["predicted", "measured"][:1 if args.no_tune else 2]
    print("| model | launches | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    all_ratios = []
    for model in args.models or [ROOT / "build/models" / f"{name}.onnx" for name in MODELS]:
        with tempfile.TemporaryDirectory() as folder:
            launches, ratios = ratios_of(args, model, pathlib.Path(folder))
        all_ratios.append(ratios[1:])
        cells = [pathlib.Path(model).stem, ", ".join(map(str, launches)), *(f"{r:.3f}" for r in ratios[1:])]
        print("| " + " | ".join(cells) + " |", flush=True)
    means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*all_ratios)]
    print("| geometric mean | | " + " | ".join(f"{m:.3f}" for m in means) + " |")


if __name__ == "__main__":
    main()
