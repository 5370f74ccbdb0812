# SPDX-License-Identifier: Apache-2.0
"""Decompositions of fused operators for which PyTorch has none."""
from __future__ import annotations

import torch
import torch.nn.functional as F

aten = torch.ops.aten


def _attend(query, key, value, heads, weight, bias, out_weight, out_bias):
    """Attention of `heads` heads; the three projections are one weight, concatenated."""
    batch, rows, width = query.shape
    projected = []
    for x, w, b in zip((query, key, value), weight.chunk(3), bias.chunk(3)):
        projected.append(F.linear(x, w, b).reshape(batch, x.shape[1], heads, width // heads).transpose(1, 2))
    a = F.scaled_dot_product_attention(*projected)
    return F.linear(a.transpose(1, 2).reshape(batch, rows, width), out_weight, out_bias)


def multi_head_attention(
    query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask=None,
    need_weights=True, average_attn_weights=True, mask_type=None,
):  # fmt: skip
    if mask is not None or need_weights:
        return NotImplemented
    out = _attend(query, key, value, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias)
    return out, query.new_empty([0])


def encoder_layer(
    src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps, norm_weight_1,
    norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2, mask=None, mask_type=None,
):  # fmt: skip
    if mask is not None:
        return NotImplemented

    def first(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attend(x):
        return _attend(x, x, x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias)

    def feed(x):
        h = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(h) if use_gelu else F.relu(h), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))


TABLE = {
    aten._native_multi_head_attention.default: multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
