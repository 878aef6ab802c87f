#!/usr/bin/env python3
"""How long the readers take, in CPU time of one process.

usage: PYTHONPATH=build/release/python reader_speed.py LOCUS

LOCUS is the command line tool. Reads the default config of every model type of the
installed transformers that is accepted, one layer of each and every layer of a model
of 100; then lets `locus explain` tell of those 100 layers, and of a GGUF file with a
vocabulary of a million tokens.
"""

from __future__ import annotations

import json
import pathlib
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings

import config_sweep

import locus_attn as locus

ROUNDS = 5
LAYERS, TOKENS = 100, 1_000_000


def milliseconds(work) -> float:
    """The least of several rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        found.append(1e3 * (time.process_time() - start))
    return min(found)


def told(program: str, path: pathlib.Path) -> float:
    """CPU milliseconds of `locus explain`, its start included."""

    def used() -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    found = []
    for _ in range(ROUNDS):
        start = used()
        subprocess.run([program, "explain", path], check=True, capture_output=True)
        found.append(1e3 * (used() - start))
    return min(found)


def gguf() -> bytes:
    """A LLaMA of 32 layers and its vocabulary, without tensors."""

    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    def number(name: str, value: int) -> bytes:
        return text(f"llama.{name}") + struct.pack("<II", 4, value)

    fields = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        number("block_count", 32),
        number("context_length", 4096),
        number("embedding_length", 4096),
        number("attention.head_count", 32),
        number("rope.dimension_count", 128),
        text("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, TOKENS)
        + b"".join(text(f"token{i}") for i in range(TOKENS)),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields)


def main() -> int:
    warnings.filterwarnings("ignore")
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    program = sys.argv[1]
    taken = {}
    for model_type in config_sweep.CONFIG_MAPPING:
        config = config_sweep.default_config(model_type)
        try:
            locus.from_config(config)
        except (TypeError, ValueError):
            continue
        taken[model_type] = milliseconds(lambda c=config: locus.from_config(c))
    slowest = max(taken, key=taken.get)
    print(f"{len(taken)} default configs, one layer each, milliseconds of CPU:")
    print(f"  median {statistics.median(taken.values()):.2f}")
    print(f"  slowest {taken[slowest]:.2f} ({slowest})")

    deep = {**config_sweep.default_config("llama"), "num_hidden_layers": LAYERS}
    model = locus.from_config(deep)
    assert model.layers == LAYERS
    every = milliseconds(
        lambda: [locus.from_config(deep, layer=i) for i in range(LAYERS)]
    )
    print(f"every layer of a model of {LAYERS}, {LAYERS} calls: {every:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "config.json"
        config.write_text(json.dumps(deep))
        print(f"locus explain of {LAYERS} layers: {told(program, config):.1f}")
        file = pathlib.Path(folder) / "model.gguf"
        file.write_bytes(gguf())
        size = file.stat().st_size / 2**20
        words = f"locus explain of a GGUF file with {TOKENS} tokens ({size:.0f} MiB)"
        print(f"{words}: {told(program, file):.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
