"""FlexAttention, compiled: biases by a function of (score, b, h, i, j).

PyTorch has no backward of it on CPUs. The T5 bias is read from a row by offset
[H, 2N - 1], made before the call, which is cheaper than the table's buckets.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import locus_attn as locus
import locus_attn.torch as lt

from . import formulas
from .case import (
    FORWARD,
    Contest,
    Row,
    Side,
    attention_flops,
    inference,
    normal,
)

HEADS, DIM, BUCKETS = 8, 64, 32
FLEX = "PyTorch FlexAttention, compiled"


@functools.cache
def _compiled():
    return torch.compile(flex_attention, dynamic=False)


def _later(b, h, i, j):
    return i >= j


def _contest(length: int, kind: str, causal: bool) -> Contest:
    q, k, v = (normal(seed, 1, HEADS, length, DIM) for seed in range(3))
    table = normal(4, BUCKETS, HEADS)
    scale = DIM**-0.5
    if kind == "alibi":
        slopes = torch.tensor(locus.Alibi.slopes(HEADS))
        encoding = lt.Alibi(HEADS)
        bias = formulas.alibi_bias(HEADS, length)

        def score(s, b, h, i, j):
            return s - slopes[h] * (i - j).abs()
    else:
        row = table[formulas.t5_buckets(torch.arange(1 - length, length))]
        row = row.T.contiguous()
        settings = {"max_distance": 128, "bidirectional": True}
        encoding = lt.Encoding(lt.describe("T5Bias", "table", **settings), [table])
        bias = formulas.t5_bias(table.double(), length)

        def score(s, b, h, i, j):
            return s + row[h, i - j + length - 1]

    mask = None
    if causal:
        mask = create_block_mask(_later, None, None, length, length, device="cpu")

    def peer() -> Tensor:
        return _compiled()(q, k, v, score_mod=score, block_mask=mask)

    return Contest(
        peer=Side(
            inference(peer),
            "torch.compile(flex_attention, dynamic=False)"
            + (", causal by a block mask" if causal else ""),
            compiles=True,
        ),
        locus=Side(
            inference(lambda: lt.attention(q, k, v, encoding, causal=causal)),
            "locus.torch.attention",
        ),
        truth=lambda: [
            formulas.attend(
                q.double(),
                k.double(),
                v.double(),
                scale=scale,
                bias=bias,
                causal=causal,
            )
        ],
        work=attention_flops(HEADS, length, DIM, causal=causal, direction=FORWARD),
        shapes={"q, k, v": [*q.shape]},
    )


def rows(longest: int) -> list[Row]:
    n = min(2048, longest)
    found = []
    for kind, causal in (("alibi", False), ("alibi", True), ("t5", False)):
        mask = "causal" if causal else "full"
        name = "ALiBi" if kind == "alibi" else "T5 bias"
        found.append(
            Row(
                name=f"flex/forward/{kind}/{mask}/N:{n}/D:{DIM}/H:{HEADS}",
                group=FLEX,
                label=f"{name}, {mask}, N {n}, D {DIM}",
                direction=FORWARD,
                length=n,
                build=lambda length, k=kind, c=causal: _contest(length, k, c),
                required=1.5,
                whole_error=True,  # another length would be compiled again
            )
        )
    return found
