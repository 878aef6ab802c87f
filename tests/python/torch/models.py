"""Small models with random weights, and how their outputs are compared."""

from __future__ import annotations

import copy

import torch
import transformers

import locus_attn.torch as lt

EPSILON = torch.finfo(torch.float32).eps
VOCABULARY = 101
LENGTH = 23
# Of every model here.
LAYERS, WIDEST = 2, 48

# Standard deviation times the square root of the width. Larger than the usual
# initialisation, so that positions and attention matter.
SPREAD = 0.3
# Large enough for greedy tokens to vary; roundings grow too, so only for tokens.
LIVELY = 2.0


def respread(model, spread):
    torch.manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1 or "bias" in name:
                p.normal_(std=spread / p.shape[-1] ** 0.5 if p.dim() > 1 else 0.1)
    for name, p in model.named_parameters():
        if "relative_attention_bias" in name or "rel_embeddings" in name:
            torch.nn.init.normal_(p, std=1.0)
    return model.eval()


def llama(**options):
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=WIDEST,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=None,
        bos_token_id=1,
        **options,
    )
    return respread(transformers.LlamaForCausalLM(config), SPREAD)


def mistral(window=5):
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=WIDEST,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        sliding_window=window,
        pad_token_id=0,
        eos_token_id=None,
    )
    return respread(transformers.MistralForCausalLM(config), SPREAD)


def t5(family="T5"):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=WIDEST,
        num_layers=LAYERS,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=None,
    )
    model = getattr(transformers, f"{family}ForConditionalGeneration")
    return respread(model(config), SPREAD)


def bloom(heads=4):
    config = transformers.BloomConfig(
        vocab_size=VOCABULARY,
        hidden_size=8 * heads,
        n_layer=LAYERS,
        n_head=heads,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        pad_token_id=0,
        eos_token_id=None,
    )
    return respread(transformers.BloomForCausalLM(config), SPREAD)


def deberta(**options):
    config = transformers.DebertaV2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=WIDEST,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        relative_attention=True,
        position_biased_input=False,
        **{
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
            "max_relative_positions": 32,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            **options,
        },
    )
    return respread(transformers.DebertaV2ForMaskedLM(config), SPREAD)


def xlnet(**options):
    config = transformers.XLNetConfig(
        vocab_size=VOCABULARY,
        d_model=32,
        n_layer=LAYERS,
        n_head=4,
        d_inner=WIDEST,
        dropout=0.0,
        **options,
    )
    return respread(transformers.XLNetLMHeadModel(config), SPREAD)


# Models that patch knows, and further inputs, for LENGTH tokens.
PATCHED = {
    "llama": (llama, {}),
    "mistral": (mistral, {}),
    "bloom": (bloom, {}),
    "bloom-6-heads": (lambda: bloom(6), {}),
    "deberta": (deberta, {}),
    "deberta-c2p": (lambda: deberta(pos_att_type=["c2p"]), {}),
    "deberta-own-projections": (lambda: deberta(share_att_key=False), {}),
    "deberta-no-buckets": (
        lambda: deberta(position_buckets=-1, max_relative_positions=16),
        {},
    ),
    "deberta-conv": (lambda: deberta(conv_kernel_size=3), {}),
    "xlnet": (xlnet, {}),
    "xlnet-clamped": (lambda: xlnet(clamp_len=6), {}),
    "xlnet-uni": (lambda: xlnet(attn_type="uni"), {}),
    "xlnet-types": (
        xlnet,
        {"token_type_ids": torch.arange(LENGTH).expand(2, -1) // 9},
    ),
}


def _sizes():
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": WIDEST,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
    }


