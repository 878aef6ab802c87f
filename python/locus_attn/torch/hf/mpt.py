"""MPT: ALiBi by a row of numbers, which every layer gets.

    s_ij = scale q_i.k_j + slope_h (j - S + 1)

Up to a constant of the row this is ALiBi; the row is a bias per key, in O(L).
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn

from ..functional import attention
from .interface import dropout_of, visibility_of, weights_asked
from .patching import Swaps, pass_question_on


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        if type(module).__name__ == "MptBlock":
            part = module.attn
            swaps.set(part, "forward", functools.partial(_forward, part))
            pass_question_on(module, part, swaps)


def _forward(
    self: Any,
    hidden_states: Tensor,
    position_bias: Tensor,
    past_key_values: Any = None,
    attention_mask: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """hidden_states [B, L, d] -> [B, L, d]; position_bias [H, 1, S]."""
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    q, k, v = (
        x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in mixed.chunk(3, -1)
    )
    if past_key_values is not None:
        k, v = past_key_values.update(k, v, self.layer_idx)
    length = k.shape[2]
    if position_bias.shape[-1] < length:
        raise ValueError(
            f"MPT has biases for {position_bias.shape[-1]} keys (max_seq_len), "
            f"got {length}"
        )
    seen = visibility_of(attention_mask, self, q.shape[2], length, is_causal=True)
    asked = weights_asked(self.locus_asked)
    result = attention(
        *(q, k, v),
        scale=self.softmax_scale,
        key_bias=position_bias[None, :, 0, -length:].float(),
        dropout=dropout_of(self.attn_dropout_p if self.training else 0.0, self),
        return_weights=asked,
        **seen.options(),
    )
    out, weights = result if asked else (result, None)
    return self.out_proj(out.transpose(1, 2).flatten(2)), weights
