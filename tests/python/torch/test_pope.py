"""PoPE as docs/encodings.md writes it, by a rotation of doubled channels."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

import locus_attn.torch as lt

PAGE = Path(__file__).parents[3] / "docs" / "encodings.md"
HEADS, KV_HEADS, DIM, VALUE_DIM, BASE = 4, 2, 12, 10, 100.0


def module():
    """The class of the page, with phases that are not zero."""
    section = PAGE.read_text(encoding="utf-8").split("### PoPE as a rotation")[1]
    block = re.search(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile(block[1], PAGE.name, "exec"), names)
    torch.manual_seed(1)
    pope = names["PoPE"](KV_HEADS, DIM, BASE)
    torch.nn.init.uniform_(pope.delta, -math.pi, math.pi)
    return pope


def formula(q, k, v, theta, delta, where, causal):
    """sum_c softplus(q_c) softplus(k_c) cos((m - n) theta_c - delta_c), float64."""
    softplus = torch.nn.functional.softplus
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    delta = delta.repeat_interleave(HEADS // KV_HEADS, 0)
    offset = (where[:, None] - where)[..., None]
    angle = offset * theta - delta[:, :, None]  # [heads, Lq, Lk, D]
    s = torch.einsum("bhic,bhjc,hijc->bhij", softplus(q), softplus(k), angle.cos())
    s = s * DIM**-0.5
    if causal:
        s = s.masked_fill(offset[..., 0] < 0, -torch.inf)
    return torch.softmax(s, -1) @ v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("far", [0, 100_000])
def test_matches_the_formula(causal, far):
    pope = module()
    torch.manual_seed(2)
    length = 33
    shapes = ((HEADS, DIM), (KV_HEADS, DIM), (KV_HEADS, VALUE_DIM))
    qkv = [torch.randn(2, h, length, d, requires_grad=True) for h, d in shapes]
    where = torch.randperm(3 * length)[:length].sort().values
    options = {"q_positions": where + far, "k_positions": where + far}
    out = pope(*qkv, causal=causal, **options)
    leaves = [*qkv, pope.rotary.frequencies, pope.delta]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    want = formula(*wide, where, causal)
    torch.testing.assert_close(out.double(), want, rtol=0, atol=3e-6)
    d_out = torch.randn(out.shape)
    got = torch.autograd.grad(out, leaves, d_out)
    wanted = torch.autograd.grad(want, wide, d_out.double())
    names = ("q", "k", "v", "theta", "delta")
    for name, a, b in zip(names, got, wanted, strict=True):
        largest = max(1.0, float(b.abs().max()))
        error = float((a.double() - b).abs().max())
        assert error <= 2e-5 * largest, f"{name}: {error:.3g} of {largest:.3g}"


def test_fixed_frequencies_are_those_of_rope_over_twice_the_channels():
    pope = module()
    qkv = [torch.randn(1, h, 20, DIM) for h in (HEADS, KV_HEADS, KV_HEADS)]
    trained = pope(*qkv, causal=True)
    pope.rotary = lt.Rope(2 * DIM, "halves", base=BASE)
    torch.testing.assert_close(pope(*qkv, causal=True), trained)


def test_bfloat16():
    pope = module()
    qkv = [torch.randn(1, h, 20, DIM) for h in (HEADS, KV_HEADS, KV_HEADS)]
    narrow = pope(*(x.bfloat16() for x in qkv), causal=True)
    assert narrow.dtype == torch.bfloat16
    torch.testing.assert_close(
        narrow.float(), pope(*qkv, causal=True), rtol=0, atol=0.1
    )
