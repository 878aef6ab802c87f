"""Golden values of tables, biases and whole layers; see golden.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

Case = dict[str, Any]


def numbers(x: torch.Tensor | float) -> Any:
    """Nested lists of the float32 numbers of a tensor, in 9 digits."""
    if isinstance(x, torch.Tensor):
        x = x.detach().to(torch.float32).tolist()
    if isinstance(x, list):
        return [numbers(y) for y in x]
    return float(f"{x:.9g}")


# Offsets m - n around every border of the default buckets, and far ones.
OFFSETS = sorted(
    {
        s * n
        for s in (-1, 1)
        for n in [
            *range(40),
            63,
            64,
            90,
            91,
            127,
            128,
            255,
            256,
            257,
            384,
            510,
            511,
            512,
            513,
            4096,
            100000,
        ]
    }
)


def t5_cases() -> list[Case]:
    """Buckets of offsets, by T5's own code (which counts key minus query)."""
    from transformers.models.t5.modeling_t5 import T5Attention

    cases = []
    for buckets, distance, both in [
        (32, 128, True),
        (32, 128, False),
        (64, 256, True),
        (16, 100, False),
    ]:
        found = T5Attention._relative_position_bucket(
            -torch.tensor(OFFSETS),
            bidirectional=both,
            num_buckets=buckets,
            max_distance=distance,
        )
        cases.append(
            {
                "name": "t5",
                "buckets": buckets,
                "max_distance": distance,
                "bidirectional": both,
                "offsets": OFFSETS,
                "bucket": found.tolist(),
            }
        )
    return cases


def deberta_cases() -> list[Case]:
    """Index into the relative table, by DeBERTa's own code."""
    from transformers.models.deberta_v2.modeling_deberta_v2 import (
        make_log_bucket_position,
    )

    cases = []
    for buckets, longest in [(256, 512), (32, 128)]:
        found = make_log_bucket_position(torch.tensor(OFFSETS), buckets, longest)
        index = torch.clamp(found.long() + buckets, 0, 2 * buckets - 1)
        cases.append(
            {
                "name": "deberta-v2",
                "buckets": buckets,
                "max_relative_positions": longest,
                "offsets": OFFSETS,
                "bucket": index.tolist(),
            }
        )
    return cases


def alibi_cases() -> list[Case]:
    """Slopes [heads]: the bias of one token of distance."""
    from transformers.models.bloom import modeling_bloom
    from transformers.models.falcon import modeling_falcon
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    mask = torch.ones(1, 2)
    makers: dict[str, Callable[[int], torch.Tensor]] = {
        "bloom": lambda n: modeling_bloom.build_alibi_tensor(mask, n, torch.float32)[
            :, 0, 1
        ],
        "falcon": lambda n: modeling_falcon.build_alibi_tensor(mask, n, torch.float32)[
            :, 0, 1
        ],
        "mpt": lambda n: -build_mpt_alibi_tensor(n, 2)[:, 0, 0],
    }
    return [
        {
            "name": "alibi",
            "model_type": kind,
            "heads": heads,
            "slopes": numbers(make(heads)),
        }
        for kind, make in makers.items()
        for heads in (2, 8, 12, 40, 71, 112)
    ]


def sinusoid_cases() -> list[Case]:
    """Rows of the tables that are added to the input."""
    parts = {
        "d_model": 16,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "vocab_size": 32,
        "pad_token_id": 1,
    }
    cases = []
    for kind, more in [
        ("marian", {"max_position_embeddings": 512, "decoder_start_token_id": 0}),
        ("m2m_100", {"max_position_embeddings": 512}),
        ("whisper", {"max_source_positions": 512, "max_target_positions": 64}),
    ]:
        fields = {**parts, **more}
        model = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(kind, **fields)
        )
        table = model.encoder.embed_positions
        rows = getattr(table, "weights", None)
        rows = table.weight if rows is None else rows
        # M2M100 counts from the row after its padding.
        first = 2 if kind == "m2m_100" else 0
        cases.append(
            {
                "name": "sinusoidal",
                "config": {**fields, "model_type": kind},
                "positions": [0, 1, 7, 511 - first],
                "rows": numbers(rows[[first, 1 + first, 7 + first, 511]]),
            }
        )
    return cases


def resize_cases() -> list[Case]:
    """ViT's table for another raster, by ViT's own interpolation."""
    fields = {
        "hidden_size": 4,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 4,
        "image_size": 32,
        "patch_size": 8,
    }
    model = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model("vit", **fields)
    )
    torch.manual_seed(2)
    table = torch.randn(1, 17, 4)
    model.embeddings.position_embeddings = torch.nn.Parameter(table)
    cases = []
    for height, width in [(4, 4), (6, 5), (3, 7)]:
        patches = torch.zeros(1, 1 + height * width, 4)
        rows = model.embeddings.interpolate_pos_encoding(patches, 8 * height, 8 * width)
        cases.append(
            {
                "name": "vit",
                "config": {**fields, "model_type": "vit"},
                "height": height,
                "width": width,
                "table": numbers(table[0]),
                "rows": numbers(rows[0]),
            }
        )
    return cases


