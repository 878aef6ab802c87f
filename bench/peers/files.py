"""Files that are whole or not there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A new file beside `path` that takes its place when the block succeeds.

    As the tool's own outputs (include/locus/files.h): links are followed, and what
    exists and is no regular file is refused.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise OSError(f"cannot write {path}: it exists and is not a regular file")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    made = Path(name)
    try:
        yield made
        mask = os.umask(0)
        os.umask(mask)
        made.chmod(0o666 & ~mask)
        os.fsync(handle)
        made.replace(path)
        sync_folder(path.parent)
    finally:
        os.close(handle)
        made.unlink(missing_ok=True)


def sync_folder(path: Path) -> None:
    """A new name reaches the disk with its folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def check_output(path: Path) -> None:
    """OSError if `path` could not be written, before minutes of measuring."""
    with contextlib.suppress(_Probe), beside(path):
        raise _Probe


class _Probe(Exception):
    """Ends a block whose file is not wanted."""


def write_json(path: Path, data: Any) -> None:
    with beside(path) as made:
        made.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def run_gnuplot(path: Path, script: str) -> None:
    """Draws `path`; the script's output is named OUTPUT."""
    with beside(path) as made:
        try:
            done = subprocess.run(
                ["gnuplot"],
                input=script.replace("OUTPUT", str(made)),
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError as missing:
            raise OSError(f"gnuplot, which draws {path}, is not installed") from missing
        if done.returncode != 0 or made.stat().st_size == 0:
            said = done.stderr.strip().splitlines() or ["it gave no reason"]
            raise OSError(f"gnuplot could not draw {path}: {said[-1]}")


def terminal_of(path: Path) -> str:
    """What gnuplot calls the kind of picture that a path names."""
    kinds = {".png": "pngcairo", ".svg": "svg"}
    if path.suffix not in kinds:
        raise ValueError(f"--chart must name a .png or .svg file, got '{path}'")
    return kinds[path.suffix]
