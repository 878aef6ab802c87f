"""patch(model, encoding=...): a decoder of Hugging Face with a bias of your own.

Judged by the same model in float64 on its eager attention, with the bias, made for
every pair, in its additive mask.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import locus_attn as locus
import locus_attn.torch as lt

transformers = pytest.importorskip("transformers")

import models  # noqa: E402
from models import LENGTH  # noqa: E402

pytestmark = pytest.mark.usefixtures("softmax_in_the_type_of_the_model")

HEADS = 4


class Gaussian(nn.Module):
    def __init__(self):
        super().__init__()
        self.sigma = nn.Parameter(torch.linspace(1.0, 6.0, HEADS))

    def forward(self, offsets):
        return -(offsets**2) / (2 * self.sigma[:, None] ** 2)


def own():
    return lt.RelativeBias(Gaussian(), heads=HEADS)


class Judge(nn.Module):
    """The model in float64 with the bias in its mask."""

    def __init__(self, model, bias):
        super().__init__()
        self.model = models.double(model)
        self.locus_encoding = copy.deepcopy(bias).double()

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        length = input_ids.shape[1]
        at = torch.arange(length)
        offset = at[:, None] - at
        bias = self.locus_encoding.fn(offset.reshape(-1)).unflatten(-1, offset.shape)
        seen = (offset >= 0)[None]
        if attention_mask is not None:
            # Padding sees itself, so that no row is empty; nobody looks there.
            seen = seen & (attention_mask[:, None] > 0) | torch.eye(length).bool()
        if position_ids is not None:
            parts = (position_ids == 0).cumsum(-1)
            seen = seen & (parts[:, :, None] == parts[:, None])
        hidden = torch.finfo(torch.float64).min
        mask = torch.where(seen[:, None], bias, hidden)
        return self.model(input_ids, attention_mask=mask, position_ids=position_ids)


@pytest.mark.parametrize("case", ["plain", "left", "right", "packed"])
def test_logits_and_gradients(case):
    """Of every parameter, those of the bias among them."""
    model, bias = models.llama(), own()
    judge = Judge(model, bias)
    inputs, keep = {"input_ids": models.tokens()}, None
    more = {}
    if case == "packed":
        at = torch.cat([torch.arange(9), torch.arange(LENGTH - 9)])
        inputs["position_ids"] = at.expand(2, -1)
        more["use_cache"] = False  # else transformers looks for no packing
    elif case != "plain":
        keep = models.padding([LENGTH, 14], LENGTH, case)
        inputs["attention_mask"] = keep
        # The original counts positions from the first token of the row too.
        more["position_ids"] = torch.arange(LENGTH).expand(2, -1)
    lt.patch(model, encoding=bias)
    weight = torch.randn(
        2, LENGTH, models.VOCABULARY, generator=torch.Generator().manual_seed(1)
    )
    got, got_grads = models.logits_and_grads(model, weight, keep, **inputs, **more)
    want, want_grads = models.logits_and_grads(judge, weight, keep, **inputs)
    if keep is not None:
        got, want = got[keep.bool()], want[keep.bool()]
    roundings = models.roundings_of(LENGTH)
    models.assert_close(got, want, roundings, "logits")
    want_grads = {n.removeprefix("model."): g for n, g in want_grads.items()}
    assert "locus_encoding.fn.sigma" in got_grads
    largest = max(float(g.abs().max()) for g in want_grads.values())
    for name, grad in got_grads.items():
        want = want_grads[name]
        models.assert_close(grad, want, 2 * roundings, name, largest / 256)


def test_generation_equals_the_whole():
    """Tokens one by one over a cache, growing or static, see the bias of the whole."""
    model = models.respread(models.llama(), models.LIVELY)
    plain = model.generate(models.tokens(), max_new_tokens=10, do_sample=False)
    lt.patch(model, encoding=own())
    steps = {"max_new_tokens": 10, "do_sample": False}
    grown = model.generate(models.tokens(), **steps)
    assert not torch.equal(grown, plain)
    for more in ({"use_cache": False}, {"cache_implementation": "static"}):
        again = model.generate(models.tokens(), **steps, **more, disable_compile=True)
        assert torch.equal(again, grown), more


def test_one_bias_for_all_layers_is_saved_once(tmp_path):
    model, bias = models.llama(), own()
    names = list(model.state_dict())
    lt.patch(model, encoding=bias)
    assert [*model.state_dict()] == [*names, "locus_encoding.fn.sigma"]
    assert sum(p is bias.fn.sigma for p in model.parameters()) == 1
    before = model(input_ids=models.tokens()).logits
    clone = copy.deepcopy(model)
    with torch.no_grad():
        bias.fn.sigma.mul_(3.0)
    assert not torch.equal(model(input_ids=models.tokens()).logits, before)
    assert torch.equal(clone(input_ids=models.tokens()).logits, before)
    model.load_state_dict(clone.state_dict())
    assert torch.equal(model(input_ids=models.tokens()).logits, before)
    lt.unpatch(model)
    assert [*model.state_dict()] == names
    assert not any("locus_encoding" in vars(m) for m in model.modules())
    plain = models.llama()
    want = plain(input_ids=models.tokens()).logits
    assert torch.equal(model(input_ids=models.tokens()).logits, want)


def test_other_encodings_join_too():
    """Any module of locus.torch, and half types."""
    model = models.llama()
    plain = model(input_ids=models.tokens()).logits
    lt.patch(model, encoding=lt.T5Bias(HEADS))
    model(input_ids=models.tokens()).logits.sum().backward()
    table = model.locus_encoding.relative_attention_bias.weight
    assert table.grad.abs().max() > 0
    with torch.no_grad():
        table.zero_()
    got = model(input_ids=models.tokens()).logits
    torch.testing.assert_close(got, plain)
    half = lt.patch(models.llama(), encoding=own()).bfloat16()
    out = half(input_ids=models.tokens()).logits
    assert out.dtype == torch.bfloat16 and torch.isfinite(out).all()


def test_compiles():
    model = lt.patch(models.llama(), encoding=own())
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        for length in (LENGTH, LENGTH - 5):
            inputs = {"input_ids": models.tokens(length=length)}
            want = model(**inputs).logits
            torch.testing.assert_close(compiled(**inputs).logits, want)


def test_refusals():
    for model, words in (
        (models.t5(), "T5ForConditionalGeneration has positions of its own"),
        (models.bloom(), "BloomForCausalLM has positions of its own"),
    ):
        before = list(model.state_dict())
        with pytest.raises(ValueError, match=words):
            lt.patch(model, encoding=own())
        assert list(model.state_dict()) == before
    bart = transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=50, d_model=16, encoder_layers=1, decoder_layers=1,
            encoder_attention_heads=2, decoder_attention_heads=2,
            encoder_ffn_dim=16, decoder_ffn_dim=16,
        )
    )  # fmt: skip
    with pytest.raises(ValueError, match="has an encoder and a decoder"):
        lt.patch(bart, encoding=own())
    llama = models.llama()
    for wrong in (3, Gaussian(), locus.Alibi(HEADS)):
        with pytest.raises(TypeError, match=r"must be a module of locus.torch"):
            lt.patch(llama, encoding=wrong)
    wide = lt.RelativeBias(Gaussian(), heads=HEADS)
    wide.heads = 3
    lt.patch(llama, encoding=wide)
    with pytest.raises(ValueError, match=r"\[3 heads, 23 offsets\], got \[4, 23\]"):
        llama(input_ids=models.tokens())
