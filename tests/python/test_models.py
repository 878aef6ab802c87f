"""from_config: a model's config in, the positions of its layers out."""

import json
import pathlib

import numpy as np
import pytest

import locus_attn as locus

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


LLAMA4 = {
    "model_type": "llama4_text",
    "hidden_size": 64,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
    "attention_chunk_size": 5,
}


def test_options_keep_chunks():
    layer = locus.from_config(LLAMA4)
    assert layer.chunk == 5
    with pytest.raises(ValueError, match=r"chunks of 5 positions.*lengths or the pos"):
        layer.options()
    assert "q_segments" not in locus.from_config(LLAMA4, layer=3).options()
    q, k, v = normal(2, 4, 13, 16), normal(2, 2, 13, 16), normal(2, 2, 13, 16)
    chunks = np.arange(13) // 5
    want = locus.attention(
        q, k, v, layer.encoding, causal=True, q_segments=chunks, k_segments=chunks
    )
    got = locus.attention(q, k, v, layer.encoding, **layer.options(13))
    np.testing.assert_array_equal(got, want)
    # The last tokens of the same sequence, and one token alone.
    tail = layer.options(4, 13)
    got = locus.attention(q[:, :, 9:], k, v, layer.encoding, **tail)
    np.testing.assert_allclose(got, want[:, :, 9:], rtol=0, atol=1e-6)
    one = layer.options(1, 13)
    assert one["window"] == (2, 0) and "q_segments" not in one
    got = locus.attention(q[:, :, 12:], k, v, layer.encoding, **one)
    np.testing.assert_allclose(got, want[:, :, 12:], rtol=0, atol=1e-6)
    cache = locus.KvCache(2, 16, batch=2)
    cache.append(k, v, layer.encoding)
    got = cache.decode(q[:, :, 12:], layer.encoding, **one)
    np.testing.assert_allclose(got, want[:, :, 12:], rtol=0, atol=1e-6)
    # Positions are among the keywords, in their own shape.
    positions = np.arange(13) + np.array([[7], [0]])
    moved = layer.options(q_positions=positions, k_positions=positions)
    np.testing.assert_array_equal(moved["q_segments"], positions // 5)
    got = locus.attention(q, k, v, layer.encoding, **moved)
    np.testing.assert_allclose(got[1], want[1], rtol=0, atol=1e-6)
    assert np.abs(got[0] - want[0]).max() > 0.1


def test_infinity_in_other_fields():
    config = {**LLAMA, "time_step_limit": [0.0, float("inf")]}
    assert locus.from_config(config).options() == locus.from_config(LLAMA).options()
    with pytest.raises(ValueError, match='rope_theta must be a number, got "Infinity"'):
        locus.from_config({**LLAMA, "rope_theta": float("inf")})


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


@pytest.mark.parametrize(
    ("heads", "options"),
    [
        (2**60 + 1, {}),  # times 16 is 16 modulo 2^64
        (2**63 - 1, {}),
        (1, {"first_channel": 2**63 - 2}),
        (1, {"rotary_dim": 2**63 - 2}),
    ],
)
def test_convert_layout_refuses_sizes_that_overflow(heads, options):
    with pytest.raises(ValueError, match=f"{heads} heads of 16 channels"):
        locus.convert_layout(
            np.zeros((16, 8), "f4"),
            heads,
            16,
            from_layout="halves",
            to_layout="interleaved",
            **options,
        )
