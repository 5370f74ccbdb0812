#!/usr/bin/env python3
"""torch.compile(backend="kiln") on random models of torchvision, timm and transformers, beside eager PyTorch and Inductor.

usage: bench/torch_random.py [--sample 60] [--seed 1] [--device cpu|cuda] [--batch 1] [--threads 2] [--peers eager,inductor]
                             [--most-params 60] [--sources torchvision,timm,transformers] [--only NAME] [--seconds 300]

Weights are random, nothing is downloaded. Each model runs in a process of its own; a line each, the summary last:

  right    yes; no: the error of Kiln's results is more than 10 times eager PyTorch's and more than 1e-4 of the results; both
           against PyTorch in double precision
  breaks   graphs of Dynamo's beyond the first
  left     share of the operators that stayed with PyTorch
  first    seconds from the first call to its result, of Kiln and of Inductor, without caches
  ms       median times of a call: eager, Inductor, Kiln; of the module in it, called from Python; and of `kiln bench` of the
           module, where one is all there is
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from zoo import tensors, vary  # noqa: E402

TEXT = [
    "albert", "bert", "bloom", "camembert", "codegen", "convbert", "distilbert", "electra", "ernie", "gemma", "gpt2", "gpt_neo",
    "gpt_neox", "gptj", "granite", "llama", "mistral", "mpnet", "olmo", "opt", "phi", "phi3", "qwen2", "qwen3", "roberta",
    "roformer", "smollm3", "stablelm", "starcoder2", "xglm", "xlm-roberta",
]  # fmt: skip
IMAGE = [
    "beit", "bit", "convnext", "convnextv2", "cvt", "data2vec-vision", "deit", "dinov2", "efficientnet", "focalnet", "ijepa",
    "levit", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "poolformer", "pvt", "pvt_v2", "regnet", "resnet",
    "segformer", "swiftformer", "swin", "swinv2", "van", "vit", "vit_msn",
]  # fmt: skip


def names(sources):
    out = []
    if "torchvision" in sources:
        import torchvision

        skip = ("raft", "s3d", "r3d", "mc3", "r2plus1d", "mvit", "swin3d", "rcnn", "retinanet", "ssd", "fcos", "quantized")
        every = torchvision.models.list_models()
        out.append([f"torchvision/{n}" for n in every if not any(s in n for s in skip)])
    if "timm" in sources:
        import timm

        out.append([f"timm/{n}" for n in timm.list_models()])
    if "transformers" in sources:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        out.append([f"transformers/{n}" for n in TEXT + IMAGE if n in CONFIG_MAPPING])
    return out


def small_config(config):
    """As many layers as show what a model has, and widths as they are where these are not too wide."""
    for name in ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers"):
        if isinstance(getattr(config, name, None), int):
            setattr(config, name, min(getattr(config, name), 4))
    if (getattr(config, "hidden_size", 0) or 0) > 1024 and isinstance(config.hidden_size, int):
        heads = config.num_attention_heads
        config.hidden_size = 64 * 8
        config.num_attention_heads = 8
        if hasattr(config, "num_key_value_heads"):
            config.num_key_value_heads = max(1, 8 * (config.num_key_value_heads or heads) // heads)
        if getattr(config, "head_dim", None):
            config.head_dim = 64
        if hasattr(config, "intermediate_size"):
            config.intermediate_size = 1408
    if (getattr(config, "vocab_size", 0) or 0) > 32000:
        config.vocab_size = 32000
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if isinstance(getattr(config, name, None), int) and getattr(config, name) >= getattr(config, "vocab_size", 1 << 30):
            setattr(config, name, 0)
    if getattr(config, "layer_types", None) and hasattr(config, "num_hidden_layers"):
        config.layer_types = config.layer_types[: config.num_hidden_layers]
    return config


def build(name, batch, torch):
    source, _, which = name.partition("/")
    if source == "torchvision":
        import torchvision

        extra = {"weights_backbone": None} if "lraspp" in which or "deeplab" in which or "fcn" in which else {}
        model = torchvision.models.get_model(which, weights=None, **extra)
        size = 299 if "inception_v3" in which else 224
        return model, [torch.randn(batch, 3, size, size)]
    if source == "timm":
        import timm

        model = timm.create_model(which, pretrained=False)
        return model, [torch.randn(batch, *model.default_cfg["input_size"])]
    import transformers

    config = small_config(transformers.AutoConfig.for_model(which))
    config.use_cache = False
    model = transformers.AutoModel.from_config(config)
    if which in IMAGE:
        size = getattr(config, "image_size", 224)
        size = size if isinstance(size, int) else size[0] if size else 224
        return model, [torch.randn(batch, getattr(config, "num_channels", 3) or 3, size, size)]
    return model, [torch.randint(0, min(config.vocab_size, 1000), (batch, 128))]


def error(got, want, torch):
    total = off = 0.0
    for g, w in zip(got, want):
        total += float((w.double() ** 2).sum())
        off += float(((g.double() - w.double()) ** 2).sum())
    return (off / total) ** 0.5 if total else off**0.5


def clock(f, torch, seconds=1.5):
    def sync():
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    for _ in range(3):
        f()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 300):
        sync()
        start = time.perf_counter()
        f()
        sync()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def bench(module, threads):
    kiln = os.environ.get("KILN", str(ROOT / "build/kiln"))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.so")
        module.save(path)
        told = os.path.join(folder, "m.json")
        subprocess.run([kiln, "bench", path, "--json", told, "--threads", str(threads)], capture_output=True)
        try:
            return json.loads(pathlib.Path(told).read_text())["median_ms"]
        except (OSError, ValueError, KeyError):
            return None


def run_one(args):
    import warnings

    warnings.simplefilter("ignore")
    sys.path.insert(0, str(ROOT / "python"))
    import torch
    import torch._dynamo

    import kiln.torch

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    told = {"name": args.only}
    model, inputs = build(args.only, args.batch, torch)
    told["params"] = sum(p.numel() for p in model.parameters())
    if told["params"] > args.most_params * 1e6:
        return print(json.dumps({"skip": f"{told['params'] / 1e6:.0f} M parameters"}))
    model = model.eval()
    with torch.no_grad():
        vary(model, torch)
        model, inputs = model.to(args.device), [x.to(args.device) for x in inputs]
        want = tensors(model(*inputs), torch)
        exact = want
        try:
            exact = tensors(model.double()(*[x.double() if x.is_floating_point() else x for x in inputs]), torch)
        except Exception:
            told["exact"] = False
        model = model.float()
        compiled = torch.compile(model, backend=kiln.torch.backend, options={"threads": args.threads, "cache": False})
        start = time.perf_counter()
        got = tensors(compiled(*inputs), torch)
        if args.device == "cuda":
            torch.cuda.synchronize()
        told["first"] = time.perf_counter() - start
        reports = kiln.torch.report()
        told.update(
            graphs=len(reports), nodes=sum(r.nodes for r in reports), left=sum(r.fallback for r in reports),
            partitions=sum(r.partitions for r in reports), kiln_seconds=sum(r.seconds for r in reports),
            trace_seconds=sum(r.trace_seconds for r in reports),
            why=sorted({f"{o}: {w[:60]}" for r in reports for o, w in r.refused.values()})
            + [r.eager for r in reports if r.eager],
        )  # fmt: skip
        told["error"], told["eager_error"] = error(got, exact, torch), error(want, exact, torch)
        told["right"] = told["error"] <= max(10 * told["eager_error"], 1e-4) and len(got) == len(want)
        if args.check:
            return print(json.dumps(told))
        told["ms"] = clock(lambda: compiled(*inputs), torch)
        modules = [m for m in kiln.torch.modules()]
        if len(modules) == 1 and args.device == "cpu":
            told["bench_ms"] = bench(modules[0], args.threads)
            floats = [x for x in inputs if tuple(x.shape) == modules[0].inputs[0].shape]
            if len(modules[0].inputs) == 1 and floats:  # what is left of the call is Dynamo's guards and AOTAutograd
                told["module_ms"] = clock(lambda: modules[0].run(floats[0]), torch)
        if "eager" in args.peers:
            told["eager_ms"] = clock(lambda: model(*inputs), torch)
        if "inductor" in args.peers:
            torch._dynamo.reset()
            os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
            other = torch.compile(model)
            try:
                start = time.perf_counter()
                other(*inputs)
                if args.device == "cuda":
                    torch.cuda.synchronize()
                told["inductor_first"] = time.perf_counter() - start
                told["inductor_ms"] = clock(lambda: other(*inputs), torch)
            except Exception as e:
                told["inductor_error"] = type(e).__name__
    print(json.dumps(told))


def show(t):
    def number(key, form):
        return format(t[key], form) if t.get(key) is not None else "-"

    return (
        f"{t['name'][:44]:<44} {'yes' if t['right'] else 'NO'} {t['error']:.0e} {t['graphs'] - 1:>2} "
        f"{100 * t['left'] / max(t['nodes'], 1):4.1f}% of {t['nodes']:<4} "
        f"{t['first']:5.1f} {number('inductor_first', '5.1f')}  {number('eager_ms', '.1f')} {number('inductor_ms', '.1f')} "
        f"{number('ms', '.2f')} {number('module_ms', '.2f')} {number('bench_ms', '.2f')}"
        + (f"  {t['why'][0][:60]}" if t["why"] else "")
    )


def mean(values):
    return statistics.geometric_mean(values) if values else float("nan")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most-params", type=float, default=60, help="millions")
    parser.add_argument("--sources", default="torchvision,timm,transformers")
    parser.add_argument("--peers", default="eager,inductor")
    parser.add_argument("--seconds", type=int, default=300, help="a model may take")
    parser.add_argument("--only")
    parser.add_argument("--check", action="store_true", help="nothing is timed but the first result")
    parser.add_argument("--json", help="a file for all that was found, a line a model")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return run_one(args)
    lists = [[args.only]] if args.only else names(args.sources.split(","))
    drawn, rng = [], random.Random(args.seed)
    for one in lists:
        rng.shuffle(one)
    found, wrong, at = [], [], 0
    wanted = 1 if args.only else args.sample
    print(
        "model, right, error, breaks, left, first: Kiln, Inductor; ms: eager, Inductor, Kiln, its module, kiln bench",
        flush=True,
    )
    while len(found) + len(wrong) < wanted and any(lists):
        one = lists[at % len(lists)]
        at += 1
        if not one:
            continue
        name = one.pop()
        drawn.append(name)
        command = [sys.executable, __file__, "--one", "--only", name] + ["--check"] * args.check
        for key in ("device", "batch", "threads", "most_params", "peers"):
            command += ["--" + key.replace("_", "-"), str(getattr(args, key))]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=args.seconds)
            told = json.loads(said.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            last = (said.stderr.strip().splitlines() or ["?"])[-1]
            wrong.append(name)
            print(f"{name[:44]:<44} NO result: {last[:110]}", flush=True)
            continue
        except subprocess.TimeoutExpired:
            wrong.append(name)
            print(f"{name[:44]:<44} NO result in {args.seconds} s", flush=True)
            continue
        if "skip" in told:
            continue
        found.append(told)
        if args.json:
            with open(args.json, "a") as f:
                f.write(json.dumps(told) + "\n")
        print(show(told), flush=True)
    good = [t for t in found if t["right"] and t["left"] <= 0.05 * t["nodes"]]
    ratios = [t["first"] / t["inductor_first"] for t in found if t.get("inductor_first")]
    over = [t["ms"] / t["bench_ms"] for t in found if t.get("bench_ms")]
    module = [t["module_ms"] / t["bench_ms"] for t in found if t.get("module_ms")]
    eager = [t["eager_ms"] / t["ms"] for t in found if t.get("eager_ms")]
    inductor = [t["inductor_ms"] / t["ms"] for t in found if t.get("inductor_ms")]
    print(
        f"{len(found) + len(wrong)} models: {sum(t['right'] for t in found)} right, "
        f"{len(good)} of these with at most 5 % left, "
        f"{sum(t['graphs'] > 1 for t in found)} with breaks; first result in {mean(ratios):.2f} of Inductor's time "
        f"({sum(r < 1 / 3 for r in ratios)} of {len(ratios)} below a third); {mean(over):.3f} of kiln bench's time "
        f"({sum(r < 1.03 for r in over)} of {len(over)} within 3 %), its module {mean(module):.3f} "
        f"({sum(r < 1.03 for r in module)} of {len(module)}); {mean(eager):.2f} times eager's speed, "
        f"{mean(inductor):.2f} times Inductor's"
    )


if __name__ == "__main__":
    main()
