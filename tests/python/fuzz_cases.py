"""One random call: a function, its arguments, and what to hold the result to."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
from collections.abc import Callable
from typing import Any

import fuzz_own
import ml_dtypes
import numpy as np
from fuzz_values import (
    FLOATS,
    Hostile,
    Raised,
    chance,
    good_array,
    good_ints,
    odd_array,
    odd_float,
    odd_int,
    odd_size,
    odd_text,
    odd_value,
)

import locus_attn as locus
import naive

__all__ = ["COVERED", "Raised", "make", "shown"]


@dataclasses.dataclass
class Case:
    name: str
    function: Callable
    positional: list
    keywords: dict
    # What a result must be like, if nothing was made wrong.
    check: Callable[[Any], None] | None = None
    # Its integers are sizes of what is worked through.
    sized: bool = False

    def run(self) -> Any:
        return self.function(*self.positional, **self.keywords)

    def judge(self, result: Any) -> str | None:
        if self.check is None:
            return None
        try:
            self.check(result)
        except AssertionError as error:
            return f"a wrong result: {error}"
        return None

    def text(self) -> str:
        parts = [shown(x) for x in self.positional]
        parts += [f"{n}={shown(x)}" for n, x in self.keywords.items()]
        return f"{self.name}({', '.join(parts)})"


def shown(value: Any) -> str:
    """A value in one short line."""
    if isinstance(value, np.ndarray):
        flags = "" if value.flags.writeable else ", read-only"
        return (
            f"{type(value).__name__}({value.dtype}, {value.shape}, "
            f"strides={value.strides}{flags})"
        )
    if isinstance(value, (list, tuple)) and len(value) < 8:
        inside = ", ".join(shown(x) for x in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside},)"
    if type(value).__module__ not in ("builtins", "locus_attn._locus"):
        return f"<{type(value).__module__}.{type(value).__qualname__}>"
    text = repr(value)
    return text if len(text) < 80 else text[:77] + "..."


@dataclasses.dataclass
class Sizes:
    """What the arrays of one call have in common."""

    batch: int
    heads: int
    kv_heads: int
    q_len: int
    k_len: int
    dim: int
    value_dim: int
    dtype: Any


def sizes(r: random.Random) -> Sizes:
    kv_heads = r.choice([1, 2, 3])
    k_len = r.choice([0, 1, 2, 7, 16, 33])
    return Sizes(
        batch=r.choice([1, 1, 2]),
        heads=kv_heads * r.choice([1, 2]),
        kv_heads=kv_heads,
        q_len=r.choice([1, k_len, 5]),
        k_len=k_len,
        dim=r.choice([4, 8, 16, 24]),
        value_dim=r.choice([4, 8, 17]),
        dtype=r.choice(FLOATS),
    )


def _encoding(r: random.Random, s: Sizes) -> Any:
    """An encoding that mostly fits the sizes."""
    if chance(r, 0.15):
        try:
            return locus.Terms(**fuzz_own.terms(r, s.heads, s.dim, s.value_dim))
        except (TypeError, ValueError, OverflowError, MemoryError, Raised):
            return None
    info = r.choice(locus.encodings())
    try:
        return info.example(heads=s.heads, head_dim=s.dim, length=64)
    except ValueError:
        return None


def _q(r, s):
    return good_array(r, (s.batch, s.heads, s.q_len, s.dim), s.dtype)


def _k(r, s):
    return good_array(r, (s.batch, s.kv_heads, s.k_len, s.dim), s.dtype)


def _v(r, s):
    return good_array(r, (s.batch, s.kv_heads, s.k_len, s.value_dim), s.dtype)


def _tokens(length):
    def make(r, s):
        n = getattr(s, length)
        return good_ints(r, r.choice([(n,), (s.batch, n)]))

    return make


# What naive.attention does not have; tests/python/torch/test_operands.py judges it.
OPERANDS = (
    *("chunk", "mask", "prefix_lengths", "key_bias", "pair_bias", "sinks"),
    *("dropout", "return_weights"),
)


def _floats(r: random.Random, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(r.randrange(2**32))
    return rng.standard_normal(shape).astype(np.float32)


def _options(r: random.Random, s: Sizes, names) -> dict:
    """Some of the options of an attention call, all of them right."""
    makers = {
        "causal": lambda: chance(r, 0.5),
        "scale": lambda: r.choice([None, 0.3, 1]),
        "window": lambda: r.choice([None, 3, (4, 1), [2, 2], np.int64(5)]),
        "softcap": lambda: r.choice([None, 2.0, 30]),
        "q_positions": lambda: _tokens("q_len")(r, s),
        "k_positions": lambda: _tokens("k_len")(r, s),
        "key_lengths": lambda: good_ints(r, (s.batch,), 0, s.k_len + 1),
        "threads": lambda: r.choice([None, 1, 2]),
        "return_lse": lambda: chance(r, 0.5),
        "chunk": lambda: r.choice([None, 1, 7, 10**12]),
        "mask": lambda: _floats(r, r.choice([1, s.batch]), 1, s.q_len, s.k_len) > -0.5,
        "prefix_lengths": lambda: good_ints(r, (s.batch,), 0, s.k_len + 1),
        "key_bias": lambda: _floats(r, r.choice([1, s.batch]), 1, s.k_len),
        "pair_bias": lambda: _floats(r, 1, s.heads, r.choice([1, s.q_len]), s.k_len),
        "sinks": lambda: _floats(r, s.heads),
        "dropout": lambda: r.choice([0.0, 0.1, 0.9]),
        "return_weights": lambda: chance(r, 0.5),
    }
    rare = {n: 0.1 if n in OPERANDS else 0.3 for n in names}
    given = {n: makers[n]() for n in names if n in makers and chance(r, rare[n])}
    if "dropout" in given:
        given["seed"] = r.randrange(2**40)
    if "q_segments" in names and chance(r, 0.2):
        given["q_segments"] = good_ints(r, (s.q_len,), 0, 3)
        given["k_segments"] = good_ints(r, (s.k_len,), 0, 3)
    return given


ATTENTION = (
    *("causal", "scale", "window", "softcap", "return_lse", "threads"),
    *("q_positions", "k_positions", "key_lengths", "q_segments"),
    *OPERANDS,
)


def attention(r):
    s = sizes(r)
    q, k, v = _q(r, s), _k(r, s), _v(r, s)
    options = _options(r, s, ATTENTION)
    encoding = _encoding(r, s) if chance(r, 0.5) else None
    check = None
    if encoding is None:
        check = lambda result: _against_naive(result, q, k, v, options)  # noqa: E731
    return Case("attention", locus.attention, [q, k, v, encoding], options, check)


def _against_naive(result, q, k, v, options):
    if any(name in options for name in OPERANDS):
        return
    out, lse = result if options.get("return_lse") else (result, None)
    window = options.get("window")
    causal = options.get("causal", False)
    if isinstance(window, (int, np.integer)):
        window = (int(window) - 1, 0 if causal else int(window) - 1)
    same = ["causal", "scale", "softcap", "q_positions", "k_positions", "key_lengths"]
    given = {n: options[n] for n in (*same, "q_segments", "k_segments") if n in options}
    if "key_lengths" in given and "q_positions" not in given:
        return  # where the queries stand then is for other tests
    for name in given:
        if name.endswith(("positions", "segments")):
            given[name] = np.asarray(given[name], np.int64)  # unsigned ones wrap
    want, want_lse = naive.attention(q, k, v, window=window, **given)
    name = np.dtype(q.dtype).name
    naive.close(out.astype(np.float64), want, name, factor=16.0, dim=q.shape[3])
    if lse is not None:
        naive.close(lse, want_lse, name, factor=16.0, dim=q.shape[3])


def attention_backward(r):
    s = sizes(r)
    q, k, v = _q(r, s), _k(r, s), _v(r, s)
    options = _options(r, s, ATTENTION)
    options.pop("return_lse", None)
    options.pop("return_weights", None)
    encoding = _encoding(r, s)
    shape = (s.batch, s.heads, s.q_len, s.value_dim)
    lse = good_array(r, shape[:3])
    d_out, out = good_array(r, shape, s.dtype), good_array(r, shape, s.dtype)
    arguments = [d_out, q, k, v, out, lse, encoding]
    return Case("attention_backward", locus.attention_backward, arguments, options)


def explain_call(r):
    s = sizes(r)
    options = _options(r, s, ATTENTION)
    options.pop("return_lse", None)
    options.pop("return_weights", None)
    if chance(r, 0.3):
        options["backward"] = chance(r, 0.5)
    arguments = [_q(r, s), _k(r, s), _v(r, s), _encoding(r, s)]

    def known(told):
        assert told["driver"] in {"short", "decode", "tiled"}, told

    return Case("explain_call", locus.explain_call, arguments, options, known)


def merge(r):
    s = sizes(r)
    shape = (s.batch, s.heads, s.q_len, s.value_dim)

    def part():
        return good_array(r, shape, s.dtype), good_array(r, shape[:3])

    return Case("merge", locus.merge, [part(), part()], {})


def linear_attention(r):
    s = sizes(r)
    s = dataclasses.replace(s, kv_heads=s.heads)
    options = _options(r, s, ["causal", "q_positions", "k_positions"])
    options["feature_map"] = r.choice([None, np.exp, lambda x: x * 0, lambda x: "a"])
    encoding = r.choice([None, locus.Rope(s.dim, "halves")])
    arguments = [_q(r, s), _k(r, s), _v(r, s), encoding]
    return Case("linear_attention", locus.linear_attention, arguments, options)


def forget_gate_sums(r):
    s = sizes(r)
    shape = (s.batch, s.heads, s.k_len)
    before = r.choice([None, good_array(r, shape[:2], "float64")])

    def check(sums):
        assert sums.shape == shape

    arguments = [good_array(r, shape), before]
    return Case("forget_gate_sums", locus.forget_gate_sums, arguments, {}, check)


def forget_gate_bias(r):
    s = sizes(r)
    sums = good_array(r, (s.batch, s.heads, s.k_len))
    return Case("forget_gate_bias", locus.forget_gate_bias, [sums], {})


def forget_gate_backward(r):
    s = sizes(r)
    grads = good_array(r, (s.batch, s.heads, s.k_len))
    return Case("forget_gate_backward", locus.forget_gate_backward, [grads], {})


def pack(r):
    lengths = good_ints(r, (r.randrange(6),), 0, 20)

    def check(result):
        positions, segments = result
        want = [i for n in np.asarray(lengths).tolist() for i in range(n)]
        assert positions.tolist() == want and len(segments) == len(want)

    return Case("pack", locus.pack, [lengths], {}, check)


def pack_position(r):
    at = [r.choice([0, 1, 5, 2**20]) for _ in range(3)]
    return Case("pack_position", locus.pack_position, at, {})


ROTARY = ("Rope", "RopeLearned", "Rope2D", "RopeMixed", "MRope")


def _rotary(r, s):
    name = r.choice(ROTARY)
    info = next(i for i in locus.encodings() if i.class_name == name)
    return info.example(heads=s.heads, head_dim=s.dim, length=64)


def rotate(r):
    s = sizes(r)
    x = _q(r, s)
    keywords = {"inverse": chance(r, 0.3), "inplace": chance(r, 0.2)}
    if chance(r, 0.5):
        keywords["positions"] = _tokens("q_len")(r, s)
    if chance(r, 0.2):
        x, keywords["axes"] = x.swapaxes(1, 2), "BLHD"
    return Case("rotate", locus.rotate, [x, _rotary(r, s)], keywords)


def rotate_with(r):
    s = sizes(r)
    rows = r.choice([s.q_len, 64])
    cos, sin = (good_array(r, (rows, s.dim // 2)) for _ in range(2))
    keywords = {"layout": r.choice(["halves", "interleaved"])}
    if chance(r, 0.5):
        keywords["positions"] = good_ints(r, (s.q_len,), 0, max(rows, 1))
    if chance(r, 0.3):
        keywords["rotary_dim"] = s.dim
    return Case("rotate_with", locus.rotate_with, [_q(r, s), cos, sin], keywords)


def convert_layout(r):
    heads, dim = r.choice([1, 2, 4]), r.choice([4, 8])
    weight = good_array(r, r.choice([(heads * dim, 6), (heads * dim,)]))
    keywords = {"from_layout": "halves", "to_layout": "interleaved"}
    if chance(r, 0.3):
        keywords |= {"rotary_dim": 2, "first_channel": r.choice([0, 2])}
    arguments = [weight, heads, dim]
    return Case("convert_layout", locus.convert_layout, arguments, keywords)


CONFIGS = (
    {
        "model_type": "gpt2",
        "n_embd": 16,
        "n_head": 2,
        "n_layer": 2,
        "n_positions": 32,
    },
    {
        "model_type": "llama",
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        "rope_theta": 10000.0,
    },
    {"model_type": "bloom", "hidden_size": 32, "n_head": 4, "n_layer": 2},
)


def from_config(r):
    config = copy.deepcopy(r.choice(CONFIGS))
    if chance(r, 0.4):
        config[r.choice([*config, "head_dim", "rope_scaling", "sliding_window"])] = (
            r.choice([odd_int(r), odd_text(r), [], {}, None, 1.5])
        )
    if chance(r, 0.1):
        config = r.choice(
            ["/nowhere/config.json", "/dev/null", "\0", ".", odd_value(r)]
        )
    keywords = {"lenient": chance(r, 0.3)}
    if chance(r, 0.4):
        keywords["tensors"] = {"transformer.wpe.weight": good_array(r, (32, 16))}
    if chance(r, 0.2):
        keywords["layer"] = r.choice([0, 1, 2, -1])
    if chance(r, 0.2):
        keywords |= {"grid": (4, 4), "length": 16, "angles": "float32"}

    def call(config, **keywords):
        layer = locus.from_config(config, **keywords)
        for name in dir(layer):
            if name[0] != "_" and name not in ("encoding", "input"):
                getattr(layer, name)
        return pickle.loads(pickle.dumps(layer))

    return Case("from_config", call, [config], keywords)


def check(r):
    name = r.choice(locus.encodings()).name
    keywords = {"heads": r.choice([1, 2]), "head_dim": r.choice([4, 8]), "length": 16}
    for size in keywords:
        if chance(r, 0.1):
            keywords[size] = odd_size(r)

    def call(encoding, **keywords):
        report = locus.check(encoding, **keywords)
        return report[r.choice(["order", "past-length", "nothing", 3, report])]

    return Case("check", call, [name], keywords, sized=True)


def explain(r):
    s = sizes(r)
    keywords = {"heads": s.heads, "head_dim": s.dim, "length": r.choice([1, 16])}
    return Case("explain", locus.explain, [_encoding(r, s)], keywords, sized=True)


def example(r):
    info = r.choice(locus.encodings())
    keywords = {"heads": 2, "head_dim": 8, "length": 16, "seed": 3}
    if chance(r, 0.4):
        words = [w.split("=")[0].strip() for w in info.options.split(",")]
        keywords[r.choice([w for w in words if w] or ["a"])] = odd_value(r)
    name = f"EncodingInfo[{info.name}].example"
    return Case(name, info.example, [], keywords, sized=True)


def lists(r):
    name = r.choice(["encodings", "families"])
    return Case(name, getattr(locus, name), [], {})


# name -> how to make right arguments of the constructor, by position.
def _table(*shape):
    return lambda r: good_array(r, shape, r.choice([np.float64, *FLOATS]))


def _positive(*shape):
    return lambda r: np.abs(good_array(r, shape, np.float64)) + 0.1


def _word(*words):
    return lambda r: r.choice(words)


CLASSES = {
    "NoPosition": [],
    "Index": [_word(8), _word("add", "concatenate")],
    "NormalisedIndex": [_word(8), _word("add"), _word(None, 9)],
    "Binary": [_word(7), _word(8, 0)],
    "SineOnly": [_word(8), _word(100.0, 10)],
    "Sinusoidal": [
        _word(8),
        _word(100.0),
        _word("halves", "interleaved", "halves-inclusive"),
        _word(0, 2),
    ],
    "Learned": [_table(20, 8), _word(0, 2)],
    "Shaw": [_table(9, 8), _table(9, 8)],
    "KeyOffset": [_table(39, 8)],
    "TransformerXL": [_table(2, 39, 8), _table(2, 8), _table(2, 8)],
    "Deberta": [_table(2, 16, 8), _table(2, 16, 8), _word(8), _word(30)],
    "Tupe": [_table(2, 20, 4), _table(2, 20, 4), _table(2, 39), _table(2, 2)],
    "T5Bias": [_table(16, 2), _word(64), _word(True, False)],
    "OffsetBias": [_table(2, 9), _word(None, -4, 0, 7)],
    "Alibi": [_word(2), _word(8.0), _positive(2), _positive(2)],
    "Kerple": [_word("logarithmic", "power"), _positive(2), _positive(2)],
    "Fire": [
        _table(4),
        _table(4),
        _table(2, 4),
        _table(2),
        _positive(1),
        _positive(1),
    ],
    "Sandwich": [_word(2), _word(32), _word(1000.0)],
    "SwinBias": [_table(7 * 9, 2), _word(4), _word(5)],
    "Rope": [_word(8), _word("halves", "interleaved"), _word(100.0), _word(None, 4)],
    "RopeLearned": [_table(2, 4), _word("halves", "interleaved"), _word(100.0)],
    "Rope2D": [_word(8), _word("halves"), _word(5)],
    "RopeMixed": [_table(2, 4, 2), _word("halves"), _word(5), _word(0, 1)],
    "MRope": [_word(8), _word("halves"), _word([2, 1, 1], (1, 1, 2))],
    "XPos": [_word(8), _word("halves")],
}
SCALINGS = (
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0, "max_position_embeddings": 64},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    {
        "rope_type": "longrope",
        "short_factor": [1.0] * 4,
        "long_factor": [2.0] * 4,
        "original_max_position_embeddings": 64,
        "factor": 2.0,
    },
)
METHODS = (
    *("params", "with_params", "embed", "resized", "resized_2d"),
    *("frequencies", "gain", "cos_sin"),
)


def construct(r):
    """A class, then some of its methods, a copy and a call."""
    name = r.choice(list(CLASSES))
    arguments = [make(r) for make in CLASSES[name]]
    keywords = {}
    if name == "Rope" and chance(r, 0.6):
        scaling = copy.deepcopy(r.choice(SCALINGS))
        if chance(r, 0.5):
            scaling[r.choice([*scaling, "beta_fast", "truncate", 5])] = odd_value(r)
        keywords["scaling"] = scaling
    at = r.choice([good_ints(r, (6,), 0, 15), odd_value(r)])
    size = r.choice([16, 30, odd_int(r)])
    length = r.choice([1, 2, 17])
    grids = r.choice([((4, 5), (5, 4)), ((2, 2), (odd_int(r), 3)), odd_value(r)])
    method = r.choice(METHODS)
    values = r.choice([None, {}, {"table": odd_array(r, (20, 8))}, odd_value(r)])
    x = good_array(r, (1, 2, length, 8))

    def call(*arguments, **keywords):
        encoding = getattr(locus, name)(*arguments, **keywords)
        repr(encoding)
        if sum(p.size for p in encoding.params().values()) < 1e6:
            pickle.loads(pickle.dumps(encoding))
        if method == "params":
            encoding.params()
        elif method == "with_params":
            encoding.with_params(encoding.params() if values is None else values)
        elif method == "embed":
            encoding.embed(at)
        elif method == "resized" and name == "Learned":
            encoding.resized(size, r.choice(["linear", "bicubic"]))
        elif method == "resized_2d" and name == "Learned":
            if isinstance(grids, tuple) and len(grids) == 2:
                encoding.resized_2d(*grids)
            else:
                encoding.resized_2d(grids, (2, 2))
        elif method in ("frequencies", "gain") and name == "Rope":
            getattr(encoding, method)(size)
        elif method == "cos_sin" and name == "Rope":
            encoding.cos_sin(at, size)
        return locus.attention(x, x, x, encoding, causal=True)

    return Case(name, call, arguments, keywords)


def terms(r):
    """Terms of a caller's own: a copy of them, and what is made of them."""
    s = dataclasses.replace(sizes(r), dtype=np.float32)
    keywords = fuzz_own.terms(r, s.heads, s.dim, s.value_dim)
    q, k, v = _q(r, s), _k(r, s), _v(r, s)
    options = _options(r, s, ["causal", "window", "q_positions", "k_positions"])

    def call(**keywords):
        encoding = locus.Terms(**keywords)
        repr(encoding), locus.explain(encoding, heads=s.heads, head_dim=s.dim)
        if sum(p.size for p in encoding.params().values()) < 1e6:
            encoding = pickle.loads(pickle.dumps(encoding))
        out, lse = locus.attention(q, k, v, encoding, return_lse=True, **options)
        # What overflows float32 within a score may end in NaN.
        sizes_of = (
            np.abs(np.asarray(x, np.float64)).max(initial=0.0)
            for x in keywords.values()
            if isinstance(x, np.ndarray)
        )
        if max(sizes_of, default=0.0) < 1e30:
            assert np.isfinite(np.asarray(out, np.float64)).all(), "not finite"
        return locus.attention_backward(out, q, k, v, out, lse, encoding, **options)

    return Case("Terms", call, [], keywords)


