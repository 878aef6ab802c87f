"""locus.Terms and locus.OffsetBias: every term against its formula, and refusals.

Formulas are those of terms.h in NumPy, float64, with everything materialised.
Gradients are held against central differences of the formula.
"""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus
import naive

HEADS, KV_HEADS, DIM, VALUE_DIM, LENGTH = 4, 2, 8, 6, 17
RNG = np.random.default_rng(5)


def normal(*shape, dtype=np.float64):
    return RNG.standard_normal(shape).astype(dtype)


def qkv(q_len=LENGTH, k_len=LENGTH, batch=1):
    shapes = [
        (batch, HEADS, q_len, DIM),
        (batch, KV_HEADS, k_len, DIM),
        (batch, KV_HEADS, k_len, VALUE_DIM),
    ]
    return [normal(*s, dtype=np.float32) for s in shapes]


# ------------------------------------------------------------- the formula


def heads_of(x, rank):
    """[heads, ...] of an array that may lack the axis of heads."""
    x = np.asarray(x, np.float64)
    x = x if x.ndim == rank else x[None]
    return np.broadcast_to(x, (HEADS, *x.shape[1:]))


def turn(x, angle, layout, first=0, gain=1.0):
    """Pairs of x [.., L, D] by angles [L, pairs]."""
    pairs = angle.shape[-1]
    out = x.copy()
    a = first + (2 * np.arange(pairs) if layout == "interleaved" else np.arange(pairs))
    b = a + (1 if layout == "interleaved" else pairs)
    cos, sin = gain * np.cos(angle), gain * np.sin(angle)
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., a] * sin + x[..., b] * cos
    return out


