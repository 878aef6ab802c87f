"""Forget gates: what a head forgets depends on the data (Lin et al., 2025).

A causal query i sees key j with

    s_ij += log f_{j+1} + ... + log f_i = F_i - F_j,    F_t = sum_{l <= t} log f_l

F_i cancels in the softmax, and what remains is a bias per key, K_j = F_last - F_j.
So any encoding may stand beside it; a soft cap and sinks, which see more of the
scores than their differences, may not.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def forget_gate_bias(log_gates: Tensor) -> Tensor:
    """The `key_bias` of forget gates: float32 [B, H, L] of log_gates [B, H, L].

    K_j = sum over l > j of log_gates_l, summed in float64 and rounded once, with
    its gradient. lse of attention with it is that of the formula plus F_last - F_i.
    """
    return _bias(_sums(log_gates, None))


def _sums(log_gates: Tensor, before: Tensor | None) -> Tensor:
    """F of the tokens so far and of these, float64 [B, H, length]."""
    if log_gates.dim() != 3:
        raise ValueError(
            f"log_gates must be [batch, heads, length], got {list(log_gates.shape)}"
        )
    sums = log_gates.double().cumsum(-1)
    if before is None or before.shape[-1] == 0:
        return sums
    return torch.cat([before, before[..., -1:] + sums], -1)


def _bias(sums: Tensor) -> Tensor:
    return (sums[..., -1:] - sums).float()


class ForgetGate(nn.Module):
    """A forget gate per head and token, f = sigmoid(W x + b), as a bias per key.

        gate = ForgetGate(dim, heads)
        out = attention(q, k, v, encoding, causal=True, key_bias=gate(x))

    x [B, L, dim] is what the keys are projected from. The projection runs in the
    type of its weights, the logarithm in float32, sums in float64. Keys that see
    only their own segment need nothing more: what lies before it cancels.
    """

    def __init__(self, dim: int, heads: int, bias: bool = True) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, heads, bias=bias)

    def log_gates(self, x: Tensor) -> Tensor:
        """log f, float32 [B, heads, L]."""
        return nn.functional.logsigmoid(self.proj(x).float()).transpose(-1, -2)

    def forward(self, x: Tensor) -> Tensor:
        """The key_bias of a whole sequence, float32 [B, heads, L]."""
        return forget_gate_bias(self.log_gates(x))

    def decode(self, x: Tensor, sums: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The key_bias of all keys so far, and the sums to give with the next.

        x [B, new, dim]: the new tokens. sums: what the last call returned, float64
        [B, heads, Lk], None at the start; it belongs to a cache of keys as its keys
        do, and is cut and reordered with them.
        """
        sums = _sums(self.log_gates(x), sums)
        return _bias(sums), sums

    def extra_repr(self) -> str:
        return f"dim={self.proj.in_features}, heads={self.proj.out_features}"
