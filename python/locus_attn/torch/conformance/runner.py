"""Architecture by architecture, each in a process of its own.

A model that crashes, hangs or eats the memory ends its process, not the sweep.
"""

from __future__ import annotations

import importlib
import multiprocessing
import multiprocessing.connection
import resource
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import architectures
from .judge import Row, examine

_MEMORY = 12 << 30


def unknown(names: Sequence[str]) -> str | None:
    """Which of the names the user gave nothing is known about."""
    types = set(architectures.model_types())
    for name in names:
        if ":" in name:
            file, _, inside = name.partition(":")
            try:
                getattr(importlib.import_module(file), inside)
            except (ImportError, AttributeError) as reason:
                return f"{name}: {reason}"
        elif name not in types:
            return f"transformers has no model type {name!r}"
    return None


def architecture(name: str) -> architectures.Architecture:
    make = architectures.by_path if ":" in name else architectures.by_type
    return make(name)


def sweep(
    names: Sequence[str] | None = None, *, seconds: float = 120.0, jobs: int = 1
) -> Iterator[Row]:
    """A row per name, or per model type, as they finish."""
    _prepare()
    todo = list(architectures.model_types() if names is None else names)[::-1]
    context = multiprocessing.get_context("fork")
    running: list[tuple[str, Any, Any, float]] = []
    while todo or running:
        while todo and len(running) < jobs:
            name = todo.pop()
            end, other = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(name, other))
            process.start()
            other.close()
            running.append((name, process, end, time.monotonic() + seconds))
        multiprocessing.connection.wait([end for _, _, end, _ in running], timeout=1.0)
        still = []
        for name, process, end, deadline in running:
            if end.poll():
                yield _received(name, process, end)
            elif time.monotonic() > deadline:
                process.kill()
                process.join()
                said = f"not done in {seconds:g} s, so there is no verdict"
                yield Row(name, verdict="does not build", said=said)
            else:
                still.append((name, process, end, deadline))
        running = still


def _received(name: str, process: Any, end: Any) -> Row:
    try:
        row = end.recv()
    except EOFError:
        row = None
    process.join()
    end.close()
    if row is None:
        said = f"its process ended with code {process.exitcode}"
        return Row(name, verdict="wrong", said=said)
    return row


def _prepare() -> None:
    """Imports once, for all processes; not a thread may run before they fork."""
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    for name in ("LlamaForCausalLM", "BertModel", "CLIPModel"):
        getattr(transformers, name)


def _work(name: str, end: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    end.send(examine(architecture(name)))
    end.close()
