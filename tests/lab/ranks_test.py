"""locus-compare under mpirun: the study of one process, shared by several ranks.

usage: ranks_test.py LOCUS_COMPARE COMPARE_WITHOUT_MPI [SUITE]
"""

import json
import os
import pathlib
import re
import signal
import sys
import time

import compare_case
from compare_case import COMPARE, PLAIN, run_suites, without_clock

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "ring"))
from launch import Job, mpirun

WITHOUT_MPI = os.path.abspath(sys.argv[2])
LOCUS = str(pathlib.Path(COMPARE).with_name("locus"))

# Half a unit in the last place of a float32 near 1. Training makes differences
# of that size grow, by how much docs/lab.md says; a wrong gradient shows in the
# first digits.
ROUNDING = 2**-24
TOLERANCE = 100 * ROUNDING

SMALL = (
    *("--encodings", "t5,rope", "--tasks", "text,count", "--seeds", "1"),
    *("--extend", "linear", "--fine-tune-steps", "3", "--factor", "2"),
    *("--cost-lengths", "off"),
)


class Ranked(compare_case.Study):
    """A folder of its own, and jobs of mpirun."""

    def arguments(self, out="results", steps=20, more=(), batch=10):
        """Ten sequences per step: uneven on 3 and 4 ranks."""
        return self.options(out=out, steps=steps, more=more, jobs=1, batch=batch)

    def job(self, ranks, arguments, program=(COMPARE,)):
        return Job(mpirun(ranks, [*program, *arguments]))

    def run_ranks(self, ranks, arguments, program=(COMPARE,)):
        return self.job(ranks, arguments, program).finish(120)

    def good_ranks(self, ranks, arguments, program=(COMPARE,)):
        code, out, err = self.run_ranks(ranks, arguments, program)
        self.assertEqual(code, 0, err)
        return out, err

    def fails_once(self, ranks, arguments, *parts, program=(COMPARE,)):
        """One line of the program's own, said once and not by each rank."""
        code, out, err = self.run_ranks(ranks, arguments, program)
        self.assertEqual((code, out), (2, ""), err)
        said = [line for line in err.splitlines() if line.startswith("locus: ")]
        self.assertEqual(len(said), 1, err)
        for part in parts:
            self.assertIn(part, said[0])

    def wait_for_a_checkpoint(self, job, out="results"):
        """A checkpoint is there, and then one that is newer."""
        seen = set()
        end = time.monotonic() + 60
        while len(seen) < 2:
            self.assertIsNone(job.process.poll(), "it ended early")
            self.assertLess(time.monotonic(), end, "no checkpoint was written")
            for path in (self.folder / out / "runs").rglob("checkpoint"):
                try:
                    seen.add(path.stat().st_mtime_ns)
                except FileNotFoundError:  # its job ended just now
                    continue
            time.sleep(0.02)

    def leftovers(self, out="results"):
        return [p.name for p in (self.folder / out).rglob("*.part")]


def numbers(results):
    """Every loss and accuracy by where it stands."""
    found = {}
    for run in results["runs"] + results["extensions"]:
        for point in run.get("loss_curve", []):
            found[run["id"], "curve", point["step"]] = point["loss"]
        for e in run["evaluations"]:
            found[run["id"], "loss", e["length"]] = e["loss"]
            found[run["id"], "tokens", e["length"]] = e["tokens"]
    return found


