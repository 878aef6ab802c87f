"""Decoding with a cache equals one run over the whole sequence."""

import numpy as np
import pytest

import locus
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
