"""Which objects threads may share: a stress of each."""

import threading

import numpy as np

import locus_attn as locus

RNG = np.random.default_rng(5)
ROPE = locus.Rope(16, "halves")
HEADS, DIM = 2, 16


def tokens(n):
    return RNG.standard_normal((1, HEADS, n, DIM)).astype(np.float32)


def run(*workers):
    """All workers at once; the first exception of any is raised."""
    errors = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in workers]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=300)
        assert not t.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_a_cache_that_grows_under_its_readers():
    cache = locus.KvCache(HEADS, DIM)
    one = tokens(1)
    cache.append(one, one, ROPE)
    stop = threading.Event()

    def write():
        # Every append past the capacity moves the memory.
        for _ in range(400):
            cache.append(one, one, ROPE, threads=1)
        stop.set()

    def change():
        while not stop.is_set():
            cache.rerotate(locus.Rope(DIM, "halves", 10000.0), 0)
            cache.truncate(5000)

    def read():
        while not stop.is_set():
            size = len(cache)
            # Values are all alike, so any prefix gives the same rows.
            row = cache.decode(one, ROPE, threads=1)
            assert np.allclose(row, one, atol=1e-5)
            assert cache.keys.shape[2] >= size
            assert cache.positions()[:size] == list(range(size))
            assert cache.capacity >= size

    run(write, change, read, read, read)
    assert len(cache) == 401
    assert cache.positions() == list(range(401))


def test_writers_take_turns():
    cache = locus.KvCache(HEADS, DIM, dtype="bfloat16")
    some = tokens(3)

    def write():
        for _ in range(100):
            cache.append(some, some, ROPE, threads=2)

    run(*[write] * 6)
    assert len(cache) == 1800
    assert cache.positions() == list(range(1800))
    values = cache.values.astype(np.float32).reshape(HEADS, 600, 3, DIM)
    assert (values == values[:, :1]).all()


def test_encodings_are_shared_by_all():
    x = tokens(60)
    table = RNG.standard_normal((33, DIM))
    shaw = locus.Shaw(table, table)
    want, lse = locus.attention(x, x, x, shaw, return_lse=True)
    grads = locus.attention_backward(x, x, x, x, want, lse, shaw)

    def work():
        for _ in range(20):
            out = locus.attention(x, x, x, shaw, threads=2)
            assert np.array_equal(out, want)
            again = locus.attention_backward(x, x, x, x, want, lse, shaw, threads=2)
            assert np.array_equal(again[3]["keys"], grads[3]["keys"])
            shaw.with_params(shaw.params())

    run(*[work] * 6)
