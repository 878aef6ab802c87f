#!/usr/bin/env python3
"""Writes what config classes say about keys: src/models/*.inc.

usage: model_keys.py write | check

class_defaults.inc has one line per model type whose family asks for the values
of its class: the keys that bear on positions with the class's own values, other
spellings of them, and the base and the share of channels that stand in where a
file spells RoPE in an old way. harmless_keys.inc lists the keys of all classes
that no reader looks at and that are not about positions, masks, heads or scales:
any other key of a config that its reader does not use is an error.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import sys
import warnings

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

MODELS = pathlib.Path(__file__).resolve().parent.parent / "src" / "models"
# Families that take the values of their classes.
FILLED = (
    "family_axial.cc",
    "family_hybrid.cc",
    "family_ruled.cc",
    "family_table.cc",
    "family_lowered.cc",
    "family_speech.cc",
    "family_window.cc",
)


def words(text: str) -> list[str]:
    return text.split()


# Parts of names that bear on positions, masks by position, heads or the scale.
PARTS = words("""
rope rotary rotate position alibi relative bucket sliding window theta yarn ntk
mscale max_distance chunk_size temperature_tuning attn_scale floor_scale
attn_logit qk_nope query_pre local_attn global_attn local_attention local_radius
share_att norm_rel pos_att clamp_len context max_seq model_max_length n_ctx
seq_length xpos freq_base base_freq mem_len same_length head_dim scale_attn logn
partial pos_emb pos_enc attention_multiplier max_trained softmax_scale
llama_4_scaling attn_config attention_type attention_interval causal
bidirectional dual_chunk prefix_lm sequence_id nope sink log_scaling qk_scale
index_topk layer_types layers_block_type attn_layer full_attn rel_pos abs_pos
attention_logit attention_heads num_heads n_heads attention_head_size
attention_chunk attn_idx hybrid_override linear_attn
""")

# Named like the above, or used by some reader, and without a bearing on the
# positions of a model whose reader does not use them.
HARMLESS = words("""
chunk_size_feed_forward problem_type use_rotary_kernel mlp_layer_types
mtp_layer_types mtp_mlp_layer_types hc_sinkhorn_iters sinkhorn_iterations
shared_expert_sink positionwise_conv_kernel_size pad_token_id is_decoder
is_encoder_decoder embedding_size linear_key_head_dim linear_value_head_dim
linear_head_dim linear_num_heads mamba_head_dim mamba_num_heads mamba_n_heads
mamba_chunk_size index_head_dim index_n_heads indexer_head_dim indexer_n_heads
positional_dropout decoder_positional_dropout_rate linear_num_key_heads
linear_num_value_heads encoder_positional_dropout_rate initializer_range
layer_norm_eps norm_eps rms_norm_eps num_labels architectures model_type
num_experts_per_tok num_experts_per_token num_expert_group moe_renormalize
untie_r stage_names pooler_hidden_size num_feat_extract_layers bias depth frame_size
compress is_gated_act scale_decoder_outputs full_attn_alpha_factor
full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor
final_w_init_variance_scale mamba_headdim hybrid_layer_ids vision_config
audio_config text_config attn_impl qk_ln
mamba_d_head num_conv_pos_embeddings num_conv_pos_embedding_groups
projection_dim num_mel_bins logit_scale hidden_dim num_blocks use_cls_token
dropout_positions guided_attention_loss_num_heads
""")

# Of releases before 5, which wrote every value of generation into configs, and
# of tools that add keys of their own.
LEGACY = words("""
_attn_implementation _attn_implementation_autoset _commit_hash add_cross_attention
attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id
conditional_dtype cross_attention_hidden_size decoder_start_token_id
diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
eos_token_id exponential_decay_length_penalty finetuning_task
forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label
label2id length_penalty max_length min_length no_repeat_ngram_size
num_beam_groups num_beams num_return_sequences output_attentions
output_hidden_states output_past output_scores prefix pretraining_tp
pruned_heads quantization_config remove_invalid_values repetition_penalty
return_dict return_dict_in_generate sep_token_id suppress_tokens
task_specific_params temperature tf_legacy_loss tie_encoder_decoder
tie_word_embeddings tokenizer_class top_k top_p torch_dtype torchscript
transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
use_cache xla_device _name_or_path dtype language fp16 bf16 mlp_bias qkv_bias
vocab_size vocab_context
""")


def fields(cls: type) -> dict:
    """The keys of a class with its own values, before it derives any."""
    found = {}
    for field in dataclasses.fields(cls):
        value = None
        if field.default is not dataclasses.MISSING:
            value = field.default
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        found[field.name] = value
    return found


def literals(paths: list[pathlib.Path]) -> set[str]:
    """Every text in these sources that may be a key or a model type."""
    found: set[str] = set()
    for path in paths:
        found |= set(re.findall(r'"([\w-]+)"', path.read_text(encoding="utf-8")))
    return found


def is_harmless(name: str, used: set[str]) -> bool:
    if name in HARMLESS or name in LEGACY:
        return True
    return name not in used and not any(part in name for part in PARTS)


def resolved(cls: type) -> dict:
    """The default config as its class completes it; empty if it does not."""
    try:
        return cls().to_dict()
    except Exception:  # the classes raise whatever their checks do
        return {}


def plain(value: object) -> bool:
    """Whether a value is one of a JSON file."""
    try:
        json.dumps(value)
    except TypeError:
        return False
    return not isinstance(value, dict) or bool(value)


def line(cls: type, used: set[str]) -> dict:
    """What class_defaults.inc says of a model type."""
    own = {
        name: value
        for name, value in fields(cls).items()
        if value is not None and not is_harmless(name, used) and plain(value)
    }
    whole = resolved(cls)
    rope = whole.get("rope_parameters")
    if isinstance(rope, dict) and rope:
        own["rope_parameters"] = rope
        if isinstance(rope.get("partial_rotary_factor"), (int, float)):
            own["default_partial"] = rope["partial_rotary_factor"]
    theta = getattr(cls, "default_theta", None)
    if isinstance(theta, (int, float)) and theta != 10000.0 and rope:
        own["default_theta"] = theta
    for name in ("is_decoder", "pad_token_id"):
        if fields(cls).get(name):
            own[name] = fields(cls)[name]
    aliases = {
        alias: name
        for alias, name in (cls.attribute_map or {}).items()
        if not is_harmless(name, used) or not is_harmless(alias, used)
    }
    if aliases:
        own["aliases"] = aliases
    return own


def texts() -> dict[str, str]:
    """The generated files by name."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    used = literals(sorted(MODELS.glob("*.cc")))
    filled = literals([MODELS / name for name in FILLED])
    release = transformers.__version__
    head = f"// Written by tools/model_keys.py from transformers {release}.\n"
    names: set[str] = set(HARMLESS) | set(LEGACY)
    defaults = []
    for model_type in sorted(CONFIG_MAPPING.keys()):
        cls = CONFIG_MAPPING[model_type]
        names |= set(fields(cls)) | set(cls.attribute_map or {})
        names |= set(resolved(cls))
        if model_type in filled:
            said = json.dumps(line(cls, used), sort_keys=True, separators=(",", ":"))
            defaults.append(f'{{"{model_type}", R"({said})"}},\n')
    harmless = sorted(name for name in names if is_harmless(name, used))
    return {
        "class_defaults.inc": head + "".join(defaults),
        "harmless_keys.inc": head + "".join(f'"{name}",\n' for name in harmless),
    }


def main() -> int:
    if sys.argv[1:] not in (["write"], ["check"]):
        print(__doc__)
        return 2
    for name, text in texts().items():
        path = MODELS / name
        if sys.argv[1] == "write":
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            print(f"{name} differs; run model_keys.py write")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
