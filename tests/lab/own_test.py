"""Encodings of one's own in a study: variants of the list, functions of Python.

usage: own_test.py LOCUS_COMPARE     (with locus_attn and PyTorch on PYTHONPATH)
"""

import os
import signal
import time

import torch
from compare_case import Study, run_suites, without_clock
from torch import nn

import locus_attn as locus
import locus_attn.torch as lt

HEADS = 2


class Gaussian(nn.Module):
    def __init__(self, heads=HEADS):
        super().__init__()
        self.sigma = nn.Parameter(torch.linspace(2.0, 8.0, heads))

    def forward(self, offsets):
        return -(offsets**2) / (2 * self.sigma[:, None] ** 2)


class Logarithmic(nn.Module):
    """KERPLE as the list has it: -r1 log(1 + r2 |x|)."""

    def __init__(self):
        super().__init__()
        info = next(i for i in locus.encodings() if i.name == "kerple")
        start = info.example(heads=HEADS).params()
        self.rows = {row["name"]: row for row in info.training}
        for name, value in start.items():
            setattr(self, name, nn.Parameter(torch.tensor(value).float()))

    def forward(self, offsets):
        x = offsets.abs().float()
        return -self.r1[:, None] * torch.log1p(self.r2[:, None] * x)


class Vectors(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, dim))

    def forward(self, offsets):
        return torch.cos(0.3 * offsets.float()[:, None] * self.weight)[None]


QUICK = ("--task", "text", "--seeds", "1", "--extend", "off", "--cost-lengths", "off")


class Variants(Study):
    def test_variants_are_trained_and_named(self):
        names = ["rope{base=100}", "rope{base=500000}", "kerple{kind=power}"]
        # Blanks and the order of options do not make another one.
        asked = ", ".join(["rope{ base = 100 }", *names[1:], names[0]])
        more = ("--encodings", asked, *QUICK[:-2], "--cost-lengths", "16")
        self.good(self.options(more=more))
        r = self.results()
        self.assertEqual(r["settings"]["tasks"][0]["encodings"], names)
        by_list = ["none", "kerple{kind=power}", *names[:2]]
        self.assertEqual(r["settings"]["encodings"], by_list)
        self.assertEqual([run["encoding"] for run in r["runs"]], names)
        shorts = {e["name"]: e["short"] for e in r["encodings"]}
        self.assertEqual(shorts["rope{base=100}"], "RoPE base=100")
        losses = [run["evaluations"][0]["loss"] for run in r["runs"][:2]]
        self.assertNotEqual(*losses)
        page = (self.folder / "results" / "report.html").read_text()
        for name in names:
            self.assertIn(shorts[name], page)
        rows = [row for row in r["attention_cost"] if "power" in row["encoding"]]
        paths = {row["path"] for row in rows}
        self.assertEqual(paths, {"fused", "materialised"})

    def test_options_are_those_of_the_encoding(self):
        """A variant with the default's own value trains like the default."""
        more = ("--encodings", "rope,rope{base=10000}", *QUICK)
        self.good(self.options(more=more))
        plain, same = self.results()["runs"]
        self.assertEqual(plain["evaluations"], same["evaluations"])

    def test_bad_variants_are_one_line(self):
        for text, *parts in [
            ("rope{base=x}", "rope option base must be a number, got 'x'"),
            ("rope{bas=1}", "rope has no option 'bas'; it has base,"),
            ("kerple{kind=cubic}", "kind must be one of", "got 'cubic'"),
            ("rope{base=-1}", "base", "-1"),
            ("rope{base=1", "written as name{option=value, ...}", "'rope{base=1'"),
        ]:
            self.fails(self.options(more=("--encodings", text, *QUICK)), *parts)
        self.assertFalse((self.folder / "results").exists())


