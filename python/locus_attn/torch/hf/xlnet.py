"""XLNet: Transformer-XL's four terms, and a fifth for token types.

    s_ij = scale ((q_i + u).k_j + (q_i + v).R_(m-n) + (q_i + w).E[t_i != t_j])

The fifth term is, up to a constant of the row, -D_i [t_i = t_j] with
D_i = (q_i + w).(E[1] - E[0]). So it becomes channels of the dot product, one a
token type t: q gets -D_i [t_i = t], k gets [t_j = t]. Softmax does not see the
constant, nor does any gradient.

Shapes are the original's, [length, batch, d]; the tokens of a memory have type 0
and are never padding. The query stream g asks at given positions only, one a
prediction. A permutation mask must hide the same tokens from every query, as in
generation; orders of prediction as in pretraining are refused.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch
from torch import Tensor, nn

from ..functional import attention
from ..kinds import Encoding, describe
from .interface import dropout_of, weights_asked
from .masks import Visibility
from .patching import Swaps

_KIND = describe("TransformerXL", "r", "u", "v")


@dataclasses.dataclass
class _Stream:
    """Queries: which keys they see, and their token types, one-hot [B, Lq, T]."""

    options: dict[str, Any]
    types: Tensor | None


@dataclasses.dataclass
class _Call:
    """What the layers of one forward pass share."""

    rows: Tensor  # sinusoids of the offsets -(Lk - 1) .. Lk - 1: [2 Lk - 1, d]
    k_types: Tensor | None  # one-hot [B, Lk, T]
    content: _Stream
    query: _Stream | None
    # Of each layer [B, H, Lq, Lk], if they are asked for.
    weights: list[Tensor] | None = None


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        if type(module).__name__ == "XLNetModel":
            swaps.set(module, "forward", functools.partial(_model_forward, module))


def _sinusoids(model: Any, length: int) -> Tensor:
    """In float32 and in the order of operations of the original."""
    if model.bi_data:
        raise ValueError("a patched XLNet cannot read bi_data; it must be False")
    steps = torch.arange(0, model.d_model, 2).float()
    rates = 1 / torch.pow(10000, steps / model.d_model)
    offsets = torch.arange(1 - length, length).float()
    if model.clamp_len > 0:
        offsets = offsets.clamp(-model.clamp_len, model.clamp_len)
    return model.positional_embedding(offsets, rates)[:, 0]


def _layer(
    layer: Any, h: Tensor, g: Tensor | None, mems: Tensor | None, call: _Call
) -> tuple[Tensor, Tensor | None]:
    """h [Lq, B, d] and g [predictions, B, d] through one layer."""
    self = layer.rel_attn
    source = h if mems is None or mems.dim() < 2 else torch.cat([mems, h])
    k, v = _heads(source, self.k), _heads(source, self.v)

    def attend(x: Tensor, stream: _Stream) -> Tensor:
        out = _attend(self, _heads(x, self.q), k, v, stream, call)
        return layer.ff(self.post_attention(x, out.permute(2, 0, 1, 3)))

    above = attend(h, call.content)
    if g is None or call.query is None:
        return above, None
    return above, attend(g, call.query)


def _heads(x: Tensor, weight: Tensor) -> Tensor:
    """[L, B, d] to [B, heads, L, D]."""
    return torch.einsum("ibh,hnd->bnid", x, weight)


def _attend(
    self: Any, q: Tensor, k: Tensor, v: Tensor, stream: _Stream, call: _Call
) -> Tensor:
    r = torch.einsum("jh,hnd->njd", call.rows.to(self.r.dtype), self.r)
    u, bias = self.r_w_bias, self.r_r_bias
    if stream.types is not None and call.k_types is not None:
        step = self.seg_embed[1] - self.seg_embed[0]
        d = torch.einsum("bnid,nd->bni", q + self.r_s_bias[:, None], step)
        types = stream.types.to(q.dtype)[:, None]
        q = torch.cat([q, -d[..., None] * types], dim=-1)
        extra = call.k_types.to(k.dtype)[:, None].expand(-1, self.n_head, -1, -1)
        k = torch.cat([k, extra], dim=-1)
        width = (0, types.shape[-1])
        r, u, bias = (nn.functional.pad(x, width) for x in (r, u, bias))
    result = attention(
        *(q, k, v, Encoding(_KIND, [r, u, bias])),
        scale=self.scale,
        dropout=dropout_of(self.dropout.p if self.training else 0.0, self),
        return_weights=call.weights is not None,
        **stream.options,
    )
    if call.weights is None:
        return result
    call.weights.append(result[1])
    return result[0]


def _one_hot(token_types: Tensor | None, memory: int) -> tuple[Any, Any]:
    if token_types is None:
        return None, None
    q_types = nn.functional.one_hot(token_types)
    zeros = token_types.new_zeros(token_types.shape[0], memory)
    k_types = nn.functional.one_hot(
        torch.cat([zeros, token_types], dim=1), q_types.shape[-1]
    )
    return q_types, k_types


@torch.compiler.disable
def _hidden(padding: Tensor | None, perm_mask: Tensor | None) -> Tensor | None:
    """bool [B, L], True for tokens that nobody sees, or None."""
    if perm_mask is not None:
        columns = perm_mask[:, 0] > 0
        if not torch.equal(perm_mask > 0, columns[:, None].expand_as(perm_mask)):
            raise ValueError(
                "a patched XLNet takes a perm_mask that hides the same tokens from "
                "every query; call locus.torch.unpatch(model) for other orders"
            )
        padding = columns if padding is None else padding | columns
    return padding if padding is not None and bool(padding.any()) else None


@torch.compiler.disable
def _targets(target_mapping: Tensor) -> Tensor:
    """[B, predictions, L] of ones and zeros to positions [B, predictions]."""
    ones = (target_mapping == 1).sum(-1) == 1
    zeros = (target_mapping == 0).sum(-1) == target_mapping.shape[-1] - 1
    if not bool((ones & zeros).all()):
        raise ValueError("each row of target_mapping must have a single 1 and zeros")
    return target_mapping.argmax(-1)


def _seen(
    model: Any, q_length: int, memory: int, length: int, hidden: Tensor | None
) -> dict[str, Any]:
    """Options of attention: causality, memory window, tokens that exist."""
    if model.attn_type not in ("uni", "bi"):
        raise ValueError(f"attn_type must be uni or bi, got {model.attn_type}")
    seen = Visibility(q_length, memory + length, q_offset=memory + length - q_length)
    seen.causal = model.attn_type == "uni"
    if seen.causal and model.same_length:
        seen.limit(memory, None)
    if hidden is not None:
        seen.keep = ~nn.functional.pad(hidden, (memory, 0))
    return seen.options()


def _model_forward(
    self: Any,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    mems: Any = None,
    perm_mask: Tensor | None = None,
    target_mapping: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    input_mask: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    use_mems: bool | None = None,
    output_attentions: bool | None = None,
    output_hidden_states: bool | None = None,
    return_dict: bool | None = None,
    **kwargs: Any,
) -> Any:
    """The whole model: ids [B, L] -> last_hidden_state, mems, hidden states.

    last_hidden_state is [B, L, d], or [B, predictions, d] with target_mapping.
    """
    from transformers.models.xlnet.modeling_xlnet import XLNetModelOutput

    config = self.config
    asked = weights_asked(_or(output_attentions, config.output_attentions))
    if asked and target_mapping is not None:
        raise ValueError(
            "a patched XLNet has weights only for the predictions of target_mapping, "
            "so output_attentions must be False beside it"
        )
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("give one of input_ids and inputs_embeds")
    if input_mask is not None and attention_mask is not None:
        raise ValueError("give one of input_mask and attention_mask")
    if use_mems is None:
        use_mems = config.use_mems_train if self.training else config.use_mems_eval
    keep_states = _or(output_hidden_states, config.output_hidden_states)

    x = self.word_embedding(input_ids) if inputs_embeds is None else inputs_embeds
    h = self.dropout(x.transpose(0, 1))
    length = h.shape[0]
    has_mems = mems is not None and mems[0] is not None
    memory = mems[0].shape[0] if has_mems else 0
    padding = None
    if input_mask is not None:
        padding = input_mask > 0
    elif attention_mask is not None:
        padding = attention_mask == 0
    hidden = _hidden(padding, perm_mask)
    q_types, k_types = _one_hot(token_type_ids, memory)
    options = _seen(self, length, memory, length, hidden)
    rows = self.dropout(_sinusoids(self, memory + length))
    call = _Call(rows, k_types, _Stream(options, q_types), None, [] if asked else None)
    g = None
    if target_mapping is not None:
        where = _targets(target_mapping)
        batch, count = where.shape
        options = dict(_seen(self, count, memory, length, hidden))
        options["q_positions"] = where + memory
        options["k_positions"] = torch.arange(memory + length)
        if q_types is not None:
            q_types = q_types.take_along_dim(where[..., None], dim=1)
        call.query = _Stream(options, q_types)
        g = self.dropout(self.mask_emb.expand(count, batch, -1))
    new_mems, states = [], []
    for i, layer in enumerate(self.layer):
        mem = mems[i] if has_mems else None
        new_mems.append(self.cache_mem(h, mem) if use_mems else None)
        states += [h] if g is None else [h, g]
        h, g = _layer(layer, h, g, mem, call)
    states += [h] if g is None else [h, g]
    result = XLNetModelOutput(
        last_hidden_state=_batch_first(self.dropout(h if g is None else g)),
        mems=tuple(new_mems) if use_mems else None,
        hidden_states=tuple(map(_batch_first, states)) if keep_states else None,
        attentions=None if call.weights is None else tuple(call.weights),
    )
    return result if _or(return_dict, config.return_dict) else result.to_tuple()


def _batch_first(x: Tensor) -> Tensor:
    return x.transpose(0, 1).contiguous()


def _or(given: bool | None, default: bool) -> bool:
    return default if given is None else given
