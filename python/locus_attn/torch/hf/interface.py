"""`attn_implementation="locus"` for models with transformers' attention interface.

The model rotates q and k itself and hands them over with a mask, and some with
sinks or a bias per pair; Locus runs the attention. Grouped heads stay grouped,
masks stay O(L) where they can. Whatever else a model hands over is either known to
have no part in attention or refused.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from ..functional import attention
from . import masks

NAME = "locus"

# What attention_forward understands, beside q, k, v and the mask.
UNDERSTOOD = frozenset(
    {"dropout", "scaling", "is_causal", "sliding_window", "softcap"}
    | {"s_aux", "position_bias", "output_attentions"}
    | {"cu_seq_lens_q", "cu_seq_lens_k", "indices", "block_indices"}
    | {"query", "key", "value", "attention_mask"}
)

# What models pass besides and what has no part in attention itself: arguments of
# the whole model that are handed down to every layer.
UNRELATED = frozenset(
    {
        "cache_position",  # where a cache writes, which it has done
        "deterministic",  # ModernBERT: a kernel's choice, for the same numbers
        "input_ids",
        "labels",
        "logits_to_keep",
        "max_length_k",  # of the sequences that cu_seq_lens divides
        "max_length_q",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",  # q and k are rotated; packing is in the mask
        "return_dict",
        "use_cache",
    }
)

# What to do instead of passing these.
_PACKING = "give position_ids that start over with every packed sequence instead"
_INSTEAD = {"seq_idx": _PACKING}


def dropout_of(p: float, module: Any) -> float:
    """The dropout of attention weights in a layer, which patch may switch off."""
    return 0.0 if getattr(module, "locus_ignores_dropout", False) else float(p)


# Where transformers collects the outputs of layers that a call asks for; set by
# `register`.
_collector: Any = None


def weights_asked(asked: bool | None = False) -> bool:
    """Whether a call wants the attention weights, which cost a number per pair.

    asked: the argument output_attentions, where a model hands it down. Many do
    not: transformers then collects what the layers return.
    """
    collected = None if _collector is None else _collector.get()
    return bool(asked) or any("attentions" in name for name in collected or ())


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
            # What trains belongs to the graph of one pass.
            if not mask.requires_grad:
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


@torch.compiler.disable
def _packed(
    module: Any, mask: masks.Visibility, starts_q: Any, starts_k: Any
) -> masks.Visibility:
    """The same mask, divided into packed sequences."""

    def segments(starts: Any, length: int, name: str) -> Tensor:
        if starts is None or int(starts[0]) != 0 or int(starts[-1]) != length:
            told = None if starts is None else starts.tolist()
            raise ValueError(
                f"cu_seq_lens_{name} of {type(module).__name__} must go from 0 to "
                f"{length}, got {told}"
            )
        ends = starts[1:].long().contiguous()
        return torch.bucketize(torch.arange(length), ends, right=True)[None]

    mask = dataclasses.replace(mask, _options=None)
    mask.partition(
        segments(starts_q, mask.q_length, "q"), segments(starts_k, mask.kv_length, "k")
    )
    return mask


@torch.compiler.disable
def _selected(module: Any, mask: masks.Visibility, indices: Tensor) -> masks.Visibility:
    """The same mask, for the keys [B, Lq, N] that an indexer selected."""
    fits = indices.dim() == 3 and indices.shape[1] == mask.q_length
    if not fits or (
        indices.numel() and not 0 <= indices.min() <= indices.max() < mask.kv_length
    ):
        raise ValueError(
            f"indices of {type(module).__name__} must be [batch, {mask.q_length} "
            f"queries, selected keys below {mask.kv_length}], got {list(indices.shape)}"
        )
    shape = (*indices.shape[:2], mask.kv_length)
    chosen = torch.zeros(shape, dtype=torch.bool).scatter(-1, indices.long(), True)
    pairs = chosen[:, None]
    pairs = pairs if mask.pairs is None else pairs & mask.pairs
    return dataclasses.replace(mask, pairs=pairs, _options=None)


@torch.compiler.disable
def _block_mask(
    module: Any, query: Tensor, key: Tensor, mask: Any, block_indices: Tensor
) -> Tensor:
    """The mask that a module makes of the blocks that its indexer selected."""
    make = getattr(getattr(module, "indexer", None), "build_block_mask", None)
    if make is None:
        raise ValueError(
            f'attn_implementation="locus" cannot honour block_indices of '
            f"{type(module).__name__}, which has no indexer to say what its blocks are"
        )
    if isinstance(mask, masks.Visibility):
        mask = mask.dense()
    length, dtype = key.shape[2], query.dtype
    places = torch.arange(length - query.shape[2], length).expand(query.shape[0], -1)
    return make(block_indices, mask, length, dtype, query.device, places)


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
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    indices: Tensor | None = None,
    block_indices: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """query [B, Hq, Lq, D], key and value [B, Hkv, Lk, D] -> [B, Lq, Hq, D].

    is_causal and sliding_window matter where there is no mask, as in eager
    attention: a mask says all of it. s_aux [Hq]: the logits of sinks.
    position_bias [B or 1, Hq or 1, Lq or 1, Lk]: added to the scores. cu_seq_lens_q
    and cu_seq_lens_k [sequences + 1]: where packed sequences start and end. indices
    [B, Lq, N]: the only keys that a query sees, of sparse attention; block_indices
    [B, heads, Lq, N]: the only blocks of keys, as the module divides them. Also
    returns the weights [B, Hq, Lq, Lk] where the call asks for them, without a
    gradient.
    """
    _refuse_unknown(module, kwargs)
    q_length, kv_length = query.shape[2], key.shape[2]
    if attention_mask is None and sliding_window and kv_length > sliding_window:
        raise ValueError(
            f"{type(module).__name__} has a sliding window of {sliding_window} but "
            f"passes no mask, so which keys it means is not known"
        )
    if block_indices is not None:
        attention_mask = _block_mask(module, query, key, attention_mask, block_indices)
    mask = visibility_of(attention_mask, module, q_length, kv_length, is_causal)
    if indices is not None:
        mask = _selected(module, mask, indices)
    if cu_seq_lens_q is not None or cu_seq_lens_k is not None:
        mask = _packed(module, mask, cu_seq_lens_q, cu_seq_lens_k)
    # What patch(model, encoding=...) gave, beside the positions of the model.
    encoding = getattr(module, "locus_encoding", None)
    asked = weights_asked(output_attentions)
    options = {
        "scale": scaling,
        "softcap": softcap,
        "sinks": s_aux,
        "dropout": dropout_of(dropout, module),
        "return_weights": asked,
        **mask.options(),
    }
    if position_bias is not None:
        added = options.get("pair_bias")
        options["pair_bias"] = position_bias if added is None else position_bias + added
    result = attention(query, key, value, encoding, **options)
    out, weights = result if asked else (result, None)
    if weights is not None:
        weights = weights.to(query.dtype)
    return out.transpose(1, 2).contiguous(), weights


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
