"""Wrong arguments of every kind end in one sentence, and at once."""

import ctypes
import re
import resource
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import locus_attn as locus
import naive

RNG = np.random.default_rng(7)
X = RNG.standard_normal((1, 2, 5, 8)).astype(np.float32)
ROPE = locus.Rope(8, "halves")
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 8,
    "n_head": 2,
    "n_layer": 1,
    "n_positions": 9,
}


def repeated(value, *shape):
    """An array of any size over one element."""
    return np.lib.stride_tricks.as_strided(np.array(value), shape, [0] * len(shape))


def sentence(error):
    """The message of an exception: one line of a decent length."""
    text = str(error.value)
    assert text and "\n" not in text and len(text) < 300, text
    assert "std::" not in text and "nanobind" not in text, text
    return text


SCALARS = [
    np.datetime64("2020-01-01"),
    np.timedelta64(3, "D"),
    np.float32(1.0),
    np.int64(1),
    np.bool_(True),
    np.void(b"abcd"),
    np.str_("a"),
    np.complex64(1),
    np.longdouble(1),
]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: type(s).__name__)
def test_scalars_of_numpy_are_no_arrays(scalar):
    calls = [
        lambda: locus.attention(scalar, X, X),
        lambda: locus.attention(X, X, X, q_positions=scalar),
        lambda: locus.Learned(scalar),
        lambda: locus.rotate(X, ROPE, scalar),
        lambda: locus.pack(scalar),
        lambda: locus.Sinusoidal(8).embed(scalar),
        lambda: locus.merge((scalar, scalar), (X, X)),
    ]
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        sentence(error)


NOT_ARRAYS = {
    "tuple": (1, (1, 2, 5, 8), (80, 40, 8, 1), "f32"),
    "pair": (1.0, 2.0),
    "str": "abc",
    "bytes": b"abcdefgh" * 40,
    "generator": (x for x in [1.0]),
    "set": {1.0},
    "dict": {"a": 1},
    "function": len,
    "class": np.ndarray,
    "module": np,
    "complex": X.astype(np.complex64),
    "longdouble": X.astype(np.longdouble),
    "record": np.zeros((1, 2, 5, 8), [("a", "f4")]),
    "dates": np.zeros((1, 2, 5, 8), "M8[D]"),
    "strings": np.full((1, 2, 5, 8), "a"),
    "masked": np.ma.masked_array(X, X > 0),
    "between elements": np.zeros((1, 2, 5, 8), [("a", "u1"), ("b", "f4")])["b"],
    "unaligned": np.frombuffer(b"\0" * 321, np.float32, 80, 1).reshape(1, 2, 5, 8),
}


@pytest.mark.parametrize("name", NOT_ARRAYS)
def test_what_is_no_array_of_floats(name):
    given = NOT_ARRAYS[name]
    for call in (
        lambda: locus.attention(given, X, X),
        lambda: locus.attention(X, given, X),
        lambda: locus.rotate(given, ROPE),
        lambda: locus.rotate(given, ROPE, inplace=True),
        lambda: locus.KvCache(2, 8).append(given, X),
        lambda: locus.convert_layout(
            given, 2, 8, from_layout="halves", to_layout="interleaved"
        ),
    ):
        with pytest.raises((TypeError, ValueError)) as error:
            call()
        assert re.match("q|k|x|weight", sentence(error))


def test_a_tuple_is_never_an_address():
    shape, strides = (1, 2, 5, 8), (80, 40, 8, 1)
    for given in (
        (X.ctypes.data, shape, strides, "f32"),
        (0, shape, strides, "f32"),
        [X.ctypes.data, shape, strides, "f32"],
    ):
        with pytest.raises(TypeError, match="q must be a NumPy array"):
            locus.attention(given, X, X)
        with pytest.raises((TypeError, ValueError)):
            locus.Learned(given)


