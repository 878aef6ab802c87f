"""bench/versions.py, with programs whose times are known and with the true one.

usage: versions_test.py TOOL PROGRAM     PROGRAM is locus_turns
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:3])

# Stands in for locus_turns: every call takes TIME microseconds, those over
# T5's bias twice as long; it has written down what it was asked for.
STAND_IN = """#!{python}
import sys
log = open("{log}", "a")
for line in sys.stdin:
    line = line.strip()
    print(line, file=log, flush=True)
    if line == "encodings":
        print("{encodings}", flush=True)
    elif "{fails}" in line:
        print("error: no such call", flush=True)
    else:
        print({time} * (2 if "t5" in line else 1), flush=True)
"""


class Versions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.saved = self.folder / "rows.json"

    def program(self, name, time, encodings="none t5 alibi", fails="nothing"):
        """The path of a stand-in for locus_turns."""
        path = self.folder / name
        path.write_text(
            STAND_IN.format(
                python=sys.executable,
                log=self.folder / f"{name}.log",
                encodings=encodings,
                fails=fails,
                time=time,
            )
        )
        path.chmod(0o755)
        return str(path)

    def asked(self, name):
        """The rows that a stand-in was asked for, without the greeting."""
        lines = (self.folder / f"{name}.log").read_text().splitlines()
        return [line for line in lines if line != "encodings"]

    def run_tool(self, *args):
        """Exit code, standard output and standard error of one call."""
        done = subprocess.run(
            [sys.executable, TOOL, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def test_ratio_is_old_over_new(self):
        old, new = self.program("old", 30.0), self.program("new", 20.0)
        code, out, _ = self.run_tool(old, new, "--rounds", 3, "--save", self.saved)
        self.assertEqual(code, 0, out)
        rows = json.loads(self.saved.read_text())["rows"]
        for name in (
            "AttnInto/alibi/f32/full/L:4/D:64/H:64",
            "AttnFwd/none/f32/causal/L:128/D:64/H:8",
            "AttnBwd/t5/f32/full/L:2048/D:128/H:8",
            "Decode/alibi/bf16/L:8192/D:128/H:32/K:8",
            "Rotate/halves/f16/L:4096/D:128/H:32/K:8",
        ):
            self.assertEqual(rows[name]["ratios"], [1.5, 1.5, 1.5], name)
        self.assertEqual(rows["AttnBwd/t5/f32/full/L:512/D:64/H:8"]["new_us"], 40.0)
        self.assertIn(f"0 of {len(rows)} rows below 0.98", out)
        self.assertEqual(self.asked("old"), self.asked("new"))
        self.assertEqual(len(self.asked("old")), 3 * len(rows))

    def test_slow_rows_are_told(self):
        old, new = self.program("old", 19.0), self.program("new", 20.0)
        row = "Rotate/halves/f32/L:4096/D:128/H:32/K:8"
        code, out, _ = self.run_tool(old, new, "--only", f"^{row}$", "--rounds", 2)
        self.assertEqual(code, 1)
        self.assertIn("1 of 1 rows below 0.98", out)
        self.assertRegex(out, rf"  {row} +0\.950  \(0\.95 to 0\.95\)  19\.00 -> 20\.00")
        code, _, _ = self.run_tool(
            old, new, "--only", f"^{row}$", "--rounds", 2, "--floor", 0.9
        )
        self.assertEqual(code, 0)

    def test_only_encodings_that_both_have(self):
        old = self.program("old", 1.0, encodings="none t5")
        new = self.program("new", 1.0, encodings="none t5 alibi")
        code, _, _ = self.run_tool(old, new, "--rounds", 1, "--only", "AttnFwd")
        self.assertEqual(code, 0)
        self.assertEqual(
            {row.split("/")[1] for row in self.asked("new")}, {"none", "t5"}
        )

    def test_a_run_resumes(self):
        old, new = self.program("old", 19.0), self.program("new", 20.0)
        args = (old, new, "--rounds", 1, "--only", "Rotate", "--save", self.saved)
        code, out, _ = self.run_tool(*args, "--seconds", 1e-9)
        self.assertEqual(code, 3)
        self.assertIn("run the same command again", out)
        self.assertEqual(self.run_tool(*args)[0], 1)
        self.assertEqual(len(self.asked("new")), 6)
        # Every row is there: nothing is measured, unless asked for.
        self.assertEqual(self.run_tool(*args)[0], 1)
        self.assertEqual(len(self.asked("new")), 6)
        self.assertEqual(self.run_tool(*args, "--again")[0], 1)
        self.assertEqual(len(self.asked("new")), 12)

    def test_failures(self):
        old = self.program("old", 1.0)
        new = self.program("new", 1.0, fails="Decode/t5")
        absent = self.folder / "absent"
        for args, wrong in (
            ((old, absent), "No such file"),
            ((old, new, "--only", "Decode"), "Decode/t5/f32"),
            ((old, new, "--only", "Nonsense"), "no such row"),
            ((old, new, "--rounds", "0"), "--rounds must be at least 1, got 0"),
            ((old, new, "--again"), "--again needs --save"),
            ((old, "/bin/true"), "/bin/true ended with code 0"),
        ):
            code, _, err = self.run_tool(*args)
            self.assertEqual(code, 2, args)
            self.assertIn(wrong, err)
        self.saved.write_text("[]")
        code, _, err = self.run_tool(old, old, "--save", self.saved)
        self.assertEqual(code, 2)
        self.assertIn("is no saved run", err)

    def test_the_true_program(self):
        code, out, err = self.run_tool(
            *(PROGRAM, PROGRAM, "--rounds", 1, "--floor", 0, "--threads", 1),
            *("--lengths", "64", "--dims", "64", "--encodings", "none,t5"),
            *("--short", "4", "--only", "Attn|Rotate.*f32", "--save", self.saved),
        )
        self.assertEqual(code, 0, out + err)
        rows = json.loads(self.saved.read_text())["rows"]
        self.assertEqual(len(rows), 2 * 3 + 2 * 2 * 2 + 2)
        for name, row in rows.items():
            self.assertGreater(row["new_us"], 0.0, name)

    def test_the_true_program_refuses(self):
        for line, wrong in (
            ("Nonsense/none", "expected one of AttnFwd"),
            ("AttnFwd/none/f32/full/L:0/D:64/H:8", "expected L:NUMBER"),
            ("AttnFwd/none/f32/half/L:8/D:64/H:8", "expected one of full, causal"),
            ("AttnFwd/none/f32", "seven parts"),
            ("AttnFwd/nonsense/f32/full/L:8/D:64/H:8", "nonsense"),
            ("Rotate/halves/f99/L:8/D:64/H:8/K:8", "expected one of f32"),
        ):
            done = subprocess.run(
                [PROGRAM], input=line + "\n", capture_output=True, text=True, check=True
            )
            self.assertRegex(done.stdout, "^error: ", line)
            self.assertIn(wrong, done.stdout)
        done = subprocess.run([PROGRAM, "--fast"], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
