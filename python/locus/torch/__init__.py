"""Locus for PyTorch: fused attention with positions, gradients for every table.

    import locus.torch as lt

    bias = lt.T5Bias(heads=8)                       # an nn.Module
    out = lt.attention(q, k, v, bias, causal=True)  # q [B, H, L, D]
    out.sum().backward()                            # gradients of q, k, v, table

    table = torch.randn(32, 8, requires_grad=True)  # or a tensor of your own
    out = lt.attention(q, k, v, lt.encoding("T5Bias", table=table), causal=True)

Models of Hugging Face: `attn_implementation="locus"` for those with the
attention interface (LLaMA and its kin), `patch(model)` for T5, BLOOM, DeBERTa-v2
and XLNet.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("locus.torch needs PyTorch, which is not installed") from error

from .biases import Alibi, Fire, Kerple, Sandwich, SwinBias, T5Bias
from .functional import attention, rotate
from .hf import patch, register, register_when_imported, unpatch
from .inputs import (
    Binary,
    Index,
    Learned,
    NoPosition,
    NormalisedIndex,
    SineOnly,
    Sinusoidal,
)
from .kinds import Encoding, describe, encoding
from .module import EncodingModule
from .ring import ring_attention
from .ring_plan import ring_shard
from .rotary import MRope, Rope, Rope2D, XPos
from .tables import Deberta, KeyOffset, Shaw, TransformerXL, Tupe

__all__ = [
    "Alibi",
    "Binary",
    "Deberta",
    "Encoding",
    "EncodingModule",
    "Fire",
    "Index",
    "Kerple",
    "KeyOffset",
    "Learned",
    "MRope",
    "NoPosition",
    "NormalisedIndex",
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
    "attention",
    "describe",
    "encoding",
    "patch",
    "register",
    "ring_attention",
    "ring_shard",
    "rotate",
    "unpatch",
]

register_when_imported()