def custom(r):
    """An encoding from NumPy functions, with terms beside it or without."""
    s = dataclasses.replace(sizes(r), dtype=np.float32)
    widths = {"bias": None, "q_table": s.dim, "k_table": s.dim, "v_table": s.value_dim}
    keywords = {
        name: fuzz_own.guarded(fuzz_own.numpy_function(r, s.heads, width))
        for name, width in widths.items()
        if chance(r, 0.4)
    }
    if chance(r, 0.3):
        keywords["terms"] = fuzz_own.terms(r, s.heads, s.dim, s.value_dim)
    q, k, v = _q(r, s), _k(r, s), _v(r, s)
    options = _options(r, s, ["causal", "window", "q_positions", "k_positions"])

    def call(**keywords):
        encoding = copy.deepcopy(locus.Custom(**keywords))
        repr(encoding)
        out, lse = locus.attention(q, k, v, encoding, return_lse=True, **options)
        return locus.attention_backward(out, q, k, v, out, lse, encoding, **options)

    return Case("Custom", call, [], keywords)


def sinusoidal_keys(r):
    w_r = good_array(r, (2, 4, 6))
    call = locus.TransformerXL.sinusoidal_keys
    return Case("TransformerXL.sinusoidal_keys", call, [w_r, r.choice([1, 5])], {})