def rows_of(rule, offset, rows):
    """The row of each offset, by the words of the docstring."""
    if "offsets" in rule:
        starts = np.asarray(rule["offsets"])
        return np.searchsorted(starts, np.maximum(offset, starts[0]), "right") - 1
    buckets = np.asarray(rule.get("buckets", np.arange(rows)))
    first = rule.get("first_offset", -(len(buckets) // 2))
    return buckets[np.clip(offset - first, 0, len(buckets) - 1)]


def formula(q, k, v, terms, *, rule=None, causal=False, m=None, n=None):
    """out [B, Hq, Lq, Dv] in float64, for arrays and settings as Terms has them."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    group = HEADS // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    n = np.arange(k.shape[2]) if n is None else n
    m = np.arange(q.shape[2]) + k.shape[2] - q.shape[2] if m is None else m
    offset = m[:, None] - n[None, :]
    rule = rule or {}
    first = terms.get("first_position", 0)

    def rows(name, count):
        return rows_of(rule.get(name, rule), offset, count)

    def table(name, x):
        t = heads_of(terms[name], 3)
        picked = rows(name, t.shape[1])
        by_row = np.einsum("bhid,hrd->bhir", x, t)
        if name == "k_table":  # x are keys
            return by_row[:, :, np.arange(len(n))[None, :], picked]
        return by_row[:, :, np.arange(len(m))[:, None], picked]

    qr, kr = q, k
    if "theta" in terms:
        theta = np.asarray(terms["theta"], np.float64)
        more = terms.get("rotation", {})

        def angles(at):
            axes = more.get("axes", [(1, 0, 0.0)])
            shift = at - more.get("origin", 0)
            coordinates = [
                (shift // d if not w else shift // d % w) + o for d, w, o in axes
            ]
            if theta.ndim == 2:
                both = zip(coordinates, theta.T, strict=True)
                angle = sum(c[:, None] * t for c, t in both)
            else:
                of = more.get("axis", [0] * len(theta))
                both = zip(of, theta, strict=True)
                angle = np.stack([coordinates[a] * t for a, t in both], -1)
            return np.where((shift < 0)[:, None] & ("origin" in more), 0.0, angle)

        given = (terms["layout"], more.get("first_channel", 0), more.get("gain", 1.0))
        qr, kr = turn(q, angles(m), *given), turn(k, angles(n), *given)
    dot = np.einsum("bhid,bhjd->bhij", qr, kr)
    if "theta" in terms and "log_decay" in terms.get("rotation", {}):
        dot = 0.0
        decay = np.asarray(terms["rotation"]["log_decay"])
        pairs, layout = len(decay), terms["layout"]
        for p in range(pairs):
            a, b = (2 * p, 2 * p + 1) if layout == "interleaved" else (p, p + pairs)
            two = np.einsum("bhid,bhjd->bhij", qr[..., [a, b]], kr[..., [a, b]])
            dot = dot + two * np.exp(decay[p] * offset)
        rest = slice(2 * pairs, None)
        dot = dot + np.einsum("bhid,bhjd->bhij", qr[..., rest], kr[..., rest])
    if "q_rows" in terms:
        a, c = heads_of(terms["q_rows"], 3), heads_of(terms["k_rows"], 3)
        dot = dot + np.einsum("hie,hje->hij", a[:, m - first], c[:, n - first])
    if "q_table" in terms:
        dot = dot + table("q_table", q)
    if "k_table" in terms:
        dot = dot + table("k_table", k)
    scale = terms.get("scale", DIM**-0.5)
    if "scale_rows" in terms:
        scale = scale * heads_of(terms["scale_rows"], 2)[:, m - first][..., None]
    s = scale * dot
    if "bias" in terms:
        b = heads_of(terms["bias"], 2)
        s = s + b[:, rows("bias", b.shape[1])]
    if "slopes" in terms:
        past = np.asarray(terms["slopes"])[:, None, None]
        future = np.asarray(terms.get("future_slopes", terms["slopes"]))[:, None, None]
        s = s - np.where(offset > 0, past * offset, -future * offset)
    if "profile_base" in terms:
        x = np.asarray(terms["profile_distance"])[np.abs(offset)]
        x = x * np.asarray(terms["profile_gain"])[m - first][:, None]
        at = np.searchsorted(terms["profile_knots"], x, "right")
        base, slope = (heads_of(terms["profile_" + t], 2) for t in ("base", "slope"))
        s = s + base[:, at] + slope[:, at] * x
    if causal:
        s = np.where(offset >= 0, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    more = terms.get("value_rotation")
    if more:
        v = turn(v, n[:, None] * np.asarray(more["theta"]), more["layout"])
    out = np.einsum("bhij,bhjd->bhid", p, v)
    if "v_table" in terms:
        t = heads_of(terms["v_table"], 3)
        out = out + np.einsum("bhij,hijd->bhid", p, t[:, rows("v_table", t.shape[1])])
    if more and more.get("relative", True):
        out = turn(out, -m[:, None] * np.asarray(more["theta"]), more["layout"])
    return out


def positive(*shape):
    return np.abs(normal(*shape)) + 0.1


# name -> (arguments of Terms, the rule of its tables).
WIDE = 2 * LENGTH - 1
CASES = {
    "nothing": ({}, {}),
    "scale": ({"scale": 0.21}, {}),
    "scale rows": (
        {"scale_rows": positive(HEADS, LENGTH + 3), "first_position": -3, "scale": 0.5},
        {},
    ),
    "scale rows, shared": ({"scale_rows": positive(LENGTH)}, {}),
    "theta": ({"theta": positive(DIM // 2), "layout": "halves"}, {}),
    "theta of some channels": (
        {
            "theta": positive(2),
            "layout": "interleaved",
            "rotation": {"first_channel": 3, "gain": 1.3},
        },
        {},
    ),
    "theta by axis": (
        {
            "theta": positive(4),
            "layout": "halves",
            "rotation": {"axes": [(5, 0, 0.5), (1, 5, 0.0)], "axis": [0, 1, 1, 0]},
        },
        {},
    ),
    "theta of all axes": (
        {
            "theta": normal(4, 2),
            "layout": "interleaved",
            "rotation": {"axes": [(5, 0, 0.5), (1, 5, -1.0)], "origin": 2},
        },
        {},
    ),
    "theta with a decay": (
        {
            "theta": positive(3),
            "layout": "interleaved",
            "rotation": {"log_decay": [-0.1, -0.02, -0.3]},
        },
        {},
    ),
    "extra dimensions": (
        {
            "q_rows": normal(HEADS, LENGTH + 4, 3),
            "k_rows": normal(LENGTH + 4, 3),
            "first_position": -2,
        },
        {},
    ),
    "query table": ({"q_table": normal(HEADS, 9, DIM)}, {}),
    "query table, one row per offset": (
        {"q_table": normal(WIDE, DIM)},
        {"first_offset": 1 - LENGTH, "clip": False},
    ),
    "key table": ({"k_table": normal(HEADS, 6, DIM)}, {"first_offset": -1}),
    "key table of one row": ({"k_table": normal(HEADS, 1, DIM)}, {}),
    "value table": ({"v_table": normal(HEADS, 7, VALUE_DIM)}, {}),
    "bias": ({"bias": normal(HEADS, 11)}, {}),
    "bias, shared": ({"bias": normal(12)}, {"first_offset": -5}),
    "bias by buckets": (
        {"bias": normal(HEADS, 4)},
        {"buckets": [3, 3, 2, 1, 0, 0, 0, 2, 1, 3], "first_offset": -6},
    ),
    "bias by starts": (
        {"bias": normal(HEADS, 7)},
        {"offsets": [-20, -3, -2, -1, -1, 0, 5]},
    ),
    "slopes": ({"slopes": positive(HEADS)}, {}),
    "both slopes": ({"slopes": positive(HEADS), "future_slopes": positive(HEADS)}, {}),
    "profile": (
        {
            "profile_distance": np.sort(positive(LENGTH)),
            "profile_gain": positive(LENGTH),
            "profile_knots": [0.3, 0.9],
            "profile_base": normal(HEADS, 3),
            "profile_slope": normal(HEADS, 3),
        },
        {},
    ),
    "profile, shared": (
        {
            "profile_distance": np.log1p(np.arange(LENGTH + 2)),
            "profile_gain": 1 / np.arange(3.0, LENGTH + 6),
            "profile_knots": [0.15],
            "profile_base": normal(2),
            "profile_slope": normal(2),
            "first_position": -3,
        },
        {},
    ),
    "rotated values": (
        {"value_rotation": {"theta": [0.3, 0.7], "layout": "halves"}},
        {},
    ),
    "values rotated only": (
        {
            "value_rotation": {
                "theta": [0.3, 0.7],
                "layout": "interleaved",
                "relative": False,
            }
        },
        {},
    ),
    "all tables": (
        {
            "theta": positive(4),
            "layout": "halves",
            "q_table": normal(HEADS, 9, DIM),
            "k_table": normal(HEADS, 4, DIM),
            "v_table": normal(5, VALUE_DIM),
            "bias": normal(HEADS, 13),
        },
        {
            "q_table": {},
            "k_table": {"offsets": [-9, 0, 1, 8]},
            "v_table": {"first_offset": -4},
            "bias": {"buckets": [0, 3, 12, 11], "first_offset": -2},
        },
    ),
}


def by_argument(rule):
    """{"bias": {"first_offset": -1}} -> {"first_offset": {"bias": -1}}."""
    if not any(isinstance(x, dict) for x in rule.values()):
        return rule
    found = {}
    for table, own in rule.items():
        for name, value in own.items():
            found.setdefault(name, {})[table] = value
    return found


def make(name):
    terms, rule = CASES[name]
    return locus.Terms(**terms, **by_argument(rule))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_formula(name, causal):
    q, k, v = qkv(batch=2)
    terms, rule = CASES[name]
    want = formula(q, k, v, terms, rule=rule, causal=causal)
    naive.close(locus.attention(q, k, v, make(name), causal=causal), want, factor=8.0)


@pytest.mark.parametrize("name", CASES)
def test_few_queries_at_scattered_positions(name):
    q, k, v = qkv(5, 11)
    m = np.sort(RNG.permutation(LENGTH)[:5])
    n = np.sort(RNG.permutation(LENGTH)[:11])
    terms, rule = CASES[name]
    want = formula(q, k, v, terms, rule=rule, m=m, n=n)
    got = locus.attention(q, k, v, make(name), q_positions=m, k_positions=n)
    naive.close(got, want, factor=8.0)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    """Central differences of the formula, array by array, in a random direction."""
    q, k, v = qkv()
    terms, rule = CASES[name]
    encoding = make(name)
    out, lse = locus.attention(q, k, v, encoding, causal=True, return_lse=True)
    d_out = normal(*out.shape, dtype=np.float32)
    *grads, d_params = locus.attention_backward(
        d_out, q, k, v, out, lse, encoding, causal=True
    )
    arrays = {n: x for n, x in terms.items() if isinstance(x, np.ndarray)}
    arrays.pop("profile_knots", None)
    assert d_params.keys() == arrays.keys() == encoding.params().keys()

    def loss(changed):
        x = dict(zip("qkv", (q, k, v), strict=True)) | terms | changed
        given = [x.pop(c) for c in "qkv"]
        return float((formula(*given, x, rule=rule, causal=True) * d_out).sum())

    every = dict(zip("qkv", (q, k, v), strict=True)) | arrays
    found = dict(zip("qkv", grads, strict=True)) | d_params
    for name, x in every.items():
        assert found[name].shape == x.shape
        assert found[name].dtype == x.dtype
        direction = normal(*x.shape)
        step = 1e-6
        wide = x.astype(np.float64)
        want = loss({name: wide + step * direction}) - loss(
            {name: wide - step * direction}
        )
        want /= 2 * step
        got = float((found[name] * direction).sum())
        size = np.abs(found[name] * direction).sum() + abs(want) + 0.1
        assert abs(got - want) <= 1e-5 * size, name


@pytest.mark.parametrize("name", CASES)
def test_decoding_equals_the_whole(name):
    q, k, v = qkv()
    encoding = make(name)
    whole = locus.attention(q, k, v, encoding, causal=True)
    cache = locus.KvCache(KV_HEADS, DIM, VALUE_DIM, q_heads=HEADS)
    for at in (slice(0, 9), slice(9, 10), slice(10, LENGTH)):
        cache.append(k[:, :, at], v[:, :, at], encoding)
        got = cache.decode(q[:, :, at], encoding)
        naive.close(got, whole[:, :, at].astype(np.float64), factor=8.0)


@pytest.mark.parametrize("name", CASES)
def test_copies(name):
    q, k, v = qkv()
    encoding = make(name)
    want = locus.attention(q, k, v, encoding, causal=True)
    copies = [copy.copy(encoding), copy.deepcopy(encoding)]
    copies += [pickle.loads(pickle.dumps(encoding, p)) for p in range(2, 6)]
    for other in copies:
        assert type(other) is locus.Terms and repr(other) == repr(encoding)
        assert np.array_equal(locus.attention(q, k, v, other, causal=True), want)
    again = encoding.with_params(encoding.params())
    assert np.array_equal(locus.attention(q, k, v, again, causal=True), want)
    for array in CASES[name][0]:
        if array in encoding.params():
            assert array in repr(encoding)


def test_arrays_are_shared_and_copied_by_deepcopy():
    table = normal(HEADS, 5)
    for encoding in (locus.Terms(bias=table), locus.OffsetBias(table)):
        shared, own = copy.copy(encoding), copy.deepcopy(encoding)
        before = table[0, 0]
        table[0, 0] = 7.0
        (name,) = encoding.params()
        assert shared.params()[name][0, 0] == 7.0
        assert own.params()[name][0, 0] == before
        table[0, 0] = before


class Named(locus.Terms):
    def __init__(self, label):
        super().__init__(bias=[[0.0, 1.0, 2.0]])
        self.label = label


def test_subclasses_keep_what_they_added():
    for other in (copy.deepcopy(Named("a")), pickle.loads(pickle.dumps(Named("a")))):
        assert type(other) is Named and other.label == "a"
        assert repr(other).startswith("locus.Named(bias: f64 [1, 3], ")


def test_types_of_arrays():
    """Any float type, and lists; the gradient has the type of the array."""
    q, k, v = qkv()
    table = normal(HEADS, 9).astype(np.float16)
    want = locus.attention(q, k, v, locus.OffsetBias(table.astype(np.float64)))
    for x in (table, table.astype(ml_dtypes.bfloat16), table.tolist(), table[:, ::-1]):
        encoding = locus.Terms(bias=x)
        out, lse = locus.attention(q, k, v, encoding, return_lse=True)
        grads = locus.attention_backward(np.ones_like(out), q, k, v, out, lse, encoding)
        assert grads[3]["bias"].dtype == getattr(x, "dtype", np.float64)
        if getattr(x, "dtype", None) != ml_dtypes.bfloat16 and x is not table[:, ::-1]:
            same = np.array_equal(out, want)
            assert same or np.shares_memory(np.asarray(x), table)


def test_the_same_as_encodings_of_the_library():
    """Terms say what an encoding's lowering says, to the bit."""
    q, k, v = qkv()
    v = v.repeat(2, -1)[..., :DIM]
    keys, values = normal(9, DIM), normal(9, DIM)
    table, slopes = normal(32, HEADS), locus.Alibi.slopes(HEADS)
    offsets = np.arange(-LENGTH, LENGTH)
    near = np.array([_t5(int(o)) for o in offsets])
    r, u = normal(HEADS, WIDE, DIM), normal(HEADS, 1, DIM)
    rates = locus.Rope(DIM, "halves").frequencies()
    for own, other in (
        (
            locus.Terms(q_table=keys, v_table=values, first_offset=-4),
            locus.Shaw(keys, values),
        ),
        (
            locus.Terms(bias=table.T, buckets=near, first_offset=-LENGTH),
            locus.T5Bias(table),
        ),
        (locus.Terms(slopes=slopes), locus.Alibi(HEADS)),
        (
            locus.Terms(q_table=r, k_table=u, bias=np.zeros((HEADS, WIDE))),
            locus.TransformerXL(r, u[:, 0], np.zeros((HEADS, DIM))),
        ),
        (locus.Terms(theta=rates, layout="halves"), locus.Rope(DIM, "halves")),
    ):
        got = locus.attention(q, k, v, own, causal=True)
        assert np.array_equal(got, locus.attention(q, k, v, other, causal=True)), other


def _t5(offset, buckets=32, reach=128):
    """T5's bucket of m - n, causal."""
    if offset < buckets // 2:
        return max(offset, 0)
    exact = buckets // 2
    far = exact + int(np.log(offset / exact) / np.log(reach / exact) * exact)
    return min(far, buckets - 1)


def test_rotate_explain_check_and_embed():
    x = normal(1, 2, 9, DIM, dtype=np.float32)
    rates = locus.Rope(DIM, "halves").frequencies()
    own = locus.Terms(theta=rates, layout="halves")
    rope = locus.Rope(DIM, "halves")
    assert np.array_equal(locus.rotate(x, own), locus.rotate(x, rope))
    with pytest.raises(ValueError, match="does not rotate"):
        locus.rotate(x, locus.OffsetBias([[0.0]]))

    gauss = locus.OffsetBias(-(np.arange(-64.0, 65.0) ** 2)[None] / 50)
    assert gauss.name == "offset-bias" and own.name == "terms"
    assert "129 buckets" in locus.explain(gauss) and "129 buckets" in repr(gauss)
    told = locus.explain_call(*qkv(), gauss, causal=True)
    assert told["terms"] == ["bias"]
    report = locus.check(gauss, heads=2, head_dim=8, length=32)
    assert report.encoding == "offset-bias" and report["relative"].verdict == "yes"
    assert locus.check(own, heads=2, head_dim=DIM)["relative"].verdict == "yes"

    table = normal(5, 3)
    added = locus.Terms(input_add=table, first_position=7)
    assert np.array_equal(added.embed([11, 7]), table[[4, 0]])
    with pytest.raises(ValueError, match=r"positions 7 .. 11, got position 6"):
        added.embed([6])
    with pytest.raises(ValueError, match="does not act on the input"):
        own.embed([0])


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_offset_bias(n):
    """Every first offset, clipped beyond the ends or refused there."""
    q, k, v = qkv()
    table = normal(HEADS, n)
    for first in (-LENGTH - 5, 1 - LENGTH, -3, 0, 4, 99):
        rule = {"first_offset": first}
        want = formula(q, k, v, {"bias": table}, rule=rule)
        got = locus.attention(q, k, v, locus.OffsetBias(table, first))
        naive.close(got, want, factor=8.0)
        strict = locus.OffsetBias(table, first_offset=first, clip=False)
        if first <= 1 - LENGTH and first + n >= LENGTH:
            assert np.array_equal(locus.attention(q, k, v, strict), got)
            continue
        with pytest.raises(ValueError, match=rf"covers offsets {first} .. "):
            locus.attention(q, k, v, strict)


def test_offset_bias_gradient_and_copies():
    """Beyond the ends gradients go to the ends."""
    q, k, v = qkv()
    table = normal(HEADS, 3)
    encoding = locus.OffsetBias(table)
    out, lse = locus.attention(q, k, v, encoding, return_lse=True)
    d_out = normal(*out.shape, dtype=np.float32)
    grads = locus.attention_backward(d_out, q, k, v, out, lse, encoding)[3]
    wide = locus.OffsetBias(table[:, np.clip(np.arange(WIDE) - LENGTH + 2, 0, 2)])
    all_of = locus.attention_backward(d_out, q, k, v, out, lse, wide)[3]["table"]
    folded = np.stack(
        [
            all_of[:, : LENGTH - 1].sum(-1),
            all_of[:, LENGTH - 1],
            all_of[:, LENGTH:].sum(-1),
        ],
        -1,
    )
    assert np.allclose(grads["table"], folded, atol=1e-5)
    for other in (
        copy.copy(encoding),
        copy.deepcopy(encoding),
        pickle.loads(pickle.dumps(encoding)),
        encoding.with_params({"table": table}),
    ):
        assert np.array_equal(locus.attention(q, k, v, other), out)
        assert repr(other) == repr(encoding)


def test_every_offset_finds_its_row():
    """Random rules: with one key at position 0 and no content, lse is the bias."""
    r = np.random.default_rng(12)
    at = np.arange(-30, 31)
    q, k = np.zeros((1, 1, len(at), 2), np.float32), np.zeros((1, 1, 1, 2), np.float32)
    for _ in range(200):
        rows = int(r.integers(1, 9))
        rule, ends = {}, None
        way = r.integers(3)
        if way == 0:
            rule["first_offset"] = int(r.integers(-20, 20))
            ends = (rule["first_offset"], rule["first_offset"] + rows - 1)
        elif way == 1:
            n = int(r.integers(1, 30))
            rule["first_offset"] = int(r.integers(-20, 10))
            rule["buckets"] = np.clip(r.integers(-2, 3, n).cumsum(), 0, rows - 1)
            ends = (rule["first_offset"], rule["first_offset"] + n - 1)
        else:
            rule["offsets"] = np.sort(r.integers(-15, 15, rows))
            ends = (rule["offsets"][0], rule["offsets"][-1])
        table = np.arange(1.0, rows + 1)
        want = table[rows_of(rule, at, rows)]
        for clip in (True, False):
            seen = at if clip else at[(at >= ends[0]) & (at <= ends[1])]
            if not len(seen):
                continue
            own = locus.Terms(bias=table, clip=clip, **rule)
            _, lse = locus.attention(
                q[:, :, : len(seen)], k, k, own, q_positions=seen, return_lse=True
            )
            assert np.allclose(lse[0, 0], want[np.isin(at, seen)]), (rule, clip)


def test_far_positions_are_clipped():
    """Tables are as wide as they are, whatever lies between the positions."""
    q, k, v = qkv(2, 3)
    far = np.array([0, 5, 1 << 60])
    out = locus.attention(
        q,
        k,
        v,
        locus.OffsetBias(normal(HEADS, 5)),
        q_positions=far[1:],
        k_positions=far,
    )
    assert np.isfinite(out).all()


REFUSED = {
    r"bias must be \[rows\] or \[heads, rows\], got f64 \[1, 2, 3\]": {
        "bias": np.zeros((1, 2, 3))
    },
    r"bias .* holds a value that is not finite: nan": {"bias": [[0.0, np.nan]]},
    r"bias must be a NumPy array .*got str 'abc'": {"bias": "abc"},
    r"bias covers 4 offsets, which are not symmetric": {"bias": np.zeros((2, 4))},
    r"q_table must be \[rows, D\]": {"q_table": np.zeros(4)},
    r"v_table must be .*got f64 \[0, 4\]": {"v_table": np.zeros((0, 4))},
    r"buckets of bias must lie in \[0, 2\], its rows, got 3": {
        "bias": np.zeros(3),
        "buckets": [0, 1, 3],
    },
    r"buckets of bias must lie in .*got -1": {"bias": np.zeros(3), "buckets": [-1]},
    r"buckets must be integers": {"bias": np.zeros(3), "buckets": np.zeros(3)},
    r"buckets must not be empty": {"bias": np.zeros(3), "buckets": []},
    r"buckets\['bias'\] must have the shape": {
        "bias": np.zeros(3),
        "buckets": {"bias": [[0]]},
    },
    r"offsets must have an entry for each of the 3 rows of bias, got 2": {
        "bias": np.zeros(3),
        "offsets": [0, 1],
    },
    r"offsets of bias must not fall, got 1 after 2": {
        "bias": np.zeros(3),
        "offsets": [0, 2, 1],
    },
    r"given one by one: leave out first_offset": {
        "bias": np.zeros(3),
        "offsets": [0, 2, 3],
        "first_offset": 0,
    },
    r"offsets of bias must lie in .* begin at 9223372036854775807": {
        "bias": np.zeros(3),
        "first_offset": 2**63 - 1,
    },
    r"there is no table v_table": {
        "bias": np.zeros(3),
        "first_offset": {"v_table": 0},
    },
    r"clip\['bias'\] must be True or False, got 1": {
        "bias": np.zeros(3),
        "clip": {"bias": 1},
    },
    r"first_offset must be an integer, got 0.5": {
        "bias": np.zeros(3),
        "first_offset": 0.5,
    },
    r"theta needs a layout": {"theta": [1.0]},
    r"layout must be \"interleaved\" or \"halves\", got \"up\"": {
        "theta": [1.0],
        "layout": "up",
    },
    r"layout and rotation are those of theta": {"layout": "halves"},
    r"theta .* has frequencies for 3 axes, and the rotation has 1": {
        "theta": np.ones((2, 3)),
        "layout": "halves",
    },
    r"2 pairs need 2 axis numbers \(or none\), got 1": {
        "theta": [1.0, 2.0],
        "layout": "halves",
        "rotation": {"axis": [0]},
    },
    r"an axis of rotation\['axes'\] must be a tuple": {
        "theta": [1.0],
        "layout": "halves",
        "rotation": {"axes": [3]},
    },
    r"rotation has no entry base: it takes": {
        "theta": [1.0],
        "layout": "halves",
        "rotation": {"base": 3},
    },
    r"rotation must be a dict, got 3": {
        "theta": [1.0],
        "layout": "halves",
        "rotation": 3,
    },
    r"first_channel must lie in \[0, 2\^24\], got -1": {
        "theta": [1.0],
        "layout": "halves",
        "rotation": {"first_channel": -1},
    },
    r"the rotation's gain must lie between": {
        "theta": [1.0],
        "layout": "halves",
        "rotation": {"gain": 0.0},
    },
    r"value_rotation needs theta": {"value_rotation": {"layout": "halves"}},
    r"value_rotation\['layout'\] must be a string, got None": {
        "value_rotation": {"theta": [1.0]}
    },
    r"value_rotation has no entry gain": {
        "value_rotation": {"theta": [1.0], "layout": "halves", "gain": 2.0}
    },
    r"q_rows and k_rows must be given together, .* only the k_rows": {
        "k_rows": np.zeros((3, 2))
    },
    r"future_slopes need slopes": {"future_slopes": [1.0]},
    r"must be of one length": {"slopes": [1.0], "future_slopes": [1.0, 2.0]},
    r"a bias is a table \(bias\), a ramp \(slopes\) or a profile": {
        "slopes": [1.0],
        "bias": [[1.0]],
    },
    r"a profile needs .* only 1 of them": {"profile_gain": [1.0]},
    r"profile_base f64 \[2, 2\] and profile_slope f64 \[2\] must be of one shape": {
        "profile_distance": [1.0],
        "profile_gain": [1.0],
        "profile_base": np.zeros((2, 2)),
        "profile_slope": [1.0, 2.0],
    },
    r"profile_knots are given without a profile": {"profile_knots": [1.0]},
    r"first_position must lie in": {"first_position": 2**62},
    r"scale must be a number, got str 'a'": {"scale": "a"},
    r"Terms\(\) has no argument": {"rope": 1},
}


@pytest.mark.parametrize("words", REFUSED)
def test_refusals(words):
    with pytest.raises((TypeError, ValueError), match=words) as error:
        locus.Terms(**REFUSED[words])
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_refusals_of_a_call():
    q, k, v = qkv()
    for words, encoding in (
        (r"has 3 heads, but the call has 4", locus.Terms(bias=np.zeros((3, 5)))),
        (r"has 3 heads, but the call has 4", locus.OffsetBias(np.zeros((3, 5)))),
        (r"must be \[heads, 3, 8\]", locus.Terms(q_table=np.zeros((3, 9)))),
        (r"value table .* does not match v", locus.Terms(v_table=np.zeros((3, 9)))),
        (r"ramp for 4 heads has 2", locus.Terms(slopes=[1.0, 2.0])),
        (
            r"do not fit a head of 8",
            locus.Terms(theta=np.ones(5), layout="halves"),
        ),
        (
            r"has rows for positions 0 .. 3, but the call has position",
            locus.Terms(scale_rows=np.ones(4)),
        ),
        (
            r"covers offsets 0 .. 2, but the call has offsets -16 .. 16",
            locus.Terms(bias=np.zeros(3), first_offset=0, clip=False),
        ),
    ):
        with pytest.raises(ValueError, match=words):
            locus.attention(q, k, v, encoding)
    with pytest.raises(ValueError, match=r"table must be \[heads, offsets\]"):
        locus.OffsetBias([1.0, 2.0])
    with pytest.raises(ValueError, match="parameter bias is missing"):
        locus.Terms(bias=np.zeros(3)).with_params({})
