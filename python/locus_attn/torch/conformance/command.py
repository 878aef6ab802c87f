"""python -m locus_attn.torch.conformance: every model of transformers on Locus."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from . import architectures, page, runner
from .judge import Finding, Row


def main(arguments: list[str] | None = None) -> int:
    """0: all are equal or refused; 1: some are wrong; 2: bad usage."""
    options = _parse(arguments)
    rows = _kept(options.resume)
    done = {row.name for row in rows}
    names = options.models or architectures.model_types()
    names = [name for name in names if name not in done]
    for row in runner.sweep(names, seconds=options.seconds, jobs=options.jobs):
        rows.append(row)
        if options.resume is not None:
            with options.resume.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
        if not options.json:
            _show(row, len(rows))
    rows.sort(key=lambda row: row.name)
    if options.json:
        told = [dataclasses.asdict(row) for row in rows]
        json.dump({"versions": page.versions(), "rows": told}, sys.stdout, indent=1)
        print()
    else:
        print(page.counts(rows))
    if options.write is not None:
        page.replace(options.write, page.page(rows))
    return 1 if any(row.verdict == "wrong" for row in rows) else 0


def _kept(path: Path | None) -> list[Row]:
    """The rows of an interrupted sweep."""
    if path is None or not path.exists():
        return []
    rows = {}
    for line in path.read_text().splitlines():
        told = json.loads(line)
        told["findings"] = [Finding(**finding) for finding in told["findings"]]
        rows[told["name"]] = Row(**told)
    return list(rows.values())


def _parse(arguments: list[str] | None) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m locus_attn.torch.conformance",
        description="Builds a small random model of every architecture of the "
        "installed transformers and compares Locus with its own attention.",
    )
    parser.add_argument(
        "--models",
        nargs="+",
        metavar="M",
        help="model types; or module:Class, a model class of your own, or "
        "module:function, a function of an attn_implementation that returns a model",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the page of docs"
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep rows in this file of JSON lines and resume where it left off",
    )
    parser.add_argument("--seconds", type=float, default=120.0, help="per model")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    options = parser.parse_args(arguments)
    problem = runner.unknown(options.models or ())
    if problem is not None:
        parser.error(problem)
    return options


def _show(row: Any, count: int) -> None:
    said = f": {row.said}" if row.said else ""
    way = f" by {row.way}" if row.way else ""
    tally = collections.Counter(f.verdict for f in row.findings)
    passed = f" ({tally['equal']} cases)" if row.findings else ""
    line = f"{count:4} {row.name}: {row.verdict}{way}{passed}{said} [{row.seconds} s]"
    print(line, flush=True)
