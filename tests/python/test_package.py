"""The package as a whole: names, docstrings, stubs, lazy PyTorch, the GIL."""

import inspect
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np

import locus_attn as locus

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATE = "run cmake --build --preset release --target generate"


def test_stubs_are_up_to_date(tmp_path):
    subprocess.run([sys.executable, ROOT / "tools" / "stubs.py", tmp_path], check=True)
    for name in ("_locus.pyi", "torch/_modules.pyi"):
        kept = ROOT / "python" / "locus_attn" / name
        made = (tmp_path / name).read_text()
        assert made == kept.read_text(), GENERATE


def test_every_name_is_documented():
    for name in locus.__all__:
        assert hasattr(locus, name), name
        if name.startswith("__"):
            continue
        assert inspect.getdoc(getattr(locus, name)), f"{name} has no docstring"


def test_pytorch_is_not_imported():
    code = "import sys, locus_attn as locus; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_machine():
    limits = locus.machine(threads=1)
    assert limits.pop("simd")
    assert all(value > 0 for value in limits.values()) and len(limits) == 4


def test_the_gil_is_released():
    x = np.random.default_rng(1).standard_normal((1, 8, 2048, 64)).astype(np.float32)
    steps, done = 0, threading.Event()

    def count():
        nonlocal steps
        while not done.is_set():
            steps += 1
            time.sleep(0)

    thread = threading.Thread(target=count)
    thread.start()
    before = steps
    locus.attention(x, x, x, threads=1)
    during = steps - before
    done.set()
    thread.join()
    # While holding the lock a call lets at most one other step in.
    assert during > 1
