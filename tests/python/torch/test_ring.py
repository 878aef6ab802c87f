"""locus.torch.ring_attention on several processes against one."""

import datetime
import os
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

sys.path.insert(0, str(Path(__file__).parent))


from encoding_cases import DIM, HEADS, KV_HEADS, REACH, cases

import locus_attn as locus
import locus_attn.torch as lt

SHARDINGS = ("contiguous", "zigzag", "round-robin")
LENGTH = 37  # odd, and below REACH

# Engine and ring each lie within 4 eps sqrt(D + 12) of exact arithmetic, and
# their gradients within 4 sqrt(L) times that (docs/numerics.md): they differ by
# twice as much at most.
EPS = 2.0**-23
FORWARD = 2 * 4 * EPS * (DIM + 12) ** 0.5
GRADIENT = 4 * FORWARD * LENGTH**0.5


def inputs(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, heads, LENGTH, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS, HEADS)]
    return [torch.randn(s, generator=generator).to(dtype) for s in shapes]


def error(a, b):
    a, b = a.double(), b.double()
    if not a.numel():
        return 0.0
    return float((a - b).abs().max() / b.abs().max().clamp(min=1.0))


def compare(rank, ranks, make, sharding, *, dtype=torch.float32, slack=0.0, **options):
    """One call on all ranks, and what this rank should have of it."""
    q, k, v, d_out = inputs(dtype)
    mine = lt.ring_shard(sharding, LENGTH, rank, ranks)
    local = {n: x[mine] for n, x in options.items() if isinstance(x, torch.Tensor)}

    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    encoding = make()
    out, lse = lt.attention(*whole, encoding, return_lse=True, **options)
    out.backward(d_out)
    expected = [x.grad[:, :, mine] for x in whole]

    part = [x[:, :, mine].clone().requires_grad_() for x in (q, k, v)]
    ring_encoding = make()
    ring_out, ring_lse = lt.ring_attention(
        *part, ring_encoding, sharding=sharding, return_lse=True, **{**options, **local}
    )
    ring_out.backward(d_out[:, :, mine])
    assert error(ring_out, out[:, :, mine]) <= FORWARD + slack
    assert torch.allclose(ring_lse, lse[:, :, mine], rtol=FORWARD, atol=FORWARD)
    for name, x, y in zip("qkv", part, expected, strict=True):
        assert error(x.grad, y) <= GRADIENT + 4 * slack, name
    if encoding is not None:
        params = zip(ring_encoding.params, encoding.params, strict=True)
        for a, b in params:
            assert error(a.grad, b.grad) <= GRADIENT
    return ring_out, [x.grad for x in part]


def every_encoding(rank, ranks):
    for case in cases().values():
        for causal, sharding in zip((False, True, True), SHARDINGS, strict=True):
            where = case.positions(torch.arange(LENGTH))
            positions = {"q_positions": where, "k_positions": where}
            compare(
                *(rank, ranks, lambda c=case: c.encoding(grad=True), sharding),
                causal=causal,
                **positions,
            )


def every_option(rank, ranks):
    def t5():
        table = torch.randn(32, HEADS, generator=torch.Generator().manual_seed(2))
        return lt.encoding("T5Bias", table=table.requires_grad_())

    segments = (torch.arange(LENGTH) >= 11).long()
    for sharding in SHARDINGS:
        for options in (
            {"window": (5, 2)},
            {"window": 3, "causal": True},
            {"softcap": 2.0, "scale": 0.3},
            {"q_segments": segments, "k_segments": segments, "causal": True},
            {"key_lengths": [LENGTH - 8, 5]},
            {"key_lengths": [1, LENGTH], "causal": True},
        ):
            compare(rank, ranks, t5, sharding, **options)
        fewer_queries(rank, ranks, t5(), sharding)
        # Half a unit in the last place of numbers about 1.
        compare(rank, ranks, t5, sharding, dtype=torch.bfloat16, slack=2 * 2.0**-8)
        first = compare(rank, ranks, lambda: None, sharding, causal=True)
        second = compare(rank, ranks, lambda: None, sharding, causal=True)
        for a, b in zip([first[0], *first[1]], [second[0], *second[1]], strict=True):
            assert torch.equal(a, b)


def fewer_queries(rank, ranks, encoding, sharding):
    """Queries end where the keys of their own sequence end."""
    q, k, v, _ = inputs()
    q = q[:, :, : LENGTH - 9]
    options = {"key_lengths": [LENGTH - 3, LENGTH - 12], "causal": True}
    mine, keys = (lt.ring_shard(sharding, x.shape[2], rank, ranks) for x in (q, k))
    out = lt.ring_attention(
        *(q[:, :, mine], k[:, :, keys], v[:, :, keys], encoding),
        sharding=sharding,
        **options,
    )
    whole = lt.attention(q, k, v, encoding, **options)
    assert error(out, whole[:, :, mine]) <= FORWARD