class Python(Study):
    def save(self, name="gaussian", module=None, **options):
        path = self.folder / f"{name}.pt"
        module = module or lt.RelativeBias(Gaussian(), heads=HEADS)
        lt.save_encoding(module, path, **options)
        return str(path)

    def test_on_the_page_like_the_others(self):
        path = self.save(
            title="Gaussian bias",
            formula="s = scale q.k - (m - n)^2 / (2 sigma^2)",
            training={"sigma": {"rate": 10, "lowest": 0.5}},
        )
        keys = self.save("waves", lt.RelativeKeys(Vectors(8), heads=1))
        values = self.save("values", lt.RelativeValues(Vectors(8), heads=1))
        names = ["alibi", "gaussian", "waves", "values"]
        more = ("--encodings", f"alibi,{path},{keys},{values}")
        self.good(self.options(more=(*more, *QUICK[:-2], "--cost-lengths", "16")))
        r = self.results()
        self.assertEqual(r["settings"]["tasks"][0]["encodings"], names)
        self.assertEqual(set(r["settings"]["encoding_files"]), set(names[1:]))
        info = next(e for e in r["encodings"] if e["name"] == "gaussian")
        self.assertEqual(info["title"], "Gaussian bias")
        self.assertEqual(info["enters_at"], ["bias"])
        alibi, gaussian, waves, _ = r["runs"]
        # A sigma per head and layer.
        self.assertEqual(gaussian["parameters"] - alibi["parameters"], HEADS)
        self.assertEqual(waves["parameters"] - alibi["parameters"], 8)
        for run in r["runs"]:
            self.assertTrue(all(e["loss"] > 0 for e in run["evaluations"]))
        (bias,) = [
            p
            for p in r["pictures"]
            if p["encoding"] == "gaussian" and p["kind"] == "bias"
        ]
        self.assertEqual(bias["values"][0][0], 0.0)
        self.assertLess(bias["values"][0][2], bias["values"][0][1])
        rows = [(row["encoding"], row["path"]) for row in r["attention_cost"]]
        for name in names[1:]:
            self.assertIn((name, "fused"), rows)
            self.assertIn((name, "materialised"), rows)
        page = (self.folder / "results" / "report.html").read_text()
        self.assertIn("Gaussian bias", page)

    def test_learns_as_the_same_encoding_in_cpp(self):
        module = Logarithmic()
        training = {
            name: {key: module.rows[name][key] for key in ("rate", "decays", "lowest")}
            for name in module.rows
        }
        path = self.save(
            "kerple-py", lt.RelativeBias(module, heads=HEADS), training=training
        )
        more = ("--encodings", f"kerple,{path}", "--task", "text", "--seeds", "2")
        self.good(self.options(steps=60, more=(*more, *QUICK[4:])))
        runs = self.results()["runs"]
        for seed in (1, 2):
            cpp, python = (r for r in runs if r["seed"] == seed)
            self.assertEqual(cpp["parameters"], python["parameters"])
            for a, b in zip(cpp["evaluations"], python["evaluations"], strict=True):
                self.assertLess(abs(a["loss"] - b["loss"]), 2e-3)
        first = runs[0]["loss_curve"]
        self.assertLess(first[-1]["loss"], first[0]["loss"] - 0.3)

    def test_killed_and_resumed_is_the_same_to_the_bit(self):
        path = self.save(training={"sigma": {"rate": 10, "lowest": 0.5}})
        more = ("--encodings", path, *QUICK, "--save-every", "0")
        self.good(self.options(out="whole", steps=150, more=more))
        arguments = self.options(out="killed", steps=150, more=more)
        process = self.start(arguments)
        end = time.monotonic() + 120
        while not list((self.folder / "killed").rglob("checkpoint")):
            self.assertIsNone(process.poll(), "it ended before it was killed")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.good(["--resume", "--out", str(self.folder / "killed")])
        whole, killed = self.results("whole"), self.results("killed")
        self.assertEqual(without_clock(killed), without_clock(whole))

        # Another function under the same name is another study.
        self.save(training={"sigma": {"rate": 5}})
        self.fails(
            ["--resume", "--out", str(self.folder / "killed")],
            "gaussian.pt has changed since the study in",
        )

    def test_bad_files_are_one_line(self):
        broken = self.folder / "broken.pt"
        broken.write_text("no zip")
        other = str(self.folder / "other.pt")
        torch.jit.save(torch.jit.script(Gaussian()), other)
        four = self.save("four", lt.RelativeBias(Gaussian(4), heads=4))
        taken = self.save("rope")
        for path, *parts in [
            (str(broken), "broken.pt is not an encoding that"),
            (other, "other.pt is not an encoding that", "it holds no description"),
            (str(self.folder / "absent.pt"), "cannot read the encoding"),
            (four, "four is written for 4 heads, and the model has 2", "--heads 4"),
            (taken, "rope.pt has the name of a built-in encoding"),
        ]:
            self.fails(self.options(more=("--encodings", path, *QUICK)), *parts)
        self.assertFalse((self.folder / "results").exists())

    def test_what_cannot_be_saved_is_one_sentence(self):
        bias = lt.RelativeBias(Gaussian(), heads=HEADS)
        for kind, call, message in [
            (TypeError, lambda p: lt.save_encoding(None, p), "takes a Relative"),
            (
                TypeError,
                lambda p: lt.save_encoding(
                    lt.RelativeBias(lambda x: x[None].float(), heads=1), p
                ),
                "must be an nn.Module",
            ),
            (
                ValueError,
                lambda p: lt.save_encoding(bias, p, training={"s": {}}),
                "names the parameter 's'; known values: sigma",
            ),
            (
                ValueError,
                lambda p: lt.save_encoding(bias, p, training={"sigma": {"lr": 1}}),
                "has no 'lr'; known values: rate, decays, lowest, highest",
            ),
            (
                ValueError,
                lambda p: lt.save_encoding(bias, p, training={"sigma": {"rate": -1.0}}),
                "rate of sigma must be positive, got -1.0",
            ),
            (
                ValueError,
                lambda p: lt.save_encoding(bias, p.with_suffix(".zip")),
                "must end in .pt, got 'x.zip'",
            ),
        ]:
            with self.assertRaises(kind) as caught:
                call(self.folder / "x.pt")
            self.assertIn(message, str(caught.exception))
        self.assertFalse((self.folder / "x.pt").exists())


class Exports(Study):
    def test_tables_and_charts(self):
        more = ("--encodings", "alibi,rope", *QUICK, "--export", "csv,svg,pdf")
        _, err = self.good(self.options(more=more))
        out = self.folder / "results" / "export"
        found = sorted(path.name for path in out.iterdir())
        charts = [f"text-{m}.{f}" for m in ("accuracy", "loss") for f in ("pdf", "svg")]
        tables = ["cost.csv", "runs.csv", "summary.csv", "training.csv"]
        self.assertEqual(found, sorted(charts + tables))
        for name in found:
            self.assertIn(f"export/{name}", err)
        lines = (out / "summary.csv").read_text().splitlines()
        self.assertEqual(len(lines) - 1, len(self.results()["summary"]))
        self.assertIn("ALiBi", (out / "text-loss.svg").read_text())
        self.assertTrue((out / "text-loss.pdf").read_bytes().startswith(b"%PDF-"))

        # Also later, from results.json alone.
        folder = ("--out", str(self.folder / "results"))
        self.good(["--plot-only", "--export", "png", *folder])
        self.assertTrue((out / "text-loss.png").exists())
        self.fails(
            ["--plot-only", "--export", "gif", *folder],
            "--export must be of csv, svg, pdf, png, got 'gif'",
        )


run_suites({"Variants": Variants, "Python": Python, "Exports": Exports}, [])
