"""The modules: one for every encoding, parameters as checkpoints have them."""

from __future__ import annotations

import copy
import inspect
import pickle

import eager
import pytest
import torch

import locus_attn as locus
import locus_attn.torch as lt
from locus_attn.torch.made import TrainedModule

HEADS, DIM, WIDTH, LENGTH = 4, 8, 16, 12

MODULES = {
    "none": lambda: lt.NoPosition(),
    "index": lambda: lt.Index(WIDTH),
    "normalised-index": lambda: lt.NormalisedIndex(WIDTH, length=LENGTH),
    "binary": lambda: lt.Binary(5, WIDTH),
    "sine": lambda: lt.SineOnly(WIDTH),
    "sinusoidal": lambda: lt.Sinusoidal(WIDTH),
    "learned": lambda: lt.Learned(LENGTH, WIDTH),
    "key-offset": lambda: lt.KeyOffset(DIM, LENGTH),
    "shaw": lambda: lt.Shaw(DIM, -4, 4),
    "transformer-xl": lambda: lt.TransformerXL(HEADS, DIM, WIDTH, LENGTH),
    "deberta": lambda: lt.Deberta(HEADS, DIM, WIDTH, 8, 32),
    "tupe": lambda: lt.Tupe(HEADS, DIM, WIDTH, LENGTH, cls=True),
    "t5": lambda: lt.T5Bias(HEADS),
    "alibi": lambda: lt.Alibi(HEADS),
    "kerple": lambda: lt.Kerple(HEADS),
    "fire": lambda: lt.Fire(HEADS),
    "sandwich": lambda: lt.Sandwich(HEADS),
    "swin": lambda: lt.SwinBias(HEADS, 3, 4),
    "rope": lambda: lt.Rope(DIM, "halves"),
    "rope-learned": lambda: lt.RopeLearned(DIM, "halves"),
    "rope-2d": lambda: lt.Rope2D(DIM, "halves", 4),
    "rope-mixed": lambda: lt.RopeMixed(DIM, "halves", 4, prefix=1),
    "mrope": lambda: lt.MRope(DIM, "halves", [2, 1, 1]),
    "xpos": lambda: lt.XPos(DIM, "interleaved"),
}

