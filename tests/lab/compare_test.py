"""locus-compare, run as a user runs it: with models so small that a study takes
seconds.

usage: compare_test.py LOCUS_COMPARE [SUITE]
"""

import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import time

from compare_case import MANUAL, PLAIN, Study, run_suites, without_clock


class Results(Study):
    def test_whole_study_has_every_part(self):
        more = (
            *("--encodings", "learned,rope", "--tasks", "text,copy"),
            *("--extend", "none,yarn", "--fine-tune-steps", "2"),
            *("--factor", "2", "--cost-lengths", "16", "--seeds", "2"),
        )
        out, _ = self.good(self.options(more=more))
        self.assertIn("mean loss in nats per token over", out)
        self.assertIn("refused", out)
        self.assertIn("report.html", out)
        r = self.results()
        self.assertEqual(r["schema"], 2)
        self.assertFalse(r["interrupted"])
        self.assertEqual(r["failed"], [])
        ids = [run["id"] for run in r["runs"]]
        self.assertEqual(
            ids,
            [
                f"{task}/{encoding}/{seed}"
                for seed in (1, 2)
                for task in ("text", "copy")
                for encoding in ("learned", "rope")
            ],
        )
        for run in r["runs"]:
            self.assertEqual(run["steps"], 6)
            self.assertEqual([p["step"] for p in run["loss_curve"]], [*range(1, 7)])
            self.assertEqual([e["length"] for e in run["evaluations"]], [8, 16])
            self.assertGreater(run["seconds_per_step"], 0)
            self.assertGreater(run["peak_memory_bytes"], 1e6)
            learned = run["encoding"] == "learned"
            self.assertEqual("refused" in run["evaluations"][1], learned)
        self.assertEqual(len(r["extensions"]), 2 * 2 * 2)
        plain = r["extensions"][0]
        self.assertEqual((plain["method"], plain["fine_tune_steps"]), ("none", 0))
        rope = next(run for run in r["runs"] if run["id"] == "text/rope/1")
        self.assertEqual(
            plain["evaluations"],
            rope["evaluations"],
            "a model that is not extended scores as before",
        )
        rows = {(c["encoding"], c["path"]) for c in r["attention_cost"]}
        self.assertEqual(
            rows,
            {
                (encoding, path)
                for encoding in ("none", "learned", "rope")
                for path in ("fused", "materialised")
            },
        )
        self.check_summary(r)
        self.assertTrue(r["pictures"])
        manual = MANUAL.read_text()
        for field in {*r, *r["runs"][0], *r["attention_cost"][0], *r["summary"][0]}:
            self.assertIn(f"`{field}", manual)
        self.check_page(r)

    def check_summary(self, r):
        """Means follow from the runs, and lie in their intervals."""
        for row in r["summary"]:
            values = [
                e[row["metric"]]
                for run in r["runs"]
                if (run["task"], run["encoding"]) == (row["task"], row["encoding"])
                for e in run["evaluations"]
                if e["length"] == row["length"] and "refused" not in e
            ]
            self.assertEqual(row["seeds"], len(values))
            self.assertLessEqual(row["low"], row["mean"])
            self.assertGreaterEqual(row["high"], row["mean"])
            if row["metric"] == "loss":
                self.assertLess(row["low"], row["high"])
            self.assertLessEqual(row["task"] == "text", row["learned"])
            self.assertAlmostEqual(row["mean"], sum(values) / len(values), places=12)
        # Learned positions serve one of two lengths, RoPE both; two metrics.
        self.assertEqual(len(r["summary"]), 2 * (1 + 2) * 2)

    def check_page(self, r):
        page = (self.folder / "results" / "report.html").read_text()
        self.assertNotIn("<!--locus:", page)
        mark = '<script type="application/json" id="results">'
        data = page[page.index(mark) + len(mark) :]
        self.assertEqual(json.loads(data[: data.index("</script>")]), r)

    def test_tuning_chooses_the_rate_that_is_trained_with(self):
        more = (
            *("--encodings", "alibi,rope", "--tasks", "text,copy", "--seeds", "1"),
            *("--extend", "yarn", "--factor", "2", "--fine-tune-steps", "1"),
            *("--cost-lengths", "off", "--tune", "0.01,1", "--learning-rate", "0.02"),
        )
        self.good(self.options(steps=60, more=more))
        r = self.results()
        tried = {}
        for row in r["tuning"]:
            rates = tried.setdefault((row["task"], row["encoding"]), {})
            rates[row["learning_rate"]] = row["loss"]
        self.assertEqual(len(tried), 4)
        for run in r["runs"]:
            rates = tried[run["task"], run["encoding"]]
            self.assertEqual({*rates}, {0.02 * 0.01, 0.02})
            best = min(rates, key=rates.get)
            self.assertEqual(run["learning_rate"], best, run["id"])
            # What was tuned on is not what is scored.
            scored = {e["loss"] for e in run["evaluations"]}
            self.assertFalse(scored & {*rates.values()})
        self.assertEqual(len(r["extensions"]), 2)
        page = (self.folder / "results" / "report.html").read_text()
        self.assertIn("tuned, text, rope, learning rate 0.02", page)

    def test_plot_only_draws_again(self):
        self.good(self.options(more=PLAIN))
        folder = self.folder / "results"
        page = (folder / "report.html").read_text()
        data = (folder / "results.json").read_bytes()
        (folder / "report.html").unlink()
        out, _ = self.good(["--plot-only", "--out", str(folder)])
        self.assertIn("report.html", out)
        self.assertEqual((folder / "report.html").read_text(), page)
        self.assertEqual((folder / "results.json").read_bytes(), data)
        out, _ = self.good(["--plot-only", "--json", "--out", str(folder)])
        self.assertEqual(json.loads(out), json.loads(data))

    def test_finished_study_is_kept_aside(self):
        self.good(self.options(more=PLAIN))
        first = self.results()
        self.good(self.options(steps=5, more=PLAIN))
        kept = self.folder / "results" / "earlier" / first["created"]
        self.assertEqual(json.loads((kept / "results.json").read_text()), first)
        self.assertEqual(self.results()["settings"]["steps"], 5)


