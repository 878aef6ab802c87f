"""RoPE alone: transformers' apply_rotary_pos_emb on q and k.

    q [1, 32, N, 128], k [1, 8, N, 128], tables cos, sin [1, N, 128]

"contiguous" has q and k as [B, H, N, D] in memory; "view" as a model has them,
[B, N, H, D] seen as [B, H, N, D]. Work: both read once and written once.
"""

from __future__ import annotations

import functools

import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

import locus_attn as locus

from . import formulas
from .case import FORWARD, THREADS, Contest, Row, Side, inference, normal

Q_HEADS, KV_HEADS, DIM = 32, 8, 128
GROUP = "transformers apply_rotary_pos_emb"


@functools.cache
def _compiled():
    return torch.compile(apply_rotary_pos_emb, dynamic=False)


def _contest(length: int, layout: str, compiled: bool) -> Contest:
    def heads(seed: int, count: int) -> torch.Tensor:
        x = normal(seed, 1, length, count, DIM).transpose(1, 2)
        return x if layout == "view" else x.contiguous()

    q, k = heads(0, Q_HEADS), heads(1, KV_HEADS)
    config = LlamaConfig(
        hidden_size=Q_HEADS * DIM, num_attention_heads=Q_HEADS, head_dim=DIM
    )
    cos, sin = LlamaRotaryEmbedding(config)(q, torch.arange(length)[None])
    apply = _compiled() if compiled else apply_rotary_pos_emb

    def mine() -> tuple[torch.Tensor, ...]:
        return tuple(
            locus.rotate_with(x, cos[0], sin[0], layout="halves", threads=THREADS)
            for x in (q, k)
        )

    return Contest(
        peer=Side(
            inference(lambda: apply(q, k, cos, sin)),
            "tables made before" + (", torch.compile" if compiled else ""),
            compiles=compiled,
        ),
        locus=Side(mine, "locus.rotate_with, the same tables"),
        truth=lambda: [formulas.rotate_halves(x.double()) for x in (q, k)],
        work=2 * 4 * length * (Q_HEADS + KV_HEADS) * DIM,
        shapes={"q": [*q.shape], "k": [*k.shape]},
    )


def rows(longest: int) -> list[Row]:
    n = min(4096, longest)
    found = []
    for layout, compiled in (("contiguous", False), ("view", False), ("view", True)):
        how = "compiled" if compiled else "eager"
        found.append(
            Row(
                name=f"rope/{how}/{layout}/N:{n}/D:{DIM}/H:{Q_HEADS}/K:{KV_HEADS}",
                group=GROUP,
                label=f"{how}, {layout}, {Q_HEADS} + {KV_HEADS} heads, N {n}",
                direction=FORWARD,
                length=n,
                build=lambda length, la=layout, c=compiled: _contest(length, la, c),
                limit="copy",
                required=None if compiled else 5.0,
                whole_error=compiled,
            )
        )
    return found
