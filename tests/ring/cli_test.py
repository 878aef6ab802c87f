#!/usr/bin/env python3
"""The commands of locus ring: what they print, write and refuse.

Usage: cli_test.py LOCUS_RING
"""

import json
import os
import pathlib
import sys
import tempfile
import unittest

from launch import Job, mpirun

PROGRAM = ""
SECONDS = 120


def run(ranks: int, *arguments: str) -> tuple[int, str, str]:
    return Job(mpirun(ranks, [PROGRAM, *arguments])).finish(SECONDS)


class CliTest(unittest.TestCase):
    def test_check_as_json(self) -> None:
        code, out, errors = run(2, "check", "rope", "kerple", "--length=65", "--json")
        self.assertEqual(code, 0, errors)
        result = json.loads(out)
        self.assertTrue(result["passed"])
        self.assertEqual(result["ranks"], 2)
        self.assertEqual(len(result["rows"]), 2 * 2 * 3)
        for row in result["rows"]:
            self.assertLessEqual(row["error_over_tolerance"], 1.0)
            self.assertLessEqual({"out", "d_q", "d_k", "d_v"}, set(row["errors"]))

    def test_check_with_operands(self) -> None:
        code, out, errors = run(
            3, "check", "shaw", "--operands", "--length=65", "--json"
        )
        self.assertEqual(code, 0, out + errors)
        operands = {"d_sinks", "d_key_bias", "d_pair_bias"}
        for row in json.loads(out)["rows"]:
            self.assertLessEqual(operands, set(row["errors"]))

    def test_check_in_bf16(self) -> None:
        code, out, errors = run(2, "check", "alibi", "--length=65", "--dtype=bf16")
        self.assertEqual(code, 0, out + errors)

    def test_bench(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bench.json"
            code, out, errors = run(
                *(2, "bench", "--length=600", "--repeat=1", "--backward"),
                *("--save", str(path)),
            )
            self.assertEqual(code, 0, errors)
            result = json.loads(path.read_text())
            self.assertEqual(list(path.parent.iterdir()), [path])
        self.assertIn("efficiency", out)
        rows = {(row["pass"], row["ranks"], row["ring"]): row for row in result["rows"]}
        for name in ("forward", "backward"):
            self.assertIn((name, 1, False), rows)
            self.assertEqual(rows[name, 1, True]["bytes_sent"], 0)
            row = rows[name, 2, True]
            # Both ranks send half of k and v, 8 heads of 64 floats a token;
            # gradients of as many numbers come home.
            block = 600 * 8 * 64 * 4 * 2
            sent = block if name == "forward" else 2 * block
            self.assertEqual(row["bytes_sent"], sent)
            self.assertGreater(row["peak_bytes_a_rank"], 0)
            self.assertGreater(row["speed_over_one_process"], 0)

    def test_refusals(self) -> None:
        for arguments, expected in [
            (("check", "nope"), "locus: there is no encoding 'nope'"),
            (("bench", "--sharding=spiral"), "locus: there is no sharding 'spiral'"),
            (("bench", "--deadline=-1"), "locus: --deadline must be seconds above 0"),
            (("check", "--dtype=f8"), "locus: --dtype must be f32, bf16 or f16"),
            (("check", "--operands", "--sample=4"), "locus: --operands does not go"),
            (("fly",), "locus: "),
            ((), "locus: "),
        ]:
            with self.subTest(arguments=arguments):
                code, out, errors = run(2, *arguments)
                self.assertEqual(code, 2, errors)
                self.assertEqual(out, "")
                lines = [x for x in errors.splitlines() if x.startswith("locus: ")]
                self.assertEqual(len(lines), 1, errors)
                self.assertTrue(lines[0].startswith(expected), lines[0])

    def refused(self, command: list[str]) -> str:
        """The one sentence of a job that ends long before its deadline."""
        code, out, errors = Job(command).finish(SECONDS)
        self.assertEqual(code, 2, errors)
        self.assertEqual(out, "")
        lines = [x for x in errors.splitlines() if x.startswith("locus: ")]
        self.assertEqual(len(lines), 1, errors)
        return lines[0]

    def test_a_bad_place_to_save_is_found_at_once(self) -> None:
        # A check of this length takes hours.
        check = ["check", "rope", "--length=200000", "--deadline=1000"]
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/pipe")
            for path, why in (
                (f"{folder}/no/such/x.json", "No such file or directory"),
                (folder, "it is a folder"),
                (f"{folder}/pipe", "it exists and is not a regular file"),
            ):
                with self.subTest(path=path):
                    line = self.refused(mpirun(2, [PROGRAM, *check, "--save", path]))
                    self.assertEqual(
                        line, f"locus: rank 0: cannot write '{path}': {why}"
                    )

    def test_ranks_must_be_told_the_same(self) -> None:
        check = [PROGRAM, "check", "rope", "--deadline=1000"]
        for mine, other in (
            ("--length=65", "--length=66"),
            ("--seed=1", "--seed=2"),
            ("--length=65", "--help"),
        ):
            with self.subTest(other=other):
                line = self.refused(
                    [*mpirun(1, [*check, mine]), ":", "-n", "1", *check, other]
                )
                self.assertEqual(
                    line,
                    "locus: every rank must bring the same command: rank 0 has "
                    f"'locus ring check rope --deadline=1000 {mine}' and rank 1 has "
                    f"'locus ring check rope --deadline=1000 {other}'",
                )

    def test_a_full_disk_ends_every_rank(self) -> None:
        for arguments in (["--json"], []):
            check = f"'{PROGRAM}' check rope --length=65 {' '.join(arguments)}"
            line = self.refused(mpirun(2, ["sh", "-c", f"{check} >/dev/full"]))
            self.assertIn("cannot write to standard output", line)

    def test_help(self) -> None:
        code, out, _ = run(2, "--help")
        self.assertEqual(code, 0)
        self.assertEqual(out.count("Exit codes: 0 fine"), 1)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
