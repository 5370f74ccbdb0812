#!/usr/bin/env python3
"""Times kernels that are chosen by solving (docs/design/orchestration.md) against those of connecting.

usage: bench/orchestrate.py [--build DIR] [--threads N] [--rounds N] [--ways WAY,...] [--base OPTION] [--processor-time]
                            [--target cuda [--dtype f16]] [--jobs N] [MODEL.onnx...]

Compiles every model (default: the five of Korch) with connecting and in each of the ways (default: predicted,measured), and runs the modules in
turns on random inputs, a run each. Prints how many launches each has, and the median over the rounds of a run's time with
connecting by that with the other: above 1 is faster, 1.000 if the module is the same; below, the geometric means.

predicted: --orchestrate, by predictions alone: it gets an empty cache directory of its own, while what --tune measures is kept in the user's
measured:  --orchestrate --tune 1
libraries: --backends all --tune 1, and how many kernels libraries run
default:   no option: with --base=--no-horizontal-fusion, what kernels side by side are worth on a GPU

--base is an option more for connecting's kernels, that the others are compared with.

Idle threads sleep at once, so that no module is in another one's way. --processor-time counts the time that all threads had a processor, for machines that
do other work: it does not see how evenly threads share the work. With --target cuda, replays of graphs on this machine's GPU are timed, in
blocks between events, in turns, as bench/gpu.py does (PyTorch must be there).
"""
import argparse
import concurrent.futures
import ctypes
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import kiln_rt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
WAYS = {"predicted": ["--orchestrate"], "measured": ["--orchestrate", "--tune", "1"], "libraries": ["--backends", "all", "--tune", "1"],
        "default": []}
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
    """gives: how many kernels are a library's"""
    environment = dict(os.environ, KILN_CACHE_DIR=directory) if directory else None
    command = [args.build / "kiln", "compile", model, "-o", path, "--threads", str(args.threads), *extra]
    command += [f"--target={args.target}"] if args.target else []
    command += [f"--dtype={args.dtype}"] if args.dtype else []
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{pathlib.Path(model).stem}: {done.stderr.strip()}")
    won = [line for line in done.stderr.splitlines() if line.startswith("libraries: ")]
    return int(won[0].split()[1]) if won else 0


def time_on_cpu(args, paths):
    """Launches of each module, and the median of the first one's time by its."""
    modules = [Module(args.build, path, args.threads) for path in paths]
    for module in modules:
        module.run()
    ratios = [[] for _ in modules]
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
    return launches, [statistics.median(r) for r in ratios]


def time_on_gpu(args, model, paths):
    """The same, by the medians of each."""
    import gpu
    import torch
    stream = torch.cuda.Stream()
    feeds = {name: t.cuda() for name, t in gpu.make_feeds(model).items()}
    with torch.cuda.stream(stream):
        modules = [gpu.Kiln(args.build, path, stream.cuda_stream) for path in paths]
        for module in modules:
            module.bind(feeds)
            for _ in range(3):  # the second is captured
                module.run()
            module.wait()
        ms = gpu.time_all({i: module.run for i, module in enumerate(modules)})
    launches = [module.launches for module in modules]
    for module in modules:
        module.close()
    return launches, [ms[0] / ms[i] for i in range(len(paths))]


def compile_all(args, model, folder):
    """gives: the modules, of connecting and of each way, and how many kernels of them are libraries'"""
    ways = ["connecting", *args.ways]
    paths, n_libraries = [folder / f"{i}.so" for i in range(len(ways))], 0
    for way, path in zip(ways, paths):
        n_libraries += compile_to(args, model, path, args.base if way == "connecting" else WAYS[way], str(folder / "cache") if way == "predicted" else None)
    return paths, n_libraries


def print_row(args, model, paths, n_libraries):
    """gives: the ratios"""
    launches, ratios = time_on_gpu(args, model, paths) if args.target else time_on_cpu(args, paths)
    codes = [path.read_bytes() for path in paths]
    ratios = [1.0 if code == codes[0] else r for code, r in zip(codes, ratios)][1:]
    cells = [pathlib.Path(model).stem, ", ".join(map(str, launches)), *(f"{r:.3f}" for r in ratios)]
    if "libraries" in args.ways:
        cells[-1] += f", {n_libraries} kernels"
    print("| " + " | ".join(cells) + " |", flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=["predicted", "measured"])
    parser.add_argument("--base", action="append", default=[])
    parser.add_argument("--processor-time", action="store_true")
    parser.add_argument("--jobs", type=int, default=1, help="models compiled at once, before any is timed")
    parser.add_argument("--target", choices=["cuda"])
    parser.add_argument("--dtype")
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    if unknown := [way for way in args.ways if way not in WAYS]:
        parser.error(f"ways: must be of {', '.join(WAYS)}, got {unknown[0]}")
    print("| model | launches | " + " | ".join(args.ways) + " |\n|---|---|" + "---|" * len(args.ways))
    models = args.models or [ROOT / "build/models" / f"{name}.onnx" for name in MODELS]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        folders = [pathlib.Path(folder) / str(i) for i in range(len(models))]
        for one in folders:
            one.mkdir()
        made = list(pool.map(lambda i: compile_all(args, models[i], folders[i]), range(len(models))))
        all_ratios = [print_row(args, model, *modules) for model, modules in zip(models, made)]
    means = [math.exp(statistics.fmean(map(math.log, column))) for column in zip(*all_ratios)]
    print("| geometric mean | | " + " | ".join(f"{m:.3f}" for m in means) + " |")


if __name__ == "__main__":
    main()
