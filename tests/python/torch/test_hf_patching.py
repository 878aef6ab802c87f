"""patch, unpatch and the name "locus": what they change, and what is refused."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import locus_attn.torch as lt
from locus_attn.torch.hf import interface, support
from locus_attn.torch.hf.masks import Visibility

transformers = pytest.importorskip("transformers")

import models  # noqa: E402
from models import LENGTH, PATCHED  # noqa: E402

pytestmark = pytest.mark.usefixtures("softmax_in_the_type_of_the_model")


def test_interface_by_name():
    """attn_implementation="locus" without a call to patch."""
    model = models.llama()
    reference = models.double(model)
    model.set_attn_implementation("locus")
    inputs = {"input_ids": models.tokens()}
    models.assert_same(model, reference, inputs)


def test_copies_of_a_patched_model():
    """A copy is a model of its own, patched too."""
    for make in (models.t5, models.xlnet):
        model = lt.patch(make())
        inputs = {"input_ids": models.tokens()}
        if make is models.t5:
            inputs["decoder_input_ids"] = models.tokens(length=5)
        before = model(**inputs).logits
        clone = copy.deepcopy(model)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        assert torch.equal(clone(**inputs).logits, before)
        lt.unpatch(clone)
        with pytest.raises(ValueError, match="patched already"):
            lt.patch(model)


def test_unpatch_restores_the_model():
    for make in (models.t5, models.bloom, models.deberta, models.xlnet, models.llama):
        model = make()
        inputs = {"input_ids": models.tokens()}
        if make is models.t5:
            inputs["decoder_input_ids"] = models.tokens(length=5)
        before, names = model(**inputs).logits, list(model.state_dict())
        lt.patch(model)
        assert list(model.state_dict()) == names
        lt.unpatch(model)
        assert torch.equal(model(**inputs).logits, before)
        assert not any("forward" in vars(m) for m in model.modules())


def test_refusals():
    model = models.t5()
    with pytest.raises(ValueError, match="not patched"):
        lt.unpatch(model)
    lt.patch(model)
    with pytest.raises(ValueError, match="patched already"):
        lt.patch(model)
    with pytest.raises(ValueError, match="Linear: it is not a model of transformers"):
        lt.patch(torch.nn.Linear(2, 2))

    xlnet = lt.patch(models.xlnet())
    ids = models.tokens()
    order = torch.ones(LENGTH, LENGTH).triu().expand(2, -1, -1)
    with pytest.raises(ValueError, match="perm_mask"):
        xlnet(input_ids=ids, perm_mask=order)


def by_interface(mask, **more):
    """The attention function as a layer calls it."""
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    return interface.attention_forward(torch.nn.Identity(), q, k, v, mask, **more)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "block_indices",
        "head_mask",
        "cache",
        "seq_idx",
        "something_new",
    ],
)
def test_what_is_not_understood_is_refused(name, dense):
    """What is dropped silently gives other numbers."""
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril() if dense else None
    by_interface(mask, **{name: None})
    with pytest.raises(ValueError, match=f"cannot honour {name} of Identity"):
        by_interface(mask, **{name: torch.zeros(1, 6, dtype=torch.int64)})


@pytest.mark.parametrize("dense", [False, True])
def test_queries_see_the_keys_that_are_selected(dense):
    """indices of sparse attention, within the mask."""
    causal = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    chosen = torch.tensor([[[i, i // 2] for i in range(6)]], dtype=torch.int32)
    pairs = torch.zeros(1, 6, 6, dtype=torch.bool).scatter(-1, chosen.long(), True)
    layer = torch.nn.Identity()
    mask = causal if dense else None
    got, _ = interface.attention_forward(layer, q, k, v, mask, indices=chosen)
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, causal & pairs[:, None]
    )
    torch.testing.assert_close(got.transpose(1, 2), want)
    for wrong in (chosen[:, :5], chosen + 1, chosen[0]):
        with pytest.raises(ValueError, match="indices of Identity must be"):
            interface.attention_forward(layer, q, k, v, mask, indices=wrong)


def test_packed_sequences_see_only_themselves():
    """cu_seq_lens, as vision towers pass them for several images."""
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    starts = torch.tensor([0, 2, 6], dtype=torch.int32)
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}
    layer = torch.nn.Identity()
    for causal in (False, True):
        given = {**lengths, "is_causal": causal}
        got, _ = interface.attention_forward(layer, q, k, v, None, **given)
        parts = [
            interface.attention_forward(
                layer, *(x[:, :, a:b] for x in (q, k, v)), None, is_causal=causal
            )[0]
            for a, b in ((0, 2), (2, 6))
        ]
        torch.testing.assert_close(got, torch.cat(parts, dim=1))
    lengths["cu_seq_lens_k"] = torch.tensor([0, 2, 5])
    with pytest.raises(ValueError, match="cu_seq_lens_k of Identity must go from 0 to"):
        interface.attention_forward(layer, q, k, v, None, **lengths)


def test_what_has_no_part_in_attention_is_passed_over():
    for name in interface.UNRELATED:
        by_interface(None, **{name: torch.ones(2)})


def test_every_operand_in_transformers_is_known():
    """Of all models that transformers has: what their attention is called with.

    A new name here is a new operand: to be understood, or found unrelated, or
    refused when such a model is built.
    """
    folder = Path(transformers.__file__).parent / "models"
    names = set()
    for file in folder.glob("*/modeling_*.py"):
        names |= support.operands(file.read_text())
    assert {"scaling", "dropout", "is_causal"} <= names
    assert {"indices", "block_indices", "s_aux"} <= names
    assert not names - interface.UNDERSTOOD - interface.UNRELATED


def test_a_mask_read_as_a_tensor_is_one():
    """True and false as sdpa takes them; numbers are refused in a sentence."""
    keep = torch.tensor([[True, True, False]])
    mask = Visibility(3, 3, causal=True, keep=keep, owner="some-model")
    want = (torch.ones(3, 3).tril().bool() & keep)[None, None]
    for read in (
        lambda m: m[:, :, :2],
        lambda m: ~m,
        lambda m: m & torch.ones(3, 3, dtype=torch.bool),
        lambda m: m.dtype,
        lambda m: m.expand(2, -1, -1, -1),
        lambda m: torch.where(m, 0.0, 1.0),
        lambda m: torch.zeros(3, 3).masked_fill(m, 1.0),
        lambda m: torch.all(m, dim=2),
        lambda m: torch.cat([m, want], dim=-1),
    ):
        got, expected = read(mask), read(want)
        assert got == expected if expected is torch.bool else torch.equal(got, expected)
    for read in (
        lambda m: torch.zeros(3, 3) + m,
        lambda m: m * 1.0,
        lambda m: 1 - m,
        lambda m: m == 0,
        lambda m: m.float(),
        lambda m: bool(m),
        lambda m: len(m),
        lambda m: torch.stack([want, m]),
    ):
        with pytest.raises(ValueError, match="some-model computes with the numbers"):
            read(mask)
    assert mask.shape == (1, 1, 3, 3) and mask.to("cpu") is mask
    assert not hasattr(mask, "no_such_name")
    copy.deepcopy(mask)


@pytest.mark.parametrize("side", ["left", "right"])
def test_one_row_of_a_dense_mask_counts_for_all_queries(side):
    """[B, 1, 1, L], as several encoders make it."""
    q, k, v = (torch.randn(2, 2, 6, 8) for _ in range(3))
    row = models.padding([6, 4], 6, side).bool()[:, None, None]
    got, _ = interface.attention_forward(torch.nn.Identity(), q, k, v, row)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, row)
    torch.testing.assert_close(got.transpose(1, 2), want)
    with pytest.raises(ValueError, match="mask of Identity must be"):
        interface.attention_forward(torch.nn.Identity(), q, k, v, row[..., :5])


PROGRAM = """
import sys
import locus_attn.torch
assert "transformers" not in sys.modules
import transformers
config = transformers.LlamaConfig(vocab_size=9, hidden_size=8, intermediate_size=8,
                                  num_hidden_layers=1, num_attention_heads=2)
model = transformers.AutoModelForCausalLM.from_config(
    config, attn_implementation="locus")
import torch
print(model(torch.arange(5)[None]).logits.shape)
"""


def test_name_is_known_whichever_is_imported_first():
    """locus.torch leaves transformers alone, and registers when it arrives."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1, 5, 9])" in done.stdout


@pytest.mark.parametrize("name", ["llama", "deberta"])
def test_compiled_model(name):
    """Masks are read outside of the graph, attention is inside."""
    model = lt.patch(PATCHED[name][0]())
    mask = models.padding([LENGTH, 14], LENGTH, "left")
    inputs = {"input_ids": models.tokens(), "attention_mask": mask}
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(**inputs).logits, model(**inputs).logits)
