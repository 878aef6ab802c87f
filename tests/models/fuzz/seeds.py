#!/usr/bin/env python3
"""Writes inputs that are slow to read for a reader that is not linear.

usage: seeds.py FOLDER      makes FOLDER/config, FOLDER/safetensors, FOLDER/gguf

Fuzzing finds crashes by itself, but not tens of thousands of keys.
"""

import itertools
import json
import pathlib
import struct
import sys

MOST = 65536  # bytes, as run.sh allows


def fill(make) -> bytes:
    """The longest of make(1), make(2), ... that is no longer than MOST."""
    low, high = 1, MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(make(middle)) <= MOST else (low, middle - 1)
    return make(low)


def config(keys: int) -> bytes:
    """The first byte chooses layer, part and strictness."""
    fields = {
        **{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4},
        **{"num_hidden_layers": 2, "max_position_embeddings": 128},
        "id2label": dict.fromkeys(map(str, range(keys)), 0),
    }
    return b"\0" + json.dumps(fields, separators=(",", ":")).encode()


def config_root(keys: int) -> bytes:
    fields = {"model_type": "llama"} | {f"rope{n}": 1 for n in range(keys)}
    return b"\x10" + json.dumps(fields, separators=(",", ":")).encode()


def safetensors(tensors: int) -> bytes:
    entry = {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}
    header = dict.fromkeys(map(str, range(tensors)), entry)
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors: int) -> bytes:
    """A vocabulary of empty words, and as many tensors without data."""
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    words = struct.pack("<IIQ", 9, 8, tensors) + text("") * tensors
    infos = (text(str(n)) + struct.pack("<IQIQ", 1, 0, 0, 0) for n in range(tensors))
    body = b"".join(itertools.chain([head, text("tokens"), words], infos))
    return body + b"\0" * (-len(body) % 32)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    for reader, makers in {
        "config": (config, config_root),
        "safetensors": (safetensors,),
        "gguf": (gguf,),
    }.items():
        (folder / reader).mkdir(parents=True, exist_ok=True)
        for make in makers:
            (folder / reader / make.__name__).write_bytes(fill(make))


if __name__ == "__main__":
    main()
