"""What a call brings beside its encoding, against PyTorch in float64.

Sinks, biases per key and per pair, masks, prefixes, chunks, dropout, lse: every
pair of them, forward and backward.
"""

from __future__ import annotations

from zlib import crc32

import pytest
import torch

import locus_attn.torch as lt

BATCH, HEADS, KV_HEADS, DIM, VALUE_DIM = 2, 4, 2, 16, 12
EPS = torch.finfo(torch.float32).eps
FEATURES = (
    "sinks", "key_bias", "pair_bias", "mask", "prefix", "chunk", "dropout", "lse",
    "causal", "window", "softcap", "positions", "lengths", "segments", "rope",
)  # fmt: skip


def rotated(x, where):
    """RoPE of interleaved pairs, base 10000, in float64."""
    theta = 10000.0 ** (-torch.arange(0, DIM, 2, dtype=torch.float64) / DIM)
    angle = (where[:, None, :, None] * theta).expand(len(x), -1, -1, -1)
    turn = torch.polar(torch.ones_like(angle), angle)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * turn).flatten(-2)


def eager(q, k, v, operands, options, features, kept):
    """The formula, whole matrices, float64."""
    q_len, k_len = q.shape[2], k.shape[2]
    lengths = options.get("key_lengths", torch.full((BATCH,), k_len))
    m = options.get("q_positions")
    if m is None:
        m = torch.arange(q_len) + (lengths[:, None] - q_len).clamp(min=0)
    n = options.get("k_positions", torch.arange(k_len).expand(BATCH, -1))
    if "rope" in features:
        q, k = rotated(q, m), rotated(k, n)
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    s = q @ k.transpose(2, 3) / DIM**0.5
    if "key_bias" in operands:
        s = s + operands["key_bias"][:, :, None]
    if "pair_bias" in operands:
        s = s + operands["pair_bias"]
    if "softcap" in options:
        s = options["softcap"] * (s / options["softcap"]).tanh()
    offset = m[:, :, None] - n[:, None]
    seen = torch.ones(BATCH, q_len, k_len, dtype=torch.bool)
    if options.get("causal"):
        seen &= offset >= 0
    if "window" in options:
        left, right = options["window"]
        seen &= (offset <= left) & (offset >= -right)
    if "chunk" in options:
        seen &= (m // options["chunk"])[:, :, None] == (n // options["chunk"])[:, None]
    if "prefix_lengths" in options:
        seen |= (torch.arange(k_len) < options["prefix_lengths"][:, None])[:, None]
    if "q_segments" in options:
        q_segments, k_segments = options["q_segments"], options["k_segments"]
        seen = seen & (q_segments[:, None] == k_segments[None])
    seen &= (torch.arange(k_len) < lengths[:, None])[:, None]
    seen = seen[:, None].expand_as(s)
    if "mask" in options:
        seen = seen & options["mask"]
    s = s.masked_fill(~seen, -torch.inf)
    if "sinks" in operands:
        sink = operands["sinks"][None, :, None, None].expand(BATCH, -1, q_len, 1)
        lse = torch.cat([s, sink], -1).logsumexp(-1)
    else:
        lse = s.logsumexp(-1)
    alive = lse.isfinite()
    p = (s - lse.masked_fill(~alive, 0.0)[..., None]).exp()
    return (p * kept) @ v, lse.masked_fill(~alive, 0.0), p


def case(features, dtype=torch.float32, q_len=19, k_len=37):
    """Operands and options of a call with these features."""
    gen = torch.Generator().manual_seed(crc32(" ".join(sorted(features)).encode()))

    def normal(*shape):
        return torch.randn(shape, generator=gen).to(dtype).requires_grad_()

    def integers(high, *shape):
        return torch.randint(high, shape, generator=gen)

    qkv = [
        normal(BATCH, HEADS, q_len, DIM),
        normal(BATCH, KV_HEADS, k_len, DIM),
        normal(BATCH, KV_HEADS, k_len, VALUE_DIM),
    ]
    operands, options = {}, {}
    if "sinks" in features:
        operands["sinks"] = normal(HEADS)
    if "key_bias" in features:
        operands["key_bias"] = normal(BATCH, 1, k_len)
    if "pair_bias" in features:
        operands["pair_bias"] = normal(1, HEADS, q_len, k_len)
    if "mask" in features:
        options["mask"] = torch.rand(BATCH, 1, q_len, k_len, generator=gen) > 0.4
    if "prefix" in features:
        options["prefix_lengths"] = integers(k_len, BATCH)
    if "chunk" in features:
        options["chunk"] = 7
    if "dropout" in features:
        options.update(dropout=0.3, seed=5)
    if "causal" in features:
        options["causal"] = True
    if "window" in features:
        options["window"] = (6, 2)
    if "softcap" in features:
        options["softcap"] = 3.0
    if "positions" in features:
        options["q_positions"] = integers(50, BATCH, q_len)
        options["k_positions"] = integers(50, BATCH, k_len)
    if "lengths" in features:
        options["key_lengths"] = integers(k_len, BATCH) + 1
    if "segments" in features:
        options["q_segments"] = integers(3, q_len)
        options["k_segments"] = integers(3, k_len)
    return qkv, operands, options


def error(x, y):
    return ((x.double() - y).abs().max() / y.abs().max().clamp(min=1.0)).item()


def check(features, dtype=torch.float32):
    qkv, operands, options = case(features, dtype)
    encoding = lt.Rope(DIM, "interleaved") if "rope" in features else None
    out, lse, weights = lt.attention(
        *qkv, encoding, **operands, **options, return_lse=True, return_weights=True
    )
    wide = [x.detach().double().requires_grad_() for x in qkv]
    wide_operands = {
        name: x.detach().double().requires_grad_() for name, x in operands.items()
    }
    # What is dropped is the engine's own choice; how much of it, is not.
    kept = torch.ones(())
    if "dropout" in features:
        kept = (weights != 0) / (1.0 - options["dropout"])
    expected, wide_lse, p = eager(*wide, wide_operands, options, features, kept)
    rounding = EPS if dtype == torch.float32 else torch.finfo(dtype).eps
    tolerance = 4 * rounding * (DIM + 12) ** 0.5
    assert error(out, expected) <= tolerance
    assert error(lse.masked_fill(lse.isinf(), 0.0), wide_lse) <= 4 * EPS * 28**0.5
    assert error(weights, p * kept) <= 4 * EPS * 28**0.5
    gen = torch.Generator().manual_seed(9)
    d_out = torch.randn(out.shape, generator=gen).to(dtype)
    d_lse = torch.randn(lse.shape, generator=gen) * ("lse" in features)
    d_lse = d_lse.masked_fill(lse.isinf(), 0.0)
    leaves = [*qkv, *operands.values()]
    actual = torch.autograd.grad([out, lse], leaves, [d_out, d_lse])
    wanted = torch.autograd.grad(
        [expected, wide_lse],
        [*wide, *wide_operands.values()],
        [d_out.double(), d_lse.double()],
    )
    for x, y in zip(actual, wanted, strict=True):
        assert x.dtype == dtype
        assert error(x, y) <= 4 * tolerance * 37**0.5


@pytest.mark.parametrize("first", FEATURES)
def test_every_pair_equals_the_formula(first):
    for second in FEATURES[FEATURES.index(first) :]:
        check({first, second})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types(dtype):
    for feature in ("sinks", "key_bias", "pair_bias", "mask", "lse"):
        check({feature}, dtype)


def test_all_at_once():
    check(set(FEATURES) - {"segments"})


def test_masks_of_two_and_three_axes():
    q, k, v = (torch.randn(2, 3, 9, 8) for _ in range(3))
    mask = torch.rand(9, 9) > 0.3
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask | torch.eye(9, dtype=torch.bool)
    )
    mask = mask | torch.eye(9, dtype=torch.bool)
    for given in (mask, mask[None], mask[None, None].expand(2, 1, -1, -1)):
        torch.testing.assert_close(lt.attention(q, k, v, mask=given), expected)


