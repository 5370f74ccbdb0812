#!/usr/bin/env python3
"""Models that nobody tuned for: exports timm's and torchvision's with random weights, and times Kiln beside ONNX Runtime and OpenVINO.

usage: bench/unseen.py [--batch N] [--sample K] [--seed S] [--dir DIR] [--python PYTHON] [--export-only]
                       [options of bench/compare.py] [NAME...]

NAME is one of the list below, or timm:MODEL, or torchvision:MODEL; without any, the list, or with --sample K of them and
as many models of timm's whole catalogue, drawn with --seed. Exports (TorchScript, opset 17) are made with PYTHON, of an environment with
bench/requirements-unseen.txt (a virtual environment of its own, .venv-torch, is made where there is none), and are kept in DIR
(build/unseen). Times and the table are bench/compare.py's.
"""
import argparse
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = """torchvision:densenet121 torchvision:inception_v3 torchvision:shufflenet_v2_x1_0 torchvision:convnext_tiny timm:edgenext_small
torchvision:efficientnet_b0 timm:mixer_b16_224 torchvision:regnet_y_400mf timm:deit_tiny_patch16_224 timm:eva02_tiny_patch14_224
timm:maxvit_tiny_tf_224 timm:levit_128s timm:poolformer_s12 timm:fastvit_t8 timm:repvgg_a0 timm:dla34 timm:hrnet_w18_small
torchvision:deeplabv3_mobilenet_v3_large torchvision:lraspp_mobilenet_v3_large torchvision:fcn_resnet50 timm:botnet26t_256
timm:coatnet_nano_rw_224 timm:ghostnet_100 torchvision:googlenet torchvision:mobilenet_v3_large timm:res2net50_26w_4s timm:resnest14d
torchvision:swin_v2_t timm:mvitv2_tiny timm:hiera_tiny_224 timm:xcit_nano_12_p16_224 timm:pvt_v2_b0 timm:convit_tiny
timm:lambda_resnet26t timm:nfnet_l0 timm:sequencer2d_s""".split()
MOST_PARAMETERS = 60e6  # of models that are drawn

# Run in the environment that has PyTorch: what follows needs nothing of this file.
EXPORT = r'''
import pathlib, random, sys, warnings
import torch
warnings.filterwarnings("ignore")

class FirstResult(torch.nn.Module):
    """A model whose results are named or several, down to the first."""
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        y = self.inner(x)
        while not isinstance(y, torch.Tensor):
            y = next(iter(y.values())) if isinstance(y, dict) else y[0]
        return y

def make(name):
    library, model = name.split(":")
    if library == "timm":
        import timm
        made = timm.create_model(model, pretrained=False, exportable=True)
        size = made.default_cfg.get("input_size", (3, 224, 224))
        return made, size
    import torchvision
    kinds = {"weights": None} | ({"weights_backbone": None} if model in torchvision.models.list_models(torchvision.models.segmentation)
                                 else {}) | ({"aux_logits": False} if model == "googlenet" else {})
    made = torchvision.models.get_model(model, **kinds)
    return made, (3, 299, 299) if model == "inception_v3" else (3, 224, 224)

def settle(model):
    """Statistics of normalizations as after some training: random, and no variance near 0."""
    for m in model.modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.running_var is not None:
            m.running_mean.normal_(0, 0.1)
            m.running_var.uniform_(0.5, 1.5)

def export(name, batch, path):
    torch.manual_seed(0)
    model, size = make(name)
    settle(model)
    model = FirstResult(model.eval())
    with torch.no_grad():
        torch.onnx.export(model, torch.randn(batch, *size), str(path), opset_version=17, dynamo=False, input_names=["x"],
                          output_names=["y"])

def draw(n, seed, most):
    """Names of models of timm that are small enough, none of the given list."""
    import timm
    names, drawn = timm.list_models(), []
    r = random.Random(seed)
    while len(drawn) < n:
        name = r.choice(names)
        try:
            with torch.device("meta"):
                size = sum(p.numel() for p in timm.create_model(name, pretrained=False).parameters())
        except Exception:
            continue
        if size <= most and f"timm:{name}" not in drawn:
            drawn.append(f"timm:{name}")
    return drawn

if sys.argv[1] == "draw":
    print(" ".join(draw(int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))
else:
    export(sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4]))
'''


def environment(python):
    """The interpreter that has PyTorch; makes .venv-torch where none is given."""
    if python:
        return python
    python = ROOT / ".venv-torch" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", ROOT / "bench" / "requirements-unseen.txt"], check=True)
    return python


def torch_run(python, *arguments):
    done = subprocess.run([python, "-c", EXPORT, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exited {done.returncode}"])[-1])
    return done.stdout


def chosen(args, python):
    if args.names:
        known = {name.split(":")[1]: name for name in LIST}
        return [known.get(name, name) for name in args.names]
    if not args.sample:
        return LIST
    listed = random.Random(args.seed).sample(LIST, min(args.sample, len(LIST)))
    return listed + torch_run(python, "draw", args.sample, args.seed, MOST_PARAMETERS).split()


def exported(python, name, batch, folder):
    """The file of a model, made if it is not there; None where it can't be exported."""
    path = folder / f"{name.split(':')[1]}_b{batch}.onnx"
    if not path.exists():
        try:
            torch_run(python, "export", name, batch, path)
        except RuntimeError as problem:
            print(f"{name}: not exported: {problem}"[:160], flush=True)
            return None
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dir", type=pathlib.Path, default=ROOT / "build" / "unseen")
    parser.add_argument("--python", help="an interpreter with PyTorch")
    parser.add_argument("--export-only", action="store_true")
    args, others = parser.parse_known_args()
    args.names = [a for a in others if not a.startswith("-") and (":" in a or any(n.endswith(":" + a) for n in LIST))]
    options = [a for a in others if a not in args.names]
    python = environment(args.python)
    args.dir.mkdir(parents=True, exist_ok=True)
    paths = [exported(python, name, args.batch, args.dir) for name in chosen(args, python)]
    paths = [str(p) for p in paths if p]
    if args.export_only:
        return 0 if paths else 1
    compare = [sys.executable, ROOT / "bench" / "compare.py", *options, *paths]
    return subprocess.run(compare, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
