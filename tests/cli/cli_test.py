"""The locus tool, run as a user runs it.

usage: cli_test.py LOCUS [SUITE]
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pictures

LOCUS = os.path.abspath(sys.argv[1])


def run(*args, env=None, cwd=None):
    """Exit code, standard output and standard error of one call."""
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("NO_COLOR", "COLUMNS", "COLORTERM")
    }
    environment.update(env or {})
    done = subprocess.run(
        [LOCUS, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def good(*args, **more):
    """Standard output of a call that must succeed in silence."""
    code, out, err = run(*args, **more)
    assert (code, err) == (0, ""), (args, code, err)
    return out


NAMES = [e["name"] for e in json.loads(good("list", "--json"))["encodings"]]
# The commands, as the tool's own help lists them: two blanks, then a name.
COMMANDS = re.findall(
    r"^  ([a-z-]+) ",
    good("--help").split("Subcommands:")[1].split("Example")[0],
    re.MULTILINE,
)
PROPERTIES = [
    "order",
    "direction",
    "unique",
    "bounded",
    "length-invariant",
    "relative",
    "linear-shift",
    "continuous",
    "purpose",
    "norm-preserving",
    "decays",
    "past-length",
]


class List(unittest.TestCase):
    def test_json_has_every_key(self):
        data = json.loads(good("list", "--json"))
        self.assertEqual(list(data), ["version", "encodings"])
        self.assertEqual(len(set(NAMES)), 22)
        for e in data["encodings"]:
            self.assertEqual(
                list(e),
                [
                    "name",
                    "class",
                    "title",
                    "formula",
                    "terms",
                    "reference",
                    "trainable",
                    "extrapolates",
                    "extrapolation_note",
                    "picture",
                    "options",
                    "paper",
                    "models",
                ],
            )
            self.assertIn(e["reference"], ("none", "absolute", "relative"))
            self.assertIn(e["extrapolates"], ("no", "partly", "yes"))
            self.assertIn(e["picture"], ("embedding", "bias", "rotation", "score"))
        terms = {e["name"]: e["terms"] for e in data["encodings"]}
        self.assertEqual(terms["none"], [])
        self.assertEqual(terms["rope"], ["rotate"])
        self.assertEqual(terms["shaw"], ["q_table", "v_table"])

    def test_table_fits_and_names_all(self):
        for width in (100, 120, 200):
            out = good("list", env={"COLUMNS": str(width)})
            self.assertLessEqual(max(map(len, out.splitlines())), width)
            first = [line.split()[0] for line in out.splitlines() if line[0] != " "]
            self.assertEqual(first, ["encoding", *NAMES])
        self.assertLessEqual(max(map(len, good("list").splitlines())), 100)

    def test_version(self):
        version = json.loads(good("version", "--json"))
        self.assertEqual(list(version), ["name", "version"])
        self.assertEqual(good("version"), f"locus {version['version']}\n")

    def test_help_has_examples(self):
        self.assertIn("Example", good("--help"))
        self.assertLessEqual({"list", "show", "check", "version"}, set(COMMANDS))
        for command in COMMANDS:
            program = f"{LOCUS}-{command}"
            if command in ("compare", "ring") and not os.path.exists(program):
                continue  # see test_command_that_is_not_built
            out = good(command, "--help")
            self.assertIn("Example", out)
            self.assertIn(f"locus {command}", out)

    def test_command_that_is_not_built(self):
        """The tool alone in a folder: `compare` and `ring` are other programs."""
        with tempfile.TemporaryDirectory() as folder:
            alone = shutil.copy(LOCUS, folder)
            for command, option in (("compare", "LAB"), ("ring", "RING")):
                done = subprocess.run(
                    [alone, command], capture_output=True, text=True, check=False
                )
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(
                    done.stderr,
                    rf"^locus: there is no \S*/locus-{command}, so this build has "
                    rf"no '{command}'; build it with -DLOCUS_{option}=ON\n$",
                )


class Show(unittest.TestCase):
    def test_terminal_is_plain_ascii_when_not_a_terminal(self):
        for name in NAMES:
            out = good("show", name)
            self.assertTrue(out.isascii(), name)
            self.assertNotIn("\x1b", out)
            self.assertGreater(len(out.splitlines()), 12, name)
            self.assertLessEqual(max(map(len, out.splitlines()[2:])), 100, name)

    def test_colours(self):
        true_colour = good(
            "show", "rope", "--color", "always", env={"COLORTERM": "truecolor"}
        )
        self.assertIn("\x1b[38;2;", true_colour)
        self.assertIn("\u2580", true_colour)
        few = good("show", "rope", "--color", "always")
        self.assertIn("\x1b[38;5;", few)
        self.assertNotIn(";2;", few)
        self.assertNotIn("\x1b", good("show", "rope", "--color", "never"))

    def test_no_color_on_a_terminal(self):
        for env, coloured in (
            ({"TERM": "xterm"}, True),
            ({"TERM": "xterm", "NO_COLOR": "1"}, False),
            ({"TERM": "dumb"}, False),
        ):
            out = self.on_a_terminal(env, "show", "alibi")
            self.assertEqual(b"\x1b[" in out, coloured, env)

    def on_a_terminal(self, env, *args):
        import pty

        master, slave = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        environment.update(env)
        child = subprocess.Popen([LOCUS, *args], stdout=slave, env=environment)
        os.close(slave)
        out = b""
        try:
            while chunk := os.read(master, 65536):
                out += chunk
        except OSError:
            pass  # the child has closed its side
        os.close(master)
        self.assertEqual(child.wait(), 0)
        return out

    def test_json_has_every_key(self):
        kinds = {
            "heatmap": [
                "kind",
                "title",
                "x_label",
                "y_label",
                "value_label",
                "first_x",
                "first_y",
                "values",
            ],
            "curves": ["kind", "title", "x_label", "y_label", "x", "curves", "band"],
        }
        for name in NAMES:
            data = json.loads(good("show", name, "--json", "--length", "32"))
            self.assertEqual(
                list(data),
                [
                    "encoding",
                    "title",
                    "formula",
                    "config",
                    "terms",
                    "description",
                    "picture",
                    "panels",
                    "out",
                ],
            )
            self.assertEqual(data["encoding"], name)
            self.assertIsNone(data["out"])
            self.assertEqual(
                data["config"],
                {"heads": 8, "dim": 64, "length": 32, "seed": 1, "options": {}},
            )
            for panel in data["panels"]:
                self.assertEqual(list(panel), kinds[panel["kind"]])
                for curve in panel.get("curves", []):
                    self.assertEqual(len(curve["y"]), len(panel["x"]))

    def test_numbers_are_those_of_the_formulas(self):
        alibi = json.loads(good("show", "alibi", "--json", "--heads", "2"))["panels"][0]
        at = alibi["x"].index(10)
        self.assertEqual([c["y"][at] for c in alibi["curves"]], [-10 / 16, -10 / 256])
        index = json.loads(good("show", "index", "--json"))["panels"][0]
        self.assertEqual(index["values"][3], list(range(128)))
        for curve in json.loads(good("show", "none", "--json"))["panels"][0]["curves"]:
            self.assertEqual(len(set(curve["y"])), 1)  # honestly flat
        rope = json.loads(good("show", "rope", "--json"))["panels"][1]
        self.assertAlmostEqual(rope["curves"][0]["y"][0], 1.0, places=12)

    def test_terms(self):
        out = good("show", "rope", "--terms", "-o", "base=500000")
        self.assertIn("rot(q).rot(k)", out)
        self.assertNotIn("rot(q)", good("show", "rope"))
        self.assertIn("input_add", good("show", "learned", "--terms"))

    def test_options_and_seed_change_the_picture(self):
        plain = good("show", "t5")
        self.assertEqual(plain, good("show", "t5"))
        self.assertNotEqual(plain, good("show", "t5", "--seed", "2"))
        self.assertNotEqual(
            plain, good("show", "t5", "-o", "buckets=8", "-o", "max_distance=64")
        )


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def test_png_of_every_encoding(self):
        for name in NAMES:
            path = self.path(f"{name}.png")
            self.assertEqual(good("show", name, "--out", path), "")
            width, height, colours = pictures.png_pixels(path)
            self.assertEqual(width, 1200)
            self.assertIn(height, (760, 1000))
            self.assertGreater(len(colours), 8, name)
        self.assertEqual(len(os.listdir(self.folder.name)), len(NAMES))

    def test_svg_of_every_encoding(self):
        for name in NAMES:
            path = self.path(f"{name}.svg")
            data = json.loads(good("show", name, "--json", "--out", path))
            self.assertEqual(data["out"], path)
            text = pictures.svg_text(path)
            self.assertIn(data["title"], text)
            for panel in data["panels"]:
                self.assertIn(panel["x_label"], text)
                self.assertIn(panel["y_label"], text)
                for curve in panel.get("curves", []):
                    self.assertIn(curve["label"], text)
        self.assertEqual(len(os.listdir(self.folder.name)), len(NAMES))

    def test_pictures_are_deterministic_and_replace(self):
        path = self.path("a.png")
        with open(path, "w", encoding="ascii") as file:
            file.write("old")
        good("show", "sinusoidal", "--out", path)
        with open(path, "rb") as file:
            first = file.read()
        good("show", "sinusoidal", "--out", path)
        with open(path, "rb") as file:
            self.assertEqual(first, file.read())

    def test_terminal_beside_file(self):
        out = good("show", "alibi", "--terminal", "--out", self.path("a.svg"))
        self.assertIn("offset", out)

    def fails(self, message, *args, env=None):
        code, out, err = run(*args, env=env, cwd=self.folder.name)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, f"locus: {message}\n")

    def test_nothing_is_left_after_a_failure(self):
        self.fails(
            "cannot write no/such/folder.png: No such file or directory",
            "show",
            "rope",
            "--out",
            "no/such/folder.png",
        )
        self.fails(
            "--out must name a .png or .svg file, got 'rope.gif'",
            "show",
            "rope",
            "--out",
            "rope.gif",
        )
        os.mkdir(self.path("taken.png"))
        self.fails(
            "cannot write taken.png: Is a directory",
            "show",
            "rope",
            "--out",
            "taken.png",
        )
        os.rmdir(self.path("taken.png"))
        self.fails(
            "gnuplot, which draws pictures into files, could not be run: "
            "No such file or "
            "directory",
            "show",
            "rope",
            "--out",
            "rope.png",
            env={"PATH": "/nonexistent"},
        )
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_gnuplot_that_fails(self):
        tools = tempfile.TemporaryDirectory()
        self.addCleanup(tools.cleanup)
        fake = os.path.join(tools.name, "gnuplot")
        with open(fake, "w", encoding="ascii") as file:
            file.write("#!/bin/sh\necho 'line 1: no such terminal' >&2\nexit 1\n")
        os.chmod(fake, 0o755)
        env = {"PATH": tools.name + ":/usr/bin:/bin"}
        with open(self.path("kept.png"), "w", encoding="ascii") as file:
            file.write("old")
        self.fails(
            "gnuplot could not draw kept.png: line 1: no such terminal",
            "show",
            "rope",
            "--out",
            "kept.png",
            env=env,
        )
        self.assertEqual(os.listdir(self.folder.name), ["kept.png"])
        with open(self.path("kept.png"), encoding="ascii") as file:
            self.assertEqual(file.read(), "old")


class Bench(unittest.TestCase):
    SMALL = ("--length", "70", "--heads", "2", "--dim", "16", "--repeats", "1")
    SECTIONS = ["attention", "memory", "growth", "decode", "rotation"]
    CALL = ["encoding", "direction", "causal", "dtype", "heads", "length", "dim"]

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
            # A slope a head for past and future, in float64.
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
        self.assertEqual(
            [(r["encoding"], r["dtype"]) for r in data["decode"]],
            [(name, dtype) for dtype in types for name in ("none", "rope")],
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
                size, tolerance = types[r["dtype"]]
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
            "The dearest is ",
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
                f"there is no encoding 'nope'; known are {known}",
            ),
            (("--heads", "-2"), "--heads must lie in 0 .. 1024, got -2"),
            (("--dim", "2000"), "--dim must lie in 0 .. 1024, got 2000"),
            (("--rotation", "--dim", "7"), "rotary_dim must be even, got 7"),
            (("--length", "-1"), "--length must lie in 0 .. 1048576, got -1"),
            (("--length", "long"), "--length must be a whole number, got 'long'"),
            (("--threads", "1.5"), "--threads must be a whole number, got '1.5'"),
            (("--repeats", "1001"), "--repeats must lie in 0 .. 1000, got 1001"),
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
                "cannot write no/such/file.json: No such file or directory",
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
        import signal

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
            try:
                while chunk := os.read(master, 4096):
                    told += chunk
            except OSError:
                pass  # the child has closed its side
            os.close(master)
            self.assertEqual((child.returncode, out), (-signal.SIGINT, b""))
            self.assertTrue(told.endswith(b"locus: interrupted\r\n"), told)
            self.assertEqual(os.listdir(self.folder.name), [])


class Check(unittest.TestCase):
    def test_json_of_every_encoding(self):
        for name in NAMES:
            data = json.loads(good("check", name, "--json"))
            self.assertEqual(
                list(data), ["encoding", "config", "properties", "required", "met"]
            )
            self.assertEqual([p["name"] for p in data["properties"]], PROPERTIES)
            for p in data["properties"]:
                self.assertEqual(
                    list(p),
                    [
                        "name",
                        "question",
                        "verdict",
                        "value",
                        "measure",
                        "threshold",
                        "sentence",
                    ],
                )
                self.assertIn(p["verdict"], ("yes", "no", "does not apply"))
            self.assertEqual((data["required"], data["met"]), ([], True))

    def test_text_fits(self):
        for name in ("none", "rope", "learned", "alibi"):
            out = good("check", name)
            self.assertLessEqual(max(map(len, out.splitlines())), 100)
            for p in PROPERTIES:
                self.assertIn(f"\n{p} ", out)

    def test_what_each_naive_scheme_breaks(self):
        for name, broken in (
            ("none", "order"),
            ("index", "bounded"),
            ("normalised-index", "length-invariant"),
            ("binary", "continuous"),
            ("sine", "linear-shift"),
            ("learned", "past-length"),
        ):
            self.assertEqual(
                run("check", name, "--require", f"{broken}=no")[0], 0, name
            )
            self.assertEqual(
                run("check", name, "--require", f"{broken}=yes")[0], 1, name
            )

    def test_require(self):
        out = good(
            "check", "rope", "--require", "relative=yes", "--require", "decays=yes"
        )
        self.assertIn("required relative = yes: holds", out)
        code, out, err = run("check", "rope", "--require", "relative=no")
        self.assertEqual((code, err), (1, ""))
        self.assertIn("required relative = no: found yes", out)
        code, out, _ = run(
            "check",
            "alibi",
            "--json",
            "--require",
            "bounded=yes",
            "--require",
            "decays=yes",
        )
        self.assertEqual(code, 1)
        data = json.loads(out)
        self.assertFalse(data["met"])
        self.assertEqual(
            data["required"],
            [
                {"property": "bounded", "required": "yes", "found": "no", "met": False},
                {"property": "decays", "required": "yes", "found": "yes", "met": True},
            ],
        )


class Errors(unittest.TestCase):
    known = ", ".join(NAMES)
    cases = [
        ((), f"a command is required: {', '.join(COMMANDS)}; see locus --help"),
        (
            ("frobnicate",),
            f"there is no command 'frobnicate'; known are {', '.join(COMMANDS)}",
        ),
        (("show",), "encoding is required; see locus show --help"),
        (("show", "nope"), f"there is no encoding 'nope'; known are {known}"),
        (("check", "nope"), f"there is no encoding 'nope'; known are {known}"),
        (
            ("show", "cope"),
            "CoPE is outside: its positions are sums of gates over the scores of the "
            "keys in "
            "between, so no bucket of m - n can stand for them",
        ),
        (("show", "rope", "--heads", "0"), "--heads must lie in 1 .. 1024, got 0"),
        (("show", "rope", "--heads", "-3"), "--heads must lie in 1 .. 1024, got -3"),
        (("check", "rope", "--dim", "abc"), "--dim must be a whole number, got 'abc'"),
        (("check", "rope", "--dim", "8.5"), "--dim must be a whole number, got '8.5'"),
        (
            ("show", "rope", "--length", "99999999999999999999"),
            "--length must lie in 2 .. 65536, got 99999999999999999999",
        ),
        (("show", "rope", "--seed", "-1"), "--seed must be a whole number, got '-1'"),
        (
            ("show", "rope", "--dim", "63"),
            "rotary_dim must be even and at most head_dim 63, got 63",
        ),
        (
            ("show", "sinusoidal", "--dim", "7"),
            "the sinusoids' dim must be even, got 7",
        ),
        (
            ("show", "rope", "-o", "base"),
            "an option must be given as name=value, got 'base'",
        ),
        (
            ("show", "rope", "-o", "base=nan"),
            "RoPE's base must be positive and finite, got nan",
        ),
        (
            ("show", "rope", "-o", "base=ten"),
            "rope option base must be a number, got 'ten'",
        ),
        (
            ("show", "alibi", "-o", "slope=1"),
            "alibi has no option 'slope'; it has bias_max",
        ),
        (("show", "none", "-o", "x=1"), "none has no option 'x'"),
        (
            ("check", "rope", "--length", "7"),
            "a check needs a length of at least 8, got 7",
        ),
        (
            ("check", "rope", "--require", "relative"),
            "--require must be PROPERTY=yes or PROPERTY=no, got 'relative'",
        ),
        (
            ("check", "rope", "--require", "beauty=yes"),
            f"there is no property 'beauty'; known are {', '.join(PROPERTIES)}",
        ),
        (("show", "rope", "--bad"), "unexpected argument: --bad; see locus --help"),
        (("list", "--json", "more"), "unexpected argument: more; see locus --help"),
        (("show", "rope", "--out"), "--out needs a value"),
    ]

    def test_one_sentence_each(self):
        for args, message in self.cases:
            code, out, err = run(*args)
            with self.subTest(args=args):
                self.assertEqual(code, 2)
                self.assertEqual(out, "")
                self.assertEqual(err, f"locus: {message}\n")

    def test_color_is_checked(self):
        code, out, err = run("show", "rope", "--color", "pink")
        self.assertEqual((code, out, err.count("\n")), (2, "", 1))
        self.assertIn("pink", err)


class Pipes(unittest.TestCase):
    def test_reader_that_goes_away(self):
        for args in (("list",), ("show", "rope", "--json"), ("check", "rope")):
            reader, writer = os.pipe()
            child = subprocess.Popen(
                [LOCUS, *args], stdout=writer, stderr=subprocess.PIPE
            )
            os.close(writer)
            os.close(reader)
            _, err = child.communicate(timeout=60)
            self.assertEqual((child.returncode, err), (0, b""), args)

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.fail("/dev/full is needed to try a full disk")
        with open("/dev/full", "w", encoding="ascii") as full:
            done = subprocess.run(
                [LOCUS, "list"], stdout=full, stderr=subprocess.PIPE, check=False
            )
        self.assertEqual(done.returncode, 2)
        self.assertEqual(
            done.stderr,
            b"locus: cannot write to standard output: No space left on device\n",
        )


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
