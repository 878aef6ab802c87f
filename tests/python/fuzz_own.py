"""Arguments of encodings of a caller's own: locus.Terms, and functions of PyTorch."""

from __future__ import annotations

import random

import numpy as np
from fuzz_values import FLOATS, Raised, chance, good_array, good_ints, odd_value

# Positions of right calls lie in [-REACH, REACH).
REACH = 64


def _table(r: random.Random, *shape: int) -> np.ndarray:
    """[heads, ...], with all heads, one, or none."""
    shape = r.choice([shape, (1, *shape[1:]), shape[1:]])
    return good_array(r, shape, r.choice([np.float64, *FLOATS]))


def _rule(r: random.Random, rows: int) -> dict:
    """How offsets find one of so many rows."""
    way = r.randrange(4)
    if way == 0:
        return {"first_offset": r.choice([-rows, -1, 0, 5, -(2**60)])}
    if way == 1:
        n = r.choice([1, 3, 30])
        buckets = good_ints(r, (n,), 0, rows)
        return {"buckets": buckets, "first_offset": r.randrange(-9, 9)}
    if way == 2:
        starts = sorted(r.randrange(-40, 40) for _ in range(rows))
        return {"offsets": r.choice([starts, np.array(starts)])}
    return {} if rows % 2 else {"first_offset": 0}


def _rotation(r: random.Random, pairs: int) -> dict:
    more = {}
    if chance(r, 0.3):
        more["gain"] = r.choice([1.5, 0.1])
    if chance(r, 0.3):
        more["first_channel"] = r.choice([0, 1])
    if chance(r, 0.2):
        more["log_decay"] = [-0.1] * pairs
    if chance(r, 0.2):
        more["origin"] = r.choice([0, -3])
    if chance(r, 0.3):
        more["angles"] = r.choice(["exact", "float32"])
    return more


def terms(r: random.Random, heads: int, dim: int, value_dim: int) -> dict:
    """Keywords of locus.Terms that mostly fit a call of these sizes."""
    given = {}
    positions = 2 * REACH
    if chance(r, 0.3):
        given["scale"] = r.choice([None, 0.3, 2])
    if chance(r, 0.2):
        given["scale_rows"] = _table(r, heads, positions)
    if chance(r, 0.3):
        pairs = r.choice([1, dim // 2 - 1, dim // 2])
        given["theta"] = good_array(r, (pairs,), np.float64)
        given["layout"] = r.choice(["halves", "interleaved"])
        given["rotation"] = _rotation(r, pairs)
        if chance(r, 0.3):
            given["theta"] = good_array(r, (pairs, 2), np.float64)
            given["rotation"]["axes"] = [(5, 0, 0.5), (1, 5)]
            given["rotation"].setdefault("origin", -REACH)
    if chance(r, 0.2):
        width = r.choice([1, 5])
        given["q_rows"] = _table(r, heads, positions, width)
        given["k_rows"] = _table(r, heads, positions, width)
    rules: dict = {}
    for name, width in (("q_table", dim), ("k_table", dim), ("v_table", value_dim)):
        if chance(r, 0.2):
            rows = r.choice([1, 4, 9])
            given[name] = _table(r, heads, rows, width)
            rules[name] = _rule(r, rows)
    way = r.randrange(4)
    if way == 0:
        rows = r.choice([1, 4, 33])
        given["bias"] = _table(r, heads, rows)
        rules["bias"] = _rule(r, rows)
    elif way == 1:
        given["slopes"] = [0.1] * heads
        if chance(r, 0.5):
            given["future_slopes"] = [0.3] * heads
    elif way == 2 and chance(r, 0.5):
        given["profile_distance"] = np.linspace(0, 3, positions)
        given["profile_gain"] = np.linspace(1, 2, positions)
        given["profile_knots"] = [0.5, 1.5]
        given["profile_base"] = _table(r, heads, 3)
        given["profile_slope"] = _table(r, heads, 3)
    if chance(r, 0.2):
        theta = [0.3] * (value_dim // 2)
        given["value_rotation"] = {"theta": theta, "layout": "halves"}
    given["first_position"] = -REACH
    for table, rule in rules.items():
        for name, value in rule.items():
            given.setdefault(name, {})[table] = value
    if rules and chance(r, 0.2):
        given["clip"] = r.choice([True, {r.choice([*rules]): False}])
    if chance(r, 0.2):
        # One entry of a dict is wrong.
        name = r.choice(["first_offset", "buckets", "offsets", "rotation", "clip"])
        if isinstance(given.get(name), dict) and given[name]:
            given[name][r.choice([*given[name], "no such", 3])] = odd_value(r)
    return given


def function(r: random.Random, heads: int, width: int | None):
    """A function of the offsets [n] -> [heads, n] or [heads, n, width], or a wrong
    one."""
    import torch

    shape = (heads, 1) if width is None else (heads, 1, width)
    weight = torch.from_numpy(good_array(r, shape, np.float32).copy())
    if chance(r, 0.5):
        weight = torch.nn.Parameter(weight)

    def right(x):
        return weight * torch.sin(0.1 * (x if width is None else x[:, None]))

    odd = odd_value(r)
    wrong = (
        lambda x: x,
        lambda x: None,
        lambda x: right(x)[..., :1],
        lambda x: right(x).double(),
        lambda x: right(x) / 0,
        lambda x: right(x).to("meta"),
        lambda x: right(x).to_sparse(),
        lambda x: right(x).to(torch.complex64),
        lambda x: right(x).unsqueeze(0),
        lambda x: right(x).bfloat16(),
        lambda x: odd,
    )
    return r.choice(wrong) if chance(r, 0.3) else right


def numpy_function(r: random.Random, heads: int, width: int | None):
    """The same for locus.Custom: arrays, with all heads, one, or none."""
    shape = r.choice([(heads, 1), (1, 1), (1,)])
    weight = good_array(r, shape if width is None else (*shape, width), np.float64)

    def right(x):
        return weight * np.sin(0.1 * (x if width is None else x[:, None]))

    odd = odd_value(r)
    wrong = (
        lambda x: x,
        lambda x: None,
        lambda x: right(x)[..., :1],
        lambda x: right(x).astype(np.float32),
        lambda x: right(x) / 0,
        lambda x: right(x).astype(complex),
        lambda x: right(x)[None],
        lambda x: right(x).T,
        lambda x: right(x).tolist(),
        lambda x: odd,
    )
    return r.choice(wrong) if chance(r, 0.3) else right


def guarded(fn):
    """The same function; what it raises itself is a matter of its own."""

    def call(x):
        try:
            return fn(x)
        except Exception as error:
            raise Raised(str(error)) from error

    return call if callable(fn) else fn
