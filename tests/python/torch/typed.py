# pyright: reportUnnecessaryTypeIgnoreComment=true
"""What a type checker makes of locus.torch: tests/python/types.sh runs it on this.

Nothing runs here. Each line with an ignored rule must be an error by that rule.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import assert_type

import locus_attn as locus
import locus_attn.torch as lt


class Gaussian(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sigma = nn.Parameter(2.0 ** torch.arange(1, heads + 1))

    def forward(self, offsets: Tensor) -> Tensor:
        return -(offsets**2) / (2 * self.sigma[:, None] ** 2)


def modules(q: Tensor) -> None:
    # Made from a descriptor, written by hand, and functions of one's own.
    rope = lt.Rope(64, "halves", base=500_000.0)
    assert_type(rope, lt.Rope)
    assert_type(rope.rotate(q), Tensor)
    assert_type(lt.RopeLearned(64, "halves").alpha, nn.Parameter)
    assert_type(lt.T5Bias(8).relative_attention_bias, nn.Embedding)
    assert_type(lt.Sinusoidal(64).embed([0, 1]), Tensor)
    bias = lt.RelativeBias(Gaussian(8), heads=8)
    lt.Combined(lt.Rotary(torch.ones(32), "halves"), bias)
    lt.save_encoding(bias, "gaussian.pt", training={"sigma": {"rate": 10}})

    lt.Rope(64)  # pyright: ignore[reportCallIssue]
    lt.Rope(64, "half")  # pyright: ignore[reportArgumentType]
    lt.Alibi("8")  # pyright: ignore[reportArgumentType]
    lt.NoSuchEncoding(8)  # pyright: ignore[reportAttributeAccessIssue]


def calls(q: Tensor) -> None:
    bias = lt.Alibi(8)
    assert_type(lt.attention(q, q, q, bias, causal=True), Tensor)
    assert_type(lt.attention(q, q, q, return_lse=True), tuple[Tensor, ...])
    assert_type(lt.rotate(q, locus.Rope(64, "halves")), Tensor)

    lt.attention(q, q, q, cusal=True)  # pyright: ignore[reportCallIssue]
    lt.attention(q, q, q, window="8")  # pyright: ignore[reportArgumentType, reportCallIssue]
