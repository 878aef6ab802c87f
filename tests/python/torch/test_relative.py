"""Functions of the offset as biases, keys and values, and frequencies of your own.

Each against the materialised formula in float64 under autograd.
"""

from __future__ import annotations

import copy
import pickle

import eager
import pytest
import torch
import torch._dynamo.testing
from torch import nn

import locus_attn as locus
import locus_attn.torch as lt

HEADS, KV_HEADS, DIM, VALUE_DIM, LENGTH = 4, 2, 8, 6, 19
EPS = torch.finfo(torch.float32).eps
# As in test_peers: a product over the channels, then sums over the keys.
OUT = 8 * EPS * DIM**0.5
GRAD = 1e-5


class Gaussian(nn.Module):
    """-(m - n)^2 / (2 sigma_h^2)"""

    def __init__(self, heads=HEADS):
        super().__init__()
        self.sigma = nn.Parameter(torch.linspace(2.0, 9.0, heads))

    def forward(self, offsets):
        return -(offsets**2) / (2 * self.sigma[:, None] ** 2)


class Waves(nn.Module):
    """[heads, n, dim] of sines of the offset, with trained rates and sizes."""

    def __init__(self, dim, heads=HEADS):
        super().__init__()
        gen = torch.Generator().manual_seed(4)
        self.rates = nn.Parameter(torch.rand(heads, 1, dim, generator=gen))
        self.sizes = nn.Parameter(torch.randn(heads, 1, dim, generator=gen))

    def forward(self, offsets):
        return self.sizes * torch.sin(offsets[:, None] * self.rates + 0.3)


class Materialised(eager.Plain):
    """The same functions, on every pair."""

    def __init__(self, bias=None, keys=None, values=None, rotary=None):
        self.bias, self.keys, self.value_rows = bias, keys, values
        self.rotary = rotary

    @staticmethod
    def pairs(fn, m, n):
        """fn of the offset of every pair: [B, heads, Lq, Lk, ...]."""
        offset = eager.offsets(m, n)
        rows = fn(offset.reshape(-1))
        return rows.unflatten(1, offset.shape).transpose(0, 1)

    def logits(self, q, k, m, n, scale):
        if self.rotary is None:
            s = scale * q @ k.mT
        else:
            s = self.rotary.logits(q, k, m, n, scale)
        if self.keys is not None:
            rows = self.pairs(self.keys, m, n).expand(-1, q.shape[1], *[-1] * 3)
            s = s + scale * torch.einsum("bhid,bhijd->bhij", q, rows)
        return s if self.bias is None else s + self.pairs(self.bias, m, n)

    def values(self, p, m, n):
        if self.value_rows is None:
            return None
        rows = self.pairs(self.value_rows, m, n).expand(-1, p.shape[1], *[-1] * 3)
        return torch.einsum("bhij,bhijd->bhid", p, rows)


def theta(module):
    return module.frequencies


class RowAndColumn(eager.Rope):
    """Pair p by y theta[p, 0] + x theta[p, 1], over rows of 5."""

    def angles(self, pos):
        y, x = pos // 5, pos % 5 + 0.5
        return y[..., None] * self.rates[:, 0] + x[..., None] * self.rates[:, 1]


def rates(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(8))


