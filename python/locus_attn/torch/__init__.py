"""Locus for PyTorch: fused attention with positions, gradients for every table.

    import locus_attn.torch as lt

    bias = lt.T5Bias(heads=8)                       # an nn.Module
    out = lt.attention(q, k, v, bias, causal=True)  # q [B, H, L, D]
    out.sum().backward()                            # gradients of q, k, v, table

    table = torch.randn(32, 8, requires_grad=True)  # or a tensor of your own
    out = lt.attention(q, k, v, lt.encoding("T5Bias", table=table), causal=True)

Any function of the offset, as a bias that trains: `RelativeBias(fn, heads)`; see
also `RelativeKeys`, `RelativeValues` and `Rotary`.

Models of Hugging Face: `attn_implementation="locus"` for those with the
attention interface (LLaMA and its kin), `patch(model)` for T5, BLOOM, DeBERTa-v2
and XLNet.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError("locus.torch needs PyTorch, which is not installed") from error

from typing import TYPE_CHECKING

from . import made as _made
from .functional import attention, rotate
from .gates import ForgetGate, forget_gate_bias
from .hf import patch, register, register_when_imported, unpatch
from .kinds import Encoding, describe, encoding
from .lab import save_encoding
from .module import EncodingModule
from .relative import Combined, RelativeBias, RelativeKeys, RelativeValues, Rotary
from .ring import ring_attention
from .ring_plan import ring_shard

__all__ = [
    "Combined",
    "Encoding",
    "EncodingModule",
    "ForgetGate",
    "RelativeBias",
    "RelativeKeys",
    "RelativeValues",
    "Rotary",
    "attention",
    "describe",
    "encoding",
    "forget_gate_bias",
    "patch",
    "register",
    "ring_attention",
    "ring_shard",
    "rotate",
    "save_encoding",
    "unpatch",
]
__all__ += _made.names()

if TYPE_CHECKING:  # the modules of encodings, one by one
    from ._modules import *  # noqa: F403
else:

    def __getattr__(name: str) -> type[EncodingModule]:
        """The module of an encoding, which is found or made when it is asked for."""
        found = _made.module_class(name)
        globals()[name] = found
        return found


register_when_imported()
