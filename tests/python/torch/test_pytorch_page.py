"""The Python blocks of docs/pytorch.md and docs/your-own-python.md run, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["pytorch.md", "your-own-python.md"])
def test_blocks_run(name):
    pytest.importorskip("transformers")
    page = Path(__file__).parents[3] / "docs" / name
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    names = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)
