"""convert-layout on models that transformers builds: the logits stay.

usage: convert_test.py LOCUS

A model's q and k at position 0, where nothing turns, are taken from its own
attention, with its weights as they are and as `locus convert-layout` made them.
Turned in the one layout and in the other, they must give the same logits.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from golden import capture
from golden_cases import DENSE, GPT, LATENT, SMALL

LOCUS = str(pathlib.Path(sys.argv[1]).resolve())
POSITIONS = [0, 1, 5, 511, 4096]
UNGROUPED = {key: v for key, v in SMALL.items() if key != "num_key_value_heads"}
WIDE = {**SMALL, "num_attention_heads": 4, "hidden_size": 64}
# (name, model_type, fields)
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("separate", "llama", SMALL),
    ("biases", "qwen2", SMALL),
    ("norms of one head", "qwen3", {**SMALL, "head_dim": 16}),
    ("norms of all heads", "olmo2", SMALL),
    ("norms by head", "cohere", {**SMALL, "use_qk_norm": True}),
    ("norms with biases", "phi", {**SMALL, "qk_layernorm": True}),
    ("a list of norms", "stablelm", {**WIDE, "qk_layernorm": True}),
    ("other names of norms", "hunyuan_v1_dense", {**SMALL, "head_dim": 16}),
    ("norms if wanted", "glm4_moe", {**SMALL, **DENSE, "use_qk_norm": True}),
    ("interleaved, half", "glm4", {**SMALL, "head_dim": 16, "pad_token_id": 0}),
    ("fused by head", "gpt_neox", {**UNGROUPED, "rotary_pct": 0.5}),
    ("fused by head, norms", "persimmon", {**UNGROUPED, "qk_layernorm": True}),
    ("fused, one key head", "falcon", {**UNGROUPED, "multi_query": True}),
    ("fused, three each", "falcon", {**UNGROUPED, "multi_query": False}),
    (
        "fused by group",
        "falcon",
        {
            **UNGROUPED,
            "num_attention_heads": 4,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
        },
    ),
    ("fused side by side", "phi3", {**WIDE, "pad_token_id": 0}),
    ("fused in quarters", "codegen", {**GPT, "n_head": 4, "n_embd": 64}),
    ("gpt-j", "gptj", GPT),
    ("modernbert", "modernbert", {**UNGROUPED, "pad_token_id": 0}),
    ("latent", "deepseek_v2", {**LATENT, **UNGROUPED, "q_lora_rank": 8}),
    ("latent, direct", "deepseek_v2", {**LATENT, **UNGROUPED}),
]


def turned(x: torch.Tensor, rotary: dict[str, Any], layout: str) -> torch.Tensor:
    """x [heads, tokens, channels] with its pairs turned, in float64."""
    count, first = rotary["rotary_dim"] // 2, rotary["first_channel"]
    pair = torch.arange(count)
    if layout == "halves":
        a, b = first + pair, first + pair + count
    else:
        a, b = first + 2 * pair, first + 2 * pair + 1
    theta = torch.tensor(rotary["frequencies"], dtype=torch.float64)
    angle = torch.tensor(POSITIONS, dtype=torch.float64)[:, None] * theta
    y = x.clone()
    y[..., a] = x[..., a] * angle.cos() - x[..., b] * angle.sin()
    y[..., b] = x[..., a] * angle.sin() + x[..., b] * angle.cos()
    return y


def logits(model: Any, rotary: dict[str, Any], layout: str) -> torch.Tensor:
    """Of the first layer, and divided by the largest."""
    seen = capture(model, [0] * len(POSITIONS))
    q, k = (turned(x, rotary, layout) for x in (seen.q, seen.k))
    k = k.repeat_interleave(q.shape[0] // k.shape[0], 0)
    products = (q @ k.transpose(1, 2)).detach()
    return products / products.abs().max()


class Convert(unittest.TestCase):
    def setUp(self) -> None:
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)

    def locus(self, *args: str) -> str:
        done = subprocess.run(
            [LOCUS, *args], capture_output=True, text=True, check=False, timeout=60
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def model(self, model_type: str, fields: dict[str, Any]) -> Any:
        """A model with every weight, bias and norm drawn at random."""
        config = transformers.AutoConfig.for_model(
            model_type, **json.loads(json.dumps(fields))
        )
        torch.manual_seed(7)
        model = transformers.AutoModel.from_config(config).eval().float()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
        save_file(model.state_dict(), self.folder / "model.safetensors")
        text = json.dumps({**fields, "model_type": model_type})
        (self.folder / "config.json").write_text(text, encoding="utf-8")
        return model

    def test_logits_stay(self) -> None:
        for name, model_type, fields in CASES:
            with self.subTest(name, model_type=model_type):
                model = self.model(model_type, fields)
                group = json.loads(self.locus("explain", str(self.folder), "--json"))
                rotary = group["groups"][0]["rotary"]
                layout = rotary["layout"]
                other = "interleaved" if layout == "halves" else "halves"
                before = logits(model, rotary, layout)
                source = str(self.folder / "model.safetensors")
                made = str(self.folder / "made.safetensors")
                self.locus("convert-layout", source, made, "--to", other)
                model.load_state_dict(load_file(made))
                after = logits(model, rotary, other)
                # Norms and sums see their channels in another order, in float32.
                self.assertLess(float((after - before).abs().max()), 64 * 2.0**-24)
                # And not by chance: the one layout is not the other.
                mixed = logits(model, rotary, layout)
                self.assertGreater(float((mixed - before).abs().max()), 1e-3)

    def test_several_files(self) -> None:
        model = self.model("qwen3", {**SMALL, "head_dim": 16, "num_hidden_layers": 2})
        source = str(self.folder / "model.safetensors")
        alone = str(self.folder / "alone.safetensors")
        self.locus("convert-layout", source, alone, "--to", "interleaved")
        names = sorted(model.state_dict())
        files = [f"model-{i}.safetensors" for i in range(3)]
        where = {name: files[i % 3] for i, name in enumerate(names)}
        for file in files:
            part = {n: t for n, t in model.state_dict().items() if where[n] == file}
            save_file(part, self.folder / file)
        index = self.folder / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": where}), encoding="utf-8")
        made = self.folder / "made"
        self.locus("convert-layout", str(index), str(made), "--to", "interleaved")
        self.assertEqual((made / index.name).read_text(), index.read_text())
        one = load_file(alone)
        for file in files:
            for name, tensor in load_file(made / file).items():
                self.assertTrue(torch.equal(tensor, one.pop(name)), name)
        self.assertEqual(one, {})


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    unittest.main(argv=sys.argv[:1])
