"""The sweep over transformers: a few architectures of every kind, and the command.

The whole sweep is `python -m locus_attn.torch.conformance`; what it found stands in
docs/conformance.md.
"""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")

import pairs  # noqa: E402

from locus_attn.torch import conformance  # noqa: E402
from locus_attn.torch.conformance import command, judge, page  # noqa: E402
from locus_attn.torch.conformance import inputs as small  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
DOCS = Path(__file__).parents[3] / "docs"

# What each stands for is in the page: grouped heads, windows, chunks, sinks, prefix
# blocks, keys that an indexer selects, cross attention, pictures, sounds, and what
# patch replaces or captures.
EQUAL = {
    "name": [
        *("axk2", "deepseek_v4", "doge", "minimax_m3_vl_text"),
        *("bert", "gemma3", "gemma3_text", "gpt_oss", "llama", "llama4_text"),
        *("modernbert", "paligemma", "umt5", "vit", "whisper"),
    ],
    "patch": [
        *("bloom", "codegen", "deberta", "deberta-v2", "falcon", "gpt_neo", "gptj"),
        *("mpt", "mt5", "t5", "xlnet", "cpmant", "fsmt", "funnel", "layoutlmv3"),
    ],
}
REFUSED = {"big_bird": "BigBird", "longformer": "Longformer", "yoso": "Yoso"}


def test_the_sweep_is_wide():
    assert len(conformance.model_types()) > 600


@pytest.mark.parametrize(
    ("way", "name"), [(way, name) for way in EQUAL for name in EQUAL[way]]
)
def test_equal(way, name):
    row = conformance.examine(conformance.by_type(name))
    assert (row.verdict, row.way) == ("equal", way), row
    # Of XLNet, patch replaces the whole model.
    assert row.reached > 0 or name == "xlnet"
    cases = {finding.case for finding in row.findings}
    assert {"forward", "gradients", "bf16"} <= cases


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_a_sentence(name):
    row = conformance.examine(conformance.by_type(name))
    assert row.verdict == "refused"
    assert REFUSED[name] in row.said and "\n" not in row.said


def attend_twice(attention):
    """A model that Locus cannot be equal to: its scores differ by attention."""
    model = pairs.make("llama", attention)
    if attention == "locus":
        for layer in model.model.layers:
            layer.self_attn.scaling *= 1.5
    return model


def plain_llama(attention):
    return pairs.make("llama", attention)


def test_a_difference_is_found():
    row = conformance.examine(conformance.by_path(f"{__name__}:attend_twice"))
    assert row.verdict == "wrong"
    assert row.said.startswith("forward: off by")
    assert all(f.verdict == "wrong" for f in row.findings if f.case != "bf16")


def test_an_exception_is_wrong_and_a_sentence_is_not():
    """A refusal is a ValueError of one line that Locus itself raised."""
    for reason in (ValueError("of the model"), TypeError("Visibility")):
        try:
            raise reason
        except Exception as caught:
            assert judge.refusal(caught) is None


