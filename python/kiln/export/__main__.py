# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs of language models of transformers, for Kiln: python -m kiln.export MODEL -o DIRECTORY."""
from __future__ import annotations

import argparse
import logging
import shlex
import sys

from . import EXPORTERS, OPSETS, RANGES, configs, export

DESCRIPTION = """Writes the ONNX graphs of a language model of transformers, and prints the commands that compile them. Nothing is
downloaded: the model is a configuration, a directory with config.json and weights, or the name of a family: FAMILIES.
Weights are random where none are given."""


def parse(arguments: list[str]) -> argparse.Namespace:
    text = DESCRIPTION.replace("FAMILIES", ", ".join(configs.FAMILIES))
    parser = argparse.ArgumentParser("python -m kiln.export", description=text)
    parser.add_argument("model", metavar="MODEL", help="a family, a configuration's file, or a directory")
    parser.add_argument("-o", "--output", default=".", metavar="DIR", help="where model.onnx and its weights go (.)")
    parser.add_argument("--tiny", action="store_true", help="two layers, width 64: for trying")
    for size in configs.SIZES:
        parser.add_argument(f"--{size.replace('_', '-')}", type=int, metavar="N", help="replaces the configuration's")
    parser.add_argument("--weights", metavar="DIR", help="a directory with safetensors (MODEL, if it is one)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of random weights (1)")
    parser.add_argument("--exporter", choices=EXPORTERS, default="dynamo", help="PyTorch's, or onnxruntime-genai's (dynamo)")
    parser.add_argument("--opset", type=int, default=18, choices=OPSETS, metavar="N", help="18 to 24 (18)")
    parser.add_argument("--precision", choices=("fp32", "int4"), default="fp32", help="of genai's weights (fp32)")
    parser.add_argument("--no-cache", action="store_true", help="no keys and values as inputs and outputs")
    parser.add_argument("--position-ids", action="store_true", help="positions of the new tokens as an input")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa", help="transformers' implementation")
    for dim, (least, most) in RANGES.items():
        parser.add_argument(f"--most-{dim}", type=int, default=most, metavar="N", help=f"of {dim} in the printed command ({most})")
    return parser.parse_args(arguments)


def main() -> int:
    o = parse(sys.argv[1:])
    logging.disable(logging.WARNING)
    sizes = {size: getattr(o, size) for size in configs.SIZES if getattr(o, size) is not None}
    try:
        made = export(
            o.model, o.output, tiny=o.tiny, sizes=sizes, weights=o.weights, seed=o.seed, exporter=o.exporter, opset=o.opset,
            with_cache=not o.no_cache, attention=o.attention, precision=o.precision,
            with_positions=o.position_ids,
        )  # fmt: skip
    except (ValueError, ImportError, OSError) as error:
        print(f"kiln.export: {error}", file=sys.stderr)
        return 1
    ranges = {dim: (least, getattr(o, f"most_{dim}")) for dim, (least, _) in RANGES.items()}
    for graph in made:
        module = graph.path.with_suffix(".so")
        print(shlex.join(["kiln", "compile", str(graph.path), *graph.dim_options(ranges), "-o", str(module)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
