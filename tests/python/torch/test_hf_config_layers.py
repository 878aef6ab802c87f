"""One attention layer of models with relative or learned positions, as a whole.

Small configs are read by from_config, with the tensors of a module of random
weights; attention with what that says is the module's own result, at positions
above 0 and past the ends of its tables.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import locus_attn as locus  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def randomise(module, seed: int = 0):
    """Random values everywhere: zeros would hide a term."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(0.3 * torch.randn(tensor.shape, generator=generator))
    return module.eval()


def tensors_of(module, at: str) -> dict:
    """The module's tensors under the names of the whole model."""
    return {at + name: t.detach().numpy() for name, t in module.state_dict().items()}


def heads(x, count: int):
    """[B, L, H * D] -> [B, H, L, D]."""
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2).contiguous()


def merged(x):
    """[B, H, L, D] -> [B, L, H * D]."""
    x = torch.as_tensor(np.asarray(x))
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1).float()


def close(own, theirs, atol: float = 2e-5):
    torch.testing.assert_close(own, theirs, rtol=2e-5, atol=atol)


@torch.no_grad()
def test_parakeet():
    from transformers.models.parakeet import modeling_parakeet as code

    config = transformers.ParakeetEncoderConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1
    )
    config._attn_implementation = "eager"
    layer = randomise(code.ParakeetEncoderAttention(config, 0))
    x = torch.randn(2, 17, 32)
    theirs = layer(x, code.ParakeetEncoderRelPositionalEncoding(config)(x))[0]
    position = locus.from_config(
        config.to_dict(), tensors=tensors_of(layer, "layers.0.self_attn.")
    )
    q, k, v = (heads(p(x), 4) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(layer.o_proj(merged(out)), theirs)


@torch.no_grad()
def test_wav2vec2_conformer():
    from transformers.models.wav2vec2_conformer import (
        modeling_wav2vec2_conformer as code,
    )

    config = transformers.Wav2Vec2ConformerConfig(
        hidden_size=32, num_attention_heads=4, num_hidden_layers=1
    )
    config._attn_implementation = "eager"
    layer = randomise(code.Wav2Vec2ConformerSelfAttention(config))
    x = torch.randn(2, 17, 32)
    table = code.Wav2Vec2ConformerRelPositionalEmbedding(config)(x)
    theirs = layer(x, relative_position_embeddings=table)[0]
    position = locus.from_config(
        config.to_dict(), tensors=tensors_of(layer, "encoder.layers.0.self_attn.")
    )
    q, k, v = (heads(p(x), 4) for p in (layer.linear_q, layer.linear_k, layer.linear_v))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(layer.linear_out(merged(out)), theirs)


@torch.no_grad()
def test_granite_speech_blocks():
    from transformers.models.granite_speech import modeling_granite_speech as code

    config = transformers.GraniteSpeechEncoderConfig(
        hidden_dim=32,
        num_heads=4,
        dim_head=8,
        num_layers=1,
        context_size=5,
        max_pos_emb=9,
    )
    layer = randomise(code.GraniteSpeechConformerAttention(config))
    steps = torch.arange(5)
    theirs = layer(x := torch.randn(2, 13, 32), (steps[:, None] - steps) + 9)
    position = locus.from_config(
        config.to_dict(), tensors=tensors_of(layer, "layers.0.attn.")
    )
    normed = layer.pre_norm(x)
    k, v = layer.to_kv(normed).chunk(2, dim=-1)
    out = locus.attention(
        heads(layer.to_q(normed), 4),
        heads(k.contiguous(), 4),
        heads(v.contiguous(), 4),
        position.encoding,
        **position.options(q_len=13, k_len=13),
    )
    close(layer.to_out(merged(out)), theirs)


@torch.no_grad()
def test_speecht5_past_the_table():
    from transformers.models.speecht5 import modeling_speecht5 as code

    config = transformers.SpeechT5Config(
        hidden_size=32,
        encoder_attention_heads=4,
        encoder_layers=1,
        encoder_max_relative_position=5,
    )
    layer = randomise(code.SpeechT5Attention(32, 4))
    table = randomise(code.SpeechT5RelativePositionalEncoding(8, 5), 1)
    x = torch.randn(2, 17, 32)
    theirs = layer(x, position_bias=table(x))[0]
    name = "encoder.wrapped_encoder.embed_positions.pe_k.weight"
    position = locus.from_config(config.to_dict(), tensors={name: table.pe_k.weight})
    q, k, v = (heads(p(x), 4) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(layer.out_proj(merged(out)), theirs)


@torch.no_grad()
def test_vits_keys_and_values():
    from transformers.models.vits import modeling_vits as code

    config = transformers.VitsConfig(
        hidden_size=32, num_attention_heads=4, window_size=3
    )
    layer = randomise(code.VitsAttention(config))
    theirs = layer(x := torch.randn(2, 17, 32))[0]
    position = locus.from_config(
        config.to_dict(),
        tensors=tensors_of(layer, "text_encoder.encoder.layers.0.attention."),
    )
    q, k, v = (heads(p(x), 4) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(layer.out_proj(merged(out)), theirs)


@torch.no_grad()
@pytest.mark.parametrize("layer_index", [0, 1])
def test_sam_rows(layer_index):
    """Layer 0 attends in windows of 3 x 3, layer 1 to all 4 x 4 patches."""
    from transformers.models.sam import modeling_sam as code

    config = transformers.SamVisionConfig(
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=2,
        image_size=64,
        patch_size=16,
        window_size=3,
        global_attn_indexes=[1],
    )
    side = (3, 4)[layer_index]
    layer = randomise(code.SamVisionAttention(config, (3, 0)[layer_index]))
    x = torch.randn(2, side, side, 32)
    theirs = layer(x)[0].reshape(2, side * side, 32)
    at = f"vision_encoder.layers.{layer_index}.attn."
    extra = {"vision_encoder.pos_embed": np.zeros((1, 4, 4, 32), np.float32)}
    position = locus.from_config(
        config.to_dict(), layer_index, tensors=tensors_of(layer, at) | extra
    )
    qkv = layer.qkv(x).reshape(2, side * side, 3, 32)
    q, k, v = (heads(t.contiguous(), 4) for t in qkv.unbind(2))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(layer.proj(merged(out)), theirs)


@torch.no_grad()
@pytest.mark.parametrize("trained", [0, 7])
def test_swin_v2_bias(trained):
    from transformers.models.swinv2 import modeling_swinv2 as code

    config = transformers.Swinv2Config(
        image_size=16,
        patch_size=4,
        embed_dim=32,
        depths=[1],
        num_heads=[4],
        window_size=4,
        pretrained_window_sizes=[trained],
    )
    layer = randomise(code.Swinv2SelfAttention(config, 32, 4, 4, [trained, trained]))
    theirs = layer(x := torch.randn(2, 16, 32))[0]
    position = locus.from_config(
        config.to_dict(),
        tensors=tensors_of(layer, "encoder.layers.0.blocks.0.attention.self."),
    )
    q, k, v = (heads(p(x), 4) for p in (layer.query, layer.key, layer.value))
    q, k = (torch.nn.functional.normalize(t, dim=-1) for t in (q, k))
    out = locus.attention(q, k, v, position.encoding, **position.options())
    close(merged(out), theirs)


@torch.no_grad()
@pytest.mark.parametrize("layer_index", [0, 5])
def test_inkling_bias(layer_index):
    """Sliding layers and a full one with a factor of the query by position."""
    from transformers.models.inkling import modeling_inkling as code

    config = transformers.InklingTextConfig(
        hidden_size=32,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=2,
        swa_head_dim=8,
        sliding_window_size=5,
        rel_extent=7,
        d_rel=3,
        log_scaling_n_floor=4,
    )
    layer = randomise(code.InklingAttention(config, layer_index))
    position = locus.from_config(
        config.to_dict(),
        layer_index,
        tensors=tensors_of(layer, f"layers.{layer_index}.self_attn."),
    )
    length = 17
    x = torch.randn(2, length, 32)
    q, k, v = (torch.randn(2, h, length, 8) for h in (4, 2, 2))
    r = heads(layer.r_proj(x), 4)
    steps = torch.arange(length)
    bias = layer.rel_logits_proj(r.transpose(1, 2), steps, steps)
    tau = torch.ones(length)
    if layer_index == 5:
        tau = 1.0 + 0.1 * torch.log(((steps + 1.0) / 4).clamp(min=1.0))
    offset = steps[:, None] - steps
    seen = (offset >= 0) & ((offset < 5) | (layer_index == 5))
    logits = (q @ k.repeat_interleave(2, 1).transpose(-1, -2)) / 8 + bias
    logits = (logits * tau[:, None]).masked_fill(~seen, -torch.inf)
    theirs = logits.softmax(-1) @ v.repeat_interleave(2, 1)
    own = locus.attention(
        q, k, v, position.encoding, table_queries=r, **position.options()
    )
    close(torch.as_tensor(np.asarray(own)).float(), theirs)


@torch.no_grad()
def test_beam_factor_of_the_query():
    from transformers.models.beam import modeling_beam as code

    config = transformers.BeamConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        num_experts=8,
    )
    position = locus.from_config(config.to_dict(), 1)
    steps = torch.arange(9000, 9017)
    q, k, v = torch.randn(3, 1, 4, 17, 8)
    scaled = q * code.compute_attention_scaling(steps[None])
    theirs = torch.nn.functional.scaled_dot_product_attention(
        scaled, k, v, is_causal=True
    )
    ids = steps.numpy()
    own = locus.attention(
        q,
        k,
        v,
        position.encoding,
        q_positions=ids,
        k_positions=ids,
        **position.options(),
    )
    close(torch.as_tensor(np.asarray(own)).float(), theirs)


@torch.no_grad()
@pytest.mark.parametrize("layer_index", [0, 3])
def test_mistral_large4_learned(layer_index):
    """Layer 0 rotates with learned frequencies, layer 3 does not rotate."""
    from transformers.models.mistral_large4 import modeling_mistral_large4 as code

    config = transformers.models.mistral_large4.MistralLarge4TextConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
    )
    scaling = randomise(code.MistralLarge4TextSoftmaxScaling(4))
    rotary = code.MistralLarge4TextRotaryEmbedding(config)
    rotary.alpha.copy_(torch.randn(4) / 3)
    at = f"layers.{layer_index}.self_attn.softmax_scaling."
    tensors = tensors_of(scaling, at) | {"rotary_emb.alpha": rotary.alpha.numpy()}
    position = locus.from_config(config.to_dict(), layer_index, tensors=tensors)
    steps = torch.arange(600, 617)
    q, k = torch.randn(2, 1, 4, 17, 16)
    v = torch.randn(1, 4, 17, 8)
    own_q, own_k = q.clone(), k.clone()
    if layer_index == 0:
        cos, sin = rotary(q, steps[None])
        turned = code.apply_rotary_pos_emb_interleave(q[..., 8:], k[..., 8:], cos, sin)
        own_q[..., 8:], own_k[..., 8:] = turned
    own_q = scaling(own_q, steps[None], head_dim_first=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        own_q, own_k, v, is_causal=True, scale=16**-0.5
    )
    ids = steps.numpy()
    own = locus.attention(
        q,
        k,
        v,
        position.encoding,
        q_positions=ids,
        k_positions=ids,
        **position.options(),
    )
    # float32 angles of 600 radians are off by 4e-5, and logits of several tens
    # weigh that.
    close(torch.as_tensor(np.asarray(own)).float(), theirs, atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["sliding_attention", "heavily_compressed_attention"])
def test_deepseek_v4_values(kind):
    """Values rotate with the keys and outputs back; the keys of the window alone."""
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as code

    config = transformers.DeepseekV4Config(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        head_dim=16,
        partial_rotary_factor=0.5,
        sliding_window=5,
        layer_types=[kind],
    )
    position = locus.from_config(config.to_dict())
    assert tuple(position.options()["window"]) == (4, 0)
    rotary = code.DeepseekV4RotaryEmbedding(config)
    label = "main" if kind == "sliding_attention" else "compress"
    steps = torch.arange(300, 317)
    q = torch.randn(1, 4, 17, 16)
    kv = torch.randn(1, 1, 17, 16)
    sinks = torch.randn(4)
    cos, sin = rotary(q, steps[None], label)
    turned_q = code.apply_rotary_pos_emb(q, cos, sin)
    turned = code.apply_rotary_pos_emb(kv, cos, sin)
    offset = steps[:, None] - steps
    logits = turned_q @ turned.transpose(-1, -2) / 4
    logits = logits.masked_fill((offset < 0) | (offset > 4), -torch.inf)
    logits = torch.cat([logits, sinks.view(1, 4, 1, 1).expand(1, 4, 17, 1)], -1)
    theirs = logits.softmax(-1)[..., :-1] @ turned
    theirs = code.apply_rotary_pos_emb(theirs, cos, -sin)
    ids = steps.numpy()
    own = locus.attention(
        q,
        kv,
        kv,
        position.encoding,
        q_positions=ids,
        k_positions=ids,
        sinks=sinks,
        **position.options(),
    )
    close(torch.as_tensor(np.asarray(own)).float(), theirs)


@torch.no_grad()
def test_phi4_audio_bias():
    from transformers.models.phi4_multimodal import modeling_phi4_multimodal as code

    config = transformers.Phi4MultimodalAudioConfig(
        hidden_size=32, num_attention_heads=4, num_blocks=1, bias_max_distance=5
    )
    layer = randomise(code.Phi4MultimodalAudioRelativeAttentionBias(config))
    position = locus.from_config(
        config.to_dict(), tensors=tensors_of(layer, "relative_attention_bias_layer.")
    )
    q, k, v = torch.randn(3, 2, 4, 17, 8)
    bias = layer(torch.zeros(2, 17, 32))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    own = locus.attention(q, k, v, position.encoding, **position.options())
    close(torch.as_tensor(np.asarray(own)).float(), theirs)


@torch.no_grad()
def test_musicgen_cosines_first():
    from transformers.models.musicgen import modeling_musicgen as code

    config = transformers.models.musicgen.MusicgenDecoderConfig(hidden_size=32)
    position = locus.from_config(config.to_dict())
    theirs = code.MusicgenSinusoidalPositionalEmbedding.get_embedding(2100, 32)
    own = position.input.embed(np.array([0, 1, 17, 2099]))
    np.testing.assert_allclose(own, theirs[[0, 1, 17, 2099]].numpy(), atol=2e-4)