def test_command(capsys, tmp_path):
    """Models of one's own, a page, and rows that are kept."""
    rows, written = tmp_path / "rows.jsonl", tmp_path / "page.md"
    own = f"{__name__}:plain_llama"
    options = ["--resume", str(rows), "--write", str(written)]
    assert command.main(["--models", own, "resnet", *options]) == 0
    assert "no attention" in capsys.readouterr().out
    assert f"| {own} | LlamaForCausalLM | name | 2 of 2 |" in written.read_text()
    # Nothing is left to do but to tell.
    assert command.main(["--models", own, "resnet", "--json", *options[:2]]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["versions"]["transformers"] == transformers.__version__
    assert [row["verdict"] for row in told["rows"]] == ["no attention", "equal"]


def test_command_names_what_is_unknown(capsys):
    for name in ("no_such_type", "no_such_module:Class", f"{__name__}:nothing"):
        with pytest.raises(SystemExit) as ended:
            command.main(["--models", name])
        assert ended.value.code == 2
        assert name.split(":")[0] in capsys.readouterr().err


def test_the_page_of_docs_holds_what_it_counts():
    """docs/conformance.md is of the installed transformers, and nothing is wrong."""
    text = (DOCS / "conformance.md").read_text()
    assert f"transformers {transformers.__version__}" in text
    counts = re.search(r"^\| all with attention \| (.*) \|$", text, re.MULTILINE)
    numbers = list(map(int, counts[1].split(" | ")))
    for title, number in zip(page.TITLES, numbers, strict=True):
        _, _, section = text.partition(f"\n## {title}\n")
        rows = re.findall(
            r"^\| (?!model type)", section.split("\n## ")[0], re.MULTILINE
        )
        assert len(rows) == number, title
    assert numbers[page.VERDICTS.index("wrong")] == 0


# Their eager attention shows weights before the sink takes its share.
WITHOUT_SINK = {"granite_swa"}


@pytest.mark.parametrize(
    "name",
    ["llama", "bart", "gpt_oss", "granite_swa", "umt5", "codegen", "mpt", "t5", "fsmt"],
)
def test_weights_are_those_of_eager_attention(name):
    """output_attentions=True gives as many weights as the original, and the same."""
    known = name in EQUAL["patch"]
    model = (pairs.by_patch if known else pairs.by_name)(name)
    inputs = {"input_ids": small.tokens(), "output_attentions": True}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = small.tokens()
    with torch.no_grad():
        want = copy.deepcopy(pairs.original(name))(**inputs)
        got = model(**inputs)
    names = [n for n in want if n.endswith("attentions")]
    assert names and names == [n for n in got if n.endswith("attentions")]
    for kind in names:
        assert len(got[kind]) == len(want[kind]) > 0, kind
        for a, b in zip(got[kind], want[kind], strict=True):
            if name in WITHOUT_SINK:
                a = a / a.sum(-1, keepdim=True)
            torch.testing.assert_close(a, b, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    "refused", ["falcon", "deberta", "xlnet", "fsmt", "longformer", "yoso"]
)
def test_refused_when_set(refused):
    """set_attn_implementation refuses what the name does; the model stays."""
    model = pairs.make(refused, "eager")
    with pytest.raises(ValueError, match=type(model).__name__):
        model.set_attn_implementation("locus")
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["GitModel", "BarkSemanticModel", "GPTNeoModel"])
def test_refused_before_a_model_is_built(name):
    """Classes that look their attention up by name would raise a KeyError."""
    cls = getattr(transformers, name)
    config = cls.config_class()
    config._attn_implementation = "locus"
    with pytest.raises(ValueError, match=f"cannot run {name}: "):
        cls(config)


def test_parts_of_a_model_can_be_named():
    """One whose vision has attention of its own, run for its text alone."""
    llama = transformers.LlamaForCausalLM
    text = conformance.architectures.configuration(llama).to_dict()
    ones = [1, 1, 1, 1]
    vision = {"model_type": "hiera", "embed_dim": 8, "depths": ones, "num_heads": ones}
    parts = {"text_config": text, "vision_config": vision}
    config = transformers.LlavaConfig(**parts)
    with pytest.raises(ValueError, match="Hiera"):
        transformers.AutoModel.from_config(config, attn_implementation="locus")
    only = {"text_config": "locus", "vision_config": "eager", "": "eager"}
    config = transformers.LlavaConfig(**parts)
    model = transformers.AutoModel.from_config(config, attn_implementation=only)
    assert model.language_model.config._attn_implementation == "locus"
    assert model.vision_tower.config._attn_implementation == "eager"


def test_alibi_of_falcon_is_that_of_sdpa():
    """Its eager attention adds the biases twice."""
    falcon = transformers.FalconForCausalLM
    config = conformance.architectures.configuration(falcon)
    config.alibi, config.num_attention_heads = True, 4
    torch.manual_seed(1)
    model = falcon._from_config(config, attn_implementation="sdpa").eval()
    model = conformance.architectures.respread(model)
    ids = small.tokens()
    for side in ("left", "right"):
        mask = small.padding(side)
        with torch.no_grad():
            want = model(ids, attention_mask=mask).logits[mask.bool()]
            patched = pairs.lt.patch(copy.deepcopy(model))
            got = patched(ids, attention_mask=mask).logits[mask.bool()]
        torch.testing.assert_close(got, want, rtol=0, atol=2e-5)
