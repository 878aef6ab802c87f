"""What arrays may be: strides, types, frameworks; and what is said of others."""

import threading

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus
import naive

RNG = np.random.default_rng(3)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def test_any_strides_give_the_same_bits():
    wide = normal(2, 30, 4, 16)  # [B, L, H, D]
    x = wide.transpose(0, 2, 1, 3)
    want = locus.attention(*[np.ascontiguousarray(x)] * 3)
    assert np.array_equal(locus.attention(x, x, x), want)
    # Backwards, every other, and one head for all.
    back = normal(1, 2, 20, 32)[:, :, ::-1, ::2]
    assert np.array_equal(
        locus.attention(back, back, back),
        locus.attention(*[np.ascontiguousarray(back)] * 3),
    )
    one = np.broadcast_to(normal(1, 1, 20, 16), (1, 4, 20, 16))
    assert np.array_equal(
        locus.attention(one, one, one),
        locus.attention(*[np.ascontiguousarray(one)] * 3),
    )


def test_read_only_and_overlapping():
    x = normal(1, 2, 10, 8)
    x.setflags(write=False)
    assert np.isfinite(locus.attention(x, x, x)).all()
    line = normal(100)
    windows = np.lib.stride_tricks.as_strided(line, (1, 2, 10, 8), (0, 160, 16, 4))
    want, _ = naive.attention(windows, windows, windows)
    naive.close(locus.attention(windows, windows, windows), want, dim=8)
    with pytest.raises(ValueError, match="read-only"):
        locus.rotate(x, locus.Rope(8, "halves"), inplace=True)


@pytest.mark.parametrize("shape", [(1, 2, 0, 8), (0, 2, 5, 8)])
def test_empty(shape):
    x = np.zeros(shape, np.float32)
    assert locus.attention(x, x, x).shape == shape
    q = normal(1, 2, 3, 8)
    none = np.zeros((1, 2, 0, 8), np.float32)
    out, lse = locus.attention(q, none, none, return_lse=True)
    assert not out.any() and np.all(lse == -np.inf)


def test_types_are_kept():
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        x = normal(1, 2, 5, 8).astype(dtype)
        assert locus.attention(x, x, x).dtype == dtype
        assert locus.rotate(x, locus.Rope(8, "halves")).dtype == dtype
    x = normal(1, 2, 5, 8, dtype=np.float64)
    assert locus.rotate(x, locus.Rope(8, "halves")).dtype == np.float64


class OnlyDlpack:
    """An array of a framework that nobody has heard of."""

    def __init__(self, x):
        self.x = x

    def __dlpack__(self, **keywords):
        return self.x.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.x.__dlpack_device__()


def test_any_dlpack_producer():
    x = normal(1, 2, 5, 8)
    given = OnlyDlpack(x)
    got = np.from_dlpack(locus.attention(given, given, given))
    assert np.array_equal(got, locus.attention(x, x, x))


X = normal(1, 2, 5, 8)
MISTAKES = {
    "float64": (TypeError, "q is float64", lambda: (X.astype(np.float64), X, X)),
    "integers": (TypeError, "k must be an array of", lambda: (X, X.astype(int), X)),
    "a list": (TypeError, "v must be a NumPy array.*list", lambda: (X, X, [1.0])),
    "rank": (ValueError, r"\[2, 5, 8\]", lambda: (X[0], X, X)),
    "mixed types": (ValueError, "f16", lambda: (X, X.astype(np.float16), X)),
    "lengths differ": (ValueError, "do not match", lambda: (X, X[:, :, :3], X)),
    "heads": (ValueError, "heads|match", lambda: (X, normal(1, 3, 5, 8), X)),
    "byte order": (TypeError, "k .* elements are >f4", lambda: (X, X.astype(">f4"), X)),
    "objects": (TypeError, "v .* are object", lambda: (X, X, X.astype(object))),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_arrays(name):
    error, words, arguments = MISTAKES[name]
    with pytest.raises(error, match=words):
        locus.attention(*arguments())


KEYWORDS = {
    "encoding": (TypeError, "got str", {"encoding": "rope"}),
    "heads": (ValueError, "4 heads, but the call has 2", {"encoding": locus.Alibi(4)}),
    "window": (ValueError, "at least 1, got 0", {"window": 0}),
    "window type": (TypeError, "pair .left, right.*str", {"window": "5"}),
    "threads": (ValueError, "threads must be at least 1", {"threads": 0}),
    "scale": (ValueError, "nan", {"scale": float("nan")}),
    "softcap": (ValueError, "-1", {"softcap": -1.0}),
    "position shape": (
        ValueError,
        r"\[5\] or \[1, 5\], got \[4\]",
        {"q_positions": [0, 1, 2, 3]},
    ),
    "position type": (
        TypeError,
        "an element of k_positions must be an integer, got 0.0",
        {"k_positions": [0.0, 1, 2, 3, 4]},
    ),
    "lengths": (ValueError, "9", {"key_lengths": [9]}),
    "segments": (ValueError, "segments", {"q_segments": [0] * 5}),
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_mistakes_in_keywords(name):
    error, words, keywords = KEYWORDS[name]
    with pytest.raises(error, match=words):
        locus.attention(X, X, X, **keywords)


def test_many_threads_at_once():
    x = normal(1, 4, 200, 32)
    encoding = locus.T5Bias(normal(32, 4))
    want = locus.attention(x, x, x, encoding)
    results = [None] * 8

    def run(i):
        results[i] = locus.attention(x, x, x, encoding, threads=1)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(np.array_equal(r, want) for r in results)


def test_tables_outlive_their_names():
    def make():
        return locus.Shaw(normal(9, 16), normal(9, 16))

    encoding = make()
    _ = [normal(9, 16) for _ in range(100)]
    x = normal(1, 2, 12, 16)
    p = encoding.params()
    want = locus.attention(x, x, x, locus.Shaw(p["keys"].copy(), p["values"].copy()))
    assert np.array_equal(locus.attention(x, x, x, encoding), want)
