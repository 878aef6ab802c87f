"""Rotated values and trained frequencies against float64 autograd, at random.

Grouped heads, values wider or narrower than keys, odd lengths, scattered
positions, windows and every element type.
"""

from __future__ import annotations

import random

import eager
import pytest
import torch

import locus_attn as locus
import locus_attn.torch as lt

EPS = torch.finfo(torch.float32).eps
REACH = 120  # positions lie below
KINDS = [
    "values",
    "absolute",
    "learned",
    "mixed",
    "learned-per-head",
    "mixed-per-head",
]


def draw(kind, pairs, layout, r, kv_heads):
    """A leaf or None, then what makes the encoding and its formula from it."""
    heads = (kv_heads,) if kind.endswith("-per-head") else ()
    if kind in ("values", "absolute"):
        relative = kind == "values"
        settings = {"rotary_dim": 2 * pairs, "base": 50.0}
        word = "relative" if relative else "absolute"

        def fixed(dim, _):
            return lt.Rope(dim, layout, values=word, **settings)

        rates = eager.rope_rates(2 * pairs, 50.0)
        return None, fixed, lambda _: eager.RopeValues(rates, layout, relative)
    if kind.startswith("learned"):
        leaf = torch.randn(*heads, pairs) * 0.3
        return (
            leaf,
            lambda _, p: lt.encoding("RopeLearned", alpha=p, layout=layout, base=50.0),
            lambda p: eager.RopeLearned(p, layout, 50.0),
        )
    more = {
        "width": r.choice([1, 7, 16]),
        "prefix": r.choice([0, 3]),
        "offsets": [0.5, -2.25],
    }
    return (
        torch.randn(*heads, pairs, 2) * 0.3,
        lambda _, p: lt.encoding("RopeMixed", theta=p, layout=layout, **more),
        lambda p: eager.RopeMixed(p, layout, **more),
    )


