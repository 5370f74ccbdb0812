#!/usr/bin/env python3
"""Kernels and times of the sub-graphs that Korch (ASPLOS'24, section 6) shows, before and after kernels are chosen.

usage: bench/subgraphs.py [--build DIR] [--threads N] [--rounds N]

EfficientViT's linear attention, Segformer's attention and Candy's normalization + ReLU + padding are cut out of the models and
compiled four ways: a kernel for each node that computes (--no-connect, --without=inline), with the rules' kernels (--no-connect),
with connecting's, and with those that --orchestrate chooses. The modules run in turns, ONNX Runtime among them, on random inputs. Prints for
each way how many kernels it launches, and the median over the rounds of the first way's time by its: above 1 is faster.
"""
import argparse
import pathlib
import statistics
import subprocess
import tempfile
import time

from compare import ROOT, enter_venv  # noqa: F401  in its environment from here on

import numpy as np
import onnx.helper
import onnx.utils
import onnxruntime as ort
from orchestrate import Module

CONTEXT = "/stages/stages.2/blocks/blocks.1/context_module/main/"
ATTENTION = "/m/segformer/stages.0/blocks.0/attention/"
# name, model, first tensor, last tensor, what the paper reports (an NVIDIA V100 or A100, against TensorRT)
SUBGRAPHS = (
    ("EfficientViT attention", "efficientvit_b1_2048", CONTEXT + "Concat_output_0", CONTEXT + "proj/conv/Conv_output_0", "12 to 7, 3.29x"),
    ("Segformer attention", "segformer_b0_b1", "/m/segformer/stages.0/blocks.0/layernorm_before/LayerNormalization_output_0",
     ATTENTION + "o_proj/Add_output_0", "1.50x"),
    ("Candy norm + ReLU + pad", "candy_b1", "/d.1/c/Conv_output_0", "/d.2/pad/Pad_output_0", "1.32x"),
)
WAYS = (("nodes", ["--no-connect", "--without", "inline,fold-views"]), ("rules", ["--no-connect"]), ("connected", []), ("chosen", ["--orchestrate"]))


def random_inputs(session):
    return {i.name: np.random.default_rng(0).uniform(-1, 1, i.shape).astype(np.float32) for i in session.get_inputs()}


def cut(model, first, last, path):
    """Writes the nodes between the tensors, whose shapes a run of the whole model tells, with weights as a model of its own."""
    whole = onnx.load(ROOT / "build" / "models" / f"{model}.onnx")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in (first, last)]
    whole.graph.output.extend(ends)
    session = ort.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    values = session.run([first, last], random_inputs(session))
    for info, value in zip(ends, values):
        whole.graph.output.pop()
        whole.graph.value_info.append(onnx.helper.make_tensor_value_info(info.name, onnx.TensorProto.FLOAT, value.shape))
    onnx.save(onnx.utils.Extractor(whole).extract_model([first], [last]), path)


def run_in_turns(runs, rounds):
    """The median of the first run's time by each one's."""
    for run in runs:
        run()
    ratios = [[] for _ in runs]
    for n in range(rounds):
        times = [0.0] * len(runs)
        for i in range(len(runs)):
            k = (i + n) % len(runs)
            start = time.perf_counter()
            for _ in range(3):
                runs[k]()
            times[k] = time.perf_counter() - start
        for i, seconds in enumerate(times):
            ratios[i].append(times[0] / seconds)
    return [statistics.median(r) for r in ratios]


def row_of(args, name, model, first, last, paper, folder):
    path = folder / "part.onnx"
    cut(model, first, last, path)
    modules = []
    for way, extra in WAYS:
        module = folder / f"{way}.so"
        subprocess.run([args.build / "kiln", "compile", path, "-o", module, "--threads", str(args.threads), *extra],
                       check=True, stdout=subprocess.DEVNULL)
        modules.append(Module(args.build, module, args.threads))
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = random_inputs(session)
    runs = [module.run for module in modules] + [lambda: session.run(None, given)]
    ratios = run_in_turns(runs, args.rounds)
    cells = [f"{m.launches}, {r:.2f}x" for m, r in zip(modules, ratios)] + [f"{ratios[-1]:.2f}x", paper]
    for module in modules:
        module.close()
    return f"| {name} | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    args = parser.parse_args()
    print("| sub-graph | " + " | ".join(way for way, _ in WAYS) + " | ONNX Runtime | Korch |\n|---" + "|---" * (len(WAYS) + 2) + "|")
    for subgraph in SUBGRAPHS:
        with tempfile.TemporaryDirectory() as folder:
            print(row_of(args, *subgraph, pathlib.Path(folder)), flush=True)


if __name__ == "__main__":
    main()