def test_arrays_of_another_rank():
    """Told of before their fourth axis is asked for."""
    x = np.zeros((1, 2, 3, 4), np.float32)
    for rank in (0, 1, 2, 3, 5):
        wrong = np.zeros((2,) * rank, np.float32)
        for at in range(3):
            arrays = [wrong if i == at else x for i in range(3)]
            with pytest.raises(ValueError, match=r"must be \[batch, heads"):
                locus.attention(*arrays)


def test_subclasses_and_odd_arrays_are_read_as_arrays():
    class Sub(np.ndarray):
        def __dlpack__(self, **keywords):
            raise RuntimeError("never asked")

    want = locus.attention(X, X, X)
    sub = X.view(Sub)
    assert np.array_equal(locus.attention(sub, sub, sub), want)
    # Integers of any width and byte order; positions by DLPack.
    for dtype in ("i1", "u2", "<i4", ">i8", "u8"):
        at = np.arange(5).astype(dtype)
        assert np.array_equal(
            locus.rotate(X, ROPE, at), locus.rotate(X, ROPE, list(range(5)))
        )
    assert np.array_equal(
        locus.rotate(X, ROPE, range(5)), locus.rotate(X, ROPE, memoryview(at))
    )
    table = locus.Learned([np.arange(3.0), np.arange(3.0)])
    assert table.params()["table"].shape == (2, 3)


class Lying:
    """An object whose __dlpack__ gives whatever it is told."""

    def __init__(self, result):
        self.result = result

    def __dlpack__(self, **keywords):
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def __dlpack_device__(self):
        return (1, 0)


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


def capsule(keep, **fields):
    """A DLPack capsule with these fields; what it points to goes to `keep`."""
    data = (ctypes.c_float * 80)()
    shape = (ctypes.c_int64 * 4)(1, 2, 5, 8)
    tensor = DLTensor(
        data=ctypes.addressof(data), device_type=1, ndim=4, code=2, bits=32, lanes=1
    )
    tensor.shape = ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64))
    for name, value in fields.items():
        setattr(tensor, name, value)
    keep += [data, shape, tensor]
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(tensor), b"dltensor", None)


def test_lies_told_through_dlpack():
    keep = []
    assert locus.attention(Lying(capsule(keep)), X, X) is not None
    sizes = (ctypes.c_int64 * 4)(1, -2, 5, 8)
    huge = (ctypes.c_int64 * 4)(2**40, 2**40, 2**40, 2**40)
    keep += [sizes, huge]
    wrong = [
        5,
        None,
        object(),
        RuntimeError("no\nand no"),
        capsule(keep, ndim=-1),
        capsule(keep, ndim=1000),
        capsule(keep, shape=None),
        capsule(keep, device_type=2),
        capsule(keep, lanes=4),
        capsule(keep, code=9),
        capsule(keep, data=None),
        capsule(keep, shape=ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64))),
        capsule(keep, shape=ctypes.cast(huge, ctypes.POINTER(ctypes.c_int64))),
    ]
    for result in wrong:
        with pytest.raises((TypeError, ValueError)) as error:
            locus.attention(Lying(result), X, X)
        sentence(error)
        with pytest.raises((TypeError, ValueError)):
            locus.rotate(X, ROPE, Lying(result))


def test_a_capsule_is_taken_once():
    given = Lying(X.__dlpack__())
    locus.attention(given, X, X)
    with pytest.raises(TypeError, match="new DLPack capsule"):
        locus.attention(given, X, X)


class Interface:
    __array_interface__ = {
        "shape": (1, 2, 5, 8),
        "typestr": "<f4",
        "data": (8, False),
        "version": 3,
    }


def test_an_array_interface_is_not_followed():
    for call in (
        lambda: locus.attention(Interface(), X, X),
        lambda: locus.Learned(Interface()),
        lambda: locus.Learned([[Interface()]]),
        lambda: locus.pack([Interface()]),
        lambda: locus.pack(Interface()),
    ):
        with pytest.raises(TypeError) as error:
            call()
        sentence(error)


