"""What a row is: two ways to compute the same, and the truth in float64."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

THREADS = 2

# The length at which errors are measured; the truth is O(N^2) in float64.
ERROR_LENGTH = 512

FORWARD = "forward"
TRAINING = "forward+backward"


@dataclasses.dataclass
class Side:
    """One of the two.

    call: the work, once; returns its outputs, gradients included.
    state: arrays that the call needs and that were made before it from smaller
      ones, such as a bias [H, N, N] made of a table. Their bytes count as memory.
    setting: how it is used, in words.
    compiles: the first call compiles, and memory is that of a later one.
    """

    call: Callable[[], Any]
    setting: str
    state: Sequence[Tensor | np.ndarray] = ()
    compiles: bool = False


@dataclasses.dataclass
class Contest:
    """Both sides over the same inputs, and `truth()`: their outputs in float64.

    work: floating-point operations, or bytes moved, of one call.
    shapes: of the inputs, by name.
    """

    peer: Side
    locus: Side
    truth: Callable[[], Sequence[Tensor]]
    work: float
    shapes: dict[str, list[int]]


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    name: unique, with all sizes, such as "sdpa/forward/full/N:2048/D:64/H:8".
    group, label: the peer and the case, for people.
    build: makes the contest for a length.
    limit: what the work is held against, "fma" or "copy".
    required: least time of the peer over time of Locus.
    required_memory: most memory of Locus over memory of the peer.
    required_seconds: most time of Locus.
    slow: left out of a quick run.  shown: part of the chart.
    whole_error: the error is measured at the full length.
    """

    name: str
    group: str
    label: str
    direction: str
    length: int
    build: Callable[[int], Contest]
    limit: str = "fma"
    required: float | None = None
    required_memory: float | None = None
    required_seconds: float | None = None
    slow: bool = False
    shown: bool = True
    whole_error: bool = False

    @property
    def error_length(self) -> int:
        return self.length if self.whole_error else min(self.length, ERROR_LENGTH)


def normal(seed: int, *shape: int, std: float = 1.0) -> Tensor:
    """Normal float32 numbers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator) * std


def attention_flops(
    heads: int, length: int, dim: int, *, causal: bool, direction: str
) -> float:
    """4 N^2 D H forward and 10 N^2 D H backward, half of it for causal."""
    products = 4 if direction == FORWARD else 14
    return products * length**2 * dim * heads / (2 if causal else 1)


def gradients(
    forward: Callable[[], Tensor], leaves: Sequence[Tensor], d_out: Tensor
) -> Callable[[], tuple[Tensor, ...]]:
    """A call that returns out and the gradients of sum(d_out * out)."""

    def call() -> tuple[Tensor, ...]:
        out = forward()
        return (out.detach(), *torch.autograd.grad(out, leaves, d_out))

    return call


def inference(forward: Callable[[], Any]) -> Callable[[], Any]:
    """The same without autograd."""

    def call() -> Any:
        with torch.inference_mode():
            return forward()

    return call


def leaf(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """A copy of x that wants a gradient."""
    return x.detach().to(dtype, copy=True).requires_grad_()


def arrays(result: Any) -> list[np.ndarray]:
    """The outputs of a call as NumPy arrays."""
    if isinstance(result, Tensor):
        return [result.detach().numpy()]
    if isinstance(result, np.ndarray):
        return [result]
    if result is None:
        return []
    return [array for part in result for array in arrays(part)]


def byte_count(things: Iterable[Any]) -> int:
    return sum(array.nbytes for array in arrays(list(things)))


def error(result: Any, truth: Sequence[Tensor]) -> float:
    """Largest difference over the largest value, of the worst output."""
    got = arrays(result)
    want = arrays(list(truth))
    if not got or len(got) > len(want):
        raise ValueError(f"{len(got)} outputs cannot be held against {len(want)}")
    worst = 0.0
    for a, b in zip(got, want, strict=False):
        if a.shape != b.shape:
            raise ValueError(f"an output is {a.shape}, the truth {b.shape}")
        scale = float(np.abs(b).max())
        worst = max(worst, float(np.abs(a - b).max()) / scale)
    return worst
