"""locus bench, run as a user runs it.

usage: bench_test.py LOCUS [SUITE]
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pictures
from tool import LOCUS, NAMES, good, rest_of, run


class Bench(unittest.TestCase):
    SMALL = ("--length", "70", "--heads", "2", "--dim", "16", "--repeats", "1")
    SECTIONS = ["attention", "memory", "growth", "decode", "rotation"]
    CALL = [
        "encoding",
        "operand",
        "direction",
        "causal",
        "dtype",
        "heads",
        "length",
        "dim",
    ]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def measure(self, *args):
        data = json.loads(good("bench", "--json", *args, *self.SMALL))
        self.assertEqual(
            list(data), ["version", "threads", "simd", "machine", *self.SECTIONS]
        )
        self.assertEqual(
            list(data["machine"]),
            ["fma_gflops", "read_gb_per_s", "copy_gb_per_s", "update_gb_per_s"],
        )
        for limit in data["machine"].values():
            self.assertGreater(limit, 0)
        return data

    def rows(self, section):
        return [(r["encoding"], r["direction"], r["causal"]) for r in section]

    def test_attention(self):
        data = self.measure("--attention", "--encodings", "alibi,shaw,none")
        self.assertEqual(
            [s for s in self.SECTIONS if data[s] is not None], ["attention"]
        )
        self.assertEqual(
            self.rows(data["attention"]),
            [
                (name, direction, causal)
                for direction in ("forward", "backward")
                for causal in (False, True)
                for name in ("none", "alibi", "shaw")
            ],
        )
        for r in data["attention"]:
            self.assertEqual(
                list(r),
                [
                    *self.CALL,
                    "repeats",
                    "milliseconds",
                    "gflops",
                    "of_fma_peak",
                    "of_plain",
                    "error",
                    "error_length",
                ],
            )
            for key in ("milliseconds", "gflops", "of_fma_peak", "of_plain"):
                self.assertGreater(r[key]["low"], 0)
                self.assertLessEqual(r[key]["low"], r[key]["median"])
                self.assertLessEqual(r[key]["median"], r[key]["high"])
            # Float32 against float64: a sum of 70 terms, 20 epsilons of 1.2e-7.
            self.assertLess(r["error"], 20 * 1.2e-7)
            self.assertGreater(r["error"], 0)

    def test_every_operand_beside_plain_attention(self):
        data = self.measure("--attention", "--operands", "all", "--mask", "causal")
        self.assertEqual({r["encoding"] for r in data["attention"]}, {"none"})
        self.assertLessEqual(
            {None, "sinks", "mask", "key-bias", "pair-bias", "dropout"},
            {r["operand"] for r in data["attention"]},
        )
        for r in data["attention"]:
            # Float32 against float64, as above; a dropped weight would show.
            self.assertLess(r["error"], 40 * 1.2e-7, r["operand"])
        data = self.measure("--memory", "--operands", "mask")
        self.assertEqual(
            [r["operand"] for r in data["memory"]], [None, "mask", None, "mask"]
        )
        code, _, error = run("bench", "--operands", "sink")
        self.assertEqual(code, 2)
        self.assertIn("no operand is called 'sink'; known values: query-scale", error)

    def test_half_precision_has_its_own_error(self):
        for dtype, epsilon in (("bf16", 2.0**-7), ("f16", 2.0**-10)):
            data = self.measure(
                "--attention",
                "--encodings",
                "rope",
                "--mask",
                "causal",
                "--dtype",
                dtype,
            )
            self.assertEqual(len(data["attention"]), 4)
            for r in data["attention"]:
                self.assertEqual((r["dtype"], r["causal"]), (dtype, True))
                # Results are rounded once; gradients are made of rounded outputs.
                self.assertLess(r["error"], 2 * epsilon)
                self.assertGreater(r["error"], epsilon / 100)

    def test_all_is_every_encoding_that_acts_in_attention(self):
        terms = {
            e["name"]: e["terms"]
            for e in json.loads(good("list", "--json"))["encodings"]
        }
        acting = [name for name in NAMES if terms[name] != ["input_add"]]
        data = self.measure(
            "--attention",
            "--decode",
            "--encodings",
            "all",
            "--mask",
            "full",
            "--dtype",
            "f32",
        )
        self.assertEqual([r["encoding"] for r in data["decode"]], acting)
        self.assertEqual(
            self.rows(data["attention"]),
            [
                (name, direction, False)
                for direction in ("forward", "backward")
                for name in acting
            ],
        )

    def test_memory(self):
        data = self.measure("--memory", "--encodings", "alibi")
        self.assertIsNone(data["attention"])
        self.assertEqual(
            self.rows(data["memory"]),
            [
                (name, direction, False)
                for direction in ("forward", "backward")
                for name in ("none", "alibi")
            ],
        )
        q_bytes = 4 * 2 * 70 * 16
        outputs = {"forward": q_bytes + 4 * 2 * 70, "backward": 3 * q_bytes}
        for r in data["memory"]:
            self.assertEqual(
                list(r),
                [
                    *self.CALL,
                    "output_bytes",
                    "extra_bytes",
                    "limit_bytes",
                    "within_limit",
                ],
            )
            # A slope per head for past and future, in float64.
            ramp = (
                2 * 2 * 8
                if (r["encoding"], r["direction"]) == ("alibi", "backward")
                else 0
            )
            self.assertEqual(r["output_bytes"], outputs[r["direction"]] + ramp)
            self.assertEqual(r["limit_bytes"], 64e6 + 4 * q_bytes)
            self.assertGreater(r["extra_bytes"], 0)
            self.assertTrue(r["within_limit"])

    def test_memory_sees_what_a_call_allocates(self):
        # Keys and values are packed: four times the length needs more.
        small, large = (
            json.loads(
                good(
                    "bench",
                    "--memory",
                    "--json",
                    "--encodings",
                    "none",
                    "--heads",
                    "4",
                    "--length",
                    str(length),
                )
            )["memory"][0]["extra_bytes"]
            for length in (2048, 8192)
        )
        self.assertGreater(large, 2 * small)

    def test_growth(self):
        data = self.measure("--growth", "--encodings", "rope", "--mask", "causal")
        self.assertEqual(
            self.rows(data["growth"]),
            [
                (name, direction, True)
                for direction in ("forward", "backward")
                for name in ("none", "rope")
            ],
        )
        for r in data["growth"]:
            self.assertEqual(
                list(r),
                [
                    *self.CALL,
                    "repeats",
                    "lengths",
                    "milliseconds",
                    "extra_bytes",
                    "time_ratio",
                    "memory_ratio",
                ],
            )
            self.assertEqual(r["lengths"], [17, 70])
            self.assertAlmostEqual(
                r["time_ratio"], r["milliseconds"][1] / r["milliseconds"][0]
            )

    def test_decode_and_rotation_are_bound_by_memory(self):
        data = self.measure("--decode", "--rotation", "--encodings", "rope")
        types = {"f32": (4, 20 * 1.2e-7), "bf16": (2, 2.0**-7), "f16": (2, 2.0**-10)}
        cached = {**types, "i8": (1 + 4 / 16, 1e-2)}  # with a scale per row
        self.assertEqual(
            [(r["encoding"], r["dtype"]) for r in data["decode"]],
            [(name, dtype) for dtype in cached for name in ("none", "rope")],
        )
        self.assertEqual(
            [(r["layout"], r["dtype"]) for r in data["rotation"]],
            [
                (layout, dtype)
                for dtype in types
                for layout in ("interleaved", "halves")
            ],
        )
        for section, first, limit, more in (
            ("decode", "encoding", "of_read", ["of_plain"]),
            ("rotation", "layout", "of_update", []),
        ):
            for r in data[section]:
                self.assertEqual(
                    list(r),
                    [
                        first,
                        "dtype",
                        "q_heads",
                        "kv_heads",
                        "length",
                        "dim",
                        "repeats",
                        "bytes",
                        "milliseconds",
                        "gb_per_s",
                        limit,
                        *more,
                        "error",
                        "error_length",
                    ],
                )
                size, tolerance = cached[r["dtype"]]
                # Two heads do not divide by four: keys have as many. Decode reads
                # keys and values; rotation reads and writes q and k.
                heads = 2 if section == "decode" else 4
                self.assertEqual(r["bytes"], 2 * heads * 70 * 16 * size)
                self.assertGreater(r[limit]["low"], 0)
                # Rounded once, and twice where cached keys are rotated.
                self.assertLess(r["error"], 2 * tolerance)
                self.assertGreater(r["error"], 0)

    def test_the_default_is_speed(self):
        data = self.measure("--encodings", "none", "--dtype", "f32")
        self.assertEqual(
            [s for s in self.SECTIONS if data[s] is not None],
            ["attention", "decode", "rotation"],
        )

    def test_tables(self):
        out = good(
            "bench",
            "--attention",
            "--memory",
            "--growth",
            "--decode",
            "--rotation",
            "--encodings",
            "rope",
            "--dtype",
            "f32",
            "--threads",
            "1",
            *self.SMALL,
        )
        self.assertIn("1 thread, ", out)
        # 4 rows of speed, 2 of memory, 2 of growth and 1 of decode.
        self.assertEqual(len(re.findall(r"^rope  ", out, re.MULTILINE)), 9)
        tables = [
            part for part in out.split("\n\n") if re.match("encoding|layout", part)
        ]
        self.assertEqual(len(tables), 5)
        for table in tables:
            title, *rows = table.splitlines()
            for row in rows:
                self.assertRegex(
                    row, r"^[a-z]+ +((for|back)ward +(full|causal)|f32) +[0-9.]+ "
                )
                self.assertEqual(len(row), len(rows[0]))
            self.assertLessEqual(abs(len(title) - len(rows[0])), 6)
        words = " ".join(out.split())
        for said in (
            "The slowest is ",
            "Every call stays within the limit.",
            "times the work",
            "reading keys and values once",
            "reading and writing q and k once",
        ):
            self.assertIn(said, words)

    def test_chart_and_save(self):
        chart, saved = self.path("speed.png"), self.path("speed.json")
        out = good(
            "bench",
            "--attention",
            "--encodings",
            "alibi",
            "--chart",
            chart,
            "--save",
            saved,
            *self.SMALL,
        )
        self.assertIn("alibi", out)
        width, height, colours = pictures.png_pixels(chart)
        self.assertEqual((width, height), (1200, 900))
        self.assertGreater(len(colours), 8)
        with open(saved, encoding="utf-8") as file:
            self.assertEqual(len(json.load(file)["attention"]), 8)
        svg = self.path("speed.svg")
        good(
            "bench",
            "--attention",
            "--encodings",
            "t5",
            "--mask",
            "causal",
            "--chart",
            svg,
            *self.SMALL,
        )
        text = pictures.svg_text(svg)
        for word in ("forward", "backward", "t5", "plain, causal"):
            self.assertIn(word, text)
        self.assertNotIn("plain, full", text)
        self.assertEqual(
            sorted(os.listdir(self.folder.name)),
            ["speed.json", "speed.png", "speed.svg"],
        )

    def test_refusals(self):
        known = ", ".join(NAMES)
        for args, message in (
            (
                ("--encodings", "nope"),
                f"there is no encoding 'nope'; known encodings: {known}",
            ),
            (("--heads", "-2"), "--heads must lie in 0 .. 1024, got -2"),
            (("--dim", "2000"), "--dim must lie in 0 .. 1024, got 2000"),
            (("--rotation", "--dim", "7"), "rotary_dim must be even, got 7"),
            (("--length", "-1"), "--length must lie in 0 .. 1048576, got -1"),
            (("--length", "long"), "--length must be a whole number, got 'long'"),
            (("--threads", "1.5"), "--threads must be a whole number, got '1.5'"),
            (("--repeats", "1001"), "--repeats must lie in 1 .. 1000, got 1001"),
            (
                ("--growth", "--length", "3"),
                "--growth compares --length with a quarter of it, got 3",
            ),
            (
                ("--chart", "speed.gif"),
                "--chart must name a .png or .svg file, got 'speed.gif'",
            ),
            (
                ("--memory", "--chart", "speed.png"),
                "--chart draws the speed of attention: add --attention",
            ),
            (
                (
                    "--memory",
                    "--encodings",
                    "none",
                    "--save",
                    "no/such/file.json",
                    *self.SMALL,
                ),
                "cannot write 'no/such/file.json': No such file or directory",
            ),
        ):
            code, out, err = run("bench", "--json", *args, cwd=self.folder.name)
            with self.subTest(args=args):
                self.assertEqual((code, out, err), (2, "", f"locus: {message}\n"))
        for flag, value in (("--mask", "half"), ("--dtype", "f64")):
            code, out, err = run("bench", flag, value)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1))
            self.assertIn(value, err)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_errors_of_a_child_arrive(self):
        # 63 channels do not pair: the encoding is built in the process measured.
        code, _, err = run(
            "bench", "--memory", "--encodings", "rope", "--dim", "63", "--length", "64"
        )
        self.assertEqual(
            (code, err),
            (2, "locus: rotary_dim must be even and at most head_dim 63, got 63\n"),
        )

    def test_progress_and_interrupt_on_a_terminal(self):
        import pty

        for section in ("--attention", "--memory"):
            master, slave = pty.openpty()
            child = subprocess.Popen(
                [
                    LOCUS,
                    "bench",
                    section,
                    "--json",
                    "--length",
                    "4096",
                    "--heads",
                    "16",
                    "--chart" if section == "--attention" else "--save",
                    self.path("x.png"),
                ],
                stdout=subprocess.PIPE,
                stderr=slave,
            )
            os.close(slave)
            told = b""
            while b"none forward" not in told:
                told += os.read(master, 4096)
            self.assertIn(b"1 of ", told)
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=120)
            told += rest_of(master)
            self.assertEqual((child.returncode, out), (-signal.SIGINT, b""))
            self.assertTrue(told.endswith(b"locus: interrupted\r\n"), told)
            self.assertEqual(os.listdir(self.folder.name), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