WINDOWS = {
    "floats": ((1.5, 2), TypeError, r"window\[0\] must be an integer, got 1.5"),
    "words": (("a", "b"), TypeError, r"window\[0\] must be an integer, got str 'a'"),
    "large": (2**70, OverflowError, "window must fit in 64 bits"),
    "large pair": ((2**70, 0), OverflowError, r"window\[0\] must fit in 64 bits"),
    "bool": (True, TypeError, "window must be an integer, got True"),
    "three": ((1, 2, 3), TypeError, "window must be a pair of integers"),
    "float": (3.7, TypeError, "window must be an integer or a pair"),
    "array": (np.arange(2), TypeError, "window must be an integer"),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_that_are_none(name):
    window, kind, words = WINDOWS[name]
    cache = locus.KvCache(2, 8)
    cache.append(X, X)
    for call in (
        lambda: locus.attention(X, X, X, window=window),
        lambda: cache.decode(X, window=window),
    ):
        with pytest.raises(kind, match=words) as error:
            call()
        sentence(error)


def test_windows_are_whatever_has_an_index():
    want = locus.attention(X, X, X, window=(2, 1))
    for window in ((np.int64(2), np.int8(1)), [2, np.uint64(1)]):
        assert np.array_equal(locus.attention(X, X, X, window=window), want)
    assert np.array_equal(
        locus.attention(X, X, X, window=np.int64(3)),
        locus.attention(X, X, X, window=3),
    )


CALLS = {
    "missing": (lambda: locus.attention(X, X), r"attention\(\) needs .* 'v'"),
    "unknown": (
        lambda: locus.attention(X, X, X, casual=True),
        r"attention\(\) has no argument str 'casual'",
    ),
    "twice": (lambda: locus.attention(X, X, X, q=X), "'q' both by position"),
    "too many": (lambda: locus.attention(*[X] * 5), "at most 4 .*, got 5"),
    "flag": (
        lambda: locus.attention(X, X, X, causal=1),
        "causal must be True or False, got 1",
    ),
    "number": (
        lambda: locus.attention(X, X, X, scale="big"),
        "scale must be a number, got str 'big'",
    ),
    "bool is no number": (
        lambda: locus.attention(X, X, X, softcap=True),
        "softcap must be a number, got True",
    ),
    "threads": (
        lambda: locus.attention(X, X, X, threads=1.5),
        "threads must be an integer, got 1.5",
    ),
    "text": (lambda: locus.Rope(8, 5), "layout must be a string, got 5"),
    "integer": (
        lambda: locus.Rope("8", "halves"),
        "head_dim must be an integer, got str '8'",
    ),
    "list": (
        lambda: locus.Alibi(2, slopes=["a", 1]),
        "an element of slopes must be a number",
    ),
    "dict": (lambda: locus.Rope(8, "halves", scaling=3), "scaling must be a dict"),
    "scaling": (
        lambda: locus.Rope(8, "halves", scaling={"rope_type": "linear", "factor": "4"}),
        r'scaling\["factor"\] must be a number',
    ),
    "keys of scaling": (
        lambda: locus.Rope(8, "halves", scaling={"rope_type": "default", 5: 1}),
        "a key of scaling must be a string, got 5",
    ),
    "self": (lambda: locus.Rope.frequencies(5), "is a method of Rope"),
    "no self": (lambda: locus.Rope.frequencies(), "is a method of Rope"),
    "params": (
        lambda: locus.T5Bias(np.zeros((8, 2))).with_params([1]),
        "values must be a dict",
    ),
    "param names": (
        lambda: locus.Alibi(2).with_params({1: 2}),
        "a name among values must be a string",
    ),
    "config": (lambda: locus.from_config(5), "config must be a path or a dict"),
    "tensors": (
        lambda: locus.from_config(GPT2, tensors=5),
        "tensors must be a path or a dict",
    ),
    "names of tensors": (
        lambda: locus.from_config(GPT2, tensors={5: np.zeros((2, 2))}),
        "a name among tensors must be a string",
    ),
    "grid": (
        lambda: locus.from_config(GPT2, grid=(1, 2, 3)),
        "grid must be a pair of integers",
    ),
    "mask of floats": (
        lambda: locus.attention(X, X, X, mask=np.ones((4, 4), np.float32)),
        "mask must be an array of booleans, .* its elements are float32",
    ),
    "sinks": (
        lambda: locus.attention(X, X, X, sinks=[0.0]),
        "sinks must be a NumPy array .* got list",
    ),
    "a seed that is no integer": (
        lambda: locus.attention(X, X, X, dropout=0.1, seed=1.5),
        "seed must be an integer, got 1.5",
    ),
    "pair": (lambda: locus.merge(X, X), r"a must be a pair \(out, lse\)"),
    "function": (
        lambda: locus.linear_attention(X, X, X, feature_map=3),
        "feature_map must be a function, got 3",
    ),
    "sections": (
        lambda: locus.MRope(8, "halves", None),
        "sections must be integers in a list or an array, got None",
    ),
    "required": (lambda: locus.pack(None), "lengths must be integers .*, got None"),
    "report": (lambda: locus.check("alibi")[3], "name must be a string, got 3"),
    "example": (
        lambda: locus.encodings()[0].example(heads=None),
        "heads must be an integer, got None",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_the_wrong_type(name):
    call, words = CALLS[name]
    with pytest.raises(TypeError, match=words) as error:
        call()
    sentence(error)


SHAPE = "where any axis but the last may be 1, got"
OPERANDS = {
    "mask": (
        {"mask": np.ones((4, 5), bool)},
        f"the mask must be [1, 2, 5, 5], {SHAPE} [1, 1, 4, 5]",
    ),
    "axes of a mask": (
        {"mask": np.ones(5, bool)},
        "mask must be [Lq, Lk] with up to two axes before, of heads and of "
        "sequences, got 1 axes",
    ),
    "key_bias": (
        {"key_bias": np.zeros((1, 3, 5), np.float32)},
        f"key_bias must be [1, 2, 5], {SHAPE} [1, 3, 5]",
    ),
    "pair_bias": (
        {"pair_bias": np.zeros((2, 5, 5), np.float32)},
        f"pair_bias must be [1, 2, 5, 5], {SHAPE} [2, 5, 5]",
    ),
    "heads of sinks": (
        {"sinks": np.zeros(3, np.float32)},
        "sinks must have one logit for each of 2 heads, got f32 [3]",
    ),
    "infinite sink": (
        {"sinks": np.array([0, np.inf], np.float32)},
        "a sink must be below infinity, got inf for head 1",
    ),
    "dropout of all": ({"dropout": 1.0}, "dropout must lie in [0, 1), got 1"),
    "dropout below 0": (
        {"dropout": -0.5, "seed": 1},
        "dropout must lie in [0, 1), got -0.5",
    ),
    "seed": (
        {"dropout": 0.5},
        "dropout needs a seed, from which it draws what it drops: seed=1",
    ),
    "strides of dropout": (
        {"dropout": 0.5, "seed": 1, "dropout_tokens": ((0, 1), (0, 0))},
        "dropout numbers tokens by strides of at least 1, got 1 and 0",
    ),
    "prefix": ({"prefix_lengths": [6]}, "a prefix must be of 0 to 5 keys, got 6"),
    "chunk": ({"chunk": 0}, "a chunk must have at least 1 position, got 0"),
    "table_queries": (
        {"table_queries": np.zeros((1, 2, 5, 3), np.float32)},
        "table_queries f32 [1, 2, 5, 3] need a query table, but the terms have none",
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_that_do_not_fit(name):
    options, words = OPERANDS[name]
    with pytest.raises(ValueError) as error:
        locus.attention(X, X, X, **options)
    assert str(error.value) == words


LARGE = {
    "heads": lambda: locus.Alibi(2**70),
    "seed": lambda: locus.check("alibi", seed=2**64),
    "base": lambda: locus.Rope(8, "halves", base=10**400),
    "positions": lambda: locus.Sinusoidal(8).embed([2**64]),
    "pack_position": lambda: locus.pack_position(2**64, 0, 0),
    "layer": lambda: locus.from_config(GPT2, layer=-(2**65)),
}


@pytest.mark.parametrize("name", LARGE)
def test_numbers_beyond_64_bits(name):
    with pytest.raises(OverflowError, match="must fit in") as error:
        LARGE[name]()
    sentence(error)


@pytest.mark.parametrize("word", ["x" * 10000, "a\nb", "\0", "é" * 300])
def test_long_and_odd_words_do_not_break_a_sentence(word):
    for call in (
        lambda: locus.Index(8, word),
        lambda: locus.rotate(X, ROPE, axes=word),
        lambda: locus.check(word),
        lambda: locus.encodings()[0].example(**{word: word}),
        lambda: locus.from_config({**GPT2, "model_type": word}),
        lambda: locus.Rope(8, "halves", scaling={"rope_type": word}),
        lambda: locus.Rope(8, "halves", scaling={"type": "linear", "rope_type": word}),
        lambda: locus.Rope(8, "halves", scaling={"rope_type": "default", word: 1}),
    ):
        with pytest.raises(ValueError) as error:
            call()
        text = str(error.value)
        assert text.isprintable() and len(text) < 600, text


def test_lists_that_are_no_arrays():
    loop = []
    loop.append(loop)
    for given, words in (
        ([[1.0], [1.0, 2.0]], "one length each"),
        ([1.0, [2.0]], "one length each"),
        ([[1.0], 2.0], "one length each"),
        (loop, "nested too deeply"),
        ([float("nan")], "not finite: nan"),
        ([[1e400]], "not finite: inf"),
    ):
        with pytest.raises(ValueError, match=words):
            locus.Learned(given)
    with pytest.raises(TypeError, match=r"an element of lengths .*, got True"):
        locus.pack([True])

    class Growing:
        def __index__(self):
            growing.append(1)
            return 1

    growing = [Growing(), 2]
    with pytest.raises(ValueError, match="one length each"):
        locus.pack(growing)


def test_what_an_object_raises_is_passed_on():
    class Bad:
        def __index__(self):
            raise KeyError("mine")

        def __float__(self):
            raise KeyError("mine")

    for call in (
        lambda: locus.Alibi(Bad()),
        lambda: locus.Alibi(2, Bad()),
        lambda: locus.pack([Bad()]),
    ):
        with pytest.raises(KeyError, match="mine"):
            call()


LONG = 2**40


def available():
    """Bytes of memory that can still be had."""
    with open("/proc/meminfo") as file:
        fields = dict(line.split(":") for line in file)
    return int(fields["MemAvailable"].split()[0]) * 1024


def test_tables_by_stride_tricks_take_no_time():
    for table in (
        repeated(1.0, LONG, 8),
        np.lib.stride_tricks.as_strided(np.ones(2**10), (2**30, 2**9), (0, 8)),
        # Windows over one another: every element of memory is looked at once.
        np.lib.stride_tricks.as_strided(np.ones(2**12), (2**11, 2**11, 8), (8, 8, 0)),
    ):
        encoding = (locus.Learned if table.ndim == 2 else locus.KeyOffset)(
            table if table.ndim == 2 else table[:, :-1]
        )
        assert encoding.params()
    with pytest.raises(ValueError, match="not finite: nan"):
        locus.Learned(repeated(np.nan, LONG, 8))
    bad = np.ones(2**12)
    bad[-1] = np.inf
    with pytest.raises(ValueError, match="not finite: inf"):
        locus.KeyOffset(np.lib.stride_tricks.as_strided(bad, (2**11, 2049), (8, 8)))
    # What lies between the elements is nobody's business.
    bad = np.ones((6, 8))
    bad[:, 3] = np.nan
    assert locus.Learned(bad[::-2, ::2]).params()["table"].shape == (3, 4)


def test_more_than_memory_is_refused_at_once():
    fits = available() // 16  # int64 or float64 numbers
    calls = [
        lambda: locus.pack([LONG]),
        lambda: locus.pack([2**62, 2**61]),
        lambda: locus.pack(repeated(np.int64(1), LONG)),
        lambda: locus.pack(range(LONG)),
        lambda: locus.pack([repeated(np.int64(1), LONG)]),
        lambda: locus.Learned([repeated(1.0, LONG)]),
        lambda: locus.Sinusoidal(64).embed(repeated(np.int64(1), LONG)),
        lambda: locus.Sinusoidal(2**20).embed(repeated(np.int64(1), 2**20)),
        lambda: ROPE.cos_sin(repeated(np.int64(1), LONG)),
        lambda: locus.rotate(repeated(np.float32(1), 1, 1, LONG, 8), ROPE),
        lambda: locus.attention(
            *[repeated(np.float32(1), 1, 1, LONG, 8)] * 3,
            q_positions=repeated(np.int64(1), LONG),
        ),
        lambda: locus.Alibi(2, slopes=repeated(1.0, LONG)),
        lambda: locus.Learned(np.ones((4, 8))).resized(LONG, "linear"),
        lambda: locus.KvCache(2**20, 2**20, capacity=2**20),
        # What is asked for fits into memory, what becomes of it does not.
        lambda: locus.Sinusoidal(2**16).embed(repeated(np.int64(1), fits)),
        lambda: locus.Rope(2**13, "halves").cos_sin(repeated(np.int64(1), fits)),
        lambda: locus.Alibi(2, slopes=repeated(1.0, fits)),
        lambda: locus.Rope(8, "halves", frequencies=repeated(1.0, fits)),
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for call in calls:
        with pytest.raises((MemoryError, ValueError)) as error:
            call()
        sentence(error)
    # Nothing was copied first: 64 MB here are 8 Mi numbers, not hundreds.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    with pytest.raises(ValueError, match="more than int64"):
        locus.pack([2**62, 2**62])
    # And the next call is as good as ever.
    want, _ = naive.attention(X, X, X)
    naive.close(locus.attention(X, X, X), want, dim=8)


def test_out_of_memory_is_a_memory_error():
    code = """
import resource, numpy as np, locus_attn as locus
x = np.zeros((1, 1, 1, 64), np.float32)
locus.attention(x, x, x, threads=1)
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), -1))
q = np.broadcast_to(x, (1, 64, 40000, 64))
cache = locus.KvCache(64, 64)
calls = [
    lambda: locus.attention(q, q[:, :, :1], q[:, :, :1], threads=1),
    lambda: locus.rotate(q, locus.Rope(64, "halves"), threads=1),
    lambda: cache.append(q, q, threads=1),
    lambda: locus.Sinusoidal(4096).embed(np.arange(20000)),
    lambda: locus.pack([30_000_000]),
    lambda: locus.Learned(np.ones((2, 64))).resized(1_000_000, "linear"),
]
for call in calls:
    try:
        call()
    except MemoryError as error:
        assert "memory" in str(error), error
    else:
        raise SystemExit(f"no MemoryError: {call}")
assert len(cache) == 0
assert not locus.attention(x, x, x, threads=1).any()
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_in_place_needs_memory_of_its_own():
    overlapping = np.lib.stride_tricks.as_strided(
        np.ones(100, np.float32), (1, 2, 5, 8), (0, 0, 16, 4)
    )
    with pytest.raises(ValueError, match="overlap"):
        locus.rotate(overlapping, ROPE, inplace=True)
    x = X.copy().transpose(0, 1, 3, 2)[..., ::-1].transpose(0, 1, 3, 2)
    want = locus.rotate(x, ROPE)
    assert np.array_equal(locus.rotate(x, ROPE, inplace=True), want)
    half = X.astype(ml_dtypes.bfloat16)
    want = locus.rotate(half, ROPE)
    assert np.array_equal(locus.rotate(half, ROPE, inplace=True), want)