def _no_dropout():
    return {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def _grouped():
    return {**_sizes(), "num_key_value_heads": 2, "head_dim": 8}


# Models with the attention interface, and what is particular to each.
INTERFACE = {
    # Bidirectional.
    "bert": lambda t: t.BertForMaskedLM(t.BertConfig(**_sizes(), **_no_dropout())),
    # Bidirectional windows.
    "modernbert": lambda t: t.ModernBertForMaskedLM(
        t.ModernBertConfig(
            **_sizes(),
            local_attention=6,
            global_attn_every_n_layers=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            cls_token_id=1,
            sep_token_id=2,
        )
    ),
    # Learned positions, made of the padding mask.
    "opt": lambda t: t.OPTForCausalLM(
        t.OPTConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            ffn_dim=WIDEST,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            word_embed_proj_dim=32,
            dropout=0.0,
        )
    ),
    # Partial rotary dimension.
    "gpt-neox": lambda t: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_sizes())),
    # Soft-capping, windows in every other layer.
    "gemma2": lambda t: t.Gemma2ForCausalLM(
        t.Gemma2Config(
            **_grouped(),
            sliding_window=5,
            attn_logit_softcapping=2.0,
            query_pre_attn_scalar=8,
        )
    ),
    # Norms of q and k.
    "qwen3": lambda t: t.Qwen3ForCausalLM(t.Qwen3Config(**_grouped())),
    # Chunks, and layers without positions.
    "llama4": lambda t: t.Llama4ForCausalLM(
        t.Llama4TextConfig(
            **_grouped(),
            attention_chunk_size=6,
            intermediate_size_mlp=WIDEST,
            num_local_experts=2,
            no_rope_layers=[1, 0],
        )
    ),
}


def by_interface(name):
    torch.manual_seed(1)
    return respread(INTERFACE[name](transformers), SPREAD)


def tokens(batch=2, length=23, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, VOCABULARY, (batch, length), generator=generator)


def padding(lengths, length, side):
    """int64 [B, L] of ones and zeros, the zeros at one side."""
    ends = torch.tensor(lengths)[:, None]
    mask = (torch.arange(length) < ends).long()
    return mask if side == "right" else mask.flip(-1)


def double(model):
    """The same model in float64, on its own attention."""
    reference = copy.deepcopy(model).double()
    reference.set_attn_implementation("eager")
    return reference


def logits_and_grads(model, weight, keep=None, **inputs):
    """Logits, and the gradients of sum(weight * logits) over the kept tokens."""
    model.zero_grad()
    logits = model(**inputs).logits
    loss = logits * weight.to(logits.dtype)
    if keep is not None:
        loss = loss * keep[..., None]
    loss.sum().backward()
    grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), grads


def roundings_of(length):
    return LAYERS * (WIDEST + length) ** 0.5


def assert_close(actual, expected, roundings, what, least=0.0):
    """|actual - expected| <= eps * roundings * the largest of |expected|.

    roundings: how many float32 roundings an element may pass through. least: what
    counts as the largest if `expected` cancels to less.
    """
    scale = max(float(expected.detach().abs().max()), least)
    error = float((actual.detach().double() - expected.detach()).abs().max())
    assert error <= EPSILON * roundings * scale, (
        f"{what}: error {error:.3g} is {error / (EPSILON * scale):.0f} epsilons of "
        f"{scale:.3g}, allowed are {roundings:.0f}"
    )


def assert_same_generation(make, inputs, judge=double, **options):
    """Greedy tokens of a patched model and of `judge(model)`, its original."""
    model = respread(make(), LIVELY)
    steps = {"max_new_tokens": 10, "do_sample": False, **options}
    expected = judge(model).generate(**inputs, **steps)
    # Otherwise the tokens would say little.
    assert len(expected[:, -10:].unique()) > 4
    assert torch.equal(lt.patch(model).generate(**inputs, **steps), expected)


def assert_same(patched, reference, inputs, keep=None, decoder_length=None):
    """Logits and all gradients of a float32 model against a float64 one.

    keep: bool [B, L], tokens whose logits count. Each layer sums over its width
    and over the keys; roundings of a sum add like a random walk, so with the
    square root of their number. There and back is twice that.
    """
    some = next(iter(inputs.values()))
    length = decoder_length or some.shape[1]
    batch = some.shape[0]
    generator = torch.Generator().manual_seed(11)
    weight = torch.randn(batch, length, VOCABULARY, generator=generator)
    got, got_grads = logits_and_grads(patched, weight, keep, **inputs)
    want, want_grads = logits_and_grads(reference, weight, keep, **inputs)
    roundings = roundings_of(length)
    if keep is not None:
        got, want = got[keep.bool()], want[keep.bool()]
    assert_close(got, want, roundings, "logits")
    assert got_grads.keys() == want_grads.keys()
    # What cancels to nothing, as gradients of key biases do, is judged against
    # a small part of the largest.
    largest = max(float(g.abs().max()) for g in want_grads.values())
    for name, grad in want_grads.items():
        assert_close(got_grads[name], grad, 2 * roundings, name, largest / 256)
