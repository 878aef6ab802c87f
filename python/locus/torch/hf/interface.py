"""`attn_implementation="locus"` for models with transformers' attention interface.

The model rotates q and k itself and hands them over with a mask; Locus runs the
attention. Grouped heads stay grouped, masks stay O(L).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional import attention
from . import masks

NAME = "locus"


def refuse_dropout(p: float, module: Any) -> None:
    """Attention has no dropout of probabilities."""
    if p > 0 and not getattr(module, "locus_ignores_dropout", False):
        raise ValueError(
            f"Locus has no dropout on attention probabilities, got p = {p} in "
            f"{type(module).__name__}; call model.eval(), set the dropout of the "
            f"config to 0, or patch(model, ignore_attention_dropout=True)"
        )


def visibility_of(
    mask: Any, module: Any, q_length: int, kv_length: int, is_causal: bool | None = None
) -> masks.Visibility:
    """What the mask argument of a layer says."""
    if isinstance(mask, masks.Visibility):
        return mask
    if isinstance(mask, Tensor):
        # Every layer gets the same tensor; one look is enough while it stays.
        version, known = getattr(mask, "_locus_visibility", (None, None))
        if version != mask._version or known is None:
            known = masks.from_dense(mask)
            mask._locus_visibility = (mask._version, known)
        return known
    if mask is not None:
        raise TypeError(f"cannot read a mask of type {type(mask).__name__}")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if is_causal and 1 < q_length != kv_length:
        raise ValueError(
            f"{type(module).__name__} is causal and passes no mask, so where its "
            f"{q_length} queries stand among {kv_length} keys is not known"
        )
    start = max(kv_length - q_length, 0)
    return masks.Visibility(q_length, kv_length, start, causal=bool(is_causal))


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """query [B, Hq, Lq, D], key and value [B, Hkv, Lk, D] -> [B, Lq, Hq, D]."""
    refuse_dropout(dropout, module)
    for name in ("position_bias", "s_aux", "cache", "head_mask"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f'attn_implementation="locus" cannot honour {name} of '
                f"{type(module).__name__}; see locus.torch.patch for the models "
                f"whose biases it knows"
            )
    if kwargs.get("output_attentions"):
        raise ValueError(
            "Locus never forms the attention probabilities, so output_attentions "
            'must be False; use attn_implementation="eager" to see them'
        )
    q_length, kv_length = query.shape[2], key.shape[2]
    if attention_mask is None and sliding_window and kv_length > sliding_window:
        raise ValueError(
            f"{type(module).__name__} has a sliding window of {sliding_window} but "
            f"passes no mask, so which keys it means is not known"
        )
    mask = visibility_of(attention_mask, module, q_length, kv_length, is_causal)
    out = attention(query, key, value, scale=scaling, softcap=softcap, **mask.options())
    return out.transpose(1, 2).contiguous(), None


def register() -> None:
    """Makes `attn_implementation="locus"` known to transformers.

    Importing `locus.torch` does this by itself once transformers is there.
    """
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, masks.from_function)
