"""Every encoding as a class: construction, parameters, embeddings, the list."""

import numpy as np
import pytest

import locus_attn as locus

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_every_row_of_the_list_is_a_class_that_runs():
    x = normal(1, 4, 9, 16)
    for info in locus.encodings():
        assert issubclass(getattr(locus, info.class_name), locus.Encoding)
        assert info.formula and info.title and info.reference
        encoding = info.example(heads=4, head_dim=16, length=16)
        assert isinstance(encoding, getattr(locus, info.class_name))
        assert encoding.name == info.name
        assert info.class_name in repr(encoding)
        assert np.isfinite(locus.attention(x, x, x, encoding, causal=True)).all()
        assert bool(encoding.params()) == info.trainable
        assert encoding.name in locus.explain(encoding, heads=4, head_dim=16, length=9)


def test_params_go_round():
    x = normal(1, 4, 9, 16)
    for info in locus.encodings():
        if not info.trainable:
            continue
        encoding = info.example(heads=4, head_dim=16, length=16)
        params = {n: p.copy() for n, p in encoding.params().items()}
        again = encoding.with_params(params)
        want = locus.attention(x, x, x, encoding)
        assert np.array_equal(locus.attention(x, x, x, again), want)
        if info.reference == "absolute" and info.name == "learned":
            continue  # acts on the input, not in attention
        other = encoding.with_params({n: 0.5 * p for n, p in params.items()})
        assert not np.array_equal(locus.attention(x, x, x, other), want)
        with pytest.raises(ValueError, match="nonsense"):
            encoding.with_params({**params, "nonsense": params[next(iter(params))]})


