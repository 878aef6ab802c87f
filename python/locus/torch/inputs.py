"""Encodings of the input, x_i + E[m]: index, digits, sines and learned rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .kinds import Encoding, describe
from .module import EncodingModule, FixedModule, InputModule


class NoPosition(FixedModule):
    """Plain attention."""


class Index(InputModule):
    """E[m] = m in every channel (mode "add") or in one more ("concatenate")."""

    def __init__(self, dim: int, mode: str = "add") -> None:
        super().__init__(dim, mode=mode)
        self.widen = int(mode == "concatenate")


class NormalisedIndex(InputModule):
    """E[m] = m / (length - 1), added or as one more channel.

    Without a length, the last position of a call counts as 1.
    """

    def __init__(self, dim: int, mode: str = "add", length: int | None = None) -> None:
        super().__init__(dim, mode=mode, length=length)
        self.widen = int(mode == "concatenate")


class Binary(InputModule):
    """E[m, c] = bit c of m, least significant first, zero from `bits` to `dim`."""

    def __init__(self, bits: int, dim: int | None = None) -> None:
        super().__init__(dim or bits, bits=bits)


class SineOnly(InputModule):
    """E[m, j] = sin(m / base^(j / dim))."""

    def __init__(self, dim: int, base: float = 10000.0) -> None:
        super().__init__(dim, base=base)


class Sinusoidal(InputModule):
    """Sines and cosines of m w_i (Vaswani et al., 2017).

    layout "interleaved": sin at 2i, cos at 2i + 1, w_i = base^(-2i / dim);
    "halves": all sines, then all cosines (RoFormer); "halves-inclusive": the
    same with w_i = base^(-i / (dim / 2 - 1)) (Whisper, M2M100).
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        layout: str = "interleaved",
        offset: int = 0,
    ) -> None:
        super().__init__(dim, base=base, layout=layout, offset=offset)


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
