"""BLOOM: ALiBi, where positions count the tokens that are not padding.

    s_ij = q_i.k_j / sqrt(d) + slope_h n_j,    n_j = kept keys up to j, minus 1

Up to a constant of the row, slope_h n_j is -slope_h |m_i - n_j| for the keys that
causality lets through, and softmax does not see constants of a row.
"""

from __future__ import annotations

import functools
from typing import Any

from torch import Tensor, nn

from ..functional import attention
from ..kinds import Encoding, describe
from .interface import dropout_of, visibility_of, weights_asked
from .masks import Visibility
from .patching import Swaps


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        if type(module).__name__ == "BloomAttention":
            swaps.set(module, "forward", functools.partial(_forward, module))


def _positions(seen: Visibility) -> dict[str, Tensor]:
    """ALiBi's positions, where padding makes them differ from the indices."""
    if seen.keep is None:
        return {}
    # Padding before the first token stands at -1 and sees nothing.
    n = seen.keep.long().cumsum(-1) - 1
    rows = seen.q_indices() - seen.kv_offset
    return {"q_positions": n[:, rows], "k_positions": n}


def _forward(
    self: Any,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Any,
    layer_past: Any = None,
    use_cache: bool = False,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """hidden_states [B, L, d] -> [B, L, d], the residual added."""
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise ValueError(
            "a patched BLOOM does not split its projection; set slow_but_exact=False"
        )
    q, k, v = self._reshape(self.query_key_value(hidden_states))
    if layer_past is not None:
        k, v = layer_past.update(k, v, self.layer_idx)
    seen = visibility_of(attention_mask, self, q.shape[2], k.shape[2])
    options = {**seen.options(), **_positions(seen)}
    encoding = Encoding(_kind(self.num_heads))
    asked = weights_asked(output_attentions)
    result = attention(
        *(q, k, v, encoding),
        scale=self.inv_norm_factor,
        dropout=dropout_of(self.attention_dropout.p if self.training else 0.0, self),
        return_weights=asked,
        **options,
    )
    out, weights = result if asked else (result, None)
    out = self.dense(out.transpose(1, 2).flatten(2))
    out = nn.functional.dropout(out, self.hidden_dropout, self.training)
    return residual + out, weights


@functools.lru_cache(maxsize=64)
def _kind(heads: int) -> str:
    return describe("Alibi", heads=heads)
