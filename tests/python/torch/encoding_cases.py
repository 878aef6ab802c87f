"""Every encoding as the operator takes it, beside its formula in `eager`.

A case has parameters in float32 and builds both sides from them, the eager one
in float64 from the same values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import eager
import torch

import locus_attn.torch as lt

HEADS, KV_HEADS, DIM = 4, 2, 8
# Positions of the tests lie below this, and tables reach as far.
REACH = 40
GRID = (5, 8)


@dataclasses.dataclass
class Case:
    """kind: for the operator. formula(params) -> an encoding of `eager`."""

    kind: str
    params: dict[str, torch.Tensor]
    formula: Callable[[dict[str, torch.Tensor]], Any]
    # Turns positions below REACH into positions of this encoding.
    positions: Callable[[torch.Tensor], torch.Tensor] = lambda p: p

    def encoding(self, dtype=torch.float32, grad=False):
        leaves = [
            p.to(dtype).detach().requires_grad_(grad) for p in self.params.values()
        ]
        return lt.Encoding(self.kind, leaves)

    def judge(self, leaves, grad=False):
        """The formula over the same numbers in float64, and its leaves."""
        doubles = {
            n: p.detach().double().requires_grad_(grad)
            for n, p in zip(self.params, leaves, strict=True)
        }
        return self.formula(doubles), list(doubles.values())


def _table(name, params, **settings):
    """A class with the same constructor in `locus` and in `eager`."""
    make = getattr(eager, name)
    return Case(
        lt.describe(name, *params, **settings),
        params,
        lambda p: make(**p, **settings),
    )


def _fixed(name, formula, positions=lambda p: p, **settings):
    kind = lt.describe(name, **settings)
    return Case(kind, {}, lambda p: formula, positions)


def _pack(p):
    """Time, row and column that differ, as M-RoPE packs them."""
    return (1 << 60) + (p << 40) + ((p // 5) << 20) + p % 7


def cases() -> dict[str, Case]:
    gen = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=gen)

    def positive(*shape):
        return torch.rand(*shape, generator=gen) + 0.1

    wide = 2 * REACH - 1
    kerple = {"r1": positive(HEADS), "r2": positive(HEADS)}
    shaw = {"keys": normal(12, DIM), "values": normal(12, DIM)}
    clip = {"r_min": -4, "r_max": 7}
    tupe = {"q_pos": normal(HEADS, REACH, 6), "k_pos": normal(HEADS, REACH, 6)}
    c2p, p2c = normal(HEADS, 16, DIM), normal(HEADS, 16, DIM)
    buckets = {"position_buckets": 8, "max_relative_positions": 24}
    fire = {
        "w1": normal(5),
        "b1": normal(5),
        "w2": normal(HEADS, 5),
        "b2": normal(HEADS),
        "c": positive(1),
        "threshold": torch.tensor([9.3]),
    }
    rates = eager.rope_rates(DIM)
    half_rates = eager.rope_rates(DIM // 2)
    zeta = (torch.arange(0, DIM, 2, dtype=torch.float64) / DIM + 0.4) / 1.4
    slopes = 2.0 ** -(8 * torch.arange(1, HEADS + 1).double() / HEADS)
    swin_rows = (2 * GRID[0] - 1) * (2 * GRID[1] - 1)
    swin = {"height": GRID[0], "width": GRID[1]}
    beit = {"height": GRID[0], "width": GRID[1], "cls": True}
    rope = {"head_dim": DIM, "base": 10000.0}
    return {
        "none": _fixed("NoPosition", None),
        "t5": _table("T5Bias", {"table": normal(8, HEADS)}, max_distance=20),
        "t5-both-ways": _table(
            "T5Bias", {"table": normal(8, HEADS)}, max_distance=20, bidirectional=True
        ),
        "alibi": _fixed("Alibi", eager.Alibi(slopes), heads=HEADS),
        "kerple": _table("Kerple", kerple, kind="logarithmic"),
        "kerple-power": _table("Kerple", kerple, kind="power"),
        "fire": _table("Fire", fire),
        "sandwich": _fixed("Sandwich", eager.Sandwich(HEADS, 16), heads=HEADS, dim=16),
        "swin": _table("SwinBias", {"table": normal(swin_rows, HEADS)}, **swin),
        "swin-cls": _table("SwinBias", {"table": normal(swin_rows + 3, HEADS)}, **beit),
        "shaw": _table("Shaw", shaw, **clip),
        "shaw-keys": _table("Shaw", {"keys": shaw["keys"]}, **clip),
        "shaw-values": _table("Shaw", {"values": shaw["values"]}, **clip),
        "shaw-per-head": _table(
            "Shaw",
            {"keys": normal(HEADS, 12, DIM), "values": normal(HEADS, 12, DIM)},
            **clip,
        ),
        "key-offset": _table("KeyOffset", {"rows": normal(wide, DIM)}),
        "key-offset-per-head": _table("KeyOffset", {"rows": normal(HEADS, wide, DIM)}),
        "transformer-xl": _table(
            "TransformerXL",
            {
                "r": normal(HEADS, wide, DIM),
                "u": normal(HEADS, DIM),
                "v": normal(HEADS, DIM),
            },
        ),
        "deberta": _table("Deberta", {"c2p": c2p, "p2c": p2c}, **buckets),
        "deberta-c2p": _table("Deberta", {"c2p": c2p}, **buckets),
        "deberta-p2c": _table("Deberta", {"p2c": p2c}, **buckets),
        "deberta-v1": _table(
            "Deberta",
            {"c2p": c2p, "p2c": p2c},
            position_buckets=0,
            max_relative_positions=8,
        ),
        "tupe": _table("Tupe", {**tupe, "bias": normal(HEADS, wide)}),
        "tupe-a": _table("Tupe", tupe),
        "tupe-cls": _table(
            "Tupe", {**tupe, "bias": normal(HEADS, wide), "cls": normal(HEADS, 2)}
        ),
        "rope": _fixed("Rope", eager.Rope(rates, "halves"), layout="halves", **rope),
        "rope-interleaved": _fixed(
            "Rope", eager.Rope(rates, "interleaved"), layout="interleaved", **rope
        ),
        "rope-partial": _fixed(
            "Rope", eager.Rope(half_rates, "halves"), layout="halves", rotary_dim=4,
            **rope,
        ),
        "rope-values": _fixed(
            "Rope", eager.RopeValues(rates, "interleaved", relative=True),
            layout="interleaved", values="relative", **rope,
        ),
        "rope-values-absolute": _fixed(
            "Rope", eager.RopeValues(half_rates, "halves", relative=False),
            layout="halves", values="absolute", rotary_dim=4, **rope,
        ),
        "rope-learned": _table(
            "RopeLearned", {"alpha": normal(DIM // 2)}, layout="halves"
        ),
        "rope-learned-partial": _table(
            "RopeLearned", {"alpha": normal(2)}, layout="interleaved", base=50.0
        ),
        "rope-mixed": _table(
            "RopeMixed", {"theta": normal(DIM // 2, 2)}, layout="halves", width=8
        ),
        "rope-learned-heads": _table(
            "RopeLearned", {"alpha": normal(KV_HEADS, 3)}, layout="halves"
        ),
        "rope-mixed-heads": _table(
            "RopeMixed", {"theta": normal(KV_HEADS, 3, 2)}, layout="halves", width=7,
            prefix=1,
        ),
        "rope-mixed-cls": _table(
            "RopeMixed", {"theta": normal(3, 2)}, layout="interleaved", width=5,
            prefix=2, offsets=[0.5, -1.5],
        ),
        "rope-2d": _fixed(
            "Rope2D", eager.Rope2D(half_rates, "halves", 8), layout="halves", width=8,
            **rope,
        ),
        "mrope": _fixed(
            "MRope", eager.MRope(rates, "halves", [0, 1, 1, 2]), _pack,
            layout="halves", sections=[1, 2, 1], **rope,
        ),
        "mrope-interleaved": _fixed(
            "MRope", eager.MRope(rates, "halves", [0, 1, 2, 0]), _pack,
            layout="halves", sections=[2, 1, 1], dealing="interleaved", **rope,
        ),
        "xpos": _fixed(
            "XPos", eager.XPos(rates, "interleaved", zeta, 512.0),
            layout="interleaved", **rope,
        ),
        "xpos-halves": _fixed(
            "XPos", eager.XPos(rates, "halves", zeta, 64.0),
            layout="halves", scale_base=64.0, **rope,
        ),
    }  # fmt: skip


@dataclasses.dataclass
class Call:
    """Sizes and options of a call."""

    q_len: int = 19
    k_len: int = 19
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


def calls() -> dict[str, Call]:
    gen = torch.Generator().manual_seed(2)

    def sorted_positions(length):
        rows = [torch.randperm(REACH, generator=gen)[:length].sort()[0] for _ in "ab"]
        return torch.stack(rows)

    packed = torch.cat([torch.arange(7), torch.arange(4), torch.arange(8)])
    segments = torch.tensor([0] * 7 + [1] * 4 + [2] * 8)
    return {
        "plain": Call(),
        "causal": Call(options={"causal": True}),
        "one-query": Call(1, 19, {"causal": True}),
        "few-queries": Call(5, 19, {"causal": True}),
        "more-queries": Call(19, 6),
        "window": Call(options={"window": 4}),
        "causal-window": Call(options={"window": 4, "causal": True}),
        "uneven-window": Call(options={"window": (6, 2)}),
        "scale": Call(options={"scale": 0.7}),
        "softcap": Call(options={"softcap": 2.5, "causal": True}),
        "key-lengths": Call(options={"key_lengths": torch.tensor([19, 11])}),
        "key-lengths-of-few": Call(
            5, 19, {"key_lengths": torch.tensor([17, 3]), "causal": True}
        ),
        "positions": Call(
            11,
            19,
            {
                "q_positions": sorted_positions(11),
                "k_positions": sorted_positions(19),
                "causal": True,
            },
        ),
        "packed": Call(
            options={
                "q_positions": packed,
                "k_positions": packed,
                "q_segments": segments,
                "k_segments": segments,
                "causal": True,
            }
        ),
    }
