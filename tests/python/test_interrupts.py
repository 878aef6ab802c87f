"""A signal ends a long call, and the next call is as good as ever."""

import subprocess
import sys

import pytest

# Each would take minutes of CPU time.
CALLS = {
    "attention": "locus.attention(q, q, q, threads=1)",
    "attention with two threads": "locus.attention(q, q, q, threads=2)",
    "backward": "locus.attention_backward(q, q, q, q, q, q[..., 0], threads=2)",
    "biases": "locus.attention(q, q, q, locus.T5Bias(np.ones((32, 2))), threads=2)",
    "decode": "cache.decode(q, threads=2)",
    "explain": "locus.explain(locus.Sandwich(2, 2**15), 2, 64, 2**20)",
}

CODE = """
import signal, time
import numpy as np, locus_attn as locus

def repeated(value, *shape):
    return np.lib.stride_tricks.as_strided(np.array(value), shape, [0] * len(shape))

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

signal.signal(signal.SIGALRM, stop)
q = repeated(np.float32(0.5), 1, 2, 2**18, 64)
small = np.ones((1, 2, 100, 64), np.float32)
want = locus.attention(small, small, small)
cache = locus.KvCache(2, 64, dtype="bfloat16")
cache.append(small, small)
for _ in range({appends}):
    cache.append(q[:, :, : 2**14], q[:, :, : 2**14])
size = len(cache)
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    {call}
except Stop:
    pass
else:
    raise SystemExit("it was not stopped")
assert np.array_equal(locus.attention(small, small, small), want)
assert len(cache) == size and cache.decode(small).shape == small.shape
"""


@pytest.mark.parametrize("name", CALLS)
def test_a_signal_ends_the_call(name):
    code = CODE.format(call=CALLS[name], appends=16 if name == "decode" else 0)
    # Without a look at signals the call itself would outlast this.
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