def uneven(rank, ranks):
    """Contiguous shards of any length, one of them empty."""
    q, k, v, _ = inputs()
    sizes = [0 if r == 1 else 3 + r for r in range(ranks)]
    sizes[-1] = LENGTH - sum(sizes[:-1])
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    out = lt.ring_attention(q[:, :, mine], k[:, :, mine], v[:, :, mine], causal=True)
    assert error(out, lt.attention(q, k, v, causal=True)[:, :, mine]) <= FORWARD


# The axis of the tokens of an operand, of which a rank brings its own; every rank
# brings all of the others.
OPERAND_AXES = {"mask": 2, "key_bias": 2, "pair_bias": 2, "table_queries": 2}


def operand_cases():
    """Operands of a whole call by name, each with the options beside it."""
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return torch.randn(shape, generator=generator)

    keep = torch.rand(2, 1, LENGTH, LENGTH, generator=generator) < 0.7
    return {
        "mask": {"mask": keep},
        "row_mask": {"mask": keep[:, :, :1]},
        "key_bias": {"key_bias": random(2, HEADS, LENGTH)},
        "shared_key_bias": {"key_bias": random(1, 1, LENGTH).double()},
        "pair_bias": {"pair_bias": random(1, HEADS, LENGTH, LENGTH)},
        "sinks": {"sinks": random(HEADS)},
        "table_queries": {"table_queries": random(2, HEADS, LENGTH, DIM)},
        "prefix_lengths": {"prefix_lengths": [9, LENGTH - 4], "window": (3, 0)},
        "chunk": {"chunk": 7},
        "dropout": {"dropout": 0.4, "seed": 5},
    }


def compare_operands(rank, ranks, sharding, operands, causal):
    """Results, weights and gradients of all operands against one process."""
    q, k, v, d_out = inputs()
    mine = lt.ring_shard(sharding, LENGTH, rank, ranks)
    generator = torch.Generator().manual_seed(4)
    table = torch.randn(7, DIM, generator=generator) * 0.3
    d_lse = torch.randn(2, HEADS, LENGTH, generator=generator)
    tables = "table_queries" in operands

    def run(attend, tokens, cut, d_out, d_lse, **options):
        def part(name, x):
            axis = OPERAND_AXES.get(name)
            if not isinstance(x, torch.Tensor) or axis is None or not cut:
                return x
            return x if x.shape[axis] == 1 else x.index_select(axis, mine)

        leaves = [x.clone().requires_grad_() for x in tokens]
        given = {n: part(n, x) for n, x in operands.items()}
        for name, x in given.items():
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                given[name] = x.clone().requires_grad_()
        encoding = None
        if tables:
            rows = table.clone().requires_grad_()
            encoding = lt.encoding("Shaw", keys=rows)
        out, lse, weights = attend(
            *(*leaves, encoding),
            causal=causal,
            return_lse=True,
            return_weights=True,
            **given,
            **options,
        )
        (out * d_out).sum().add((lse.nan_to_num(neginf=0.0) * d_lse).sum()).backward()
        grads = {n: x.grad for n, x in given.items() if isinstance(x, torch.Tensor)}
        if tables:
            grads["rows"] = rows.grad
        return out, lse, weights, [x.grad for x in leaves], grads

    out, lse, weights, grads, others = run(
        lt.attention, (q, k, v), cut=False, d_out=d_out, d_lse=d_lse
    )
    tokens = [x[:, :, mine] for x in (q, k, v)]
    ring = run(
        lt.ring_attention,
        *(tokens, True, d_out[:, :, mine], d_lse[:, :, mine]),
        sharding=sharding,
    )
    assert error(ring[0], out[:, :, mine]) <= FORWARD
    assert torch.allclose(ring[1], lse[:, :, mine], rtol=FORWARD, atol=FORWARD)
    assert error(ring[2], weights[:, :, mine]) <= FORWARD
    assert torch.equal(ring[2] == 0, weights[:, :, mine] == 0)
    for name, x, y in zip("qkv", ring[3], grads, strict=True):
        assert error(x, y[:, :, mine]) <= GRADIENT, name
    for name, whole in others.items():
        if whole is None:
            assert ring[4][name] is None
            continue
        axis = OPERAND_AXES.get(name)
        expected = whole if axis is None else whole.index_select(axis, mine)
        assert ring[4][name].dtype == whole.dtype
        assert error(ring[4][name], expected) <= GRADIENT, name


