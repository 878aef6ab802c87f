"""What the tests of locus-compare share: a folder, a corpus, and how to run it.

The program is the first argument of the test's own command line.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

COMPARE = os.path.abspath(sys.argv[1])
MANUAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "lab.md"

MODEL = ["--layers", "1", "--model-dim", "16", "--heads", "2"]
SHORT = ["--train-length", "8", "--lengths", "8,16", "--score-tokens", "64"]
# A corpus of our own: the tests need no package.
WORDS = "the cat sat on the mat and the dog saw it from the door of the barn "

# What may differ between two runs of one study: the clock, memory, the machine.
CLOCK = {
    "created",
    "command",
    "seconds",
    "machine",
    "attention_cost",
    "train_seconds",
    "seconds_per_step",
    "tokens_per_second",
    "peak_memory_bytes",
}


def without_clock(value):
    """The part of results that must be the same to the bit."""
    if isinstance(value, dict):
        return {k: without_clock(v) for k, v in value.items() if k not in CLOCK}
    if isinstance(value, list):
        return [without_clock(v) for v in value]
    return value


class Study(unittest.TestCase):
    """A folder of its own, and a corpus in it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="locus_compare_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.corpus = self.folder / "corpus.txt"
        rng = random.Random(1)
        words = WORDS.split()
        self.corpus.write_text(" ".join(rng.choices(words, k=60000)))

    def options(self, out="results", steps=6, more=(), jobs=2, batch=2):
        return [
            *MODEL,
            *SHORT,
            *("--corpus", str(self.corpus), "--steps", str(steps)),
            *("--out", str(self.folder / out), "--jobs", str(jobs)),
            *("--batch", str(batch)),
            *more,
        ]

    def start(self, arguments):
        return subprocess.Popen(
            [COMPARE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_it(self, arguments, before=None):
        done = subprocess.run(
            [COMPARE, *arguments],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
            preexec_fn=before,
        )
        return done.returncode, done.stdout, done.stderr

    def fails(self, arguments, *parts, code=2, before=None):
        """One line on standard error that has these parts, nothing else."""
        got, out, err = self.run_it(arguments, before)
        self.assertEqual((got, out), (code, ""), err)
        last = err.splitlines()[-1]
        self.assertTrue(last.startswith("locus: "), err)
        for part in parts:
            self.assertIn(part, last)
        return err

    def good(self, arguments):
        code, out, err = self.run_it(arguments)
        self.assertEqual(code, 0, err)
        return out, err

    def results(self, out="results"):
        return json.loads((self.folder / out / "results.json").read_text())


SMALL = ("--encodings", "learned,rope", "--task", "text", "--seeds", "1")
PLAIN = (*SMALL, "--extend", "off", "--cost-lengths", "off")


def run_suites(suites, names):
    """Runs those of the names, or all, and ends the program."""
    chosen = [suites[name] for name in names] or list(suites.values())
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(map(loader.loadTestsFromTestCase, chosen))
    passed = unittest.TextTestRunner(verbosity=1).run(suite).wasSuccessful()
    sys.exit(0 if passed else 1)
