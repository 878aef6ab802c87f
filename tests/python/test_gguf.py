"""GGUF files written by the format's own package, read by Locus."""

import pathlib
import re

import gguf
import numpy as np
import pytest

import locus_attn as locus


def write(path, arch, fill, tensors=()):
    """A GGUF file of an architecture; `fill` adds its metadata."""
    writer = gguf.GGUFWriter(path, arch)
    fill(writer)
    for name, values in tensors:
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def sizes(writer, *, layers=4, width=256, heads=8, kv_heads=2, length=8192):
    writer.add_block_count(layers)
    writer.add_embedding_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_context_length(length)


def same(from_gguf, from_json):
    """Both describe the same layer, but for the layout and float32 numbers."""
    for name in ("q_heads", "kv_heads", "head_dim"):
        assert getattr(from_gguf, name) == getattr(from_json, name), name
    # GGUF keeps numbers in float32.
    assert from_gguf.options() == pytest.approx(from_json.options(), rel=2.0**-23)
    ours, theirs = from_gguf.rotary, from_json.rotary
    np.testing.assert_allclose(
        ours["frequencies"], theirs["frequencies"], rtol=2.0**-23
    )


def test_llama_with_yarn(tmp_path):
    def fill(writer):
        sizes(writer)
        writer.add_rope_dimension_count(32)
        writer.add_rope_freq_base(500000.0)
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(2048)

    path = write(
        tmp_path / "llama.gguf",
        "llama",
        fill,
        [("blk.0.attn_q.weight", np.zeros((256, 256), np.float16))],
    )
    layer = locus.from_config(path, layer=1)
    assert layer.rotary["layout"] == "interleaved"
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "max_position_embeddings": 8192,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 2048,
        },
    }
    same(layer, locus.from_config(config, layer=1))


@pytest.mark.parametrize("pattern", [3, [True, True, False, True, True, False]])
def test_sliding_layers(tmp_path, pattern):
    """Gemma 3: a number, or a flag for each layer, says which layers slide."""

    def fill(writer):
        sizes(writer, layers=6, heads=4, kv_heads=2)
        writer.add_key_length(64)
        writer.add_value_length(64)
        writer.add_sliding_window(512)
        writer.add_sliding_window_pattern(pattern)
        writer.add_rope_freq_base(1e6)

    path = write(tmp_path / "gemma3.gguf", "gemma3", fill)
    windows = [
        locus.from_config(path, layer=layer).options().get("window")
        for layer in range(6)
    ]
    slides = (511, 0)
    assert windows == [slides, slides, None, slides, slides, None]


def test_a_window_that_nothing_reads_is_refused(tmp_path):
    """The layers of llama do not slide, so a window must not pass in silence."""

    def fill(writer):
        sizes(writer)
        writer.add_sliding_window(4096)

    path = write(tmp_path / "llama.gguf", "llama", fill)
    with pytest.raises(ValueError, match="sliding_window bears on positions"):
        locus.from_config(path)


def test_architectures_are_those_of_the_docs(tmp_path):
    """Every name that the format or docs/models.md has is known, if it is listed."""
    docs = pathlib.Path(__file__).parents[2] / "docs" / "models.md"
    count, *said = re.search(
        r"GGUF architectures, (\d+) that are read: ([^.]*)\. "
        r"Known and refused, with the reason: ([^.]*)\.",
        docs.read_text("utf-8"),
    ).groups()
    listed, refused = (set(re.findall(r"`([^`]+)`", names)) for names in said)
    assert len(listed) == int(count) and not listed & refused
    known = set()
    for arch in {*gguf.MODEL_ARCH_NAMES.values(), *listed, *refused}:
        path = write(tmp_path / f"{arch}.gguf", arch, lambda writer: None)
        with pytest.raises(ValueError) as caught:  # no sizes
            locus.from_config(path)
        if "is not known" not in str(caught.value):
            known.add(arch)
    assert known == listed | refused
