"""Which kernel a call takes, as data and as a line per call."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import locus_attn as locus


def call(q_len, k_len, heads=8, kv_heads=8, dim=64):
    q = np.zeros((1, heads, q_len, dim), np.float32)
    k = np.zeros((1, kv_heads, k_len, dim), np.float32)
    return q, k, k


@pytest.mark.parametrize(
    ("sizes", "encoding", "driver", "refused"),
    [
        ((16, 16), None, "short", {}),
        ((1, 4096), None, "decode", {"short": "more than 256 tokens"}),
        (
            (512, 512),
            "rope",
            "tiled",
            {
                "short": "more than 256 tokens",
                "decode": "more than 32 rows of queries per key head",
            },
        ),
        (
            (64, 64),
            "shaw",
            "tiled",
            {
                "short": "it has a table of vectors",
                "decode": "more than 16 rows of queries per key head, with tables",
            },
        ),
    ],
)
def test_tells_the_driver_and_why_not_the_others(sizes, encoding, driver, refused):
    rows = np.zeros((9, 64), np.float32)
    if encoding == "rope":
        encoding = locus.Rope(64, layout="halves")
    elif encoding == "shaw":
        encoding = locus.Shaw(rows, rows, -4, 4)
    told = locus.explain_call(*call(*sizes), encoding, causal=True, threads=1)
    assert told["driver"] == driver
    assert told["refusals"] == refused
    assert told["threads"] == 1
    assert (told["q_len"], told["k_len"]) == sizes
    assert told["mask"] == "causal"
    assert told["line"].startswith(f"forward {driver} f32 ")


@pytest.mark.parametrize(
    ("sizes", "driver"),
    [((16, 16), "short"), ((1, 4096), "decode"), ((300, 300), "tiled")],
)
def test_operands_change_no_driver(sizes, driver):
    q, k, v = call(*sizes, heads=2, kv_heads=2)
    operands = [
        {"mask": np.ones(sizes, bool)},
        {"prefix_lengths": [3]},
        {"chunk": 8},
        {"sinks": np.zeros(2, np.float32)},
        {"key_bias": np.zeros((1, 1, sizes[1]), np.float32)},
        {"pair_bias": np.zeros((1, 1, *sizes), np.float32)},
        {"dropout": 0.1, "seed": 1},
        {"return_weights": True},
    ]
    for operand in operands:
        assert locus.explain_call(q, k, v, **operand)["driver"] == driver, operand
    every = {name: value for operand in operands for name, value in operand.items()}
    assert locus.explain_call(q, k, v, **every)["driver"] == driver


def test_backward_has_a_driver_of_its_own():
    told = locus.explain_call(*call(16, 16), backward=True)
    assert (told["pass"], told["driver"]) == ("backward", "tiled")


def test_wrong_calls_are_refused_as_by_attention():
    with pytest.raises(ValueError, match="3 query heads cannot share 2 key heads"):
        locus.explain_call(*call(8, 8, heads=3, kv_heads=2))


PROGRAM = """
import numpy as np, locus_attn as locus
q = np.ones((1, 2, 300, 64), np.float32)
out, lse = locus.attention(q, q, q, causal=True, return_lse=True)
locus.attention_backward(out, q, q, q, out, lse, causal=True)
cache = locus.KvCache(2, 64)
cache.append(q, q)
cache.decode(q[:, :, :1])
"""


def test_verbose_prints_one_line_per_call():
    def run(value):
        env = {**os.environ, "LOCUS_VERBOSE": value}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stderr.splitlines()

    lines = run("1")
    assert [line.split()[:4] for line in lines] == [
        ["locus:", "forward", "tiled", "f32"],
        ["locus:", "backward", "tiled", "f32"],
        ["locus:", "forward", "decode", "f32"],
    ]
    for line in lines:
        assert re.search(r", [0-9]+\.[0-9]{3} ms$", line), line
        assert "thread" in line and "lengths" in line
    assert "not short: more than 256 tokens" in lines[0]
    assert run("0") == [] == run("")


GEMMA2 = {
    "model_type": "gemma2",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "sliding_window": 16,
    "query_pre_attn_scalar": 100,
    "attn_logit_softcapping": 5.0,
    "rope_theta": 10000.0,
}


def test_a_layer_brings_its_window_scale_and_cap():
    layer = locus.from_config(GEMMA2, layer=0)
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.standard_normal((1, heads, 40, 64)).astype(np.float32) * 3
        for heads in (4, 2, 2)
    )
    whole = locus.attention(q, k, v, layer.encoding, **layer.options())
    assert np.array_equal(locus.attention(q, k, v, layer, causal=True), whole)
    bare = locus.attention(q, k, v, layer.encoding, causal=True)
    assert np.abs(whole - bare).max() > 0.1
    # What the caller says holds.
    wide = locus.attention(q, k, v, layer, causal=True, window=40)
    options = {**layer.options(), "window": 40}
    assert np.array_equal(wide, locus.attention(q, k, v, layer.encoding, **options))


def test_the_same_from_pytorch():
    torch = pytest.importorskip("torch")

    layer = locus.from_config(GEMMA2, layer=0)
    torch.manual_seed(1)
    q, k, v = (3 * torch.randn(1, heads, 40, 64) for heads in (4, 2, 2))
    whole = locus.torch.attention(q, k, v, layer.encoding, **layer.options())
    assert torch.equal(locus.torch.attention(q, k, v, layer, causal=True), whole)
    q.requires_grad_()
    assert torch.equal(locus.torch.attention(q, k, v, layer, causal=True), whole)


def test_layers_bring_their_chunks():
    config = {
        "model_type": "llama4_text",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 512,
        "attention_chunk_size": 16,
        "rope_theta": 10000.0,
    }
    layer = locus.from_config(config, layer=0)
    assert layer.chunk == 16
    rng = np.random.default_rng(1)
    q, k, v = (
        rng.standard_normal((1, heads, 40, 64), np.float32) for heads in (4, 2, 2)
    )
    told = layer.options(q_len=40, k_len=40)
    want = locus.attention(q, k, v, layer.encoding, **told)
    for given in ({"causal": True}, told):
        got = locus.attention(q, k, v, layer, **given)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)
