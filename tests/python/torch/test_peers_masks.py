"""The options of a layer against the masks of transformers."""

import numpy as np
import pytest
import torch
import transformers
from transformers.masking_utils import (
    create_causal_mask,
    create_chunked_causal_mask,
    create_sliding_window_causal_mask,
)

import locus_attn as locus

TOKENS, PADDING = 23, [0, 4]
SIZES = {
    "hidden_size": 64,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
}
CASES = {
    "chunks": (
        {"model_type": "llama4_text", "attention_chunk_size": 5, **SIZES},
        create_chunked_causal_mask,
    ),
    "causal": ({"model_type": "llama", **SIZES}, create_causal_mask),
    "both ways": (
        {"model_type": "llama", "is_causal": False, **SIZES},
        create_causal_mask,
    ),
    "window": (
        {"model_type": "mistral", "sliding_window": 6, **SIZES},
        create_sliding_window_causal_mask,
    ),
    "window both ways": (
        {"model_type": "mistral", "sliding_window": 6, "is_causal": False, **SIZES},
        create_sliding_window_causal_mask,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_attention_sees_what_the_mask_of_transformers_shows(case):
    fields, make = CASES[case]
    config = transformers.AutoConfig.for_model(**fields)
    config._attn_implementation = "eager"
    there = torch.arange(TOKENS) >= torch.tensor(PADDING)[:, None]
    mask = make(
        config,
        torch.zeros(2, TOKENS, 64),
        there,
        past_key_values=None,
        position_ids=None,
    )
    assert mask.shape == (2, 1, TOKENS, TOKENS)
    # Sequences begin after their padding, which is a segment of its own.
    positions = np.arange(TOKENS) - np.array(PADDING)[:, None]
    layer = locus.from_config(fields)
    options = layer.options(q_positions=positions, k_positions=positions)
    segments = options.pop("q_segments", np.zeros_like(positions))
    segments = np.where(there.numpy(), segments, -1000)
    torch.manual_seed(1)
    q, k, v = torch.randn(3, 2, 4, TOKENS, 16)
    got = locus.attention(
        q.numpy(),
        k.numpy(),
        v.numpy(),
        layer.encoding,
        **{**options, "q_segments": segments, "k_segments": segments},
    )
    turned = [
        torch.from_numpy(locus.rotate(x.numpy(), layer.encoding, positions)).double()
        for x in (q, k)
    ]
    scores = turned[0] @ turned[1].transpose(-1, -2) * layer.scale
    want = torch.softmax(scores + mask.double(), -1) @ v.double()
    for row, padding in enumerate(PADDING):
        np.testing.assert_allclose(
            got[row, :, padding:], want[row, :, padding:], rtol=0, atol=2e-5
        )
