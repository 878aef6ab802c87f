"""Attention and rotation on torch tensors, with gradients."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad

import locus_attn as locus
from locus_attn import _locus

from . import kinds, ops
from .offsets import Call

_DTYPES = {
    torch.float32: "float32",
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
}
_ROTATED = {**_DTYPES, torch.float64: "float64"}

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class _Options(TypedDict, total=False):
        """The keywords of `attention` that do not decide what it returns."""

        causal: bool
        scale: float | None
        window: int | tuple[int, int] | None
        chunk: int | None
        softcap: float | None
        q_positions: Tensor | Sequence[int] | None
        k_positions: Tensor | Sequence[int] | None
        key_lengths: Tensor | Sequence[int] | None
        q_segments: Tensor | Sequence[int] | None
        k_segments: Tensor | Sequence[int] | None
        by_index: bool
        mask: Tensor | None
        prefix_lengths: Tensor | Sequence[int] | None
        key_bias: Tensor | None
        pair_bias: Tensor | None
        sinks: Tensor | None
        table_queries: Tensor | None
        dropout: float
        seed: int | None
        threads: int | None


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Any = None,
    *,
    return_lse: Literal[False] = False,
    return_weights: Literal[False] = False,
    **options: Unpack[_Options],
) -> Tensor: ...


@overload
def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Any = None,
    *,
    return_lse: bool = False,
    return_weights: bool = False,
    **options: Unpack[_Options],
) -> tuple[Tensor, ...]: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Any = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int, int] | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    q_positions: Tensor | Sequence[int] | None = None,
    k_positions: Tensor | Sequence[int] | None = None,
    key_lengths: Tensor | Sequence[int] | None = None,
    q_segments: Tensor | Sequence[int] | None = None,
    k_segments: Tensor | Sequence[int] | None = None,
    by_index: bool = False,
    mask: Tensor | None = None,
    prefix_lengths: Tensor | Sequence[int] | None = None,
    key_bias: Tensor | None = None,
    pair_bias: Tensor | None = None,
    sinks: Tensor | None = None,
    table_queries: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    threads: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Fused attention with positions; gradients for q, k, v and every table.

        s_ij = scale (rot(q_i).rot(k_j) + a_i.c_j + r_i.Tq[b] + k_j.Tk[b])
               + B[h, b] + K[h, j] + M[h, i, j]
        p_ij = exp(s_ij) / (exp(z_h) + sum_j exp(s_ij))
        o_i  = sum_j p_ij (v_j + Tv[b]),   b = bucket(m - n)

    q [B, Hq, Lq, D], k [B, Hkv, Lk, D], v [B, Hkv, Lk, Dv], all of float32,
    bfloat16 or float16 on the CPU, any strides; Hkv divides Hq. Memory beyond
    inputs and outputs grows with the length, not with its square. The result,
    [B, Hq, Lq, Dv], lies in memory as [B, Lq, Hq, Dv], so that joining the heads
    of a token copies nothing; the gradients of q, k and v lie as these do.

    encoding: a module of `locus.torch`, such as a `RelativeBias` of your own
      function, what `encoding(...)` makes of tensors, an encoding of `locus`
      (whose tables are then constants), a LayerPosition of
      `locus.from_config`, whose scale, window and softcap hold where these are
      None, or None.
    causal: a query sees keys at positions up to its own.
    scale: of the dot products; None: the encoding's own, usually 1 / sqrt(D).
    window: w: offsets m - n below w, and above -w unless causal; or
      (left, right): -right <= m - n <= left.
    chunk: tokens see only those of their own chunk of so many positions.
    softcap: s becomes softcap tanh(s / softcap).
    q_positions, k_positions: int64 [L] or [B, L]. Without them keys count from
      0 and the queries end where the keys of their sequence end.
    key_lengths: [B], only the first keys of a sequence exist; the result is that
      of the sequence with its keys cut off there.
    q_segments, k_segments: int64 [L] or [B, L]; tokens see their own segment.
    by_index: causal and window compare indices, which are the default positions,
      instead of the positions given; for MRope with videos.
    mask: bool [B or 1, Hq or 1, Lq or 1, Lk], or the last two or three of these
      axes; a query sees a key only where it is true.
    prefix_lengths: [B], so many first keys of a sequence are visible to all of its
      queries, whatever causal, window and chunk say.
    key_bias K [B or 1, Hq or 1, Lk], pair_bias M [B or 1, Hq or 1, Lq or 1, Lk],
      sinks z [Hq]: as in the formula, each with a gradient.
    table_queries r [B, Hq, Lq, R]: what meets the query table, instead of q.
    dropout: each p_ij becomes 0 with this probability, the others are divided by
      1 - dropout. seed: decides which; None draws one from PyTorch's generator.
    return_lse: also return ln(exp(z) + sum exp(s)), float32 [B, Hq, Lq], with its
      gradient.
    return_weights: also return p after dropout, float32 [B, Hq, Lq, Lk]: as many
      numbers as there are pairs, for looking at; it has no gradient. Results come
      in the order out, lse, weights.
    threads: None takes torch.get_num_threads(). Results do not depend on it.

    A query that sees no key gives zeros and lse = -inf. Under autocast q, k and v
    are converted first; tables keep their type. Gradients are reverse mode, once.
    """
    _check("q", q)
    _check("k", k)
    _check("v", v)
    if torch.is_autocast_enabled("cpu"):
        q, k, v = _autocast(q, k, v)
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise TypeError(
            f"q, k and v must have one type, got {q.dtype}, {k.dtype} and {v.dtype}"
        )
    if not torch.compiler.is_compiling():
        given = _locus._plain_options(
            *(causal, by_index, scale, softcap, dropout, seed),
            *(return_lse, return_weights, threads),
        )
        causal, by_index, scale, softcap, dropout, seed = given[:6]
        return_lse, return_weights, threads = given[6:]
    if isinstance(encoding, locus.LayerPosition):
        scale, window, softcap = _of_layer(encoding, scale, window, softcap)
        if chunk is None and encoding.chunk and q_segments is None:
            chunk = encoding.chunk
    left, right = _window(window, causal)
    if left is not None and not torch.compiler.is_compiling():
        left, right = _locus._int_pair("window", (left, right))
    if chunk is not None and not torch.compiler.is_compiling():
        chunk = _locus._int("chunk", chunk)
    seed = _seed(dropout, seed)
    operands = (
        _operand("key_bias", key_bias),
        _operand("pair_bias", pair_bias),
        _operand("sinks", sinks),
        _operand("table_queries", table_queries),
    )
    tokens = (
        _integers("q_positions", q_positions),
        _integers("k_positions", k_positions),
        _integers("key_lengths", key_lengths),
        _integers("q_segments", q_segments),
        _integers("k_segments", k_segments),
    )
    prefix = _integers("prefix_lengths", prefix_lengths)
    options = (
        *(causal, by_index, scale, left, right, chunk, softcap, *tokens),
        *(_mask(mask), prefix, dropout, seed, threads),
    )
    if isinstance(encoding, torch.nn.Module) and hasattr(encoding, "for_call"):
        # Its tables are those of the offsets that occur.
        lengths = (q.shape[0], q.shape[2], k.shape[2])
        seen = (causal, by_index, left, right, chunk)
        encoding = encoding.for_call(Call(*lengths, *seen, *tokens, prefix), q.shape[3])
    kind, params, native = kinds.resolve(encoding)
    present = [x for x in operands if x is not None]
    direct = _skips_dispatch(q, k, v, *params, *present)
    plain = direct and not _needs_graph(q, k, v, *params, *present)
    weights = None
    if plain or return_weights:
        built = native if native is not None else kinds.build(kind, params)
        asked = (return_lse, return_weights)
        with torch.no_grad():
            out, lse, weights = ops.run(q, k, v, built, operands, options, *asked)
        if plain:
            parts = tuple(x for x in (out, lse, weights) if x is not None)
            return parts if len(parts) > 1 else out
    _refuse_tangents(q, k, v, *params, *present)
    if native is not None:
        kind, _holder = kinds.hold(native)
    if direct:
        given = (q, k, v, kind, len(params), *params, *operands, *options)
        out, lse = ops.Direct.apply(*given)
    else:
        out, lse = ops.attention_op(q, k, v, params, kind, *operands, *options)
    if weights is None:
        return (out, lse) if return_lse else out
    return (out, lse, weights) if return_lse else (out, weights)


