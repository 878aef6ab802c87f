"""Which offsets m - n occur in a call: where functions of the offset are evaluated.

Without positions of its own a call has the offsets of counted tokens, which its
lengths, causality and window tell. Else they are read off the positions, and the
whole range from the least to the greatest counts, which must not grow faster than
the lengths: see `of_call`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from locus_attn import _locus

from .raw import integers

# Of a call with positions of its own: so many offsets per token, and so many
# numbers of a table in any case.
_PER_TOKEN = 16
_IN_ANY_CASE = 65536
# The same in a compiled graph, whose sizes are known before the positions are.
_PER_TOKEN_COMPILED = 2


class Call(NamedTuple):
    """What of an attention call decides which offsets occur."""

    batch: int
    q_len: int
    k_len: int
    causal: bool
    by_index: bool
    left: int | None
    right: int | None
    chunk: int | None
    q_positions: Tensor | None
    k_positions: Tensor | None
    key_lengths: Tensor | None
    q_segments: Tensor | None
    k_segments: Tensor | None
    prefix_lengths: Tensor | None


def of_call(call: Call, row: int) -> Tensor:
    """Offsets of a call, int64 [n], rising by one.

    row: numbers per offset of the table that is made of them. Positions whose
    offsets range over more than 16 (Lq + Lk) + 65536 / row are refused: one table
    for all of them would be much larger than the call. In a compiled graph there are
    2 (Lq + Lk) + 1, and the last offset repeats where there are fewer.
    """
    if call.q_positions is None and call.k_positions is None:
        first, last = _counted(call)
        return torch.arange(first, last + 1)
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return offsets_op(*call)
    first, last = _range(call)
    tokens = call.q_len + call.k_len
    _check(first, last, _PER_TOKEN * tokens + _IN_ANY_CASE // row)
    return torch.arange(first, last + 1)


def _counted(call: Call) -> tuple[int, int]:
    """Keys at 0 .. Lk - 1, queries end where they end or, with key lengths, before."""
    if call.q_len == 0 or call.k_len == 0:
        return 0, 0
    least, most = 1 - min(call.q_len, call.k_len), max(call.q_len, call.k_len) - 1
    if call.key_lengths is not None:
        least = 1 - call.k_len
    if call.prefix_lengths is not None:
        return least, most  # a prefix is seen from anywhere
    if call.causal:
        least = 0
    if call.left is not None and call.right is not None:
        least, most = max(least, -call.right), min(most, call.left)
    if call.chunk is not None:
        least, most = max(least, 1 - call.chunk), min(most, call.chunk - 1)
    # A window or chunk below 0 hides all; the engine says what is wrong with it.
    return (least, most) if least <= most else (0, 0)


def _range(call: Call) -> tuple[int, int]:
    """The least and the greatest offset, as the engine finds them."""
    window = None if call.left is None else (call.left, call.right)
    return _locus._offset_range(
        *(call.batch, call.q_len, call.k_len, call.causal, call.by_index),
        *(window, call.chunk),
        *map(integers, call[call._fields.index("q_positions") :]),
    )


def _check(first: int, last: int, most: int) -> None:
    if last - first >= most:
        raise ValueError(
            f"the positions of this call have offsets from {first} to {last}, and a "
            f"function of the offset is evaluated on {most} of them at most: give "
            f"segments or a window, or positions that lie closer together"
        )


@torch.library.custom_op(
    "locus::offsets",
    mutates_args=(),
    device_types="cpu",
    schema="(int batch, int q_len, int k_len, bool causal, bool by_index, "
    "int? left, int? right, int? chunk, Tensor? q_positions, Tensor? k_positions, "
    "Tensor? key_lengths, Tensor? q_segments, Tensor? k_segments, "
    "Tensor? prefix_lengths) -> Tensor",
)
def offsets_op(*call):
    """Offsets of a call with positions, for graphs: int64 [2 (Lq + Lk) + 1]."""
    call = Call(*call)
    first, last = _range(call)
    size = _size(call.q_len, call.k_len)
    _check(first, last, size)
    return torch.arange(first, first + size).clamp(max=last)


@offsets_op.register_fake
def _(batch, q_len, k_len, *rest):
    return torch.empty(_size(q_len, k_len), dtype=torch.int64)


def _size(q_len: int, k_len: int) -> int:
    return _PER_TOKEN_COMPILED * (q_len + k_len) + 1
