"""Decoding with a cache equals one run over the whole sequence."""

import numpy as np
import pytest

import locus_attn as locus
import naive

RNG = np.random.default_rng(13)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", [i.name for i in locus.encodings()])
def test_token_by_token_equals_the_whole(name):
    info = next(i for i in locus.encodings() if i.name == name)
    encoding = info.example(heads=4, head_dim=16, length=32)
    q, k, v = normal(1, 4, 20, 16), normal(1, 2, 20, 16), normal(1, 2, 20, 16)
    whole = locus.attention(q, k, v, encoding, causal=True)
    cache = locus.KvCache(2, 16, q_heads=4)
    cache.append(k[:, :, :7], v[:, :, :7], encoding)
    rows = [cache.decode(q[:, :, :7], encoding)]
    for t in range(7, 20):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], encoding)
        rows.append(cache.decode(q[:, :, t : t + 1], encoding))
    assert len(cache) == 20 and cache.positions()[-1] == 19
    naive.close(np.concatenate(rows, 2), whole, dim=16)


def test_ragged_batch():
    rope = locus.Rope(16, "interleaved")
    q, k, v = normal(2, 2, 9, 16), normal(2, 2, 9, 16), normal(2, 2, 9, 16)
    cache = locus.KvCache(2, 16, batch=2)
    cache.append(k[:, :, :8], v[:, :, :8], rope, lengths=[8, 3])
    got = cache.decode(q[:, :, :1], rope)
    for b, n in enumerate([8, 3]):
        want = locus.attention(
            q[b : b + 1, :, :1], k[b : b + 1, :, :n], v[b : b + 1, :, :n], rope
        )
        naive.close(got[b : b + 1], want, dim=16)
    assert (cache.length(0), cache.length(1)) == (8, 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_storage(dtype):
    q, k, v = normal(1, 2, 1, 16), normal(1, 2, 30, 16), normal(1, 2, 30, 16)
    cache = locus.KvCache(2, 16, dtype=dtype)
    cache.append(k, v)
    assert str(cache.keys.dtype) == dtype
    want, _ = naive.attention(q, cache.keys, cache.values)
    naive.close(cache.decode(q), want, dim=16)


def test_int8():
    """Rows are within their bound, and attention is that over the stored rows."""
    rope = locus.Rope(16, "halves")
    q, k, v = normal(1, 4, 1, 16), normal(1, 2, 90, 16), normal(1, 2, 90, 16)
    cache = locus.KvCache(2, 16, dtype="int8", q_heads=4)
    cache.append(k, v, rope)
    for stored, exact in ((cache.keys, locus.rotate(k, rope)), (cache.values, v)):
        assert stored.dtype == np.float32
        bound = np.abs(exact).max(-1, keepdims=True) / 254
        assert (np.abs(stored - exact) <= bound * (1 + 1e-5)).all()
        assert np.abs(stored - exact).max() > 1e-3
    turned = locus.rotate(q, rope, [89])
    want, _ = naive.attention(turned, cache.keys, cache.values)
    # Where the CPU multiplies integers, queries and weights are int16.
    error = np.abs(cache.decode(q, rope) - want).max() / np.abs(want).max()
    assert error <= 16 * 2.0**-16
    k[0, 0, 7, 3] = np.nan
    cache.clear()
    cache.append(k, v, rope)
    out = cache.decode(q, rope)
    assert np.isnan(out[0, :2]).all() and np.isfinite(out[0, 2:]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_in_keys(dtype):
    """Latent attention: values are the first channels of the keys, stored once."""
    rope = locus.Rope(48, "interleaved", rotary_dim=16, place="trailing")
    q, k = normal(2, 4, 1, 48), normal(2, 1, 70, 48)
    options = {"batch": 2, "dtype": dtype, "q_heads": 4}
    cache = locus.KvCache(1, 48, 32, values_in_keys=True, **options)
    cache.append(k, encoding=rope)
    apart = locus.KvCache(1, 48, 32, **options)
    apart.append(k, k[..., :32], rope)
    assert np.array_equal(cache.decode(q, rope), apart.decode(q, rope))
    assert cache.values.shape == (2, 1, 70, 32)
    assert np.array_equal(cache.values, cache.keys[..., :32])
    with pytest.raises(ValueError, match="and no v"):
        cache.append(k, k[..., :32], rope)
    with pytest.raises(ValueError, match=r"rotate channels 0 \.\. 47"):
        cache.rerotate(locus.Rope(48, "halves"))


def test_another_table_is_refused_and_rerotated():
    q, k, v = normal(1, 2, 1, 16), normal(1, 2, 10, 16), normal(1, 2, 10, 16)
    old = locus.Rope(16, "halves")
    new = locus.Rope(16, "halves", base=5e5)
    cache = locus.KvCache(2, 16)
    cache.append(k, v, old)
    with pytest.raises(ValueError, match="table"):
        cache.decode(q, new)
    with pytest.raises(ValueError, match="table"):
        cache.append(k, v, new)
    assert len(cache) == 10
    cache.rerotate(new)
    naive.close(cache.decode(q, new), locus.attention(q, k, v, new), dim=16)
    cache.truncate(4)
    assert len(cache) == 4
    kept = cache.keys
    cache.clear()
    assert len(cache) == 0 and kept.shape == (1, 2, 4, 16)


def test_mistakes():
    cache = locus.KvCache(2, 16)
    with pytest.raises(ValueError, match='"float64"'):
        locus.KvCache(2, 16, dtype="float64")
    with pytest.raises(ValueError, match="0"):
        locus.KvCache(0, 16)
    with pytest.raises(ValueError):
        cache.append(normal(1, 3, 4, 16), normal(1, 3, 4, 16))
    with pytest.raises(TypeError, match="k is float64"):
        cache.append(np.zeros((1, 2, 4, 16)), normal(1, 2, 4, 16))


@pytest.mark.parametrize("queries", [1, 3, 12])
def test_key_lengths_are_those_of_attention(queries):
    """A sequence ends at its key length, for attention and decode alike."""
    rope = locus.Rope(16, "halves")
    lengths = [12, 7, 2, 0]
    q, k, v = normal(4, 2, queries, 16), normal(4, 2, 12, 16), normal(4, 2, 12, 16)
    cache = locus.KvCache(2, 16, batch=4)
    cache.append(k, v, rope)
    given = {"causal": True, "key_lengths": lengths}
    attended = locus.attention(q, k, v, rope, **given)
    np.testing.assert_allclose(cache.decode(q, rope, **given), attended, atol=2e-6)
    for b, n in enumerate(lengths):
        one = slice(b, b + 1)
        cut = locus.attention(q[one], k[one, :, :n], v[one, :, :n], rope, causal=True)
        naive.close(attended[one], cut, dim=16)


def test_evict_and_shift():
    """Tokens that are left attend as if they had been appended alone."""
    rope = locus.Rope(16, "halves")
    q, k, v = normal(2, 2, 1, 16), normal(2, 2, 60, 16), normal(2, 2, 60, 16)
    cache = locus.KvCache(2, 16, batch=2)
    cache.append(k, v, rope)
    cache.evict(4, 50)
    kept = [0, 1, 2, 3, *range(50, 60)]
    assert cache.positions(1) == kept
    want = locus.attention(
        q, k[:, :, kept], v[:, :, kept], rope, q_positions=[59], k_positions=kept
    )
    naive.close(cache.decode(q, rope), want, dim=16)
    cache.shift(-46, begin=4)
    assert cache.positions() == list(range(14))
    naive.close(
        cache.decode(q, rope),
        locus.attention(q, k[:, :, kept], v[:, :, kept], rope, causal=True),
        dim=16,
    )
    cache.evict(0, 10, 1)
    cache.shift(5, sequence=1, end=2)
    cache.truncate(3, sequence=1)
    assert cache.positions(1) == [15, 16, 12] and cache.length(0) == 14


def test_forks_are_independent():
    q, k, v = normal(1, 2, 1, 16), normal(1, 2, 10, 16), normal(1, 2, 10, 16)
    cache = locus.KvCache(2, 16, dtype="bfloat16")
    cache.append(k, v)
    fork = cache.fork()
    assert isinstance(fork, locus.KvCache) and len(fork) == 10
    before = cache.decode(q)
    assert np.array_equal(fork.decode(q), before)
    fork.append(k, v)
    fork.evict(0, 5)
    assert len(fork) == 15 and len(cache) == 10
    assert np.array_equal(cache.decode(q), before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.truncate(-1), "a cache cannot keep -1 tokens"),
        (lambda c: c.truncate(1, 3), "a cache of 1 sequences has no sequence 3"),
        (lambda c: c.evict(2, 9), r"tokens \[2, 9\) do not lie in \[0, 4\)"),
        (lambda c: c.evict(3, 2, 0), r"tokens \[3, 2\) do not lie in \[0, 4\)"),
        (lambda c: c.shift(2**62), "a shift by 4611686018427387904 takes position 0"),
        (lambda c: c.shift(1, begin=5), r"tokens \[5, 4\) do not lie in \[0, 4\)"),
    ],
)
def test_contradictions_change_nothing(change, words):
    cache = locus.KvCache(2, 16)
    cache.append(normal(1, 2, 4, 16), normal(1, 2, 4, 16))
    keys = cache.keys
    with pytest.raises(ValueError, match=words):
        change(cache)
    assert cache.positions() == [0, 1, 2, 3] and np.array_equal(cache.keys, keys)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("block_size", [1, 16])
