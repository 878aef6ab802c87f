"""The configs of the golden values: small sizes, published position fields."""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]

# Two query heads on one key head, 16 channels each, one layer.
SMALL: Fields = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 2048,
}
MOE: Fields = {"num_local_experts": 2, "num_experts_per_tok": 1}
EXPERTS: Fields = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}
# A layer without experts, of models that could have them.
DENSE: Fields = {
    "first_k_dense_replace": 8,
    "n_routed_experts": 2,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
}
GPT: Fields = {
    "n_embd": 32,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 131072,
    "n_inner": 16,
    "vocab_size": 32,
    "rotary_dim": 8,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
LLAMA3: Fields = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN: Fields = {
    "type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 2048,
}
# OLMo 3 looks at the new spelling only.
YARN_BY_LAYER: Fields = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 2048,
}
# One divisor a pair; the published lists have 48 and more.
LONG: Fields = {
    "type": "longrope",
    "short_factor": [1.0, 1.02, 1.05, 1.1, 1.3, 1.9, 2.5, 3.0],
    "long_factor": [1.05, 1.4, 2.2, 5.0, 11.0, 23.0, 37.0, 64.0],
}
# DeepSeek: 8 still and 8 turning channels, no experts.
LATENT: Fields = {
    "num_key_value_heads": 2,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
    "kv_lora_rank": 8,
    "q_lora_rank": None,
    "first_k_dense_replace": 1,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 8,
    "max_position_embeddings": 163840,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40,
        "beta_fast": 32,
        "beta_slow": 1,
        "original_max_position_embeddings": 4096,
    },
}
QWEN: Fields = {"use_sliding_window": False, "max_window_layers": 1}


def latent(mscale: float, mscale_all_dim: float) -> Fields:
    """DeepSeek with the two magnitudes of its YaRN."""
    scaling = {
        **LATENT["rope_scaling"],
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
    }
    return {**LATENT, "rope_scaling": scaling}


