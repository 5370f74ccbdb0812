# SPDX-License-Identifier: Apache-2.0
"""Graphs by the model builder of onnxruntime-genai: GroupQueryAttention, RotaryEmbedding, MatMulNBits, normalizations with a sum."""
from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import onnx
import torch
import transformers

from . import graphs

DIMS = {
    "batch_size": "batch", "sequence_length": "tokens", "past_sequence_length": "past", "total_sequence_length": "kv",
}  # fmt: skip


def _save_tokenizer(vocabulary: int, folder: pathlib.Path) -> None:
    """The builder wants one; its tokens are numbers."""
    from tokenizers import Tokenizer, models

    words = {f"t{i}": i for i in range(vocabulary)}
    fast = Tokenizer(models.WordLevel(words, unk_token="t0"))
    last = f"t{vocabulary - 1}"
    transformers.PreTrainedTokenizerFast(tokenizer_object=fast, unk_token="t0", eos_token=last, bos_token=last).save_pretrained(folder)


def _ports(values: Any, vocabulary: int, head_dim: int) -> list[graphs.Port]:
    """The inputs or outputs of the graph, with Kiln's names of dimensions, which are written into it too."""
    out = []
    for value in values:
        kind = value.type.tensor_type
        for dim in kind.shape.dim:
            if dim.dim_param == "kv_cache_dim":
                dim.dim_value = head_dim
            elif dim.dim_param in DIMS:
                dim.dim_param = DIMS[dim.dim_param]
            elif dim.dim_param:
                raise ValueError(f"{value.name}: axes must be {', '.join(DIMS)}, got {dim.dim_param}")
        axes = tuple(d.dim_param or d.dim_value for d in kind.shape.dim)
        is_number = kind.elem_type == onnx.TensorProto.INT64
        dtype = torch.int64 if is_number else torch.float32
        out.append(graphs.Port(value.name, axes, dtype, vocabulary if value.name == "input_ids" else 0))
    return out


def _sort(values: Any) -> None:
    """Puts a layer's value behind its key; the builder has all keys first."""

    def place(value: Any) -> tuple:
        layer, kind = value.name.split(".")[1:] if value.name.count(".") == 2 else (-1, "")
        return int(layer), kind

    ordered = sorted(values, key=place)
    del values[:]
    values.extend(ordered)


def build(module: torch.nn.Module, config: Any, folder: pathlib.Path, precision: str) -> tuple[pathlib.Path, graphs.Graph]:
    """Runs the builder on the model; gives model.onnx and what it is to compute (with int4, nearly)."""
    with tempfile.TemporaryDirectory() as source:
        module.save_pretrained(source)
        _save_tokenizer(config.vocab_size, pathlib.Path(source))
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", source, "-o", str(folder), "-p", precision,
                   "-e", "cpu", "-c", source]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ValueError(f"onnxruntime-genai's builder: {words}")
    path = folder / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    _sort(model.graph.input)
    _sort(model.graph.output)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    inputs, outputs = (_ports(v, config.vocab_size, head_dim) for v in (model.graph.input, model.graph.output))
    path.write_bytes(model.SerializeToString())
    return path, graphs.Graph("model", graphs.Decoder(module).eval(), inputs, outputs)
