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
from torch.autograd import forward_ad

import locus_attn as locus
from locus_attn._locus import _NO_MEMORY, _attention_backward_into, _attention_into

from . import kinds
from .raw import integers, raw, raw_or_none
from .raw import mask as raw_mask
from .raw import threads as _threads

# What a call brings to the scores, each with a gradient.
OPERANDS = ("key_bias", "pair_bias", "sinks", "table_queries")
_OPERANDS = ", ".join(f"Tensor? {name}" for name in OPERANDS)

# The options of a call, as arguments of an operator. The window is inclusive and
# has both ends or none; the seed of a dropout is one int64, a tensor, so that a
# graph can draw it; threads = None takes torch.get_num_threads().
_OPTIONS = (
    "bool causal, bool by_index, float? scale, int? window_left, "
    "int? window_right, int? chunk, float? softcap, Tensor? q_positions, "
    "Tensor? k_positions, Tensor? key_lengths, Tensor? q_segments, "
    "Tensor? k_segments, Tensor? mask, Tensor? prefix_lengths, float dropout, "
    "Tensor? seed, int? threads"
)


def _keywords(
    causal, by_index, scale, left, right, chunk, softcap,
    q_pos, k_pos, lengths, q_seg, k_seg, mask, prefix, dropout, seed, threads,
) -> dict[str, Any]:  # fmt: skip
    """The keywords of locus.attention for the arguments of an operator."""
    return {
        "causal": causal,
        "by_index": by_index,
        "scale": scale,
        "window": None if left is None else (left, right),
        "chunk": chunk,
        "softcap": softcap,
        "q_positions": integers(q_pos),
        "k_positions": integers(k_pos),
        "key_lengths": integers(lengths),
        "q_segments": integers(q_seg),
        "k_segments": integers(k_seg),
        "mask": raw_mask(mask),
        "prefix_lengths": integers(prefix),
        "dropout": dropout,
        "seed": None if seed is None else int(seed),
        "threads": _threads(threads),
    }


def _operands(operands) -> dict[str, Any]:
    return {name: raw_or_none(x) for name, x in zip(OPERANDS, operands, strict=True)}