def slopes(r):
    return Case("Alibi.slopes", locus.Alibi.slopes, [r.choice([1, 6, 8])], {})


CACHE_CALLS = (
    *["append", "decode", "rerotate", "truncate", "evict", "shift"],
    *["fork", "read", "clear"],
)


def cache(r):
    """A cache, and some calls on it; any of their arguments may be wrong."""
    s = sizes(r)
    name = r.choice(["float32", "bfloat16", "float16", "int8"])
    steps = []
    for _ in range(r.randrange(1, 5)):
        wrong = chance(r, 0.3)
        what = r.choice(CACHE_CALLS)
        n = r.choice([0, 1, 3, 40])
        shape = (s.batch, s.kv_heads, n, s.dim)
        if what == "append":
            k = odd_array(r, shape) if wrong else good_array(r, shape)
            v = good_array(r, (*shape[:3], s.value_dim)) if chance(r, 0.7) else None
            options = {}
            if chance(r, 0.3):
                options["positions"] = odd_value(r) if wrong else good_ints(r, (n,))
            if chance(r, 0.2):
                options["lengths"] = good_ints(r, (s.batch,), 0, n + 1)
            steps.append((what, [k, v, _rotary(r, s)], options))
        elif what == "decode":
            q = odd_value(r) if wrong else _q(r, s)
            names = ["causal", "scale", "window", "softcap", "q_positions", "threads"]
            steps.append((what, [q, _rotary(r, s)], _options(r, s, names)))
        elif what == "rerotate":
            encoding = odd_value(r) if wrong else _rotary(r, s)
            steps.append((what, [encoding, r.choice([0, 99])], {}))
        elif what in ("truncate", "evict", "shift"):
            few = 2 if what == "evict" else 1
            given = [odd_int(r) if wrong else r.randrange(5) for _ in range(few)]
            options = {}
            if chance(r, 0.5):
                options["sequence"] = odd_int(r) if wrong else r.randrange(s.batch)
            if what == "shift" and chance(r, 0.3):
                options["begin"] = odd_int(r) if wrong else 0
                options["end"] = r.choice([None, 0, odd_int(r)])
            steps.append((what, given, options))
        else:
            steps.append((what, [odd_int(r)], {}))

    def call(*arguments, **keywords):
        made = locus.KvCache(*arguments, **keywords)
        for what, given, options in steps:
            if what == "read":
                len(made), made.keys, made.values, made.capacity, made.table_id
                made.length(*given), made.positions(*given)
            elif what == "clear":
                made.clear()
            elif what == "fork":
                made = made.fork()
            else:
                getattr(made, what)(*given, **options)

    keywords = {"batch": s.batch, "dtype": name, "capacity": r.choice([0, 7])}
    if s.heads != s.kv_heads:
        keywords["q_heads"] = s.heads
    if chance(r, 0.3):
        keywords["values_in_keys"] = True
    arguments = [s.kv_heads, s.dim, s.value_dim]
    return Case("KvCache", call, arguments, keywords)


