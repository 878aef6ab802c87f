"""The programs of bench/, run once on their smallest calls.

usage: bench_test.py SUITE PROGRAM     SUITE is Named or Short
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.abspath(sys.argv[2])
EPSILON = 2.0**-23


def run(*args):
    """Exit code, standard output and standard error of one call."""
    done = subprocess.run(
        [PROGRAM, *args], capture_output=True, text=True, timeout=600, check=False
    )
    return done.returncode, done.stdout, done.stderr


class Named(unittest.TestCase):
    """locus_bench: benchmarks by name."""

    def test_names(self):
        code, out, _ = run("--benchmark_list_tests")
        self.assertEqual(code, 0)
        names = out.split()
        self.assertEqual(len(names), len(set(names)))
        for name in (
            "AttnFwd/alibi/f32/causal/L:2048/D:64/H:8",
            "AttnBwd/transformer-xl/bf16/full/L:8192/D:128/H:16",
            "Decode/rope/bf16/L:8192/D:128/H:32/K:8",
            "Decode/none/i8/L:8192/D:128/H:32/K:8",
            "Rotate/halves/f32/L:4096/D:128/H:32/K:8",
        ):
            self.assertIn(name, names)
        for name in names:
            self.assertRegex(
                name,
                r"^(Attn(Fwd|Bwd)/[a-z0-9-]+/(f32|bf16|f16)/(full|causal)|"
                r"Rotate/[a-z0-9-]+/(f32|bf16|f16)|"
                r"Decode/[a-z0-9-]+/(f32|bf16|f16|i8))/"
                r"L:\d+/D:\d+/H:\d+(/K:\d+)?$",
            )
        # Encodings of the input are plain for attention.
        self.assertFalse([name for name in names if "sinusoidal" in name])

    def measure(self, pattern):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            code, _, _ = run(
                "--threads=1",
                "--benchmark_min_time=0.001",
                f"--benchmark_filter={pattern}",
                f"--benchmark_out={path}",
                "--benchmark_out_format=json",
            )
            self.assertEqual(code, 0)
            with open(path, encoding="utf-8") as file:
                return json.load(file)

    def check(self, rows, counters):
        for row in rows:
            self.assertNotIn("error_occurred", row)
            for counter in (*counters, "error"):
                self.assertGreater(row[counter], 0, row["name"])
            # A sum of 128 terms in float32.
            self.assertLess(row["error"], 20 * EPSILON, row["name"])

    def test_attention_carries_limits_and_errors(self):
        data = self.measure("^Attn.*/(none|shaw)/f32/causal/L:128/")
        context = data["context"]
        self.assertEqual(context["locus_threads"], "1")
        for limit in (
            "fma_gflops",
            "read_gb_per_s",
            "copy_gb_per_s",
            "update_gb_per_s",
        ):
            self.assertGreater(float(context[limit]), 0)
        self.assertEqual(
            [row["name"] for row in data["benchmarks"]],
            [
                f"{what}/{name}/f32/causal/L:128/D:64/H:8"
                for what in ("AttnFwd", "AttnBwd")
                for name in ("none", "shaw")
            ],
        )
        self.check(data["benchmarks"], ("GFLOP/s", "of_fma_peak", "of_plain"))

    def test_streams_carry_limits_and_errors(self):
        data = self.measure("^(Decode/(none|rope)|Rotate/.*)/f32/L:128/")["benchmarks"]
        self.assertEqual(
            [row["name"] for row in data],
            [
                f"{what}/f32/L:128/D:128/H:32/K:8"
                for what in (
                    "Decode/none",
                    "Decode/rope",
                    "Rotate/interleaved",
                    "Rotate/halves",
                )
            ],
        )
        self.check(data[:2], ("bytes/s", "of_read_bandwidth", "of_plain"))
        self.check(data[2:], ("bytes/s", "of_update_bandwidth"))

    def test_refusals(self):
        code, _, err = run("--threads=0")
        self.assertEqual(
            (code, err), (2, "locus_bench: --threads must lie in 1 .. 1024, got '0'\n")
        )
        self.assertNotEqual(run("--benchmark_filter=no-such-name")[0], 0)
        self.assertEqual(run("--no-such-flag")[0], 2)


class Short(unittest.TestCase):
    """locus_short: against OpenBLAS."""

    def test_table_and_json(self):
        for more in ((), ("--bias",)):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "short.json")
                code, out, err = run(
                    "--longest=4", "--threads=2", f"--json={path}", *more
                )
                self.assertEqual((code, err), (0, ""))
                with open(path, encoding="utf-8") as file:
                    data = json.load(file)
            self.assertEqual((data["threads"], data["bias"]), (2, bool(more)))
            rows = data["rows"]
            self.assertEqual(
                [(r["heads"], r["length"]) for r in rows],
                [(h, n) for h in (1, 8, 64) for n in (1, 4)],
            )
            for r in rows:
                # Both round outputs of size about 1 to 4 in float32.
                self.assertLess(r["error"], 40 * EPSILON)
                self.assertAlmostEqual(
                    r["ratio"],
                    min(r["products_us"], r["heads_us"]) / r["locus_us"],
                    delta=0.01 * r["ratio"],  # times are rounded
                )
            self.assertEqual(
                len(re.findall(r"^ .* (wins|loses) ", out, re.MULTILINE)), len(rows)
            )
            losses = sum(r["ratio"] < 1 for r in rows)
            said = out.splitlines()[-1]
            self.assertEqual(len(re.findall(r"\d+ x \d+ \(", said)), losses)
            self.assertTrue(said.startswith("Locus loses at "), said)

    def test_refusals(self):
        self.assertEqual(
            run("--longest=5000")[::2],
            (2, "locus_short: --longest must lie in 1 .. 4096, got '5000'\n"),
        )
        self.assertEqual(
            run("--json=/no/such/file")[::2],
            (
                2,
                "locus_short: cannot write '/no/such/file': No such file or "
                "directory\n",
            ),
        )
        self.assertEqual(
            run("--fast")[::2],
            (
                2,
                "locus_short: unexpected argument '--fast'; known arguments: "
                "--threads=N, --longest=N, "
                "--bias, --json=FILE\n",
            ),
        )


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], sys.argv[1]], verbosity=1)
