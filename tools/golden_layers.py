"""Whole attention layers with tables of their own; see golden.py.

A case has the tensors that the layer's positions are made of, under the names of
this release, q and k [heads, tokens, channels] as projected, and what the
layer made of them: prob [heads, tokens, tokens].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from golden_tables import Case, numbers

TOKENS = 9
TEXT: Case = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 8,
    "vocab_size": 32,
    "max_position_embeddings": 16,
    "pad_token_id": 1,
}
T5: Case = {
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 8,
    "num_heads": 2,
    "num_layers": 2,
    "vocab_size": 32,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
XLNET: Case = {
    "d_model": 8,
    "n_head": 2,
    "n_layer": 2,
    "d_inner": 8,
    "vocab_size": 32,
    "attn_type": "bi",
    "clamp_len": 5,
    "untie_r": True,
}
DEBERTA: Case = {
    **TEXT,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "pos_att_type": "c2p|p2c",
    "type_vocab_size": 0,
}
IMAGE: Case = {"image_size": 12, "patch_size": 4, "hidden_act": "gelu"}
Kept = dict[str, torch.Tensor]


def build(model_type: str, fields: Case) -> torch.nn.Module:
    """A model with every parameter drawn anew, tables and biases too."""
    config = transformers.AutoConfig.for_model(
        model_type, **fields, attn_implementation="eager"
    )
    torch.manual_seed(4)
    model = transformers.AutoModel.from_config(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:  # sinusoids are what they are
                parameter.normal_(std=0.5)
    return model


def watch(module: torch.nn.Module, kept: Kept, name: str) -> None:
    """Keeps what a module returns, first call: later ones may be for tables."""

    def keep(_: Any, __: Any, out: torch.Tensor) -> None:
        kept.setdefault(name, out)

    module.register_forward_hook(keep)


def heads_of(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[1, n, heads * d] -> [heads, n, d]"""
    return x[0].view(x.shape[1], heads, -1).transpose(0, 1)


def case(
    model: torch.nn.Module,
    fields: Case,
    model_type: str,
    tables: list[str],
    seen: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    **more: Any,
) -> Case:
    """q, k, prob of `seen`, and the tensors whose names end as in `tables`."""
    state = {
        name: numbers(value)
        for name, value in model.state_dict().items()
        if name.endswith(tuple(tables))
    }
    q, k, prob = map(numbers, seen)
    return {
        "name": "layer",
        "config": {**fields, "model_type": model_type},
        **more,
        "tensors": state,
        "q": q,
        "k": k,
        "prob": prob,
    }


def text_case(
    model_type: str,
    fields: Case,
    find: Callable[[torch.nn.Module], tuple[torch.nn.Module, torch.nn.Module]],
    tables: list[str],
) -> Case:
    """Layer 1 of an encoder with separate projections of q and k."""
    model = build(model_type, fields)
    kept: Kept = {}
    for name, module in zip("qk", find(model), strict=True):
        watch(module, kept, name)
    out = model(input_ids=torch.arange(2, 2 + TOKENS)[None], output_attentions=True)
    heads = out.attentions[1].shape[1]
    q, k = heads_of(kept["q"], heads), heads_of(kept["k"], heads)
    return case(model, fields, model_type, tables, (q, k, out.attentions[1][0]))


def deberta_v1() -> Case:
    """Its projection holds q, k and v of each head together."""
    model = build("deberta", DEBERTA)
    kept: Kept = {}
    layer = model.encoder.layer[1].attention.self
    watch(layer.in_proj, kept, "qkv")
    out = model(input_ids=torch.arange(2, 2 + TOKENS)[None], output_attentions=True)
    q, k, _ = heads_of(kept["qkv"], 2).chunk(3, dim=-1)
    q = q + layer.q_bias.view(2, 1, -1)
    return case(
        model,
        DEBERTA,
        "deberta",
        [
            "rel_embeddings.weight",
            "1.attention.self.pos_proj.weight",
            "1.attention.self.pos_q_proj.weight",
            "1.attention.self.pos_q_proj.bias",
        ],
        (q, k, out.attentions[1][0]),
    )


def xlnet() -> Case:
    """q and k are parameters that the input is multiplied with."""
    model = build("xlnet", XLNET)
    kept: Kept = {}
    layer = model.layer[1].rel_attn
    layer.register_forward_pre_hook(
        lambda _, args, kw: kept.__setitem__("h", args[0] if args else kw["h"]),
        with_kwargs=True,
    )
    with torch.no_grad():
        # Segments are beside the positions: their terms vanish.
        layer.seg_embed.zero_()
        layer.r_s_bias.zero_()
    out = model(input_ids=torch.arange(2, 2 + TOKENS)[None], output_attentions=True)
    q, k = (torch.einsum("ibh,hnd->bnid", kept["h"], w)[0] for w in (layer.q, layer.k))
    prob = out.attentions[1]
    prob = prob[0] if prob.shape[0] == 1 else prob[..., 0].permute(2, 0, 1)
    return case(
        model,
        XLNET,
        "xlnet",
        ["1.rel_attn.r", "1.rel_attn.r_w_bias", "1.rel_attn.r_r_bias"],
        (q, k, prob),
    )


