"""The fuzzer of the boundary itself: what it covers, and what it notices."""

import random

import fuzz_boundary
import fuzz_cases

import locus_attn as locus


def test_every_public_name_is_fuzzed():
    public = set(locus.__all__) - {"__version__", "machine"}
    assert public <= fuzz_cases.COVERED


def test_cases_are_made_of_the_seed_alone():
    for number in range(40):
        texts = {fuzz_cases.make(random.Random(f"9/{number}")).text() for _ in range(2)}
        assert len(texts) == 1 or " at 0x" in texts.pop()


def test_what_counts_as_a_finding():
    for error in (
        RuntimeError("std::bad_cast"),
        TypeError("f(): incompatible function arguments"),
        ValueError("one\ntwo"),
        ValueError(""),
        KeyError("a"),
        SystemError("a"),
    ):
        assert fuzz_boundary.complaint(error), error
    for error in (ValueError("a"), MemoryError("b"), fuzz_cases.Raised("c\nd")):
        assert fuzz_boundary.complaint(error) is None


def test_crashes_and_endless_calls_are_findings(monkeypatch, capsys):
    """A child that dies or hangs is reported with its case."""
    monkeypatch.setattr(fuzz_boundary, "CASE_SECONDS", 2.0)
    for body, words in (
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status -11"),
        ("while True: pass", "of CPU time"),
    ):
        monkeypatch.setattr(
            fuzz_boundary, "child_command", lambda *_, b=body: ["-c", b]
        )
        assert fuzz_boundary.fuzz(seed=1, seconds=0.01) == 1
        assert words in capsys.readouterr().out
