"""What from_config says of every model type that rotates, against its own code.

The rotary module of each type is built from the type's default config. Its
frequencies and its factor on cos and sin are those of every layer, and its
function rotates random q and k so that their products are those of the layer's
encoding, at positions within and past the trained length.
"""

from __future__ import annotations

import importlib
import inspect
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

import locus_attn as locus  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# Types whose rotation is not in a module of its own, or is another's.
WITHOUT_MODULE = {"codegen", "gptj", "roformer", "esm"}
# Whose module gives angles and not cosines and sines.
ANGLES_ONLY = {"clvp_encoder"}
ROTARY = ("RotaryEmbedding", "RotaryPositionalEmbedding")
# Tensors that have other names in this release than in published files.
RENAMED = {"swin"}


def default_dict(model_type: str) -> dict:
    config = CONFIG_MAPPING[model_type]()
    return json.loads(json.dumps(config.to_dict(), default=str))


def accepted() -> dict[str, list]:
    """Every layer of every type that is read by its own name."""
    found = {}
    for model_type in sorted(CONFIG_MAPPING.keys()):
        try:
            config = default_dict(model_type)
            first = locus.from_config(config)
            layers = [locus.from_config(config, i) for i in range(first.layers)]
        except Exception:  # refused, or without a default config
            continue
        if first.model_type == model_type:
            found[model_type] = layers
    return found


ACCEPTED = accepted()
TYPES = [name for name, layers in ACCEPTED.items() if any(p.rotary for p in layers)]
TABLES = [name for name, layers in ACCEPTED.items() if layers[0].needs]


def modeling(model_type: str):
    """The modeling module of a type."""
    package = type(CONFIG_MAPPING[model_type]()).__module__.rsplit(".", 1)
    name = package[1].replace("configuration_", "modeling_")
    return importlib.import_module(f"{package[0]}.{name}")


def is_tower(name: str) -> bool:
    return any(word in name for word in ("Vision", "Audio", "DiT", "SaProt"))


def rotary_module(module, config):
    """The module's rotary embedding for text, built from a config."""
    tower = is_tower(type(config).__name__)
    found = {
        name: cls
        for name, cls in vars(module).items()
        if inspect.isclass(cls) and name.endswith(ROTARY)
    }
    for name, cls in found.items():
        # The only one serves the tower, too.
        if (
            len(found) > 1
            and is_tower(name) != tower
            and "Encoder" not in type(config).__name__
        ):
            continue
        try:
            return cls(config)
        except (TypeError, AttributeError, KeyError, ValueError):
            continue
    return None


def of_layer(rotary, layer_type: str):
    """(inv_freq, factor, type) of one layer of a rotary module."""
    # DeepSeek V4's rotations are named for what else a layer attends to.
    compressed = "main" if layer_type == "sliding_attention" else "compress"
    for kind in (layer_type, "full_attention", compressed):
        if hasattr(rotary, f"{kind}_inv_freq"):
            return (
                getattr(rotary, f"{kind}_inv_freq"),
                getattr(rotary, f"{kind}_attention_scaling"),
                kind,
            )
    return rotary.inv_freq, getattr(rotary, "attention_scaling", 1.0), None


def distinct_layers(model_type: str) -> list:
    """One layer of each scheme among those that rotate."""
    found = {}
    for position in ACCEPTED[model_type]:
        if position.rotary:
            found.setdefault((position.words, position.layer_type), position)
    return list(found.values())


def test_there_are_many():
    assert len(TYPES) > 100
    assert len(TABLES) > 60


@pytest.mark.parametrize("model_type", TYPES)
def test_frequencies_and_factor(model_type):
    if model_type in WITHOUT_MODULE:
        pytest.skip("its code has no rotary module")
    config = CONFIG_MAPPING[model_type]()
    rotary = rotary_module(modeling(model_type), config)
    assert rotary is not None, "no rotary module was found"
    for position in distinct_layers(model_type):
        if getattr(config, "layer_rope_theta", None):
            continue  # one module per base, compared where the bases are equal
        inv_freq, factor, _ = of_layer(rotary, position.layer_type)
        own = np.abs(np.array(position.rotary["frequencies"]))
        theirs = inv_freq.double().numpy()
        if "alternating" in position.words:
            theirs, own = np.sort(theirs), np.sort(own)
        assert own.shape == theirs.shape, (position.words, theirs.shape)
        np.testing.assert_allclose(own, theirs, rtol=2e-6, atol=1e-12)
        assert position.rotary["gain"] == pytest.approx(float(factor), rel=1e-6)


def own_state(model_type: str, config) -> dict[str, tuple]:
    """Shapes by name of AutoModel's model of a config, or of its module's models."""
    with torch.device("meta"):
        try:
            models = [transformers.AutoModel.from_config(config)]
        except ValueError:
            models = []
            try:
                module = modeling(model_type)
            except ModuleNotFoundError:  # read by another type's code
                return {}
            for name, cls in vars(module).items():
                if getattr(cls, "config_class", None) is not type(config):
                    continue
                if not name.endswith("PreTrainedModel"):
                    try:
                        models.append(cls(config))
                    except ImportError:  # of a library that its loss needs
                        continue
    return {
        name: tuple(tensor.shape)
        for model in models
        for name, tensor in model.state_dict().items()
    }


