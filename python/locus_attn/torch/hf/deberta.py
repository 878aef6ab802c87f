"""DeBERTa, v1 and v2: content to position, position to content.

    s_ij = (q_i.k_j + q_i.K[b] + k_j.Q[b]) / sqrt((1 + t) d),    b = bucket(i - j)

K and Q are the projected relative embeddings [heads, 2 span, d], t how many of
the two the model has. The original forms [B H, L, L] several times over, and
int64 [1, L, L] buckets; here the encoder passes neither those nor a dense mask.
The bucket of v1 is the offset itself, and its q, k and v are one projection.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import attention
from ..kinds import Encoding, describe
from .interface import dropout_of, visibility_of, weights_asked
from .masks import Visibility, from_dense
from .patching import Swaps


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        if type(module).__name__ == "DisentangledSelfAttention":
            if getattr(module, "talking_head", False):
                raise ValueError(
                    f"patch cannot run {type(model).__name__}: talking_head mixes the "
                    f"scores of its heads; leave it on its own attention"
                )
            swaps.set(module, "forward", functools.partial(_forward, module))
        if type(module).__name__ in ("DebertaEncoder", "DebertaV2Encoder"):
            swaps.set(module, "get_attention_mask", _mask)
            swaps.set(module, "get_rel_pos", _no_buckets)


@torch.compiler.disable
def _mask(attention_mask: Tensor) -> Visibility:
    """Padding [B, L], or a dense mask [B, L, L] or [B, 1, L, L]."""
    if attention_mask.dim() == 2:
        keep = attention_mask.bool()
        length = keep.shape[1]
        return Visibility(length, length, keep=None if bool(keep.all()) else keep)
    if attention_mask.dim() == 3:
        attention_mask = attention_mask[:, None]
    length = attention_mask.shape[-1]
    return from_dense(attention_mask.bool(), length, length, "deberta-v2")


def _no_buckets(
    hidden_states: Tensor, query_states: Any = None, relative_pos: Any = None
) -> None:
    if relative_pos is not None:
        raise ValueError("a patched DeBERTa makes its own buckets; relative_pos is set")


def _forward(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Any,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Any = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """hidden_states [B, L, d] -> [B, L, d]."""
    if relative_pos is not None:
        raise ValueError("a patched DeBERTa makes its own buckets; relative_pos is set")

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_attention_heads, -1)).transpose(-3, -2)

    first = hasattr(self, "in_proj")
    if first and query_states is not None:
        raise ValueError("a patched DeBERTa makes its own queries; query_states is set")
    source = hidden_states if query_states is None else query_states
    if first:
        q, k, v = heads(self.in_proj(hidden_states)).chunk(3, dim=-1)
        q, v = q + heads(self.q_bias[None]), v + heads(self.v_bias[None])
        terms = 1 + len(self.pos_att_type)
    else:
        q, k = heads(self.query_proj(source)), heads(self.key_proj(hidden_states))
        v = heads(self.value_proj(hidden_states))
        terms = 1 + ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
    seen = visibility_of(attention_mask, self, q.shape[2], k.shape[2], is_causal=False)
    encoding = _encoding(self, heads, rel_embeddings)
    asked = weights_asked(output_attentions)
    result = attention(
        *(q, k, v, encoding),
        scale=(terms * q.shape[-1]) ** -0.5,
        dropout=dropout_of(self.dropout.p if self.training else 0.0, self),
        return_weights=asked,
        **seen.options(),
    )
    out, weights = result if asked else (result, None)
    return out.transpose(1, 2).flatten(2), weights


def _encoding(self: Any, heads: Any, rel_embeddings: Tensor | None) -> Any:
    if not self.relative_attention or rel_embeddings is None:
        return None
    rows, buckets = self.pos_dropout(rel_embeddings), 0
    if hasattr(self, "in_proj"):
        projections = ("pos_proj", "pos_q_proj")
    else:
        rows, buckets = rows[: 2 * self.pos_ebd_size], max(self.position_buckets, 0)
        shared = self.share_att_key
        projections = ("key_proj" if shared else "pos_key_proj",)
        projections += ("query_proj" if shared else "pos_query_proj",)
    names, tables = [], []
    for name, project in zip(("c2p", "p2c"), projections, strict=True):
        if name in self.pos_att_type:
            names.append(name)
            tables.append(heads(getattr(self, project)(rows)))
    if not names:
        return None
    return Encoding(_kind(tuple(names), buckets, self.max_relative_positions), tables)


@functools.lru_cache(maxsize=64)
def _kind(names: tuple[str, ...], buckets: int, reach: int) -> str:
    return describe(
        "Deberta", *names, position_buckets=buckets, max_relative_positions=reach
    )
