#!/usr/bin/env python3
"""What measuring for a while is worth on this machine's GPU, and how near it comes to measuring for long.

usage: bench/gpu_tuning.py [--dtype f16] [--seconds S] [--best-seconds T] [--target cuda] [--build DIR] [MODEL.onnx | NAME]...

For every model (default: bert_b1) three modules: as compiled without measuring, with `--tune-seconds S` (60) from nothing, and
with T (400) seconds more on top of what those measured, which stands for the best there is. They are timed interleaved
(medians of blocks of graph replays); prints each one's time over that of the best, and what the compilations took in all.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import gpu  # noqa: E402


def compile_module(o, model, out, seconds, database):
    """Seconds of the whole command."""
    command = [str(o.build / "kiln"), "compile", str(model), f"--target={o.target}", f"--dtype={o.dtype}", "-o", str(out)]
    command += ["--tune-seconds", str(seconds), "--tuned", str(database)] if seconds else []
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"kiln exited with {done.returncode}"])[0])
    return time.monotonic() - begin


def compile_all(o, model, folder):
    """The three modules by name, and what each took to compile."""
    known, more = folder / "tuned.sqlite", folder / "best.sqlite"
    paths = {name: folder / f"{name}.kmod" for name in ("untuned", "tuned", "best")}
    took = {"untuned": compile_module(o, model, paths["untuned"], 0, None),
            "tuned": compile_module(o, model, paths["tuned"], o.seconds, known)}
    shutil.copy(known, more)
    took["best"] = took["tuned"] + compile_module(o, model, paths["best"], o.best_seconds, more)
    return paths, took


def measure(o, model):
    import torch
    stream = torch.cuda.Stream()
    feeds = {name: t.cuda() for name, t in gpu.make_feeds(model).items()}
    with tempfile.TemporaryDirectory() as scratch, torch.cuda.stream(stream):
        paths, took = compile_all(o, model, pathlib.Path(scratch))
        modules = {name: gpu.Kiln(o.build, path, stream.cuda_stream) for name, path in paths.items()}
        for module in modules.values():
            module.bind(feeds)
            for _ in range(3):  # the second is captured
                module.run()
            module.wait()
        ms = gpu.time_all({name: module.run for name, module in modules.items()})
    print(f"{model.stem:24} " + "  ".join(f"{name} {ms[name] / ms['best']:.3f} of the best ({took[name]:.1f} s)" for name in ms),
          flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", nargs="*", default=["bert_b1"])
    p.add_argument("--dtype", default="f16")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--best-seconds", type=float, default=400)
    p.add_argument("--target", default="cuda")
    p.add_argument("--build", type=pathlib.Path, default=gpu.ROOT / "build")
    o = p.parse_args()
    for name in o.models:
        with tempfile.TemporaryDirectory() as scratch:
            measure(o, gpu.find_model(name, scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
