#!/usr/bin/env python3
"""Random calls of every public function, right and wrong, from Python.

    python fuzz_boundary.py --seconds 60 --seed 1      # that much CPU time
    python fuzz_boundary.py --seed 1 --case 1234       # one call again, printed

Calls run in a child process, so that a crash is a finding like others, with the
call that made it. A call may return, or raise one of EXPECTED with one line of
text, and has a budget of CPU time. Calls without a wrong argument are compared
with NumPy where there is a formula. Every case is made from the seed and its
number alone.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback

import fuzz_cases

EXPECTED = (TypeError, ValueError, OverflowError, MemoryError)
CASE_SECONDS = 20.0  # of CPU time
MEMORY = 6 << 30  # of address space beyond the libraries
EXIT_FINDING = 9


def complaint(error: BaseException) -> str | None:
    """What is wrong with an exception, if anything."""
    text = str(error)
    if isinstance(error, fuzz_cases.Raised):
        return None
    if not isinstance(error, EXPECTED):
        return f"{type(error).__name__} is not expected: {text}"
    if not text.strip():
        return f"{type(error).__name__} without a word"
    if "\n" in text or len(text) > 600:
        return f"{type(error).__name__} of more than one sentence: {text}"
    for word in ("std::", "nanobind", "incompatible function", "basic_string"):
        if word in text:
            return f"{type(error).__name__} in the words of a library: {text}"
    return None


def run_case(seed: int, number: int, show: bool = False) -> str | None:
    """Runs a case; what is wrong with it, or None."""
    case = fuzz_cases.make(random.Random(f"{seed}/{number}"))
    if show:
        print(case.text(), flush=True)
    try:
        result = case.run()
    except Exception as error:
        if show:
            print(f"{type(error).__name__}: {error}")
        return complaint(error)
    if show:
        print(f"returned {fuzz_cases.shown(result)}")
    return case.judge(result)


def child(seed: int, start: int, seconds: float, progress: str) -> int:
    """Cases from `start` on; writes the number of the case it is at."""
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, -1))
    end = time.process_time() + seconds
    number = start
    file = os.open(progress, os.O_WRONLY)
    while time.process_time() < end:
        os.pwrite(file, b"%20d" % number, 0)
        try:
            found = run_case(seed, number)
        except Exception:
            found = traceback.format_exc()
        if found:
            print(json.dumps({"case": number, "found": found}), flush=True)
            return EXIT_FINDING
        number += 1
    os.pwrite(file, b"%20d" % number, 0)
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(process: subprocess.Popen, progress: str) -> str | None:
    """Waits for a child; kills it where one case takes too long."""
    case, since = "", 0.0
    while process.poll() is None:
        time.sleep(0.2)
        now = pathlib.Path(progress).read_text().strip()
        used = cpu_seconds(process.pid)
        if now != case:
            case, since = now, used
        elif used - since > CASE_SECONDS:
            process.kill()
            process.wait()
            return f"took more than {CASE_SECONDS:.0f} s of CPU time"
    return None


def child_command(seed: int, start: int, seconds: float, progress: str) -> list[str]:
    given = ["--seed", seed, "--case", start, "--seconds", seconds]
    return [__file__, "--child", *map(str, given), "--progress", progress]


def fuzz(seed: int, seconds: float) -> int:
    """Runs children until the time is used up; the number of findings."""
    findings, number, left = 0, 0, seconds
    with tempfile.NamedTemporaryFile("w", suffix=".case") as progress:
        while left > 0:
            progress.seek(0)
            progress.write(f"{number:20d}")
            progress.flush()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            process = subprocess.Popen(
                [sys.executable, *child_command(seed, number, left, progress.name)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            late = watch(process, progress.name)
            out, err = process.communicate()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            left -= max(used, 0.1)
            number = int(pathlib.Path(progress.name).read_text())
            if process.returncode == 0:
                break
            findings += 1
            report(seed, number, process.returncode, late, out, err)
            number += 1
            if findings >= 20:
                print("enough: stopping after 20 findings")
                break
    print(f"{number} calls with seed {seed}: {findings} findings")
    return findings


def report(seed: int, number: int, status: int, late: str | None, out, err) -> None:
    if late:
        found = late
    elif status == EXIT_FINDING:
        found = json.loads(out.splitlines()[-1])["found"]
    else:
        found = f"died with status {status}: {err.strip()[-400:]}"
    print(f"case {number}: {found}")
    print(f"  again by: {pathlib.Path(__file__).name} --seed {seed} --case {number}")
    try:
        case = fuzz_cases.make(random.Random(f"{seed}/{number}"))
        print(f"  {case.text()}", flush=True)
    except Exception as error:
        print(f"  (the case itself fails: {error!r})", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--progress", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(given.seed, given.case, given.seconds, given.progress)
    if given.case is not None:
        found = run_case(given.seed, given.case, show=True)
        print(found or "nothing wrong")
        return 1 if found else 0
    return 1 if fuzz(given.seed, given.seconds) else 0


if __name__ == "__main__":
    sys.exit(main())
