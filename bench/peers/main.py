"""What is measured: which rows, in which order, written where."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
from typing import Any

import torch

from . import (
    biased,
    case,
    chart,
    files,
    flex,
    hf_rows,
    machine,
    memory,
    onnxruntime_rows,
    operands,
    overhead,
    plain,
    relative,
    rotary,
    table,
    timing,
)
from .arguments import LONGEST
from .case import Row
from .result import Result, result

FAMILIES = (
    plain,
    biased,
    operands,
    flex,
    relative,
    hf_rows,
    rotary,
    onnxruntime_rows,
    overhead,
)
SIDES = ("peer", "locus")

METHOD = {
    "time": "peer and Locus take turns in one process; median and quartiles of the "
    "rounds; ratio is that of each round",
    "memory": "VmHWM of one call in a process of its own, after malloc_trim and a "
    "reset by /proc/self/clear_refs, beyond inputs and outputs, and with what the "
    "call was given made of smaller inputs, such as a bias [H, N, N]",
    "error": "largest difference from the formula in float64 over the largest value, "
    "worst output or gradient, at error_length",
    "others_busy": "share of all cores that other processes took while a row was "
    "timed; above 0.05 its times mean little",
    "work": "4 N^2 D H operations forward, 10 backward, half for causal, and those of "
    "projections; or bytes read once and written once",
}


def all_rows(longest: int = LONGEST) -> list[Row]:
    """Every row, lengths cut to `longest`; a row that was cut has to meet nothing."""
    rows = [row for family in FAMILIES for row in family.rows(longest)]
    groups = list(dict.fromkeys(row.group for row in rows))
    rows.sort(key=lambda row: (groups.index(row.group), row.direction))
    if longest == LONGEST:
        return rows
    whole = {row.name for row in all_rows()}
    free = dict.fromkeys(("required", "required_memory", "required_seconds"))
    return [
        row if row.name in whole else dataclasses.replace(row, **free) for row in rows
    ]


def _chosen(given: argparse.Namespace) -> list[Row]:
    rows = all_rows(given.longest)
    if given.quick:
        rows = [row for row in rows if not row.slow]
    if given.only is not None:
        rows = [row for row in rows if given.only.search(row.name)]
    return rows


def _say(text: str) -> None:
    """Progress, one line that the next one replaces on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


def _memories(rows: list[Row]) -> dict[str, dict[str, int | None]]:
    found = {}
    for number, row in enumerate(rows, 1):
        _say(f"memory {number}/{len(rows)} {row.name}")
        found[row.name] = {side: memory.measure(row, side) for side in SIDES}
    return found


def _errors(row: Row) -> dict[str, float]:
    contest = row.build(row.error_length)
    truth = contest.truth()
    return {side: case.error(getattr(contest, side).call(), truth) for side in SIDES}


def _run(
    row: Row, rounds: int, memories: dict[str, int | None], limits: machine.Limits
) -> Result:
    errors = _errors(row)
    contest = row.build(row.length)
    limits.measure()
    busy = machine.OthersBusy()
    times = timing.take_turns(contest.peer.call, contest.locus.call, rounds)
    others = busy.share()
    limits.measure()
    rate = limits.rates[row.limit]
    return result(row, contest, times, memories, errors, rate, others)


def _report(
    given: argparse.Namespace, results: list[Result], limits: machine.Limits
) -> dict[str, Any]:
    return {
        "program": "peers",
        "machine": {**machine.describe(), "limits": limits.as_json()},
        "versions": machine.versions(),
        "threads": case.THREADS,
        "dtype": "float32",
        "rounds": given.rounds,
        "method": METHOD,
        "rows": [r.as_json() for r in results],
    }


def _measure(given: argparse.Namespace, rows: list[Row]) -> list[Result]:
    # Memory first: its processes are forked while this one has no threads.
    nothing: dict[str, int | None] = dict.fromkeys(SIDES)
    memories = {} if given.no_memory else _memories(rows)
    torch.set_num_threads(case.THREADS)
    limits = machine.Limits()
    limits.measure()
    described = {**machine.describe(), "limits": limits.as_json()}
    _say("")
    print(table.above(described, machine.versions(), case.THREADS))
    print(table.HEAD)
    results: list[Result] = []
    group = None
    for number, row in enumerate(rows, 1):
        _say(f"time {number}/{len(rows)} {row.name}")
        measured = _run(row, given.rounds, memories.get(row.name, nothing), limits)
        gc.collect()
        results.append(measured)
        _say("")
        if (row.group, row.direction) != group:
            group = (row.group, row.direction)
            print(f"{row.group}, {row.direction}")
        print("  " + table.line(measured), flush=True)
    print(table.verdict(results))
    report = _report(given, results, limits)
    if given.json is not None:
        files.write_json(given.json, report)
    if given.chart is not None:
        chart.draw(report, given.chart)
    return results


def main(given: argparse.Namespace) -> int:
    """0: it ran; 1: no row or a failure; 130: interrupted."""
    rows = _chosen(given)
    if not rows:
        print("peers.py: no row has such a name; --list shows them", file=sys.stderr)
        return 1
    if given.list:
        print("\n".join(row.name for row in rows))
        return 0
    try:
        _measure(given, rows)
    except KeyboardInterrupt:
        print("\npeers.py: interrupted, nothing written", file=sys.stderr)
        return 130
    except (OSError, RuntimeError) as failure:
        print(f"\npeers.py: {failure}", file=sys.stderr)
        return 1
    return 0
