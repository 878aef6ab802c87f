"""Models whose code is in no release of transformers, beside those that are alike.

A case names the class of transformers that does the same arithmetic, the fields of
that class over the small sizes, and the model's own config.
"""

from __future__ import annotations

from golden_cases import Fields

PEERS: list[tuple[str, str, Fields, Fields]] = [
    (
        "palm",
        "llama",
        {"head_dim": 16},
        {"model_type": "palm", "dim": 32, "heads": 2, "dim_head": 16, "depth": 1},
    ),
    (
        "baichuan 7b",
        "llama",
        {"num_key_value_heads": 2},
        {
            "model_type": "baichuan",
            "hidden_size": 32,
            "num_attention_heads": 2,
            "num_hidden_layers": 1,
            "max_position_embeddings": 4096,
            "model_max_length": 4096,
        },
    ),
    (
        "chatglm",
        "glm",
        {"head_dim": 16, "rope_theta": 500000.0, "pad_token_id": 0},
        {
            "model_type": "chatglm",
            "hidden_size": 32,
            "num_attention_heads": 2,
            "kv_channels": 16,
            "multi_query_attention": True,
            "multi_query_group_num": 1,
            "num_layers": 1,
            "seq_length": 131072,
            "rope_ratio": 50,
        },
    ),
]
