"""Locus: positional encodings for transformer attention, fused on the CPU.

Arrays are ``[batch, heads, length, head_dim]``: NumPy arrays, or anything on the
CPU that speaks DLPack (PyTorch, JAX). Positions are integers, one a token, and
offsets are query position minus key position.

>>> import locus, numpy as np
>>> q = k = v = np.random.randn(1, 8, 512, 64).astype(np.float32)
>>> out = locus.attention(q, k, v, locus.Rope(64, "halves"), causal=True)

``locus.torch`` brings the same to PyTorch, with gradients.
"""

import importlib as _importlib

from ._locus import (
    Alibi,
    Binary,
    CheckReport,
    Deberta,
    Encoding,
    EncodingInfo,
    Fire,
    Index,
    Kerple,
    KeyOffset,
    KvCache,
    LayerPosition,
    Learned,
    MRope,
    NoPosition,
    NormalisedIndex,
    Property,
    Rope,
    Rope2D,
    Sandwich,
    Shaw,
    SineOnly,
    Sinusoidal,
    SwinBias,
    T5Bias,
    TransformerXL,
    Tupe,
    XPos,
    __version__,
    attention,
    attention_backward,
    check,
    convert_layout,
    encodings,
    explain,
    explain_call,
    families,
    from_config,
    linear_attention,
    machine,
    merge,
    pack,
    pack_position,
    rotate,
    rotate_with,
)

__all__ = [
    "Alibi",
    "Binary",
    "CheckReport",
    "Deberta",
    "Encoding",
    "EncodingInfo",
    "Fire",
    "Index",
    "Kerple",
    "KeyOffset",
    "KvCache",
    "LayerPosition",
    "Learned",
    "MRope",
    "NoPosition",
    "NormalisedIndex",
    "Property",
    "Rope",
    "Rope2D",
    "Sandwich",
    "Shaw",
    "SineOnly",
    "Sinusoidal",
    "SwinBias",
    "T5Bias",
    "TransformerXL",
    "Tupe",
    "XPos",
    "__version__",
    "attention",
    "attention_backward",
    "check",
    "convert_layout",
    "encodings",
    "explain",
    "explain_call",
    "families",
    "from_config",
    "linear_attention",
    "machine",
    "merge",
    "pack",
    "pack_position",
    "rotate",
    "rotate_with",
]


def __getattr__(name: str):
    # PyTorch is optional, and slow to import.
    if name == "torch":
        return _importlib.import_module(".torch", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
