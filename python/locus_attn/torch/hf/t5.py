"""T5: one table of biases by bucket, shared by the layers of a stack.

    s_ij = q_i.k_j + B[h, bucket(n - m)]        no 1 / sqrt(d)

The original forms [1, heads, Lq, Lk] in the first layer and hands it down. Here
every layer takes the first layer's table instead, and nothing is handed down.
Cross-attention has no bias.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn

from ..functional import attention
from ..kinds import Encoding, describe
from .interface import dropout_of, visibility_of, weights_asked
from .patching import Swaps


def install(model: nn.Module, swaps: Swaps) -> None:
    for stack in model.modules():
        if type(stack).__name__ not in ("T5Stack", "MT5Stack"):
            continue
        first = stack.block[0].layer[0].SelfAttention
        for block in stack.block:
            for layer in block.layer:
                own = getattr(layer, "SelfAttention", None)
                cross = getattr(layer, "EncDecAttention", None)
                if own is not None:
                    swaps.set(own, "forward", functools.partial(_forward, own, first))
                if cross is not None:
                    forward = functools.partial(_forward, cross, None)
                    swaps.set(cross, "forward", forward)


@functools.lru_cache(maxsize=64)
def _kind(max_distance: int, bidirectional: bool) -> str:
    return describe(
        "T5Bias", "table", max_distance=max_distance, bidirectional=bidirectional
    )


def _encoding(holder: Any) -> Encoding:
    kind = _kind(holder.relative_attention_max_distance, not holder.is_decoder)
    return Encoding(kind, [holder.relative_attention_bias.weight])


def _forward(
    self: Any,
    holder: Any,
    hidden_states: Tensor,
    mask: Any = None,
    key_value_states: Tensor | None = None,
    position_bias: Any = None,
    past_key_values: Any = None,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None, Tensor | None]:
    """hidden_states [B, Lq, d] -> [B, Lq, d]; `holder` has the table, or is None.

    No bias is handed down; the weights [B, H, Lq, Lk] come where they are asked for.
    """
    if position_bias is not None:
        raise ValueError("a patched T5 makes its own biases; position_bias is not None")

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)

    q = heads(self.q(hidden_states))
    k, v = _keys_values(self, heads, hidden_states, key_value_states, past_key_values)
    seen = visibility_of(mask, self, q.shape[2], k.shape[2])
    encoding = None if holder is None else _encoding(holder)
    asked = weights_asked(output_attentions)
    result = attention(
        *(q, k, v, encoding),
        scale=self.scaling,
        dropout=dropout_of(self.dropout if self.training else 0.0, self),
        return_weights=asked,
        **seen.options(),
    )
    out, weights = result if asked else (result, None)
    return self.o(out.transpose(1, 2).flatten(2)), None, weights


def _keys_values(
    self: Any, heads: Any, hidden_states: Tensor, source: Tensor | None, cache: Any
) -> tuple[Tensor, Tensor]:
    """k, v [B, H, Lk, D], appended to the cache or taken from it."""
    crossing = source is not None
    both = hasattr(cache, "cross_attention_cache")
    mine = cache
    if both:
        mine = cache.cross_attention_cache if crossing else cache.self_attention_cache
    if both and crossing and cache.is_updated.get(self.layer_idx):
        layer = mine.layers[self.layer_idx]
        return layer.keys, layer.values
    x = source if source is not None else hidden_states
    k, v = heads(self.k(x)), heads(self.v(x))
    if mine is not None:
        k, v = mine.update(k, v, self.layer_idx)
        if both and crossing:
            cache.is_updated[self.layer_idx] = True
    return k, v