class Study(Ranked):
    """The study of one process, and that of several ranks."""

    def compare_with_one(self, expected, ranks):
        """Runs it, and says how far the numbers are apart, in roundings."""
        out = f"on{ranks}"
        text, err = self.good_ranks(ranks, self.arguments(out=out, more=SMALL))
        self.assertEqual(text.count("\nreport: "), 1, text)
        self.assertEqual(err.count(f"jobs, 1 at a time on {ranks} ranks"), 1, err)
        r = self.results(out)
        self.assertEqual(r["settings"]["ranks"], ranks)
        self.assertEqual((r["interrupted"], r["failed"]), (False, []))
        self.assertEqual(self.leftovers(out), [])
        got = numbers(r)
        self.assertEqual(set(got), set(expected))
        worst = max(abs(got[k] / expected[k] - 1) for k in got)
        print(f"{ranks} ranks: {worst / ROUNDING:.1f} roundings from one process")
        self.assertGreater(worst, 0, "the ranks did not share the work")
        self.assertLess(worst, TOLERANCE)
        return r

    def test_same_as_one_process_within_rounding(self):
        self.good(self.arguments(out="one", more=SMALL))
        one = self.results("one")
        self.assertEqual(one["settings"]["ranks"], 1)
        expected = numbers(one)
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                r = self.compare_with_one(expected, ranks)
        # The same number of ranks once more: the same bits.
        self.good_ranks(4, self.arguments(out="again", more=SMALL))
        self.assertEqual(self.results("again")["fingerprint"], r["fingerprint"])

    def test_first_rank_measures_costs(self):
        more = (*PLAIN[:-2], "--cost-lengths", "16", "--json")
        out, _ = self.good_ranks(2, self.arguments(steps=3, more=more))
        r = json.loads(out)
        rows = {(c["encoding"], c["path"]) for c in r["attention_cost"]}
        self.assertEqual(len(rows), 3 * 2)
        self.assertEqual(r, self.results())


class Resume(Ranked):
    MORE = (
        *("--encodings", "t5,rope", "--task", "text", "--seeds", "1"),
        *("--extend", "linear", "--fine-tune-steps", "20", "--factor", "2"),
        *("--cost-lengths", "off", "--save-every", "0"),
    )

    def test_killed_and_resumed_is_the_same_to_the_bit(self):
        steps = 150
        self.good_ranks(2, self.arguments(out="whole", steps=steps, more=self.MORE))
        arguments = self.arguments(out="killed", steps=steps, more=self.MORE)
        for begun in (False, True):
            job = self.job(2, ["--resume", *arguments] if begun else arguments)
            self.wait_for_a_checkpoint(job, out="killed")
            for rank in (0, 1):
                os.kill(job.find_rank(rank), signal.SIGKILL)
            job.process.kill()
            job.finish(60)
        code, _, err = self.run_ranks(3, ["--resume", *arguments])
        self.assertEqual(code, 2)
        self.assertIn("ranks is 2 there and would be 3 now", err)
        self.fails(["--resume", *arguments], "ranks is 2 there and would be 1 now")
        self.good_ranks(2, ["--resume", *arguments])
        whole, killed = self.results("whole"), self.results("killed")
        self.assertEqual(without_clock(killed), without_clock(whole))
        self.assertEqual(killed["fingerprint"], whole["fingerprint"])
        self.assertEqual(self.leftovers("killed"), [])

    def stopped(self, number):
        arguments = self.arguments(steps=10**6, more=(*PLAIN, "--save-every", "0"))
        job = self.job(2, arguments)
        self.wait_for_a_checkpoint(job)
        job.process.send_signal(number)
        code, out, err = job.finish(60)
        self.assertEqual(out, "", err)
        self.assertNotEqual(code, 0, err)
        r = self.results()
        self.assertTrue(r["interrupted"])
        self.assertEqual(r["runs"], [])
        self.assertEqual(self.leftovers(), [])
        return code, err

    def test_user_signal_stops_all_ranks_after_the_same_step(self):
        code, err = self.stopped(signal.SIGUSR1)
        self.assertEqual(code, 130)
        self.assertEqual(
            len(re.findall("locus: stopped; 0 of 2 jobs are done", err)), 1, err
        )
        self.assertIn("mpirun -n 2 locus compare --resume --out", err)

    def test_interrupt_saves(self):
        self.stopped(signal.SIGINT)


