"""Every text architecture of transformers by name: equal, or one sentence.

A model runs with attn_implementation="locus" and gives the logits of its eager
attention, padded or not, or it is refused by a ValueError that names it.
"""

from __future__ import annotations

import pytest

transformers = pytest.importorskip("transformers")

import conformance  # noqa: E402
import tiny  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TYPES = tiny.model_types()


def test_the_sweep_is_wide():
    assert len(TYPES) > 200


# Refused by name, so patch either knows them or says why not.
PATCHED = {"bloom", "deberta-v2", "mt5", "t5", "xlnet"}


@pytest.fixture(scope="module", params=TYPES)
def model_type(request):
    """All tests of one model follow each other, so that it is built once."""
    return request.param


def test_equal_or_one_sentence(model_type, findings):
    for finding in conformance.examine(model_type, conformance.FORWARD):
        findings.append(finding)
        assert finding.verdict != "WRONG", finding
        conformance.assert_one_sentence(finding)


def test_probabilities_are_refused(model_type):
    """No model answers output_attentions=True with nothing."""
    try:
        known = model_type in PATCHED
        make = conformance.by_patch if known else conformance.by_name
        model = make(model_type)
    except ValueError:
        return
    if model_type in conformance.NO_ATTENTION or model_type == "blt":
        return
    inputs = {"input_ids": tiny.tokens(), "output_attentions": True}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tiny.tokens()
    with pytest.raises(ValueError, match="output_attentions"):
        model(**inputs)


def test_patch_knows_it_or_refuses(model_type, findings):
    try:
        conformance.by_name(model_type)
        return
    except ValueError as refused:
        assert ("locus.torch.patch" in str(refused)) == (model_type in PATCHED)
    for finding in conformance.examine(
        model_type, conformance.FORWARD, conformance.by_patch
    ):
        finding.case = f"patch {finding.case}"
        findings.append(finding)
        assert (finding.verdict == "equal") == (model_type in PATCHED), finding
        conformance.assert_one_sentence(finding)


@pytest.mark.parametrize(
    "refused", ["falcon", "deberta", "xlnet", "umt5", "gpt_oss", "doge"]
)
def test_refused_when_set(refused):
    """set_attn_implementation refuses what the name does; the model stays."""
    model = tiny.build(refused, "eager")
    with pytest.raises(ValueError, match=type(model).__name__):
        model.set_attn_implementation("locus")
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["GitModel", "BarkSemanticModel", "GPTNeoModel"])
def test_refused_before_a_model_is_built(name):
    """Classes that look their attention up by name would raise a KeyError."""
    cls = getattr(transformers, name)
    config = cls.config_class()
    config._attn_implementation = "locus"
    with pytest.raises(ValueError, match=f"cannot run {name}: "):
        cls(config)


def test_parts_of_a_model_can_be_named():
    """One whose vision has attention of its own, run for its text alone."""
    text = tiny.configuration("llama").to_dict()
    ones = [1, 1, 1, 1]
    vision = {"model_type": "hiera", "embed_dim": 8, "depths": ones, "num_heads": ones}
    parts = {"text_config": text, "vision_config": vision}
    config = transformers.LlavaConfig(**parts)
    with pytest.raises(ValueError, match="Hiera"):
        transformers.AutoModel.from_config(config, attn_implementation="locus")
    only = {"text_config": "locus", "vision_config": "eager", "": "eager"}
    config = transformers.LlavaConfig(**parts)
    model = transformers.AutoModel.from_config(config, attn_implementation=only)
    assert model.language_model.config._attn_implementation == "locus"
    assert model.vision_tower.config._attn_implementation == "eager"
