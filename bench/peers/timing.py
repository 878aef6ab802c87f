"""Times of two calls that take turns."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

# A turn lasts at least this long: enough ticks of the clock, and a short call is
# repeated until then.
TURN_SECONDS = 0.02

# Worker threads of OpenMP and ONNX Runtime go on spinning for a moment after a
# call; the other side's turn starts when that is over.
SETTLE_SECONDS = 0.003


@dataclasses.dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(values: list[float]) -> Spread:
        if len(values) == 1:
            return Spread(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return Spread(median, low, high)


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of a call of each, and the ratio peer over Locus round by round."""

    peer: Spread
    locus: Spread
    ratio: Spread


def _seconds(call: Callable[[], Any], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def take_turns(peer: Callable[[], Any], locus: Callable[[], Any], rounds: int) -> Times:
    """Peer, Locus, peer, Locus...: each round gives one time of each.

    Two calls of each come first and do not count. Neighbours in time share the
    machine's mood, so the ratio is taken in each round, and its median given.
    """
    calls = (peer, locus)
    repeats = []
    for call in calls:
        call()
        repeats.append(max(1, math.ceil(TURN_SECONDS / _seconds(call, 1))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, repeat, taken in zip(calls, repeats, times, strict=True):
            time.sleep(SETTLE_SECONDS)
            if repeat > 1:
                call()  # wakes threads and caches, as in a loop of calls
            taken.append(_seconds(call, repeat))
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return Times(Spread.of(times[0]), Spread.of(times[1]), Spread.of(ratios))
