"""GPT-J, CodeGen and GPT-Neo: attention of their own, positions as in the interface.

    s_ij = q_i.k_j / scale        GPT-Neo: no scale, and windows in local layers

q and k come rotated, or with learned positions added before. Only `_attn`, the
part between the projections, is replaced.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn

from ..functional import attention
from .interface import dropout_of, visibility_of, weights_asked
from .patching import Swaps, pass_question_on

_CLASSES = ("GPTJAttention", "CodeGenAttention", "GPTNeoSelfAttention")
_BLOCKS = ("GPTJBlock", "CodeGenBlock", "GPTNeoBlock")


def install(model: nn.Module, swaps: Swaps) -> None:
    for block in model.modules():
        if type(block).__name__ in _BLOCKS:
            for part in block.modules():
                if type(part).__name__ in _CLASSES:
                    swaps.set(part, "_attn", functools.partial(_attend, part))
                    pass_question_on(block, part, swaps)


def _attend(
    self: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None
) -> tuple[Tensor, Tensor | None]:
    """query [B, H, Lq, D], key and value [B, H, Lk, D] -> [B, H, Lq, D], weights."""
    name = type(self).__name__
    scale = 1.0 if name == "GPTNeoSelfAttention" else 1.0 / float(self.scale_attn)
    seen = visibility_of(
        attention_mask, self, query.shape[2], key.shape[2], is_causal=True
    )
    options = dict(seen.options())
    if name == "GPTNeoSelfAttention":
        options.update(_window(self))
    if name == "CodeGenAttention" and "pair_bias" in options:
        # The original adds its mask before it divides.
        options["pair_bias"] = options["pair_bias"] * scale
    asked = weights_asked(self.locus_asked)
    result = attention(
        *(query.to(value.dtype), key.to(value.dtype), value),
        scale=scale,
        dropout=dropout_of(self.attn_dropout.p if self.training else 0.0, self),
        return_weights=asked,
        **options,
    )
    out, weights = result if asked else (result, None)
    return out, weights


def _window(self: Any) -> dict[str, int]:
    """What a local layer sees: the last row of its triangle of ones says how far."""
    reach = int(self.bias[0, 0, -1].sum())
    return {"window": reach} if reach < self.bias.shape[-1] else {}
