"""The Python blocks of the documents that need PyTorch run, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import locus_attn.torch as lt

DOCS = Path(__file__).parents[3] / "docs"


def run_blocks(name, names):
    text = (DOCS / name).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return len(blocks)


@pytest.mark.parametrize("name", ["pytorch.md", "your-own-python.md"])
def test_blocks_run(name):
    pytest.importorskip("transformers")
    assert run_blocks(name, {}) >= 5


def test_start_page(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=100,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    names = {"name": str(tmp_path)}
    assert run_blocks("README.md", names) == 1
    assert names["model"].config._attn_implementation == "locus"


def test_ring_page(tmp_path):
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    q = torch.randn(1, 2, 32, 16)
    names = {"q": q, "k": q, "v": q, "length": 32, "rank": 0, "ranks": 1}
    names["encoding"] = lt.Rope(16, layout="halves")
    try:
        assert run_blocks("scale.md", names) == 1
    finally:
        torch.distributed.destroy_process_group()
    assert names["out"].shape == q.shape
