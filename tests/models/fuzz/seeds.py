#!/usr/bin/env python3
"""Writes inputs that fuzzing does not find by itself.

usage: seeds.py FOLDER      makes FOLDER/config, FOLDER/safetensors, FOLDER/gguf

A config of every model type that takes values from its class, a GGUF file of every
architecture, and inputs that are slow for a reader that is not linear.
"""

import itertools
import json
import pathlib
import re
import struct
import sys

MOST = 65536  # bytes, as run.sh allows
MODELS = pathlib.Path(__file__).resolve().parents[3] / "src" / "models"


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


def configs() -> dict[str, bytes]:
    """The values of its class for every type in class_defaults.inc."""
    lines = (MODELS / "class_defaults.inc").read_text()
    made = {}
    for name, values in re.findall(r'^\{"([^"]+)", R"\((.*)\)"\},$', lines, re.M):
        fields = {"model_type": name, **json.loads(values)}
        fields.pop("default_theta", None)
        made[name] = b"\0" + json.dumps(fields, separators=(",", ":")).encode()
    return made


def number(key: str, value: int | float) -> bytes:
    """An entry of metadata: uint32 or float32."""
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    return text(key) + struct.pack("<II", 4, value)


def ggufs() -> dict[str, bytes]:
    """The usual metadata for every architecture in gguf_archs.cc."""
    source = (MODELS / "gguf_archs.cc").read_text()
    names = re.findall(r'\b(?:Family|Rotary|Of|Latent|Lfm2)\(\s*"([^"]+)"', source)
    usual = {
        **{"block_count": 4, "context_length": 2048, "embedding_length": 512},
        **{"attention.head_count": 8, "attention.head_count_kv": 2},
        **{"attention.key_length": 64, "attention.value_length": 64},
        **{"attention.sliding_window": 128, "rope.dimension_count": 32},
        **{"rope.freq_base": 5e5, "rope.scaling.factor": 4.0},
    }
    made = {}
    for name in names:
        entries = [number(f"{name}.{key}", value) for key, value in usual.items()]
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1 + len(entries))
        head += text("general.architecture") + struct.pack("<I", 8) + text(name)
        body = b"".join([head, *entries])
        made[name] = body + b"\0" * (-len(body) % 32)
    return made


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
    for reader, made in {"config": configs(), "gguf": ggufs()}.items():
        assert len(made) > 100, f"{len(made)} seeds for {reader}"
        for name, data in made.items():
            (folder / reader / f"of_{name}").write_bytes(data)


if __name__ == "__main__":
    main()
