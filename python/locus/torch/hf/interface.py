"""`attn_implementation="locus"` for models with transformers' attention interface.

The model rotates q and k itself and hands them over with a mask; Locus runs the
attention. Grouped heads stay grouped, masks stay O(L). Whatever else a model
hands over is either known to have no part in attention or refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..functional import attention
from . import masks

NAME = "locus"

# What attention_forward understands, beside q, k, v and the mask.
UNDERSTOOD = frozenset(
    {"dropout", "scaling", "is_causal", "sliding_window", "softcap"}
    | {"query", "key", "value", "attention_mask"}
)

# What models pass besides and what has no part in attention itself: arguments of
# the whole model that are handed down to every layer.
UNRELATED = frozenset(
    {
        "cache_position",  # where a cache writes, which it has done
        "deterministic",  # ModernBERT: a kernel's choice, for the same numbers
        "labels",
        "logits_to_keep",
        "num_items_in_batch",
        "output_attentions",  # refused if it is set
        "output_hidden_states",
        "output_router_logits",
        "position_ids",  # q and k are rotated; packing is in the mask
        "return_dict",
        "use_cache",
    }
)

# What to do instead of passing these.
_PACKING = "give position_ids that start over with every packed sequence instead"
_INSTEAD = dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx"), _PACKING)


def refuse_dropout(p: float, module: Any) -> None:
    """Attention has no dropout of probabilities."""
    if p > 0 and not getattr(module, "locus_ignores_dropout", False):
        raise ValueError(
            f"Locus has no dropout on attention probabilities, got p = {p} in "
            f"{type(module).__name__}; call model.eval(), set the dropout of the "
            f"config to 0, or patch(model, ignore_attention_dropout=True)"
        )


# Where transformers collects the outputs of layers that a call asks for; set by
# `register`.
_collector: Any = None


def refuse_probabilities(module: Any, asked: bool | None = False) -> None:
    """Attention has no probabilities to return.

    asked: the argument output_attentions, where a model hands it down. Many do
    not: transformers then collects what the layers return.
    """
    collected = None if _collector is None else _collector.get()
    if asked or any("attentions" in name for name in collected or ()):
        raise ValueError(
            f"Locus never forms the attention probabilities of "
            f"{type(module).__name__}, so output_attentions must be False; use "
            f'attn_implementation="eager" to see them'
        )


def _refuse_unknown(module: Any, given: dict[str, Any]) -> None:
    for name, value in given.items():
        if value is not None and name not in UNRELATED:
            instead = _INSTEAD.get(name, 'use attn_implementation="eager"')
            raise ValueError(
                f'attn_implementation="locus" cannot honour {name} of '
                f"{type(module).__name__}; {instead}"
            )


def visibility_of(
    mask: Any, module: Any, q_length: int, kv_length: int, is_causal: bool | None = None
) -> masks.Visibility:
    """What the mask argument of a layer says."""
    if isinstance(mask, masks.Visibility):
        return mask.fit(q_length, kv_length)
    if isinstance(mask, Tensor):
        # Every layer gets the same tensor; one look is enough while it stays.
        state = (mask._version, q_length, kv_length)
        seen, known = getattr(mask, "_locus_visibility", (None, None))
        if seen != state or known is None:
            known = masks.from_dense(mask, q_length, kv_length, type(module).__name__)
            mask._locus_visibility = (state, known)
        return known
    if mask is not None:
        raise TypeError(
            f"{type(module).__name__} passes a mask of type {type(mask).__name__}; "
            f"a tensor or None would be right"
        )
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
    """query [B, Hq, Lq, D], key and value [B, Hkv, Lk, D] -> [B, Lq, Hq, D].

    is_causal and sliding_window matter where there is no mask, as in eager
    attention: a mask says all of it.
    """
    refuse_dropout(dropout, module)
    refuse_probabilities(module, kwargs.get("output_attentions"))
    _refuse_unknown(module, kwargs)
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
    from transformers.modeling_utils import AttentionInterface, PreTrainedModel
    from transformers.utils import output_capturing

    from .support import check_when_built

    global _collector
    _collector = output_capturing._active_collector
    AttentionInterface.register(NAME, attention_forward)
    AttentionMaskInterface.register(NAME, masks.from_function)
    check_when_built(PreTrainedModel)
