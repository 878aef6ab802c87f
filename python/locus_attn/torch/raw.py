"""Tensors as the engine reads them: address, shape, strides, type.

This skips DLPack, which costs microseconds a tensor and refuses one that
requires grad, as the arguments of an operator may. The caller keeps the tensors
alive during the call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._locus import _keep_memory, _raw_mask, _raw_tensor

# PyTorch's allocator recycles memory; what the engine keeps besides would add to a
# model's peak. This much is the scratch of short calls.
_keep_memory(1 << 18)

NAMES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float64: "f64",
}


def raw(x: Tensor) -> Any:
    """A tensor of floats on the CPU."""
    return _raw_tensor(x.data_ptr(), x.shape, x.stride(), NAMES[x.dtype])


def raw_or_none(x: Tensor | None) -> Any:
    return None if x is None else raw(x)


def mask(x: Tensor | None) -> Any:
    """A tensor of booleans [B or 1, H or 1, Lq or 1, Lk] on the CPU."""
    return None if x is None else _raw_mask(x.data_ptr(), x.shape, x.stride())


def integers(x: Tensor | None) -> Any:
    """A tensor of integers, which the engine copies."""
    return None if x is None else x.numpy()


def threads(given: int | None) -> int:
    """As many as torch uses, unless told."""
    return torch.get_num_threads() if given is None else given
