"""Wrong arguments of locus.torch, and copies of its modules."""

import copy
import pickle

import numpy as np
import pytest
import torch

import locus_attn as locus
import locus_attn.torch as lt

X = torch.randn(1, 2, 5, 8)
GRAD = X.clone().requires_grad_()
ROPE = lt.Rope(8, "halves")

MISTAKES = {
    "causal": (TypeError, "causal must be True or False", {"causal": "yes"}),
    "scale": (TypeError, "scale must be a number", {"scale": "1"}),
    "softcap": (TypeError, "softcap must be a number", {"softcap": [1]}),
    "threads": (TypeError, "threads must be an integer", {"threads": 1.5}),
    "no threads": (ValueError, "threads must be at least 1", {"threads": 0}),
    "return_lse": (TypeError, "return_lse must be True", {"return_lse": None}),
    "window": (OverflowError, "window.* must fit in 64 bits", {"window": 2**70}),
    "positions": (TypeError, "q_positions must be integers", {"q_positions": "abc"}),
    "fractions": (TypeError, "k_positions", {"k_positions": [0.5] * 5}),
    "ragged": (ValueError, "one length each", {"q_segments": [[1], [1, 2]]}),
    "large": (OverflowError, "must fit in 64 bits", {"key_lengths": [2**64]}),
    "beyond int64": (
        ValueError,
        "k_positions has values beyond int64",
        {"k_positions": torch.tensor([2**63] * 5, dtype=torch.uint64)},
    ),
}


@pytest.mark.parametrize("x", [X, GRAD], ids=["plain", "grad"])
@pytest.mark.parametrize("name", MISTAKES)
def test_options_of_the_wrong_kind(name, x):
    error, words, options = MISTAKES[name]
    with pytest.raises(error, match=words) as found:
        lt.attention(x, x, x, **options)
    assert "\n" not in str(found.value)


def test_tensors_of_the_wrong_kind():
    negative = torch.randn(1, 2, 5, 8, dtype=torch.complex64).conj().imag
    with pytest.raises(TypeError, match="stands for its negative"):
        locus.attention(negative, X, X)
    want = locus.attention(negative.resolve_neg(), X, X)
    assert torch.equal(lt.attention(negative, X, X), want)
    with pytest.raises(TypeError, match="q must be dense"):
        lt.attention(X.to_sparse(), X, X)
    with pytest.raises(TypeError, match="inverse must be True or False"):
        lt.rotate(X, ROPE, inverse="no")
    with pytest.raises(TypeError, match="q is on the device meta"):
        locus.attention(X.to("meta"), X, X)


def test_right_options_of_other_types():
    want = lt.attention(GRAD, X, X, causal=True, scale=0.5)
    got = lt.attention(
        *(GRAD, X, X), causal=np.True_, scale=np.float32(0.5), threads=np.int64(1)
    )
    assert torch.equal(got, want)


MODULES = {
    "rope": lambda: lt.Rope(8, "halves", 500.0),
    "alibi": lambda: lt.Alibi(2),
    "t5": lambda: lt.T5Bias(2),
    "shaw": lambda: lt.Shaw(8),
    "deberta": lambda: lt.Deberta(2, 8, 16, 8, 16),
    "transformer-xl": lambda: lt.TransformerXL(2, 8, 16, 40),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_copied(name):
    module = MODULES[name]()
    want = module(X, X, X)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(X, X, X), want)
        for mine, its in zip(module.parameters(), other.parameters(), strict=True):
            assert mine.data_ptr() != its.data_ptr()


def test_a_module_that_holds_a_native_encoding_is_copied():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.position = locus.Shaw(np.ones((9, 8)), np.ones((9, 8)))

        def forward(self, x):
            return lt.attention(x, x, x, self.position)

    block = Block()
    assert torch.equal(copy.deepcopy(block)(X), block(X))


def test_frequencies_of_none():
    with pytest.raises(TypeError, match="frequencies must be numbers, got None"):
        lt.Rotary(None, "halves")


def test_numbers_that_python_does_not_have():
    for layout in ([np.longdouble(1)], np.ones(2, np.longdouble)):
        with pytest.raises(TypeError, match="a setting must be a number, string"):
            lt.Rotary([1.0, 0.5], layout)
