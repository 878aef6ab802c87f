"""locus explain and locus convert-layout, run as a user runs them.

usage: cli_test.py LOCUS
"""

from __future__ import annotations

import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

LOCUS = str(pathlib.Path(sys.argv[1]).resolve())

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
}
GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 1152,
    "num_hidden_layers": 12,
    "sliding_window": 512,
}


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    done = subprocess.run(
        [LOCUS, *args], capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


class Folder(unittest.TestCase):
    """A folder of its own for each test."""

    def setUp(self) -> None:
        self.kept = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.kept.name)

    def tearDown(self) -> None:
        self.kept.cleanup()

    def write(self, name: str, fields: dict) -> str:
        path = self.folder / name
        path.write_text(json.dumps(fields), encoding="utf-8")
        return str(path)


class Explain(Folder):
    def test_text(self) -> None:
        code, out, err = run("explain", self.write("config.json", LLAMA))
        self.assertEqual((code, err), (0, ""))
        for part in (
            "LLaMA (llama)",
            "decoder layers 0-3",
            "RoPE, halves, all 128 channels, base 500000, llama3 scaling by 8 from",
            "32 query, 8 key, 128 channels",
            "131072 positions, trained",
        ):
            self.assertIn(part, out)
        self.assertLessEqual(max(map(len, out.splitlines())), 140)

    def test_folder_and_layers(self) -> None:
        self.write("config.json", GEMMA3)
        code, out, _ = run("explain", str(self.folder), "--json")
        self.assertEqual(code, 0)
        groups = json.loads(out)["groups"]
        self.assertEqual(
            [g["layers"] for g in groups], [[0, 1, 2, 3, 4, 6, 7, 8, 9, 10], [5, 11]]
        )
        self.assertEqual([g["rotary"]["base"] for g in groups], [1e4, 1e6])
        self.assertEqual(groups[0]["window"], {"left": 511, "right": 0})
        one = json.loads(run("explain", str(self.folder), "--layer", "5", "--json")[1])
        self.assertEqual([g["layers"] for g in one["groups"]], [[5]])

    def test_both_parts(self) -> None:
        t5 = {
            "model_type": "t5",
            "d_model": 8,
            "d_kv": 4,
            "num_heads": 2,
            "num_layers": 2,
        }
        groups = json.loads(run("explain", self.write("c", t5), "--json")[1])["groups"]
        self.assertEqual([g["part"] for g in groups], ["encoder", "decoder"])
        self.assertEqual(
            groups[0]["attention"]["tensors"][0]["name"],
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        )

    def test_a_part_that_is_refused_is_not_left_out(self) -> None:
        t5 = {
            "model_type": "t5",
            "d_model": 64,
            "d_kv": 16,
            "num_heads": 4,
            "num_layers": 1,
            "num_decoder_layers": 2,
        }
        causal = self.write("causal.json", {**t5, "is_causal": True})
        code, _, err = run("explain", causal)
        self.assertEqual(code, 2)
        self.assertIn("is_causal = true, but t5 is an encoder", err)
        self.assertEqual(run("explain", causal, "--part", "decoder")[0], 0)
        # The encoder has no layer 1.
        code, out, _ = run("explain", self.write("t5.json", t5), "--layer", "1")
        self.assertEqual(code, 0)
        self.assertIn("decoder", out)
        self.assertNotIn("encoder", out)

    def test_layers_that_differ_in_names_alone(self) -> None:
        fields = {
            "model_type": "umt5",
            "d_model": 8,
            "d_kv": 4,
            "num_heads": 2,
            "num_layers": 12,
        }
        path = self.write("c", fields)
        code, out, _ = run("explain", path)
        self.assertEqual(code, 0)
        for part in ("encoder", "decoder"):
            self.assertIn(f"{part} layers 0-11\n", out)
            self.assertIn(f"{part}.block.N.layer.0.SelfAttention", out)
        self.assertIn("scale       1, not 1/sqrt(4)", out)
        # A program gets every name.
        groups = json.loads(run("explain", path, "--json")[1])["groups"]
        self.assertEqual(len(groups), 24)
        self.assertEqual(groups[0]["terms"], ["bias"])
        self.assertIn("block.11.", groups[-1]["attention"]["tensors"][0]["name"])

    def test_equal_wavelengths_are_drawn_once(self) -> None:
        fields = {
            "model_type": "gpt_oss",
            "hidden_size": 2880,
            "num_attention_heads": 64,
            "num_hidden_layers": 24,
            "max_position_embeddings": 131072,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 32.0,
                "original_max_position_embeddings": 4096,
                "truncate": False,
            },
        }
        out = run("explain", self.write("c", fields))[1]
        self.assertEqual(out.count("decoder layers"), 2)
        self.assertEqual(out.count("131072 positions, trained"), 1)
        self.assertIn("cos and sin x 1.346574", out)

    def test_differences(self) -> None:
        a = self.write("a.json", LLAMA)
        b = self.write(
            "b.json", {**LLAMA, "rope_theta": 10000.0, "num_hidden_layers": 5}
        )
        self.assertEqual(run("explain", a, a)[:2], (0, "no difference in positions\n"))
        code, out, _ = run("explain", a, b)
        self.assertEqual(code, 1)
        self.assertIn("rotary.base: 500000 -> 10000 (decoder 0-3)", out)
        self.assertIn("rotary.last_wavelength: 20473564.1 -> 435281.145 (", out)
        self.assertIn("b.json has decoder 4", out)
        near = self.write("near.json", {**LLAMA, "rope_theta": 500000.0001})
        out = run("explain", a, near)[1]
        self.assertIn("rotary.base: 500000 -> 500000.0001 (", out)
        self.assertIn("rotary.frequencies: 63 of 64 differ (decoder 0-3)", out)
        code, out, _ = run("explain", a, self.write("g", GEMMA3))
        self.assertEqual(code, 1)
        self.assertIn('window: none -> {"left":511,"right":0} (decoder 0-3)', out)
        self.assertIn("rotary.frequencies: 64 numbers -> 128 (decoder 0-3)", out)

    def test_strictness(self) -> None:
        path = self.write("c", {**LLAMA, "rope_ratio": 2})
        code, out, err = run("explain", path)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(
            err,
            'locus: "rope_ratio" is neither used by LLaMA nor known to be harmless to '
            "positions\n",
        )
        code, out, err = run("explain", path, "--lenient")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("WARNING", out)

    def test_one_line_for_bad_input(self) -> None:
        for args in (
            ["explain"],
            ["explain", str(self.folder / "none.json")],
            ["explain", self.write("c", {"model_type": "unheard-of"})],
            ["explain", self.write("d", LLAMA), "--layer", "9"],
            ["explain", self.write("e", LLAMA), "--layer", "x"],
            ["explain", self.write("f", LLAMA), "--part", "encoder"],
            ["explain", self.write("g", LLAMA), "b", "c"],
            ["explain", self.write("h.gguf", LLAMA)],
            ["explain", self.write("i", {**LLAMA, "hidden_size": "4096"})],
            ["explain", self.write("j", {**LLAMA, "rope_theta": -1})],
        ):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertEqual(err.count("\n"), 1, args)

    def test_families(self) -> None:
        code, out, _ = run("explain", "--families")
        self.assertEqual(code, 0)
        self.assertIn("LLaMA: RoPE", out)