def _of_layer(
    layer: locus.LayerPosition,
    scale: float | None,
    window: int | tuple[int, int] | None,
    softcap: float | None,
) -> tuple[float | None, int | tuple[int, int] | None, float | None]:
    """Scale, window and cap of a layer, where the caller does not say."""
    told = {} if layer.chunk else layer.options()
    return (
        layer.scale if scale is None else scale,
        told.get("window") if window is None else window,
        told.get("softcap") if softcap is None else softcap,
    )


def rotate(
    x: Tensor,
    encoding: Any,
    positions: Tensor | Sequence[int] | None = None,
    inverse: bool = False,
) -> Tensor:
    """Rotates x [B, H, L, D] by a rotary encoding; gradients flow to x.

    x may be float64 too. positions: int64 [L] or [B, L]; None counts from 0.
    `inverse` undoes the rotation, gain included.
    """
    _check("x", x, _ROTATED)
    if not torch.compiler.is_compiling():
        inverse = _locus._flag("inverse", inverse)
    kind, params, native = kinds.resolve(encoding)
    if params or (kind == kinds.NO_ENCODING and native is None):
        raise TypeError(
            f"rotate needs a rotary encoding, got {_locus._shown(encoding)}"
        )
    where = _integers("positions", positions)
    if _plain(x):
        turn = native if native is not None else kinds.build(kind, [])
        return ops.turn(x, turn, where, inverse)
    _refuse_tangents(x)
    if native is not None:
        kind, _holder = kinds.hold(native)
    return ops.rotate_op(x, kind, where, inverse)


