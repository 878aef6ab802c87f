"""from_config: a model's config in, the positions of its layers out."""

import json
import pathlib

import numpy as np
import pytest

import locus

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
T5 = {
    "model_type": "t5",
    "d_model": 64,
    "d_kv": 16,
    "num_heads": 4,
    "num_layers": 2,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}


def normal(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def test_llama(tmp_path):
    layer = locus.from_config(LLAMA, layer=3)
    assert (layer.q_heads, layer.kv_heads, layer.head_dim) == (8, 2, 32)
    assert layer.rotary["layout"] == "halves" and layer.rotary["base"] == 500000.0
    assert layer.options() == {"causal": True, "scale": pytest.approx(32**-0.5)}
    assert "LLaMA" in repr(layer)
    q, k, v = normal(1, 8, 9, 32), normal(1, 2, 9, 32), normal(1, 2, 9, 32)
    want = locus.attention(q, k, v, locus.Rope(32, "halves", base=5e5), causal=True)
    got = locus.attention(q, k, v, layer.encoding, **layer.options())
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(locus.attention(q, k, v, layer, causal=True), want)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    for given in (path, str(path), tmp_path):
        assert locus.from_config(given).family == layer.family


def test_tensors_of_the_checkpoint():
    layer = locus.from_config(T5)
    (need,) = layer.needs
    with pytest.raises(ValueError, match=need["name"]):
        layer.encoding  # noqa: B018
    table = normal(*need["shape"])
    layer = locus.from_config(T5, tensors={"some.prefix." + need["name"]: table})
    assert isinstance(layer.encoding, locus.T5Bias)
    np.testing.assert_array_equal(layer.encoding.params()["table"], table)
    with pytest.raises(ValueError, match="no tensor"):
        locus.from_config(T5, tensors={"other": table})


def test_strict():
    with pytest.raises(ValueError, match="rope_scaling_factor"):
        locus.from_config({**LLAMA, "rope_scaling_factor": 2.0})
    layer = locus.from_config({**LLAMA, "rope_scaling_factor": 2.0}, lenient=True)
    assert any("rope_scaling_factor" in w for w in layer.warnings)
    with pytest.raises(ValueError, match="nonsense"):
        locus.from_config({**LLAMA, "model_type": "nonsense"})
    with pytest.raises(ValueError, match="4"):
        locus.from_config(LLAMA, layer=4)
    with pytest.raises(TypeError, match="list"):
        locus.from_config([1])
    with pytest.raises(ValueError, match=r"missing\.json"):
        locus.from_config(pathlib.Path("missing.json"))


def test_families():
    types = [t for f in locus.families() for t in f["model_types"]]
    assert len(types) == len(set(types)) and {"llama", "t5", "bloom"} <= set(types)


@pytest.mark.parametrize("heads", [1, 4])
def test_convert_layout(heads):
    w = normal(heads * 16, 5)
    halves = locus.convert_layout(
        w, heads, 16, from_layout="interleaved", to_layout="halves"
    )
    x = normal(1, 1, 7, 5)

    def project(weight):
        return (x @ weight.T).reshape(1, 7, heads, 16).transpose(0, 2, 1, 3)

    a = locus.rotate(project(w), locus.Rope(16, "interleaved"))
    b = locus.rotate(project(halves), locus.Rope(16, "halves"))
    # The same numbers, in another order of channels.
    np.testing.assert_array_equal(a[..., 0::2], b[..., :8])
    np.testing.assert_array_equal(a[..., 1::2], b[..., 8:])
    back = locus.convert_layout(
        halves, heads, 16, from_layout="halves", to_layout="interleaved"
    )
    np.testing.assert_array_equal(back, w)