def decode_pages(r):
    """Pages, a table and lengths that fit each other, or nearly."""
    size, blocks = r.choice([1, 4, 16]), r.choice([1, 3, 9])
    per_sequence = r.choice([0, 1, 3])
    s = dataclasses.replace(sizes(r), k_len=per_sequence * size)
    k = good_array(r, (blocks, s.kv_heads, size, s.dim))
    v = good_array(r, (blocks, s.kv_heads, size, s.value_dim))
    table = good_ints(r, (s.batch, per_sequence), 0, blocks)
    lengths = good_ints(r, (s.batch,), 0, per_sequence * size + 1)
    absent = ("k_positions", "key_lengths", "q_segments", "dropout")
    arguments = [_q(r, s), k, v, table, lengths, _rotary(r, s)]
    options = _options(r, s, [n for n in ATTENTION if n not in absent])
    return Case("decode_pages", locus.decode_pages, arguments, options)


def _torch():
    import torch

    return torch, locus.torch


def _tensor(r, x):
    """A tensor of a NumPy array of floats, if torch has its type."""
    torch, _ = _torch()
    if x.dtype == ml_dtypes.bfloat16:
        x = torch.from_numpy(x.astype(np.float32)).bfloat16()
    else:
        x = torch.from_numpy(np.array(x))
    return x.requires_grad_() if chance(r, 0.3) else x


