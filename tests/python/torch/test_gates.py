"""Forget gates against F_i - F_j for every pair, in float64."""

from __future__ import annotations

import pytest
import torch

import locus_attn as locus
import locus_attn.torch as lt

BATCH, HEADS, KV_HEADS, DIM, HEAD_DIM = 2, 4, 2, 24, 16


def formula(q, k, v, log_gates):
    """Causal attention with the materialised sums."""
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    sums = log_gates.cumsum(-1)
    s = q @ k.transpose(2, 3) / HEAD_DIM**0.5 + sums[..., None] - sums[..., None, :]
    seen = torch.ones(s.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ v


def inputs(length, dtype=torch.float32):
    gen = torch.Generator().manual_seed(length)
    heads = (HEADS, KV_HEADS, KV_HEADS)
    qkv = [
        torch.randn(BATCH, h, length, HEAD_DIM, generator=gen).to(dtype) for h in heads
    ]
    return [*qkv, torch.randn(BATCH, length, DIM, generator=gen).to(dtype)]


def module(dtype=torch.float32):
    torch.manual_seed(5)
    return lt.ForgetGate(DIM, HEADS).to(dtype)


@pytest.mark.parametrize("length", [1, 33, 300])
def test_forward_and_gradients(length):
    gate = module()
    tensors = [x.requires_grad_() for x in inputs(length)]
    *qkv, x = tensors
    out = lt.attention(*qkv, causal=True, key_bias=gate(x))
    wide_gate = module().double()
    wide = [x.detach().double().requires_grad_() for x in tensors]
    logits = wide_gate.proj(wide[3]).transpose(1, 2)
    want = formula(*wide[:3], torch.nn.functional.logsigmoid(logits))
    # What float32 gives to the bias, and to sums of this length anyway.
    largest = gate(x).abs().max().item()
    tolerance = 2.0**-23 * largest + 2e-6
    torch.testing.assert_close(out.double(), want, rtol=0, atol=tolerance)
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    leaves, wide_leaves = (
        [*t, *g.parameters()] for t, g in ((tensors, gate), (wide, wide_gate))
    )
    got = torch.autograd.grad(out, leaves, d_out)
    wanted = torch.autograd.grad(want, wide_leaves, d_out.double())
    for a, b in zip(got, wanted, strict=True):
        scale = max(1.0, b.abs().max().item())
        torch.testing.assert_close(a.double(), b, rtol=0, atol=20 * tolerance * scale)


def test_bfloat16():
    gate = module(torch.bfloat16)
    *qkv, x = inputs(65, torch.bfloat16)
    x.requires_grad_()
    bias = gate(x)
    assert bias.dtype == torch.float32 and bias.shape == (BATCH, HEADS, 65)
    out = lt.attention(*qkv, causal=True, key_bias=bias)
    # Everything after the projection, which rounds to bfloat16, is exact enough.
    logits = gate.proj(x).double().transpose(1, 2)
    wide = [t.double() for t in qkv]
    want = formula(*wide, torch.nn.functional.logsigmoid(logits))
    torch.testing.assert_close(out.double(), want, rtol=0, atol=2.0**-7)
    out.float().square().sum().backward()
    assert x.grad.dtype == torch.bfloat16 and x.grad.abs().max() > 0


def test_tokens_one_by_one():
    """Decoding with the sums of the cache is what the whole sequence gives."""
    gate = module()
    q, k, v, x = inputs(40)
    whole = lt.attention(q, k, v, causal=True, key_bias=gate(x))
    sums, rows = None, []
    for begin, end in [(0, 31), (31, 32), (32, 33), (33, 40)]:
        bias, sums = gate.decode(x[:, begin:end], sums)
        assert sums.shape == (BATCH, HEADS, end) and sums.dtype == torch.float64
        seen = (k[:, :, :end], v[:, :, :end])
        rows.append(lt.attention(q[:, :, begin:end], *seen, causal=True, key_bias=bias))
    torch.testing.assert_close(torch.cat(rows, 2), whole)
    torch.testing.assert_close(bias, gate(x), rtol=0, atol=0)


def test_numpy_gives_the_same():
    gate = module()
    x = inputs(50)[3]
    log_gates = gate.log_gates(x).detach()
    sums = locus.forget_gate_sums(log_gates.numpy())
    bias = locus.forget_gate_bias(sums)
    torch.testing.assert_close(torch.from_numpy(bias), gate(x), rtol=0, atol=0)
    d_bias = torch.randn(bias.shape)
    log_gates.requires_grad_()
    lt.forget_gate_bias(log_gates).backward(d_bias)
    got = locus.forget_gate_backward(d_bias.numpy())
    torch.testing.assert_close(torch.from_numpy(got), log_gates.grad)
    rest = locus.forget_gate_sums(log_gates.detach().numpy()[..., 30:], sums[..., 29])
    assert (rest == sums[..., 30:]).all()


def test_in_a_compiled_graph():
    gate = module()
    *qkv, x = inputs(20)

    def run(x):
        return lt.attention(*qkv, causal=True, key_bias=gate(x))

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), run(x))


def test_refusals():
    with pytest.raises(ValueError, match=r"log_gates must be \[batch, heads, length\]"):
        lt.forget_gate_bias(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"log_gates must be .* got f32 \[2\]"):
        locus.forget_gate_sums(torch.zeros(2))
    with pytest.raises(ValueError, match="a log gate must be finite, got -inf"):
        locus.forget_gate_sums(torch.full((1, 1, 2), -torch.inf))
    with pytest.raises(ValueError, match=r"before must be \[1, 2\]"):
        locus.forget_gate_sums(torch.zeros(1, 2, 3), torch.zeros(2, 1))


def test_a_sink_on_key_0():
    """MiMo's vision tower biases key 0, which has a value, per head."""
    q, k, v, _ = inputs(30)
    logits = torch.randn(HEADS, requires_grad=True)
    bias = torch.nn.functional.pad(logits[None, :, None], (0, 29))
    out = lt.attention(q, k, v, key_bias=bias)
    wide = logits.detach().double().requires_grad_()
    qw, kw, vw = (x.double() for x in (q, k, v))
    kw, vw = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (kw, vw))
    s = qw @ kw.transpose(2, 3) / HEAD_DIM**0.5
    first = torch.nn.functional.one_hot(torch.tensor(0), 30)
    want = torch.softmax(s + wide[:, None, None] * first, -1) @ vw
    torch.testing.assert_close(out.double(), want, rtol=0, atol=2e-6)
    d_out = torch.randn(out.shape)
    got, wanted = (
        torch.autograd.grad(o, z, d_out.to(o.dtype))[0]
        for o, z in ((out, logits), (want, wide))
    )
    torch.testing.assert_close(got.double(), wanted, rtol=0, atol=2e-5)
