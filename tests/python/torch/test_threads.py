"""The engine runs on the OpenMP threads of torch, whatever was imported first.

Threads of its own would meet those of OpenMP spinning on the same cores. Each
test has processes of its own: what a process has loaded stays.
"""

import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import locus_attn as locus

START = """
import os, pathlib, signal, sys, time
import numpy as np

def threads():
    return len(list(pathlib.Path("/proc/self/task").iterdir()))

def wake_torch():
    import torch
    torch.set_num_threads(3)
    torch.randn(600, 600) @ torch.randn(600, 600)
    torch.randn(1 << 20).exp()

def arrays(*shape):
    rng = np.random.default_rng(1)
    return [rng.standard_normal(shape, np.float32) for _ in range(3)]
"""

TORCH_FIRST = """
wake_torch()
import locus_attn as locus
"""

LOCUS_FIRST = """
import locus_attn as locus
wake_torch()
"""

# It has a helper of its own when torch comes.
LOCUS_AT_WORK_FIRST = """
import locus_attn as locus
locus.attention(*arrays(1, 8, 512, 64), threads=2)
wake_torch()
"""

ORDERS = {
    "torch first": TORCH_FIRST,
    "locus first": LOCUS_FIRST,
    "locus at work first": LOCUS_AT_WORK_FIRST,
}


def run(script):
    # A call that hangs ends here.
    ran = subprocess.run(
        [sys.executable, "-c", START + script],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "call",
    [
        "locus.attention(*arrays(1, 8, 512, 64), threads=3)",
        "locus.torch.attention(*map(torch.tensor, arrays(1, 8, 512, 64)))",
    ],
)
def test_starts_no_threads_beside_those_of_torch(order, call):
    script = ORDERS[order]
    if "torch" in call:
        script += "\nimport torch, locus_attn.torch"
    assert (
        run(f"{script}\nbefore = threads()\n{call}\nprint(threads() - before)") == "0"
    )


def test_without_torch_it_starts_its_own():
    """The counterpart: the count of the test above can be another than 0."""
    script = "import locus_attn as locus\nbefore = threads()\n"
    call = "locus.attention(*arrays(1, 8, 512, 64), threads=3)\n"
    assert run(script + call + "print(threads() - before)") == "2"


def test_importing_starts_nothing():
    script = """
before = threads()
import locus_attn as locus
assert not any("gomp" in line for line in open("/proc/self/maps"))
print(threads() - before)
"""
    assert run(script) == "0"


def test_the_same_bits_on_either_threads():
    def digest():
        rng = np.random.default_rng(1)
        q, k, v = (rng.standard_normal((1, 8, 512, 64), np.float32) for _ in range(3))
        out = locus.attention(q, k, v, causal=True, threads=3)
        return hashlib.sha256(out.tobytes()).hexdigest()

    assert torch.get_num_threads() > 0  # torch is there in this process
    script = """
import hashlib, locus_attn as locus
out = locus.attention(*arrays(1, 8, 512, 64), causal=True, threads=3)
print(hashlib.sha256(out.tobytes()).hexdigest())
"""
    assert run(script) == digest()


# The child ends with 0 if it gets the result of its parent.
FORK = """
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends it where it waits forever
    {child}
    os._exit(0 if np.array_equal(again, want) else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("order", ORDERS)
def test_works_in_a_forked_process(order):
    """OpenMP's threads do not come along."""
    call = "locus.attention(*arrays(1, 8, 512, 64), threads=3)"
    run(f"{ORDERS[order]}\nwant = {call}" + FORK.format(child=f"again = {call}"))


def test_works_in_a_process_forked_before_locus_was_imported():
    """It has the runtime of its parent, whose threads did not come along."""
    child = """
    import locus_attn as locus
    again = locus.attention(*arrays(1, 8, 512, 64), threads=3)
"""
    script = """
wake_torch()
import torch
want = torch.nn.functional.scaled_dot_product_attention(
    *map(torch.tensor, arrays(1, 8, 512, 64))).numpy()
"""
    script += FORK.format(child=child).replace("np.array_equal", "np.allclose")
    run(script.replace("(again, want)", "(again, want, atol=1e-5)"))


@pytest.mark.parametrize(
    "call",
    [
        "locus.attention(q, q, q, threads=2)",
        "locus.attention_backward(q, q, q, q, q, q[..., 0], threads=2)",
    ],
)
def test_a_signal_ends_the_call(call):
    """Each would take minutes of CPU time."""
    run(
        f"""
class Stop(Exception):
    pass

def stop(*_):
    raise Stop

signal.signal(signal.SIGALRM, stop)
{TORCH_FIRST}
value = np.array(np.float32(0.5))
q = np.lib.stride_tricks.as_strided(value, (1, 2, 2**18, 64), [0] * 4)
small = arrays(1, 2, 100, 64)
want = locus.attention(*small)
before = threads()
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    {call}
except Stop:
    pass
else:
    sys.exit("it was not stopped")
assert np.array_equal(locus.attention(*small), want)
assert threads() <= before  # OpenMP ends those of a larger team
"""
    )
