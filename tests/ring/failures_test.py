#!/usr/bin/env python3
"""Ranks that die, stop or disagree: the others end, say why, and leave no file.

Usage: failures_test.py LOCUS_RING
"""

import os
import pathlib
import signal
import sys
import tempfile
import unittest

from launch import Job, mpirun

PROGRAM = ""

# Ranks give up after this long; the job must be over so much later. The rest
# is for MPI to end the processes, on a machine that may be busy.
DEADLINE = 3
GRACE = 60


class FailureTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.result = self.folder / "result.json"

    def bench(self, encoding: str = "none", *more: str) -> list[str]:
        """A benchmark of all ranks that would run for hours."""
        return [
            *(PROGRAM, "bench", encoding, "--repeat", "1000"),
            *("--deadline", str(DEADLINE), "--save", str(self.result), *more),
        ]

    def run_and_hit(self, number: int, options: tuple[str, ...]) -> tuple[int, str]:
        """Sends a signal to rank 1 in the middle; exit code and messages."""
        job = Job(
            mpirun(3, self.bench("none", "--ranks", "3", "--length", "6000"), options)
        )
        os.kill(job.wait_until_busy(1, 0.3), number)
        code, _, errors = job.finish(DEADLINE + GRACE)
        self.assertIsNone(job.find_rank(0), "rank 0 still runs")
        self.assertIsNone(job.find_rank(2), "rank 2 still runs")
        self.assertEqual(list(self.folder.iterdir()), [], "a file was left")
        return code, errors

    def test_killed_rank(self) -> None:
        """By default mpirun sees it and ends the job."""
        code, errors = self.run_and_hit(signal.SIGKILL, ())
        self.assertNotEqual(code, 0)
        self.assertIn("rank 1", errors)
        self.assertIn("signal 9", errors)

    def test_killed_rank_unseen(self) -> None:
        """Where mpirun looks away, the deadline ends the other ranks.

        mpirun then calls that a recovery, and ends with 0 itself.
        """
        _, errors = self.run_and_hit(signal.SIGKILL, ("--enable-recovery",))
        self.assertRegex(errors, rf"locus: rank [02] of 3 waited {DEADLINE} s for ")

    def test_stopped_rank(self) -> None:
        code, errors = self.run_and_hit(signal.SIGSTOP, ())
        self.assertEqual(code, 1)
        self.assertRegex(errors, rf"locus: rank [02] of 3 waited {DEADLINE} s for ")
        self.assertRegex(errors, "has died, stopped or needs a longer deadline")

    def test_rank_that_never_starts_mpi(self) -> None:
        """MPI itself would wait for it for ever."""
        idle = mpirun(1, ["sleep", "1000"])
        job = Job([*idle, ":", *mpirun(1, self.bench())[1:]])
        code, _, errors = job.finish(DEADLINE + GRACE)
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, f"locus: MPI did not start within {DEADLINE} s")

    def disagree(self, encoding: str, *other: str) -> str:
        """Rank 1 gets other arguments: the message, which must come once."""
        both = ("--ranks", "2", "--length")
        first = mpirun(1, self.bench("none", *both, "6000"))
        second = mpirun(1, self.bench(encoding, *both, *other))
        job = Job([*first, ":", *second[1:]])
        code, _, errors = job.finish(DEADLINE + GRACE)
        self.assertEqual(code, 2, errors)
        said = [line for line in errors.splitlines() if line.startswith("locus: ")]
        self.assertEqual(len(said), 1, errors)
        self.assertEqual(list(self.folder.iterdir()), [])
        return said[0]

    def test_other_shape(self) -> None:
        self.assertRegex(
            self.disagree("none", "6000", "--dim", "32"),
            "every rank must bring the same command: rank 0 has '.*' and rank 1 "
            "has '.* --dim 32'$",
        )

    def test_other_length(self) -> None:
        self.assertRegex(
            self.disagree("none", "4000"),
            "every rank must bring the same command: rank 0 has '.* --length 6000' "
            "and rank 1 has '.* --length 4000'$",
        )

    def test_other_arguments(self) -> None:
        self.assertRegex(
            self.disagree("none", "6000", "--bad"), "locus: rank 1: .*--bad"
        )

    def test_other_encoding(self) -> None:
        self.assertRegex(
            self.disagree("alibi", "6000"),
            "every rank must bring the same command: rank 0 has '.* none .*' and "
            "rank 1 has '.* alibi .*'$",
        )


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
