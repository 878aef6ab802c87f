"""Arguments for random calls: right ones, and wrong ones of every kind.

`good_*` make what a call wants, `odd_*` anything at all. All take the random
generator of the case.
"""

from __future__ import annotations

import array
import fractions
import random

import ml_dtypes
import numpy as np

FLOATS = (np.float32, np.float16, ml_dtypes.bfloat16)


class Raised(Exception):
    """What the objects of a caller raise: it is passed on as it is."""


class Hostile:
    """Every way to be taken for a number or an array, and each of them raises."""

    def _raise(self, *_, **__):
        raise Raised("mine")

    __index__ = __float__ = __int__ = __array__ = __dlpack__ = _raise
    __len__ = __iter__ = __getitem__ = __bool__ = __fspath__ = tolist = _raise


class Liar:
    """Says that it has a length, a shape and a type, and has none."""

    shape = (1, 2, 5, 8)
    dtype = "float32"
    ndim = 4

    def __len__(self):
        return 5

    def __getitem__(self, i):
        return 1.0

    def __dlpack__(self, **_):
        return 5

    def tolist(self):
        return self

    def __repr__(self):
        return "a\nliar\n" * 100


class Interface:
    """An address that leads nowhere."""

    __array_interface__ = {
        "shape": (2, 8),
        "typestr": "<f8",
        "data": (16, False),
        "version": 3,
    }


def chance(r: random.Random, p: float) -> bool:
    return r.random() < p


def numbers(r: random.Random, shape) -> np.ndarray:
    rng = np.random.default_rng(r.getrandbits(32))
    return rng.standard_normal(shape)


def strided(r: random.Random, x: np.ndarray) -> np.ndarray:
    """The same numbers under other strides."""
    way = r.randrange(6)
    if way == 0 and x.ndim > 1:
        a, b = r.sample(range(x.ndim), 2)
        return np.ascontiguousarray(x.swapaxes(a, b)).swapaxes(a, b)
    if way == 1 and x.ndim:
        axis = r.randrange(x.ndim)
        return np.flip(np.ascontiguousarray(np.flip(x, axis)), axis)
    if way == 2 and x.ndim:
        wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    if way == 3:
        x = x.copy()
        x.setflags(write=False)
        return x
    if way == 4:
        return np.asfortranarray(x)
    return x


def good_array(r: random.Random, shape, dtype=np.float32) -> np.ndarray:
    x = numbers(r, shape).astype(dtype)
    if x.ndim and chance(r, 0.1):
        axis = r.randrange(x.ndim)
        one = np.take(x, [0], axis) if x.shape[axis] else x
        x = np.broadcast_to(one, x.shape)
    return strided(r, x)


def good_ints(r: random.Random, shape, low=0, high=40) -> object:
    rng = np.random.default_rng(r.getrandbits(32))
    x = rng.integers(low, high, shape)
    way = r.randrange(5)
    if way == 0:
        return x.tolist()
    if way == 1:
        return x.astype(r.choice(["i4", ">i8", "i2", "u4"]) if low >= 0 else "i4")
    return strided(r, x)


def repeated(value, shape) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(np.array(value), shape, [0] * len(shape))


ODD_TYPES = (
    *("f8", "f4", "f2", "i8", "i4", "i2", "u1", "?", "c8", "c16", "g", "O"),
    *("M8[s]", "m8[s]", ">f4", ">f8", ">i8", "S3", "U2", "V4"),
)