def t5_cases() -> list[Case]:
    """Both parts, second layer, of T5 and its likes."""
    cases = []
    for kind in ("t5", "mt5", "umt5", "switch_transformers"):
        model = build(kind, T5)
        kept: Kept = {}
        for part in ("encoder", "decoder"):
            layer = getattr(model, part).block[1].layer[0].SelfAttention
            watch(layer.q, kept, part + "q")
            watch(layer.k, kept, part + "k")
        ids = torch.arange(2, 2 + TOKENS)[None]
        out = model(
            input_ids=ids,
            decoder_input_ids=ids,
            output_attentions=True,
            use_cache=False,
        )
        for part in ("encoder", "decoder"):
            prob = out[f"{part}_attentions"][1][0]
            q, k = (heads_of(kept[part + x], 2) for x in "qk")
            cases.append(
                case(
                    model,
                    T5,
                    kind,
                    ["relative_attention_bias.weight"],
                    (q, k, prob),
                    part=part,
                )
            )
    return cases


def longt5() -> Case:
    """The local encoder: blocks of radius + 1 tokens, each with its neighbours."""
    radius = 2
    fields = {**T5, "encoder_attention_type": "local", "local_radius": radius}
    model = build("longt5", fields)
    kept: Kept = {}
    layer = model.encoder.block[1].layer[0].LocalSelfAttention
    watch(layer.q, kept, "q")
    watch(layer.k, kept, "k")
    ids = torch.arange(2, 2 + TOKENS)[None]
    out = model.encoder(input_ids=ids, output_attentions=True)
    blocks = out.attentions[1][0]  # [block, heads, row in it, column of three]
    block = radius + 1
    prob = torch.zeros(2, TOKENS, TOKENS)
    for m in range(TOKENS):
        for n in range(TOKENS):
            column = n - (m // block - 1) * block
            if 0 <= column < 3 * block:
                prob[:, m, n] = blocks[m // block, :, m % block, column]
    q, k = (heads_of(kept[x], 2) for x in "qk")
    table = [
        "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias.weight"
    ]
    return case(model, fields, "longt5", table, (q, k, prob), part="encoder")


def seen_by_image_layer(model: torch.nn.Module) -> tuple[torch.Tensor, ...]:
    """q, k and weights of layer 1 over an image of 12 x 12 pixels."""
    kept: Kept = {}
    layer = model.layers[1].attention
    watch(layer.q_proj, kept, "q")
    watch(layer.k_proj, kept, "k")
    out = model(torch.randn(1, 3, 12, 12), output_attentions=True)
    q, k = (heads_of(kept[x], 2) for x in "qk")
    return q, k, out.attentions[1][0]


def image_cases() -> list[Case]:
    """BEiT over 3 x 3 patches and [CLS]; a window of Swin."""
    beit = {
        **TEXT,
        **IMAGE,
        "use_relative_position_bias": True,
        "use_absolute_position_embeddings": False,
    }
    del beit["vocab_size"], beit["max_position_embeddings"], beit["pad_token_id"]
    model = build("beit", beit)
    seen = seen_by_image_layer(model)
    table = "relative_position_bias.relative_position_bias_table"
    cases = [case(model, beit, "beit", [f"layers.1.{table}"], seen)]
    swin = {
        "image_size": 24,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [1],
        "num_heads": [2],
        "window_size": 3,
    }
    model = build("swin", swin)
    kept = {}
    layer = model.encoder.layers[0].blocks[0].attention
    watch(layer.q_proj, kept, "q")
    watch(layer.k_proj, kept, "k")
    out = model(torch.randn(1, 3, 24, 24), output_attentions=True)
    # Windows are batches; the first is as good as any.
    q, k = (heads_of(kept[x][:1], 2) for x in "qk")
    cases.append(
        case(
            model,
            swin,
            "swin",
            [f"0.blocks.0.attention.{table}"],
            (q, k, out.attentions[0][0]),
            layer=0,
        )
    )
    return cases


def layers_file() -> list[Case]:
    """layers.json: layers whose positions are tables of the checkpoint."""
    v2 = {**DEBERTA, "position_buckets": 4, "pos_att_type": "p2c|c2p"}
    shared = {**v2, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
    separate = {**v2, "share_att_key": False}
    projections = [
        f"1.attention.self.{x}_proj.{y}"
        for y in ("weight", "bias")
        for x in ("query", "key", "pos_query", "pos_key")
    ]
    tables = [
        "rel_embeddings.weight",
        "encoder.LayerNorm.weight",
        "encoder.LayerNorm.bias",
        *projections,
    ]

    def deberta(model: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
        layer = model.encoder.layer[1].attention.self
        return layer.query_proj, layer.key_proj

    def mpnet(model: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
        layer = model.encoder.layer[1].attention.attn
        return layer.q, layer.k

    def roformer(model: Any) -> tuple[torch.nn.Module, torch.nn.Module]:
        layer = model.encoder.layer[1].attention.self
        return layer.query, layer.key

    return [
        deberta_v1(),
        text_case("deberta-v2", shared, deberta, tables),
        text_case("deberta-v2", separate, deberta, tables),
        text_case(
            "mpnet",
            {**TEXT, "relative_attention_num_buckets": 32},
            mpnet,
            ["relative_attention_bias.weight"],
        ),
        text_case("roformer", {**TEXT, "embedding_size": 8}, roformer, []),
        xlnet(),
        *t5_cases(),
        longt5(),
        *image_cases(),
    ]
