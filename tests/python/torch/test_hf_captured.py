"""Attention written out with PyTorch's operations, captured and run fused."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import locus_attn.torch as lt
from locus_attn.torch.hf import captured
from locus_attn.torch.hf.masks import Visibility

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 7, 9, 8
LOW = torch.finfo(torch.float32).min


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def rows():
    """q, k and v that train."""
    return [
        draw(BATCH, HEADS, length, DIM).requires_grad_()
        for length in (QUERIES, KEYS, KEYS)
    ]


BIAS = draw(1, HEADS, QUERIES, KEYS)
SEEN = draw(BATCH, 1, QUERIES, KEYS) > -0.5
PADDING = torch.tensor([KEYS, 5])
KEPT = (torch.arange(KEYS) < PADDING[:, None])[:, None, None]


def plain(q, k, v):
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)), -1), v)


def operators(q, k, v):
    scores = q @ k.transpose(-2, -1)
    scores = scores * 0.5 / math.sqrt(DIM)
    scores += BIAS
    return scores.softmax(dim=-1) @ v


def in_one_axis(q, k, v):
    q, k, v = (x.reshape(BATCH * HEADS, -1, DIM) for x in (q, k, v))
    scores = torch.bmm(q, k.transpose(1, 2)).view(BATCH, HEADS, QUERIES, KEYS)
    scores = (scores + BIAS).view(BATCH * HEADS, QUERIES, KEYS)
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights, v).view(BATCH, HEADS, QUERIES, DIM)


def added_product(q, k, v):
    q, k, v = (x.reshape(BATCH * HEADS, -1, DIM) for x in (q, k, v))
    bias = BIAS.expand(BATCH, -1, -1, -1).reshape(-1, QUERIES, KEYS)
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=0.5, alpha=0.25)
    return torch.bmm(scores.softmax(-1), v).view(BATCH, HEADS, QUERIES, DIM)


def letters(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    scores = torch.einsum("bind,bjnd->bnij", q, k) - 3.0 * BIAS
    out = torch.einsum("bnij,bjnd->bind", scores.softmax(-1), v)
    return out.transpose(1, 2)


def windows(q, k, v):
    """More leading axes, as in Swin."""
    scores = (q @ k.transpose(-1, -2)).view(1, BATCH, HEADS, QUERIES, KEYS)
    scores = scores + torch.where(SEEN, 0.0, -100.0)[None]
    scores = scores.view(-1, HEADS, QUERIES, KEYS)
    return scores.softmax(-1) @ v


def filled(q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2)).masked_fill(~SEEN, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(~SEEN, 0.0)
    return weights @ v


def filled_in_place(q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores.masked_fill_(~KEPT, LOW)
    return torch.softmax(scores + BIAS, -1) @ v


def chosen(q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = torch.where(SEEN, scores, torch.tensor(LOW))
    return nn.Softmax(dim=-1)(torch.max(scores, torch.tensor(LOW))) @ v


def padded(q, k, v):
    scores = torch.matmul(q, k.transpose(-1, -2))
    return (scores + torch.where(KEPT, 0.0, LOW)).softmax(-1) @ v


def by_head(q, k, v):
    """A factor per head, as in Swin V2."""
    factors = torch.tensor([0.5, 1.0, 2.0]).view(HEADS, 1, 1)
    return ((q @ k.transpose(-1, -2)) * factors + BIAS).softmax(-1) @ v


def with_positions(q, k, v):
    """Scores that meet another product, as in Transformer-XL."""
    table = draw(HEADS, KEYS, DIM)
    scores = q @ k.transpose(-1, -2) + (q @ table.transpose(-1, -2)).flip(-1)
    return (scores / math.sqrt(DIM)).softmax(-1) @ v


def fused(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=BIAS)


def fused_and_masked(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=SEEN)


WAYS = [plain, operators, in_one_axis, added_product, letters, windows, filled]
WAYS += [filled_in_place, chosen, padded, by_head, with_positions, fused]
WAYS += [fused_and_masked]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_way_of_writing_it(way):
    """Outputs and gradients are those of the operations themselves."""
    q, k, v = rows()
    want = way(q, k, v)
    weight = draw(*want.shape)
    wanted = torch.autograd.grad((want * weight).sum(), (q, k, v))
    capture = captured._Capture(nn.Identity())
    with capture:
        got = way(q, k, v)
    assert capture.runs == 1 and type(got) is torch.Tensor
    torch.testing.assert_close(got, want, rtol=0, atol=5e-6)
    gradients = torch.autograd.grad((got * weight).sum(), (q, k, v))
    for a, b in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=3e-5)


def test_a_bias_trains():
    q, k, v = rows()
    bias = BIAS.clone().requires_grad_()

    def run():
        return ((q @ k.transpose(-1, -2) + bias).softmax(-1) @ v).square().sum()

    (want,) = torch.autograd.grad(run(), bias)
    with captured._Capture(nn.Identity()):
        loss = run()
    (got,) = torch.autograd.grad(loss, bias)
    torch.testing.assert_close(got, want, rtol=0, atol=3e-5)


def test_the_mask_of_a_model_is_added_as_what_it_says():
    """A Visibility, or a part of it, stands for numbers that hide pairs."""
    q, k, v = rows()
    mask = Visibility(QUERIES, KEYS, KEYS - QUERIES, causal=True)
    added = torch.where(mask.dense(), 0.0, LOW)
    want = (q @ k.transpose(-1, -2) + added).softmax(-1) @ v
    for given in (mask, mask[:, :, :, :KEYS]):
        with captured._Capture(nn.Identity()):
            got = (q @ k.transpose(-1, -2) + given).softmax(-1) @ v
        torch.testing.assert_close(got, want, rtol=0, atol=5e-6)


def test_other_products_are_themselves():
    """What is no attention is computed, whatever is asked of it."""
    a, b = draw(2, 3, 4, 5), draw(2, 3, 5, 6)
    want = a @ b
    with captured._Capture(nn.Identity()) as capture:
        got = a @ b
        assert got.shape == want.shape and got.size(-1) == 6 and got.dim() == 4
        assert got.dtype == want.dtype and got.ndim == 4
        sums = [got.sum(), got.tanh().sum(), (2.0 - got).sum(), got[0].sum()]
    for found, right in zip(
        sums,
        [want.sum(), want.tanh().sum(), (2.0 - want).sum(), want[0].sum()],
        strict=True,
    ):
        torch.testing.assert_close(found, right)
    assert capture.runs == 0


class Talking(nn.Module):
    """Mixes the weights of its heads."""

    def forward(self, q, k, v):
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return weights.flip(1) @ v


class Written(nn.Module):
    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, q, k, v, output_attentions=False):
        weights = self.dropout((q @ k.transpose(-1, -2)).softmax(-1))
        return weights @ v, weights


def test_what_cannot_be_captured_is_refused():
    module = Talking()
    with pytest.raises(ValueError, match="it computes flip of"):
        captured._forward(module, module.forward, None, *rows())


def test_weights_come_where_they_are_asked_for():
    module, (q, k, v) = Written().eval(), rows()
    _, weights = captured._forward(module, module.forward, 3, q, k, v)
    assert weights is None
    for more in ((True,), ()):
        asked = {} if more else {"output_attentions": True}
        _, weights = captured._forward(
            module, module.forward, 3, q, k, v, *more, **asked
        )
        torch.testing.assert_close(weights, module(q, k, v)[1], rtol=0, atol=5e-6)


def test_dropout_of_weights():
    """Drops half of them in training, and draws from PyTorch's generator."""
    module, (q, k, v) = Written().train(), rows()
    ones = torch.ones_like(v)

    def run():
        torch.manual_seed(3)
        return captured._forward(module, module.forward, 3, q, k, ones)[0]

    kept = run()
    assert torch.equal(kept, run())
    assert 0.5 < float(kept.mean()) < 1.5 and float(kept.std()) > 0.1
    object.__setattr__(module, "locus_ignores_dropout", True)
    torch.testing.assert_close(run(), torch.ones_like(kept), rtol=0, atol=5e-6)


