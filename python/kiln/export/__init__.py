# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs of language models of transformers, as a user's exporter makes them: python -m kiln.export --help.

Exporting needs torch, transformers, onnx and onnxscript; with exporter "genai" onnxruntime-genai instead of onnxscript, and
with "torchscript" neither.
"""
from __future__ import annotations

import dataclasses
import importlib
import os
import pathlib
from typing import TYPE_CHECKING, Any, Optional, Union

if TYPE_CHECKING:
    from . import graphs

EXPORTERS = ("dynamo", "torchscript", "genai")
OPSETS = range(18, 25)
RANGES = {"batch": (1, 8), "source": (1, 512), "tokens": (1, 512), "past": (0, 4096)}
SUMS = {"kv": "past+tokens"}
EXAMPLE = {"batch": 2, "source": 6, "tokens": 3, "past": 5}  # tracing takes 0 and 1 for constants


# What the exporters import, and its names for pip.
PACKAGES = {"torch": "torch", "transformers": "transformers", "onnx": "onnx"}
MORE_PACKAGES = {
    "dynamo": {"onnxscript": "onnxscript"},
    "torchscript": {},
    "genai": {"tokenizers": "tokenizers", "onnxruntime_genai": "onnxruntime-genai"},
}


@dataclasses.dataclass
class Exported:
    """A graph that was written, and what it is to compute."""

    path: pathlib.Path
    graph: graphs.Graph

    def dim_options(self, ranges: dict[str, tuple[int, int]]) -> list[str]:
        """Options of `kiln compile`, as ["--dim", "batch=1..8", ...]."""
        out = []
        for dim in self.graph.dims:
            if dim in SUMS:
                out += ["--dim", f"{dim}={SUMS[dim]}"]
            else:
                least, most = ranges.get(dim, RANGES[dim])
                out += ["--dim", f"{dim}={least}..{most}" if least != most else f"{dim}={most}"]
        return out


def _want_packages(exporter: str) -> None:
    missing = []
    for module, package in {**PACKAGES, **MORE_PACKAGES[exporter]}.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            missing.append((package, error))
    if missing:
        names = [package for package, _ in missing]
        raise ImportError(
            f"exporter {exporter}: {', '.join(names)} must be importable ({missing[0][1]}): pip install {' '.join(names)}"
        ) from missing[0][1]


def export(
    model: str,
    directory: Union[str, "os.PathLike[str]"],
    *,
    tiny: bool = False,
    sizes: Optional[dict[str, int]] = None,
    weights: Optional[str] = None,
    seed: int = 1,
    exporter: str = "dynamo",
    opset: int = 18,
    with_cache: bool = True,
    attention: str = "sdpa",
    precision: str = "fp32",
    with_positions: bool = False,
) -> list[Exported]:
    """Writes the graphs of |model| into |directory|; the decoder is the first."""
    if exporter not in EXPORTERS:
        raise ValueError(f"exporter: must be one of {', '.join(EXPORTERS)}, got {exporter}")
    if opset not in OPSETS:
        raise ValueError(f"opset: must be {OPSETS[0]} to {OPSETS[-1]}, got {opset}")
    from . import configs  # says first that nothing is to be downloaded

    _want_packages(exporter)
    config = configs.make_config(model, tiny, sizes or {})
    if weights is None and pathlib.Path(model).is_dir() and any(pathlib.Path(model).glob("*.safetensors")):
        weights = model
    module = configs.make_model(config, weights, seed, attention)
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    if exporter == "genai":
        if with_positions or not with_cache:
            raise ValueError("exporter genai: must be without positions and with a cache")
        from . import genai

        path, graph = genai.build(module, config, folder, precision)
        return [Exported(path, graph)]
    from . import exporters, graphs

    config.to_json_file(folder / "config.json")
    return [exporters.write_graph(g, folder / f"{g.name}.onnx", exporter, opset) for g in graphs.graphs_of(module, config, with_cache, with_positions)]


def __getattr__(name: str) -> Any:
    if name == "with_sampling":
        return importlib.import_module(".sampling", __name__).with_sampling
    if name == "paged":
        return importlib.import_module(".paging", __name__).paged
    if name == "save":
        return importlib.import_module(".rewriting", __name__).save
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