def odd_tensor(r):
    torch, _ = _torch()
    makers = (
        lambda: torch.zeros(1, 2, 5, 8, dtype=torch.float64),
        lambda: torch.zeros(1, 2, 5, 8, dtype=torch.int32),
        lambda: torch.zeros(1, 2, 5, 8, dtype=torch.complex64),
        lambda: torch.zeros(1, 2, 5, 8, device="meta"),
        lambda: torch.zeros(1, 2, 5, 8).to_sparse(),
        lambda: torch.zeros(1, 1, 1, 8).expand(1, 2, 2**33, 8),
        lambda: torch.zeros(1, 2, 5, 8, dtype=torch.complex64).conj().imag,
        lambda: torch.zeros(()),
        lambda: torch.tensor([2**63], dtype=torch.uint64),
        lambda: torch.full((1, 2, 5, 8), float("nan")),
        lambda: odd_value(r),
    )
    return r.choice(makers)()


def torch_attention(r):
    _, module = _torch()
    s = sizes(r)
    s.dtype = r.choice((np.float32, ml_dtypes.bfloat16))
    arrays = [_tensor(r, x) for x in (_q(r, s), _k(r, s), _v(r, s))]
    options = _options(r, s, [n for n in ATTENTION if n not in OPERANDS])
    encoding = _encoding(r, s) if chance(r, 0.5) else None
    if chance(r, 0.2):
        arrays[r.randrange(3)] = odd_tensor(r)

    def call(q, k, v, encoding=None, **options):
        result = module.attention(q, k, v, encoding, **options)
        out = result[0] if isinstance(result, tuple) else result
        if out.requires_grad:
            out.float().square().sum().backward()

    return Case("torch.attention", call, [*arrays, encoding], options)


