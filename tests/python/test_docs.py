"""The Python blocks of README.md, docs/python.md and docs/models.md run, in order."""

import pathlib
import re

import numpy as np
import pytest

import locus_attn as locus

ROOT = pathlib.Path(__file__).resolve().parents[2]


def a_layer_and_its_tensors():
    """What docs/models.md takes for granted: layer 3 of a model, and q, k, v."""
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 4,
        "max_position_embeddings": 16384,
    }
    q, k = np.ones((1, 2, 16, 32), np.float32), np.ones((1, 2, 9000, 32), np.float32)
    layer = locus.from_config(config, layer=3)
    return {"locus": locus, "layer": layer, "q": q, "k": k, "v": k}


GIVEN = {"docs/models.md": a_layer_and_its_tensors}


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/models.md"])
def test_blocks_run(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks, f"{page} has no Python"
    names = GIVEN.get(page, dict)()
    for block in blocks:
        exec(compile(block, page, "exec"), names)
