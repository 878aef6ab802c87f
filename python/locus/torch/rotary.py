"""Encodings that turn pairs of channels of q and k by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .module import FixedModule, RotaryModule


class Rope(RotaryModule):
    """RoPE: pair p turns by m w_p, w_p = base^(-2p / rotary_dim) (Su et al., 2021).

    layout: "interleaved" pairs (2p, 2p + 1) or "halves" (p, p + rotary_dim / 2);
    it has no default, for the wrong one is right at position 0 only. scaling: a
    dict as in config.json, {"rope_type": "yarn", "factor": 4.0, ...}.
    angles: "exact", or "float32" for the arithmetic of Hugging Face. further: what
    else `locus.Rope` takes: place, frequencies, softmax_factor, temperature_beta,
    temperature_shift, temperature_span.
    """

    def __init__(
        self,
        head_dim: int,
        layout: str,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        scaling: dict[str, Any] | None = None,
        angles: str = "exact",
        **further: Any,
    ) -> None:
        super().__init__(
            head_dim=head_dim,
            layout=layout,
            base=base,
            rotary_dim=rotary_dim,
            scaling=scaling,
            angles=angles,
            **further,
        )


class Rope2D(RotaryModule):
    """Axial RoPE: half the pairs turn by the row, half by the column.

    Positions are raster indices y * width + x; causality and windows go by them.
    frequencies: "shared" by rows and columns, or "alternating", rows the even and
    columns the odd ones (Pixtral).
    """

    def __init__(
        self,
        head_dim: int,
        layout: str,
        width: int,
        base: float = 10000.0,
        frequencies: str = "shared",
    ) -> None:
        super().__init__(
            head_dim=head_dim,
            layout=layout,
            width=width,
            base=base,
            frequencies=frequencies,
        )


class MRope(RotaryModule):
    """M-RoPE: pairs dealt to time, height and width (Qwen2-VL, Qwen3-VL).

    Plain positions are text and turn as those of `Rope`; tokens of images and
    videos are at `locus.pack_position(t, h, w)`. dealing: "chunked" or
    "interleaved".
    """

    def __init__(
        self,
        head_dim: int,
        layout: str,
        sections: Sequence[int],
        dealing: str = "chunked",
        base: float = 1e6,
    ) -> None:
        super().__init__(
            head_dim=head_dim,
            layout=layout,
            sections=list(sections),
            dealing=dealing,
            base=base,
        )


class XPos(FixedModule):
    """RoPE whose pair p also fades by zeta_p^((m - n) / scale_base).

    The factor belongs to pairs of tokens, so there is no `rotate`.
    """

    def __init__(
        self,
        head_dim: int,
        layout: str,
        base: float = 10000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
    ) -> None:
        super().__init__(
            head_dim=head_dim,
            layout=layout,
            base=base,
            scale_base=scale_base,
            gamma=gamma,
        )
