"""Learned rows, x_i + E[m]; the other encodings of the input come from made.py."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .kinds import Encoding, describe
from .module import EncodingModule


class Learned(EncodingModule):
    """E = weight [length, dim], trained; position m takes row m + offset.

    A position without a row is an error, never a wrap.
    """

    def __init__(self, length: int, dim: int, offset: int = 0) -> None:
        kind = describe("Learned", "table", offset=offset)
        super().__init__(kind, length=length, dim=dim, offset=offset)
        self.offset = offset
        self.weight = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.weight, std=0.02)

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.weight])

    def embed(self, positions: Tensor | Sequence[int]) -> Tensor:
        """Rows E[pos], [..., dim], for positions [...]."""
        rows = torch.as_tensor(positions, dtype=torch.int64) + self.offset
        length = self.weight.shape[0]
        if not torch.compiler.is_compiling() and rows.numel():
            low, high = int(rows.min()), int(rows.max())
            if low < 0 or high >= length:
                bad = (low if low < 0 else high) - self.offset
                raise ValueError(
                    f"learned positions cover 0 .. {length - 1 - self.offset}, "
                    f"got {bad}"
                )
        return nn.functional.embedding(rows, self.weight)

    def forward(
        self, x: Tensor, positions: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """x [B, L, dim] + E[pos]; positions [L] or [B, L], 0 .. L - 1 if None."""
        if positions is None:
            positions = torch.arange(x.shape[-2])
        return x + self.embed(positions).to(x.dtype)
