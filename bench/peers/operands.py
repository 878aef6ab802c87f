"""What calls bring beside an encoding: sinks, masks and biases of their own.

    p_ij = e^s_ij / (e^z_h + sum_j e^s_ij)       gpt-oss: sinks z, window 128 or full
    s_ij = q_i.k_j / sqrt(D) + M[h, i, j]        a bias that learns, or a mask

gpt-oss's attention in transformers is eager only. Its additive mask is made
before the call, as its model makes it once for all layers.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

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
from .plain import SDPA

HEADS, KV_HEADS, DIM, WINDOW = 64, 8, 64, 128
PAIR_HEADS = 8
GPT_OSS = "Hugging Face gpt-oss, eager"


def _hidden(length: int, window: int | None) -> Tensor:
    """[N, N]: what a query does not see."""
    offset = formulas.offsets(length)
    hidden = offset < 0
    return hidden if window is None else hidden | (offset >= window)


def _with_sinks(q: Tensor, k: Tensor, v: Tensor, z: Tensor, hidden: Tensor) -> Tensor:
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * DIM**-0.5
    s = s.masked_fill(hidden, float("-inf"))
    sink = z[None, :, None, None].expand(*s.shape[:-1], 1)
    return torch.cat([s, sink], -1).softmax(-1)[..., :-1] @ v


def _gpt_oss(length: int, window: int | None, direction: str) -> Contest:
    q = normal(0, 1, HEADS, length, DIM)
    k, v = (normal(seed, 1, KV_HEADS, length, DIM) for seed in (1, 2))
    z, d_out = normal(3, HEADS), normal(4, *q.shape)
    hidden = _hidden(length, window)
    mask = torch.zeros(1, 1, length, length).masked_fill(hidden, float("-inf"))
    leaves = (q, k, v, z)
    if direction == TRAINING:
        leaves = tuple(leaf(x) for x in leaves)
    q, k, v, z = leaves
    module = SimpleNamespace(
        num_key_value_groups=HEADS // KV_HEADS, sinks=z, training=False
    )

    def eager() -> Tensor:
        out, _ = eager_attention_forward(module, q, k, v, mask, DIM**-0.5)
        return out.transpose(1, 2)

    def fused() -> Tensor:
        seen = None if window is None else (window - 1, 0)
        return lt.attention(q, k, v, causal=True, window=seen, sinks=z)

    def side(call, setting: str, **more) -> Side:
        if direction == FORWARD:
            return Side(inference(call), setting, **more)
        return Side(gradients(call, leaves, d_out), setting, **more)

    def truth() -> tuple[Tensor, ...]:
        exact = [leaf(x, torch.float64) for x in leaves]
        found = gradients(lambda: _with_sinks(*exact, hidden), exact, d_out.double())()
        return found[:1] if direction == FORWARD else found

    return Contest(
        peer=side(eager, "eager_attention_forward, mask made before", state=[mask]),
        locus=side(fused, "locus.torch.attention with sinks"),
        truth=truth,
        work=attention_flops(HEADS, length, DIM, causal=True, direction=direction),
        shapes={"q": [*q.shape], "k, v": [*k.shape], "sinks": [*z.shape]},
    )


def _pairs(length: int, what: str) -> Contest:
    q, k, v = (leaf(normal(seed, 1, PAIR_HEADS, length, DIM)) for seed in range(3))
    d_out = normal(3, *q.shape)
    scale = DIM**-0.5
    if what == "mask":
        # Two documents, each seen causally: half of the tiles are empty.
        at = torch.arange(length)
        seen = ~_hidden(length, None) & (
            (at[:, None] < length // 2) == (at[None, :] < length // 2)
        )
        pairs, direction = seen[None, None], FORWARD
        bias = torch.zeros(length, length, dtype=torch.float64)
        bias = bias.masked_fill(~seen, float("-inf"))
        calls = (
            lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=pairs),
            lambda: lt.attention(q, k, v, mask=pairs),
        )
        sides = tuple(inference(call) for call in calls)
        truth_leaves = (q, k, v)
    else:
        pairs, direction = leaf(normal(4, 1, PAIR_HEADS, length, length)), TRAINING
        calls = (
            lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=pairs),
            lambda: lt.attention(q, k, v, pair_bias=pairs),
        )
        leaves = (q, k, v, pairs)
        sides = tuple(gradients(call, leaves, d_out) for call in calls)
        truth_leaves, bias = leaves, None

    def truth() -> tuple[Tensor, ...]:
        exact = [leaf(x, torch.float64) for x in truth_leaves]
        more = bias if bias is not None else exact[3][0]
        found = gradients(
            lambda: formulas.attend(*exact[:3], scale=scale, bias=more),
            exact,
            d_out.double(),
        )()
        return found[:1] if direction == FORWARD else found

    return Contest(
        peer=Side(sides[0], f"attn_mask={list(pairs.shape)}", state=[pairs.detach()]),
        locus=Side(sides[1], f"locus.torch.attention, {what}", state=[pairs.detach()]),
        truth=truth,
        work=attention_flops(
            PAIR_HEADS, length, DIM, causal=False, direction=direction
        ),
        shapes={"q, k, v": [*q.shape], what: [*pairs.shape]},
    )


def rows(longest: int) -> list[Row]:
    n = min(2048, longest)
    found = []
    for window, name in ((None, "full"), (WINDOW, f"window:{WINDOW}")):
        for direction in (FORWARD, TRAINING):
            found.append(
                Row(
                    name=f"hf/gpt-oss/{direction}/{name}/N:{n}/D:{DIM}/H:{HEADS}"
                    f"/K:{KV_HEADS}",
                    group=GPT_OSS,
                    label=f"sinks, {name}, N {n}, {HEADS}/{KV_HEADS} heads",
                    direction=direction,
                    length=n,
                    build=lambda length, w=window, d=direction: _gpt_oss(length, w, d),
                    required=5.0,
                    required_memory=0.1,
                )
            )
    size = f"N:{n}/D:{DIM}/H:{PAIR_HEADS}"
    for what, direction, label, required in (
        ("mask", FORWARD, "boolean mask of two documents", 1.2),
        ("pair-bias", TRAINING, "bias [1, H, N, N] learns on both sides", 2.5),
    ):
        found.append(
            Row(
                name=f"sdpa/{direction}/{what}/{size}",
                group=SDPA,
                label=f"{label}, N {n}, D {DIM}",
                direction=direction,
                length=n,
                build=lambda length, w=what: _pairs(length, w),
                required=required,
            )
        )
    return found
