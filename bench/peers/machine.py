"""The machine: its limits, measured in the same run, and what runs on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import torch

import locus_attn as locus

from .case import THREADS

# Fits the second-level cache by blocks and runs a few milliseconds.
GEMM = 1024
# 64 MiB a thread: no cache helps.
COPY_FLOATS = THREADS * (64 << 20) // 4

PACKAGES = ("torch", "transformers", "onnxruntime", "onnx", "numpy")


def _best_seconds(call: Any, times: int) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


class OthersBusy:
    """The share of the machine that other processes took since `__init__`.

    A rival for the cores slows a side that waits by spinning (OpenMP) more than
    one that sleeps, so ratios measured beside one mean little.
    """

    def __init__(self) -> None:
        self._start = self._counts()

    @staticmethod
    def _counts() -> tuple[float, float, float]:
        """(seconds of all CPUs, those of them busy, those of this process)."""
        line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
        ticks = [int(word) for word in line.split()[1:9]]  # guests are in user
        tick = os.sysconf("SC_CLK_TCK")
        idle = ticks[3] + ticks[4]
        own = os.times()
        return sum(ticks) / tick, (sum(ticks) - idle) / tick, own.user + own.system

    def share(self) -> float:
        total, busy, own = (
            b - a for a, b in zip(self._start, self._counts(), strict=True)
        )
        return max(busy - own, 0.0) / total if total > 0 else 0.0


class Limits:
    """The best rates seen so far, measured again at every row.

    fma: the rate of multiply-adds, in operations a second: `locus.machine` where
    the package has it, else a 1024^3 float32 product by torch ("sgemm peak",
    somewhat below the rate of multiply-adds alone). copy: bytes read plus
    written a second by torch's copy.
    """

    def __init__(self) -> None:
        self.rates = {"fma": 0.0, "copy": 0.0}
        self.fma_kind = "fma" if hasattr(locus, "machine") else "sgemm"
        self._a = torch.ones(GEMM, GEMM)
        self._b = torch.ones(GEMM, GEMM)
        self._c = torch.empty(GEMM, GEMM)
        self._from = torch.ones(COPY_FLOATS)
        self._to = torch.empty(COPY_FLOATS)

    def measure(self) -> None:
        if self.fma_kind == "fma":
            fma = 1e9 * locus.machine(THREADS)["fma_gflops"]
        else:
            seconds = _best_seconds(
                lambda: torch.matmul(self._a, self._b, out=self._c), 8
            )
            fma = 2 * GEMM**3 / seconds
        seconds = _best_seconds(lambda: self._to.copy_(self._from), 4)
        copy = 2 * 4 * COPY_FLOATS / seconds
        self.rates["fma"] = max(self.rates["fma"], fma)
        self.rates["copy"] = max(self.rates["copy"], copy)

    def as_json(self) -> dict[str, Any]:
        return {
            "fma_kind": self.fma_kind,
            "fma_gflops": self.rates["fma"] / 1e9,
            "copy_gb_per_s": self.rates["copy"] / 1e9,
        }


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text(encoding="utf-8"))
        if found:
            return found.group(1).strip()
    return platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "system": platform.system()}


def versions() -> dict[str, str]:
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), "locus": locus.__version__, **found}
