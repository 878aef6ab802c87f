"""Whole layers of models that add positions to the input, or ALiBi to the scores.

A case has what golden_layers.py's have, and for positions of the input `added`,
the rows [tokens, channels] that the model's own module of positions gave.
"""

from __future__ import annotations

from typing import Any

import torch
from golden_layers import (
    TEXT,
    TOKENS,
    Kept,
    build,
    case,
    heads_of,
    seen_by_image_layer,
    watch,
)
from golden_tables import Case, numbers

GPT: Case = {
    "n_embd": 8,
    "n_head": 2,
    "n_layer": 2,
    "n_inner": 8,
    "n_positions": 16,
    "vocab_size": 32,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
# Encoder and decoder; names of the BART family.
BOTH: Case = {
    "d_model": 8,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "vocab_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
}
WHISPER: Case = {
    **BOTH,
    "num_mel_bins": 4,
    "max_source_positions": TOKENS,
    "max_target_positions": 16,
}
del WHISPER["max_position_embeddings"]
DISTILBERT: Case = {
    "dim": 8,
    "n_heads": 2,
    "n_layers": 2,
    "hidden_dim": 8,
    "vocab_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
}
OPT: Case = {
    "hidden_size": 8,
    "word_embed_proj_dim": 8,
    "ffn_dim": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
}


def ids() -> torch.Tensor:
    """Tokens that are no padding: [1, n]."""
    return torch.arange(3, 3 + TOKENS)[None]


def rows(added: torch.Tensor) -> Any:
    """[1, n, d] or [n, d] -> n lists of d."""
    return numbers(added.reshape(-1, added.shape[-1])[:TOKENS])


def one_part(
    model_type: str, fields: Case, layer: str, names: tuple[str, str], positions: str
) -> Case:
    """A model of one stack: layer 1, and its module of positions."""
    model = build(model_type, fields)
    kept: Kept = {}
    for name, module in zip("qk", names, strict=True):
        watch(model.get_submodule(f"{layer}.{module}"), kept, name)
    watch(model.get_submodule(positions), kept, "added")
    out = model(input_ids=ids(), output_attentions=True)
    prob = out.attentions[1][0]
    q, k = (heads_of(kept[x], prob.shape[0]) for x in "qk")
    table = [f"{positions}.weight"]
    seen = (q, k, prob)
    return case(model, fields, model_type, table, seen, added=rows(kept["added"]))


def gpt(model_type: str, kv_heads: int) -> Case:
    """One projection holds q, k and v side by side."""
    model = build(model_type, GPT)
    kept: Kept = {}
    watch(model.h[1].attn.c_attn, kept, "qkv")
    watch(model.wpe, kept, "added")
    out = model(input_ids=ids(), output_attentions=True)
    q, k, _ = kept["qkv"].split([8, 4 * kv_heads, 4 * kv_heads], dim=-1)
    seen = (heads_of(q, 2), heads_of(k, kv_heads), out.attentions[1][0])
    table = ["wpe.weight"]
    return case(model, GPT, model_type, table, seen, added=rows(kept["added"]))


def two_parts(model_type: str, fields: Case) -> list[Case]:
    """Encoder and decoder, second layer."""
    model = build(model_type, fields)
    kept: Kept = {}
    for part in ("encoder", "decoder"):
        stack = getattr(model, part)
        watch(stack.layers[1].self_attn.q_proj, kept, part + "q")
        watch(stack.layers[1].self_attn.k_proj, kept, part + "k")
        watch(stack.embed_positions, kept, part)
    inputs = {"input_ids": ids()}
    if model_type == "whisper":
        inputs = {"input_features": torch.randn(1, 4, 2 * TOKENS)}
    out = model(
        **inputs, decoder_input_ids=ids(), output_attentions=True, use_cache=False
    )
    return [
        case(
            model,
            fields,
            model_type,
            [f"{part}.embed_positions.weight"],
            (
                heads_of(kept[part + "q"], 2),
                heads_of(kept[part + "k"], 2),
                out[f"{part}_attentions"][1][0],
            ),
            part=part,
            added=rows(kept[part]),
        )
        for part in ("encoder", "decoder")
    ]


def alibi_cases() -> list[Case]:
    """BLOOM holds q, k and v of each head together, MPT side by side.

    Six heads: slopes of a number that is no power of two.
    """
    heads = 6
    bloom = {"hidden_size": 24, "n_head": heads, "n_layer": 2, "vocab_size": 32}
    mpt = {
        "d_model": 24,
        "n_heads": heads,
        "n_layers": 2,
        "max_seq_len": 16,
        "vocab_size": 32,
        "expansion_ratio": 1,
        "attn_config": {"alibi": True, "alibi_bias_max": 8},
    }
    cases = []
    for model_type, fields, name in (
        ("bloom", bloom, "h.1.self_attention.query_key_value"),
        ("mpt", mpt, "blocks.1.attn.Wqkv"),
    ):
        model = build(model_type, fields)
        kept: Kept = {}
        watch(model.get_submodule(name), kept, "qkv")
        out = model(input_ids=ids(), output_attentions=True)
        if model_type == "mpt":
            q, k, _ = (heads_of(x, heads) for x in kept["qkv"].chunk(3, dim=-1))
        else:
            q, k, _ = heads_of(kept["qkv"], heads).chunk(3, dim=-1)
        seen = (q, k, out.attentions[1][0])
        cases.append(case(model, fields, model_type, [], seen))
    return cases


def falcon() -> Case:
    """Falcon as PyTorch's fused attention is called: q, k, and a mask with ALiBi.

    The eager path of this release adds ALiBi a second time. Eight heads: their
    slopes times these positions are exact in bfloat16, which Falcon rounds to.
    """
    fields = {
        "hidden_size": 32,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "vocab_size": 32,
        "alibi": True,
        "multi_query": False,
        "new_decoder_architecture": False,
        "bias": True,
    }
    model = build("falcon", fields)
    model.config._attn_implementation = "sdpa"
    calls = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def keep(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **kw: Any) -> Any:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + kw["attn_mask"]
        calls.append((q[0], k[0], scores.softmax(-1)[0]))
        return plain(q, k, v, **kw)

    torch.nn.functional.scaled_dot_product_attention = keep
    try:
        model(input_ids=ids())
    finally:
        torch.nn.functional.scaled_dot_product_attention = plain
    return case(model, fields, "falcon", [], calls[1])


def image(model_type: str) -> Case:
    """3 x 3 patches after [CLS], and DeiT's token of distillation."""
    fields = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 8,
        "image_size": 12,
        "patch_size": 4,
    }
    model = build(model_type, fields)
    seen = seen_by_image_layer(model)
    table = "embeddings.position_embeddings"
    added = numbers(model.embeddings.position_embeddings[0])
    return case(model, fields, model_type, [table], seen, added=added)


