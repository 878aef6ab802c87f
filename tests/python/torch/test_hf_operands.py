"""What models of Hugging Face bring to attention beside q, k, v and positions.

Sinks (gpt-oss), biases per pair (UMT5), masks of pairs, dropout, and the weights
that output_attentions=True asks for: each as eager attention has it.
"""

from __future__ import annotations

import pytest
import torch

import locus_attn.torch as lt
from locus_attn.torch.hf import interface
from locus_attn.torch.hf.masks import Visibility, from_dense

transformers = pytest.importorskip("transformers")

import models  # noqa: E402
from models import LENGTH  # noqa: E402

pytestmark = pytest.mark.usefixtures("softmax_in_the_type_of_the_model")


def gpt_oss(**options):
    config = transformers.GptOssConfig(
        vocab_size=models.VOCABULARY,
        hidden_size=32,
        intermediate_size=models.WIDEST,
        num_hidden_layers=models.LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=6,
        num_local_experts=2,
        num_experts_per_tok=2,
        max_position_embeddings=128,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        pad_token_id=0,
        eos_token_id=None,
        **options,
    )
    model = models.respread(transformers.GptOssForCausalLM(config), models.SPREAD)
    model.set_experts_implementation("eager")  # the others have no float64
    for layer in model.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
        # Its gradients cancel over the tokens and tell nothing of attention.
        layer.mlp.router.requires_grad_(False)
    return model


