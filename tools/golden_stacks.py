"""Every layer of small stacks: heads, scale, mask and rotation; see golden.py.

Two kinds of configs: those that leave out all that the model's code has a default
for, and those whose layers differ. What each layer attended with is recorded:

    heads, kv_heads, dim, value_dim, scaling
    visible  for the queries ROWS, the first and the last key that the mask lets by
    still    q of head 0 at the last token, at position 0; and
    turned   the same q at its own position

Attention returns zeros, so that q is the same in both runs but for the rotation.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import transformers
from golden_cases import DENSE, EXPERTS, LLAMA3, MOE, YARN_BY_LAYER, Fields
from golden_tables import Case, numbers
from transformers.masking_utils import eager_mask

TOKENS = 24
ROWS = [0, 11, 23]

BASE: Fields = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
}
LATENT: Fields = {"kv_lora_rank": 8, "q_lora_rank": None, **DENSE}
SLIDES: Fields = {"sliding_window": 5, "num_key_value_heads": 2}
SIX: Fields = {**SLIDES, "num_hidden_layers": 6}
QWEN: Fields = {**SIX, "use_sliding_window": True, "max_window_layers": 3}
NARROW: Fields = {"head_dim": 16}
BOTH_WAYS: Fields = {"is_causal": False}

# (model_type, fields over BASE), with as many heads as the default of key heads
# divides. Nemotron's and HunYuan's code cannot do without what they have here.
SILENT: list[tuple[str, Fields]] = [
    ("llama", {}),
    ("mistral", {"num_attention_heads": 16}),
    ("mixtral", {"num_attention_heads": 16, **MOE}),
    ("starcoder2", {}),
    ("gemma", {"num_attention_heads": 16, "num_hidden_layers": 1}),
    ("gemma2", {"num_attention_heads": 8}),
    ("gemma3_text", {"num_attention_heads": 8}),
    ("phi", {}),
    ("phi3", {}),
    ("stablelm", {"num_attention_heads": 32, "hidden_size": 256}),
    ("olmo", {}),
    ("olmo2", {}),
    ("olmoe", EXPERTS),
    ("olmo3", {"num_hidden_layers": 4}),
    ("persimmon", {}),
    ("nemotron", {"num_key_value_heads": 4}),
    ("cohere", {}),
    ("cohere2", {"num_hidden_layers": 4}),
    ("glm", {}),
    ("glm4", {}),
    ("glm4_moe", {"num_attention_heads": 16, **DENSE}),
    ("ernie4_5", {}),
    ("helium", {"num_attention_heads": 20, "hidden_size": 2560}),
    ("granite", {}),
    ("hunyuan_v1_dense", NARROW),
    ("nomic_bert", {}),
    ("qwen2", {"num_attention_heads": 32}),
    ("qwen2_moe", {"num_attention_heads": 16, **EXPERTS}),
    ("qwen3", {"num_attention_heads": 32}),
    ("qwen3_moe", EXPERTS),
    ("smollm3", {"num_hidden_layers": 4}),
    (
        "llama4_text",
        {
            "num_attention_heads": 8,
            "num_hidden_layers": 4,
            "intermediate_size_mlp": 16,
            **MOE,
        },
    ),
    ("modernbert", {"num_hidden_layers": 4}),
    ("deepseek_v2", LATENT),
    ("deepseek_v3", {"num_attention_heads": 128, "hidden_size": 256, **LATENT}),
    ("minicpm3", {"num_attention_heads": 40, "hidden_size": 80}),
    ("gpt_neox", {}),
]
LAYERED: list[tuple[str, Fields]] = [
    ("mistral", SLIDES),
    ("mistral", {"sliding_window": None, "num_key_value_heads": 2}),
    ("mixtral", {**SLIDES, **MOE}),
    ("starcoder2", SLIDES),
    ("phi3", SLIDES),
    ("qwen2", QWEN),
    ("qwen2_moe", {**QWEN, **EXPERTS}),
    ("qwen3", {**QWEN, **NARROW}),
    ("qwen3_moe", {**QWEN, **NARROW, **EXPERTS}),
    ("gemma2", {**SIX, **NARROW}),
    ("gemma3_text", {**SIX, **NARROW, "sliding_window_pattern": 3}),
    ("gemma3_text", {**SIX, **NARROW, "use_bidirectional_attention": True}),
    (
        "gemma3_text",
        {
            **SIX,
            **NARROW,
            "layer_types": ["full_attention", "sliding_attention"] * 3,
            "rope_parameters": {
                "full_attention": {
                    "rope_type": "linear",
                    "factor": 8.0,
                    "rope_theta": 1e6,
                },
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
        },
    ),
    ("olmo3", {**SIX, "rope_scaling": YARN_BY_LAYER, "rope_theta": 500000.0}),
    ("cohere2", {**SIX, "sliding_window_pattern": 3}),
    (
        "gpt_oss",
        {**SIX, **NARROW, **MOE, "rope_scaling": {**YARN_BY_LAYER, "truncate": False}},
    ),
    ("smollm3", {**SIX, "use_sliding_window": True, "no_rope_layer_interval": 3}),
    (
        "llama4_text",
        {
            **NARROW,
            **MOE,
            "num_key_value_heads": 2,
            "num_hidden_layers": 6,
            "attention_chunk_size": 7,
            "no_rope_layer_interval": 3,
            "intermediate_size_mlp": 16,
            "rope_scaling": LLAMA3,
        },
    ),
    (
        "modernbert",
        {
            "num_hidden_layers": 6,
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 80000.0,
        },
    ),
    ("modernbert", {"num_hidden_layers": 3, "sliding_window": 3}),
    ("qwen2_moe", {"num_key_value_heads": 2, "sliding_window": 0, **EXPERTS}),
    ("llama", {"is_causal": True}),
    ("llama", BOTH_WAYS),
    ("mistral", {**SLIDES, **BOTH_WAYS}),
    ("qwen2", {**QWEN, **BOTH_WAYS}),
    ("gemma", {**NARROW, **BOTH_WAYS, "num_key_value_heads": 2}),
    ("gemma2", {**SIX, **NARROW, **BOTH_WAYS, "use_bidirectional_attention": True}),
    ("gemma3_text", {**SIX, **NARROW, **BOTH_WAYS}),
    (
        "gemma3_text",
        {**SIX, **NARROW, **BOTH_WAYS, "use_bidirectional_attention": True},
    ),
    ("cohere2", {**SIX, **BOTH_WAYS, "sliding_window_pattern": 3}),
    ("smollm3", {**SIX, **BOTH_WAYS, "use_sliding_window": True}),
    ("modernbert", {"num_hidden_layers": 3, **BOTH_WAYS}),
]
# Its attention sees the turning channels sorted into halves, turned or not.
SORTED = {"deepseek_v3"}


def observe(model: torch.nn.Module, positions: torch.Tensor) -> list[Case]:
    """What each layer's attention was called with."""
    calls: list[Case] = []

    def attention(
        module: Any, q: Any, k: Any, v: Any, mask: Any = None, **kw: Any
    ) -> tuple[torch.Tensor, None]:
        scaling = kw.get("scaling")
        causal = kw.get("is_causal")
        if causal is None:
            causal = getattr(module, "is_causal", True)
        calls.append(
            {
                "heads": q.shape[1],
                "kv_heads": k.shape[1],
                "dim": q.shape[-1],
                "value_dim": v.shape[-1],
                "scaling": q.shape[-1] ** -0.5 if scaling is None else float(scaling),
                "visible": [visible(mask, row, causal) for row in ROWS],
                "q": q[0, 0, -1],
            }
        )
        return q.new_zeros(1, q.shape[2], q.shape[1], v.shape[-1]), None

    transformers.AttentionInterface.register("golden_stack", attention)
    transformers.AttentionMaskInterface.register("golden_stack", eager_mask)
    model.set_attn_implementation("golden_stack")
    ids = torch.arange(TOKENS)[None] + 1
    with torch.no_grad():
        model(input_ids=ids, position_ids=positions[None], use_cache=False)
    return calls