class Convert(Folder):
    def test_there_and_back(self) -> None:
        config = {
            **LLAMA,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
        }
        self.write("config.json", config)
        names = {"q_proj": 16, "k_proj": 8, "v_proj": 8}
        header, data = {}, b""
        for name, rows in names.items():
            values = struct.pack(f"<{rows}f", *range(rows))
            header[f"model.layers.0.self_attn.{name}.weight"] = {
                "dtype": "F32",
                "shape": [rows, 1],
                "data_offsets": [len(data), len(data) + len(values)],
            }
            data += values
        text = json.dumps(header).encode()
        original = struct.pack("<Q", len(text)) + text + data
        source, made, back = (self.folder / n for n in ("in", "made", "back"))
        source.write_bytes(original)
        code, out, err = run(
            "convert-layout", str(source), str(made), "--to", "interleaved"
        )
        self.assertEqual((code, err), (0, ""))
        self.assertIn("2 tensors of 1 layer in 1 file are now interleaved", out)
        q = struct.unpack("<16f", made.read_bytes()[-128:-64])
        self.assertEqual(q[:8], (0, 4, 1, 5, 2, 6, 3, 7))
        self.assertEqual(made.read_bytes()[-32:], original[-32:])
        self.assertEqual(
            run(
                "convert-layout",
                str(made),
                str(back),
                "--to",
                "halves",
                "--from",
                "interleaved",
            )[0],
            0,
        )
        self.assertEqual(back.read_bytes(), original)

    def test_refusals(self) -> None:
        source = self.folder / "in"
        source.write_bytes(b"not safetensors")
        self.write("config.json", LLAMA)
        for args in (
            ["convert-layout", str(source), str(self.folder / "out"), "--to", "halves"],
            ["convert-layout", str(source), str(self.folder / "out")],
            ["convert-layout", str(source), str(self.folder / "out"), "--to", "x"],
        ):
            code, out, err = run(*args)
            self.assertEqual((code, out), (2, ""), args)
            self.assertEqual(err.count("\n"), 1, args)
        self.assertFalse((self.folder / "out").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
