"""What was measured of a row, and whether it is enough."""

from __future__ import annotations

import dataclasses
from typing import Any

from .case import Contest, Row
from .timing import Spread, Times

# Above this share of the machine in other hands a row is marked.
QUIET = 0.05


@dataclasses.dataclass(frozen=True)
class Measured:
    """One side. memory: bytes beyond inputs and outputs, None if not measured."""

    seconds: Spread
    of_limit: float
    memory: int | None
    error: float
    setting: str

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Result:
    """A row with both sides.

    limit: operations or bytes a second, measured. others: the share of the
    machine that other processes took while it was timed.
    """

    row: Row
    peer: Measured
    locus: Measured
    ratio: Spread
    work: float
    limit: float
    shapes: dict[str, list[int]]
    error_length: int
    others: float

    @property
    def memory_ratio(self) -> float | None:
        """Memory of Locus over memory of the peer; None where neither is known."""
        if not self.peer.memory or self.locus.memory is None:
            return None
        return self.locus.memory / self.peer.memory

    def misses(self) -> list[str]:
        """What the row requires and does not have, in words."""
        row, said = self.row, []
        if row.required is not None and self.ratio.median < row.required:
            said.append(f"{self.ratio.median:.2f} x, required {row.required:g} x")
        memory = self.memory_ratio
        if (
            row.required_memory is not None
            and memory is not None
            and memory > row.required_memory
        ):
            said.append(f"memory {memory:.3f}, required {row.required_memory:g}")
        if (
            row.required_seconds is not None
            and self.locus.seconds.median > row.required_seconds
        ):
            said.append(
                f"{1e6 * self.locus.seconds.median:.1f} us, required "
                f"{1e6 * row.required_seconds:g} us"
            )
        return said

    def as_json(self) -> dict[str, Any]:
        row = self.row
        return {
            "name": row.name,
            "peer_name": row.group,
            "case": row.label,
            "direction": row.direction,
            "shapes": self.shapes,
            "work": self.work,
            "work_unit": "operations" if row.limit == "fma" else "bytes",
            "limit": row.limit,
            "limit_per_second": self.limit,
            "peer": self.peer.as_json(),
            "locus": self.locus.as_json(),
            "ratio": dataclasses.asdict(self.ratio),
            "memory_ratio": self.memory_ratio,
            "error_length": self.error_length,
            "others_busy": self.others,
            "required": {
                "ratio": row.required,
                "memory_ratio": row.required_memory,
                "seconds": row.required_seconds,
            },
            "shown": row.shown,
            "misses": self.misses(),
        }


def result(
    row: Row,
    contest: Contest,
    times: Times,
    memory: dict[str, int | None],
    errors: dict[str, float],
    limit: float,
    others: float,
) -> Result:
    def side(name: str) -> Measured:
        seconds: Spread = getattr(times, name)
        return Measured(
            seconds=seconds,
            of_limit=contest.work / seconds.median / limit,
            memory=memory[name],
            error=errors[name],
            setting=getattr(contest, name).setting,
        )

    return Result(
        row=row,
        peer=side("peer"),
        locus=side("locus"),
        ratio=times.ratio,
        work=contest.work,
        limit=limit,
        shapes=contest.shapes,
        error_length=row.error_length,
        others=others,
    )
