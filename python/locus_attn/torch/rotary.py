"""Encodings with trained frequencies; the other rotations come from made.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from .kinds import Encoding, describe
from .module import EncodingModule


class RopeLearned(EncodingModule):
    """RoPE with trained frequencies: pair p turns by m w_p exp(alpha[p]).

    `alpha` [rotary_dim / 2] begins at zero, which is ordinary RoPE; the first
    rotary_dim channels rotate.
    """

    def __init__(self, rotary_dim: int, layout: str, base: float = 10000.0) -> None:
        kind = describe("RopeLearned", "alpha", layout=layout, base=base)
        super().__init__(kind, rotary_dim=rotary_dim, layout=layout, base=base)
        self.alpha = nn.Parameter(torch.zeros(rotary_dim // 2))
        # Wrong settings fail here, not at the first call.
        self.encoding().native()

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.alpha])


class RopeMixed(EncodingModule):
    """RoPE over a grid: pair p turns by y theta[p, 0] + x theta[p, 1] (Heo et al.).

    `theta` [rotary_dim / 2, 2] is trained and shared by the heads. It begins with
    frequencies base^(-4p / rotary_dim), each in a random direction and in the one
    at right angles to it. Positions are raster indices prefix + y * width + x;
    tokens of the prefix, such as [CLS], are not rotated. offsets are added to y
    and x.
    """

    def __init__(
        self,
        rotary_dim: int,
        layout: str,
        width: int,
        base: float = 10.0,
        prefix: int = 0,
        offsets: Sequence[float] = (0.0, 0.0),
    ) -> None:
        settings = {"layout": layout, "width": width, "prefix": prefix}
        kind = describe("RopeMixed", "theta", offsets=list(offsets), **settings)
        super().__init__(kind, rotary_dim=rotary_dim, base=base, **settings)
        pairs = rotary_dim // 2
        steps = torch.arange(pairs) // 2
        frequencies = base ** -(4.0 * steps / rotary_dim)
        first = torch.rand((pairs + 1) // 2).repeat_interleave(2)[:pairs] * 2 * math.pi
        angle = first + torch.arange(pairs) % 2 * (math.pi / 2)
        directions = torch.stack([angle.sin(), angle.cos()], dim=-1)
        self.theta = nn.Parameter(frequencies[:, None] * directions)
        self.encoding().native()

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.theta])