def visible(mask: torch.Tensor | None, row: int, causal: bool) -> list[int]:
    """The first and the last key of a row; there are no holes between."""
    if mask is None:
        return [0, row if causal else TOKENS - 1]
    seen = (mask[0, 0, row] == 0).nonzero().flatten().tolist()
    assert seen == list(range(seen[0], seen[-1] + 1))
    return [seen[0], seen[-1]]


def stack_case(name: str, model_type: str, fields: Fields) -> Case:
    """All layers of one model."""
    fields = {**BASE, **fields}
    config = transformers.AutoConfig.for_model(
        model_type, **json.loads(json.dumps(fields))
    )
    torch.manual_seed(5)
    model = transformers.AutoModel.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.4)
    still = observe(model, torch.zeros(TOKENS, dtype=torch.long))
    turned = observe(model, torch.arange(TOKENS))
    assert len(still) == len(turned) == fields["num_hidden_layers"]
    layers = []
    for before, after in zip(still, turned, strict=True):
        q = after.pop("q")
        if model_type not in SORTED:
            after["still"], after["turned"] = numbers(before["q"]), numbers(q)
        layers.append(after)
    return {
        "name": f"{name} {model_type}",
        "config": {**fields, "model_type": model_type},
        "tokens": TOKENS,
        "rows": ROWS,
        "layers": layers,
    }


def stacks_file() -> list[Case]:
    """stacks.json: defaults of the models' own code, and layers that differ."""
    return [stack_case("silent", *case) for case in SILENT] + [
        stack_case("layered", *case) for case in LAYERED
    ]
