"""Encodings with trained vectors by offset or position: Shaw, Transformer-XL,
DeBERTa and TUPE.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .kinds import Encoding, describe
from .module import EncodingModule

_INIT_STD = 0.02


def _trained(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape).normal_(std=_INIT_STD))


def _heads_first(x: Tensor, heads: int) -> Tensor:
    """[rows, heads * D] to [heads, rows, D]."""
    return x.unflatten(-1, (heads, -1)).transpose(0, 1)


def _present(*items: Any) -> list[Any]:
    return [x for x in items if x is not None]


class Shaw(EncodingModule):
    """s = scale q.(k + keys[r]), o = sum p (v + values[r]) (Shaw et al., 2018).

    r = clip(m - n, r_min, r_max) - r_min. Tables [r_max - r_min + 1, head_dim],
    or [heads, ...] where `heads` is given. Either may be absent.
    """

    def __init__(
        self,
        head_dim: int,
        r_min: int = -16,
        r_max: int = 16,
        heads: int | None = None,
        keys: bool = True,
        values: bool = True,
    ) -> None:
        if not keys and not values:
            raise ValueError("Shaw needs keys, values or both, got neither")
        names = ["keys"] * keys + ["values"] * values
        kind = describe("Shaw", *names, r_min=r_min, r_max=r_max)
        super().__init__(kind, head_dim=head_dim, r_min=r_min, r_max=r_max, heads=heads)
        shape = (r_max - r_min + 1, head_dim)
        shape = shape if heads is None else (heads, *shape)
        self.keys = _trained(*shape) if keys else None
        self.values = _trained(*shape) if values else None

    def encoding(self) -> Encoding:
        return Encoding(self.kind, _present(self.keys, self.values))


class KeyOffset(EncodingModule):
    """s = scale q.(k + rows[m - n]): Shaw's keys without clipping.

    rows [2 length - 1, head_dim], or [heads, ...]; row (m - n) + length - 1.
    """

    def __init__(self, head_dim: int, length: int, heads: int | None = None) -> None:
        kind = describe("KeyOffset", "rows")
        super().__init__(kind, head_dim=head_dim, length=length, heads=heads)
        shape = (2 * length - 1, head_dim)
        self.rows = _trained(*(shape if heads is None else (heads, *shape)))

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.rows])


class TransformerXL(EncodingModule):
    """s = scale (q.k + q.R + u.k + v.R), R = r_net(sinusoid of m - n).

    Names as in the published code (Dai et al., 2019): `r_net.weight`
    [heads * head_dim, model_dim], `r_w_bias` (u) and `r_r_bias` (v)
    [heads, head_dim]. Offsets reach to length - 1 both ways; memory counts.
    """

    def __init__(self, heads: int, head_dim: int, model_dim: int, length: int) -> None:
        kind = describe("TransformerXL", "r", "u", "v")
        super().__init__(kind, heads=heads, head_dim=head_dim, length=length)
        self.heads = heads
        self.r_net = nn.Linear(model_dim, heads * head_dim, bias=False)
        self.r_w_bias = _trained(heads, head_dim)
        self.r_r_bias = _trained(heads, head_dim)
        rows = self._sinusoids(model_dim, length)
        self.register_buffer("_rows", rows, persistent=False)

    @staticmethod
    def _sinusoids(dim: int, length: int) -> Tensor:
        """[sin, cos] of every offset, [2 length - 1, dim]."""
        offsets = torch.arange(1 - length, length, dtype=torch.float64)
        rates = 10000.0 ** -(torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        angles = offsets[:, None] * rates
        rows = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return rows.to(torch.get_default_dtype())

    def encoding(self) -> Encoding:
        r = _heads_first(self.r_net(self._rows), self.heads)
        return Encoding(self.kind, [r, self.r_w_bias, self.r_r_bias])


class Deberta(EncodingModule):
    """s = (q.k + q.K_b + k.Q_b) / sqrt(3 D), b = bucket(m - n) (He et al., 2021).

    Names as Hugging Face has them: `rel_embeddings.weight` [2 span, model_dim]
    projected by `pos_key_proj` (c2p) and `pos_query_proj` (p2c), where span is
    position_buckets, or max_relative_positions if that is 0.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        model_dim: int,
        position_buckets: int = 256,
        max_relative_positions: int = 512,
        c2p: bool = True,
        p2c: bool = True,
    ) -> None:
        if not c2p and not p2c:
            raise ValueError("DeBERTa needs c2p, p2c or both, got neither")
        settings = {
            "position_buckets": position_buckets,
            "max_relative_positions": max_relative_positions,
        }
        kind = describe("Deberta", *["c2p"] * c2p, *["p2c"] * p2c, **settings)
        super().__init__(kind, heads=heads, head_dim=head_dim, **settings)
        self.heads = heads
        rows = 2 * (position_buckets or max_relative_positions)
        self.rel_embeddings = nn.Embedding(rows, model_dim)
        width = heads * head_dim
        self.pos_key_proj = nn.Linear(model_dim, width) if c2p else None
        self.pos_query_proj = nn.Linear(model_dim, width) if p2c else None

    def encoding(self) -> Encoding:
        rows = self.rel_embeddings.weight
        used = _present(self.pos_key_proj, self.pos_query_proj)
        return Encoding(self.kind, [_heads_first(p(rows), self.heads) for p in used])


class Tupe(EncodingModule):
    """s = (q.k + (p_m U_q).(p_n U_k)) / sqrt(2 D) + bias (Ke et al., 2021).

    `positions` [length, model_dim] projected by `pos_query_proj` (U_q) and
    `pos_key_proj` (U_k); `bias` [heads, 2 length - 1], column (m - n) + length
    - 1, where asked for; `cls` [heads, 2] resets position 0 where asked for.
    """

    def __init__(
        self,
        heads: int,
        head_dim: int,
        model_dim: int,
        length: int,
        bias: bool = True,
        cls: bool = False,
    ) -> None:
        kind = describe("Tupe", "q_pos", "k_pos", *["bias"] * bias, *["cls"] * cls)
        super().__init__(kind, heads=heads, head_dim=head_dim, length=length)
        self.heads = heads
        width = heads * head_dim
        self.positions = _trained(length, model_dim)
        self.pos_query_proj = nn.Linear(model_dim, width, bias=False)
        self.pos_key_proj = nn.Linear(model_dim, width, bias=False)
        self.bias = _trained(heads, 2 * length - 1) if bias else None
        self.cls = _trained(heads, 2) if cls else None

    def encoding(self) -> Encoding:
        q_pos = _heads_first(self.pos_query_proj(self.positions), self.heads)
        k_pos = _heads_first(self.pos_key_proj(self.positions), self.heads)
        return Encoding(self.kind, [q_pos, k_pos, *_present(self.bias, self.cls)])
