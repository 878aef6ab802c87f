"""Locus: positional encodings for transformer attention, fused on the CPU.

Arrays are ``[batch, heads, length, head_dim]``: NumPy arrays, or anything on the
CPU that speaks DLPack (PyTorch, JAX). Positions are integers, one per token, and
offsets are query position minus key position.

>>> import locus_attn as locus, numpy as np
>>> q = k = v = np.random.randn(1, 8, 512, 64).astype(np.float32)
>>> out = locus.attention(q, k, v, locus.Rope(64, "halves"), causal=True)

``locus.torch`` brings the same to PyTorch, with gradients.
"""

import importlib as _importlib
import typing as _typing

from . import _locus
from ._locus import *  # noqa: F403
from ._locus import __version__ as __version__

# The native module has a class for every encoding of the list.
__all__ = sorted(
    [name for name in vars(_locus) if not name.startswith("_")] + ["__version__"]
)

if _typing.TYPE_CHECKING:
    from . import torch as torch
else:

    def __getattr__(name: str):
        # PyTorch is optional, and slow to import.
        if name == "torch":
            return _importlib.import_module(".torch", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
