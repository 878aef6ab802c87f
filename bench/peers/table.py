"""The table on standard output."""

from __future__ import annotations

from typing import Any

from .result import QUIET, Measured, Result
from .timing import Spread

HEAD = (
    f"{'':44} {'peer ms':>20} {'Locus ms':>20} {'ratio':>20} "
    f"{'of limit':>11} {'memory MB':>13} {'error':>15}"
)


def _spread(s: Spread, factor: float = 1.0, digits: int = 2) -> str:
    a, b, c = (f"{factor * x:.{digits}f}" for x in (s.median, s.low, s.high))
    return f"{a} [{b} {c}]"


def _time(s: Spread) -> str:
    """Milliseconds, with as many digits as mean something."""
    digits = 4 if s.median < 1e-4 else 2 if s.median < 0.1 else 1 if s.median < 1 else 0
    return _spread(s, 1e3, digits)


def _pair(peer: str, locus: str) -> str:
    return f"{peer} {locus}"


def _memory(side: Measured) -> str:
    if side.memory is None:
        return "-"
    mega = side.memory / 1e6
    return f"{mega:.1f}" if mega < 100 else f"{mega:.0f}"


def line(result: Result) -> str:
    peer, locus = result.peer, result.locus
    name = f"{result.row.label}"
    text = (
        f"{name:44} {_time(peer.seconds):>20} {_time(locus.seconds):>20} "
        f"{_spread(result.ratio):>20} "
        f"{_pair(f'{peer.of_limit:.2f}', f'{locus.of_limit:.2f}'):>11} "
        f"{_pair(_memory(peer), _memory(locus)):>13} "
        f"{_pair(f'{peer.error:.0e}', f'{locus.error:.0e}'):>15}"
    )
    if result.others > QUIET:
        text += f"  (others took {100 * result.others:.0f} % of the machine)"
    return text + "".join(f"  MISSES {miss}" for miss in result.misses())


def above(machine: dict[str, Any], versions: dict[str, str], threads: int) -> str:
    limits = machine["limits"]
    return (
        f"{machine['cpu']}, {threads} threads, {limits['fma_kind']} peak "
        f"{limits['fma_gflops']:.0f} GFLOP/s, copy {limits['copy_gb_per_s']:.1f} GB/s\n"
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "\nmedian [quartiles]; pairs are peer and Locus; ratio is peer over Locus"
    )


def verdict(results: list[Result]) -> str:
    missing = [r for r in results if r.misses()]
    asked = sum(
        any(
            x is not None
            for x in (r.row.required, r.row.required_memory, r.row.required_seconds)
        )
        for r in results
    )
    loud = sum(r.others > QUIET for r in results)
    note = []
    if loud:
        note = [
            f"The machine was not quiet in {loud} of {len(results)} rows: measure "
            "again before you believe them."
        ]
    if not missing:
        return "\n".join([f"All {asked} rows with a requirement meet it.", *note])
    lines = [f"{len(missing)} of {asked} rows with a requirement miss it:"]
    lines += [f"  {r.row.name}: {'; '.join(r.misses())}" for r in missing]
    return "\n".join(lines + note)
