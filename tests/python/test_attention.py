"""attention and its gradients against the textbook in float64."""

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus
import naive

RNG = np.random.default_rng(7)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def qkv(batch=2, heads=4, kv_heads=2, q_len=17, k_len=23, dim=24, value_dim=None):
    return (
        normal(batch, heads, q_len, dim),
        normal(batch, kv_heads, k_len, dim),
        normal(batch, kv_heads, k_len, value_dim or dim),
    )


OPTIONS = {
    "plain": {},
    "causal": {"causal": True},
    "scale": {"scale": 0.3},
    "window": {"window": (5, 2)},
    "softcap": {"softcap": 3.0},
    "lengths": {"key_lengths": [23, 9]},
    "no keys for one": {"key_lengths": [0, 9]},
    "causal lengths": {"key_lengths": [23, 9], "causal": True},
    "positions": {
        "q_positions": 100_003 + 2 * np.arange(17),
        "k_positions": 100_000 + 3 * np.arange(23),
        "causal": True,
    },
    "positions of each": {
        "q_positions": np.stack([np.arange(17), 50 + np.arange(17)]),
        "k_positions": np.stack([np.arange(23), 40 + np.arange(23)]),
        "causal": True,
    },
    "segments": {
        "q_segments": [0] * 8 + [1] * 9,
        "k_segments": [0] * 11 + [1] * 12,
    },
    "all": {
        "causal": True,
        "window": (9, 0),
        "softcap": 5.0,
        "scale": 0.5,
        "key_lengths": [20, 23],
    },
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_options(name, dtype):
    to = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    q, k, v = (x.astype(to) for x in qkv())
    out, lse = locus.attention(q, k, v, return_lse=True, **OPTIONS[name])
    want, want_lse = naive.attention(q, k, v, **OPTIONS[name])
    assert out.dtype == q.dtype and lse.dtype == np.float32
    naive.close(out, want, dtype, dim=24)
    naive.close(lse, want_lse, dim=24)


@pytest.mark.parametrize("q_len", [1, 17, 81])
@pytest.mark.parametrize("causal", [False, True])
def test_int_window_is_hugging_faces(q_len, causal):
    q, k, v = qkv(q_len=q_len, k_len=81)
    got = locus.attention(q, k, v, causal=causal, window=7)
    want, _ = naive.attention(q, k, v, causal=causal, window=(6, 0 if causal else 6))
    naive.close(got, want, dim=24)


def rope(x, positions, base=10000.0):
    """Halves: (a, b) -> (a cos - b sin, a sin + b cos)."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * base ** (-np.arange(half) / half)
    a, b = np.asarray(x, np.float64)[..., :half], np.asarray(x, np.float64)[..., half:]
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


@pytest.mark.parametrize("first", [0, 100_000])
def test_rope(first):
    q, k, v = qkv(q_len=23)
    at = first + np.arange(23)
    got = locus.attention(
        q, k, v, locus.Rope(24, "halves"), causal=True, q_positions=at, k_positions=at
    )
    want, _ = naive.attention(rope(q, at), rope(k, at), v, causal=True)
    naive.close(got, want, dim=24)


def test_alibi():
    q, k, v = qkv()
    slopes = 2.0 ** (-8 * np.arange(1, 5) / 4)
    want, _ = naive.attention(
        q, k, v, bias=lambda _, m, n: -slopes[:, None, None] * np.abs(m - n)
    )
    naive.close(locus.attention(q, k, v, locus.Alibi(4)), want, dim=24)


def t5_bucket(rel, buckets=32, far=128):
    """The bidirectional map of Raffel et al.; rel = n - m."""
    half = buckets // 2
    n = np.abs(rel)
    exact = half // 2
    with np.errstate(divide="ignore"):
        log = exact + (
            np.log(np.float32(n) / np.float32(exact))
            / np.float32(np.log(far / exact))
            * np.float32(half - exact)
        ).astype(np.float32)
    log = np.minimum(np.where(n < exact, 0, log).astype(np.int64), half - 1)
    return np.where(rel > 0, half, 0) + np.where(n < exact, n, log)


def test_t5():
    q, k, v = qkv(q_len=300, k_len=300)
    table = normal(32, 4)
    got = locus.attention(q, k, v, locus.T5Bias(table, bidirectional=True), scale=1.0)
    want, _ = naive.attention(
        q,
        k,
        v,
        scale=1.0,
        bias=lambda _, m, n: table[t5_bucket(n - m)].transpose(2, 0, 1),
    )
    naive.close(got, want, dim=24)


def test_shaw():
    q, k, v = qkv()
    keys, values = normal(9, 24), normal(9, 24)
    clip = lambda m, n: np.clip(m - n, -4, 4) + 4  # noqa: E731
    got = locus.attention(q, k, v, locus.Shaw(keys, values))
    want, _ = naive.attention(
        q,
        k,
        v,
        bias=lambda q, m, n: np.einsum("hid,ijd->hij", q, keys[clip(m, n)]),
        values=lambda m, n: values[clip(m, n)],
    )
    naive.close(got, want, dim=24)


def numeric(f, x, d_out, step=1e-3):
    """Derivatives of sum(d_out f(x)) by central differences, in float64."""
    x = np.asarray(x, np.float64)
    grad = np.zeros_like(x)
    for i in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[i] += sign * step
            grad[i] += sign * (f(moved) * d_out).sum() / (2 * step)
    return grad


def test_backward_equals_differences():
    q, k, v = qkv(batch=1, heads=2, kv_heads=1, q_len=3, k_len=4, dim=8)
    table = normal(8, 2)
    encoding = locus.T5Bias(table, max_distance=16, bidirectional=True)
    out, lse = locus.attention(q, k, v, encoding, return_lse=True)
    d_out = normal(*out.shape)
    d_q, d_k, d_v, d_params = locus.attention_backward(
        d_out, q, k, v, out, lse, encoding
    )

    def f(q=q, k=k, v=v, table=table):
        bias = lambda _, m, n: np.asarray(table)[  # noqa: E731
            t5_bucket(n - m, 8, 16)
        ].transpose(2, 0, 1)
        return naive.attention(q, k, v, bias=bias)[0]

    # Differences of step h are off by h^2 times third derivatives.
    tolerance = {"rtol": 0, "atol": 30 * 1e-3**2}
    np.testing.assert_allclose(d_q, numeric(lambda x: f(q=x), q, d_out), **tolerance)
    np.testing.assert_allclose(d_k, numeric(lambda x: f(k=x), k, d_out), **tolerance)
    np.testing.assert_allclose(d_v, numeric(lambda x: f(v=x), v, d_out), **tolerance)
    assert list(d_params) == ["table"]
    assert d_params["table"].dtype == np.float32
    np.testing.assert_allclose(
        d_params["table"], numeric(lambda x: f(table=x), table, d_out), **tolerance
    )


def test_bits_do_not_depend_on_threads():
    q, k, v = qkv(q_len=200, k_len=200)
    encoding = locus.T5Bias(normal(32, 4))
    runs = []
    for threads in (1, 2, 3):
        out, lse = locus.attention(
            q, k, v, encoding, causal=True, return_lse=True, threads=threads
        )
        grads = locus.attention_backward(
            q, q, k, v, out, lse, encoding, causal=True, threads=threads
        )
        runs.append([out, lse, *grads[:3], grads[3]["table"]])
    for run in runs[1:]:
        for a, b in zip(runs[0], run, strict=True):
            assert np.array_equal(a, b)


def test_merge_joins_two_sets_of_keys():
    q, k, v = qkv(k_len=40)
    whole = locus.attention(q, k, v, locus.Alibi(4), return_lse=True)
    at = {"q_positions": np.arange(17) + 23}
    parts = [
        locus.attention(
            q,
            k[:, :, s],
            v[:, :, s],
            locus.Alibi(4),
            k_positions=np.arange(40)[s],
            return_lse=True,
            **at,
        )
        for s in (slice(0, 13), slice(13, 40))
    ]
    out, lse = locus.merge(*parts)
    naive.close(out, whole[0], dim=24)
    naive.close(lse, whole[1], dim=24)


def test_linear_attention():
    q, k, v = qkv(heads=2, kv_heads=2, q_len=23)
    phi = lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))  # noqa: E731
    f_q, f_k = phi(q.astype(np.float64)), phi(k.astype(np.float64))
    at = np.arange(23)
    numerator = np.einsum("bhid,bhjd->bhij", rope(f_q, at), rope(f_k, at))
    below = np.einsum("bhid,bhjd->bhij", f_q, f_k)
    mask = np.tril(np.ones((23, 23)))
    want = (numerator * mask) @ v / (below * mask).sum(-1, keepdims=True)
    got = locus.linear_attention(q, k, v, locus.Rope(24, "halves"), causal=True)
    naive.close(got, want, dim=24)
    given = locus.linear_attention(
        q, k, v, locus.Rope(24, "halves"), causal=True, feature_map=phi
    )
    naive.close(given, want, dim=24)
    with pytest.raises(ValueError, match=r"alibi|ALiBi"):
        locus.linear_attention(q, k, v, locus.Alibi(2))
