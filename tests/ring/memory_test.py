#!/usr/bin/env python3
"""A sequence too long for one process under a limit of memory fits four ranks.

Usage: memory_test.py LOCUS_RING
"""

import sys
import unittest

from launch import Job, mpirun

PROGRAM = ""

# One process needs about 750 MB for 100,000 tokens of 4 heads x 64: q, k, v,
# out and what the engine packs. Four ranks need about 290 MB each. The kernel
# refuses more than this to each process (RLIMIT_DATA).
LIMIT_KB = 500_000
SECONDS = 200  # far beyond what it takes


class MemoryTest(unittest.TestCase):
    def check(self, ranks: int, limit: str) -> tuple[int, str, str]:
        """Runs the check under a limit for every rank."""
        limited = ["sh", "-c", f'ulimit -d {limit} && exec "$@"', "sh"]
        command = [
            *(PROGRAM, "check", "none", "--sample", "4", "--length", "100000"),
            *("--dim", "64", "--window", "64", "--sharding", "contiguous"),
        ]
        return Job(mpirun(ranks, limited + command)).finish(SECONDS)

    def test_one_process_without_the_limit(self) -> None:
        code, out, errors = self.check(1, "unlimited")
        self.assertEqual(code, 0, errors)
        self.assertIn("1 ranks give what one process gives", out)

    def test_one_process_under_the_limit(self) -> None:
        code, _, errors = self.check(1, str(LIMIT_KB))
        self.assertEqual(code, 1, errors)
        self.assertIn("locus: rank 0 has not enough memory for its part", errors)

    def test_four_ranks_under_the_limit(self) -> None:
        code, out, errors = self.check(4, str(LIMIT_KB))
        self.assertEqual(code, 0, errors)
        self.assertIn("4 ranks give what one process gives", out)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
