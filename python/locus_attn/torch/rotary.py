"""Encodings with trained frequencies; the other rotations come from made.py."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from .kinds import Encoding, describe
from .module import EncodingModule


def _shown_heads(heads: int | None) -> dict[str, int]:
    """Of the settings that a module shows: heads that have frequencies of their own."""
    if heads is None:
        return {}
    if heads < 1:
        raise ValueError(f"heads must be at least 1, got {heads}")
    return {"heads": heads}


class RopeLearned(EncodingModule):
    """RoPE with trained frequencies: pair p turns by m w_p exp(alpha[p]).

    `alpha` [rotary_dim / 2] begins at zero, which is ordinary RoPE; the first
    rotary_dim channels rotate. With `heads`, the number of key heads, it is
    [heads, rotary_dim / 2]: each has frequencies of its own.
    """

    def __init__(
        self,
        rotary_dim: int,
        layout: str,
        base: float = 10000.0,
        heads: int | None = None,
    ) -> None:
        kind = describe("RopeLearned", "alpha", layout=layout, base=base)
        settings = {"layout": layout, "base": base, **_shown_heads(heads)}
        super().__init__(kind, rotary_dim=rotary_dim, **settings)
        shape = [rotary_dim // 2] if heads is None else [heads, rotary_dim // 2]
        self.alpha = nn.Parameter(torch.zeros(shape))
        # Wrong settings fail here, not at the first call.
        self.encoding().native()

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.alpha])


class RopeMixed(EncodingModule):
    """RoPE over a grid: pair p turns by y theta[p, 0] + x theta[p, 1] (Heo et al.).

    `theta` [rotary_dim / 2, 2] is trained and shared by the heads; with `heads`,
    the number of key heads, it is [heads, rotary_dim / 2, 2] and each has its own,
    as in the paper. It begins with frequencies base^(-4p / rotary_dim), each in a
    random direction and in the one at right angles to it. Positions are raster
    indices prefix + y * width + x; tokens of the prefix, such as [CLS], are not
    rotated. offsets are added to y and x.
    """

    def __init__(
        self,
        rotary_dim: int,
        layout: str,
        width: int,
        base: float = 10.0,
        prefix: int = 0,
        offsets: Sequence[float] = (0.0, 0.0),
        heads: int | None = None,
    ) -> None:
        settings = {"layout": layout, "width": width, "prefix": prefix}
        kind = describe("RopeMixed", "theta", offsets=list(offsets), **settings)
        settings |= _shown_heads(heads)
        super().__init__(kind, rotary_dim=rotary_dim, base=base, **settings)
        pairs = rotary_dim // 2
        steps = torch.arange(pairs) // 2
        frequencies = base ** -(4.0 * steps / rotary_dim)
        some = [(pairs + 1) // 2] if heads is None else [heads, (pairs + 1) // 2]
        first = torch.rand(some).repeat_interleave(2, dim=-1)[..., :pairs] * 2 * math.pi
        angle = first + torch.arange(pairs) % 2 * (math.pi / 2)
        directions = torch.stack([angle.sin(), angle.cos()], dim=-1)
        self.theta = nn.Parameter(frequencies[:, None] * directions)
        self.encoding().native()

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self.theta])
