"""The operators `locus::attention`, `locus::attention_backward`, `locus::rotate`
and `locus::embed`.

They are registered with autograd formulas and fake kernels (shapes only), so
that autograd, torch.compile, torch.export and torch.library.opcheck see through
them. An encoding enters as its tensors and its kind, see `kinds`.

Shapes: q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv] give
out [B, Hq, Lq, Dv] of q's type and lse [B, Hq, Lq] in float32, where

    lse_i = ln sum_j exp(s_ij)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import locus

from . import kinds
from .raw import integers, raw
from .raw import threads as _threads

# The options of a call, as arguments of an operator. The window is inclusive and
# has both ends or none; threads = None takes torch.get_num_threads().
_OPTIONS = (
    "bool causal, bool by_index, float? scale, int? window_left, "
    "int? window_right, float? softcap, Tensor? q_positions, Tensor? k_positions, "
    "Tensor? key_lengths, Tensor? q_segments, Tensor? k_segments, int? threads"
)


def _keywords(
    causal, by_index, scale, left, right, softcap,
    q_pos, k_pos, lengths, q_seg, k_seg, threads,
) -> dict[str, Any]:  # fmt: skip
    """The keywords of locus.attention for the arguments of an operator."""
    return {
        "causal": causal,
        "by_index": by_index,
        "scale": scale,
        "window": None if left is None else (left, right),
        "softcap": softcap,
        "q_positions": integers(q_pos),
        "k_positions": integers(k_pos),
        "key_lengths": integers(lengths),
        "q_segments": integers(q_seg),
        "k_segments": integers(k_seg),
        "threads": _threads(threads),
    }


@torch.library.custom_op(
    "locus::attention",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor[] params, str kind, "
    f"{_OPTIONS}) -> (Tensor, Tensor)",
)
def attention_op(q, k, v, params, kind, *options):
    """(out, lse) of `functional.attention`."""
    encoding = kinds.build(kind, params)
    return locus.attention(
        raw(q),
        raw(k),
        raw(v),
        encoding,
        return_lse=True,
        **_keywords(*options),
    )


@attention_op.register_fake
def _(q, k, v, params, kind, *options):
    batch, heads, length, _ = q.shape
    out = q.new_empty(batch, heads, length, v.shape[3])
    return out, q.new_empty(batch, heads, length, dtype=torch.float32)


def refuse_lse_gradient(d_lse: Tensor | None) -> None:
    """lse has no gradient yet. Unused, or used as data, it gets zeros at most.

    This is told when the values are there: a compiled graph asks for the gradient
    of every output, whether the loss depends on it or not.
    """
    if d_lse is not None and bool(d_lse.any()):
        raise NotImplementedError(
            "locus.torch has no gradient of lse, and what was computed from it asks "
            "for one; use lse.detach() where it is data"
        )


@torch.library.custom_op(
    "locus::attention_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor d_out, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor out, "
    f"Tensor lse, Tensor[] params, str kind, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor[])",
)
def attention_backward_op(d_out, d_lse, q, k, v, out, lse, params, kind, *options):
    """(d_q, d_k, d_v, d_params) of sum(d_out * out); d_lse must be zero."""
    refuse_lse_gradient(d_lse)
    encoding = kinds.build(kind, params)
    d_q, d_k, d_v, d_params = locus.attention_backward(
        *map(raw, (d_out, q, k, v, out, lse)), encoding, **_keywords(*options)
    )
    grads = [
        torch.as_tensor(d_params[name]).reshape(p.shape).to(p.dtype)
        if name in d_params
        else torch.zeros_like(p)
        for name, p in zip(kinds.param_names(kind), params, strict=True)
    ]
    return d_q, d_k, d_v, grads


@attention_backward_op.register_fake
def _(d_out, d_lse, q, k, v, out, lse, params, kind, *options):
    def dense(x: Tensor) -> Tensor:
        return x.new_empty(x.shape)

    return dense(q), dense(k), dense(v), [dense(p) for p in params]


def _save_attention(ctx, inputs, output) -> None:
    q, k, v, params, kind, *options = inputs
    out, lse = output
    tensors = [x if isinstance(x, Tensor) else None for x in options]
    ctx.save_for_backward(q, k, v, out, lse, *tensors, *params)
    ctx.kind, ctx.held = kind, kinds.held(kind)
    ctx.num_options = len(options)
    ctx.plain_options = [None if isinstance(x, Tensor) else x for x in options]


def _attention_grads(ctx, d_out: Tensor, d_lse: Tensor):
    q, k, v, out, lse, *rest = ctx.saved_tensors
    tensors, params = rest[: ctx.num_options], rest[ctx.num_options :]
    options = [
        t if t is not None else plain
        for t, plain in zip(tensors, ctx.plain_options, strict=True)
    ]
    d_q, d_k, d_v, d_params = attention_backward_op(
        d_out, d_lse, q, k, v, out, lse, params, ctx.kind, *options
    )
    return d_q, d_k, d_v, d_params, None, *([None] * ctx.num_options)


attention_op.register_autograd(_attention_grads, setup_context=_save_attention)


def turn(x: Tensor, encoding: Any, positions: Tensor | None, inverse: bool) -> Tensor:
    """`locus.rotate`, on as many threads as torch uses."""
    return locus.rotate(
        raw(x), encoding, integers(positions), inverse, threads=_threads(None)
    )


@torch.library.custom_op(
    "locus::rotate",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor x, str kind, Tensor? positions, bool inverse) -> Tensor",
)
def rotate_op(x, kind, positions, inverse):
    """x [B, H, L, D] turned by its positions."""
    return turn(x, kinds.build(kind, []), positions, inverse)


@rotate_op.register_fake
def _(x, kind, positions, inverse):
    # As the engine lays out results: in the order of x.
    if x.shape[1] > 1 and x.stride(1) < x.stride(2):
        return x.new_empty(x.transpose(1, 2).shape).transpose(1, 2)
    return x.new_empty(x.shape)


def _save_rotate(ctx, inputs, output) -> None:
    _, ctx.kind, positions, ctx.inverse = inputs
    ctx.held = kinds.held(ctx.kind)
    ctx.save_for_backward(positions)


def _rotate_grads(ctx, d_out: Tensor):
    # R = g Q with Q orthogonal and g the gain of each channel, so
    # R^T = g^2 R^-1 and (R^-1)^T = g^-2 R.
    (positions,) = ctx.saved_tensors
    d_x = rotate_op(d_out, ctx.kind, positions, not ctx.inverse)
    gains = kinds.gains(ctx.kind, int(d_out.shape[-1]))
    if gains is not None:
        row = torch.tensor(gains, dtype=torch.float64).square()
        d_x = (d_x / row if ctx.inverse else d_x * row).to(d_x.dtype)
    return d_x, None, None, None


rotate_op.register_autograd(_rotate_grads, setup_context=_save_rotate)


@torch.library.custom_op(
    "locus::embed",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor positions, str kind, int width, ScalarType dtype) -> Tensor",
)
def embed_op(positions, kind, width, dtype):
    """Rows E[pos] of an encoding of the input: [..., width]."""
    rows = kinds.build(kind, []).embed(positions.reshape(-1).numpy())
    return torch.as_tensor(rows).to(dtype).reshape(*positions.shape, width)


@embed_op.register_fake
def _(positions, kind, width, dtype):
    return positions.new_empty((*positions.shape, width), dtype=dtype)
