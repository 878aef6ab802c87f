"""T5's bias as PyTorch takes it: a tensor [H, N, N] made of the table.

    o = softmax(q k^T + B) v,    B[h, i, j] = table[bucket(i - j), h]

Forward, the bias is made before the call (T5 makes it once for all its layers)
and counts as memory only. In training the table is what learns: the bias is made
of it in every step by torch.nn.functional.embedding, whose backward was the
fastest of those tried (indexing, unfolding a row by offset). "bias" rows leave
that out: there [H, N, N] itself wants a gradient, which is a layer's own share
of the work.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

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
from .plain import EAGER, SDPA

HEADS, DIM, BUCKETS = 8, 64, 32
# T5's scores are not scaled; this keeps q.k of order one, as trained weights do.
Q_STD = DIM**-0.5


def _inputs(length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    q, k, v = (normal(seed, 1, HEADS, length, DIM) for seed in range(3))
    return q * Q_STD, k, v, normal(4, BUCKETS, HEADS)


def _truth(
    length: int, leaves: tuple[Tensor, ...], d_out: Tensor
) -> tuple[Tensor, ...]:
    q, k, v, table = (leaf(x, torch.float64) for x in leaves)
    return gradients(
        lambda: formulas.attend(
            q, k, v, scale=1.0, bias=formulas.t5_bias(table, length)
        ),
        (q, k, v, table),
        d_out.double(),
    )()


def _encoding(table: Tensor) -> lt.Encoding:
    kind = lt.describe("T5Bias", "table", max_distance=128, bidirectional=True)
    return lt.Encoding(kind, [table])


def _forward(length: int, how: str) -> Contest:
    q, k, v, table = _inputs(length)
    bias = formulas.t5_bias(table, length).contiguous()
    encoding = _encoding(table)
    state = [bias]
    if how == "sdpa":
        setting = "attn_mask=[1, H, N, N], contiguous"

        def peer() -> Tensor:
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=bias[None], scale=1.0
            )
    elif how == "fresh":
        setting = "softmax(q k^T + B) v"

        def peer() -> Tensor:
            return torch.softmax(q @ k.transpose(-1, -2) + bias, -1) @ v
    else:
        setting = "baddbmm, softmax and bmm with out="
        scores, probabilities = torch.empty_like(bias), torch.empty_like(bias)
        out = torch.empty_like(q)
        state += [scores, probabilities]

        def peer() -> Tensor:
            torch.baddbmm(bias, q[0], k[0].transpose(-1, -2), out=scores)
            torch.softmax(scores, -1, out=probabilities)
            torch.bmm(probabilities, v[0], out=out[0])
            return out

    return Contest(
        peer=Side(inference(peer), setting, state=state),
        locus=Side(
            inference(lambda: lt.attention(q, k, v, encoding, scale=1.0)),
            "locus.torch.attention with T5Bias",
        ),
        truth=lambda: _truth(length, (q, k, v, table), torch.ones_like(q))[:1],
        work=attention_flops(HEADS, length, DIM, causal=False, direction=FORWARD),
        shapes={"q, k, v": [*q.shape], "table": [*table.shape]},
    )


def _training(length: int, how: str) -> Contest:
    q, k, v, table = _inputs(length)
    q, k, v, table = leaf(q), leaf(k), leaf(v), leaf(table)
    d_out = normal(5, *q.shape)
    encoding = _encoding(table)
    buckets = formulas.t5_buckets(formulas.offsets(length))
    bias = formulas.t5_bias(table, length)[None].detach().contiguous()
    bias.requires_grad_(how == "bias")

    def sdpa(mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)

    def from_table() -> Tensor:
        return sdpa(F.embedding(buckets, table).permute(2, 0, 1)[None])

    whole = gradients(lambda: sdpa(bias), (q, k, v, bias), d_out)
    sides = {
        "table": Side(
            gradients(from_table, (q, k, v, table), d_out),
            "bias by embedding from buckets made before, gradient of the table",
            state=[buckets],
        ),
        # The gradient [H, N, N] is no result anybody wants: not an output.
        "bias": Side(
            lambda: whole()[:4],
            "gradient of the bias [1, H, N, N] itself",
            state=[bias],
        ),
        "constant": Side(
            gradients(lambda: sdpa(bias), (q, k, v), d_out),
            "bias [1, H, N, N] without a gradient",
            state=[bias],
        ),
    }
    return Contest(
        peer=sides[how],
        locus=Side(
            gradients(
                lambda: lt.attention(q, k, v, encoding, scale=1.0),
                (q, k, v, table),
                d_out,
            ),
            "locus.torch.attention with T5Bias, gradient of the table",
        ),
        truth=lambda: _truth(length, (q, k, v, table), d_out),
        work=attention_flops(HEADS, length, DIM, causal=False, direction=TRAINING),
        shapes={"q, k, v": [*q.shape], "table": [*table.shape]},
    )


def rows(longest: int) -> list[Row]:
    n = min(2048, longest)
    size = f"N:{n}/D:{DIM}/H:{HEADS}"
    found = []
    for how in ("sdpa", "fresh", "preallocated"):
        found.append(
            Row(
                name=f"{'sdpa' if how == 'sdpa' else 'eager'}/forward/t5-{how}/{size}",
                group=SDPA if how == "sdpa" else EAGER,
                label="T5 bias given"
                + ("" if how == "sdpa" else f", {how} buffers")
                + f", N {n}, D {DIM}",
                direction=FORWARD,
                length=n,
                build=lambda length, h=how: _forward(length, h),
            )
        )
    labels = {
        "table": "T5 table learns",
        "bias": "T5 bias [H, N, N] learns",
        "constant": "T5 bias constant",
    }
    for how, label in labels.items():
        learns = how != "constant"
        found.append(
            Row(
                name=f"sdpa/{TRAINING}/t5-{how}/{size}",
                group=SDPA,
                label=f"{label}, N {n}, D {DIM}",
                direction=TRAINING,
                length=n,
                build=lambda length, h=how: _training(length, h),
                required=4.0 if learns else None,
                required_memory=0.1 if learns else None,
            )
        )
    return found