def every_operand(rank, ranks):
    cases = operand_cases()
    for n, operands in enumerate(cases.values()):
        sharding = SHARDINGS[n % 3]
        for causal in (False, True):
            compare_operands(rank, ranks, sharding, operands, causal)
    together = {}
    for operands in cases.values():
        together |= operands
    for sharding in SHARDINGS:
        compare_operands(rank, ranks, sharding, together, True)


def operand_forms(rank, ranks):
    """One row for all queries, a drawn seed, a layer, narrow tokens."""
    q, k, v, _ = inputs()
    mine = lt.ring_shard("zigzag", LENGTH, rank, ranks)
    part = [x[:, :, mine] for x in (q, k, v)]
    # A row for all queries: each rank's gradient is that of its own.
    row = torch.zeros(1, 1, 1, LENGTH, requires_grad=True)
    lt.attention(q, k, v, pair_bias=row).square().sum().backward()
    mine_row = torch.zeros(1, 1, 1, LENGTH, requires_grad=True)
    out = lt.ring_attention(*part, sharding="zigzag", pair_bias=mine_row)
    out.square().sum().backward()
    total = mine_row.grad.clone()
    dist.all_reduce(total)
    assert error(total, row.grad) <= GRADIENT
    # Without a seed, that of rank 0 counts.
    torch.manual_seed(rank)
    dropped = lt.ring_attention(
        *part, sharding="zigzag", dropout=0.5, return_weights=True
    )[1]
    torch.manual_seed(0)
    weights = lt.attention(q, k, v, dropout=0.5, return_weights=True)[1]
    assert torch.equal(dropped == 0, weights[:, :, mine] == 0)


def gradient_of_lse(rank, ranks):
    """That of one call over the whole sequence."""
    q, k, v, _ = inputs()
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    out, lse = lt.attention(*whole, causal=True, return_lse=True)
    (out.sum() + lse.sin().sum()).backward()
    sizes = [len(x) for x in torch.arange(LENGTH).tensor_split(ranks)]
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    part = [x[:, :, mine].clone().requires_grad_() for x in (q, k, v)]
    out, lse = lt.ring_attention(*part, causal=True, return_lse=True)
    (out.sum() + lse.sin().sum()).backward()
    for x, full in zip(part, whole, strict=True):
        assert error(x.grad, full.grad[:, :, mine]) <= GRADIENT


