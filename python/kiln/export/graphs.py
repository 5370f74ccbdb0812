# SPDX-License-Identifier: Apache-2.0
"""The graphs that a language model is exported as: modules whose arguments and results are plain tensors.

A decoder: input_ids [batch, tokens], attention_mask [batch, kv], past.N.key and past.N.value [batch, heads, past, dim] in;
logits [batch, tokens, vocabulary], present.N.key and present.N.value [batch, heads, kv, dim] out, with kv = past + tokens.
With positions there is position_ids [batch, tokens], too; else the model counts from past.
Without a cache kv is tokens, and nothing but logits comes out.

An encoder with a decoder is one graph without a cache, and two with one: "encoder", which computes the keys and values of
cross attention from the source, and "model", which takes these as past.N.encoder.key beside its own past.N.decoder.key.
"""
from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Union

import torch
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from . import configs

Axes = tuple[Union[int, str], ...]
MANY_POSITIONS = 64  # of those that make_inputs draws


@dataclasses.dataclass
class Port:
    name: str
    axes: Axes  # a number, or the name of a dimension
    dtype: torch.dtype = torch.float32
    below: int = 0  # of integers: random ones in [0, below), or ones


@dataclasses.dataclass
class Graph:
    name: str
    module: torch.nn.Module
    inputs: list[Port]
    outputs: list[Port]

    @property
    def dims(self) -> list[str]:
        return list(dict.fromkeys(a for p in self.inputs for a in p.axes if isinstance(a, str)))

    def make_inputs(self, dims: dict[str, int], seed: int = 1) -> dict[str, torch.Tensor]:
        """Random tensors of the shapes at |dims|; kv follows from the others."""
        dims = {**dims, "kv": dims.get("past", 0) + dims.get("tokens", 0)}
        make = torch.Generator().manual_seed(seed)
        given = {}
        for port in self.inputs:
            shape = [dims[a] if isinstance(a, str) else a for a in port.axes]
            if port.below:
                given[port.name] = torch.randint(0, port.below, shape, generator=make, dtype=port.dtype)
            elif port.dtype == torch.int64:
                given[port.name] = torch.ones(shape, dtype=port.dtype)
            else:
                given[port.name] = torch.randn(shape, generator=make, dtype=port.dtype)
        return given


def _filled(pairs: list) -> DynamicCache:
    """A cache that has these keys and values."""
    cache = DynamicCache()
    for i, (key, value) in enumerate(pairs):
        while len(cache.layers) <= i:
            cache.layers.append(cache.layer_class_to_replicate())
        layer = cache.layers[i]
        layer.keys, layer.values, layer.is_initialized = key, value, True
        layer.dtype, layer.device = key.dtype, key.device
    return cache


def _pairs(tensors) -> list:
    return list(zip(tensors[0::2], tensors[1::2]))


def _flat(cache: Any) -> tuple:
    return tuple(t for layer in cache.layers for t in (layer.keys, layer.values))


def _cache_name(model: torch.nn.Module) -> str:
    """Transformers before 5.2 call the argument past_key_values."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class Decoder(torch.nn.Module):
    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model, self.cache = model, _cache_name(model)

    def forward(self, input_ids, attention_mask, *past):
        if not past:
            return self.model(input_ids, attention_mask=attention_mask, use_cache=False).logits
        cache = _filled(_pairs(past))
        more = {self.cache: cache}
        logits = self.model(input_ids, attention_mask=attention_mask, use_cache=True, **more).logits
        return (logits, *_flat(cache))


class DecoderAt(Decoder):
    """A decoder whose caller says the positions of the new tokens, as where rows have caches of different lengths."""

    def forward(self, input_ids, attention_mask, position_ids, *past):
        cache = _filled(_pairs(past))
        more = {self.cache: cache, "position_ids": position_ids}
        logits = self.model(input_ids, attention_mask=attention_mask, use_cache=True, **more).logits
        return (logits, *_flat(cache))


class Whole(torch.nn.Module):
    """Encoder and decoder, without caches."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, source, source_mask, ids):
        more = {} if source_mask is None else {"attention_mask": source_mask}
        return self.model(source, decoder_input_ids=ids, use_cache=False, **more).logits


class WholeAudio(Whole):
    def forward(self, source, ids):  # noqa: D102: no mask
        return super().forward(source, None, ids)


class Encoder(torch.nn.Module):
    """The source's states, and the keys and values that every layer's cross attention makes of them."""

    def __init__(self, model: torch.nn.Module, first: int):
        super().__init__()
        self.model, self.cache, self.first = model, _cache_name(model), first

    def forward(self, source, source_mask=None):
        more = {} if source_mask is None else {"attention_mask": source_mask}
        states = self.model.get_encoder()(source, **more).last_hidden_state
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        one = torch.full((source.shape[0], 1), self.first, dtype=torch.int64)  # the keys do not depend on the token
        self.model(
            decoder_input_ids=one, encoder_outputs=(states,), use_cache=True, **more, **{self.cache: cache}
        )
        return (states, *_flat(cache.cross_attention_cache))


