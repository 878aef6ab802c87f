"""Caches of fixed size: the logits are those of eager attention on such a cache.

A static cache counts its tokens in a tensor that the layers advance in place, so
a mask must be read before they do. Keys beyond the last token exist and are hidden.
"""

from __future__ import annotations

import copy

import pytest
import torch

from locus_attn.torch.conformance import inputs as small
from locus_attn.torch.conformance import judge, sizes
from locus_attn.torch.hf import masks

transformers = pytest.importorskip("transformers")

import pairs  # noqa: E402

import models  # noqa: E402

LENGTH = small.LENGTH
CACHE = LENGTH + 4
# A prompt in two parts, single tokens, and a part that fills a window.
CHUNKS = (7, 2, 1, 1, 8)
DECODERS = ["llama", "qwen3", "gpt2", "gpt_neox", "opt", "llama4_text"]
WINDOWED = ["mistral", "gemma2", "gemma3_text", "cohere2"]
SEQ2SEQ = ["bart", "marian", "pegasus", "t5", "mt5"]
KNOWN_TO_PATCH = ["bloom", "t5", "mt5"]


def pair(model_type):
    """(on Locus, on eager attention), with the same weights."""
    known = model_type in KNOWN_TO_PATCH
    make = pairs.by_patch if known else pairs.by_name
    return make(model_type), pairs.original(model_type)


def assert_equal(got, want, least=1e-3):
    # What is compared must differ from token to token.
    assert float(want.std()) > least * float(want.abs().max())
    error = judge.difference([got], [want])
    assert error <= judge.TOLERANCE["forward"]


def in_chunks(model, cache, mask):
    """The logits of a sequence that arrives in pieces."""
    ids, start, rows = small.tokens(), 0, []
    # BLOOM counts its positions in the mask, which must cover the whole cache.
    spare = CACHE - LENGTH if "Bloom" in type(model).__name__ else 0
    for length in CHUNKS:
        end = start + length
        seen = {}
        if mask is not None:
            width = (LENGTH - end + spare) if spare else 0
            seen["attention_mask"] = torch.nn.functional.pad(mask[:, :end], (0, width))
        out = model(input_ids=ids[:, start:end], past_key_values=cache, **seen)
        rows.append(out.logits)
        start = end
    return torch.cat(rows, dim=1)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *WINDOWED, "bloom"])
def test_prompt_in_chunks(name, side):
    model, original = pair(name)
    mask = None if side is None else models.padding([LENGTH, 12], LENGTH, side)
    rows = []
    with torch.no_grad():
        for m in (model, original):
            cache = transformers.StaticCache(m.config, max_cache_len=CACHE)
            rows.append(in_chunks(m, cache, mask))
        plain = original(input_ids=small.tokens(), attention_mask=mask).logits
    got, want = (x if mask is None else x[mask.bool()] for x in rows)
    assert_equal(got, want)
    if side is None:
        assert_equal(got, plain)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *WINDOWED, *SEQ2SEQ, "bloom"])
def test_generation(name, side):
    """Logits of every step, and its tokens.

    With padding on the right the first query is padding itself, and originals say
    something about it only where it sees a real token: in a window, not a chunk.
    """
    if (name, side) == ("llama4_text", "right"):
        pytest.skip("its last chunk is padding")
    model, original = pair(name)
    inputs = {}
    if side is not None:
        kept = 12 if side == "left" else LENGTH - 3
        inputs["attention_mask"] = models.padding([LENGTH, kept], LENGTH, side)
    made = [
        m.generate(
            small.tokens(),
            **inputs,
            cache_implementation="static",
            max_new_tokens=8,
            min_new_tokens=8,
            do_sample=False,
            decoder_start_token_id=0 if m.config.is_encoder_decoder else None,
            output_logits=True,
            return_dict_in_generate=True,
            disable_compile=True,
        )
        for m in (model, original)
    ]
    assert torch.equal(made[0].sequences, made[1].sequences)
    assert_equal(*(torch.stack(m.logits) for m in made))


def test_generation_of_whisper():
    """Its prompt is sound; the decoder caches its own keys and the encoder's."""
    config = transformers.WhisperConfig(
        vocab_size=sizes.VOCABULARY,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        num_mel_bins=8,
        max_source_positions=20,
        max_target_positions=40,
        decoder_start_token_id=1,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    original = transformers.WhisperForConditionalGeneration(config)
    original = models.respread(original, models.SPREAD)
    model = copy.deepcopy(original)
    model.set_attn_implementation("locus")
    original.set_attn_implementation("eager")
    sound = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(5))
    steps = [decoder_in_chunks(m, {}, sound, 20) for m in (model, original)]
    assert_equal(*steps)


def decoder_in_chunks(model, inputs, source, width):
    """Logits of a decoder whose tokens arrive in pieces; `width` keys to cross."""
    with torch.no_grad():
        encoded = model.get_encoder()(source, **inputs)
        cache = transformers.EncoderDecoderCache(
            transformers.StaticCache(model.config, max_cache_len=16),
            transformers.StaticCache(model.config, max_cache_len=width),
        )
        rows = []
        for chunk in small.tokens()[:, :12].split([5, 1, 6], dim=1):
            out = model(
                **inputs,
                encoder_outputs=encoded,
                decoder_input_ids=chunk,
                past_key_values=cache,
            )
            rows.append(out.logits)
    return torch.cat(rows, dim=1)


@pytest.mark.parametrize("side", [None, "left", "right"])
@pytest.mark.parametrize("name", SEQ2SEQ)
def test_decoder_prompt_in_chunks(name, side):
    pieces = []
    for m in pair(name):
        inputs = {}
        if side is not None:
            inputs["attention_mask"] = models.padding([LENGTH, 12], LENGTH, side)
        pieces.append(decoder_in_chunks(m, inputs, small.tokens(), LENGTH))
    assert_equal(*pieces)
    if side is None:
        with torch.no_grad():
            plain = pairs.original(name)(
                input_ids=small.tokens(), decoder_input_ids=small.tokens()[:, :12]
            )
        assert_equal(pieces[0], plain.logits)


def test_a_mask_for_other_lengths_is_refused():
    """Transformers may size a mask by another layer than it is used in."""
    mask = masks.Visibility(1, 4, 3, causal=True, owner="some-model")
    with pytest.raises(
        ValueError, match="some-model made its mask for 1 queries and 4"
    ):
        mask.fit(1, 6)
    # A single element counts for all, as that of a tensor would.
    assert masks.Visibility(1, 1, causal=True).fit(1, 6).options() == {"causal": False}