class Resume(Study):
    MORE = (
        *("--encodings", "t5,rope", "--task", "text", "--seeds", "1"),
        *("--extend", "linear", "--fine-tune-steps", "40", "--factor", "2"),
        *("--cost-lengths", "off", "--save-every", "0"),
    )

    def checkpoints(self):
        """When each checkpoint of the study was written."""
        found = {}
        for path in (self.folder / "killed" / "runs").rglob("checkpoint"):
            # Its job may end just now.
            with contextlib.suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
        return found

    def wait_for_a_checkpoint(self, process):
        """Returns when one more was written, or the study ended."""
        before = self.checkpoints()
        end = time.monotonic() + 120
        while process.poll() is None:
            if any(before.get(p) != t for p, t in self.checkpoints().items()):
                return
            self.assertLess(time.monotonic(), end, "no checkpoint was written")
            time.sleep(0.01)

    def test_killed_at_random_and_resumed_is_the_same_to_the_bit(self):
        steps = 200
        self.good(self.options(out="whole", steps=steps, more=self.MORE))
        whole = self.results("whole")
        rng = random.Random(7)
        arguments = self.options(out="killed", steps=steps, more=self.MORE)
        within_a_run = 0
        for number in range(6):
            begun = (self.folder / "killed" / "study.json").exists()
            process = self.start(["--resume", *arguments] if begun else arguments)
            # Some while it starts, most while it trains or evaluates.
            if number != 2:
                self.wait_for_a_checkpoint(process)
            time.sleep(rng.uniform(0, 0.5))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                within_a_run += len(self.checkpoints()) > 0
            process.communicate()
        self.assertGreater(within_a_run, 1, "it ended before it was killed")
        self.good(["--resume", *arguments])
        killed = self.results("killed")
        self.assertEqual(without_clock(killed), without_clock(whole))
        self.assertEqual(killed["fingerprint"], whole["fingerprint"])

    def test_other_settings_are_refused_by_name(self):
        self.good(self.options(more=PLAIN))
        out = str(self.folder / "results")
        self.fails(
            ["--resume", "--out", out, "--steps", "9"],
            "other settings",
            "steps is 6 there and would be 9 now",
            "--fresh",
        )
        self.fails(
            ["--resume", "--out", out, "--encodings", "rope"],
            "encodings",
        )
        self.corpus.write_text(self.corpus.read_text() + "another text")
        self.fails(["--resume", "--out", out], "corpus.bytes")

    def test_finished_jobs_are_not_run_again(self):
        self.good(self.options(more=PLAIN))
        before = self.results()
        runs = self.folder / "results" / "runs"
        files = {p: p.stat().st_mtime_ns for p in runs.rglob("result.json")}
        self.assertEqual(len(files), 2)
        self.good(["--resume", "--out", str(self.folder / "results")])
        after = {p: p.stat().st_mtime_ns for p in runs.rglob("result.json")}
        self.assertEqual(files, after)
        self.assertEqual(without_clock(before), without_clock(self.results()))

    def test_nothing_to_resume(self):
        self.fails(
            ["--resume", "--out", str(self.folder / "none")], "there is no study"
        )


