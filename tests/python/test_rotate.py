"""rotate and rotate_with against the formula."""

import numpy as np
import pytest

import locus_attn as locus

RNG = np.random.default_rng(11)
EPS = 2.0**-23


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def turned(x, cos, sin, layout, rotary_dim):
    """cos, sin [..., L, rotary_dim / 2] broadcast over x [..., L, D]."""
    x = x.astype(np.float64)
    out = x.copy()
    r = rotary_dim
    first = slice(0, r // 2) if layout == "halves" else slice(0, r, 2)
    second = slice(r // 2, r) if layout == "halves" else slice(1, r, 2)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def angles(at, rotary_dim, base=10000.0):
    half = rotary_dim // 2
    return np.asarray(at)[..., None] * base ** (-np.arange(half) / half)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [32, 16])
@pytest.mark.parametrize("first", [0, 1_000_000])
def test_rotate(layout, rotary_dim, first):
    x = normal(2, 3, 7, 32)
    at = first + np.stack([np.arange(7), 5 + np.arange(7)])
    encoding = locus.Rope(32, layout, rotary_dim=rotary_dim)
    a = angles(at, rotary_dim)[:, None]
    want = turned(x, np.cos(a), np.sin(a), layout, rotary_dim)
    got = locus.rotate(x, encoding, at)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * EPS * np.abs(x).max())
    back = locus.rotate(got, encoding, at, inverse=True)
    np.testing.assert_allclose(back, x, rtol=0, atol=8 * EPS * np.abs(x).max())


@pytest.mark.parametrize("axes", ["BHLD", "BLHD"])
@pytest.mark.parametrize("layout", ["halves", "interleaved"])
@pytest.mark.parametrize("doubled", [False, True])
def test_rotate_with(axes, layout, doubled):
    x = normal(2, 3, 7, 32)  # B H L D
    at = RNG.integers(0, 50, (2, 7))
    a = angles(np.arange(50), 16)
    cos, sin = np.cos(a).astype(np.float32), np.sin(a).astype(np.float32)
    want = turned(x, cos[at][:, None], sin[at][:, None], layout, 16)
    if doubled:
        twice = (
            (lambda t: np.concatenate([t, t], -1))
            if layout == "halves"
            else (lambda t: np.repeat(t, 2, -1))
        )
        cos, sin = twice(cos), twice(sin)
    given = x if axes == "BHLD" else np.ascontiguousarray(x.transpose(0, 2, 1, 3))
    got = locus.rotate_with(
        given, cos, sin, layout=layout, rotary_dim=16, positions=at, axes=axes
    )
    assert got.shape == given.shape
    again = given.copy()
    locus.rotate_with(
        again,
        cos,
        sin,
        layout=layout,
        rotary_dim=16,
        positions=at,
        axes=axes,
        inplace=True,
    )
    np.testing.assert_array_equal(again, got)
    if axes == "BLHD":
        got = got.transpose(0, 2, 1, 3)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * EPS * np.abs(x).max())


def test_in_place_and_fewer_axes():
    encoding = locus.Rope(32, "halves")
    x = normal(7, 32)
    want = locus.rotate(x[None, None], encoding)[0, 0]
    np.testing.assert_array_equal(locus.rotate(x, encoding), want)
    y = x.copy()
    assert locus.rotate(y, encoding, inplace=True) is y
    np.testing.assert_array_equal(y, want)
    z = np.ascontiguousarray(normal(7, 3, 32))  # L H D
    np.testing.assert_array_equal(
        locus.rotate(z, encoding, axes="LHD"),
        locus.rotate(z.transpose(1, 0, 2), encoding).transpose(1, 0, 2),
    )


def test_several_coordinates():
    x = normal(1, 2, 12, 16)
    encoding = locus.Rope2D(16, "halves", width=4)
    at = np.arange(12)
    y, x_at = angles(at // 4, 8), angles(at % 4, 8)
    a = np.concatenate([y, x_at], -1)
    want = turned(x, np.cos(a), np.sin(a), "halves", 16)
    got = locus.rotate(x, encoding)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * EPS * np.abs(x).max())
    text = locus.MRope(16, "halves", (4, 2, 2))
    packed = [locus.pack_position(p, p, p) for p in range(12)]
    a = angles(at, 16, 1e6)
    want = turned(x, np.cos(a), np.sin(a), "halves", 16)
    got = locus.rotate(x, text, packed)
    np.testing.assert_allclose(got, want, rtol=0, atol=4 * EPS * np.abs(x).max())


def test_axial_frequencies():
    x = np.ones((1, 1, 1, 16), np.float32)

    def angles(position, **options):
        turned = locus.rotate(x, locus.Rope2D(16, "halves", 4, **options), [position])
        first, second = turned[0, 0, 0].reshape(2, 8)
        return np.arctan2(second, first) - np.pi / 4

    whole = 10000.0 ** (-np.arange(8) / 8)
    none = np.zeros(4)
    rows, odd = whole[0::2], whole[1::2]
    for options, columns in ({}, rows), ({"frequencies": "alternating"}, odd):
        np.testing.assert_allclose(angles(4, **options), [*rows, *none], atol=1e-6)
        np.testing.assert_allclose(angles(1, **options), [*none, *columns], atol=1e-6)
    with pytest.raises(ValueError, match='frequencies must be "shared" or'):
        locus.Rope2D(16, "halves", 4, frequencies="odd")


def test_mistakes():
    x = normal(1, 2, 5, 32)
    rope = locus.Rope(32, "halves")
    with pytest.raises(ValueError, match="alibi does not rotate"):
        locus.rotate(x, locus.Alibi(2))
    with pytest.raises(ValueError, match=r"\[5\] or \[1, 5\], got \[3\]"):
        locus.rotate(x, rope, [0, 1, 2])
    with pytest.raises(ValueError, match='"LBHD"'):
        locus.rotate(x, rope, axes="LBHD")
    with pytest.raises(ValueError, match="32"):
        locus.rotate(normal(1, 2, 5, 16), rope)
    cos = np.ones((4, 16), np.float32)
    with pytest.raises(TypeError):
        locus.rotate_with(x, cos, cos)  # no layout
    with pytest.raises(ValueError, match="4"):
        locus.rotate_with(x, cos, cos, layout="halves", positions=[0, 1, 2, 3, 4])
