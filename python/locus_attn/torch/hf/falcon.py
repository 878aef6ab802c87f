"""Falcon: rotary positions, or ALiBi where positions count the tokens kept.

    s_ij = (q_i.k_j + slope_h n_j) / sqrt(d),    n_j = kept keys up to j, minus 1

slope_h n_j is a bias per key, in O(L). The model would add it to a dense mask; so
it is told to make none, and the layers make their own. (Its eager attention adds
the bias twice, its sdpa once; here it is added once, as in training.)
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import attention
from .interface import dropout_of, visibility_of, weights_asked
from .masks import Visibility
from .patching import Swaps


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        name = type(module).__name__
        if name in ("FalconAttention", "FalconFlashAttention2"):
            forward = functools.partial(_forward, module, bool(module.config.alibi))
            swaps.set(module, "forward", forward)
        elif name == "FalconModel":
            swaps.set(module, "use_alibi", False)


def _slopes(heads: int) -> Tensor:
    """ALiBi's: powers of 2 ** (-8 / n), n a power of two; odd ones between."""
    whole = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / whole) for i in range(heads - whole)]
    return torch.tensor(slopes)


def _key_bias(self: Any, seen: Visibility, length: int) -> Tensor:
    """[B or 1, H, Lk], of slopes that are rounded as the model rounds them."""
    keep = torch.ones(1, length) if seen.keep is None else seen.keep
    n = keep.long().cumsum(-1) - 1
    slopes = _slopes(self.num_heads).bfloat16().float()
    return slopes[:, None] * n[:, None] * self.inv_norm_factor


def _forward(
    self: Any,
    biased: bool,
    hidden_states: Tensor,
    alibi: None = None,
    attention_mask: Any = None,
    position_ids: Any = None,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    position_embeddings: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """hidden_states [B, L, d] -> [B, L, d]."""
    q, k, v = (
        x.transpose(1, 2)
        for x in self._split_heads(self.query_key_value(hidden_states))
    )
    if not biased:
        from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

        q, k = apply_rotary_pos_emb(q, k, *position_embeddings)
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    seen = visibility_of(attention_mask, self, q.shape[2], k.shape[2], is_causal=True)
    asked = weights_asked(output_attentions)
    # With rotary positions the original has no dropout here.
    drops = self.attention_dropout.p if self.training and biased else 0.0
    result = attention(
        *(q, k, v),
        scale=self.head_dim**-0.5,
        key_bias=_key_bias(self, seen, k.shape[2]) if biased else None,
        dropout=dropout_of(drops, self),
        return_weights=asked,
        **seen.options(),
    )
    out, weights = result if asked else (result, None)
    return self.dense(out.transpose(1, 2).flatten(2)), weights
