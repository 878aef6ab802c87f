"""Hugging Face models on Locus: logits and gradients of every parameter.

Every comparison is against the same model in float64 on its own attention.
"""

from __future__ import annotations

import copy

import pytest
import torch

import locus_attn.torch as lt

transformers = pytest.importorskip("transformers")

import models  # noqa: E402
from models import LENGTH, PATCHED  # noqa: E402

pytestmark = pytest.mark.usefixtures("softmax_in_the_type_of_the_model")


@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("name", PATCHED)
def test_logits_and_gradients(name, side):
    make, extra = PATCHED[name]
    model = make()
    reference = models.double(model)
    # The original xlnet-uni takes a padding mask for one sequence only.
    lengths = [14] if name == "xlnet-uni" else [LENGTH, 14]
    inputs = {"input_ids": models.tokens(len(lengths), LENGTH), **extra}
    keep = None
    if side is not None:
        keep = models.padding(lengths, LENGTH, side)
        inputs["attention_mask"] = keep
    models.assert_same(lt.patch(model), reference, inputs, keep)


def test_bloom_with_padding_inside():
    """Positions of ALiBi count the tokens that are not padding."""
    model = models.bloom()
    reference = models.double(model)
    keep = models.padding([LENGTH, 20], LENGTH, "left")
    keep[:, 9:12] = 0
    inputs = {"input_ids": models.tokens(), "attention_mask": keep}
    models.assert_same(lt.patch(model), reference, inputs, keep)


@pytest.mark.parametrize("family", ["T5", "MT5"])
@pytest.mark.parametrize("side", [None, "right", "left"])
def test_t5_logits_and_gradients(side, family):
    model = models.t5(family)
    reference = models.double(model)
    inputs = {
        "input_ids": models.tokens(length=LENGTH),
        "decoder_input_ids": models.tokens(length=11, seed=4),
    }
    if side is not None:
        inputs["attention_mask"] = models.padding([LENGTH, 14], LENGTH, side)
    models.assert_same(lt.patch(model), reference, inputs, decoder_length=11)


@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("name", models.INTERFACE)
def test_models_with_the_interface(name, side):
    model = models.by_interface(name)
    reference = models.double(model)
    inputs = {"input_ids": models.tokens(length=LENGTH)}
    keep = None
    if side is not None:
        keep = models.padding([LENGTH, 14], LENGTH, side)
        inputs["attention_mask"] = keep
    models.assert_same(lt.patch(model), reference, inputs, keep)


def test_packed_sequences_equal_single_ones():
    """Positions that start over mean sequences that do not see each other."""
    model = lt.patch(models.llama())
    reference = models.double(models.llama())
    lengths = [9, 3, 11]
    ids = models.tokens(batch=1, length=sum(lengths))
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    inputs = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    models.assert_same(model, reference, inputs)
    packed = model(**inputs).logits
    for part, own in zip(ids.split(lengths, 1), packed.split(lengths, 1), strict=True):
        alone = model(input_ids=part).logits
        models.assert_close(
            own, alone.double(), 2 * models.roundings_of(LENGTH), "packed"
        )


def test_dense_masks_that_can_be_said():
    model = models.llama()
    reference = models.double(model)
    reference.set_attn_implementation("sdpa")  # its eager form wants numbers
    lt.patch(model)
    rows, columns = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    causal = columns <= rows
    blocks = rows // 8 == columns // 8
    for seen in (
        torch.ones_like(causal),
        causal,
        causal & (columns > rows - 4),
        causal & blocks,
        causal & (columns != 5),
    ):
        mask = seen.expand(2, 1, LENGTH, LENGTH)
        keep = seen.any(-1).expand(2, LENGTH)
        inputs = {"input_ids": models.tokens(), "attention_mask": mask}
        models.assert_same(model, reference, inputs, keep)
    # A mask that is changed in place is read again.
    mask = causal.expand(2, 1, LENGTH, LENGTH).clone()
    inputs = {"input_ids": models.tokens(), "attention_mask": mask}
    before = model(**inputs).logits
    mask[:, :, :, 2] = False
    assert not torch.equal(model(**inputs).logits, before)


@pytest.mark.parametrize("types", [False, True])
def test_xlnet_two_streams(types):
    """Predictions at given positions, whose tokens are hidden from everybody."""
    model = models.xlnet()
    reference = models.double(model)
    # The original converts its float32 sinusoids in one of its two branches only.
    made = reference.transformer.positional_embedding
    reference.transformer.positional_embedding = lambda *x: made(*x).double()
    lt.patch(model)
    targets = torch.tensor([[4, 9, LENGTH - 1], [0, 1, 17]])
    mapping = torch.nn.functional.one_hot(targets, LENGTH).float()
    hidden = mapping.sum(1)[:, None].expand(-1, LENGTH, -1)
    weight = torch.randn(2, 3, models.VOCABULARY)
    inputs = {"input_ids": models.tokens()}
    if types:
        inputs["token_type_ids"] = torch.arange(LENGTH).expand(2, -1) // 9
    results = [
        models.logits_and_grads(
            m, weight, perm_mask=hidden.to(d), target_mapping=mapping.to(d), **inputs
        )
        for m, d in ((model, torch.float32), (reference, torch.float64))
    ]
    (got, got_grads), (want, want_grads) = results
    roundings = models.roundings_of(LENGTH)
    models.assert_close(got, want, roundings, "logits")
    largest = max(float(g.abs().max()) for g in want_grads.values())
    for name, grad in want_grads.items():
        what = got_grads[name]
        models.assert_close(what, grad, 2 * roundings, name, largest / 256)


@pytest.mark.parametrize("make", [models.llama, models.bloom, models.deberta])
def test_bfloat16(make):
    """A model converted as a whole, against the same numbers in float64."""
    model = make().bfloat16()
    reference = models.double(model)
    lt.patch(model)
    ids = models.tokens()
    # oneDNN goes by what the processor announces, and some virtual machines
    # announce matrix instructions that end the process.
    with torch.backends.mkldnn.flags(enabled=False):
        got = model(input_ids=ids).logits
        got.sum().backward()
    want = reference(input_ids=ids).logits
    assert got.dtype == torch.bfloat16
    # The rest of the model is bfloat16 throughout: its epsilon, not float32's.
    coarse = torch.finfo(torch.bfloat16).eps / models.EPSILON
    models.assert_close(got, want, coarse * models.roundings_of(LENGTH), "logits")
    assert all(p.grad.dtype == torch.bfloat16 for p in model.parameters())


class Largest(torch.utils._python_dispatch.TorchDispatchMode):
    """Records the number of elements of the largest tensor that is made."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.numel())
        return out


@pytest.mark.parametrize("name", ["llama", "bloom", "deberta", "xlnet", "t5"])
def test_nothing_is_length_by_length(name):
    """No tensor of a patched model has as many elements as there are pairs."""
    length = 400
    model = models.t5() if name == "t5" else PATCHED[name][0]()
    inputs = {"input_ids": models.tokens(1, length)}
    if name == "t5":
        inputs["decoder_input_ids"] = models.tokens(1, length)
    else:
        inputs["attention_mask"] = models.padding([length - 9], length, "right")
    made = []
    for m in (copy.deepcopy(model), lt.patch(model)):
        with Largest() as largest:
            m(**inputs).logits.sum().backward()
        made.append(largest.elements)
    original, patched = made
    assert original >= length * length > patched
