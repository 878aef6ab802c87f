"""patch, unpatch and the name "locus": what they change, and what is refused."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

import locus.torch as lt

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
    with pytest.raises(ValueError, match="neither an attention"):
        lt.patch(torch.nn.Linear(2, 2))

    xlnet = lt.patch(models.xlnet())
    ids = models.tokens()
    order = torch.ones(LENGTH, LENGTH).triu().expand(2, -1, -1)
    with pytest.raises(ValueError, match="perm_mask"):
        xlnet(input_ids=ids, perm_mask=order)

    llama = lt.patch(models.llama(attention_dropout=0.1))
    llama.train()
    with pytest.raises(ValueError, match="dropout"):
        llama(input_ids=ids)
    lt.unpatch(llama)
    lt.patch(llama, ignore_attention_dropout=True)(input_ids=ids)

    llama.eval()
    scattered = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
    scattered[0, 0, 3, 2] = scattered[0, 0, 9, 4] = False
    with pytest.raises(ValueError, match="not made of causality"):
        llama(input_ids=ids, attention_mask=scattered)


PROGRAM = """
import sys
import locus.torch
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
