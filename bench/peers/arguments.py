"""The command line. Reads no large package, so that a slip is answered at once."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from . import files

LONGEST = 8192


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as wrong:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a regular expression: {wrong}"
        ) from wrong


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """What was asked for; bad usage ends the program with 2 and one sentence."""
    parser = argparse.ArgumentParser(
        prog="peers.py",
        description="Locus beside PyTorch, transformers and ONNX Runtime.",
    )
    parser.add_argument(
        "--only", metavar="REGEX", type=_pattern, help="rows whose name has it"
    )
    parser.add_argument("--list", action="store_true", help="names of the rows")
    parser.add_argument(
        "--quick", action="store_true", help="3 rounds, lengths up to 2048"
    )
    parser.add_argument("--rounds", type=int, help="turns of each side (default 9)")
    parser.add_argument(
        "--longest", type=int, default=LONGEST, help="cut every length to this"
    )
    parser.add_argument("--no-memory", action="store_true", help="times only")
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--chart", metavar="FILE", type=Path, help=".png or .svg")
    given = parser.parse_args(argv)
    if given.rounds is None:
        given.rounds = 3 if given.quick else 9
    if given.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {given.rounds}")
    if not 8 <= given.longest <= LONGEST:
        parser.error(f"--longest must lie in 8 .. {LONGEST}, got {given.longest}")
    for path in (given.json, given.chart):
        if path is not None and not path.parent.is_dir():
            parser.error(f"there is no folder {path.parent} to write {path.name} to")
        if path is not None:
            try:
                files.check_output(path)
            except OSError as wrong:
                parser.error(str(wrong))
    if given.chart is not None:
        try:
            files.terminal_of(given.chart)
        except ValueError as wrong:
            parser.error(str(wrong))
    return given
