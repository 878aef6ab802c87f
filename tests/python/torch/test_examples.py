"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples" / "python"
EPSILON = np.finfo(np.float32).eps


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_replace_rope():
    pytest.importorskip("transformers")
    length = 24
    result = load("replace_rope")["compare"](length, shift=1_000_000)
    # Two layers of width 256, roundings adding like a random walk.
    limit = 4 * EPSILON * (256 + length) ** 0.5 * result.largest
    assert result.models <= limit
    assert result.fused_shifted <= limit
    assert result.own_shifted > 10 * limit


def test_train_t5_bias():
    losses, model = load("train_t5_bias")["train"](steps=100, row=6)
    guess = np.log(16)
    assert losses[0] > 0.9 * guess
    assert losses[-1] < 0.1 * guess
    table = model.position.relative_attention_bias.weight
    assert int(table.max(dim=1).values.argmax()) == 6 - 1


def test_decode_with_cache():
    example = load("decode_with_cache")
    for encoding in example["encodings"]().values():
        error, _ = example["decode"](encoding, prompt=17, tokens=9)
        # |v| stays below 5 here; a row sums over 64 channels and 26 keys.
        assert error <= EPSILON * (64 + 26) * 5


def test_draw_encoding(tmp_path):
    path = tmp_path / "drawn.png"
    command = [sys.executable, EXAMPLES / "draw_encoding.py", "--out", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ALiBi" in done.stdout
    data = path.read_bytes()
    width, height, depth = struct.unpack(">IIB", data[16:25])
    start = data.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", data[start - 8 : start - 4])
    lines = zlib.decompress(data[start : start + size])
    assert depth == 8 and len(lines) == height * (width + 1)
    pixels = np.frombuffer(lines, np.uint8).reshape(height, width + 1)[:, 1:]
    # The first head of ALiBi falls from white at offset 0 to black at the last.
    assert pixels[0, 0] == 255 and pixels[0, -1] == 0
    assert (np.diff(pixels[0].astype(int)) <= 0).all()