# name -> (the module, its formula given a copy of the module in float64).
MODULES = {
    "bias": (
        lambda: lt.RelativeBias(Gaussian(), heads=HEADS),
        lambda m: Materialised(bias=m.fn),
    ),
    "keys": (
        lambda: lt.RelativeKeys(Waves(DIM), heads=HEADS),
        lambda m: Materialised(keys=m.fn),
    ),
    "keys-shared": (
        lambda: lt.RelativeKeys(Waves(DIM, 1), heads=1),
        lambda m: Materialised(keys=m.fn),
    ),
    "values": (
        lambda: lt.RelativeValues(Waves(VALUE_DIM), heads=HEADS),
        lambda m: Materialised(values=m.fn),
    ),
    "rotary": (
        lambda: lt.Rotary(rates(DIM // 2), "halves"),
        lambda m: Materialised(rotary=eager.Rope(m.frequencies, "halves")),
    ),
    "rotary-axes": (
        lambda: lt.Rotary(
            rates(3, 2), "interleaved", axes=[(5, 0), (1, 5, 0.5)], first_channel=0
        ),
        lambda m: Materialised(rotary=RowAndColumn(m.frequencies, "interleaved")),
    ),
    "combined": (
        lambda: lt.Combined(
            lt.RelativeBias(Gaussian(), heads=HEADS),
            lt.RelativeValues(Waves(VALUE_DIM, 1), heads=1),
            lt.Rotary(rates(DIM // 2), "halves"),
        ),
        lambda m: Materialised(
            bias=m.parts[0].fn,
            values=m.parts[1].fn,
            rotary=eager.Rope(m.parts[2].frequencies, "halves"),
        ),
    ),
}
NAMES = list(MODULES)


def qkv(q_len=LENGTH, k_len=LENGTH, dtype=torch.float32, grad=True):
    gen = torch.Generator().manual_seed(3)
    shapes = [
        (2, HEADS, q_len, DIM),
        (2, KV_HEADS, k_len, DIM),
        (2, KV_HEADS, k_len, VALUE_DIM),
    ]
    return [
        torch.randn(s, generator=gen).to(dtype).requires_grad_(grad) for s in shapes
    ]


def error(got, want):
    got, want = got.detach().double(), want.detach()
    assert got.shape == want.shape
    return float((got - want).abs().max() / want.abs().max().clamp(min=1.0))


def _packed():
    at = torch.cat([torch.arange(7), torch.arange(4), torch.arange(8)])
    parts = torch.tensor([0] * 7 + [1] * 4 + [2] * 8)
    return {
        "q_positions": at,
        "k_positions": at,
        "q_segments": parts,
        "k_segments": parts,
    }


def _scattered(q_len, k_len):
    gen = torch.Generator().manual_seed(6)

    def rows(length):
        return torch.stack(
            [torch.randperm(60, generator=gen)[:length].sort()[0] for _ in "ab"]
        )

    return {"q_positions": rows(q_len), "k_positions": rows(k_len)}


CALLS = {
    "full": (LENGTH, LENGTH, {}),
    "causal": (LENGTH, LENGTH, {"causal": True}),
    "one query": (1, LENGTH, {"causal": True}),
    "few queries": (5, LENGTH, {}),
    "more queries": (LENGTH, 6, {}),
    "window": (LENGTH, LENGTH, {"window": (6, 2)}),
    "causal window": (LENGTH, LENGTH, {"window": 4, "causal": True}),
    "softcap": (LENGTH, LENGTH, {"softcap": 2.5, "scale": 0.7}),
    "key lengths": (LENGTH, LENGTH, {"key_lengths": torch.tensor([19, 11])}),
    "key lengths of few": (
        5,
        LENGTH,
        {"key_lengths": torch.tensor([17, 3]), "causal": True},
    ),
    "packed": (LENGTH, LENGTH, {**_packed(), "causal": True}),
    "packed both ways": (LENGTH, LENGTH, _packed()),
    "scattered": (11, LENGTH, _scattered(11, LENGTH)),
    "scattered causal": (11, LENGTH, {**_scattered(11, LENGTH), "causal": True}),
    "far away": (
        5,
        7,
        {
            "q_positions": torch.arange(5) + (1 << 40),
            "k_positions": torch.arange(7) + (1 << 40) - 2,
        },
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", NAMES)
def test_against_the_formula(name, call):
    """out, lse and the gradients of q, k, v and every parameter."""
    q_len, k_len, options = CALLS[call]
    if name.startswith(("rotary", "combined")) and call == "far away":
        # In float32 frequencies are what they are; angles of 2^40 positions differ.
        pytest.skip("the formula itself loses its angles there")
    make, formula = MODULES[name]
    module = make()
    leaves = qkv(q_len, k_len)
    out, lse = module(*leaves, return_lse=True, **options)
    gen = torch.Generator().manual_seed(9)
    d_out = torch.randn(out.shape, generator=gen)
    d_lse = torch.randn(lse.shape, generator=gen)
    d_lse = d_lse.masked_fill(lse == -torch.inf, 0.0)
    loss = (out * d_out).sum() + (lse.nan_to_num(neginf=0.0) * d_lse).sum()
    loss.backward()

    judge = copy.deepcopy(module).double()
    judge.zero_grad()
    same = [x.detach().double().requires_grad_() for x in leaves]
    want, want_lse = eager.attention(*same, formula(judge), return_lse=True, **options)
    loss = (want * d_out).sum() + (want_lse.nan_to_num(neginf=0.0) * d_lse).sum()
    loss.backward()
    assert error(out, want) <= OUT
    found = [*zip("qkv", leaves, same, strict=True)]
    found += [
        (n, p, dict(judge.named_parameters())[n]) for n, p in module.named_parameters()
    ]
    for label, x, y in found:
        assert x.grad is not None, label
        assert error(x.grad, y.grad) <= GRAD, label


def test_functions_see_every_offset_once():
    """O(N) offsets that occur, rising, and not N^2 pairs."""
    seen = []

    def fn(offsets):
        seen.append(offsets)
        return -offsets.abs().float().expand(HEADS, -1)

    module = lt.RelativeBias(fn, heads=HEADS)
    for (q_len, k_len, options), least, most in (
        (CALLS["full"], 1 - LENGTH, LENGTH - 1),
        (CALLS["causal"], 0, LENGTH - 1),
        (CALLS["one query"], 0, LENGTH - 1),
        (CALLS["few queries"], -4, LENGTH - 1),
        (CALLS["more queries"], -5, LENGTH - 1),
        (CALLS["window"], -2, 6),
        (CALLS["causal window"], 0, 3),
        (CALLS["packed"], 0, 7),
        (CALLS["packed both ways"], -7, 7),
        (CALLS["far away"], -4, 6),
        ((LENGTH, LENGTH, {"chunk": 5}), -4, 4),
        ((LENGTH, LENGTH, {"causal": True, "prefix_lengths": [3, 0]}), -18, 18),
        ((0, 7, {}), 0, 0),
        ((7, 0, {}), 0, 0),
    ):
        seen.clear()
        module(*qkv(q_len, k_len, grad=False), **options)
        (offsets,) = seen
        assert offsets.dtype == torch.int64
        assert torch.equal(offsets, torch.arange(least, most + 1)), options


def test_functions_need_not_be_finite_elsewhere():
    """A causal call asks for no offset below 0."""

    def fn(offsets):
        return -offsets.float().sqrt().expand(HEADS, -1)

    module = lt.RelativeBias(fn, heads=HEADS)
    leaves = qkv(grad=False)
    assert torch.isfinite(module(*leaves, causal=True)).all()
    with pytest.raises(ValueError, match=r"must return finite .*offset -18"):
        module(*leaves)


def test_positions_that_lie_far_apart():
    """A range that grows past the lengths is refused, unless segments part it."""
    q, k, v = qkv()
    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    far = torch.arange(LENGTH) * 1_000_003
    words = r"offsets from -18000054 to 18000054, .* evaluated on 66144 of them at most"
    with pytest.raises(ValueError, match=words):
        module(q, k, v, q_positions=far, k_positions=far)
    # As far as a table may reach: the sinks of a stream and its latest tokens.
    stream = torch.cat([torch.arange(4), torch.arange(LENGTH - 4) + 60_000])
    out = module(q, k, v, q_positions=stream, k_positions=stream, causal=True)
    judge = copy.deepcopy(module).double()
    want = eager.attention(
        *(x.detach().double() for x in (q, k, v)),
        Materialised(bias=judge.fn),
        q_positions=stream,
        k_positions=stream,
        causal=True,
    )
    assert error(out, want) <= OUT
    # A table of vectors may be so much shorter.
    keys = lt.RelativeKeys(Waves(DIM), heads=HEADS)
    with pytest.raises(ValueError, match=f"on {16 * 38 + 65536 // DIM} of them"):
        keys(q, k, v, q_positions=stream, k_positions=stream)
    # Segments and windows hide the distance.
    parts = torch.arange(LENGTH) // 6
    apart = {"q_positions": torch.arange(LENGTH) + parts * 10**9}
    apart["k_positions"] = apart["q_positions"]
    got = module(q, k, v, q_segments=parts, k_segments=parts, **apart)
    near = module(q, k, v, q_segments=parts, k_segments=parts)
    torch.testing.assert_close(got, near)
    assert torch.equal(
        module(q, k, v, window=0 + 1, **apart), module(q, k, v, window=1)
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(name, dtype):
    """q, k and v of half width beside functions in float32, and functions in both."""
    make, formula = MODULES[name]
    module = make()
    leaves = qkv(dtype=dtype)
    out = module(*leaves, causal=True)
    out.float().square().sum().backward()
    judge = copy.deepcopy(module).double()
    judge.zero_grad()
    want = eager.attention(
        *(x.detach().double() for x in leaves), formula(judge), causal=True
    )
    assert out.dtype == dtype
    assert error(out, want) <= 4 * torch.finfo(dtype).eps
    assert all(p.grad.dtype == torch.float32 for p in module.parameters())
    half = make().to(dtype)
    half(*leaves, causal=True).float().sum().backward()
    for p in half.parameters():
        assert p.grad.dtype == dtype and torch.isfinite(p.grad).all()


@pytest.fixture(autouse=True)
def no_graphs_of_other_tests():
    torch._dynamo.reset()


def compiled_loss(module):
    def loss(q, k, v, **options):
        return module(q, k, v, **options).square().sum()

    return loss


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["bias", "keys", "values", "rotary", "combined"])
def test_compiles_to_one_graph(name, dynamic):
    module = MODULES[name][0]()
    loss = compiled_loss(module)
    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for length in (LENGTH, LENGTH + 4):
        leaves = qkv(length, length)
        wanted = [*leaves, *module.parameters()]
        expected = torch.autograd.grad(loss(*leaves, causal=True), wanted)
        actual = torch.autograd.grad(compiled(*leaves, causal=True), wanted)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b)


def test_one_graph_serves_every_length():
    """Lengths are no part of the graph: decoding does not compile again and again."""
    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    made = 0
    graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, dynamic=True, backend=graphs)
    def step(q, k, v):
        return module(q, k, v, causal=True)

    with torch.no_grad():
        for length in range(5, 12):
            q, k, v = qkv(3, length, grad=False)
            assert torch.equal(step(q, k, v), module(q, k, v, causal=True))
            made = graphs.frame_count if length == 5 else made
    assert graphs.frame_count == made


@pytest.mark.parametrize("name", ["bias", "keys"])
def test_compiles_with_positions(name):
    """Which offsets occur is not known when the graph is made."""
    module = MODULES[name][0]()
    loss = compiled_loss(module)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    leaves = qkv()
    wanted = [*leaves, *module.parameters()]
    shifted = torch.arange(LENGTH) + torch.tensor([[5], [3]])
    for options in (
        {**_packed(), "causal": True},
        {"q_positions": shifted, "k_positions": shifted},
        {"q_positions": shifted, "k_positions": shifted + (1 << 40)},
    ):
        expected = torch.autograd.grad(loss(*leaves, **options), wanted)
        actual = torch.autograd.grad(compiled(*leaves, **options), wanted)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b)
    far = torch.arange(LENGTH) * 7
    with pytest.raises(ValueError, match="evaluated on 77 of them at most"):
        compiled(*leaves, q_positions=far, k_positions=far)


def test_inductor(tmp_path):
    """The default backend, and a graph that is saved and loaded."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = lt.RelativeBias(Gaussian(), heads=HEADS)

        def forward(self, q, k, v):
            return self.bias(q, k, v, causal=True)

    layer, leaves = Layer(), tuple(qkv(grad=False))
    with torch.no_grad():
        got = torch.compile(layer, fullgraph=True)(*leaves)
    torch.testing.assert_close(got, layer(*leaves))
    path = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(layer, leaves), path)
    loaded = torch.export.load(path).module()
    torch.testing.assert_close(loaded(*leaves), layer(*leaves))


def test_opcheck_offsets():
    at = torch.arange(LENGTH) * 2
    args = (2, LENGTH, LENGTH, True, False, None, None, None, at, at, *[None] * 4)
    torch.library.opcheck(lt.offsets.offsets_op, args)


@pytest.mark.parametrize("name", NAMES)
def test_state_dict_and_copies(name):
    module = MODULES[name][0]()
    leaves = qkv(grad=False)
    want = module(*leaves, causal=True)
    other = MODULES[name][0]()
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    assert not torch.equal(other(*leaves, causal=True), want)
    other.load_state_dict(module.state_dict())
    clones = [other, copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
    for clone in clones:
        assert torch.equal(clone(*leaves, causal=True), want)
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    assert torch.equal(clones[1](*leaves, causal=True), want)
    assert type(module).__name__ in repr(module)


def test_parameters_have_their_names():
    assert list(lt.RelativeBias(Gaussian(), heads=HEADS).state_dict()) == ["fn.sigma"]
    assert list(lt.Rotary([1.0, 0.1], "halves").state_dict()) == ["frequencies"]
    fixed = lt.Rotary(torch.ones(2), "halves", trainable=False)
    assert list(fixed.state_dict()) == ["frequencies"] and not [*fixed.parameters()]
    both = MODULES["combined"][0]()
    assert "parts.0.fn.sigma" in both.state_dict()


def test_functions_that_are_no_modules():
    """A closure over a parameter trains it; whose it is, the caller knows."""
    sigma = nn.Parameter(torch.full((HEADS,), 3.0))
    module = lt.RelativeBias(lambda x: -(x**2) / sigma[:, None], heads=HEADS)
    module(*qkv(), causal=True).square().sum().backward()
    assert sigma.grad.abs().min() > 0 and not [*module.parameters()]
    alpha = nn.Parameter(torch.zeros(DIM // 2))
    start = eager.rope_rates(DIM).float()
    learned = lt.Rotary(lambda: start * alpha.exp(), "halves")
    other = lt.RopeLearned(DIM, "halves")
    leaves = qkv()
    torch.testing.assert_close(learned(*leaves), other(*leaves))
    learned(*leaves).square().sum().backward()
    other(*leaves).square().sum().backward()
    torch.testing.assert_close(alpha.grad, other.alpha.grad)


def test_a_parameter_stays_itself():
    shared = nn.Parameter(rates(DIM // 2))
    assert lt.Rotary(shared, "halves").frequencies is shared


def test_training_finds_the_width():
    """A few steps recover the sigma that made the data."""
    torch.manual_seed(0)
    leaves = qkv(grad=False)
    target = lt.RelativeBias(Gaussian(), heads=HEADS)
    want = target(*leaves).detach()
    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    with torch.no_grad():
        module.fn.sigma.mul_(1.4)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(150):
        optimizer.zero_grad()
        (module(*leaves) - want).square().sum().backward()
        optimizer.step()
    torch.testing.assert_close(module.fn.sigma, target.fn.sigma, rtol=0.02, atol=0.0)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_equals_the_whole(name):
    """Through a cache, with the table of all offsets or that of each step."""
    module = MODULES[name][0]()
    q, k, v = qkv(grad=False)
    whole = module(q, k, v, causal=True)
    cache = locus.KvCache(KV_HEADS, DIM, VALUE_DIM, batch=2, q_heads=HEADS)
    table = module.encoding(0, LENGTH - 1).native()
    for at in (slice(0, 8), slice(8, 9), slice(9, 12)):
        cache.append(k[:, :, at], v[:, :, at], table)
        # A torch tensor goes in, one comes out.
        row = cache.decode(q[:, :, at], table)
        torch.testing.assert_close(torch.as_tensor(row), whole[:, :, at])
    step = module(q[:, :, 12:13], k[:, :, :13], v[:, :, :13], causal=True)
    torch.testing.assert_close(step, whole[:, :, 12:13])


def test_encoding_wants_to_know_the_offsets():
    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    with pytest.raises(TypeError, match=r"name them, as encoding\(first_offset, last"):
        module.encoding()
    with pytest.raises(ValueError, match="above last_offset, got 3 and 2"):
        module.encoding(3, 2)
    with pytest.raises(ValueError, match=r"0 .. 1099511627776 are too many"):
        module.encoding(0, 1 << 40)
    table = module.encoding(-2, 2).native()
    assert isinstance(table, locus.Terms)
    with pytest.raises(ValueError, match=r"covers offsets -2 .. 2, but the call has"):
        locus.attention(*(x.detach() for x in qkv()), table)


def test_the_direct_call_and_the_operator_agree():
    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    leaves = qkv()
    out = module(*leaves, causal=True)
    with torch.no_grad():
        assert torch.equal(module(*leaves, causal=True), out)
    assert torch.equal(lt.attention(*leaves, encoding=module, causal=True), out)


def test_checkpointing_and_threads():
    module = MODULES["combined"][0]()
    leaves = qkv()
    wanted = [*leaves, *module.parameters()]

    def loss(*x):
        return module(*x, causal=True, threads=2).square().sum()

    again = torch.utils.checkpoint.checkpoint(loss, *leaves, use_reentrant=False)
    one = module(*leaves, causal=True, threads=1).square().sum()
    grads = [torch.autograd.grad(y, wanted) for y in (again, loss(*leaves), one)]
    for other in grads[1:]:
        assert all(torch.equal(a, b) for a, b in zip(grads[0], other, strict=True))


def test_a_ring_takes_the_table_of_all_offsets(tmp_path):
    """Offsets reach through the whole sequence, so they are named."""
    import torch.distributed as dist

    module = lt.RelativeBias(Gaussian(), heads=HEADS)
    leaves = qkv()
    wanted = [*leaves, *module.parameters()]
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/ring", rank=0, world_size=1
    )
    try:
        with pytest.raises(TypeError, match="offsets of a call"):
            lt.ring_attention(*leaves, module)
        table = module.encoding(1 - LENGTH, LENGTH - 1)
        out = lt.ring_attention(*leaves, table, causal=True)
        grads = torch.autograd.grad(out.square().sum(), wanted)
    finally:
        dist.destroy_process_group()
    whole = module(*leaves, causal=True)
    torch.testing.assert_close(out, whole)
    for a, b in zip(
        grads, torch.autograd.grad(whole.square().sum(), wanted), strict=True
    ):
        torch.testing.assert_close(a, b)


def test_terms_over_own_tensors():
    """Every array of locus.Terms as a tensor with a gradient."""
    bias = torch.randn(HEADS, 5, requires_grad=True)
    keys = torch.randn(3, DIM, requires_grad=True)
    rules = {"first_offset": {"bias": -2}, "buckets": {"q_table": [0, 2, 1]}}
    own = lt.encoding("Terms", bias=bias, q_table=keys, **rules)
    lt.attention(*qkv(), own).square().sum().backward()
    assert bias.grad.abs().min() > 0 and keys.grad.abs().min() > 0
    table = torch.randn(HEADS, 5, requires_grad=True)
    lt.attention(*qkv(), lt.encoding("OffsetBias", table=table)).sum().backward()
    assert table.grad.shape == table.shape


WRONG = {
    r"RelativeBias must return a torch.Tensor, got numpy.ndarray": (
        lt.RelativeBias,
        lambda x: x.numpy() * 1.0,
    ),
    r"RelativeBias must return a torch.Tensor, got None": (
        lt.RelativeBias,
        lambda x: None,
    ),
    r"must return float32, bfloat16 or float16, got torch.float64": (
        lt.RelativeBias,
        lambda x: x.double().expand(HEADS, -1),
    ),
    r"must return float32, bfloat16 or float16, got torch.int64": (
        lt.RelativeBias,
        lambda x: x.expand(HEADS, -1),
    ),
    r"RelativeBias must return \[4 heads, 37 offsets\], got \[37\]": (
        lt.RelativeBias,
        lambda x: x.float(),
    ),
    r"RelativeBias must return \[4 heads, 37 offsets\], got \[3, 37\]": (
        lt.RelativeBias,
        lambda x: x.float().expand(3, -1),
    ),
    r"must return \[4 heads, 37 offsets\], got \[37, 4\]": (
        lt.RelativeBias,
        lambda x: x.float().expand(HEADS, -1).T,
    ),
    r"must return finite numbers, got nan at offset 3 of head 0": (
        lt.RelativeBias,
        lambda x: torch.where(x == 3, torch.nan, 0.0).expand(HEADS, -1),
    ),
    r"must return finite numbers, got inf at offset 0 of head 2": (
        lt.RelativeBias,
        lambda x: torch.where(
            (x == 0) & (torch.arange(HEADS)[:, None] == 2), torch.inf, 0.0
        ),
    ),
    r"RelativeKeys must return \[4 heads, 37 offsets, head_dim\], got \[4, 37\]": (
        lt.RelativeKeys,
        lambda x: x.float().expand(HEADS, -1),
    ),
    r"RelativeKeys must return finite numbers, got nan at offset -18 of head 0": (
        lt.RelativeKeys,
        lambda x: torch.full((HEADS, len(x), DIM), torch.nan),
    ),
    r"query table must be \[heads, 37, 8\], got f32 \[4, 37, 5\]": (
        lt.RelativeKeys,
        lambda x: torch.zeros(HEADS, len(x), 5),
    ),
    r"value table .* does not match v": (
        lt.RelativeValues,
        lambda x: torch.zeros(HEADS, len(x), DIM),
    ),
    r"RelativeValues must return a tensor on the CPU, got device meta": (
        lt.RelativeValues,
        lambda x: torch.zeros(HEADS, len(x), DIM, device="meta"),
    ),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("words", WRONG)
def test_wrong_functions(words, grad):
    make, fn = WRONG[words]
    with pytest.raises((TypeError, ValueError), match=words) as caught:
        make(fn, heads=HEADS)(*qkv(grad=grad))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_errors_of_functions_are_theirs():
    def fn(offsets):
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        lt.RelativeBias(fn, heads=HEADS)(*qkv())


def test_refusals():
    for make in (lt.RelativeBias, lt.RelativeKeys, lt.RelativeValues):
        with pytest.raises(TypeError, match="fn must be a function of the offsets"):
            make(torch.zeros(3), heads=HEADS)
        with pytest.raises(ValueError, match="heads must be at least 1, got 0"):
            make(abs, heads=0)
        with pytest.raises(TypeError, match=r"heads must be an integer, got 1.5"):
            make(abs, heads=1.5)
    with pytest.raises(ValueError, match="has 3 heads, but the call has 4"):
        lt.RelativeBias(Gaussian(3), heads=3)(*qkv())
    with pytest.raises(ValueError, match="layout must be"):
        lt.Rotary([1.0], "sideways")
    with pytest.raises(TypeError, match="layout"):
        lt.Rotary([1.0])
    with pytest.raises(ValueError, match="2 axes, and the rotation has 1"):
        lt.Rotary(torch.ones(3, 2), "halves")
    with pytest.raises(ValueError, match="rotation has no entry base"):
        lt.Rotary([1.0], "halves", base=10.0)
    with pytest.raises(TypeError, match="must be a tensor of floats, got 3"):
        lt.Rotary(lambda: 3, "halves")
    with pytest.raises(TypeError, match=r"must be a tensor of floats, got torch.int64"):
        lt.Rotary(torch.arange(3), "halves", trainable=False)
    with pytest.raises(ValueError, match="not finite: nan"):
        lt.Rotary(torch.tensor([torch.nan]), "halves")
    bias = lt.RelativeBias(Gaussian(), heads=HEADS)
    for options, words in (
        ({"window": (-5, 1)}, "neither may be negative"),
        ({"chunk": -3}, "a chunk must have at least 1 position, got -3"),
        ({"chunk": 0.5}, r"chunk must be an integer, got 0.5"),
        ({"q_positions": [1, 2]}, "q_positions must have"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            bias(*qkv(), **options)
    with pytest.raises(TypeError, match="first_offset must be an integer, got str 'a'"):
        bias.encoding("a", 3)
    with pytest.raises(ValueError, match="two of the parts bring the same term: bias"):
        lt.Combined(bias, bias)
    with pytest.raises(TypeError, match="Combined takes RelativeBias"):
        lt.Combined(bias, lt.T5Bias(HEADS))
    with pytest.raises(ValueError, match="at least one part"):
        lt.Combined()
