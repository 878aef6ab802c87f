"""tools/counts.py on a short case: it finds what differs, and says so.

usage: counts_test.py TOOL PROGRAM     skipped (exit code 77) where nothing counts
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL, PROGRAM = sys.argv[1:3]
CASE = "short/plain/16"
SKIPPED = 77


def run(*args, program=PROGRAM):
    """Exit code, standard output and standard error of one call."""
    done = subprocess.run(
        [sys.executable, TOOL, "--program", program, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class Counts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        # Every case needs a count; only one is looked at.
        cases = subprocess.run([PROGRAM], capture_output=True, text=True, check=True)
        cls.path = cls.folder / "counts.json"
        cls.write({"build": "", "instructions": dict.fromkeys(cases.stdout.split(), 1)})
        code, out, _ = run("--counts", cls.path, CASE)
        assert code == SKIPPED, "another build is not comparable"
        cls.build = out.rsplit("'", 2)[1]
        cls.write(cls.read() | {"build": cls.build})
        code, _, err = run("--counts", cls.path, "--renew", CASE)
        assert code == 0, err
        cls.count = cls.read()["instructions"][CASE]

    @classmethod
    def write(cls, content):
        cls.path.write_text(json.dumps(content))

    @classmethod
    def read(cls):
        return json.loads(cls.path.read_text())

    def compare(self, factor):
        """Compares with a committed count `factor` times the true one."""
        counts = self.read()
        counts["instructions"][CASE] = round(factor * self.count)
        self.write(counts)
        return run("--counts", self.path, CASE)

    def test_counts_are_plausible(self):
        # 8 heads of 16 x 16 scores: 64 multiply-adds each for the score and for
        # the value, in vectors of 8.
        least = 8 * 16 * 16 * 2 * 64 // 8
        self.assertGreater(self.count, least)
        self.assertLess(self.count, 10 * least)

    def test_small_differences_pass(self):
        for factor in (0.975, 1.0, 1.025):
            code, out, err = self.compare(factor)
            self.assertEqual((code, err), (0, ""), out)
            self.assertIn(CASE, out)

    def test_more_is_an_error(self):
        code, _, err = self.compare(0.9)
        self.assertEqual(code, 1)
        self.assertRegex(
            err,
            rf"^{CASE} takes [\d,]+ instructions, \+11\.\d% of the committed "
            r"[\d,]+; say why in the commit message and renew with: .* --renew\n$",
        )

    def test_fewer_is_an_error(self):
        code, _, err = self.compare(1.1)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"-9\.\d% of the committed .*keep the gain and renew")

    def test_counts_repeat(self):
        table = self.folder / "table.json"
        code, _, err = run("--against", PROGRAM, "--json", table, CASE)
        self.assertEqual(code, 0, err)
        (row,) = json.loads(table.read_text())
        self.assertEqual(row["case"], CASE)
        for count in (row["instructions"], row["against"]):
            self.assertAlmostEqual(count / self.count, 1.0, delta=0.005)

    def test_another_build_is_not_compared(self):
        self.addCleanup(self.write, self.read())
        self.write(self.read() | {"build": "GNU 4.2.1"})
        code, out, _ = run("--counts", self.path, CASE)
        self.assertEqual(code, SKIPPED)
        self.assertIn("the committed counts are of 'GNU 4.2.1'", out)
        code, _, err = run("--counts", self.path, "--renew", CASE)
        self.assertEqual(code, 2)
        self.assertIn("renew every case", err)

    def test_a_missing_case_is_an_error(self):
        self.addCleanup(self.write, self.read())
        counts = self.read()
        del counts["instructions"]["merge"]
        self.write(counts)
        code, _, err = run("--counts", self.path, CASE)
        self.assertEqual(code, 2)
        self.assertIn("different cases, such as 'merge'", err)

    def test_bad_usage(self):
        for args, wrong in (
            (
                ["--counts", self.path, "nonsense"],
                "no case 'nonsense'; known cases: forward/plain",
            ),
            (["--jobs", "0"], "--jobs must be at least 1, got 0"),
            (["--renew", "--against", PROGRAM], "exclude each other"),
            (["--counts", self.folder / "none.json"], "none.json; make it with"),
        ):
            code, _, err = run(*args)
            self.assertEqual(code, 2, args)
            self.assertIn(wrong, err)
        code, _, err = run(program=str(self.folder / "absent"))
        self.assertEqual(code, 2)
        self.assertIn("there is no program", err)


if __name__ == "__main__":
    code, out, _ = run("--against", PROGRAM, CASE)
    if code == SKIPPED:
        print(out, end="")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