# (name, model_type, fields over SMALL). Each names its own sizes where the
# model spells them in another way.
ROTARY: list[tuple[str, str, Fields]] = [
    ("llama", "llama", {}),
    ("llama 3", "llama", {"rope_theta": 500000.0}),
    (
        "llama 3.1",
        "llama",
        {
            "rope_theta": 500000.0,
            "rope_scaling": LLAMA3,
            "max_position_embeddings": 131072,
        },
    ),
    (
        "llama 3.1, new spelling",
        "llama",
        {
            "rope_parameters": {**LLAMA3, "rope_theta": 500000.0},
            "max_position_embeddings": 131072,
        },
    ),
    ("llama, wide head", "llama", {"head_dim": 32}),
    ("llama, linear", "llama", {"rope_scaling": {"type": "linear", "factor": 8.0}}),
    ("llama, dynamic", "llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("llama, yarn", "llama", {"rope_scaling": YARN, "max_position_embeddings": 8192}),
    (
        "llama, yarn with its own factor",
        "llama",
        {
            "rope_scaling": {**YARN, "attention_factor": 1.5, "beta_fast": 16},
            "max_position_embeddings": 8192,
        },
    ),
    ("mistral", "mistral", {"rope_theta": 1e6, "sliding_window": 4096}),
    ("mixtral", "mixtral", {"rope_theta": 1e6, **MOE}),
    ("qwen 2", "qwen2", {"rope_theta": 1e6, **QWEN}),
    ("qwen 2.5, yarn", "qwen2", {"rope_theta": 1e6, "rope_scaling": YARN, **QWEN}),
    ("qwen 3", "qwen3", {"rope_theta": 1e6, "head_dim": 16, **QWEN}),
    ("gemma", "gemma", {"head_dim": 16}),
    ("gemma 2", "gemma2", {"head_dim": 16, "query_pre_attn_scalar": 144}),
    (
        "gemma 3, sliding",
        "gemma3_text",
        {
            "head_dim": 16,
            "layer_types": ["sliding_attention"],
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    (
        "gemma 3, full",
        "gemma3_text",
        {
            "head_dim": 16,
            "layer_types": ["full_attention"],
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        },
    ),
    ("phi 2", "phi", {"partial_rotary_factor": 0.5}),
    (
        "phi 3, short",
        "phi3",
        {
            "rope_scaling": None,
            "original_max_position_embeddings": 2048,
            "pad_token_id": 0,
        },
    ),
    (
        "phi 3, longrope",
        "phi3",
        {
            "rope_scaling": LONG,
            "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096,
            "pad_token_id": 0,
        },
    ),
    ("stablelm", "stablelm", {"partial_rotary_factor": 0.25}),
    ("olmo 2", "olmo2", {"rope_theta": 500000.0}),
    (
        "olmo 3, full",
        "olmo3",
        {
            "rope_theta": 500000.0,
            "layer_types": ["full_attention"],
            "max_position_embeddings": 8192,
            "rope_scaling": YARN_BY_LAYER,
        },
    ),
    (
        "olmo 3, sliding",
        "olmo3",
        {
            "rope_theta": 500000.0,
            "layer_types": ["sliding_attention"],
            "max_position_embeddings": 8192,
            "rope_scaling": YARN_BY_LAYER,
        },
    ),
    ("cohere", "cohere", {"rope_theta": 8e6}),
    (
        "cohere 2, sliding",
        "cohere2",
        {"rope_theta": 50000.0, "layer_types": ["sliding_attention"]},
    ),
    (
        "cohere 2, full",
        "cohere2",
        {"rope_theta": 50000.0, "layer_types": ["full_attention"]},
    ),
    ("glm", "glm", {"head_dim": 16, "partial_rotary_factor": 0.5, "pad_token_id": 0}),
    (
        "glm 4",
        "glm4",
        {"head_dim": 16, "partial_rotary_factor": 0.5, "pad_token_id": 0},
    ),
    ("granite", "granite", {"attention_multiplier": 0.0078125}),
    ("smollm 3", "smollm3", {"no_rope_layers": [1], "pad_token_id": 0}),
    ("smollm 3, none", "smollm3", {"no_rope_layers": [0], "pad_token_id": 0}),
    (
        "gpt-oss",
        "gpt_oss",
        {
            "head_dim": 16,
            "rope_theta": 150000,
            "max_position_embeddings": 131072,
            "rope_scaling": {
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "rope_type": "yarn",
                "truncate": False,
            },
            **MOE,
        },
    ),
    (
        "llama 4",
        "llama4_text",
        {
            "head_dim": 16,
            "no_rope_layers": [1],
            "rope_theta": 500000.0,
            "use_qk_norm": False,
            "intermediate_size_mlp": 16,
            "max_position_embeddings": 131072,
            "rope_scaling": LLAMA3,
            **MOE,
        },
    ),
    (
        "llama 4, none",
        "llama4_text",
        {
            "head_dim": 16,
            "no_rope_layers": [0],
            "floor_scale": 2,
            "use_qk_norm": False,
            "intermediate_size_mlp": 16,
            "max_position_embeddings": 131072,
            **MOE,
        },
    ),
    ("deepseek v2", "deepseek_v2", latent(0.707, 0.707)),
    ("deepseek v3", "deepseek_v3", latent(1.0, 1.0)),
    ("deepseek v3, unequal", "deepseek_v3", latent(0.8, 1.0)),
    ("gpt-neox", "gpt_neox", {"rotary_pct": 0.25, "rotary_emb_base": 10000}),
    ("gpt-j", "gptj", GPT),
    ("codegen", "codegen", {**GPT, "n_head": 4, "n_embd": 64}),
    ("falcon", "falcon", {"multi_query": True, "alibi": False}),
    (
        "modernbert, full",
        "modernbert",
        {"layer_types": ["full_attention"], "pad_token_id": 0},
    ),
    (
        "modernbert, local",
        "modernbert",
        {"layer_types": ["sliding_attention"], "pad_token_id": 0},
    ),
    ("nomic", "nomic_bert", {}),
    ("ernie 4.5", "ernie4_5", {"head_dim": 16}),
    ("helium", "helium", {"head_dim": 16}),
    ("starcoder 2", "starcoder2", {"rope_theta": 1e5}),
    ("qwen 2 moe", "qwen2_moe", {"rope_theta": 1e6, **QWEN, **EXPERTS}),
    ("qwen 3 moe", "qwen3_moe", {"rope_theta": 1e6, "head_dim": 16, **EXPERTS}),
    ("olmo 1", "olmo", {}),
    ("olmoe", "olmoe", EXPERTS),
    ("persimmon", "persimmon", {"rope_theta": 25000.0, "partial_rotary_factor": 0.5}),
    ("nemotron", "nemotron", {"partial_rotary_factor": 0.5}),
    ("glm 4.5", "glm4_moe", {"head_dim": 16, "rope_theta": 1e6, **DENSE}),
    (
        "hunyuan, alpha",
        "hunyuan_v1_dense",
        {
            "head_dim": 16,
            "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
        },
    ),
    (
        "minicpm 3, longrope",
        "minicpm3",
        {
            "num_key_value_heads": 2,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 16,
            "kv_lora_rank": 8,
            "q_lora_rank": 8,
            "max_position_embeddings": 32768,
            "rope_scaling": {**LONG, "original_max_position_embeddings": 32768},
        },
    ),
    ("gpt-neox japanese", "gpt_neox_japanese", {"intermediate_multiple_size": 1}),
]
# Models without grouped heads, or with sizes of their own spelling.
OWN_SIZES = {"gptj", "codegen"}
UNGROUPED = {
    "gpt_neox",
    "gpt_neox_japanese",
    "falcon",
    "modernbert",
    "nomic_bert",
    "persimmon",
}

# Vision-language models: their text models, at (time, height, width).
# Layers that count their tokens, whatever the position ids say.
COUNTING = {"llama 4, none"}
MULTIMODAL: list[tuple[str, str, Fields]] = [
    (
        "qwen2-vl",
        "qwen2_vl_text",
        {
            **QWEN,
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        },
    ),
    (
        "qwen2.5-vl",
        "qwen2_5_vl_text",
        {
            **QWEN,
            "rope_theta": 1e6,
            "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
        },
    ),
    (
        "qwen2.5-vl, yarn",
        "qwen2_5_vl_text",
        {
            **QWEN,
            "rope_theta": 1e6,
            "rope_scaling": {**YARN, "mrope_section": [2, 3, 3]},
        },
    ),
    (
        "qwen3-vl",
        "qwen3_vl_text",
        {
            "head_dim": 16,
            "rope_theta": 5e6,
            "rope_scaling": {
                "rope_type": "default",
                "mrope_interleaved": True,
                "mrope_section": [4, 2, 2],
            },
        },
    ),
    (
        "qwen3-vl moe",
        "qwen3_vl_moe_text",
        {
            **EXPERTS,
            "head_dim": 16,
            "rope_theta": 5e6,
            "rope_scaling": {"rope_type": "default", "mrope_section": [4, 2, 2]},
        },
    ),
]
