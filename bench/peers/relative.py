"""A function of the offset by RelativeBias: b = -(i - j)^2 / (2 sigma_h^2), and T5's.

Beside Locus' own T5Bias the function looks T5's buckets up in the same table, so
that both give the same numbers: what the function itself costs, and a table by
offset instead of one by bucket. FlexAttention has the Gaussian as its score_mod, and
PyTorch's own attention has it made for every pair, anew in each step of training,
since sigma learns.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

import locus_attn.torch as lt

from . import flex, formulas
from .case import (
    FORWARD,
    TRAINING,
    Contest,
    Row,
    Side,
    attention_flops,
    gradients,
    inference,
    leaf,
    normal,
)
from .plain import SDPA

HEADS, DIM, BUCKETS = 16, 64, 32
OWN = "Locus' own T5Bias"


def _qkv(length: int) -> list[Tensor]:
    return [normal(seed, 1, HEADS, length, DIM) for seed in range(3)]


def _sigma(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(4.0, 64.0, HEADS, dtype=dtype)


def _gaussian(sigma: Tensor, offsets: Tensor) -> Tensor:
    """-(i - j)^2 / (2 sigma_h^2): [H, *offsets.shape]"""
    width = sigma.reshape(-1, *[1] * offsets.dim())
    return -(offsets**2) / (2 * width**2)


def _flops(length: int, direction: str) -> float:
    return attention_flops(HEADS, length, DIM, causal=False, direction=direction)


def _beside_t5(length: int) -> Contest:
    q, k, v = map(leaf, _qkv(length))
    table = leaf(normal(4, BUCKETS, HEADS))
    d_out = normal(5, *q.shape)
    kind = lt.describe("T5Bias", "table", max_distance=128, bidirectional=True)
    t5 = lt.Encoding(kind, [table])
    own = lt.RelativeBias(
        lambda offsets: F.embedding(formulas.t5_buckets(offsets), table).T, HEADS
    )
    leaves = (q, k, v, table)

    def truth() -> tuple[Tensor, ...]:
        wide = [leaf(x, torch.float64) for x in leaves]
        bias = formulas.t5_bias(wide[3], length)
        return gradients(
            lambda: formulas.attend(*wide[:3], scale=DIM**-0.5, bias=bias),
            wide,
            d_out.double(),
        )()

    return Contest(
        peer=Side(
            gradients(lambda: lt.attention(q, k, v, t5), leaves, d_out),
            "locus.torch.attention with T5Bias, gradient of the table",
        ),
        locus=Side(
            gradients(lambda: lt.attention(q, k, v, own), leaves, d_out),
            "locus.torch.attention with RelativeBias of T5's buckets",
        ),
        truth=truth,
        work=_flops(length, TRAINING),
        shapes={"q, k, v": [*q.shape], "table": [*table.shape]},
    )


def _beside_flex(length: int) -> Contest:
    q, k, v = _qkv(length)
    sigma = _sigma()
    own = lt.RelativeBias(lambda offsets: _gaussian(sigma, offsets), HEADS)
    compiled = torch.compile(flex_attention, dynamic=False)

    def score(s, b, h, i, j):
        return s - (i - j) ** 2 / (2 * sigma[h] ** 2)

    def truth() -> list[Tensor]:
        bias = _gaussian(_sigma(torch.float64), formulas.offsets(length))
        wide = [x.double() for x in (q, k, v)]
        return [formulas.attend(*wide, scale=DIM**-0.5, bias=bias)]

    return Contest(
        peer=Side(
            inference(lambda: compiled(q, k, v, score_mod=score)),
            "torch.compile(flex_attention, dynamic=False)",
            compiles=True,
        ),
        locus=Side(
            inference(lambda: lt.attention(q, k, v, own)),
            "locus.torch.attention with RelativeBias",
        ),
        truth=truth,
        work=_flops(length, FORWARD),
        shapes={"q, k, v": [*q.shape]},
    )


def _beside_sdpa(length: int) -> Contest:
    q, k, v = map(leaf, _qkv(length))
    sigma = leaf(_sigma())
    d_out = normal(5, *q.shape)
    own = lt.RelativeBias(lambda offsets: _gaussian(sigma, offsets), HEADS)
    offsets = formulas.offsets(length).float()
    leaves = (q, k, v, sigma)

    def peer() -> Tensor:
        bias = _gaussian(sigma, offsets)[None]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def truth() -> tuple[Tensor, ...]:
        wide = [leaf(x, torch.float64) for x in leaves]
        bias = _gaussian(wide[3], formulas.offsets(length))
        return gradients(
            lambda: formulas.attend(*wide[:3], scale=DIM**-0.5, bias=bias),
            wide,
            d_out.double(),
        )()

    return Contest(
        peer=Side(
            gradients(peer, leaves, d_out),
            "attn_mask=[1, H, N, N] made of sigma in every step",
            state=[offsets],
        ),
        locus=Side(
            gradients(lambda: lt.attention(q, k, v, own), leaves, d_out),
            "locus.torch.attention with RelativeBias, gradient of sigma",
        ),
        truth=truth,
        work=_flops(length, TRAINING),
        shapes={"q, k, v": [*q.shape], "sigma": [*sigma.shape]},
    )


def rows(longest: int) -> list[Row]:
    n = min(2048, longest)
    size = f"N:{n}/D:{DIM}/H:{HEADS}"
    return [
        Row(
            name=f"own/{TRAINING}/t5/{size}",
            group=OWN,
            label=f"RelativeBias of T5's buckets, N {n}, D {DIM}",
            direction=TRAINING,
            length=n,
            build=_beside_t5,
            required=0.9,
        ),
        Row(
            name=f"flex/{FORWARD}/gaussian/full/{size}",
            group=flex.FLEX,
            label=f"Gaussian RelativeBias, full, N {n}, D {DIM}",
            direction=FORWARD,
            length=n,
            build=_beside_flex,
            required=1.5,
            whole_error=True,  # another length would be compiled again
        ),
        Row(
            name=f"sdpa/{TRAINING}/gaussian/{size}",
            group=SDPA,
            label=f"Gaussian bias learns, N {n}, D {DIM}",
            direction=TRAINING,
            length=n,
            build=_beside_sdpa,
            required=4.0,
            required_memory=0.1,
        ),
    ]