def test_pages_equal_the_cache(dtype, block_size):
    """Blocks of the caller's own give the bits of the cache that they came from."""
    rope = locus.Rope(16, "halves")
    lengths = [50, 21]
    q, k, v = normal(2, 4, 3, 16), normal(2, 2, 50, 16), normal(2, 2, 50, 16)
    cache = locus.KvCache(2, 16, batch=2, dtype=dtype, q_heads=4)
    cache.append(k, v, rope, lengths=lengths)
    per_sequence = 50 // block_size + 1
    table = RNG.permutation(2 * per_sequence).reshape(2, per_sequence)
    pages = [np.zeros((2 * per_sequence, 2, block_size, 16), cache.keys.dtype)] * 2
    pages = [x.copy() for x in pages]
    for to, stored in zip(pages, (cache.keys, cache.values), strict=True):
        for b, n in enumerate(lengths):
            for i in range(n):
                block = table[b, i // block_size]
                to[block, :, i % block_size] = stored[b, :, i]
    got, lse = locus.decode_pages(q, *pages, table, lengths, rope, return_lse=True)
    want, want_lse = cache.decode(q, rope, return_lse=True)
    assert np.array_equal(got, want) and np.array_equal(lse, want_lse)
    # Engines that keep the heads of a token together.
    inside = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)) for x in pages]
    views = [x.transpose(0, 2, 1, 3) for x in inside]
    assert np.array_equal(locus.decode_pages(q, *views, table, lengths, rope), want)