class Step(torch.nn.Module):
    """The decoder of a pair, with caches of its own tokens and of the source."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model, self.cache = model, _cache_name(model)

    def forward(self, ids, source_mask, *past):
        own, cross = _filled(_pairs(past[: len(past) // 2])), _filled(_pairs(past[len(past) // 2 :]))
        cache = EncoderDecoderCache(own, cross)
        cache.is_updated = {i: True for i in range(len(cross.layers))}
        key = past[-1]
        states = key.new_zeros(()).expand(key.shape[0], key.shape[2], self.model.config.d_model)  # nothing reads it
        more = {} if source_mask is None else {"attention_mask": source_mask}
        logits = self.model(
            decoder_input_ids=ids, encoder_outputs=(states,), use_cache=True, **more, **{self.cache: cache}
        ).logits
        return (logits, *_flat(own))


class StepAudio(Step):
    def forward(self, ids, *past):  # noqa: D102: no mask
        return super().forward(ids, None, *past)


def _kept(model: torch.nn.Module, name: str, middle: str, axis: str, shapes: list) -> list[Port]:
    return [
        Port(f"{name}.{i}.{middle}{kind}", ("batch", heads, axis, dim))
        for i, pair in enumerate(shapes)
        for kind, (heads, dim) in zip(("key", "value"), pair)
    ]


def _cache_shapes(model: torch.nn.Module, run) -> list:
    """(heads, dim) of the keys and of the values of each layer, as a run of the model leaves them."""
    with torch.no_grad():
        cache = run()
    return [tuple((t.shape[1], t.shape[3]) for t in (layer.keys, layer.values)) for layer in cache.layers]


def _decoder_graphs(model, config, with_cache, with_positions) -> list[Graph]:
    ids = Port("input_ids", ("batch", "tokens"), torch.int64, config.vocab_size)
    logits = Port("logits", ("batch", "tokens", config.vocab_size))
    if not with_cache:
        mask = Port("attention_mask", ("batch", "tokens"), torch.int64)
        return [Graph("model", Decoder(model), [ids, mask], [logits])]
    cache = DynamicCache()
    one = torch.zeros((1, 1), dtype=torch.int64)

    def run():
        model(one, attention_mask=one + 1, use_cache=True, **{_cache_name(model): cache})
        return cache

    shapes = _cache_shapes(model, run)
    mask = Port("attention_mask", ("batch", "kv"), torch.int64)
    past, present = _kept(model, "past", "", "past", shapes), _kept(model, "present", "", "kv", shapes)
    if not with_positions:
        return [Graph("model", Decoder(model), [ids, mask, *past], [logits, *present])]
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise ValueError(f"{config.model_type}: positions must be an argument of the model, it finds them by the attention mask")
    positions = Port("position_ids", ("batch", "tokens"), torch.int64, MANY_POSITIONS)
    return [Graph("model", DecoderAt(model), [ids, mask, positions, *past], [logits, *present])]


def _pair_graphs(model, config, with_cache) -> list[Graph]:
    audio = config.model_type == "whisper"
    if audio:
        length: Union[int, str] = config.max_source_positions
        source = [Port("input_features", ("batch", config.num_mel_bins, 2 * config.max_source_positions))]
        name = "input_features"
    else:
        length, name = "source", "input_ids"
        source = [Port("input_ids", ("batch", "source"), torch.int64, config.vocab_size),
                  Port("attention_mask", ("batch", "source"), torch.int64)]  # fmt: skip
    ids = Port("decoder_input_ids", ("batch", "tokens"), torch.int64, config.vocab_size)
    logits = Port("logits", ("batch", "tokens", config.vocab_size))
    if not with_cache:
        return [Graph("model", (WholeAudio if audio else Whole)(model), [*source, ids], [logits])]
    one = {p.name: torch.zeros([1 if isinstance(a, str) else a for a in p.axes], dtype=p.dtype) for p in source}
    kept = EncoderDecoderCache(DynamicCache(), DynamicCache())

    def run():
        start = torch.zeros((1, 1), dtype=torch.int64)
        model(one[name], decoder_input_ids=start, use_cache=True, **{_cache_name(model): kept})
        return kept.self_attention_cache

    own = _cache_shapes(model, run)
    cross = _cache_shapes(model, lambda: kept.cross_attention_cache)
    crossed = _kept(model, "past", "encoder.", length, cross)
    encoder = Graph("encoder", Encoder(model, 0), source, [Port("states", ("batch", length, config.d_model)), *crossed])
    mask = [] if audio else [source[1]]
    past, present = _kept(model, "past", "decoder.", "past", own), _kept(model, "present", "decoder.", "kv", own)
    step = Graph(
        "model", (StepAudio if audio else Step)(model), [ids, *mask, *past, *crossed], [logits, *present]
    )
    return [step, encoder]


def graphs_of(model: torch.nn.Module, config: Any, with_cache: bool, with_positions: bool = False) -> list[Graph]:
    if with_positions and (configs.is_pair(config) or not with_cache):
        raise ValueError("positions: must be those of a decoder with a cache")
    if configs.is_pair(config):
        graphs = _pair_graphs(model, config, with_cache)
    else:
        graphs = _decoder_graphs(model, config, with_cache, with_positions)
    for graph in graphs:
        graph.module.eval()  # the exporter by tracing puts back what it found
    return graphs
