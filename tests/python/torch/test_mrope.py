"""M-RoPE as Qwen2-VL and Qwen3-VL do it, and as text without further ado."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import locus_attn as locus
import locus_attn.torch as lt

transformers = pytest.importorskip("transformers")

from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2  # noqa: E402
from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3  # noqa: E402

HEADS, KV_HEADS, DIM = 4, 2, 16
CONFIGS = {
    "qwen2_vl": {
        "text": transformers.Qwen2VLTextConfig,
        "model": transformers.Qwen2VLModel,
        "config": transformers.Qwen2VLConfig,
        "rotary": qwen2.Qwen2VLRotaryEmbedding,
        "apply": qwen2.apply_rotary_pos_emb,
        "sections": [2, 3, 3],
        "dealing": "chunked",
    },
    "qwen3_vl": {
        "text": transformers.Qwen3VLTextConfig,
        "model": transformers.Qwen3VLModel,
        "config": transformers.Qwen3VLConfig,
        "rotary": qwen3.Qwen3VLTextRotaryEmbedding,
        "apply": qwen3.apply_rotary_pos_emb,
        "sections": [4, 2, 2],
        "dealing": "interleaved",
    },
}


def fields(name):
    rope = {"rope_type": "default", "mrope_section": CONFIGS[name]["sections"]}
    if name == "qwen3_vl":
        rope["mrope_interleaved"] = True
    return {
        "hidden_size": HEADS * DIM,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "num_hidden_layers": 1,
        "max_position_embeddings": 4096,
        "vocab_size": 32,
        "rope_parameters": {"rope_theta": 10000.0, **rope},
    }


def image_positions(name, video):
    """[3, 1, L] of text, an image, text and perhaps a video, and text again."""
    made = CONFIGS[name]["config"](text_config=fields(name))
    kinds = [0] * 3 + [1] * 6 + [0] * 2
    grids = {"image_grid_thw": torch.tensor([[1, 4, 6]])}
    if video:
        # Of Qwen2-VL: a video of Qwen3-VL is images with text between.
        kinds += [2] * 10 + [0] * 3
        grids["video_grid_thw"] = torch.tensor([[5, 2, 4]])
    else:
        kinds += [0] * 5
    holder = type("Holder", (), {"config": made})()
    model = CONFIGS[name]["model"]
    holder.get_vision_position_ids = model.get_vision_position_ids.__get__(holder)
    ids = torch.tensor([kinds])
    positions, _ = model.get_rope_index(holder, ids, ids, **grids)
    assert positions.shape == (3, 1, len(kinds))
    return positions


def pack(positions):
    """As `locus.pack_position`, for [3, B, L]."""
    t, h, w = positions
    packed = (1 << 60) + (t << 40) + (h << 20) + w
    assert int(packed[0, -1]) == locus.pack_position(*positions[:, 0, -1].tolist())
    return packed


def expected(name, q, k, v, positions, window=None):
    """Attention of the model's own rotation, causal by index, in float64."""
    rotary = CONFIGS[name]["rotary"](CONFIGS[name]["text"](**fields(name)))
    rotary.inv_freq = rotary.inv_freq.double()
    q, k, v = (x.double() for x in (q, k, v))
    cos, sin = rotary(q, positions)
    q, k = CONFIGS[name]["apply"](q, k, cos, sin)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    index = torch.arange(q.shape[2])
    offset = index[:, None] - index
    hidden = offset < 0 if window is None else (offset < 0) | (offset >= window)
    scores = (q @ k.mT / DIM**0.5).masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def inputs(length, batch=1):
    gen = torch.Generator().manual_seed(3)
    return [
        torch.randn(batch, heads, length, DIM, generator=gen)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    ]


def encodings(name):
    sections, dealing = CONFIGS[name]["sections"], CONFIGS[name]["dealing"]
    settings = {"dealing": dealing, "base": 10000.0}
    return {
        "native": locus.MRope(DIM, "halves", sections, **settings),
        "module": lt.MRope(DIM, "halves", sections, **settings),
    }


def assert_close(actual, wanted, limit=2e-5):
    error = float((torch.as_tensor(actual).double() - wanted).abs().max())
    assert error <= limit * float(wanted.abs().max())


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("name", CONFIGS)
def test_text_by_default(name, window):
    q, k, v = inputs(40, batch=2)
    positions = torch.arange(40).expand(3, 2, -1)
    wanted = expected(name, q, k, v, positions, window)
    for encoding in encodings(name).values():
        out = lt.attention(q, k, v, encoding, causal=True, window=window)
        assert_close(out, wanted)
    out = locus.attention(
        *(x.numpy() for x in (q, k, v)),
        encodings(name)["native"],
        causal=True,
        window=window,
    )
    assert_close(out, wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_text_gradients_by_default(name):
    mine = [x.requires_grad_() for x in inputs(40)]
    theirs = [x.detach().double().requires_grad_() for x in mine]
    out = lt.attention(*mine, encodings(name)["module"], causal=True)
    wanted = expected(name, *theirs, torch.arange(40).expand(3, 1, -1))
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(4))
    out.backward(d_out)
    wanted.backward(d_out.double())
    for x, y in zip(mine, theirs, strict=True):
        assert_close(x.grad, y.grad)


