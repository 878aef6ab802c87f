"""Encodings are copied and pickled exactly."""

import contextlib
import copy
import multiprocessing
import pickle

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus

RNG = np.random.default_rng(11)


def normal(*shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.7],
    "long_factor": [2.0, 3.0, 5.0, 7.1],
    "original_max_position_embeddings": 64,
    "factor": 4.0,
    "attention_factor": 1.25,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 30.0,
    "beta_slow": 2.0,
    "truncate": False,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 3.9,
    "original_max_position_embeddings": 128,
}

# Settings away from their defaults, so that a forgotten one shows.
ENCODINGS = {
    "none": lambda: locus.NoPosition(),
    "index": lambda: locus.Index(8, "concatenate"),
    "normalised index": lambda: locus.NormalisedIndex(8, "concatenate", 77),
    "normalised index by call": lambda: locus.NormalisedIndex(8),
    "binary": lambda: locus.Binary(7, 8),
    "sine": lambda: locus.SineOnly(8, 123.0),
    "sinusoidal": lambda: locus.Sinusoidal(8, 99.0, "halves-inclusive", 3),
    "learned": lambda: locus.Learned(normal(20, 8), 2),
    "key offset": lambda: locus.KeyOffset(normal(2, 39, 8)),
    "shaw": lambda: locus.Shaw(normal(9, 8), normal(9, 8), r_min=-3),
    "shaw values": lambda: locus.Shaw(None, normal(9, 8, dtype=np.float32)),
    "transformer-xl": lambda: locus.TransformerXL(
        normal(2, 39, 8), normal(2, 8), normal(2, 8)
    ),
    "deberta": lambda: locus.Deberta(normal(2, 16, 8), normal(2, 16, 8), 8, 30),
    "deberta p2c": lambda: locus.Deberta(None, normal(2, 16, 8), 0, 8),
    "tupe": lambda: locus.Tupe(
        normal(2, 20, 4), normal(2, 20, 4), normal(2, 39), normal(2, 2), 3
    ),
    "tupe absolute": lambda: locus.Tupe(normal(2, 20, 4), normal(2, 20, 4)),
    "t5": lambda: locus.T5Bias(normal(16, 2, dtype=np.float16), 33, True),
    "t5 bfloat16": lambda: locus.T5Bias(normal(16, 2).astype(ml_dtypes.bfloat16)),
    "alibi": lambda: locus.Alibi(2, slopes=[0.3, 0.1], future_slopes=[0.2, 0.7]),
    "alibi geometric": lambda: locus.Alibi(2, 5.0),
    "kerple": lambda: locus.Kerple("power", [0.1, 0.2], [0.5, 1.5]),
    "fire": lambda: locus.Fire(
        normal(4), normal(4), normal(2, 4), normal(2), [0.3], [5.0], 1e-3
    ),
    "sandwich": lambda: locus.Sandwich(2, 32, 777.0),
    "swin": lambda: locus.SwinBias(normal(7 * 9 + 3, 2), 4, 5, True),
    "rope": lambda: locus.Rope(
        8,
        "halves",
        500.0,
        6,
        angles="float32",
        place="trailing",
        softmax_factor=1.3,
        temperature_beta=0.1,
        temperature_shift=2,
        temperature_span=5,
    ),
    "rope frequencies": lambda: locus.Rope(8, "halves", frequencies=[1, 0.5, 0.2, 0.1]),
    "rope yarn": lambda: locus.Rope(8, "interleaved", scaling=YARN),
    "rope longrope": lambda: locus.Rope(8, "interleaved", scaling=LONGROPE),
    "rope llama3": lambda: locus.Rope(8, "interleaved", scaling=LLAMA3),
    "rope linear": lambda: locus.Rope(
        8, "halves", scaling={"rope_type": "linear", "factor": 3.0}
    ),
    "rope dynamic": lambda: locus.Rope(
        8,
        "halves",
        scaling={"rope_type": "dynamic", "factor": 3.0, "max_position_embeddings": 8},
    ),
    "rope alpha": lambda: locus.Rope(
        8, "halves", scaling={"rope_type": "alpha", "alpha": 3.0}
    ),
    "rope proportional": lambda: locus.Rope(
        8,
        "halves",
        scaling={
            "rope_type": "proportional",
            "partial_rotary_factor": 0.5,
            "factor": 2.0,
        },
    ),
    "rope values": lambda: locus.Rope(8, "halves", values="relative"),
    "rope-learned": lambda: locus.RopeLearned([0.1, -0.2, 0.3, 0.0], "halves", 99.0),
    "rope-2d": lambda: locus.Rope2D(8, "halves", 5, 111.0),
    "rope-mixed": lambda: locus.RopeMixed(
        np.arange(8.0).reshape(4, 2), "interleaved", 5, 1, (0.5, -2.0)
    ),
    "mrope": lambda: locus.MRope(8, "interleaved", [2, 1, 1], "interleaved", 999.0),
    "xpos": lambda: locus.XPos(8, "halves", 5000.0, 100.0, 0.3),
}