def test_unpatch_restores_what_was_captured():
    transformers = pytest.importorskip("transformers")
    config = transformers.MPNetConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=99
    )
    config.intermediate_size = 48
    model = transformers.MPNetModel._from_config(config, attn_implementation="eager")
    model.eval()
    ids = torch.arange(3, 20)[None]
    before, names = model(ids).last_hidden_state, list(model.state_dict())
    lt.patch(model)
    assert list(model.state_dict()) == names
    got = model(ids).last_hidden_state
    torch.testing.assert_close(got, before, rtol=0, atol=2e-5)
    lt.unpatch(model)
    assert torch.equal(model(ids).last_hidden_state, before)
    assert not any("forward" in vars(m) for m in model.modules())


def tower(name, attention, **fields):
    transformers = pytest.importorskip("transformers")
    cls = getattr(transformers, name)
    torch.manual_seed(1)
    config = cls.config_class(**fields)
    model = cls._from_config(config, attn_implementation=attention).eval()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.3 / p.shape[-1] ** 0.5)
    return model


SAM = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"image_size": 32, "patch_size": 8, "output_channels": 16, "mlp_dim": 48},
    **{"window_size": 2, "global_attn_indexes": [1]},
}
SWIN = {"image_size": 16, "embed_dim": 16, "depths": [2], "num_heads": [2]}


@pytest.mark.parametrize(
    ("name", "attention", "fields"),
    [
        ("SamVisionModel", "eager", SAM),
        ("SamVisionModel", "sdpa", SAM),
        ("Swin2SRModel", "eager", {**SWIN, "window_size": 4}),
    ],
)
def test_towers_with_relative_positions(name, attention, fields):
    """Windows that shift, and rows and columns that the query meets apart."""
    model = tower(name, attention, **fields)
    pixels = draw(2, 3, fields["image_size"], fields["image_size"])
    want = model(pixels).last_hidden_state
    wanted = torch.autograd.grad(want.square().sum(), list(model.parameters())[-1])
    lt.patch(model)
    got = model(pixels).last_hidden_state
    torch.testing.assert_close(got, want, rtol=0, atol=3e-5 * float(want.abs().max()))
    gradient = torch.autograd.grad(got.square().sum(), list(model.parameters())[-1])
    atol = 1e-4 * float(wanted[0].abs().max())
    torch.testing.assert_close(gradient[0], wanted[0], rtol=0, atol=atol)