NAMES = {
    "learned": {"weight": (LENGTH, WIDTH)},
    "key-offset": {"rows": (2 * LENGTH - 1, DIM)},
    "shaw": {"keys": (9, DIM), "values": (9, DIM)},
    "transformer-xl": {
        "r_w_bias": (HEADS, DIM),
        "r_r_bias": (HEADS, DIM),
        "r_net.weight": (HEADS * DIM, WIDTH),
    },
    "deberta": {
        "rel_embeddings.weight": (16, WIDTH),
        "pos_key_proj.weight": (HEADS * DIM, WIDTH),
        "pos_key_proj.bias": (HEADS * DIM,),
        "pos_query_proj.weight": (HEADS * DIM, WIDTH),
        "pos_query_proj.bias": (HEADS * DIM,),
    },
    "tupe": {
        "positions": (LENGTH, WIDTH),
        "bias": (HEADS, 2 * LENGTH - 1),
        "cls": (HEADS, 2),
        "pos_query_proj.weight": (HEADS * DIM, WIDTH),
        "pos_key_proj.weight": (HEADS * DIM, WIDTH),
    },
    "t5": {"relative_attention_bias.weight": (32, HEADS)},
    "kerple": {"r1": (HEADS,), "r2": (HEADS,)},
    "fire": {
        "c": (),
        "threshold_scale": (),
        "mlp.0.weight": (32, 1),
        "mlp.0.bias": (32,),
        "mlp.2.weight": (HEADS, 32),
        "mlp.2.bias": (HEADS,),
    },
    "swin": {"relative_position_bias_table": (35, HEADS)},
    "rope-learned": {"alpha": (DIM // 2,)},
    "rope-mixed": {"theta": (DIM // 2, 2)},
}


def qkv():
    gen = torch.Generator().manual_seed(0)
    return [torch.randn(2, HEADS, LENGTH, DIM, generator=gen) for _ in range(3)]


def info_of(name):
    return next(info for info in locus.encodings() if info.name == name)


@pytest.mark.parametrize("name", [info.name for info in locus.encodings()])
def test_every_encoding_has_a_module(name):
    """By its name, exported; those without a case here are made from the list."""
    info = info_of(name)
    cls = getattr(lt, info.class_name)
    assert issubclass(cls, lt.EncodingModule) and info.class_name in lt.__all__
    assert cls.__name__ == info.class_name and cls.__doc__
    if info.name in MODULES:
        assert type(MODULES[info.name]()) is cls


# A map of buckets has no place in a kind, so TUPE has its own class alone.
TRAINED = [
    info.name
    for info in locus.encodings()
    if info.training and all(field["type"] != "object" for field in info.fields)
]


def made(info, **options):
    """The module that the descriptor alone gives, whatever else there is."""
    sizes = {"heads": HEADS, "head_dim": DIM, "length": LENGTH}
    cls = type("Made", (TrainedModule,), {"described": info.class_name})
    return cls(**sizes, **options)


@pytest.mark.parametrize("name", TRAINED)
def test_a_module_from_the_descriptor(name):
    """Parameters have the example's shapes, and start as the descriptor says."""
    info = info_of(name)
    torch.manual_seed(0)
    module = made(info)
    example = info.example(heads=HEADS, head_dim=DIM, length=LENGTH).params()
    rows = {row["name"]: row for row in info.training}
    params = dict(module.named_parameters())
    assert {n: tuple(p.shape) for n, p in params.items()} == {
        n: x.shape for n, x in example.items()
    }
    for label, p in params.items():
        row, value = rows[label], p.detach()
        if row["start"] == "example":
            torch.testing.assert_close(value, torch.tensor(example[label]).float())
        elif row["start"] == "normal":
            assert 0.4 * row["size"] < float(value.std()) < 2.5 * row["size"]
        else:
            assert 0.1 < float(value.abs().max()) <= 1
    if info.name != "learned":
        module(*qkv(), causal=True).square().sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in params.values())


def test_bounds_of_the_descriptor_hold():
    for options, highest in (({}, 5.0), ({"kind": "power"}, 2.0)):
        module = made(info_of("kerple"), **options)
        with torch.no_grad():
            module.r1.fill_(-1.0)
            module.r2.fill_(5.0)
        r1, r2 = module.encoding().params
        assert r1.tolist() == pytest.approx([0.01] * HEADS)
        assert r2.tolist() == [highest] * HEADS


def test_signatures_of_modules_that_are_made():
    assert str(inspect.signature(lt.Alibi)) == (
        "(heads, bias_max=8.0, slopes=None, future_slopes=None)"
    )
    with pytest.raises(TypeError, match=r"Alibi\(\): missing a required argument"):
        lt.Alibi()
    with pytest.raises(AttributeError, match="has no attribute 'Alibis'"):
        lt.Alibis  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_state(name):
    """Names and shapes, and a round trip through state_dict, copy and pickle."""
    torch.manual_seed(0)
    module = MODULES[name]()
    shapes = {n: tuple(p.shape) for n, p in module.state_dict().items()}
    assert shapes == NAMES.get(name, {})
    other = MODULES[name]()
    other.load_state_dict(module.state_dict())
    clones = [other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    out = attend(module)
    assert all(torch.equal(attend(c), out) for c in clones)
    assert type(module).__name__ in repr(module)


def attend(module):
    return lt.attention(*qkv(), module.encoding(), causal=True)


@pytest.mark.parametrize("name", NAMES)
def test_training_reaches_every_parameter(name):
    torch.manual_seed(0)
    module = MODULES[name]()
    if name == "learned":
        module(torch.randn(2, LENGTH, WIDTH)).square().sum().backward()
    else:
        module(*qkv(), causal=True).square().sum().backward()
    for label, p in module.named_parameters():
        assert p.grad is not None and p.grad.shape == p.shape, label
        assert torch.isfinite(p.grad).all(), label
        # Under causality TUPE's column biases of later keys stay untouched.
        assert p.grad.abs().max() > 0, label


def test_a_table_that_diverged_is_named():
    module = lt.T5Bias(HEADS)
    with torch.no_grad():
        next(module.parameters())[3, 1] = torch.nan
    with pytest.raises(ValueError, match=r"table f32 .* not finite: nan"):
        module(*qkv())


def test_settings_show():
    text = repr(lt.T5Bias(HEADS, buckets=16, bidirectional=True))
    assert "buckets=16" in text and "bidirectional=True" in text
    assert "layout='halves'" in repr(lt.Rope(DIM, "halves"))


def test_wrong_settings_fail_at_once():
    with pytest.raises(ValueError, match="layout"):
        lt.Rope(DIM, "sideways")
    with pytest.raises(ValueError, match="neither"):
        lt.Shaw(DIM, keys=False, values=False)
    with pytest.raises(ValueError, match="neither"):
        lt.Deberta(HEADS, DIM, WIDTH, c2p=False, p2c=False)


INPUT_FORMULAS = {
    "index": lambda p: p[..., None].expand(*p.shape, WIDTH).double(),
    "normalised-index": lambda p: (p.double() / (LENGTH - 1))[..., None].expand(
        *p.shape, WIDTH
    ),
    "binary": lambda p: torch.nn.functional.pad(
        (p[..., None] >> torch.arange(5)) & 1, (0, WIDTH - 5)
    ).double(),
    "sine": lambda p: (
        p[..., None] * 10000.0 ** -(torch.arange(WIDTH).double() / WIDTH)
    ).sin(),
    "sinusoidal": lambda p: torch.stack(
        [f(p[..., None] * eager.rope_rates(WIDTH)) for f in (torch.sin, torch.cos)], -1
    ).flatten(-2),
}


@pytest.mark.parametrize("name", INPUT_FORMULAS)
def test_input_encodings(name):
    """x + E[pos] for the positions of a row and for given ones."""
    module = MODULES[name]()
    x = torch.randn(2, LENGTH, WIDTH)
    where = torch.stack([torch.arange(LENGTH), torch.arange(LENGTH) + 9])
    formula = INPUT_FORMULAS[name]
    for positions, rows in ((None, where[0]), (where, where)):
        expected = (x + formula(rows).float()).float()
        torch.testing.assert_close(module(x, positions), expected)


def test_concatenation_widens():
    x = torch.randn(2, LENGTH, WIDTH)
    wide = lt.Index(WIDTH, mode="concatenate")(x)
    assert torch.equal(wide[..., :WIDTH], x)
    assert torch.equal(wide[..., WIDTH], torch.arange(LENGTH).float().expand(2, -1))


def test_learned_rows():
    module = lt.Learned(LENGTH, WIDTH, offset=2)
    x = torch.zeros(1, 3, WIDTH)
    assert torch.equal(module(x, [4, 0, 9])[0], module.weight[[6, 2, 11]])
    with pytest.raises(ValueError, match=r"cover 0 .. 9, got 10"):
        module(x, [1, 2, 10])
    with pytest.raises(ValueError, match="as wide as Sinusoidal"):
        lt.Sinusoidal(WIDTH)(torch.zeros(1, 3, WIDTH + 1))


def test_kerple_stays_in_its_domain():
    """Steps that would leave it are clamped, in value and in gradient."""
    module = lt.Kerple(HEADS, kind="power")
    with torch.no_grad():
        module.r1.fill_(-1.0)
        module.r2.fill_(5.0)
    module(*qkv()).sum().backward()
    assert torch.equal(module.r1.grad, torch.zeros(HEADS))
    assert torch.equal(module.r2.grad, torch.zeros(HEADS))


def test_transformer_xl_rows_are_sinusoids():
    module = lt.TransformerXL(HEADS, DIM, WIDTH, LENGTH)
    w_r = module.r_net.weight.detach().reshape(HEADS, DIM, WIDTH)
    rows = torch.as_tensor(locus.TransformerXL.sinusoidal_keys(w_r, LENGTH))
    actual = module.encoding().params[0].detach().double()
    # Rounding of the sinusoids, then a float32 product over WIDTH channels.
    limit = torch.finfo(torch.float32).eps * WIDTH
    assert float((actual - rows).abs().max()) <= limit


def test_alibi_with_slopes_towards_later_keys():
    """Behind the query one slope, ahead of it another, as the native class has it."""
    slopes, ahead = [0.5, 0.25], [0.125, 2.0]
    module = lt.Alibi(2, slopes=slopes, future_slopes=ahead)
    q, k, v = (torch.randn(1, 2, 9, 8, requires_grad=True) for _ in range(3))
    offsets = torch.arange(9)[:, None] - torch.arange(9)
    behind, before = torch.tensor(slopes), torch.tensor(ahead)
    bias = torch.where(
        offsets >= 0,
        -behind[:, None, None] * offsets,
        before[:, None, None] * offsets,
    )
    want = (q @ k.mT / 8**0.5 + bias).softmax(-1) @ v
    torch.testing.assert_close(module(q, k, v), want)
    assert "future_slopes" in repr(module)