def bits(encoding):
    """All that an encoding does, bit for bit."""
    rng = np.random.default_rng(1)
    q, k, v, d = (rng.standard_normal((1, 2, 9, 8)).astype(np.float32) for _ in "qkvd")
    out, lse = locus.attention(q, k, v, encoding, return_lse=True)
    grads = locus.attention_backward(d, q, k, v, out, lse, encoding)
    parts = [out, lse, *grads[:3], *grads[3].values(), *encoding.params().values()]
    with contextlib.suppress(ValueError):
        parts.append(encoding.embed(np.arange(1, 17)))
    text = locus.explain(encoding, heads=2, head_dim=8, length=9)
    names = [encoding.name, text, list(grads[3]), list(encoding.params())]
    return names, [(p.dtype.name, p.shape, p.tobytes()) for p in parts]


@pytest.mark.parametrize("name", ENCODINGS)
def test_round_trips_are_exact(name):
    encoding = ENCODINGS[name]()
    want = bits(encoding)
    copies = [copy.copy(encoding), copy.deepcopy(encoding)]
    copies += [pickle.loads(pickle.dumps(encoding, p)) for p in range(2, 6)]
    for other in copies:
        assert type(other) is type(encoding) and other is not encoding
        assert bits(other) == want


@pytest.mark.parametrize("info", locus.encodings(), ids=lambda info: info.name)
def test_ready_made_ones_too(info):
    """Every encoding, those of its descriptor's variants included."""
    options = [dict(x.split("=") for x in v.split(",")) for v in info.variants]
    for variant in ({}, *options):
        encoding = info.example(heads=2, head_dim=8, length=32, **variant)
        assert bits(pickle.loads(pickle.dumps(encoding))) == bits(encoding)
    assert pickle.loads(pickle.dumps(info)).name == info.name


def test_copy_shares_tables_and_deepcopy_does_not():
    table = normal(20, 8)
    encoding = locus.Learned(table)
    shared, own = copy.copy(encoding), copy.deepcopy(encoding)
    table[0, 0] = 5.0
    assert shared.params()["table"][0, 0] == 5.0
    assert own.params()["table"][0, 0] != 5.0


class Named(locus.Alibi):
    def __init__(self, label):
        super().__init__(2, 6.0)
        self.label = label


def test_subclasses_keep_what_they_added():
    for other in (copy.deepcopy(Named("a")), pickle.loads(pickle.dumps(Named("a")))):
        assert type(other) is Named and other.label == "a"
        assert bits(other) == bits(locus.Alibi(2, 6.0))


def _in_child(encoding):
    return bits(encoding)


def test_spawned_processes_take_encodings():
    encodings = [ENCODINGS[name]() for name in ("shaw", "rope yarn", "t5 bfloat16")]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        got = pool.map(_in_child, encodings)
    assert got == [bits(encoding) for encoding in encodings]


def test_layers_of_models():
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 128,
        "rope_theta": 500.0,
    }
    layer = locus.from_config(config, 1)
    gpt2 = locus.from_config(
        {
            "model_type": "gpt2",
            "n_embd": 8,
            "n_head": 2,
            "n_layer": 1,
            "n_positions": 9,
        },
        tensors={"transformer.wpe.weight": normal(9, 8)},
    )
    for other in (
        copy.copy(layer),
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
    ):
        assert repr(other) == repr(layer) and other.options() == layer.options()
        assert other.rotary == layer.rotary and other.layer == 1
    other = pickle.loads(pickle.dumps(gpt2))
    want = gpt2.input.params()["table"]
    assert np.array_equal(other.input.params()["table"], want)


def test_a_cache_says_why_not():
    cache = locus.KvCache(2, 8)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="KvCache cannot be pickled or copied"):
            copied(cache)