def close(actual, expected, limit, what, least=1.0):
    """Within `limit` of the largest number, or of `least`."""
    assert actual.shape == expected.shape, what
    scale = max(float(expected.abs().max()), least)
    error = float((actual.double() - expected).abs().max())
    assert error <= limit * scale, f"{what}: {error:.3g} > {limit * scale:.3g}"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, seed):
    r = random.Random(f"{kind} {seed}")
    torch.manual_seed(seed)
    group, kv_heads, batch = r.choice([1, 2, 3]), r.choice([1, 2]), r.choice([1, 2])
    q_len, k_len = r.choice([1, 17, 81]), r.choice([1, 33, 99])
    dim, value_dim = r.choice([8, 14, 32]), r.choice([8, 10, 40])
    layout = r.choice(["halves", "interleaved"])
    dtype = r.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    pairs = r.randint(1, min(dim, value_dim) // 2)
    leaf, make, formula = draw(kind, pairs, layout, r, kv_heads)
    shapes = [
        (batch, kv_heads * group, q_len, dim),
        (batch, kv_heads, k_len, dim),
        (batch, kv_heads, k_len, value_dim),
    ]
    leaves = [torch.randn(s).to(dtype).requires_grad_() for s in shapes]
    options = {
        "q_positions": torch.randint(0, REACH, (batch, q_len)),
        "k_positions": torch.randint(0, REACH, (batch, k_len)),
        "causal": r.random() < 0.5,
        "window": r.choice([None, (40, 15)]),
    }
    param = None if leaf is None else leaf.clone().requires_grad_()
    out = lt.attention(*leaves, make(dim, param), **options)
    d_out = torch.randn(out.shape).to(dtype)
    out.backward(d_out)

    doubles = [x.detach().double().requires_grad_() for x in leaves]
    judge_param = None if leaf is None else leaf.double().requires_grad_()
    judge = eager.attention(*doubles, formula(judge_param), **options)
    judge.backward(d_out.double())

    # As many float32 roundings as sums have products (those of keys run over the
    # queries), and two of storage.
    limit = EPS * (dim + k_len + group * q_len) + (
        0 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    )
    close(out.detach(), judge.detach(), limit, "out")
    for what, x, y in zip("qkv", leaves, doubles, strict=True):
        close(x.grad, y.grad, 2 * limit, f"d_{what}")
    if param is not None:
        # Sums of numbers of order 1 times coordinates.
        close(param.grad, judge_param.grad, 2 * limit, "d_param", least=REACH)


@pytest.mark.parametrize("kind", KINDS[2:])
def test_threads_give_the_same_bits(kind):
    torch.manual_seed(1)
    leaf, make, _ = draw(kind, 8, "halves", random.Random(1), kv_heads=2)
    x = [torch.randn(2, h, 300, 16) for h in (4, 2, 2)]

    def grads(threads):
        leaves = [y.clone().requires_grad_() for y in (*x, leaf)]
        out = lt.attention(*leaves[:3], make(16, leaves[3]), threads=threads)
        out.square().sum().backward()
        return [y.grad for y in leaves]

    one = grads(1)
    for threads in (2, 7):
        pairs = zip(one, grads(threads), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", ["RopeLearned", "RopeMixed"])
def test_frequencies_belong_to_key_heads(name):
    more = [] if name == "RopeLearned" else [4]
    module = getattr(lt, name)(8, "halves", *more, heads=4)
    assert next(module.parameters()).shape[0] == 4
    q, k = torch.randn(1, 4, 9, 8), torch.randn(1, 2, 9, 8)
    assert module(q, q, q).shape == q.shape
    with pytest.raises(ValueError, match="those of the 2 key heads, whose 4 query"):
        module(q, k, k)
    with pytest.raises(ValueError, match="heads must be at least 1, got 0"):
        getattr(lt, name)(8, "halves", *more, heads=0)


def test_a_cache_keeps_frequencies_of_heads():
    """Decoding token by token equals the whole call; shifts re-rotate keys."""
    torch.manual_seed(0)
    module = lt.RopeMixed(8, "halves", 3, heads=2)
    q, k, v = (torch.randn(1, h, 11, 8) for h in (4, 2, 2))
    whole = module(q, k, v, causal=True).detach()
    native = module.encoding().native()
    cache = locus.KvCache(2, 8, q_heads=4)
    for i in range(11):
        step = slice(i, i + 1)
        cache.append(k[:, :, step].numpy(), v[:, :, step].numpy(), native)
        out = cache.decode(q[:, :, step].numpy(), native)
        close(torch.from_numpy(out), whole[:, :, step].double(), 32 * EPS, i)
    cache.shift(3)
    fresh = locus.KvCache(2, 8, q_heads=4)
    at = [i + 3 for i in range(11)]
    fresh.append(k.numpy(), v.numpy(), native, positions=at)
    close(torch.from_numpy(cache.keys), torch.from_numpy(fresh.keys), 32 * EPS, "k")


def test_training_moves_frequencies():
    """Frequencies near by, which a target was made with, are found again."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 16, 8) for _ in "qkv")
    target = lt.attention(
        q,
        k,
        v,
        lt.encoding("RopeLearned", alpha=torch.full((4,), 0.05), layout="halves"),
    )
    module = lt.RopeLearned(8, "halves")
    optimiser = torch.optim.Adam(module.parameters(), lr=0.005)
    losses = []
    for _ in range(150):
        optimiser.zero_grad()
        loss = (module(q, k, v) - target).square().sum()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 1e-2 * losses[0]


def test_value_rotation_refuses_a_gain():
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    rope = lt.Rope(8, "halves", scaling=scaling, values="relative")
    x = torch.randn(1, 1, 4, 8)
    with pytest.raises(ValueError, match="values are rotated without a gain"):
        lt.attention(x, x, x, rope)
    with pytest.raises(ValueError, match="values must be"):
        lt.Rope(8, "halves", values="both")


def test_explain_names_the_term():
    q = torch.randn(1, 1, 40, 8).numpy()
    rope = locus.Rope(8, "halves", values="relative")
    told = locus.explain_call(q, q, q, rope)
    assert told["terms"] == ["rotate", "rotate_values"]
    assert told["driver"] == "short"