def test_a_draft_tree():
    """Siblings share a position and do not see each other."""
    parents = [-1, 0, 0, 1, 1, 2]
    depth = torch.tensor([0, 1, 1, 2, 2, 2])
    sees = torch.eye(6, dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            sees[node] |= sees[parent]
    past = 10
    q, k, v = (torch.randn(1, 2, n, DIM) for n in (6, past + 6, past + 6))
    mask = torch.cat([torch.ones(6, past, dtype=torch.bool), sees], 1)
    rope = lt.Rope(DIM, "interleaved")
    where = torch.cat([torch.arange(past), past + depth])
    out = lt.attention(
        q, k, v, rope, mask=mask, q_positions=past + depth, k_positions=where
    )
    for node in range(6):
        path = [*range(past), *(past + i for i in range(6) if sees[node, i])]
        alone = lt.attention(
            q[:, :, node : node + 1], k[:, :, path], v[:, :, path], rope
        )
        torch.testing.assert_close(out[:, :, node : node + 1], alone)


def test_dropout_draws_its_seed_from_torch():
    q, k, v = (torch.randn(1, 2, 20, 8) for _ in range(3))
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(lt.attention(q, k, v, dropout=0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("seed", [None, 7])
def test_dropout_in_a_compiled_graph(seed):
    """Each call draws anew, and its backward pass drops what the forward did."""
    q, k, v = (torch.randn(1, 2, 40, 8) for _ in range(3))
    # Values that tell which weights were dropped: out is the weights.
    v = torch.eye(40).expand(1, 2, -1, -1).contiguous().requires_grad_()

    def run(v):
        return lt.attention(q, k, v, dropout=0.5, seed=seed)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    first, second = compiled(v), compiled(v)
    assert torch.equal(first == 0, second == 0) == (seed is not None)
    (d_v,) = torch.autograd.grad(first, v, torch.ones_like(first))
    torch.testing.assert_close(d_v[..., 0], first.detach().sum(2))


def test_dropout_drops_its_share():
    q = torch.zeros(1, 4, 200, 8)
    _, weights = lt.attention(q, q, q, dropout=0.25, seed=3, return_weights=True)
    share = (weights == 0).double().mean().item()
    assert abs(share - 0.25) < 5 * (0.1875 / weights.numel()) ** 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sinks": torch.zeros(3)}, "sinks must have one logit for each of 4 heads"),
        ({"dropout": 1.0, "seed": 1}, r"dropout must lie in \[0, 1\), got 1"),
        ({"mask": torch.ones(5, 9, dtype=torch.bool)}, "the mask must be"),
        ({"mask": torch.ones(4, 4)}, "mask must be bool"),
        (
            {"mask": torch.ones(2, 2, 19, 37, dtype=torch.bool)},
            r"the mask must be \[2, 4, 19, 37\], .* got \[2, 2, 19, 37\]",
        ),
        ({"sinks": [0.0] * 4}, "sinks must be a torch.Tensor, got list"),
        ({"dropout": 0.5, "seed": 1.5}, "seed must be an integer, got 1.5"),
        ({"dropout": "half"}, "dropout must be a number, got str 'half'"),
        ({"dropout": True}, "dropout must be a number, got True"),
        ({"by_index": 1}, "by_index must be True or False, got 1"),
        ({"return_weights": 1}, "return_weights must be True or False, got 1"),
        (
            {"key_bias": torch.zeros(2, 4, 37, dtype=torch.int64)},
            "key_bias must be dense, of float32, .* got torch.int64",
        ),
        ({"prefix_lengths": [5, 40]}, "a prefix must be of 0 to 37 keys, got 40"),
        ({"key_bias": torch.zeros(2, 4, 5)}, "key_bias must be"),
        ({"pair_bias": torch.zeros(3, 4, 19, 37)}, "pair_bias must be"),
        ({"chunk": 0}, "a chunk must have at least 1 position, got 0"),
        ({"table_queries": torch.zeros(2, 4, 19, 3)}, "need a query table"),
    ],
)
def test_contradictions(options, message):
    """The same sentence with a gradient and without."""
    qkv, _, _ = case(set())
    for tensors in (qkv, [x.detach() for x in qkv]):
        with pytest.raises((ValueError, TypeError), match=message):
            lt.attention(*tensors, **options)
