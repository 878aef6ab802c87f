"""What the modules of encodings have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .functional import attention, rotate
from .kinds import Encoding, describe
from .ops import embed_op


class EncodingModule(nn.Module):
    """An encoding as a module: settings, and parameters in their usual shapes.

    `encoding()` is what `locus.torch.attention` takes; calling the module is
    attention itself: `module(q, k, v, causal=True)`.
    """

    def __init__(self, kind: str, /, **shown: Any) -> None:
        """kind: from `describe`. shown: what the module prints of itself."""
        super().__init__()
        self.kind = kind
        self._shown = shown

    def encoding(self) -> Encoding:
        """The encoding over the present parameters."""
        return Encoding(self.kind)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`locus.torch.attention(q, k, v, self, **options)`."""
        return attention(q, k, v, self.encoding(), **options)

    def extra_repr(self) -> str:
        shown = {n: v for n, v in self._shown.items() if v is not None}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class FixedModule(EncodingModule):
    """An encoding without parameters: settings are all there is."""

    def __init__(self, **settings: Any) -> None:
        kind = describe(type(self).__name__, **settings)
        super().__init__(kind, **settings)
        # Wrong settings fail here, not at the first call.
        self.encoding().native()


class RotaryModule(FixedModule):
    """An encoding that rotates q and k."""

    def rotate(
        self,
        x: Tensor,
        positions: Tensor | Sequence[int] | None = None,
        inverse: bool = False,
    ) -> Tensor:
        """x [B, H, L, D] rotated by its positions, [L] or [B, L]."""
        return rotate(x, self.encoding(), positions, inverse)


class InputModule(FixedModule):
    """An encoding of the input: x + E[pos]. Attention itself sees nothing of it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        width = self.encoding().native().embed([0]).shape[1]
        self.dim = settings.get("dim") or width
        # Zero channels appended to x before the addition: a concatenation.
        self.widen = width - self.dim

    def embed(
        self, positions: Tensor | Sequence[int], dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Rows E[pos], [..., dim + widen], for positions [...]."""
        where = torch.as_tensor(positions, dtype=torch.int64)
        return embed_op(where, self.kind, self.dim + self.widen, dtype)

    def forward(
        self, x: Tensor, positions: Tensor | Sequence[int] | None = None
    ) -> Tensor:
        """x [B, L, dim] + E[pos]; positions [L] or [B, L], 0 .. L - 1 if None."""
        if x.shape[-1] != self.dim:
            raise ValueError(
                f"x must be [..., {self.dim}], as wide as {type(self).__name__}, "
                f"got {list(x.shape)}"
            )
        if positions is None:
            positions = torch.arange(x.shape[-2])
        rows = self.embed(positions, x.dtype)
        if self.widen:
            x = nn.functional.pad(x, (0, self.widen))
        return x + rows
