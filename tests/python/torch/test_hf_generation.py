"""Hugging Face models on Locus: greedy generation with a cache, and memory.

The tokens are those of the same model in float64 on its own attention.
"""

from __future__ import annotations

import copy

import pytest

import locus_attn.torch as lt

transformers = pytest.importorskip("transformers")

import models  # noqa: E402
from models import PATCHED  # noqa: E402

pytestmark = pytest.mark.usefixtures("softmax_in_the_type_of_the_model")


PROMPT = 12


def prompt(side):
    inputs = {"input_ids": models.tokens(length=PROMPT)}
    if side is not None:
        inputs["attention_mask"] = models.padding([PROMPT, 7], PROMPT, side)
    return inputs


@pytest.mark.parametrize("side", [None, "left"])
@pytest.mark.parametrize("name", ["llama", "mistral", "bloom"])
def test_greedy_generation_with_cache(name, side):
    models.assert_same_generation(PATCHED[name][0], prompt(side))


@pytest.mark.parametrize("side", [None, "right", "left"])
def test_t5_greedy_generation_with_cache(side):
    models.assert_same_generation(models.t5, prompt(side))


def test_static_cache():
    """A cache of fixed size: keys beyond the last token exist but are hidden."""
    options = {"cache_implementation": "static", "disable_compile": True}
    models.assert_same_generation(models.llama, prompt("left"), **options)


def test_xlnet_memory():
    """Two segments with memory against the float64 model with memory."""
    model = models.xlnet(mem_len=16)
    reference = models.double(model)
    lt.patch(model)
    first, second = models.tokens(length=10), models.tokens(length=8, seed=5)
    outs = []
    for m in (model, reference):
        mems = m(input_ids=first, use_mems=True).mems
        outs.append(m(input_ids=second, mems=mems, use_mems=True))
    got, want = outs
    models.assert_close(got.logits, want.logits, models.roundings_of(18), "logits")
    for a, b in zip(got.mems, want.mems, strict=True):
        models.assert_close(a, b, models.roundings_of(18), "mems")


@pytest.mark.parametrize("use_mems", [False, True])
def test_xlnet_greedy_generation_with_memory(use_mems):
    """The original makes float32 masks only, so it is judged in float32."""
    options = {"use_mems": use_mems, "pad_token_id": 0, "eos_token_id": None}
    models.assert_same_generation(
        models.xlnet, prompt(None), judge=copy.deepcopy, **options
    )