def test_pages_take_what_a_cache_takes():
    """Whatever joins the scores of a cache joins those of pages, to the bit."""
    n, block_size = 40, 8
    q, k, v = normal(2, 4, 3, 16), normal(2, 2, n, 16), normal(2, 2, n, 16)
    rope = locus.Rope(16, "halves")
    cache = locus.KvCache(2, 16, batch=2, q_heads=4)
    cache.append(k, v, rope)
    table = np.arange(2 * n // block_size).reshape(2, -1)
    pages = [
        x.reshape(2, 2, -1, block_size, 16)
        .transpose(0, 2, 1, 3, 4)
        .reshape(-1, 2, block_size, 16)
        for x in (cache.keys, cache.values)
    ]
    operands = {
        "chunk": 16,
        "prefix_lengths": [3, 40],
        "mask": RNG.random((2, 1, 3, n)) < 0.8,
        "key_bias": normal(1, 4, n),
        "pair_bias": normal(2, 1, 3, n),
        "sinks": normal(4),
    }
    every = {**operands, "return_lse": True, "return_weights": True}
    for options in (*({name: x} for name, x in operands.items()), every):
        got = locus.decode_pages(q, *pages, table, [n, n], rope, **options)
        want = cache.decode(q, rope, **options)
        plain = cache.decode(q, rope)
        if options is not every:
            got, want = (got,), (want,)
        assert len(got) == len(want), options
        assert all(map(np.array_equal, got, want)), options
        assert not np.array_equal(want[0], plain), options
    shaw = locus.Shaw(normal(9, 4), None)
    r = normal(2, 4, 3, 4)
    bare = locus.KvCache(2, 16, batch=2, q_heads=4)
    bare.append(cache.keys, v)
    want = bare.decode(q, shaw, table_queries=r)
    got = locus.decode_pages(q, *pages, table, [n, n], shaw, table_queries=r)
    assert np.array_equal(got, want)


def test_pages_that_are_not_there():
    q, pages = normal(1, 2, 1, 16), normal(3, 2, 8, 16)
    for table, lengths, words in (
        ([[0, 3]], [9], "block 1 of sequence 0 is 3, but there are 3 blocks"),
        ([[0, 1]], [17], "sequence 0 has 2 blocks of 8 tokens, but length 17"),
        ([[0, 1]], [1, 2], "lengths"),
        ([0, 1], [1], "block_table"),
    ):
        with pytest.raises(ValueError, match=words):
            locus.decode_pages(q, pages, pages, table, lengths)
    with pytest.raises(TypeError, match="block_table"):
        locus.decode_pages(q, pages, pages, [[0.5]], [1])
