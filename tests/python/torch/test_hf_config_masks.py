"""Scale, mask and soft cap of a call, against what the model's own code hands over.

A small model of every accepted decoder and encoder with transformers' attention
interface runs on an attention that records its arguments: which layer calls, the mask
that the model made of its config, the scale, the soft cap. from_config, given the same
small config, says the same of that layer, pair by pair, past the ends of windows and
chunks.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers import AttentionInterface, AttentionMaskInterface  # noqa: E402
from transformers.masking_utils import sdpa_mask  # noqa: E402

import locus_attn as locus  # noqa: E402
from locus_attn.torch.conformance import architectures, recipes  # noqa: E402
from locus_attn.torch.conformance import inputs as small  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
NAME = "records_its_arguments"
CALLS: list = []


def record(module, query, key, value, attention_mask, scaling=None, **given):
    """Notes the arguments of a call; its result is that of plain attention."""
    layer = getattr(module, "layer_idx", None)
    if layer is not None and layer >= 0:  # -1: a layer that several share
        CALLS.append((layer, module, query.shape[-1], attention_mask, scaling, given))
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return out.transpose(1, 2).contiguous(), None


def every_pair(*args, allow_is_causal_skip=None, **kwargs):
    """The mask as a tensor, even where a flag would do."""
    kwargs.pop("allow_is_bidirectional_skip", None)
    return sdpa_mask(*args, allow_is_causal_skip=False, **kwargs)


AttentionInterface.register(NAME, record)
AttentionMaskInterface.register(NAME, every_pair)

# Why what a model hands over is not what from_config speaks of.
ELSEWHERE = {
    "glm5_next_text": "its mask holds what an indexer picked by content",
}
# Layers that attend to what they select by content, among the tokens that they may
# see: the mask is no more than those.
SELECTED = {"deepseek_v4", "qwen4_exp_text"}
SCALED_BEFORE = {"opt"}  # q is multiplied by the scale


def candidates() -> list[str]:
    """Types of one stack of tokens, whose files ask the interface."""
    from transformers import CONFIG_MAPPING

    found = []
    for name in architectures.model_types():
        if name not in CONFIG_MAPPING:
            continue
        cls = CONFIG_MAPPING[name]
        if getattr(cls, "sub_configs", None) or name in ELSEWHERE:
            continue  # A model of parts is read by each of them.
        try:
            made = architectures.class_of(name)
        except architectures.CannotBuild:
            continue
        if made._supports_attention_backend or made._supports_sdpa:
            found.append(name)
    return found


def calls_of(name: str):
    """The config of a small model and its calls; None where it has none to show."""
    try:
        model = architectures.by_type(name).makers[0](NAME)
        inputs = next(iter(recipes.candidates(model)))
    except Exception:
        return None
    if set(inputs) != {"input_ids"} or model.config.is_encoder_decoder:
        return None
    CALLS.clear()
    try:
        with torch.no_grad():
            model(**inputs)
    except Exception:
        return None
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    return config, list(CALLS)


def visible(options: dict, length: int) -> np.ndarray:
    """bool [length, length] of the options of a call."""
    steps = np.arange(length)
    offset = steps[:, None] - steps
    seen = np.ones((length, length), bool)
    if options.get("causal"):
        seen &= offset >= 0
    if options.get("window") is not None:
        left, right = options["window"]
        seen &= (offset <= left) & (-offset <= right)
    if options.get("q_segments") is not None:
        q, k = (np.asarray(options[n]).ravel() for n in ("q_segments", "k_segments"))
        seen &= q[:, None] == k
    if options.get("prefix_lengths") is not None:
        seen |= steps < int(np.asarray(options["prefix_lengths"]).ravel()[0])
    return seen


COMPARED: list[str] = []


@pytest.mark.parametrize("name", candidates())
def test_call(name):
    found = calls_of(name)
    if found is None or not found[1]:
        pytest.skip("its small model does not ask the interface with tokens alone")
    config, calls = found
    try:
        locus.from_config(config)
    except ValueError as reason:
        if "is not read" in str(reason) or "not known" in str(reason):
            pytest.skip(str(reason))
        raise
    for layer, module, width, mask, scaling, given in calls:
        position = locus.from_config(config, layer)
        assert position.attends, layer
        options = position.options(q_len=small.LENGTH, k_len=small.LENGTH)
        own = position.scale * position.softmax_factor
        theirs = width**-0.5 if scaling is None else scaling
        if isinstance(theirs, int | float) and name not in SCALED_BEFORE:
            assert own == pytest.approx(theirs, rel=1e-6), f"scale of layer {layer}"
        cap = given.get("softcap") or 0.0
        assert options.get("softcap", 0.0) == pytest.approx(cap), layer
        if mask is None:
            causal = given.get("is_causal", getattr(module, "is_causal", False))
            steps = np.arange(small.LENGTH)
            want = (steps[:, None] >= steps) if causal else True
        else:
            if mask.dtype != torch.bool:
                mask = mask > torch.finfo(mask.dtype).min / 2
            want = mask[0, 0].numpy()
        got = visible(options, small.LENGTH)
        if name in SELECTED:
            want = want[:, : small.LENGTH]  # What compresses tokens comes after them.
            assert not (want & ~got).any(), f"mask of layer {layer}: {options}"
            continue
        want = np.broadcast_to(want, got.shape)
        assert np.array_equal(got, want), f"mask of layer {layer}: {options}"
    COMPARED.append(name)


def test_most_are_compared():
    assert len(COMPARED) > 130