def inputs_file() -> list[Case]:
    """inputs.json: absolute positions and ALiBi."""
    bert = ("encoder.layer.1.attention.self", ("query", "key"))
    table = "embeddings.position_embeddings"
    roberta = {**TEXT, "max_position_embeddings": 18}
    return [
        one_part("bert", TEXT, *bert, table),
        one_part("roberta", roberta, *bert, table),
        one_part("xlm-roberta", roberta, *bert, table),
        one_part("camembert", roberta, *bert, table),
        one_part("electra", {**TEXT, "embedding_size": 6}, *bert, table),
        one_part(
            "albert",
            {**TEXT, "embedding_size": 6, "num_hidden_groups": 2},
            "encoder.albert_layer_groups.1.albert_layers.0.attention",
            ("query", "key"),
            table,
        ),
        one_part(
            "distilbert",
            DISTILBERT,
            "transformer.layer.1.attention",
            ("q_lin", "k_lin"),
            table,
        ),
        gpt("gpt2", 2),
        gpt("gpt_bigcode", 1),
        one_part(
            "opt",
            OPT,
            "decoder.layers.1.self_attn",
            ("q_proj", "k_proj"),
            "decoder.embed_positions",
        ),
        *two_parts("bart", BOTH),
        *two_parts("mbart", BOTH),
        *two_parts("plbart", BOTH),
        *two_parts("blenderbot-small", BOTH),
        *two_parts("marian", BOTH),
        *two_parts("m2m_100", BOTH),
        *two_parts("whisper", WHISPER),
        image("vit"),
        image("deit"),
        *alibi_cases(),
        falcon(),
    ]
