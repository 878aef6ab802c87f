"""Conformance to transformers' own functions, far positions included.

transformers takes angles in float32: position times rate is off by half an
epsilon of the angle, rate by another. So where it is compared with, angles may
differ by an epsilon of the largest angle, and nothing else may.
"""

from __future__ import annotations

import pytest
import torch

import locus_attn.torch as lt

transformers = pytest.importorskip("transformers")

from transformers.models.bloom import modeling_bloom  # noqa: E402
from transformers.models.deberta_v2 import modeling_deberta_v2  # noqa: E402
from transformers.models.distilbert import modeling_distilbert  # noqa: E402
from transformers.models.gptj import modeling_gptj  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402
from transformers.models.m2m_100 import modeling_m2m_100  # noqa: E402
from transformers.models.mpt import modeling_mpt  # noqa: E402
from transformers.models.roformer import modeling_roformer  # noqa: E402
from transformers.models.t5 import modeling_t5  # noqa: E402
from transformers.models.whisper import modeling_whisper  # noqa: E402

EPSILON = torch.finfo(torch.float32).eps
HEAD_DIM, ORIGINAL = 16, 64
FAR = 131_072

SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": ORIGINAL},
    "yarn-betas": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": ORIGINAL,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "truncate": False,
    },
    "yarn-mscale": {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": ORIGINAL,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
    },
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
        "short_factor": [1.0 + 0.1 * i for i in range(HEAD_DIM // 2)],
        "long_factor": [2.0 + 0.5 * i for i in range(HEAD_DIM // 2)],
    },
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": ORIGINAL,
    },
}
POSITIONS = {
    "near": torch.arange(20),
    "past-the-original": torch.arange(3 * ORIGINAL),
    "far": torch.arange(FAR, FAR + 20),
}


def rotary(name):
    """transformers' rotary module, and the scaling as Locus takes it."""
    fields = {"rope_type": name.split("-")[0], **SCALINGS[name]}
    config = transformers.LlamaConfig(
        hidden_size=2 * HEAD_DIM,
        num_attention_heads=2,
        max_position_embeddings=ORIGINAL * (4 if name == "longrope" else 1),
        rope_parameters={"rope_theta": 10000.0, **fields},
    )
    if name == "dynamic":
        fields["max_position_embeddings"] = ORIGINAL
    return modeling_llama.LlamaRotaryEmbedding(config), fields


@pytest.mark.parametrize("angles", ["exact", "float32"])
@pytest.mark.parametrize("where", POSITIONS)
@pytest.mark.parametrize("name", SCALINGS)
def test_rope(name, where, angles):
    positions = POSITIONS[where][None]
    module, fields = rotary(name)
    x = torch.randn(1, 2, positions.shape[1], HEAD_DIM)
    cos, sin = module(x, positions)
    expected, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    scaling = None if name == "default" else fields
    rope = lt.Rope(HEAD_DIM, "halves", scaling=scaling, angles=angles)
    actual = rope.rotate(x, positions[0])
    largest = float(positions.max()) * float(module.inv_freq.max())
    gain = float(module.attention_scaling)
    limit = EPSILON * (4 + 2 * largest) * gain * float(x.abs().max())
    assert float((actual - expected).abs().max()) <= limit


def test_interleaved_rope():
    """GPT-J: pairs (2p, 2p + 1), the rest of the head untouched."""
    rotary_dim = 8
    table = modeling_gptj.create_sinusoidal_positions(64, rotary_dim)
    sin, cos = table[None].chunk(2, dim=-1)
    x = torch.randn(1, 64, 2, HEAD_DIM)
    turned = modeling_gptj.apply_rotary_pos_emb(x[..., :rotary_dim], sin, cos)
    expected = torch.cat([turned, x[..., rotary_dim:]], dim=-1).transpose(1, 2)
    rope = lt.Rope(HEAD_DIM, "interleaved", rotary_dim=rotary_dim)
    actual = rope.rotate(x.transpose(1, 2))
    assert float((actual - expected).abs().max()) <= EPSILON * 64 * float(x.abs().max())


def bias_of(encoding, positions, heads):
    """B[h] of the offsets `positions` - 0: the lse over one key, where q is 0."""
    q = torch.zeros(1, heads, len(positions), 1)
    k = torch.zeros(1, heads, 1, 1)
    _, lse = lt.attention(
        q, k, k, encoding, return_lse=True, q_positions=positions, k_positions=[0]
    )
    return lse[0]


@pytest.mark.parametrize("heads", [1, 3, 8, 12, 20, 32])
def test_bloom_slopes(heads):
    expected = modeling_bloom._get_alibi_slopes(heads, torch.device("cpu"))
    where = torch.tensor([1, 7, 4096, FAR])
    actual = bias_of(lt.Alibi(heads), where, heads)
    # Powers in float32 are off by a few epsilons.
    torch.testing.assert_close(-actual / where, expected[:, None].expand(-1, 4))


@pytest.mark.parametrize("heads", [4, 6, 8])
def test_mpt_attention(heads):
    """MPT orders its slopes otherwise, so they are given."""
    length = 17
    alibi = modeling_mpt.build_mpt_alibi_tensor(heads, length)
    slopes = (alibi[:, 0, -2] * -1).tolist()
    q, k, v = torch.randn(3, 2, heads, length, 8)
    scores = q.double() @ k.double().mT / 8**0.5 + alibi.double()
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(later, -torch.inf).softmax(-1) @ v.double()
    actual = lt.attention(q, k, v, lt.Alibi(heads, slopes=slopes), causal=True)
    limit = EPSILON * 2 * (8 + length) * float(v.abs().max())
    assert float((actual - expected).abs().max()) <= limit


OFFSETS = torch.cat([torch.arange(-700, 701), torch.tensor([-FAR, FAR])])


def assert_rows(scores, rows):
    """Whole numbers came through exponent and logarithm, so up to rounding."""
    assert torch.equal(scores.round().long(), rows)
    assert float((scores - rows).abs().max()) <= 4 * EPSILON * float(rows.max())


@pytest.mark.parametrize("bidirectional", [False, True])
def test_t5_buckets(bidirectional):
    expected = modeling_t5.T5Attention._relative_position_bucket(
        -OFFSETS, bidirectional=bidirectional, num_buckets=32, max_distance=128
    )
    table = torch.arange(32.0)[:, None]
    kind = lt.describe("T5Bias", "table", bidirectional=bidirectional)
    actual = bias_of(lt.Encoding(kind, [table]), OFFSETS, 1)
    assert_rows(actual[0], expected)


@pytest.mark.parametrize(
    ("buckets", "reach"),
    [(256, 512), (0, 300), (255, 512), (33, 128), (5, 40), (3, 40), (2, 40)],
)
def test_deberta_buckets(buckets, reach):
    """A table that counts its rows shows which row an offset takes."""
    span = buckets or reach
    rows = OFFSETS
    if buckets:
        rows = modeling_deberta_v2.make_log_bucket_position(OFFSETS, buckets, reach)
    expected = (rows.long() + span).clamp(0, 2 * span - 1)
    table = torch.arange(2.0 * span)[None, :, None]
    kind = lt.describe(
        "Deberta", "c2p", position_buckets=buckets, max_relative_positions=reach
    )
    q = torch.ones(1, 1, len(OFFSETS), 1)
    k = torch.zeros(1, 1, 1, 1)
    _, lse = lt.attention(
        q, k, k, lt.Encoding(kind, [table]), scale=1.0, return_lse=True,
        q_positions=OFFSETS, k_positions=[0],
    )  # fmt: skip
    assert_rows(lse[0, 0], expected)


def roformer(length, dim):
    return modeling_roformer.RoFormerSinusoidalPositionalEmbedding(
        length, dim
    ).create_weight()


def distilbert(length, dim):
    out = torch.empty(length, dim)
    modeling_distilbert._create_sinusoidal_embeddings(length, dim, out)
    return out


SINUSOIDS = {
    "halves-inclusive": [
        modeling_whisper.sinusoids,
        modeling_m2m_100.M2M100SinusoidalPositionalEmbedding.get_embedding,
    ],
    "halves": [roformer],
    "interleaved": [distilbert],
}


@pytest.mark.parametrize("layout", SINUSOIDS)
def test_sinusoids(layout):
    for function in SINUSOIDS[layout]:
        # The two numpy ones are slow; float32 tables are checked far out too.
        length = FAR + 3 if layout == "halves-inclusive" else 300
        expected = function(length, 16)[-300:]
        where = torch.arange(length)[-300:]
        actual = lt.Sinusoidal(16, layout=layout).embed(where)
        assert float((actual - expected).abs().max()) <= EPSILON * 2 * length


def test_beit_bias():
    height, width, heads = 3, 4, 2
    config = transformers.BeitConfig(
        image_size=(height * 2, width * 2), patch_size=2, num_attention_heads=heads,
        hidden_size=8,
    )  # fmt: skip
    from transformers.models.beit.modeling_beit import BeitRelativePositionBias

    peer = BeitRelativePositionBias(config)
    index = peer.generate_relative_position_index((height, width))
    module = lt.SwinBias(heads, height, width, cls=True)
    table = module.relative_position_bias_table
    peer.load_state_dict(module.state_dict())
    torch.nn.init.normal_(table)
    bias = table.detach().double()[index].permute(2, 0, 1)
    q, k, v = torch.randn(3, 1, heads, height * width + 1, 8)
    expected = (q.double() @ k.double().mT / 8**0.5 + bias).softmax(-1) @ v.double()
    actual = module(q, k, v).detach()
    limit = EPSILON * 2 * (8 + height * width) * float(v.abs().max())
    assert float((actual - expected).abs().max()) <= limit
