"""locus.Custom: functions of the offset, against the formula with all pairs."""

import copy
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus
import naive

HEADS, KV_HEADS, DIM, VALUE_DIM, LENGTH = 4, 2, 8, 6, 17
RNG = np.random.default_rng(7)
SIGMA = np.array([1.0, 2.0, 4.0, 9.0])


def gauss(offsets):
    return -(offsets**2) / (2 * SIGMA[:, None] ** 2)


def waves(offsets, dim=DIM):
    """[n, dim], the same for all heads."""
    return 0.5 * np.sin(0.3 * np.arange(1, dim + 1) * offsets[:, None])


def tall_waves(offsets):
    return SIGMA[:, None, None] * waves(offsets) / 4


def value_waves(offsets):
    return waves(offsets, VALUE_DIM)


TABLES = {
    "bias": gauss,
    "q_table": waves,
    "k_table": tall_waves,
    "v_table": value_waves,
}


def qkv(q_len=LENGTH, k_len=LENGTH, dtype=np.float32):
    shapes = [(HEADS, q_len, DIM), (KV_HEADS, k_len, DIM), (KV_HEADS, k_len, VALUE_DIM)]
    return [RNG.standard_normal((2, *s)).astype(dtype) for s in shapes]


def formula(q, k, v, functions, *, causal=False, m=None, n=None, scale=None):
    """out [B, Hq, Lq, Dv] in float64, every pair of query and key in memory."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = HEADS // KV_HEADS
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    n = np.arange(k.shape[2]) if n is None else n
    m = np.arange(q.shape[2]) + k.shape[2] - q.shape[2] if m is None else m
    offset = m[:, None] - n[None, :]

    def pairs(name, rank):
        """[H, Lq, Lk, ..], each pair asked for by itself."""
        rows = np.asarray(functions[name](offset.reshape(-1)), np.float64)
        rows = np.broadcast_to(rows, (HEADS, *rows.shape[-rank + 1 :]))
        return rows.reshape(HEADS, *offset.shape, *rows.shape[2:])

    s = np.einsum("bhmd,bhnd->bhmn", q, k)
    if "q_table" in functions:
        s = s + np.einsum("bhmd,hmnd->bhmn", q, pairs("q_table", 3))
    if "k_table" in functions:
        s = s + np.einsum("bhnd,hmnd->bhmn", k, pairs("k_table", 3))
    s *= DIM**-0.5 if scale is None else scale
    if "bias" in functions:
        s = s + pairs("bias", 2)
    if causal:
        s = np.where(offset >= 0, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    out = np.einsum("bhmn,bhnd->bhmd", p, v)
    if "v_table" in functions:
        out = out + np.einsum("bhmn,hmnd->bhmd", p, pairs("v_table", 3))
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("names", [[n] for n in TABLES] + [list(TABLES)])
def test_formula(names, causal):
    functions = {name: TABLES[name] for name in names}
    own = locus.Custom(**functions)
    for q, k, v in (qkv(), qkv(5, 11)):
        got = locus.attention(q, k, v, own, causal=causal)
        naive.close(got, formula(q, k, v, functions, causal=causal), factor=8.0)
    q, k, v = qkv(dtype=ml_dtypes.bfloat16)
    got = locus.attention(q, k, v, own, causal=causal)
    want = formula(q, k, v, functions, causal=causal)
    assert np.abs(got.astype(np.float64) - want).max() <= 2.0**-8 * np.abs(want).max()


def test_scattered_positions():
    q, k, v = qkv(5, 11)
    m, n = (np.sort(RNG.permutation(60)[:count]) - 20 for count in (5, 11))
    got = locus.attention(q, k, v, locus.Custom(**TABLES), q_positions=m, k_positions=n)
    naive.close(got, formula(q, k, v, TABLES, m=m, n=n), factor=8.0)


def test_with_terms():
    """What is no function comes from terms, also as a dict."""
    q, k, v = qkv()
    rope = {"theta": locus.Rope(DIM, "halves").frequencies(), "layout": "halves"}
    table = gauss(np.arange(LENGTH))
    want = locus.attention(
        q, k, v, locus.Terms(**rope, bias=table, first_offset=0), causal=True
    )
    for own in (
        locus.Custom(locus.Terms(**rope), bias=gauss),
        locus.Custom(rope, bias=gauss),
    ):
        assert np.array_equal(locus.attention(q, k, v, own, causal=True), want)
        assert own.params().keys() == {"theta"}
    assert np.array_equal(
        locus.attention(q, k, v, locus.Custom(gauss), causal=True),
        locus.attention(q, k, v, locus.Custom(bias=gauss), causal=True),
    )


def test_a_function_sees_every_offset_once():
    q, k, v = qkv(3, 11)
    seen = []

    def bias(offsets):
        seen.append(offsets.copy())
        return -np.abs(offsets)

    locus.attention(q, k, v, locus.Custom(bias), causal=True)
    locus.attention(q, k, v, locus.Custom(bias), q_positions=[5, 6, 7])
    assert [x.dtype for x in seen] == [np.int64, np.int64]
    assert np.array_equal(seen[0], np.arange(11))
    assert np.array_equal(seen[1], np.arange(-5, 8))


def test_gradients():
    """The chain rule leads to the gradient of sigma."""
    q, k, v = qkv()
    own = locus.Custom(locus.Terms(slopes=None), bias=gauss, v_table=value_waves)
    out, lse = locus.attention(q, k, v, own, causal=True, return_lse=True)
    d_out = RNG.standard_normal(out.shape).astype(np.float32)
    *_, d_params = locus.attention_backward(d_out, q, k, v, out, lse, own, causal=True)
    assert d_params["bias"].shape == (HEADS, LENGTH)
    offsets = np.arange(LENGTH)
    got = (d_params["bias"] * offsets**2 / SIGMA[:, None] ** 3).sum(1)
    rows = d_params["v_table"].reshape(LENGTH, VALUE_DIM)

    def loss(sigma, value_gain=1.0):
        functions = {
            "bias": lambda x: -(x**2) / (2 * sigma[:, None] ** 2),
            "v_table": lambda x: value_gain * value_waves(x),
        }
        return (formula(q, k, v, functions, causal=True) * d_out).sum()

    for h in range(HEADS):
        step = np.where(np.arange(HEADS) == h, 1e-5, 0.0)
        want = (loss(SIGMA + step) - loss(SIGMA - step)) / 2e-5
        assert got[h] == pytest.approx(want, rel=1e-4, abs=1e-4)
    want = (loss(SIGMA, 1 + 1e-5) - loss(SIGMA, 1 - 1e-5)) / 2e-5
    assert (rows * value_waves(offsets)).sum() == pytest.approx(want, rel=1e-4)


def test_decoding_equals_the_whole():
    q, k, v = qkv()
    own = locus.Custom(**TABLES)
    whole = locus.attention(q, k, v, own, causal=True).astype(np.float64)
    cache = locus.KvCache(KV_HEADS, DIM, VALUE_DIM, batch=2, q_heads=HEADS)
    for at in (slice(0, 9), slice(9, 10), slice(10, LENGTH)):
        cache.append(k[:, :, at], v[:, :, at], own)
        got = cache.decode(q[:, :, at], own)
        naive.close(got, whole[:, :, at], factor=8.0)


def test_threads_share_a_cache():
    """A function needs the interpreter while the cache is locked."""
    q, k, v = qkv()
    cache = locus.KvCache(KV_HEADS, DIM, VALUE_DIM, batch=2, q_heads=HEADS)
    own = locus.Custom(gauss)
    cache.append(k, v, own)
    want = cache.decode(q, own)
    same = []

    def work():
        for _ in range(50):
            same.append(np.array_equal(cache.decode(q, own), want))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(same) == 200 and all(same)


def test_copies_check_and_explain():
    own = locus.Custom({"scale": 0.5}, bias=gauss)
    q, k, v = qkv()
    want = locus.attention(q, k, v, own)
    copies = [copy.copy(own), copy.deepcopy(own), pickle.loads(pickle.dumps(own))]
    for other in (*copies, own.with_params(own.params())):
        assert type(other) is locus.Custom
        assert np.array_equal(locus.attention(q, k, v, other), want)
    assert repr(own).startswith("locus.Custom(locus.Terms(scale=0.5")
    assert "bias=<function gauss" in repr(own)
    report = locus.check(locus.Custom(gauss), heads=HEADS, head_dim=DIM, length=32)
    assert report["relative"].verdict == "yes"
    assert report["direction"].verdict == "no"
    assert "custom" in locus.explain(own, heads=HEADS, head_dim=DIM)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: locus.Custom(3),
            "terms must be a Terms, a dict of its arguments or a function, got 3",
        ),
        (lambda: locus.Custom(bias=3), "bias must be a function, got 3"),
        (lambda: locus.Custom(gauss, bias=gauss), "both functions for the bias"),
        (
            lambda: locus.Custom(locus.Terms(bias=[[1.0]]), bias=gauss),
            "terms already has a bias",
        ),
        (
            lambda: locus.Custom({"slopes": [1.0] * 4}, bias=gauss),
            "terms already has a bias",
        ),
        (lambda: locus.Custom({"no": 1}), "no"),
    ],
)
def test_refusals(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x: x[1:], ValueError, r"bias\(offsets\) must be \[17\]"),
        (lambda x: np.zeros((4, 4, 17)), ValueError, r"\[17\] or \[heads, 17\]"),
        (lambda x: np.zeros((3, 17)), ValueError, "3"),
        (lambda x: None, ValueError, "None"),
        (lambda x: "text", TypeError, "str"),
        (lambda x: np.full(17, np.nan), ValueError, "not finite: nan"),
        (lambda x: 1 // 0, ZeroDivisionError, "by zero"),
    ],
)
def test_what_functions_give(function, error, words):
    q, k, v = qkv()
    with pytest.raises(error, match=words):
        locus.attention(q, k, v, locus.Custom(function), causal=True)
    # The engine is as it was.
    naive.close(
        locus.attention(q, k, v, locus.Custom(gauss)),
        formula(q, k, v, {"bias": gauss}),
        factor=8.0,
    )


def test_offsets_without_end():
    """Positions far apart would need a table that no memory holds."""
    q, k, v = qkv(1, 2)
    with pytest.raises((MemoryError, ValueError), match="offsets"):
        locus.attention(
            q, k, v, locus.Custom(gauss), q_positions=[2**52], k_positions=[0, 2**52]
        )