def refusals(rank, ranks):
    q, k, v, _ = inputs()
    last = rank == ranks - 1
    with pytest.raises(ValueError, match="no sharding 'spiral'"):
        lt.ring_attention(q, k, v, sharding="spiral")
    with pytest.raises(ValueError, match="same causal: rank 0 has False"):
        lt.ring_attention(q, k, v, causal=last)
    with pytest.raises(ValueError, match="same head dim"):
        lt.ring_attention(*([x[..., :4] for x in (q, k, v)] if last else (q, k, v)))
    with pytest.raises(ValueError, match="same encoding"):
        rope = lt.Rope(DIM, layout="halves") if last else None
        lt.ring_attention(q, k, v, rope)
    # Encodings of `locus`: other frequencies, other tables.
    base = 10_001.0 if last else 10_000.0
    with pytest.raises(ValueError, match=r"same encoding: .* gives other scores"):
        lt.ring_attention(q, k, v, locus.Rope(DIM, "halves", base=base))
    table = torch.zeros(32, HEADS).numpy()
    table[31] = last
    with pytest.raises(ValueError, match="same parameters of the encoding"):
        lt.ring_attention(q, k, v, locus.T5Bias(table))
    with pytest.raises(ValueError, match="same key lengths"):
        lt.ring_attention(q, k, v, key_lengths=[3, 4 + last])
    with pytest.raises(ValueError, match=r"key_lengths must be \[2\], got \[3\]"):
        lt.ring_attention(q, k, v, key_lengths=[3, 4, 5])
    total = ranks * LENGTH
    with pytest.raises(ValueError, match=r"prefix_lengths must lie in \[0, "):
        lt.ring_attention(q, k, v, prefix_lengths=[3, total + 1])
    with pytest.raises(ValueError, match="same seed: rank 0 has 0 and rank"):
        lt.ring_attention(q, k, v, dropout=0.5, seed=int(last))
    with pytest.raises(ValueError, match="same sinks"):
        lt.ring_attention(q, k, v, sinks=torch.full((HEADS,), float(last)))
    with pytest.raises(ValueError, match="same key_bias, batch and heads: rank 0 has"):
        lt.ring_attention(q, k, v, key_bias=None if last else q[:, :, :, 0])
    with pytest.raises(ValueError, match="same mask, given or not"):
        keep = torch.ones(1, total, dtype=torch.bool)
        lt.ring_attention(q, k, v, mask=None if last else keep)
    # Packed positions that fall between ranks alone.
    where = torch.tensor(
        [locus.pack_position(ranks - rank, 1, i) for i in range(LENGTH)]
    )
    with pytest.raises(ValueError, match="do not rise from token to token"):
        mrope = lt.MRope(DIM, "halves", [DIM // 2, 0, 0])
        options = {"q_positions": where, "k_positions": where}
        lt.ring_attention(q, k, v, mrope, causal=True, **options)
    with pytest.raises(ValueError, match="zigzag sharding of"):
        cut = slice(0, 1 if last else LENGTH)
        lt.ring_attention(q[:, :, cut], k, v, sharding="zigzag")


def one_sees(rank, ranks):
    """What one rank alone finds wrong is raised on all of them, at once."""
    q, k, v, d_out = inputs()
    last = rank == ranks - 1
    theirs = f"^rank {ranks - 1}: "
    with pytest.raises(TypeError, match=theirs + "q must be"):
        lt.ring_attention(q.to(torch.int32) if last else q, k, v)
    with pytest.raises(TypeError, match=theirs + "k must be a torch.Tensor"):
        lt.ring_attention(q, None if last else k, v)
    with pytest.raises(ValueError, match=theirs + ".* do not fit each other"):
        lt.ring_attention(q, k, v[:, :, 1:] if last else v)
    with pytest.raises(ValueError, match=theirs + r"q_positions must be \[37\]"):
        where = torch.arange(LENGTH)
        lt.ring_attention(q, k, v, q_positions=where[last:], k_positions=where)
    with pytest.raises(ValueError, match=theirs + "pair_bias must be over the"):
        lt.ring_attention(
            q, k, v, pair_bias=torch.zeros(1, 1, 1, ranks * LENGTH + last)
        )
    with pytest.raises(ValueError, match=theirs + r"sinks must be \[4\], got \[3\]"):
        lt.ring_attention(q, k, v, sinks=torch.zeros(HEADS - last))
    # Found by the engine, in the midst of the ring.
    with pytest.raises(ValueError, match=theirs + ".*positions"):
        far = torch.full((LENGTH,), 2**62 if last else 0)
        lt.ring_attention(q, k, v, q_positions=far, k_positions=where)
    part = [x.clone().requires_grad_() for x in (q, k, v)]
    out = lt.ring_attention(*part)
    backward = locus.attention_backward

    def fails(*_, **__):
        raise MemoryError("there is no more")

    locus.attention_backward = fails if last else backward
    with pytest.raises(MemoryError, match=theirs + "there is no more"):
        out.backward(d_out)
    locus.attention_backward = backward
    # The group works as before.
    lt.ring_attention(*part).backward(d_out)


def arrives(rank, ranks):
    """No rank leaves the group while another still talks to it.

    Gloo ends a process whose peer has closed its connections early.
    """
    dist.barrier()


def worker(rank, ranks, folder, names):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(seconds=120),
    )
    for name in names:
        globals()[name](rank, ranks)
    dist.destroy_process_group()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_equal_one_process(ranks):
    names = ["every_encoding", "every_option", "every_operand", "operand_forms"]
    if ranks > 1:
        names += ["uneven", "gradient_of_lse", "refusals", "one_sees", "arrives"]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (ranks, folder, names), nprocs=ranks)


def stalled(rank, ranks):
    q, k, v, _ = inputs()
    mine = lt.ring_shard("contiguous", LENGTH, rank, ranks)
    lt.ring_attention(*(x[:, :, mine] for x in (q, k, v)))
    if rank == 1:
        os._exit(3)  # without a word
    with pytest.raises(RuntimeError):
        lt.ring_attention(*(x[:, :, mine] for x in (q, k, v)))


def test_a_dead_rank_ends_the_others():
    """The rank that is left raises within the group's timeout."""
    with tempfile.TemporaryDirectory() as folder:
        context = mp.spawn(worker, (2, folder, ["stalled"]), nprocs=2, join=False)
        left, dead = context.processes
        left.join(240)
        dead.join(240)
        assert dead.exitcode == 3
        assert left.exitcode == 0  # it saw the error that it expected


def test_shards_cover_the_sequence():
    for sharding in SHARDINGS:
        for length in (0, 1, 13, 64):
            shards = [lt.ring_shard(sharding, length, r, 5) for r in range(5)]
            tokens = torch.cat(shards).sort().values
            assert torch.equal(tokens, torch.arange(length))


assert LENGTH < REACH