@pytest.mark.parametrize("name", CONFIGS)
def test_layer_position_in_its_documented_call(name):
    """The call that LayerPosition documents, with nothing but the options."""
    config = {"model_type": f"{name}_text", **fields(name), "rope_theta": 10000.0}
    config["rope_scaling"] = config.pop("rope_parameters")
    layer = locus.from_config(config)
    q, k, v = inputs(40)
    wanted = expected(name, q, k, v, torch.arange(40).expand(3, 1, -1))
    arrays = [x.numpy() for x in (q, k, v)]
    assert_close(locus.attention(*arrays, layer.encoding, **layer.options()), wanted)
    assert_close(locus.attention(*arrays, layer, causal=True), wanted)


@pytest.mark.parametrize("name", CONFIGS)
def test_images(name):
    """Their packed positions rise, and causal attention goes by them."""
    positions = image_positions(name, video=False)
    packed = pack(positions)
    q, k, v = inputs(packed.shape[1])
    wanted = expected(name, q, k, v, positions)
    for encoding in encodings(name).values():
        for by_index in (False, True):
            out = lt.attention(
                *(q, k, v, encoding),
                causal=True,
                by_index=by_index,
                q_positions=packed,
                k_positions=packed,
            )
            assert_close(out, wanted)


@pytest.mark.parametrize("window", [None, 4])
def test_videos_by_index(window):
    """The time of a video runs past the text after it: only indices tell."""
    positions = image_positions("qwen2_vl", video=True)
    packed = pack(positions)
    assert bool((packed.diff() < 0).any())
    mine = [x.requires_grad_() for x in inputs(packed.shape[1])]
    theirs = [x.detach().double().requires_grad_() for x in mine]
    where = {"q_positions": packed, "k_positions": packed}
    module = encodings("qwen2_vl")["module"]
    out = lt.attention(
        *mine, module, causal=True, window=window, by_index=True, **where
    )
    wanted = expected("qwen2_vl", *theirs, positions, window)
    assert_close(out.detach(), wanted.detach())
    d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(4))
    out.backward(d_out)
    wanted.backward(d_out.double())
    for x, y in zip(mine, theirs, strict=True):
        assert_close(x.grad, y.grad)
    with pytest.raises(ValueError, match="by_index"):
        lt.attention(*mine, module, causal=True, window=window, **where)


@pytest.mark.parametrize("name", CONFIGS)
def test_rotation(name):
    positions = image_positions(name, video=False)
    (x, _, _) = inputs(positions.shape[2])
    rotary = CONFIGS[name]["rotary"](CONFIGS[name]["text"](**fields(name)))
    encoding = encodings(name)["native"]
    for ids, where in (
        (positions, pack(positions)[0]),
        (torch.arange(x.shape[2]).expand(3, 1, -1), None),
    ):
        cos, sin = rotary(x, ids)
        wanted, _ = CONFIGS[name]["apply"](x, x, cos, sin)
        assert_close(locus.rotate(x, encoding, where), wanted.double())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cache_goes_on_after_images(dtype):
    """A prompt with a video, then tokens that nobody places."""
    positions = image_positions("qwen2_vl", video=True)
    prompt = positions.shape[2]
    # As Qwen2-VL generates: above every coordinate of the prompt.
    following = torch.arange(4) + int(positions.max()) + 1
    positions = torch.cat([positions, following.expand(3, 1, -1)], 2)
    q, k, v = inputs(prompt + 4)
    wanted = expected("qwen2_vl", q, k, v, positions)
    encoding = encodings("qwen2_vl")["native"]
    cache = locus.KvCache(KV_HEADS, DIM, q_heads=HEADS, dtype=dtype)
    cache.append(
        *(x[:, :, :prompt].numpy() for x in (k, v)),
        encoding,
        positions=pack(positions)[0, :prompt],
    )
    rows = [cache.decode(q[:, :, :prompt].numpy(), encoding)]
    for i in range(prompt, prompt + 4):
        cache.append(*(x[:, :, i : i + 1].numpy() for x in (k, v)), encoding)
        rows.append(cache.decode(q[:, :, i : i + 1].numpy(), encoding))
    assert list(cache.positions()) == pack(positions)[0].tolist()
    limit = 2e-5 if dtype == "float32" else 2e-2
    assert_close(np.concatenate(rows, 2), wanted, limit)


def test_cache_of_text_is_that_of_rope():
    q, k, v = (x.numpy() for x in inputs(30, batch=2))
    caches = []
    for encoding in (
        encodings("qwen2_vl")["native"],
        locus.Rope(DIM, "halves", base=10000.0),
    ):
        cache = locus.KvCache(KV_HEADS, DIM, batch=2, q_heads=HEADS)
        cache.append(k[:, :, :20], v[:, :, :20], encoding, lengths=[20, 7])
        rows = []
        for i in range(20, 30):
            cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1], encoding)
            one = q[:, :, i : i + 1]
            rows.append(cache.decode(one, encoding))
            rows.append(cache.decode(one, encoding, window=4))
        caches.append((cache, np.concatenate(rows, 2)))
    np.testing.assert_allclose(caches[0][1], caches[1][1], atol=2e-6)
    assert list(caches[0][0].positions(1)) == list(range(17))
