"""Encodings that add a bias to the logits: s_ij + B[h, m - n]."""

from __future__ import annotations

import torch
from torch import nn

from .kinds import Encoding, describe
from .module import EncodingModule


class T5Bias(EncodingModule):
    """B = table[bucket(m - n), h] (Raffel et al., 2020).

    The table is `relative_attention_bias.weight` [buckets, heads], as Hugging
    Face names it. T5 itself takes scale = 1 in the call.
    """

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
    ) -> None:
        settings = {"max_distance": max_distance, "bidirectional": bidirectional}
        kind = describe("T5Bias", "table", **settings)
        super().__init__(kind, heads=heads, buckets=buckets, **settings)
        self.relative_attention_bias = nn.Embedding(buckets, heads)
        nn.init.normal_(self.relative_attention_bias.weight, std=0.02)

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.relative_attention_bias.weight])


class Kerple(EncodingModule):
    """B = -r1 ln(1 + r2 |m - n|), or -r1 |m - n|^r2 (Chi et al., 2022).

    kind: "logarithmic" or "power". r1 and r2 [heads] are trained and must stay positive
    (r2 of the power kernel at most 2), so they are clamped to [floor, ceiling].
    """

    # The least r1 and r2: small against a useful slope, well above rounding.
    floor = 1e-2

    def __init__(self, heads: int, kind: str = "logarithmic") -> None:
        super().__init__(describe("Kerple", "r1", "r2", kind=kind), heads=heads)
        self.ceiling = 2.0 if kind == "power" else None
        self.r1 = nn.Parameter(torch.empty(heads).uniform_(self.floor, 2.0))
        self.r2 = nn.Parameter(torch.empty(heads).uniform_(self.floor, 1.0))

    def encoding(self) -> Encoding:
        r1 = self.r1.clamp(min=self.floor)
        r2 = self.r2.clamp(min=self.floor, max=self.ceiling)
        return Encoding(self.kind, [r1, r2])


class Fire(EncodingModule):
    """B = f_h(psi(|m - n|) / psi(max(m, L))), psi(d) = ln(|c| d + 1).

    f is the network `mlp`, 1 -> width -> heads with a relu (Li et al., 2024).
    c and the threshold L = threshold_scale * threshold are trained.
    """

    def __init__(
        self,
        heads: int,
        width: int = 32,
        c: float = 0.1,
        threshold: float = 512.0,
        epsilon: float = 1e-6,
    ) -> None:
        names = ("w1", "b1", "w2", "b2", "c", "threshold")
        kind = describe("Fire", *names, epsilon=epsilon)
        super().__init__(kind, heads=heads, width=width, epsilon=epsilon)
        self.threshold = threshold
        self.mlp = nn.Sequential(
            nn.Linear(1, width), nn.ReLU(), nn.Linear(width, heads)
        )
        self.c = nn.Parameter(torch.tensor(c))
        self.threshold_scale = nn.Parameter(torch.tensor(1.0))

    def encoding(self) -> Encoding:
        inner, _, outer = self.mlp
        layers = [inner.weight[:, 0], inner.bias, outer.weight, outer.bias]
        threshold = self.threshold_scale * self.threshold
        return Encoding(self.kind, [*layers, self.c.reshape(1), threshold.reshape(1)])


class SwinBias(EncodingModule):
    """B by two-dimensional offset in a window (Swin; BEiT with `cls`).

    `relative_position_bias_table` [(2 height - 1)(2 width - 1), heads], with
    `cls` three rows more. Positions are raster indices, [CLS] first if present.
    """

    def __init__(self, heads: int, height: int, width: int, cls: bool = False) -> None:
        settings = {"height": height, "width": width, "cls": cls}
        kind = describe("SwinBias", "table", **settings)
        super().__init__(kind, heads=heads, **settings)
        rows = (2 * height - 1) * (2 * width - 1) + (3 if cls else 0)
        self.relative_position_bias_table = nn.Parameter(torch.empty(rows, heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.relative_position_bias_table])