@pytest.mark.parametrize("model_type", TABLES)
def test_tensors_are_there(model_type):
    """What a scheme is made of is in the model's own state, in that shape."""
    if model_type in RENAMED:
        pytest.skip("this release renames its tensors as it loads them")
    config = CONFIG_MAPPING[model_type]()
    state = own_state(model_type, config)
    if not state:
        pytest.skip("its code has no model of this config alone")
    for need in ACCEPTED[model_type][0].needs:
        # Names of whole models begin with the base model's, which is the root here.
        name = need["name"].split(".", 1)[1] if need["name"] not in state else ""
        found = [
            shape
            for known, shape in state.items()
            if known == need["name"]
            or known.endswith("." + need["name"])
            or (name and known == name)
        ]
        assert found, need["name"]
        assert tuple(need["shape"]) in found


def cos_sin(rotary, kind, x, positions):
    """cos and sin of a rotary module, whatever its signature."""
    ids = torch.tensor([positions])
    if "layer_type" in inspect.signature(rotary.forward).parameters:
        return rotary(x, ids, kind)
    return rotary(x, ids)


def rotated(module, q, k, cos, sin, layout):
    """q and k by the module's own function, [1, 1, L, D]."""
    names = ["apply_rotary_pos_emb"]
    if layout == "interleaved":
        names.insert(0, "apply_rotary_pos_emb_interleave")
    function = next(getattr(module, n) for n in names if hasattr(module, n))
    parameters = inspect.signature(function).parameters
    if "k" in parameters:
        return function(q, k, cos, sin)
    return function(q, cos, sin, 1), function(k, cos, sin, 1)


@pytest.mark.parametrize("model_type", TYPES)
def test_products(model_type):
    """Pair layout, place and angles: q.k at positions 0 .. 11 and far ones."""
    module = modeling(model_type)
    if not hasattr(module, "apply_rotary_pos_emb") or model_type in ANGLES_ONLY:
        pytest.skip("its code has no function for q and k by cosine and sine")
    config = CONFIG_MAPPING[model_type]()
    rotary = rotary_module(module, config)
    if rotary is None:
        pytest.skip("its code has no rotary module")
    generator = torch.Generator().manual_seed(0)
    for position in distinct_layers(model_type):
        if getattr(config, "layer_rope_theta", None):
            continue
        facts = position.rotary
        positions = [*range(12), 999, position.trained_length + 5]
        size, first = facts["rotary_dim"], facts["first_channel"]
        q, k = torch.randn(2, 1, 1, len(positions), size, generator=generator)
        _, _, kind = of_layer(rotary, position.layer_type)
        cos, sin = cos_sin(rotary, kind, q, positions)
        theirs_q, theirs_k = rotated(module, q, k, cos, sin, facts["layout"])
        theirs = theirs_q[0, 0].double() @ theirs_k[0, 0].double().T
        whole = torch.zeros(2, 1, 1, len(positions), position.head_dim)
        whole[..., first : first + size] = torch.stack([q, k])
        turned = [
            locus.rotate(x.numpy().astype(np.float64), position.encoding, positions)
            for x in whole
        ]
        own = turned[0][0, 0] @ turned[1][0, 0].T
        norms = np.outer(
            np.linalg.norm(turned[0][0, 0], axis=-1),
            np.linalg.norm(turned[1][0, 0], axis=-1),
        )
        # float32 frequencies are off by 6e-8 of an angle of so many radians.
        far = np.abs(np.subtract.outer(positions, positions))
        bound = 2e-6 + 2e-7 * np.maximum(far, np.max(positions))
        assert (np.abs(own - theirs.numpy()) <= bound * norms).all(), position.words


def test_wav2vec2_bert_layer():
    """Relative keys of one layer, with distances past both ends of its table."""
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as code

    config = transformers.Wav2Vec2BertConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        left_max_position_embeddings=5,
        right_max_position_embeddings=2,
    )
    torch.manual_seed(0)
    layer = code.Wav2Vec2BertSelfAttention(config).eval()
    weight = layer.distance_embedding.weight
    name = "encoder.layers.0.self_attn.distance_embedding.weight"
    position = locus.from_config(config.to_dict(), tensors={name: weight})
    x = torch.randn(2, 17, 32)
    with torch.no_grad():
        theirs = layer(x)[0]
        q, k, v = (
            linear(x).view(2, 17, 4, 8).transpose(1, 2).contiguous()
            for linear in (layer.linear_q, layer.linear_k, layer.linear_v)
        )
        out = locus.attention(q, k, v, position.encoding, **position.options())
        own = layer.linear_out(torch.as_tensor(out).transpose(1, 2).reshape(2, 17, 32))
    torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-5)
