#!/usr/bin/env python3
"""Compares the speed of two builds of Locus, call by call.

    bench/versions.py OLD NEW [--rounds 7] [--only REGEX] [--save FILE]

OLD and NEW are the `locus_turns` programs of two builds (bench/turns.cc; a
version that is older than it builds it all the same). Both run at once and time
the same calls alternately, so that both meet the same machine. A row is one
call; its number is the old time over the new one, so that more than 1 is
faster: the median over rounds, with the quartiles.
Prints how the rows of each family are spread, and those below --floor.

With --save, rows are kept in FILE as they come, and a run that finds some there
measures the others only: --seconds stops after that time, and the same command
resumes where it left off. --again measures the rows below --floor once more.

Exit code: 0 no row is below the floor; 1 some are; 2 bad usage or a program
failed; 3 --seconds were over before the last row.
"""

import argparse
import collections
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path


class Failed(Exception):
    """A program or a file is not what it should be."""


class Program:
    """A running locus_turns."""

    def __init__(self, path: str, arguments: list[str]):
        self.path = path
        self.process = subprocess.Popen(
            [os.path.abspath(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def ask(self, line: str) -> str:
        """The answer to a line of input."""
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is over; so is its output
        answer = self.process.stdout.readline()
        if not answer:
            raise Failed(f"{self.path} ended with code {self.process.wait()}")
        return answer.strip()

    def microseconds(self, row: str) -> float:
        """Of one call of a row."""
        answer = self.ask(row)
        if answer.startswith("error"):
            raise Failed(f"{self.path}: {row}: {answer}")
        return float(answer)

    def stop(self) -> None:
        """Ends the program, whatever it does."""
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        # What an ended program has not read cannot be flushed.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


def rows_of(args: argparse.Namespace, encodings: list[str]) -> list[str]:
    """The names of the calls to compare."""
    rows = [
        f"AttnInto/{encoding}/f32/full/L:{length}/D:64/H:{heads}"
        for encoding in encodings
        if encoding in ("none", "t5", "alibi", "rope")
        for length in args.short
        for heads in (1, 8, 64)
    ]
    rows += [
        f"{family}/{encoding}/f32/{mask}/L:{length}/D:{dim}/H:{args.heads}"
        for length in args.lengths
        for dim in args.dims
        for encoding in encodings
        for family in ("AttnFwd", "AttnBwd")
        for mask in ("full", "causal")
    ]
    rows += [
        f"Decode/{encoding}/{dtype}/L:8192/D:128/H:32/K:8"
        for encoding in encodings
        for dtype in ("f32", "bf16", "f16")
    ]
    rows += [
        f"Rotate/{layout}/{dtype}/L:4096/D:128/H:32/K:8"
        for layout in ("interleaved", "halves")
        for dtype in ("f32", "bf16", "f16")
    ]
    return [row for row in rows if re.search(args.only, row)]


def compare(programs: tuple[Program, Program], row: str, rounds: int) -> dict:
    """The ratios of one row, and the median times of both programs."""
    times: list[list[float]] = [[], []]
    for turn in range(rounds):
        # The second of a pair meets a warmer machine: take turns.
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            times[side].append(programs[side].microseconds(row))
    return {
        "ratios": [round(old / new, 4) for old, new in zip(*times, strict=True)],
        "old_us": statistics.median(times[0]),
        "new_us": statistics.median(times[1]),
    }


def load(path: Path | None) -> dict[str, dict]:
    """The rows of a saved run, none if there is no file."""
    if path is None or not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text())["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"{path} is no saved run of versions.py") from error


def save(path: Path, rows: dict[str, dict]) -> None:
    """Writes the rows, whole or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    os.replace(part, path)


def median(row: dict) -> float:
    return statistics.median(row["ratios"])


def measure(args: argparse.Namespace, rows: dict[str, dict]) -> bool:
    """Fills in the rows; False if the time was over before the last."""
    arguments = [f"--threads={args.threads}"] if args.threads else []
    if args.simd:
        arguments.append(f"--simd={args.simd}")
    start = time.monotonic()
    programs: list[Program] = []
    try:
        for path in (args.old, args.new):
            programs.append(Program(path, arguments))
        known = [program.ask("encodings").split() for program in programs]
        wanted = args.encodings or known[0]
        encodings = [name for name in wanted if all(name in k for k in known)]
        chosen = rows_of(args, encodings)
        if not chosen:
            raise Failed("both programs have no such row")
        for row in chosen:
            if row in rows and not (args.again and median(rows[row]) < args.floor):
                continue
            if args.seconds and time.monotonic() - start > args.seconds:
                return False
            rows[row] = compare((programs[0], programs[1]), row, args.rounds)
            print(
                f"{row:44} {median(rows[row]):6.3f}  {rows[row]['new_us']:10.2f} us",
                file=sys.stderr,
            )
            if args.save:
                save(args.save, rows)
    finally:
        for program in programs:
            program.stop()
    return True


def report(rows: dict[str, dict], floor: float) -> int:
    """Prints the rows; how many are below the floor."""
    groups = collections.defaultdict(list)
    for name, row in rows.items():
        parts = name.split("/")
        groups["/".join([parts[0], *parts[2:]])].append(median(row))
    print(f"{'old time / new time':44} rows  lowest  median  highest")
    for name, values in groups.items():
        print(
            f"{name:44} {len(values):4}  {min(values):6.2f}  "
            f"{statistics.median(values):6.2f}  {max(values):7.2f}"
        )
    slow = [(median(row), name) for name, row in rows.items() if median(row) < floor]
    print(f"\n{len(slow)} of {len(rows)} rows below {floor}:")
    for value, name in sorted(slow):
        ratios = rows[name]["ratios"]
        low, _, high = statistics.quantiles(ratios) if len(ratios) > 1 else [value] * 3
        print(
            f"  {name:44} {value:.3f}  ({low:.2f} to {high:.2f})  "
            f"{rows[name]['old_us']:.2f} -> {rows[name]['new_us']:.2f} us"
        )
    return len(slow)


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="locus_turns of the version to compare with")
    parser.add_argument("new", help="locus_turns of this version")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--short", type=numbers, default=[4, 16, 64])
    parser.add_argument("--lengths", type=numbers, default=[128, 512, 2048])
    parser.add_argument("--dims", type=numbers, default=[64, 128])
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--encodings", type=lambda text: text.split(","))
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--threads", type=int, default=0, help="0: all")
    parser.add_argument("--simd", default="", help="such as AVX2; default: the best")
    parser.add_argument("--floor", type=float, default=0.98)
    parser.add_argument("--seconds", type=float, default=0, help="0: to the end")
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {args.rounds}")
    if args.again and not args.save:
        parser.error("--again needs --save")
    try:
        rows = load(args.save)
        done = measure(args, rows)
    except (Failed, OSError, re.error) as error:
        print(f"versions.py: {error}", file=sys.stderr)
        return 2
    slow = report(rows, args.floor)
    if not done:
        print("there are rows left: run the same command again")
        return 3
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
