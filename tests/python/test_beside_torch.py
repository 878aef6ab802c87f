"""bench/beside_torch.py runs and prints its table. Nothing is said about times."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[2] / "bench" / "beside_torch.py"


def run(*args):
    return subprocess.run(
        [sys.executable, "-B", PROGRAM, *args],
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_the_table():
    done = run("--rounds=3", "--threads=2")
    assert done.returncode == 0, done.stderr
    _, head, *rows, _ = done.stdout.splitlines()
    assert head.split()[:4] == ["H", "SDPA", "locus.torch", "NumPy"]
    assert [row.split()[0] for row in rows] == ["8", "16"]
    for row in rows:
        assert all(float(number) > 0 for number in row.split()[1:6])


def test_refusals():
    done = run("--rounds=0")
    assert done.returncode == 2
    assert "--rounds must be at least 1, got 0" in done.stderr