def _empty(x: Tensor, shape, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialised tensor. PyTorch says RuntimeError where there is no memory for
    it; a call of Locus says MemoryError, whoever allocates."""
    try:
        return x.new_empty(shape, dtype=dtype)
    except RuntimeError as error:
        if "allocate memory" not in str(error):
            raise
        raise MemoryError(_NO_MEMORY) from None


def _empty_out(q: Tensor, v: Tensor) -> Tensor:
    """[B, Hq, Lq, Dv] that lies as [B, Lq, Hq, Dv] in memory: a model joins the heads
    of a token next, and what backward needs is then the tensor that its projection
    keeps, not a second one."""
    shape = (q.shape[0], q.shape[2], q.shape[1], v.shape[3])
    return _empty(q, shape).transpose(1, 2)


def _empty_in_order_of(x: Tensor) -> Tensor:
    """Of the sizes of x, and in its order of heads and tokens."""
    if x.shape[1] > 1 and x.stride(1) < x.stride(2):
        return _empty(x, x.transpose(1, 2).shape).transpose(1, 2)
    return _empty(x, x.shape)


def run(
    q, k, v, encoding, operands, options, return_lse=True, return_weights=False
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """(out, lse, weights), the last two None unless asked for, without a graph."""
    rows = (q.shape[0], q.shape[1], q.shape[2])
    out = _empty_out(q, v)
    lse = _empty(q, rows, torch.float32) if return_lse else None
    weights = None
    if return_weights:
        weights = _empty(q, (*rows, k.shape[2]), torch.float32)
    _attention_into(
        raw(q),
        raw(k),
        raw(v),
        encoding,
        (raw(out), raw_or_none(lse), raw_or_none(weights)),
        return_lse=return_lse,
        return_weights=return_weights,
        **_operands(operands),
        **_keywords(*options),
    )
    return out, lse, weights


def attend(q, k, v, params, kind, *rest) -> tuple[Tensor, Tensor]:
    """(out, lse) of `functional.attention`, without a graph."""
    operands, options = rest[: len(OPERANDS)], rest[len(OPERANDS) :]
    out, lse, _ = run(q, k, v, kinds.build(kind, params), operands, options)
    return out, lse


attention_op = torch.library.custom_op(
    "locus::attention",
    attend,
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor[] params, str kind, "
    f"{_OPERANDS}, {_OPTIONS}) -> (Tensor, Tensor)",
)


@attention_op.register_fake
def _(q, k, v, params, kind, *rest):
    return _empty_out(q, v), q.new_empty(q.shape[:3], dtype=torch.float32)


def pull_back(d_out, d_lse, q, k, v, out, lse, params, kind, *rest):
    """(d_q, d_k, d_v, d_params, d_operands) of sum(d_out * out) + sum(d_lse * lse).

    d_operands has one entry for each operand that is given, in order; that of
    pair_bias is empty unless pair_bias_grad.
    """
    count = len(OPERANDS)
    operands, pair_bias_grad, options = rest[:count], rest[count], rest[count + 1 :]
    encoding = kinds.build(kind, params)
    grads = tuple(map(_empty_in_order_of, (q, k, v)))
    d_params = _attention_backward_into(
        *map(raw, (d_out, q, k, v, out, lse)),
        encoding,
        tuple(map(raw, grads)),
        d_lse=raw_or_none(d_lse),
        pair_bias_grad=pair_bias_grad,
        **_operands(operands),
        **_keywords(*options),
    )
    d_operands = [
        torch.as_tensor(d_params.pop(name)) if name in d_params else x.new_empty(0)
        for name, x in zip(OPERANDS, operands, strict=True)
        if x is not None
    ]
    return *grads, param_grads(kind, params, d_params), d_operands


attention_backward_op = torch.library.custom_op(
    "locus::attention_backward",
    pull_back,
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor d_out, Tensor? d_lse, Tensor q, Tensor k, Tensor v, Tensor out, "
    f"Tensor lse, Tensor[] params, str kind, {_OPERANDS}, bool pair_bias_grad, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor[], Tensor[])",
)


def param_grads(kind: str, params: list[Tensor], by_name: dict) -> list[Tensor]:
    """Gradients of locus.attention_backward in the order and types of `params`."""
    return [
        torch.as_tensor(by_name[name]).reshape(p.shape).to(p.dtype)
        if name in by_name
        else torch.zeros_like(p)
        for name, p in zip(kinds.param_names(kind), params, strict=True)
    ]


@attention_backward_op.register_fake
def _(d_out, d_lse, q, k, v, out, lse, params, kind, *rest):
    def dense(x: Tensor) -> Tensor:
        return x.new_empty(x.shape)

    count = len(OPERANDS)
    d_operands = [
        x.new_empty(0) if name == "pair_bias" and not rest[count] else dense(x)
        for name, x in zip(OPERANDS, rest[:count], strict=True)
        if x is not None
    ]
    grads = map(_empty_in_order_of, (q, k, v))
    return *grads, [dense(p) for p in params], d_operands


def _save_attention(ctx, inputs, output) -> None:
    q, k, v, params, kind, *rest = inputs
    out, lse = output
    tensors = [x if isinstance(x, Tensor) else None for x in rest]
    ctx.save_for_backward(q, k, v, out, lse, *tensors, *params)
    ctx.kind, ctx.held = kind, kinds.held(kind)
    ctx.num_rest = len(rest)
    ctx.plain_rest = [None if isinstance(x, Tensor) else x for x in rest]


def _attention_grads(ctx, d_out: Tensor | None, d_lse: Tensor | None):
    # q, k, v, params and kind come before the operands.
    wanted = ctx.needs_input_grad[5 : 5 + len(OPERANDS)]
    d_q, d_k, d_v, d_params, others = _grads(
        ctx, attention_backward_op, d_out, d_lse, wanted
    )
    return d_q, d_k, d_v, d_params, None, *others


def _grads(ctx, backward, d_out, d_lse, wanted):
    """(d_q, d_k, d_v, d_params, grads of operands and options) by `backward`."""
    q, k, v, out, lse, *saved = ctx.saved_tensors
    tensors, params = saved[: ctx.num_rest], saved[ctx.num_rest :]
    rest = [
        t if t is not None else plain
        for t, plain in zip(tensors, ctx.plain_rest, strict=True)
    ]
    operands, options = rest[: len(OPERANDS)], rest[len(OPERANDS) :]
    pair_bias_grad = wanted[OPERANDS.index("pair_bias")]
    d_q, d_k, d_v, d_params, d_operands = backward(
        *(d_out, d_lse, q, k, v, out, lse, params, ctx.kind),
        *(*operands, pair_bias_grad, *options),
    )
    # Offsets among the parameters are integers and have none.
    d_params = [
        g if p.is_floating_point() else None
        for g, p in zip(d_params, params, strict=True)
    ]
    given = iter(d_operands)
    grads = [None if x is None else next(given) for x in operands]
    grads = [g if want else None for g, want in zip(grads, wanted, strict=True)]
    return d_q, d_k, d_v, d_params, [*grads, *([None] * len(options))]


attention_op.register_autograd(_attention_grads, setup_context=_save_attention)


def needs_dispatch() -> bool:
    """Whether a call must go through the dispatcher: it is compiled or traced, or a
    dispatch mode, a functorch transform or forward-mode AD is active."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    )


class Direct(torch.autograd.Function):
    """`attention_op` without the dispatcher: the same numbers, but dispatching an
    operator with lists of tensors takes longer than the attention of 64 tokens.

    apply(q, k, v, kind, number of params, *params, *operands, *options)
    """

    @staticmethod
    def forward(ctx, q, k, v, kind, num_params, *others):
        params, rest = list(others[:num_params]), others[num_params:]
        ctx.set_materialize_grads(False)
        ctx.num_params = num_params
        result = attend(q, k, v, params, kind, *rest)
        _save_attention(ctx, (q, k, v, params, kind, *rest), result)
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse):
        if d_out is None:
            if d_lse is None:
                return (None,) * len(ctx.needs_input_grad)
            d_out = torch.zeros_like(ctx.saved_tensors[3])
        first = 5 + ctx.num_params
        wanted = ctx.needs_input_grad[first : first + len(OPERANDS)]
        backward = attention_backward_op if needs_dispatch() else pull_back
        d_q, d_k, d_v, d_params, others = _grads(ctx, backward, d_out, d_lse, wanted)
        return d_q, d_k, d_v, None, None, *d_params, *others


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
    """x [B, H, L, D] rotated by its positions."""
    return turn(x, kinds.build(kind, []), positions, inverse)


@rotate_op.register_fake
def _(x, kind, positions, inverse):
    # As the engine lays out results: in the order of x.
    return _empty_in_order_of(x)


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
