# SPDX-License-Identifier: Apache-2.0
"""Language models of transformers by a family's name, a configuration or a directory; nothing is downloaded."""
from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING:
    import torch

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported

# The families by the names that people use, and the model types of transformers.
FAMILIES = {
    "llama": "llama", "mistral": "mistral", "qwen": "qwen3", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3": "gemma3_text", "phi": "phi", "phi3": "phi3", "gpt2": "gpt2", "gpt-neox": "gpt_neox",
    "bloom": "bloom", "opt": "opt", "mixtral": "mixtral", "bart": "bart", "t5": "t5", "whisper": "whisper",
}  # fmt: skip

# What a size is called in configurations; those that a configuration has are set.
SIZES = {
    "layers": ("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "word_embed_proj_dim"),
    "heads": ("num_attention_heads", "n_head", "encoder_attention_heads", "decoder_attention_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim", "d_kv"),
    "intermediate": ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"),
    "vocabulary": ("vocab_size", "vocab_size_per_layer_input"),
    "positions": ("max_position_embeddings", "n_positions", "max_target_positions"),
    "experts": ("num_local_experts",),
}
TINY = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "intermediate": 96, "vocabulary": 199,
        "positions": 8192, "experts": 4}  # fmt: skip
# What else makes a configuration small, or valid with a small vocabulary.
TINY_MORE = {
    "whisper": {"max_source_positions": 40, "num_mel_bins": 8},
    "phi3": {"original_max_position_embeddings": 8192, "sliding_window": None},
    "gemma2": {"sliding_window": 4096, "query_pre_attn_scalar": 16},
    "gemma3_text": {"sliding_window": 4096, "query_pre_attn_scalar": 16},
}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_eos_token_id")


def set_sizes(config: Any, sizes: dict[str, int]) -> None:
    for size, value in sizes.items():
        for name in SIZES[size]:
            if name in config.attribute_map or not hasattr(config, name):
                continue
            if size == "kv_heads" and getattr(config, name) is None:
                continue
            setattr(config, name, value)
    kinds = getattr(config, "layer_types", None)  # full or sliding attention, of each layer
    if kinds and "layers" in sizes:
        config.layer_types = [kinds[i % len(kinds)] for i in range(sizes["layers"])]


def make_config(model: str, tiny: bool, sizes: dict[str, int]) -> Any:
    """The configuration of a family, of a JSON file, or in a directory, with |sizes| replaced."""
    import transformers

    path = pathlib.Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        values = json.loads(path.read_text())
        if "model_type" not in values:
            raise ValueError(f"{path}: model_type must name a model of transformers, is missing")
        config = transformers.AutoConfig.for_model(**values)
    elif model in FAMILIES or model in transformers.CONFIG_MAPPING:
        config = transformers.AutoConfig.for_model(FAMILIES.get(model, model))
    else:
        raise ValueError(f"{model}: must be a configuration, a directory with one, or one of {', '.join(FAMILIES)}")
    text = config.get_text_config()
    if tiny:
        for name, value in TINY_MORE.get(text.model_type, {}).items():
            setattr(text, name, value)
        sizes = {**TINY, **sizes}
    set_sizes(text, sizes)
    for name in TOKENS if "vocabulary" in sizes else ():
        if isinstance(getattr(text, name, None), int) and getattr(text, name) >= text.vocab_size:
            setattr(text, name, text.vocab_size - 1)
    return text


def is_pair(config: Any) -> bool:
    """Whether the model is an encoder with a decoder."""
    return bool(getattr(config, "is_encoder_decoder", False))


def _class_of(config: Any):
    import transformers

    if config.model_type == "whisper":
        return transformers.AutoModelForSpeechSeq2Seq
    return transformers.AutoModelForSeq2SeqLM if is_pair(config) else transformers.AutoModelForCausalLM


def make_model(config: Any, weights: Optional[str], seed: int, attention: str) -> torch.nn.Module:
    """The model with the weights of a directory, or with random ones."""
    kind = _class_of(config)
    if any(hasattr(config, name) for name in ("num_local_experts", "num_experts", "n_routed_experts")):
        config._experts_implementation = "batched_mm"  # the other ways are loops over the experts that were hit
    try:
        model = _instance(kind, config, weights, seed, attn_implementation=attention)
    except ValueError as error:
        if "attention implementation" not in str(error):
            raise
        model = _instance(kind, config, weights, seed, attn_implementation="eager")
    return model.float().eval()


def _instance(kind: Any, config: Any, weights: Optional[str], seed: int, **more: Any) -> torch.nn.Module:
    import torch

    if weights is not None:
        return kind.from_pretrained(weights, config=config, local_files_only=True, dtype=torch.float32, **more)
    torch.manual_seed(seed)
    model = kind.from_config(config, **more)
    _vary(model)
    return model


def _vary(model: torch.nn.Module) -> None:
    """Random scales and biases: initial ones and zeros would hide a factor or a term that is lost."""
    import torch

    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            with torch.no_grad():
                weight.add_(torch.randn_like(weight) * 0.1)