class Failures(Ranked):
    DEADLINE = 3

    def hit(self, number, rank):
        """A study whose rank gets a signal in the middle: exit code, errors."""
        more = (*PLAIN, "--save-every", "0", "--deadline", str(self.DEADLINE))
        job = self.job(3, self.arguments(steps=10**6, more=more))
        self.wait_for_a_checkpoint(job)
        os.kill(job.find_rank(rank), number)
        code, out, err = job.finish(self.DEADLINE + 60)
        self.assertNotEqual(code, 0)
        self.assertEqual(out, "")
        for other in {0, 1, 2} - {rank}:
            self.assertIsNone(job.find_rank(other), f"rank {other} still runs")
        self.assertEqual(self.leftovers(), [])
        # The page of the study so far: valid, and without a finished run.
        self.assertEqual(self.results()["runs"], [])
        return err

    def test_killed_rank(self):
        err = self.hit(signal.SIGKILL, 1)
        self.assertIn("rank 1", err)
        self.assertIn("signal 9", err)

    def test_stopped_rank(self):
        err = self.hit(signal.SIGSTOP, 2)
        self.assertRegex(err, rf"locus: rank [01] of 3 waited {self.DEADLINE} s for ")

    def test_full_disk_is_one_sentence(self):
        more = (*PLAIN, "--save-every", "0")
        # Blocks of 512 bytes: enough for study.json, too little for a
        # checkpoint, or for a file by which MPI would share memory.
        limit = 'ulimit -f 24; OMPI_MCA_btl=self,tcp exec "$@"'
        shell = ("sh", "-c", limit, "sh", COMPARE)
        code, out, err = self.run_ranks(2, self.arguments(more=more), shell)
        self.assertEqual((code, out), (2, ""), err)
        self.assertEqual(err.count("free some space and continue"), 1, err)
        self.assertEqual(self.leftovers(), [])
        self.good_ranks(2, ["--resume", "--out", str(self.folder / "results")])


class Usage(Ranked):
    def test_bad_options_are_said_once(self):
        for arguments, part in (
            (["--steps", "many"], "--steps must be a whole number"),
            (["--bad"], "--bad"),
            (["--jobs", "2"], "--jobs must be 1 under mpirun, got 2"),
            (["--plot-only", "--out", str(self.folder)], "no results.json"),
        ):
            with self.subTest(arguments=arguments):
                self.fails_once(2, arguments, part)

    def test_more_ranks_than_sequences(self):
        self.fails_once(
            3,
            self.arguments(more=PLAIN, batch=2),
            "3 ranks cannot share the 2 sequences per step of task text",
            "start at most 2",
        )
        self.assertFalse((self.folder / "results" / "study.json").exists())

    def test_ranks_with_other_options(self):
        plain = self.arguments(more=PLAIN)
        first = mpirun(1, [COMPARE, *plain])
        second = mpirun(1, [COMPARE, *plain, "--json"])
        code, _, err = Job([*first, ":", *second[1:]]).finish(60)
        self.assertEqual(code, 2, err)
        self.assertIn("every rank must be given the same options", err)

    def test_dry_run_help_and_one_rank(self):
        plain = self.arguments(more=PLAIN)
        out, err = self.good_ranks(2, ["--dry-run", *plain])
        self.assertEqual((out.count("text/rope/1"), err), (1, ""))
        out, _ = self.good_ranks(2, ["--help"])
        self.assertEqual(out.count("Exit codes:"), 1)
        self.assertFalse((self.folder / "results").exists())
        # One rank is one process, with its workers; `locus` becomes the program.
        self.good_ranks(1, self.options(more=PLAIN), (LOCUS, "compare"))
        one = self.results()
        self.assertEqual(one["settings"]["ranks"], 1)
        page = self.folder / "results" / "report.html"
        page.unlink()
        out, _ = self.good_ranks(2, ["--plot-only", *plain], (LOCUS, "compare"))
        self.assertEqual(out.count("report:"), 1)
        self.assertTrue(page.exists())

    def test_build_without_mpi_refuses(self):
        self.fails_once(
            2,
            self.arguments(more=PLAIN),
            "one of 2 processes, but this build of locus compare has no MPI",
            program=(WITHOUT_MPI,),
        )
        self.assertFalse((self.folder / "results").exists())


SUITES = {"Study": Study, "Resume": Resume, "Failures": Failures, "Usage": Usage}

if __name__ == "__main__":
    run_suites(SUITES, sys.argv[3:])