class Signals(Study):
    LONG = (*PLAIN, "--save-every", "0")

    def stopped(self, send):
        """A study of many steps that got a signal after a checkpoint."""
        process = self.start(self.options(steps=1000000, more=self.LONG))
        runs = self.folder / "results" / "runs"
        end = time.monotonic() + 120
        while not list(runs.rglob("checkpoint")) and process.poll() is None:
            self.assertLess(time.monotonic(), end, "no checkpoint was written")
            time.sleep(0.05)
        send(process)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def test_interrupt_saves_and_tells_how_to_resume(self):
        code, out, err = self.stopped(lambda p: os.killpg(p.pid, signal.SIGINT))
        self.assertEqual((code, out), (130, ""), err)
        last = err.splitlines()[-1]
        self.assertIn("0 of 2 jobs are done", last)
        # Where the tool is not built, the program says its own name.
        self.assertRegex(last, r"locus[ -]compare --resume --out ")
        r = self.results()
        self.assertTrue(r["interrupted"])
        self.assertEqual(r["runs"], [])
        page = (self.folder / "results" / "report.html").read_text()
        self.assertIn("not finished", page)
        # It is not destroyed by the next one, unless that is wanted.
        again = self.options(more=PLAIN)
        self.fails(again, "unfinished study", "--resume", "--fresh")
        self.fails(["--continue", *again], "other settings", "steps", "--fresh")
        self.good(["--fresh", *again])
        self.assertFalse(self.results()["interrupted"])
        _, err = self.good(["--continue", *again])
        self.assertIn("2 of 2 jobs are done", err)

    def test_page_is_there_while_it_runs_and_after_a_kill(self):
        def page_of(process):
            # On a busy machine the first checkpoint may come before it.
            path = self.folder / "results" / "report.html"
            end = time.monotonic() + 120
            while not path.exists():
                self.assertLess(time.monotonic(), end, "no page was written")
                time.sleep(0.05)
            self.page = path.read_text()
            os.killpg(process.pid, signal.SIGKILL)

        code, _, err = self.stopped(page_of)
        self.assertEqual(code, -signal.SIGKILL, err)
        self.assertIn("report.html shows the results so far", err)
        self.assertIn('id="live"', self.page)
        self.assertIn("0 of 2 jobs are done", self.page)
        mark = '<script type="application/json" id="results">'
        data = self.page[self.page.index(mark) + len(mark) :]
        r = json.loads(data[: data.index("</script>")])
        self.assertEqual(r, self.results())
        self.assertEqual(r["progress"]["jobs"], 2)
        self.assertEqual(
            {*r["progress"]["running"]},
            {"learned on text, seed 1", "rope on text, seed 1"},
        )
        # The page of a study that ended says nothing of the kind.
        self.good(["--fresh", *self.options(more=PLAIN)])
        self.assertNotIn("progress", self.results())
        page = (self.folder / "results" / "report.html").read_text()
        self.assertNotIn('id="live"', page)

    def test_first_answer_is_announced_once(self):
        more = (
            *("--encodings", "alibi,rope", "--tasks", "text,copy", "--seeds", "2"),
            *("--extend", "off", "--cost-lengths", "off"),
        )
        _, err = self.good(self.options(steps=1500, more=more))
        self.assertEqual(err.count("first answer after"), 1, err)

    def test_terminate_of_the_parent_alone_stops_workers(self):
        code, _, err = self.stopped(lambda p: p.send_signal(signal.SIGTERM))
        self.assertEqual(code, 130, err)

    def test_crash_of_a_worker_is_one_sentence(self):
        def kill_a_worker(process):
            children = subprocess.run(
                ["ps", "-o", "pid=,args=", "--ppid", str(process.pid)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            line = next(c for c in children.splitlines() if "text/learned/1" in c)
            os.kill(int(line.split()[0]), signal.SIGKILL)
            time.sleep(0.5)
            self.assertIsNone(process.poll(), "the other one must go on")
            process.send_signal(signal.SIGINT)

        code, _, err = self.stopped(kill_a_worker)
        self.assertEqual(code, 130, err)
        self.assertIn("text/learned/1 failed: its process was ended by signal 9", err)


class Damage(Study):
    def interrupted(self):
        process = self.start(
            self.options(steps=1000000, more=(*PLAIN, "--save-every", "0"))
        )
        runs = self.folder / "results" / "runs"
        end = time.monotonic() + 120
        while len(list(runs.rglob("checkpoint"))) < 2:
            self.assertLess(time.monotonic(), end, "no checkpoint was written")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return sorted(runs.rglob("checkpoint"))

    def test_damaged_checkpoint_is_named(self):
        checkpoint = self.interrupted()[0]
        data = bytearray(checkpoint.read_bytes())
        data[len(data) // 2] ^= 1
        checkpoint.write_bytes(data)
        resume = ["--resume", "--out", str(self.folder / "results")]
        self.fails(resume, str(checkpoint), "is damaged", "delete it")
        checkpoint.write_bytes(data[: len(data) // 2])
        self.fails(resume, str(checkpoint), "is damaged", "delete it")

    def runs(self):
        """When each file of a run was written."""
        runs = self.folder / "results" / "runs"
        files = [*runs.rglob("result.json"), *runs.rglob("checkpoint")]
        return {path: path.stat().st_mtime_ns for path in files}

    def test_damaged_study_is_recovered_and_nothing_is_trained_again(self):
        self.good(self.options(more=PLAIN))
        before, files = self.results(), self.runs()
        self.assertEqual(len(files), 2)
        path = self.folder / "results" / "study.json"
        whole = path.read_bytes()
        resume = ["--resume", "--out", str(self.folder / "results")]
        again = ["--continue", *self.options(more=PLAIN)]
        for damaged, command in (
            (whole.replace(b'"6"', b'"7"'), resume),
            (whole[: len(whole) // 2], again),
            (b"", resume),
            (b"\x00" * len(whole), again),
            (None, resume),
            (None, again),
        ):
            with self.subTest(damaged=damaged, command=command[0]):
                if damaged is None:
                    path.unlink()
                else:
                    path.write_bytes(damaged)
                _, err = self.good(command)
                self.assertIn("it is written again from", err)
                self.assertIn("2 of 2 jobs are done", err)
                self.assertEqual(path.read_bytes(), whole)
                self.assertEqual(self.runs(), files)
                self.assertEqual(without_clock(self.results()), without_clock(before))

    def test_study_is_recovered_from_a_checkpoint(self):
        first, second = self.interrupted()
        second.write_bytes(second.read_bytes()[:100])
        steps = self.steps_of(first)
        (self.folder / "results" / "study.json").unlink()
        # Without --resume, the runs are not touched.
        files = self.runs()
        self.fails(self.options(more=PLAIN), "unfinished study", "--resume")
        self.assertEqual(self.runs(), files)
        resume = ["--resume", "--out", str(self.folder / "results")]
        self.fails(resume, str(second), "is damaged", "delete it")
        self.assertTrue((self.folder / "results" / "study.json").exists())
        second.unlink()
        process = self.start(resume)
        end = time.monotonic() + 120
        while not second.exists() or self.runs()[first] == files[first]:
            self.assertLess(time.monotonic(), end, "it was not resumed")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.assertGreater(self.steps_of(first), steps)

    def steps_of(self, checkpoint):
        """Steps that were taken: the length of a list in the file, which is CBOR."""
        head = checkpoint.read_bytes().split(b"step_seconds", 1)[1][:3]
        if head[0] in (0x98, 0x99):  # the length follows in one byte or two
            return int.from_bytes(head[1 : head[0] - 0x96], "big")
        return head[0] - 0x80

    def test_study_that_no_run_knows_is_not_thrown_away(self):
        self.good(self.options(more=PLAIN))
        study = self.folder / "results" / "study.json"
        study.write_text("{}")
        for path in self.runs():
            path.write_text("{}")
        files = self.runs()
        resume = ["--resume", "--out", str(self.folder / "results")]
        err = self.fails(resume, str(study), "no run there holds a copy", "--fresh")
        self.assertNotIn("delete it", err)
        self.assertEqual(self.runs(), files)

    def test_runs_of_another_study_are_named(self):
        self.good(self.options(more=PLAIN))
        self.good(self.options(out="other", steps=5, more=PLAIN))
        name = pathlib.Path("runs", "text", "rope", "1", "result.json")
        mine = self.folder / "results" / name
        mine.write_bytes((self.folder / "other" / name).read_bytes())
        resume = ["--resume", "--out", str(self.folder / "results")]
        self.fails(resume, str(mine), "is of another study", "delete it")
        (self.folder / "results" / "study.json").unlink()
        self.fails(resume, str(mine), "of different studies")

    def test_damaged_clock_is_named_before_anything_is_trained(self):
        self.good(self.options(more=PLAIN))
        clock = self.folder / "results" / "runs" / "seconds.json"
        clock.write_text(clock.read_text()[:-9])
        resume = ["--resume", "--out", str(self.folder / "results")]
        self.fails(resume, str(clock), "is damaged", "time spent so far")
        clock.unlink()
        self.good(resume)

    def test_plot_only_names_what_is_damaged(self):
        self.good(self.options(more=PLAIN))
        path = self.folder / "results" / "results.json"
        page = (self.folder / "results" / "report.html").read_bytes()
        whole = self.results()
        plot = ["--plot-only", "--out", str(self.folder / "results")]

        def damaged(change):
            results = json.loads(json.dumps(whole))
            change(results)
            return json.dumps(results)

        def object_for_a_number(results):
            results["runs"][0]["evaluations"][0] = {"length": {"loss": 1}}

        for text, part in (
            (damaged(object_for_a_number), "runs[0].evaluations[0].length must be"),
            (damaged(lambda r: r.pop("runs")), "runs is missing"),
            (damaged(lambda r: r.update(schema=1)), "schema must be 2"),
            (damaged(lambda r: r.update(seconds=float("nan"))), "not JSON from line"),
            (json.dumps(whole)[:1000], "not JSON from line 1, column 1001"),
            ("", "not JSON"),
            ("[" * 100000, "levels"),
        ):
            with self.subTest(part=part):
                path.write_text(text)
                self.fails(plot, str(path), part)
        self.assertEqual((self.folder / "results" / "report.html").read_bytes(), page)

    def test_results_are_kept_aside_inside_the_folder(self):
        self.good(self.options(more=PLAIN))
        path = self.folder / "results" / "results.json"
        results = self.results()
        results["created"] = "../../escaped"
        path.write_text(json.dumps(results))
        self.good(self.options(steps=5, more=PLAIN))
        self.assertFalse((self.folder / "escaped").exists())
        kept = self.folder / "results" / "earlier" / "unknown" / "results.json"
        self.assertTrue(kept.exists())

    def test_full_disk_is_one_sentence_and_leaves_nothing_half_written(self):
        def small_files():
            # Enough for study.json, too little for a checkpoint or the page.
            resource.setrlimit(resource.RLIMIT_FSIZE, (12000, 12000))

        more = (*PLAIN, "--save-every", "0")
        err = self.fails(
            self.options(more=more),
            "cannot write",
            "free some space and continue with --resume",
            before=small_files,
        )
        self.assertEqual(err.count("cannot write"), 1, err)
        left = [p.name for p in (self.folder / "results").rglob("*.part")]
        self.assertEqual(left, [])
        self.good(["--resume", "--out", str(self.folder / "results")])
        self.assertFalse(self.results()["interrupted"])


class Usage(Study):
    def test_bad_options_are_one_line(self):
        for arguments, part in (
            (["--steps", "many"], "--steps must be a whole number"),
            (["--encodings", "ropes"], "ropes"),
            (["--task", "copying"], "copying"),
            (["--jobs", "0"], "--jobs must be a whole number from 1"),
            (["--bad"], "--bad"),
            (["--quick", "--full"], "exclude each other"),
            (["--resume", "--fresh"], "exclude each other"),
            (["--corpus", "nowhere.txt", "--out", str(self.folder)], "nowhere.txt"),
            (["--corpus", "/dev/null", "--out", str(self.folder)], "is not a file"),
            (["--corpus", "/", "--out", str(self.folder)], "is not a file"),
            (["--plot-only", "--out", str(self.folder)], "no results.json"),
            (["extra"], "extra"),
            (["--save-every", "nan"], "--save-every must be a number from 0 to"),
            (["--save-every", "inf"], "--save-every must be a number from 0 to"),
            (["--save-every", "-1"], "--save-every must be a number from 0 to"),
            (["--config", "/dev/zero"], "more than the 1048576 bytes"),
        ):
            with self.subTest(arguments=arguments):
                self.fails(arguments, part)

    def test_config_file_and_command_line(self):
        config = self.folder / "study.json"
        config.write_text(json.dumps({"steps": 3, "stepps": 4}))
        self.fails(["--config", str(config)], "unknown setting 'stepps'", "steps")
        config.write_text(json.dumps({"steps": 3, "encodings": ["t5"], "task": "copy"}))
        more = ("--config", str(config), "--cost-lengths", "off")
        out, _ = self.good(self.options(steps=4, more=(*more, "--json")))
        r = json.loads(out)
        self.assertEqual(r["settings"]["steps"], 4, "the command line wins")
        self.assertEqual([run["id"] for run in r["runs"]], ["copy/t5/1"])

    def test_dry_run_lists_jobs_and_touches_nothing(self):
        out, err = self.good(["--dry-run", *self.options(more=PLAIN)])
        self.assertEqual(err, "")
        self.assertIn("text/rope/1", out)
        self.assertIn("2 jobs, 2 at a time: about", out)
        self.assertFalse((self.folder / "results").exists())

    def test_output_that_takes_nothing_is_one_line(self):
        def full():
            os.dup2(os.open("/dev/full", os.O_WRONLY), 1)

        for arguments in (["--help"], ["--dry-run", *self.options(more=PLAIN)]):
            for before in (full, lambda: os.close(1)):
                with self.subTest(arguments=arguments[0]):
                    self.fails(
                        arguments, "cannot write to standard output", before=before
                    )

    def test_help_and_manual_have_the_same_options(self):
        out, _ = self.good(["--help"])
        for word in ("Examples:", "Tasks:", "copy", "Exit codes:"):
            self.assertIn(word, out)
        shown = re.findall(r"^  (?:-h,)?(--[a-z-]+)(?:,(--[a-z-]+))?", out, re.M)
        options = {flag for flags in shown for flag in flags if flag} - {"--help"}
        tables = re.findall(r"^\| (`--.*?) \|", MANUAL.read_text(), re.M)
        written = set(re.findall(r"--[a-z-]+", " ".join(tables)))
        self.assertEqual(options, written)


SUITES = {
    "Study": Results,
    "Resume": Resume,
    "Signals": Signals,
    "Damage": Damage,
    "Usage": Usage,
}

if __name__ == "__main__":
    run_suites(SUITES, sys.argv[2:])