def pixtral_cases() -> list[Case]:
    """Logits of patches after the rotation of Pixtral's vision tower."""
    from transformers.models.pixtral.modeling_pixtral import (
        PixtralVisionRotaryEmbedding,
        apply_rotary_pos_emb,
    )

    cases = []
    for head_dim, base in [(8, 10000.0), (64, 10000.0), (16, 100.0)]:
        config = transformers.PixtralVisionConfig(
            hidden_size=2 * head_dim,
            num_attention_heads=2,
            image_size=160,
            patch_size=16,
            rope_parameters={"rope_type": "axial", "rope_theta": base},
        )
        width = config.image_size // config.patch_size
        positions = [0, 1, width, 3 * width + 7, width * width - 1]
        grid = torch.tensor([[p // width, p % width] for p in positions])
        torch.manual_seed(3)
        q = torch.randn(len(positions), head_dim)
        k = torch.randn(len(positions), head_dim)
        cos, sin = PixtralVisionRotaryEmbedding(config)(q, grid)
        turned_q, turned_k = apply_rotary_pos_emb(
            q[None, None], k[None, None], cos, sin, unsqueeze_dim=0
        )
        cases.append(
            {
                "name": "pixtral",
                "base": base,
                "width": width,
                "positions": positions,
                "q": numbers(q),
                "k": numbers(k),
                "logits": numbers(turned_q[0, 0] @ turned_k[0, 0].T),
            }
        )
    return cases


def tables_file() -> list[Case]:
    """tables.json: buckets, slopes, sinusoids, resized tables, 2-D rotations."""
    return [
        *t5_cases(),
        *deberta_cases(),
        *alibi_cases(),
        *sinusoid_cases(),
        *resize_cases(),
        *pixtral_cases(),
    ]


# -------------------------------------------------- releases of long ago


def legacy_file() -> list[Case]:
    """legacy.json: Transformer-XL's keys and BERT's relative scores."""
    from transformers import BertConfig, TransfoXLConfig
    from transformers.models.bert.modeling_bert import BertSelfAttention
    from transformers.models.transfo_xl.modeling_transfo_xl import (
        PositionalEmbedding as XlSinusoids,
    )
    from transformers.models.transfo_xl.modeling_transfo_xl import (
        RelPartialLearnableMultiHeadAttn,
    )

    torch.manual_seed(3)
    length, heads, dim, width, clamp = 9, 2, 4, 8, 5
    xl = RelPartialLearnableMultiHeadAttn(
        heads, width, dim, 0.0, pre_lnorm=False
    ).eval()
    for bias in (xl.r_r_bias, xl.r_w_bias):
        torch.nn.init.normal_(bias)
    offsets = torch.arange(length - 1, -1, -1.0).clamp(max=clamp)
    r = XlSinusoids(width)(offsets)
    x = torch.randn(length, 1, width)
    mask = torch.triu(torch.ones(length, length), 1)[..., None].bool()
    prob = xl(x, r, attn_mask=mask, output_attentions=True)[1]
    q, k, _ = torch.chunk(xl.qkv_net(x), 3, dim=-1)
    fields = {
        "model_type": "transfo-xl",
        "d_model": width,
        "d_head": dim,
        "n_head": heads,
        "n_layer": 1,
        "mem_len": 0,
        "clamp_len": clamp,
        "untie_r": True,
        "same_length": False,
    }
    TransfoXLConfig(**fields)
    cases = [
        {
            "name": "transfo-xl",
            "config": fields,
            "r_net": numbers(xl.r_net.weight),
            "u": numbers(xl.r_w_bias),
            "v": numbers(xl.r_r_bias),
            "q": numbers(q.view(length, heads, dim).transpose(0, 1)),
            "k": numbers(k.view(length, heads, dim).transpose(0, 1)),
            "prob": numbers(prob[:, :, 0].permute(2, 0, 1)),
        }
    ]
    for kind in ("relative_key", "relative_key_query"):
        fields = {
            "hidden_size": 8,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "max_position_embeddings": 12,
            "position_embedding_type": kind,
        }
        bert = BertSelfAttention(BertConfig(**fields)).eval()
        x = torch.randn(1, length, 8)
        split = bert.transpose_for_scores
        prob = bert(x, output_attentions=True)[1]
        cases.append(
            {
                "name": "bert",
                "config": {**fields, "model_type": "bert"},
                "table": numbers(bert.distance_embedding.weight),
                "q": numbers(split(bert.query(x))[0]),
                "k": numbers(split(bert.key(x))[0]),
                "prob": numbers(prob[0]),
            }
        )
    return cases