def torch_relative(r):
    """Functions of the offset as a bias, keys or values."""
    _, module = _torch()
    s = dataclasses.replace(sizes(r), dtype=np.float32)
    arrays = [_tensor(r, x) for x in (_q(r, s), _k(r, s), _v(r, s))]
    options = _options(r, s, [n for n in ATTENTION if n not in OPERANDS] + ["chunk"])
    name = r.choice(["RelativeBias", "RelativeKeys", "RelativeValues", "Rotary"])
    if name == "Rotary":
        given = [good_array(r, (s.dim // 2,), np.float32), "halves"]
    else:
        width = {"RelativeKeys": s.dim, "RelativeValues": s.value_dim}.get(name)
        given = [fuzz_own.function(r, s.heads, width), s.heads]

    def call(*given, **options):
        given = [fuzz_own.guarded(x) for x in given]
        made = getattr(module, name)(*given)
        result = made(*arrays, **options)
        out = result[0] if isinstance(result, tuple) else result
        if out.requires_grad:
            out.square().sum().backward()

    return Case(f"torch.{name}", call, given, options)


def torch_rotate(r):
    _, module = _torch()
    s = sizes(r)
    s.dtype = r.choice((np.float32, np.float16))
    x = odd_tensor(r) if chance(r, 0.2) else _tensor(r, _q(r, s))
    keywords = {"inverse": chance(r, 0.3)}
    if chance(r, 0.5):
        keywords["positions"] = _tokens("q_len")(r, s)
    return Case("torch.rotate", module.rotate, [x, _rotary(r, s)], keywords)


def plain_on_tensors(r):
    """The functions of locus itself on tensors."""
    case = r.choice([attention, rotate, pack])(r)
    case.check = None
    case.positional = [
        _tensor(r, x).detach() if isinstance(x, np.ndarray) and x.dtype == "f4" else x
        for x in case.positional
    ]
    if chance(r, 0.3) and case.positional:
        case.positional[r.randrange(len(case.positional))] = odd_tensor(r)
    return case


MAKERS = (
    *[attention] * 5,
    *[attention_backward] * 3,
    *[construct] * 8,
    *[cache] * 4,
    *[decode_pages] * 2,
    *[rotate] * 2,
    *[rotate_with] * 2,
    *[terms] * 3,
    *[custom] * 2,
    *[torch_attention] * 3,
    *[torch_relative] * 2,
    torch_rotate,
    plain_on_tensors,
    explain_call,
    merge,
    linear_attention,
    forget_gate_sums,
    forget_gate_bias,
    forget_gate_backward,
    pack,
    pack_position,
    convert_layout,
    from_config,
    check,
    explain,
    example,
    lists,
    sinusoidal_keys,
    slopes,
)
# What of `locus` the cases call; machine() has no arguments but threads, and
# measures for a tenth of a second.
COVERED = {
    *CLASSES,
    *(m.__name__ for m in MAKERS if hasattr(locus, m.__name__)),
    *["KvCache", "EncodingInfo", "LayerPosition", "CheckReport", "Encoding"],
    *["Property", "Terms", "Custom", "encodings", "families"],
}


def _spoil(r: random.Random, case: Case) -> None:
    """Makes one or two arguments wrong."""
    case.check = None
    for _ in range(r.choice([1, 1, 2])):
        way = r.randrange(12)
        if way == 0:
            case.keywords[r.choice(["nothing", "q", "threads", "é"])] = odd_value(r)
        elif way == 1 and case.positional:
            case.positional.pop()
        elif way == 2:
            case.positional.append(odd_value(r))
        elif case.keywords and chance(r, 0.5):
            name = r.choice(list(case.keywords))
            case.keywords[name] = _odd_like(r, case.keywords[name], case.sized)
        elif case.positional:
            i = r.randrange(len(case.positional))
            case.positional[i] = _odd_like(r, case.positional[i], case.sized)


def _odd_like(r: random.Random, value: Any, sized: bool = False) -> Any:
    """Something wrong, mostly of the same kind."""
    if sized and isinstance(value, int):
        return odd_size(r)
    if chance(r, 0.4):
        return odd_value(r)
    if isinstance(value, np.ndarray):
        return odd_array(r, value.shape)
    if isinstance(value, bool):
        return r.choice([0, 1, None, "True", np.bool_(True), Hostile()])
    if isinstance(value, int):
        return odd_int(r)
    if isinstance(value, float):
        return odd_float(r)
    if isinstance(value, str):
        return odd_text(r)
    if isinstance(value, (tuple, list)) and value:
        changed = list(value)
        i = r.randrange(len(changed))
        changed[i] = _odd_like(r, changed[i], sized)
        return type(value)(changed)
    return odd_value(r)


def make(r: random.Random) -> Case:
    """A case from its own random generator."""
    case = r.choice(MAKERS)(r)
    if chance(r, 0.6):
        _spoil(r, case)
    return case