def odd_array(r: random.Random, shape=(1, 2, 5, 8)) -> object:
    """An array that is wrong in one way or several."""
    if np.prod([float(max(n, 1)) for n in shape]) > 1e6:
        shape = (1, 2, 5, 8)
    way = r.randrange(10)
    if way == 0:
        x = np.zeros(shape, r.choice(ODD_TYPES))
        return strided(r, x)
    if way == 1:
        return np.zeros(shape, [("a", "u1"), ("b", "f4")])["b"]
    if way == 2:
        sizes = [r.choice([0, 1, 2, 3, 5, 8, 17]) for _ in range(r.randrange(7))]
        return good_array(r, sizes, r.choice([*FLOATS, np.float64]))
    if way == 3:
        value = r.choice([np.float32(1), np.float64(1), np.float32(np.nan)])
        sizes = list(shape) or [1]
        axis = r.randrange(len(sizes))
        sizes[axis] = r.choice([2**31, 2**33, 2**40, 2**58])
        while np.prod([float(max(n, 1)) for n in sizes]) * 8 >= 2**62:
            sizes[axis] //= 2
        return repeated(value, sizes)
    if way == 4:
        x = good_array(r, shape).copy()
        x.reshape(-1)[: r.choice([1, x.size])] = r.choice(
            [np.nan, np.inf, -np.inf, 3e38, 1e-45]
        )
        return x
    if way == 5:
        return np.ma.masked_array(np.zeros(shape), np.ones(shape))
    if way == 6:
        return np.zeros([1] * 40, np.float32)
    if way == 7:
        return np.frombuffer(b"\0" * 33, np.float32, 8, 1)
    if way == 8:
        return good_array(r, shape, r.choice([*FLOATS, np.float64])).tolist()
    return np.asarray(r.choice([1.0, 1, True, None, "a", 1j]))


def odd_value(r: random.Random) -> object:
    """Anything."""
    makers = (
        lambda: None,
        lambda: r.choice([True, False, np.True_]),
        lambda: odd_int(r),
        lambda: odd_float(r),
        lambda: odd_text(r),
        lambda: r.choice([b"", b"abc", bytearray(8), memoryview(b"abcdefgh")]),
        lambda: array.array(r.choice("fdqi"), [1, 2, 3]),
        lambda: r.choice([[], (), {}, set(), [[]], [[], [1]], [None], ["a"]]),
        lambda: tuple(odd_int(r) for _ in range(r.randrange(6))),
        lambda: [odd_float(r) for _ in range(r.randrange(6))],
        lambda: (1, (1, 2, 5, 8), (80, 40, 8, 1), "f32"),
        lambda: (x for x in (1, 2)),
        lambda: r.choice([range(5), range(2**40), range(-3, 3), slice(3)]),
        lambda: r.choice([np.datetime64("2020"), np.timedelta64(1, "s")]),
        lambda: r.choice([np.void(b"ab"), np.str_("x"), np.complex128(1)]),
        lambda: r.choice([object(), int, np.ndarray, len, np, ...]),
        lambda: Hostile(),
        lambda: Liar(),
        lambda: Interface(),
        lambda: [Interface()],
        lambda: odd_array(r),
        lambda: odd_array(r, (8, 2)),
        lambda: odd_array(r, (8,)),
    )
    return r.choice(makers)()


def odd_int(r: random.Random) -> object:
    edge = r.choice([0, 1, 2, 7, 8, 16, 24, 31, 32, 40, 53, 60, 62, 63, 64, 70])
    value = r.choice([1, -1]) * 2**edge + r.choice([-1, 0, 1])
    way = r.randrange(8)
    if way == 0:
        return float(value)
    if way == 1:
        return np.int64(value) if abs(value) < 2**63 else value
    if way == 2:
        return str(value)
    if way == 3:
        return bool(value)
    return value


def odd_size(r: random.Random) -> object:
    """For sizes that a call takes seriously: small, or beyond all memory."""
    value = odd_int(r)
    if isinstance(value, str) or abs(value) < 2**7 or abs(value) > 2**40:
        return value
    return 2**7


def odd_float(r: random.Random) -> object:
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 5e-324, 1e38, 1e300, 1.7e308, 2**0.5]
    values += [float("nan"), float("inf"), -float("inf"), 10**400, 1j]
    values += [fractions.Fraction(1, 3), np.float16(2), np.longdouble(3), True, "1.0"]
    return r.choice(values)


def odd_text(r: random.Random) -> object:
    words = ["", "halves", "interleaved", "Halves", "add", "rope", "bfloat16", "BLHD"]
    words += ["\0", "a\nb", "\ud800", "é" * 100, "x" * 10000, "LD", "linear", "%s{}"]
    return r.choice(words)
