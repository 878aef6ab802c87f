"""Scale, window, direction and soft cap of every layer, against the model's own.

The attention module of each accepted type is built from the type's default
config, on no device, for one layer of each kind. What it holds (`scaling`,
`sliding_window`, `is_causal`, a soft cap, the width and the groups of its heads)
is what from_config says of that layer.
"""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from test_hf_config_types import ACCEPTED, modeling  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Where a module's attribute is not what its attention does, with the reason.
SCALE_ELSEWHERE = {
    "openai_privacy_filter": "q and k are each multiplied by the scale's root",
}
WINDOW_ELSEWHERE = {
    "t5gemma2_text": "the mask cuts the window by a rule of its own",
    "nemotron_asr_streaming_encoder": "the window is one of chunks",
}
BY_CALL = "the model's call says so, not its module"
TWO_PARTS = "one class serves encoder and decoder"
CAUSAL_ELSEWHERE = {
    "aimv2_text_model": BY_CALL,
    "clip_text_model": BY_CALL,
    "clipseg_text_model": BY_CALL,
    "dia_decoder": TWO_PARTS,
    "kosmos_2_text_model": BY_CALL,
    "longt5": TWO_PARTS,
    "metaclip_2_text_model": BY_CALL,
    "mt5": TWO_PARTS,
    "owlv2_text_model": BY_CALL,
    "owlvit_text_model": BY_CALL,
    "phi4_multimodal_audio": "its mask overrules the flag",
    "phi4_multimodal_vision": "its mask overrules the flag",
    "pix2struct_text_model": TWO_PARTS,
    "pop2piano": TWO_PARTS,
    "switch_transformers": TWO_PARTS,
    "t5": TWO_PARTS,
    "umt5": TWO_PARTS,
    "xclip_text_model": BY_CALL,
}

SCALES = ("scaling", "scale", "softmax_scale", "attn_scale", "scale_factor")
CAPS = ("attn_logit_softcapping", "logit_cap", "softcap")


def candidates(module, config) -> list:
    """Classes of self-attention that take this config and the index of a layer."""
    own = type(config).__name__.removesuffix("Config")
    found = []
    for name, cls in vars(module).items():
        if not inspect.isclass(cls) or not issubclass(cls, torch.nn.Module):
            continue
        if not name.endswith(("Attention", "SelfAttention")) or "Cross" in name:
            continue
        parameters = inspect.signature(cls.__init__).parameters
        if "config" not in parameters:
            continue
        found.append((not name.startswith(own), name, cls, parameters))
    return [
        (cls, parameters) for *_, cls, parameters in sorted(found, key=lambda f: f[:2])
    ]


def attention(module, config, layer: int):
    """The attention of one layer, on no device; None where it cannot be built."""
    for cls, parameters in candidates(module, config):
        arguments = {}
        if "layer_idx" in parameters:
            arguments["layer_idx"] = layer
        if "layer_id" in parameters:
            arguments["layer_id"] = layer
        with torch.device("meta"):
            try:
                built = cls(config, **arguments)
            except Exception:
                continue
        return built
    return None


def call(position) -> dict:
    """The options of a call; layers in chunks need its lengths."""
    return position.options(q_len=4, k_len=4)


def kinds(model_type: str) -> list:
    """One attending layer of each kind."""
    found = {}
    for position in ACCEPTED[model_type]:
        if position.attends:
            key = (
                position.layer_type,
                position.words,
                str(call(position).get("window")),
            )
            found.setdefault(key, position)
    return list(found.values())


def number(module, names):
    """The first attribute of these that is a number; None if there is none."""
    for name in names:
        value = getattr(module, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def built() -> dict[str, list]:
    """(position, module) for the layers of every type whose attention builds."""
    found = {}
    for model_type in ACCEPTED:
        try:
            module = modeling(model_type)
            config = CONFIG_MAPPING[model_type]()
        except Exception:
            continue
        pairs = [(p, attention(module, config, p.layer)) for p in kinds(model_type)]
        pairs = [(p, m) for p, m in pairs if m is not None]
        if pairs:
            found[model_type] = pairs
    return found


BUILT = built()


def test_most_types_have_a_peer():
    attending = [t for t in ACCEPTED if kinds(t)]
    assert len(BUILT) > 0.6 * len(attending), (len(BUILT), len(attending))


@pytest.mark.parametrize("model_type", BUILT)
def test_scale(model_type):
    if model_type in SCALE_ELSEWHERE:
        pytest.skip(SCALE_ELSEWHERE[model_type])
    for position, module in BUILT[model_type]:
        theirs = number(module, SCALES)
        if theirs is None:
            continue
        own = position.scale * position.softmax_factor
        assert own == pytest.approx(theirs, rel=1e-6), position.layer


@pytest.mark.parametrize("model_type", BUILT)
def test_window(model_type):
    if model_type in WINDOW_ELSEWHERE:
        pytest.skip(WINDOW_ELSEWHERE[model_type])
    for position, module in BUILT[model_type]:
        if not hasattr(module, "sliding_window"):
            continue
        width = module.sliding_window
        if getattr(module, "is_sliding", True) is False:
            width = None  # kept, and not passed on
        own = call(position).get("window")
        if own is None:
            chunks = "q_segments" in call(position)
            assert not width or chunks, (position.layer, width)
            continue
        left, right = own
        if call(position)["causal"]:
            assert (left, right) == (width - 1, 0), position.layer
        else:
            assert left == right, position.layer
            # A radius, or one more where the class counts the query's own key.
            assert width in (left, left + 1, 2 * left), (position.layer, width)


@pytest.mark.parametrize("model_type", BUILT)
def test_direction(model_type):
    if model_type in CAUSAL_ELSEWHERE:
        pytest.skip(CAUSAL_ELSEWHERE[model_type])
    for position, module in BUILT[model_type]:
        theirs = getattr(module, "is_causal", None)
        if isinstance(theirs, bool):
            assert call(position)["causal"] == theirs, position.layer


@pytest.mark.parametrize("model_type", BUILT)
def test_softcap(model_type):
    for position, module in BUILT[model_type]:
        cap = number(module, CAPS) or 0.0
        assert call(position).get("softcap", 0.0) == pytest.approx(cap), position.layer


@pytest.mark.parametrize("model_type", BUILT)
def test_heads(model_type):
    for position, module in BUILT[model_type]:
        groups = getattr(module, "num_key_value_groups", None)
        if isinstance(groups, int):
            assert position.q_heads // position.kv_heads == groups, position.layer
        width = getattr(module, "head_dim", None)
        latent = hasattr(module, "qk_nope_head_dim")
        if isinstance(width, int) and not latent:
            assert position.head_dim == width, position.layer
