"""Attention by the book, in the type of its inputs: the truth in float64.

s_ij = scale q_i.k_j + bias_ij,    o_i = sum_j softmax_j(s_ij) v_j
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import build_relative_position
from transformers.models.t5.modeling_t5 import T5Attention

import locus_attn as locus


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    bias: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """q [B, Hq, N, D], k and v [B, Hkv, N, D], bias [H, N, N] -> [B, Hq, N, D]."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = scale * q @ k.transpose(-1, -2)
    if bias is not None:
        s = s + bias
    if causal:
        future = torch.ones(s.shape[-2:], dtype=torch.bool).triu(1)
        s = s.masked_fill(future, float("-inf"))
    return s.softmax(-1) @ v


def offsets(length: int) -> Tensor:
    """i - j: [N, N]."""
    at = torch.arange(length)
    return at[:, None] - at[None, :]


def t5_buckets(offset: Tensor, *, bidirectional: bool = True) -> Tensor:
    """T5's bucket of i - j, as transformers computes it."""
    return T5Attention._relative_position_bucket(-offset, bidirectional=bidirectional)


def t5_bias(table: Tensor, length: int) -> Tensor:
    """table [32, H] -> [H, N, N]."""
    return table[t5_buckets(offsets(length))].permute(2, 0, 1)


def alibi_bias(heads: int, length: int) -> Tensor:
    """-slope_h |i - j|: [H, N, N], float64."""
    slopes = torch.tensor(locus.Alibi.slopes(heads), dtype=torch.float64)
    return -slopes[:, None, None] * offsets(length).abs()


def by_offset(scores: Tensor, rows: Tensor) -> Tensor:
    """scores [B, H, N, R], rows [N, N] -> scores[b, h, i, rows[i, j]]."""
    return scores.gather(-1, rows.expand(*scores.shape[:2], -1, -1))


def deberta_bias(
    q: Tensor, k: Tensor, table: tuple[Tensor, Tensor], buckets: tuple[int, int]
) -> Tensor:
    """q_i.c2p[b] + k_j.p2c[b], b = bucket(i - j) + span; tables [H, 2 span, D].

    buckets: position_buckets and max_relative_positions.
    """
    c2p, p2c = table
    span, reach = buckets
    rows = build_relative_position(q, k, span, reach)[0] + span
    rows = rows.clamp(0, 2 * span - 1)
    to_position = by_offset(q @ c2p.transpose(-1, -2), rows)
    to_content = by_offset(k @ p2c.transpose(-1, -2), rows.T)
    return to_position + to_content.transpose(-1, -2)


def xl_bias(q: Tensor, k: Tensor, r: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u.k_j + (q_i + v).r[i - j + N - 1]; r [H, 2N - 1, D], u and v [H, D]."""
    length = q.shape[2]
    content = u[:, None] @ k.transpose(-1, -2)
    position = (q + v[:, None]) @ r.transpose(-1, -2)
    return content + by_offset(position, offsets(length) + length - 1)


def rotate_halves(x: Tensor, base: float = 10000.0) -> Tensor:
    """RoPE on x [B, H, N, D], pairs (c, c + D / 2), in float64."""
    half = x.shape[-1] // 2
    rates = base ** -(torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * rates
    a, b = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
