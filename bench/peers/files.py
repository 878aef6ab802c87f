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
    """A new file beside `path` that takes its place when the block succeeds."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    made = Path(name)
    try:
        yield made
        mask = os.umask(0)
        os.umask(mask)
        made.chmod(0o666 & ~mask)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


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
