"""Attention without position: PyTorch's fused and unfused forms.

o = softmax(q k^T / sqrt(D)) v       q, k, v [1, H, N, D], contiguous
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

import locus_attn.torch as lt

from . import formulas
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

HEADS = 8
SDPA = "PyTorch scaled_dot_product_attention"
EAGER = "PyTorch eager"


def _contest(length: int, dim: int, causal: bool, direction: str) -> Contest:
    q, k, v = (normal(seed, 1, HEADS, length, dim) for seed in range(3))
    d_out = normal(3, 1, HEADS, length, dim)
    if direction == TRAINING:
        q, k, v = leaf(q), leaf(k), leaf(v)
    call = {
        "peer": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        "locus": lambda: lt.attention(q, k, v, causal=causal),
    }

    def side(name: str, setting: str) -> Side:
        if direction == FORWARD:
            return Side(inference(call[name]), setting)
        return Side(gradients(call[name], (q, k, v), d_out), setting)

    def truth() -> tuple[torch.Tensor, ...]:
        exact = [leaf(x, torch.float64) for x in (q, k, v)]
        scale = dim**-0.5
        return gradients(
            lambda: formulas.attend(*exact, scale=scale, causal=causal),
            exact,
            d_out.double(),
        )()

    return Contest(
        peer=side("peer", "its choice of kernel (flash), contiguous tensors"),
        locus=side("locus", "locus.torch.attention"),
        truth=truth,
        work=attention_flops(HEADS, length, dim, causal=causal, direction=direction),
        shapes={"q": [*q.shape], "k": [*k.shape], "v": [*v.shape]},
    )


def _eager(length: int, dim: int, preallocated: bool) -> Contest:
    q, k, v = (normal(seed, 1, HEADS, length, dim) for seed in range(3))
    scale = dim**-0.5
    scores = torch.empty(HEADS, length, length) if preallocated else None
    probabilities = torch.empty_like(scores) if preallocated else None
    out = torch.empty(1, HEADS, length, dim) if preallocated else None

    def eager() -> torch.Tensor:
        return torch.softmax((q * scale) @ k.transpose(-1, -2), -1) @ v

    def into_buffers() -> torch.Tensor:
        # beta = 0: the first argument is not read.
        torch.baddbmm(
            scores, q[0], k[0].transpose(-1, -2), beta=0, alpha=scale, out=scores
        )
        torch.softmax(scores, -1, out=probabilities)
        torch.bmm(probabilities, v[0], out=out[0])
        return out

    return Contest(
        peer=Side(
            inference(into_buffers if preallocated else eager),
            "softmax(q k^T) v" + (", out= into buffers" if preallocated else ""),
            state=[scores, probabilities] if preallocated else [],
        ),
        locus=Side(inference(lambda: lt.attention(q, k, v)), "locus.torch.attention"),
        truth=lambda: [
            formulas.attend(q.double(), k.double(), v.double(), scale=scale)
        ],
        work=attention_flops(HEADS, length, dim, causal=False, direction=FORWARD),
        shapes={"q": [*q.shape], "k": [*k.shape], "v": [*v.shape]},
    )


def _row(length: int, dim: int, causal: bool, direction: str) -> Row:
    mask = "causal" if causal else "full"
    return Row(
        name=f"sdpa/{direction}/{mask}/N:{length}/D:{dim}/H:{HEADS}",
        group=SDPA,
        label=f"{mask}, N {length}, D {dim}",
        direction=direction,
        length=length,
        build=lambda n: _contest(n, dim, causal, direction),
        required=1.15 if direction == FORWARD else 1.2,
        slow=length > 2048,
        shown=length in (512, 2048, 8192) and dim == 64
        if direction == FORWARD
        else length == 2048,
    )


def rows(longest: int) -> list[Row]:
    found = []
    lengths = {FORWARD: (512, 1024, 2048, 4096, 8192), TRAINING: (512, 2048, 4096)}
    for direction, all_lengths in lengths.items():
        for dim in (64, 128):
            for length in sorted({min(n, longest) for n in all_lengths}):
                for causal in (False, True):
                    found.append(_row(length, dim, causal, direction))
    length = min(2048, longest)
    for preallocated in (False, True):
        how = "preallocated" if preallocated else "fresh"
        found.append(
            Row(
                name=f"eager/forward/{how}/N:{length}/D:64/H:{HEADS}",
                group=EAGER,
                label=f"plain, {how} buffers, N {length}, D 64",
                direction=FORWARD,
                length=length,
                build=lambda n, pre=preallocated: _eager(n, 64, pre),
            )
        )
    return found
