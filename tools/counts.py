#!/usr/bin/env python3
"""Counts the instructions of representative calls, and compares the counts.

    tools/counts.py [CASE ...]                  with the committed counts
    tools/counts.py --against PATH [CASE ...]   with another build of the program
    tools/counts.py --renew [CASE ...]          rewrites the committed counts

Runs locus_counts (bench/counts.cc) under callgrind, once per case. A count that
differs by more than 3 % in either direction is an error. A change that raises a
count says why in its commit message.

Exit code: 0 the counts agree; 1 some differ; 2 bad usage, or a program failed;
77 nothing was counted, for a reason that is printed (no valgrind, no AVX2, or
another build than that of the committed counts).
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build" / "release" / "bench" / "locus_counts"
COMMITTED = ROOT / "bench" / "counts.json"
TOLERANCE = 0.03
SIMD = "AVX2"
SKIPPED = 77
# The program sees nothing of the caller's environment, so that no setting of the
# library or of glibc changes a count. glibc copies and fills larger blocks with
# `rep movsb` and `rep stosb`, which callgrind counts once per byte: they are
# switched off for vectors.
ENVIRONMENT = {
    "PATH": os.defpath,
    "LC_ALL": "C",
    "GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=0x40000000:"
    "glibc.cpu.x86_rep_stosb_threshold=0x40000000",
}


class CannotCount(Exception):
    """This machine or this build cannot be compared."""


class Failed(Exception):
    """A program or a file is not what it should be."""


def run(*command):
    """The standard output of a command that must succeed."""
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise Failed(
            f"{' '.join(map(str, command))} ended with code {done.returncode} "
            f"and wrote: {last}"
        )
    return done.stdout


def valgrind():
    path = shutil.which("valgrind")
    if path is None:
        raise CannotCount("valgrind is not installed (Debian: valgrind)")
    return path


def build_of(program):
    """The compiler and libraries of a program that can run here."""
    # Asked under valgrind, which has fewer instructions than the machine.
    output = run(valgrind(), "--tool=none", "-q", program, "--about")
    about = dict(line.split(": ", 1) for line in output.splitlines())
    if SIMD not in about["simd"].split():
        raise CannotCount(f"valgrind has no {SIMD} here, only {about['simd']}")
    return about["build"]


def cases_of(program, wanted):
    """The cases of a program, or those wanted."""
    cases = run(program).split()
    for case in wanted:
        if case not in cases:
            raise Failed(f"no case '{case}'; known cases: {', '.join(cases)}")
    return wanted or cases


def count(program, case):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        run(
            valgrind(),
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            "--toggle-collect=LocusCounted",
            program,
            case,
        )
        total = re.search(r"^totals: (\d+)", out.read_text(), re.MULTILINE)
    if total is None or int(total[1]) == 0:
        raise Failed(f"callgrind counted nothing in {program} {case}")
    return int(total[1])


def workers(jobs):
    """A pool of threads that start programs, each on one CPU of this process.

    A program that may use one CPU runs every call on one thread, those too that
    take no number of threads.
    """
    cpus = itertools.cycle(sorted(os.sched_getaffinity(0)))
    return concurrent.futures.ThreadPoolExecutor(
        jobs, initializer=lambda: os.sched_setaffinity(0, {next(cpus)})
    )


def tabulate(args, cases, heading, before):
    """Counts the cases and prints each beside before(case), a future or None.

    Returns [(case, count, count before or None)].
    """
    rows = []
    width = max(map(len, cases))
    print(f"{'case':{width}} {'instructions':>14} {heading:>14} {'ratio':>8}")
    with workers(args.jobs) as pool:
        try:
            futures = [
                (case, pool.submit(count, args.program, case), before(pool, case))
                for case in cases
            ]
            for case, now, then in futures:
                new, old = now.result(), then.result() if then else None
                rows.append((case, new, old))
                right = f"{old:14,} {new / old:8.4f}" if old else f"{'-':>14}"
                print(f"{case:{width}} {new:14,} {right}", flush=True)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if args.json:
        keys = ("case", "instructions", heading)
        save(args.json, [dict(zip(keys, row, strict=True)) for row in rows])
    return rows


def known(values):
    """`before` of tabulate, from a dictionary."""

    def before(_pool, case):
        if case not in values:
            return None
        future = concurrent.futures.Future()
        future.set_result(values[case])
        return future

    return before


def differ(new, old):
    return abs(new - old) > TOLERANCE * old


def save(path, content):
    beside = Path(f"{path}.part")
    beside.write_text(json.dumps(content, indent=2) + "\n")
    beside.replace(path)


def compare_programs(args):
    for program in (args.program, args.against):
        build_of(program)
    cases = cases_of(args.program, args.cases)
    cases_of(args.against, cases)
    rows = tabulate(
        args,
        cases,
        "against",
        lambda pool, case: pool.submit(count, args.against, case),
    )
    bad = [row for row in rows if differ(row[1], row[2])]
    for case, new, old in bad:
        print(
            f"{case} takes {new:,} instructions, {new / old - 1:+.1%} of the "
            f"{old:,} of {args.against}",
            file=sys.stderr,
        )
    return 1 if bad else 0


def renew(args):
    build = build_of(args.program)
    every = cases_of(args.program, [])
    cases = cases_of(args.program, args.cases)
    old = {}
    if args.counts.exists():
        committed = json.loads(args.counts.read_text())
        old = committed["instructions"]
        if args.cases and committed["build"] != build:
            raise Failed(
                f"{args.counts} is of '{committed['build']}' and the program of "
                f"'{build}': renew every case, not some"
            )
    rows = tabulate(args, cases, "before", known(old))
    new = old | {case: instructions for case, instructions, _ in rows}
    instructions = {case: new[case] for case in every if case in new}
    save(args.counts, {"build": build, "instructions": instructions})
    return 0


def compare_committed(args):
    renewal = f"tools/counts.py --program {args.program} --renew"
    if not args.counts.exists():
        raise Failed(f"there is no {args.counts}; make it with: {renewal}")
    committed = json.loads(args.counts.read_text())
    build = build_of(args.program)
    if build != committed["build"]:
        raise CannotCount(
            f"the committed counts are of '{committed['build']}', the program is "
            f"of '{build}'"
        )
    old = committed["instructions"]
    other = sorted(set(old) ^ set(cases_of(args.program, [])))
    if other:
        raise Failed(
            f"{args.counts} and {args.program} have different cases, such as "
            f"'{other[0]}'; renew with: {renewal}"
        )
    cases = cases_of(args.program, args.cases)
    rows = tabulate(args, cases, "committed", known(old))
    bad = [row for row in rows if differ(row[1], row[2])]
    for case, new, before in bad:
        advice = "say why in the commit message" if new > before else "keep the gain"
        print(
            f"{case} takes {new:,} instructions, {new / before - 1:+.1%} of the "
            f"committed {before:,}; {advice} and renew with: {renewal}",
            file=sys.stderr,
        )
    return 1 if bad else 0


def read_arguments():
    parser = argparse.ArgumentParser(
        description="Counts the instructions of representative calls under "
        "callgrind and compares them with the committed counts."
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument(
        "--program",
        type=Path,
        default=PROGRAM,
        help="locus_counts (default: that of build/release)",
    )
    parser.add_argument(
        "--counts",
        type=Path,
        default=COMMITTED,
        metavar="FILE",
        help="the committed counts (default: bench/counts.json)",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="PATH",
        help="compare with this locus_counts instead of the committed counts",
    )
    parser.add_argument(
        "--renew", action="store_true", help="rewrite the committed counts"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the table as JSON, too"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="programs to run at a time (default: 2)"
    )
    args = parser.parse_args()
    if args.renew and args.against:
        parser.error("--renew and --against exclude each other")
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {args.jobs}")
    for program in (args.program, args.against):
        if program and not os.access(program, os.X_OK):
            parser.error(f"there is no program {program}")
    return args


def main():
    args = read_arguments()
    try:
        if args.renew:
            return renew(args)
        if args.against:
            return compare_programs(args)
        return compare_committed(args)
    except CannotCount as reason:
        print(f"not counted: {reason}")
        return SKIPPED
    except KeyError as error:
        print(f"counts.py: {args.counts} has no entry {error}", file=sys.stderr)
    except (Failed, OSError, ValueError) as error:
        print(f"counts.py: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
