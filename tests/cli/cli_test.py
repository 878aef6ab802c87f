"""The locus tool, run as a user runs it.

usage: cli_test.py LOCUS [SUITE]
"""

import csv
import io
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
from tool import COMMANDS, LOCUS, NAMES, PROPERTIES, good, rest_of, run


class List(unittest.TestCase):
    def test_json_has_every_key(self):
        data = json.loads(good("list", "--json"))
        self.assertEqual(list(data), ["version", "encodings"])
        self.assertEqual(len(set(NAMES)), len(data["encodings"]))
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
                    "summary",
                    "fields",
                    "example_options",
                    "variants",
                    "training",
                    "shared_by_layers",
                ],
            )
            for field in (*e["fields"], *e["example_options"]):
                self.assertEqual(
                    list(field),
                    [
                        "name",
                        "type",
                        "default",
                        "choices",
                        "shape",
                        "optional",
                        "by_name",
                        "sentence",
                        "slider",
                    ],
                )
            fields = {field["name"] for field in e["fields"]}
            for row in e["training"]:
                self.assertIn(row["name"], fields)
                self.assertIn(
                    row["start"], ("example", "normal", "uniform", "fan-in", "xavier")
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
        out = rest_of(master)
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

    def trained_file(self, folder, **changes):
        """A file as tools/trained_tables.sh writes it, of a T5 with 2 heads."""
        table = {"name": "table", "shape": [32, 2], "values": list(range(64))}
        t5 = {
            "encoding": "t5",
            "options": {"max_distance": "16"},
            "loss": 2.031,
            "params": [table],
            **changes,
        }
        path = os.path.join(folder, "trained.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(
                {
                    "model": {"heads": 2, "dim": 8, "length": 24, "steps": 400},
                    "loss_without_position": 2.345,
                    "encodings": [t5],
                },
                file,
            )
        return path

    def test_trained_parameters(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.trained_file(folder)
            data = json.loads(good("show", "t5", "--trained", path, "--json"))
        self.assertEqual(
            data["config"],
            {
                "heads": 2,
                "dim": 8,
                "length": 24,
                "seed": 1,
                "options": {"max_distance": "16"},
            },
        )
        panel = data["panels"][0]
        self.assertEqual(
            panel["title"],
            "trained: 400 steps on English text; 2.03 nats per byte, without position "
            "2.35",
        )
        # A decoder's: without later keys.
        self.assertEqual(panel["x"], list(range(24)))
        for head, curve in enumerate(panel["curves"]):
            # Rows are buckets, columns heads.
            self.assertLessEqual(set(curve["y"]), set(range(head, 64, 2)))
            self.assertGreater(len(set(curve["y"])), 8)

    def test_random_parameters_say_so(self):
        for name in ("t5", "shaw", "learned", "rope-learned", "swin"):
            for panel in json.loads(good("show", name, "--json"))["panels"]:
                self.assertIn("example parameters, not trained", panel["title"])
        for panel in json.loads(good("show", "rope", "--json"))["panels"]:
            self.assertNotIn("trained", panel["title"])

    def test_trained_parameters_that_do_not_fit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.trained_file(folder, params=[{"shape": [2]}])
            code, out, err = run("show", "t5", "--trained", path)
            self.assertEqual((code, out), (2, ""))
            self.assertRegex(
                err, rf"^locus: {re.escape(path)} is not a file of trained parameters: "
            )
            path = self.trained_file(folder)
            for args, message in (
                (("alibi",), f"{path} has no trained parameters of 'alibi'"),
                (
                    ("t5", "-o", "buckets=8"),
                    "--trained takes the options that t5 was trained with; leave out "
                    "'buckets'",
                ),
                (("t5", "--heads", "4"), "--heads excludes --trained"),
            ):
                with self.subTest(args=args):
                    self.assertEqual(
                        run("show", *args, "--trained", path),
                        (2, "", f"locus: {message}\n"),
                    )
            self.assertEqual(
                run("show", "t5", "--trained", f"{path}.gone"),
                (2, "", f"locus: cannot open {path}.gone\n"),
            )
            self.assertEqual(
                run("show", "t5", "--trained", folder),
                (2, "", f"locus: cannot read {folder}\n"),
            )

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

    def test_options_are_explained(self):
        for e in json.loads(good("list", "--json"))["encodings"]:
            text = good("show", e["name"], "--options")
            for option in e["example_options"]:
                self.assertIn(f"  {option['name']}", text)
            if not e["example_options"]:
                self.assertEqual(text, f"{e['name']} has no options\n")
            data = json.loads(good("show", e["name"], "--options", "--json"))
            self.assertEqual(data["options"], e["example_options"])
            self.assertEqual(data["variants"], e["variants"])
        self.assertIn(
            "bias_max: the geometric slopes are 2^(-bias_max j / heads); 8.0 unless "
            "given; from 0.5 to 32",
            good("show", "alibi", "--options", env={"COLUMNS": "200"}),
        )

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

    def test_pdf(self):
        path = self.path("rope.pdf")
        good("show", "rope", "--out", path)
        with open(path, "rb") as file:
            data = file.read()
        self.assertTrue(data.startswith(b"%PDF-"))
        self.assertGreater(len(data), 4000)

    def test_several_side_by_side(self):
        names = ["rope{base=100}", "rope{base=500000}", "alibi", "kerple{kind=power}"]
        path = self.path("four.svg")
        data = json.loads(good("show", *names, "--json", "--out", path))
        self.assertEqual([e["encoding"] for e in data["encodings"]][2], "alibi")
        options = [e["config"]["options"] for e in data["encodings"]]
        self.assertEqual(options[0], {"base": "100"})
        self.assertEqual(options[3], {"kind": "power"})
        text = pictures.svg_text(path)
        for name in names:
            self.assertIn(name, text)
        # Three in a row, so the fourth stands below.
        with open(path, encoding="utf-8") as file:
            self.assertIn('width="2700" height="2000"', file.read(2000))
        out = good("show", *names[2:])
        self.assertLess(out.index("alibi: "), out.index("kerple{kind=power}: "))

    def test_csv_has_the_numbers_of_json(self):
        names = ["alibi", "sinusoidal"]
        rows = list(csv.DictReader(io.StringIO(good("show", *names, "--csv"))))
        data = json.loads(good("show", *names, "--json"))["encodings"]
        curves = data[0]["panels"][0]
        expected = [
            (curve["label"], x, y)
            for curve in curves["curves"]
            for x, y in zip(curves["x"], curve["y"], strict=True)
        ]
        found = [
            (row["series"], float(row["x"]), float(row["value"]))
            for row in rows
            if row["encoding"] == "alibi"
        ]
        self.assertEqual(len(found), len(expected))
        for got, want in zip(found, expected, strict=True):
            self.assertEqual(got[:2], want[:2])
            self.assertAlmostEqual(got[2], want[2], delta=1e-8 * abs(want[2]))
        values = data[1]["panels"][0]["values"]
        cells = [row for row in rows if row["encoding"] == "sinusoidal"]
        self.assertEqual(len(cells), sum(map(len, values)))
        self.assertAlmostEqual(float(cells[-1]["value"]), values[-1][-1], places=7)

    def test_bad_variants(self):
        for text, message in {
            "rope{base=x}": "rope option base must be a number, got 'x'",
            "rope{bas=1}": "rope has no option 'bas'; it has ",
            "kerple{kind=cubic}": "kerple option kind must be one of ",
            "rope{base=1": "a variant is written as name{option=value, ...}, got "
            "'rope{base=1'",
            "rope{base}": "an option must be given as name=value, got 'base'",
            "rope{base=1,base=2}": "the option base is given twice",
            "rop{base=1}": "there is no encoding 'rop'; known encodings: ",
        }.items():
            for command in ("show", "check"):
                code, out, err = run(command, text, cwd=self.folder.name)
                self.assertEqual((code, out), (2, ""), text)
                self.assertIn(f"locus: {message}", err)
                self.assertEqual(err.count("\n"), 1)

    def test_terminal_beside_file(self):
        out = good("show", "alibi", "--terminal", "--out", self.path("a.svg"))
        self.assertIn("offset", out)

    def fails(self, message, *args, env=None):
        code, out, err = run(*args, env=env, cwd=self.folder.name)
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(err, f"locus: {message}\n")

    def test_nothing_is_left_after_a_failure(self):
        self.fails(
            "cannot write 'no/such/folder.png': No such file or directory",
            "show",
            "rope",
            "--out",
            "no/such/folder.png",
        )
        self.fails(
            "--out must name a .png, .svg or .pdf file, got 'rope.gif'",
            "show",
            "rope",
            "--out",
            "rope.gif",
        )
        os.mkdir(self.path("taken.png"))
        self.fails(
            "cannot write 'taken.png': it is a folder",
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

    def test_several_side_by_side(self):
        names = ["alibi", "kerple{kind=power}", "index"]
        lines = good("check", *names).splitlines()
        self.assertEqual(lines[0].split(), names)
        end = lines.index("")
        self.assertEqual([line.split()[0] for line in lines[1:end]], PROPERTIES)
        data = json.loads(good("check", *names, "--json"))["encodings"]
        rows = list(csv.DictReader(io.StringIO(good("check", *names, "--csv"))))
        self.assertEqual(len(rows), len(names) * len(PROPERTIES))
        for at, row in enumerate(rows):
            one = data[at // len(PROPERTIES)]["properties"][at % len(PROPERTIES)]
            self.assertEqual(row["encoding"], names[at // len(PROPERTIES)])
            self.assertEqual(
                (row["property"], row["verdict"]), (one["name"], one["verdict"])
            )
        # Below the table, what each number is: two things where some of the
        # encodings act on the input.
        legend = " ".join(" ".join(lines[end:]).split())
        for row in rows:
            if row["value"]:
                self.assertIn(f"{row['property']}: {row['measure']}", legend)
        # A requirement is one of each of them.
        code, out, _ = run("check", "alibi", "index", "--require", "relative=yes")
        self.assertEqual(code, 1)
        self.assertIn("required alibi: relative = yes: holds", out)
        self.assertIn("required index: relative = yes: found no", out)

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
            f"there is no command 'frobnicate'; known commands: {', '.join(COMMANDS)}",
        ),
        (("show",), "encodings is required; see locus show --help"),
        (("show", "nope"), f"there is no encoding 'nope'; known encodings: {known}"),
        (("check", "nope"), f"there is no encoding 'nope'; known encodings: {known}"),
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
            f"there is no property 'beauty'; known properties: {', '.join(PROPERTIES)}",
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
