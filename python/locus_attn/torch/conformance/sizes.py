"""How a configuration of transformers becomes a small one.

SIZES says what a field becomes wherever it occurs, PARTICULAR what single model
types need besides. So a new architecture is covered from the day that transformers
has it.
"""

from __future__ import annotations

from typing import Any

VOCABULARY = 101

WIDTH, _INNER, HEADS, _GROUPS, HEAD_DIM, _EXPERTS = 32, 48, 4, 2, 8, 4


def _each(value: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


# What a field becomes if a configuration has it and its default is not None.
SIZES = {
    **_each(
        VOCABULARY,
        "vocab_size src_vocab_size tgt_vocab_size entity_vocab_size "
        "pronunciation_vocab_size shape_vocab_size vocab_size_per_layer_input "
        "num_hash_buckets ngram_vocab_size_base encoder_hash_byte_group_vocab",
    ),
    **_each(
        WIDTH,
        "hidden_size d_model dim n_embd emb_dim embedding_size entity_emb_size "
        "input_embedding_size output_embedding_size pronunciation_embed_dim "
        "shape_embed_dim word_embed_proj_dim projection_dim intra_bottleneck_size "
        "prediction_head_size d_latents lru_width attention_hidden_size "
        "true_hidden_size rnn_hidden_size backbone_hidden_size "
        "hidden_size_per_layer_input attn_hidden_size embed_dim n_embed "
        "mamba_d_ssm out_hidden_size",
    ),
    **_each(
        _INNER,
        "intermediate_size encoder_ffn_dim decoder_ffn_dim ffn_dim d_ff dff dim_ff "
        "hidden_dim d_inner feed_forward_size moe_intermediate_size ffn_hidden_size "
        "shared_expert_intermediate_size expert_ffn_hidden_size n_inner "
        "shared_intermediate_size intermediate_size_mlp prompt_mid_dim "
        "moe_shared_expert_intermediate_size dense_intermediate_size "
        "ffn_intermediate_size intermediate_dim",
    ),
    **_each(
        HEADS,
        "num_attention_heads n_head n_heads num_heads attention_heads "
        "encoder_attention_heads decoder_attention_heads num_encoder_attention_heads "
        "num_decoder_attention_heads swa_num_attention_heads index_n_heads "
        "linear_num_heads mamba_n_heads mamba_num_heads linear_num_value_heads "
        "num_cross_attention_heads num_self_attention_heads linear_num_key_heads",
    ),
    **_each(
        _GROUPS,
        "num_key_value_heads swa_num_key_value_heads num_kv_heads "
        "num_global_key_value_heads mamba_n_groups n_groups",
    ),
    **_each(
        HEAD_DIM,
        "head_dim d_kv kv_channels dim_head d_head qk_nope_head_dim qk_rope_head_dim "
        "v_head_dim index_head_dim linear_head_dim swa_head_dim attention_head_size "
        "rotary_dim linear_key_head_dim linear_value_head_dim kv_lora_rank "
        "global_head_dim mamba_head_dim xpath_unit_hidden_size mamba_d_head "
        "query_pre_attn_scalar swa_v_head_dim laurel_rank qk_head_dim",
    ),
    **_each(2 * HEAD_DIM, "q_lora_rank o_lora_rank"),
    **_each(
        2,
        "num_hidden_layers encoder_layers decoder_layers n_layer n_layers num_layers "
        "num_encoder_layers num_decoder_layers num_experts_per_tok moe_topk "
        "num_self_attends_per_block num_attention_heads_per_group n_group "
        "num_experts_per_token topk_group first_k_dense_replace top_k_experts "
        "depth",
    ),
    **_each(
        _EXPERTS,
        "num_experts n_routed_experts num_local_experts moe_num_experts "
        "zero_expert_num expert_capacity",
    ),
    **_each(
        128,
        "max_position_embeddings n_positions n_ctx max_seq_len max_source_positions "
        "max_target_positions max_encoder_position_embeddings context_length "
        "max_decoder_position_embeddings max_2d_position_embeddings",
    ),
    **_each(
        6,
        "sliding_window local_attention attention_chunk_size window_size "
        "sliding_window_size attention_window_size",
    ),
    **_each(
        8,
        "relative_attention_num_buckets num_buckets position_bias_num_buckets "
        "mamba_d_state state_size ssm_state_size num_latents index_topk "
        "mamba_chunk_size chunk_size",
    ),
    **_each(20, "relative_attention_max_distance position_bias_max_distance"),
    # Pictures of 4 x 4 patches.
    **_each(32, "image_size img_size input_size"),
    **_each(8, "patch_size"),
    # Sounds.
    **_each(16, "num_mel_bins feature_size n_mels mel_bins num_mel_channels"),
    # One layer per stage.
    **_each(1, "depths"),
    **_each(0, "pad_token_id num_kv_shared_layers"),
    **_each(1, "bos_token_id decoder_start_token_id cls_token_id mask_token_id"),
    **_each(2, "eos_token_id sep_token_id"),
    **_each(
        None,
        "begin_suppress_tokens suppress_tokens",
    ),
    **_each(
        0.0,
        "dropout attention_dropout hidden_dropout_prob attention_probs_dropout_prob "
        "attn_pdrop resid_pdrop embd_pdrop activation_dropout dropout_rate "
        "hidden_dropout layerdrop drop_path_rate final_dropout feat_proj_dropout "
        "encoder_layerdrop decoder_layerdrop mask_time_prob",
    ),
}

# Those of them that stay when only the depth of a model shrinks.
DEPTHS = {
    name
    for name, value in SIZES.items()
    if value in (0.0, 1, 2, VOCABULARY) and "head" not in name and "expert" not in name
}

# What single types need besides.
_BERT = {
    "model_type": "bert",
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": _INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
}
_PART = {k: v for k, v in _BERT.items() if k not in ("model_type", "vocab_size")}

# A small picture has few places to look for objects in.
_QUERIES = {"num_queries": 8}
_FLAT_MAPS = {"backbone_config": {"reshape_hidden_states": False}}

PARTICULAR: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {"max_length": 64},
    "mimi": {"upsample_groups": 32, "num_filters": 8, "codebook_dim": 16},
    "bamba": {"mamba_n_heads": 8, "attn_layer_indices": [1]},
    "align": {"vision_config": {"hidden_dim": 640}},
    "autoformer": {"prediction_length": 6, "context_length": 12},
    "blip-2": {"image_token_index": VOCABULARY - 2, "num_query_tokens": 4},
    "blt": {
        "vocab_size": 260,
        "patcher_config": _PART,
        "encoder_config": {**_PART, "hidden_size_global": WIDTH},
        "decoder_config": {**_PART, "hidden_size_global": WIDTH},
        "global_config": _PART,
    },
    "chameleon": {"vocabulary_map": {"<image>": VOCABULARY - 2}},
    "cohere_compass_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 10000.0}
        }
    },
    "cpmant": {"prompt_length": 4},
    "d_fine": _QUERIES,
    "deimv2": _QUERIES,
    "depth_anything": _FLAT_MAPS,
    "dbrx": {
        "attn_config": {"kv_n_heads": _GROUPS, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": _INNER, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "emu3": {
        "vocabulary_map": {
            "<image>": VOCABULARY - 2,
            "<|extra_200|>": VOCABULARY - 3,
            "<|visual token 000000|>": VOCABULARY - 4,
        }
    },
    "encoder-decoder": {
        "encoder": _BERT,
        "decoder": {**_BERT, "is_decoder": True, "add_cross_attention": True},
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
    "deepseek_v4": {"head_dim": 2 * HEAD_DIM},  # A pair of it rotates.
    "ernie4_5_moe": {"moe_k": 2},
    "ernie4_5_vl_moe": {
        "text_config": {
            "head_dim": 16,
            "rope_parameters": {"rope_type": "default", "mrope_section": [3, 3, 2]},
        }
    },
    "esm": {"vocab_size": VOCABULARY, "pad_token_id": 0, "mask_token_id": 1},
    "fun_asr_nano": {
        "adaptor_config": {"intermediate_size": WIDTH // 4, "hidden_size": WIDTH}
    },
    "gemma4_assistant": {"text_config": {"hidden_size_per_layer_input": 0}},
    "glm5_next_text": {"index_kpool": 4, "qk_rope_head_dim": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {
        "mamba_n_heads": 8,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "hunyuan_v1_dense": {"head_dim": HEAD_DIM},
    "grounding-dino": _QUERIES,
    "hunyuan_v1_moe": {"head_dim": HEAD_DIM},
    "informer": {"prediction_length": 6, "context_length": 12},
    "instructblip": {"image_token_index": VOCABULARY - 2, "num_query_tokens": 4},
    "instructblipvideo": {
        "video_token_index": VOCABULARY - 2,
        "image_token_index": VOCABULARY - 2,
        "num_query_tokens": 4,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kosmos-2": {"latent_query_num": 4},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4},
    "led": {"attention_window": [4, 4]},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"]},
    "lilt": {"hidden_size": 48},
    "longformer": {"attention_window": [4, 4]},
    "mamba2": {"num_heads": 8},
    "ministral": {"head_dim": HEAD_DIM},
    "mm-grounding-dino": _QUERIES,
    "molmo2": {"adapter_config": {"vision_feature_layer": [-1, -2]}},
    "mpnet": {"relative_attention_num_buckets": 32},
    "nemotron": {"num_key_value_heads": _GROUPS},
    "neomme": {"head_dim": 2 * HEAD_DIM},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 2 * HEAD_DIM,
        "indexer_budget": 8,
        "indexer_compress_ratio": 4,
    },
    "pp_doclayout_v2": _QUERIES,
    "pp_doclayout_v3": _QUERIES,
    "pp_doclayout_v4": _QUERIES,
    "prompt_depth_anything": _FLAT_MAPS,
    "qwen3_omni_moe": {
        "talker_config": {"text_config": {"shared_expert_intermediate_size": _INNER}}
    },
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "rf_detr": {"num_queries": 8, "group_detr": 1},
    "rt_detr": _QUERIES,
    "rt_detr_v2": _QUERIES,
    "seggpt": {"image_size": [64, 32]},
    "step3p5": {"sliding_window": 6},
    "step3p7": {"text_config": {"sliding_window": 6}},
    "time_series_transformer": {"prediction_length": 6, "context_length": 12},
    "tipsv2_dpt": _FLAT_MAPS,
    "unlimited_ocr": {"text_config": {"num_key_value_heads": HEADS}},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
    },
    "zamba2": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "num_hidden_layers": 4,
    },
    "zoedepth": _FLAT_MAPS,
    "zaya": {"num_experts_per_tok": 1},
}
