"""bench/peers.py on tiny lengths: every row runs and says all it should.

Nothing is said about times. Errors are held against roundings of float32.
"""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")

PROGRAM = Path(__file__).parents[2] / "bench" / "peers.py"
LONGEST = 64
EPSILON = 2.0**-23
# The roundings of a sum of n terms add up to about sqrt(n) of them. The longest
# sums are projections of width 1024, and a step of training has four products in
# a row. An angle of RoPE in float32 is off by LONGEST / 2 roundings, which is less.
TOLERANCE = 4 * 1024**0.5 * EPSILON

FAMILIES = {
    "torch": r"^(sdpa|eager|overhead)/",
    "flex": r"^flex/",
    "own": r"^own/",
    "hugging-face": r"^hf/",
    "rope": r"^rope/",
    "onnxruntime": r"^ort/",
}


def run(*args, **more):
    return subprocess.run(
        [sys.executable, "-B", str(PROGRAM), *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=1000,
        **more,
    )


@functools.cache
def names(*args):
    """A process that imports every peer takes seconds: each list is made once."""
    return run("--list", *args).stdout.split()


def test_every_row_has_a_family():
    found = names()
    assert len(found) == len(set(found))
    for name in found:
        assert sum(bool(re.search(p, name)) for p in FAMILIES.values()) == 1, name
    for name in (
        "sdpa/forward/causal/N:8192/D:128/H:8",
        "sdpa/forward+backward/full/N:2048/D:64/H:8",
        "sdpa/forward+backward/t5-table/N:2048/D:64/H:8",
        "flex/forward/t5/full/N:2048/D:64/H:8",
        "flex/forward/gaussian/full/N:2048/D:64/H:16",
        "own/forward+backward/t5/N:2048/D:64/H:16",
        "sdpa/forward+backward/gaussian/N:2048/D:64/H:16",
        "hf/deberta-v2/core/forward/N:2048/D:64/H:12",
        "rope/eager/view/N:4096/D:128/H:32/K:8",
        "ort/GroupQueryAttention/bias/causal/N:2048/D:128/H:32/K:8",
        "overhead/torch/N:1/D:8/H:1",
    ):
        assert name in found
    assert not [name for name in names("--quick") if "N:8192" in name]


def check_spread(spread):
    assert 0 < spread["low"] <= spread["median"] <= spread["high"]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Every row once, in one process: the results, the chart, all that was written."""
    folder = tmp_path_factory.mktemp("peers")
    out, picture = folder / "peers.json", folder / "peers.svg"
    more = ["--rounds=2", "--no-memory", "--json", out, "--chart", picture]
    done = run("--longest", str(LONGEST), *more)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in folder.iterdir()) == ["peers.json", "peers.svg"]
    return json.loads(out.read_text(encoding="utf-8")), picture.read_text("utf-8")


def test_results(measured):
    data, _ = measured
    assert data["threads"] == 2 and data["rounds"] == 2
    assert data["versions"].keys() >= {"locus", "torch", "transformers", "onnxruntime"}
    limits = data["machine"]["limits"]
    assert limits["fma_gflops"] > 0 and limits["copy_gb_per_s"] > 0
    assert [row["name"] for row in data["rows"]] == names("--longest", str(LONGEST))


@pytest.mark.parametrize("family", FAMILIES)
def test_rows(family, measured):
    data, drawn = measured
    rows = [row for row in data["rows"] if re.search(FAMILIES[family], row["name"])]
    assert rows
    for row in rows:
        check_row(row)
        if row["shown"]:
            assert row["case"] in drawn, row["case"]


def check_row(row):
    assert row["shapes"] and row["work"] > 0 and row["limit"] in ("fma", "copy")
    assert 0 <= row["others_busy"] <= 1
    check_spread(row["ratio"])
    for side in ("peer", "locus"):
        measured = row[side]
        check_spread(measured["seconds"])
        assert measured["of_limit"] > 0
        assert measured["setting"]
        assert measured["error"] <= TOLERANCE, (row["name"], side)
    if not row["name"].startswith("overhead/"):
        # Requirements are for the lengths they name, not for a cut row.
        assert not any(row["required"].values()) and not row["misses"]


def test_memory(tmp_path):
    """A row of each family: memory has a process a side, which takes its time."""
    out = tmp_path / "peers.json"
    rows = {}
    for name in names("--longest", str(LONGEST)):
        for family, pattern in FAMILIES.items():
            if re.search(pattern, name):
                rows.setdefault(family, name)
    assert rows.keys() == FAMILIES.keys()
    only = "^(" + "|".join(map(re.escape, rows.values())) + ")$"
    chosen = ["--longest", str(LONGEST), "--only", only]
    done = run(*chosen, "--rounds=1", "--json", out)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert {row["name"] for row in found} == set(rows.values())
    for row in found:
        assert row["peer"]["memory"] >= 0 and row["locus"]["memory"] >= 0


def test_refusals(tmp_path):
    def said(*args):
        done = run(*args)
        return done.returncode, done.stderr.splitlines()[-1]

    assert said("--only", "no such row") == (
        1,
        "peers.py: no row has such a name; --list shows them",
    )
    assert said("--rounds=0") == (
        2,
        "peers.py: error: --rounds must be at least 1, got 0",
    )
    assert said("--longest=9999") == (
        2,
        "peers.py: error: --longest must lie in 8 .. 8192, got 9999",
    )
    assert said("--chart", "speed.pdf") == (
        2,
        "peers.py: error: --chart must name a .png or .svg file, got 'speed.pdf'",
    )
    code, error = said("--json", str(tmp_path / "none" / "a.json"))
    assert code == 2 and "there is no folder" in error
    os.mkfifo(tmp_path / "pipe.png")
    for flag in ("--json", "--chart"):
        code, error = said(flag, str(tmp_path / "pipe.png"))
        assert code == 2 and "it exists and is not a regular file" in error
    code, error = said("--only", "(")
    assert code == 2 and "'(' is not a regular expression" in error


def test_interrupt_leaves_nothing(tmp_path):
    out = tmp_path / "peers.json"
    running = subprocess.Popen(
        [
            sys.executable,
            "-B",
            str(PROGRAM),
            "--only=sdpa/forward/full/N:512/D:64",
            "--rounds=1000000",
            "--json",
            str(out),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    for line in running.stderr:
        if line.startswith("time 1/"):
            break
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    assert error.splitlines()[-1] == "peers.py: interrupted, nothing written"
    assert not list(tmp_path.iterdir())