def _check(name: str, x: Tensor, dtypes: dict[torch.dtype, str] = _DTYPES) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, got device {x.device}")
    if x.layout != torch.strided:
        raise TypeError(f"{name} must be dense, got {x.layout}; pass {name}.to_dense()")
    if x.dtype not in dtypes:
        raise TypeError(
            f"{name} must be {', '.join(dtypes.values())}, got {x.dtype}; "
            f"convert it, for example {name}.float()"
        )
    if x.dim() != 4:
        raise ValueError(
            f"{name} must be [batch, heads, length, dim], got {list(x.shape)}"
        )


def _operand(name: str, x: Tensor | None) -> Tensor | None:
    """A tensor that joins the scores; its type may differ from that of q."""
    if x is None:
        return None
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if x.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, got device {x.device}")
    if x.dtype not in _ROTATED or x.layout != torch.strided:
        raise TypeError(
            f"{name} must be dense, of {', '.join(_ROTATED.values())}, got {x.dtype}"
        )
    return x


def _mask(x: Tensor | None) -> Tensor | None:
    """[B or 1, H or 1, Lq or 1, Lk] of a mask of two, three or four axes."""
    if x is None:
        return None
    if not isinstance(x, Tensor):
        raise TypeError(f"mask must be a torch.Tensor, got {type(x).__name__}")
    if x.device.type != "cpu":
        raise ValueError(f"mask must be on the CPU, got device {x.device}")
    if x.dtype != torch.bool:
        raise TypeError(
            f"mask must be bool, true where a query sees a key, got {x.dtype}; a "
            f"mask that is added is a pair_bias"
        )
    if not 2 <= x.dim() <= 4:
        raise ValueError(
            f"mask must be [Lq, Lk] with up to two axes before, of heads and of "
            f"sequences, got {list(x.shape)}"
        )
    return x[(None,) * (4 - x.dim())]


def _seed(dropout: float, seed: int | None) -> Tensor | None:
    """From PyTorch's own generator, so that torch.manual_seed decides."""
    if not dropout:
        return None
    return torch.randint(1 << 62, ()) if seed is None else torch.tensor(seed)


def _autocast(*tensors: Tensor) -> list[Tensor]:
    dtype = torch.get_autocast_dtype("cpu")
    return [x.to(dtype) for x in tensors]


def _refuse_tangents(*tensors: Tensor) -> None:
    """An operator would drop the tangents of forward-mode autograd silently."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise NotImplementedError(
            "locus.torch has reverse-mode gradients only, and an argument carries a "
            "tangent of forward mode"
        )


def _window(
    window: int | tuple[int, int] | None, causal: bool
) -> tuple[int | None, int | None]:
    """(left, right), inclusive; (None, None) without a window."""
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)):
        width = _integer(window)
        if width < 1:
            raise ValueError(f"window must be at least 1, got {_locus._shown(width)}")
        return width - 1, 0 if causal else width - 1
    if len(window) != 2:
        raise ValueError(
            f"window must be an integer or a pair (left, right), got "
            f"{len(window)} values"
        )
    return _integer(window[0]), _integer(window[1])


def _integer(x: Any) -> int:
    """An end of a window; numbers of NumPy count, fractions and bools do not."""
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        raise TypeError(
            f"window must be an integer or a pair (left, right) of integers, got "
            f"{_locus._shown(x)}"
        )
    return operator.index(x)


def _integers(name: str, x: Tensor | Sequence[int] | None) -> Tensor | None:
    if x is None:
        return None
    if not isinstance(x, Tensor):
        compiling = torch.compiler.is_compiling()
        x = torch.as_tensor(x if compiling else _locus._integers(name, x))
    if x.device.type != "cpu":
        raise ValueError(f"{name} must be on the CPU, got device {x.device}")
    if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {x.dtype}")
    if x.dtype == torch.uint64 and bool((x.view(torch.int64) < 0).any()):
        raise ValueError(f"{name} has values beyond int64")
    return x.to(torch.int64)


def _skips_dispatch(*tensors: Tensor) -> bool:
    """Whether a direct call does what the operator would do: nothing needs the
    dispatcher, and there are no tensor subclasses and no lazily negated views, which
    it would handle."""
    if ops.needs_dispatch():
        return False
    return all(
        (type(x) is Tensor or type(x) is torch.nn.Parameter) and not x.is_neg()
        for x in tensors
    )


def _needs_graph(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def _plain(x: Tensor) -> bool:
    """Whether a direct call without a graph is what the operator would do."""
    return _skips_dispatch(x) and not _needs_graph(x)