def umt5():
    config = transformers.UMT5Config(
        vocab_size=models.VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=models.WIDEST,
        num_layers=models.LAYERS,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = transformers.UMT5ForConditionalGeneration(config)
    return models.respread(model, models.SPREAD)


@pytest.mark.parametrize("side", [None, "right", "left"])
def test_gpt_oss_with_its_sinks(side):
    model = gpt_oss()
    reference = models.double(model)
    model.set_attn_implementation("locus")
    inputs, keep = {"input_ids": models.tokens()}, None
    if side is not None:
        keep = models.padding([LENGTH, 14], LENGTH, side)
        inputs["attention_mask"] = keep
    models.assert_same(model, reference, inputs, keep)
    for layer in model.model.layers:
        assert layer.self_attn.sinks.grad.abs().max() > 0


def test_gpt_oss_generates():
    models.assert_same_generation(
        gpt_oss, {"input_ids": models.tokens(1, 9)}, pad_token_id=0
    )


@pytest.mark.parametrize("side", [None, "right", "left"])
def test_umt5_with_its_biases(side):
    """Every layer brings [1, heads, Lq, Lk], made of a table that trains."""
    model = umt5()
    reference = models.double(model)
    model.set_attn_implementation("locus")
    inputs = {
        "input_ids": models.tokens(),
        "decoder_input_ids": models.tokens(length=11, seed=4),
    }
    if side is not None:
        inputs["attention_mask"] = models.padding([LENGTH, 14], LENGTH, side)
    models.assert_same(model, reference, inputs, decoder_length=11)


def layer(seed=0, heads=4, q_length=6, kv_length=9):
    """q, k and v as a layer has them, and as the judge in float64 takes them."""
    gen = torch.Generator().manual_seed(seed)
    shapes = ((heads, q_length), (2, kv_length), (2, kv_length))
    qkv = [torch.randn(2, h, n, 8, generator=gen) for h, n in shapes]
    q, k, v = (x.double() for x in qkv)
    return qkv, (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


def eager(q, k, v, added):
    """Weights [B, H, Lq, Lk] of scores to which `added` is added, and the output."""
    weights = torch.softmax(q @ k.transpose(2, 3) * 8**-0.5 + added, -1)
    return weights, (weights @ v).transpose(1, 2)


def test_masks_of_pairs():
    """Bool or added, one for all heads or one per head, one row or all."""
    qkv, judge = layer()
    gen = torch.Generator().manual_seed(1)
    least = torch.finfo(torch.float32).min
    for shape in ((2, 1, 6, 9), (1, 1, 6, 9), (2, 4, 6, 9), (1, 4, 1, 9)):
        seen = torch.rand(shape, generator=gen) > 0.4
        seen[..., 0] = True
        added = torch.zeros(shape).masked_fill(~seen, least)
        _, want = eager(*judge, added.double())
        for mask in (seen, added, added.clamp(min=-torch.inf)):
            got, _ = interface.attention_forward(torch.nn.Identity(), *qkv, mask)
            torch.testing.assert_close(got, want.float(), rtol=0, atol=2e-6)
        bias = torch.randn(shape, generator=gen)
        mask = (bias + added).clamp(min=least)
        _, want = eager(*judge, mask.double())
        got, _ = interface.attention_forward(torch.nn.Identity(), *qkv, mask)
        torch.testing.assert_close(got, want.float(), rtol=0, atol=2e-6)


def test_an_added_mask_trains():
    qkv, judge = layer()
    mask = torch.randn(1, 4, 6, 9, requires_grad=True)
    wide = mask.detach().double().requires_grad_()
    bias = torch.randn(2, 1, 6, 9)
    for _ in range(2):
        mask.grad = wide.grad = None
        got, _ = interface.attention_forward(
            torch.nn.Identity(), *qkv, mask, position_bias=bias
        )
        _, want = eager(*judge, wide + bias.double())
        got.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(mask.grad, wide.grad.float(), rtol=0, atol=5e-6)


def test_masks_of_pairs_in_a_model():
    """A tree, where tokens see their ancestors, as drafts are verified."""
    model = models.llama()
    reference = models.double(model)
    reference.set_attn_implementation("sdpa")  # its eager form wants numbers
    model.set_attn_implementation("locus")
    seen = torch.eye(LENGTH, dtype=torch.bool)
    for node in range(1, LENGTH):
        seen[node] |= seen[(node - 1) // 2]
    inputs = {
        "input_ids": models.tokens(),
        "attention_mask": seen.expand(2, 1, -1, -1).contiguous(),
        # Siblings share a position.
        "position_ids": (seen.sum(-1) - 1).expand(2, -1),
    }
    models.assert_same(model, reference, inputs)


def test_masks_by_functions_of_any_kind():
    """Prefixes and image blocks, which no flag, window or segment says."""
    from transformers.masking_utils import create_causal_mask

    blocks = torch.tensor([-1, 0, 0, 0, -1, 1, 1, -1, -1])

    def block(b, h, i, j):
        return (blocks[i] == blocks[j]) & (blocks[i] >= 0)

    qkv, judge = layer(q_length=9)
    there = torch.ones(2, 9, dtype=torch.bool)
    there[1, 7:] = False
    made = []
    for name in ("locus", "eager"):
        config = transformers.LlamaConfig()
        config._attn_implementation = name
        mask = create_causal_mask(
            *(config, torch.zeros(2, 9, 32), there),
            past_key_values=None,
            position_ids=None,
            or_mask_function=block,
        )
        made.append(mask)
    mask, added = made
    assert isinstance(mask, Visibility) and mask.pairs is not None
    got, _ = interface.attention_forward(torch.nn.Identity(), *qkv, mask)
    _, want = eager(*judge, added.double())
    torch.testing.assert_close(got[there], want[there].float(), rtol=0, atol=2e-6)


def test_masks_that_flags_can_say_stay_small():
    seen = torch.ones(9, 9, dtype=torch.bool).tril()[None, None]
    assert from_dense(seen, 9, 9).pairs is None
    assert from_dense(torch.where(seen, 0.0, -torch.inf), 9, 9).pairs is None
    seen = seen.clone()
    seen[0, 0, 5, 2] = False
    assert from_dense(seen, 9, 9).pairs is not None


@pytest.mark.parametrize("make", [models.llama, gpt_oss])
def test_weights(make):
    model = make()
    reference = models.double(model)
    model.set_attn_implementation("locus")
    keep = models.padding([LENGTH, 14], LENGTH, "right")
    inputs = {"input_ids": models.tokens(), "attention_mask": keep}
    plain = model(**inputs)
    assert plain.attentions is None
    got = model(**inputs, output_attentions=True)
    want = reference(**inputs, output_attentions=True)
    assert torch.equal(got.logits, plain.logits)
    assert len(got.attentions) == models.LAYERS
    for a, b in zip(got.attentions, want.attentions, strict=True):
        assert not a.requires_grad
        a, b = (x.transpose(1, 2)[keep.bool()] for x in (a, b))
        torch.testing.assert_close(a, b.float(), rtol=0, atol=5e-6)
    half = model.bfloat16()(**inputs, output_attentions=True)
    assert half.attentions[0].dtype == torch.bfloat16


RATE = 0.25
DROPPING = {
    "llama": (lambda: models.llama(attention_dropout=RATE), True),
    "gpt-oss": (lambda: gpt_oss(attention_dropout=RATE), True),
    "t5": (models.t5, False),
    "bloom": (models.bloom, False),
    "deberta": (models.deberta, False),
    "xlnet": (models.xlnet, False),
}


def drop(model, p):
    """Sets the dropout of attention weights, and only that."""
    for module in model.modules():
        name = type(module).__name__
        if name == "T5Attention":
            module.dropout = p
        elif name == "BloomAttention":
            module.attention_dropout.p = p
        elif name in ("DisentangledSelfAttention", "XLNetRelativeAttention"):
            module.dropout.p = p


@pytest.mark.parametrize("name", DROPPING)
def test_dropout(name):
    """A quarter of the weights is dropped, the others grow by a third."""
    make, by_name = DROPPING[name]
    model = make()
    lt.patch(model)
    if not by_name:
        drop(model, RATE)
    inputs = {"input_ids": models.tokens(2, 60), "output_attentions": True}
    if name == "t5":
        inputs["decoder_input_ids"] = models.tokens(2, 60, seed=4)
    first = "encoder_attentions" if name == "t5" else "attentions"
    with torch.no_grad():
        whole = model.eval()(**inputs)[first][0]
        model.train()
        torch.manual_seed(3)
        out = model(**inputs)
        torch.manual_seed(3)
        again = model(**inputs)
        other = model(**inputs)
    dropped = out[first][0]
    alive = whole > 0
    kept = dropped > 0
    torch.testing.assert_close(dropped[kept], whole[kept] / (1 - RATE))
    share = (alive & ~kept).sum() / alive.sum()
    assert abs(share - RATE) < 5 * (RATE * (1 - RATE) / alive.sum()) ** 0.5
    assert torch.equal(out.logits, again.logits)
    assert not torch.equal(out.logits, other.logits)
    # Without it, training is what evaluation is.
    lt.unpatch(model)
    lt.patch(model, ignore_attention_dropout=True)
    if name != "xlnet":  # whose dropout is everywhere
        with torch.no_grad():
            plain = model.train()(**inputs).logits
            assert torch.equal(plain, model.eval()(**inputs).logits)


def test_dropout_of_zero_is_none():
    """Training without dropout is eager attention, exactly as before."""
    model = gpt_oss(attention_dropout=0.0).train()
    reference = models.double(model)
    model.set_attn_implementation("locus")
    models.assert_same(model, reference, {"input_ids": models.tokens()})


def test_xlnet_has_no_weights_of_its_predictions():
    model = lt.patch(models.xlnet())
    mapping = torch.nn.functional.one_hot(torch.tensor([[4], [7]]), LENGTH).float()
    with pytest.raises(ValueError, match="output_attentions must be False"):
        model(models.tokens(), target_mapping=mapping, output_attentions=True)