def test_sinusoids():
    at = np.array([0, 1, 511, 100_003])
    dim = 64
    angle = at[:, None] / 10000 ** (2 * np.arange(dim // 2) / dim)
    got = locus.Sinusoidal(dim).embed(at)
    np.testing.assert_allclose(got[:, 0::2], np.sin(angle), rtol=0, atol=1e-10)
    np.testing.assert_allclose(got[:, 1::2], np.cos(angle), rtol=0, atol=1e-10)
    halves = locus.Sinusoidal(dim, layout="halves").embed(at)
    np.testing.assert_array_equal(halves[:, :32], got[:, 0::2])
    inclusive = locus.Sinusoidal(dim, layout="halves-inclusive").embed(at)
    angle = at[:, None] / 10000 ** (np.arange(32) / 31)
    np.testing.assert_allclose(inclusive[:, :32], np.sin(angle), rtol=0, atol=1e-10)


def test_learned():
    table = normal(10, 8)
    np.testing.assert_array_equal(
        locus.Learned(table, offset=2).embed([0, 7]), table[[2, 9]].astype(np.float64)
    )
    with pytest.raises(ValueError, match="8"):
        locus.Learned(table, offset=2).embed([8])
    bigger = locus.Learned(table).resized(20, "linear")
    assert bigger.params()["table"].shape == (20, 8)


def test_alibi_slopes():
    np.testing.assert_allclose(locus.Alibi.slopes(8), 2.0 ** -np.arange(1.0, 9))
    # 12 heads: those of 8, then every other of 16.
    np.testing.assert_allclose(
        locus.Alibi.slopes(12)[8:], 2.0 ** (-8 * np.array([1, 3, 5, 7]) / 16)
    )


def test_rope_frequencies_of_scalings():
    plain = 10000.0 ** (-np.arange(32) / 32)
    np.testing.assert_allclose(locus.Rope(64, "halves").frequencies(), plain)
    linear = locus.Rope(64, "halves", scaling={"rope_type": "linear", "factor": 4.0})
    np.testing.assert_allclose(linear.frequencies(), plain / 4)
    old = locus.Rope(64, "halves", scaling={"type": "linear", "factor": 4.0})
    np.testing.assert_array_equal(old.frequencies(), linear.frequencies())
    theta = locus.Rope(
        64, "halves", scaling={"rope_type": "default", "rope_theta": 5e5}
    )
    np.testing.assert_allclose(theta.frequencies(), 5e5 ** (-np.arange(32) / 32))
    dynamic = locus.Rope(
        64,
        "halves",
        scaling={
            "rope_type": "dynamic",
            "factor": 2.0,
            "max_position_embeddings": 2048,
        },
    )
    assert dynamic.changes_with_length
    np.testing.assert_allclose(dynamic.frequencies(2048), plain)
    base = 10000 * (2 * 4096 / 2048 - 1) ** (64 / 62)
    np.testing.assert_allclose(dynamic.frequencies(4096), base ** (-np.arange(32) / 32))
    yarn = locus.Rope(
        64,
        "halves",
        scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 2048,
        },
    )
    assert yarn.gain() == pytest.approx(0.1 * np.log(4.0) + 1)


MISTAKES = {
    "layout": (
        ValueError,
        '"interleaved" or "halves", got "half"',
        lambda: locus.Rope(64, "half"),
    ),
    "no layout": (TypeError, "layout", lambda: locus.Rope(64)),
    "odd": (ValueError, "63", lambda: locus.Rope(63, "halves")),
    "base": (ValueError, "nan", lambda: locus.Rope(64, "halves", base=float("nan"))),
    "unused key": (
        ValueError,
        'does not use "beta"',
        lambda: locus.Rope(
            64, "halves", scaling={"rope_type": "linear", "factor": 2.0, "beta": 1}
        ),
    ),
    "missing key": (
        ValueError,
        'needs "factor"',
        lambda: locus.Rope(64, "halves", scaling={"rope_type": "linear"}),
    ),
    "wrong type": (
        TypeError,
        'scaling."factor".*four',
        lambda: locus.Rope(
            64, "halves", scaling={"rope_type": "linear", "factor": "four"}
        ),
    ),
    "unknown": (
        ValueError,
        '"ntk"',
        lambda: locus.Rope(64, "halves", scaling={"rope_type": "ntk"}),
    ),
    "contradiction": (
        ValueError,
        '"yarn".*"linear"',
        lambda: locus.Rope(
            64, "halves", scaling={"rope_type": "yarn", "type": "linear"}
        ),
    ),
    "even shaw": (ValueError, "8 rows", lambda: locus.Shaw(normal(8, 4))),
    "no table": (TypeError, "table must be", lambda: locus.T5Bias("x")),
    "nan slopes": (
        ValueError,
        "nan",
        lambda: locus.Alibi(2, slopes=[1.0, float("nan")]),
    ),
    "nan table": (
        ValueError,
        r"table f64 \[2, 2\] holds a value that is not finite: nan",
        lambda: locus.T5Bias([[1.0, 2.0], [float("nan"), 3.0]]),
    ),
    "infinite column": (
        ValueError,
        r"rows f32 \[4, 2\].*: -inf",
        lambda: locus.KeyOffset(np.full((4, 4), -np.inf, np.float32)[:, ::2]),
    ),
    "kernel": (
        ValueError,
        '"cubic"',
        lambda: locus.Learned(normal(4, 4)).resized(8, "cubic"),
    ),
    "not an input": (ValueError, "alibi", lambda: locus.Alibi(2).embed([0])),
    "cope": (ValueError, "CoPE is outside", lambda: locus.check("cope")),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    error, words, make = MISTAKES[name]
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_parameters_are_finite(dtype, value):
    for info in locus.encodings():
        encoding = info.example(heads=4, head_dim=16, length=16)
        good = {n: np.array(p, dtype) for n, p in encoding.params().items()}
        for name in good:
            bad = {n: p.copy() for n, p in good.items()}
            bad[name].flat[-1] = value
            with pytest.raises(ValueError, match=rf"^{name} .* not finite: {value}$"):
                encoding.with_params(bad)


def test_check():
    report = locus.check("alibi")
    assert report["relative"].verdict == "yes"
    assert locus.check(locus.Sinusoidal(512))["relative"].verdict == "no"
    assert "decays" in repr(report)
    with pytest.raises(ValueError, match="shiny"):
        report["shiny"]
