"""Peak memory of a call, in a process of its own.

The process is forked before any thread is started here. It runs a short call of
the same kind (which loads code and starts threads), builds the full one, gives
free memory back to the system, resets the peak of its resident set
(/proc/self/clear_refs), makes one call and reads the peak (VmHWM). What an
allocator keeps for later therefore counts, and what it kept from before helps
nobody.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import signal
import sys
import traceback
from pathlib import Path

import torch

from .case import THREADS, Row, byte_count

# The short call; long enough to take the same code path.
SHORT_LENGTH = 128


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    if found is None:
        raise OSError("/proc/self/status has no VmHWM, so memory cannot be measured")
    return 1024 * int(found.group(1))


def _reset_peak() -> int:
    """Returns the resident bytes, which are the peak from now on."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak_bytes()


def _measure(row: Row, side_name: str) -> int:
    torch.set_num_threads(THREADS)
    length = min(SHORT_LENGTH, row.length)
    side = getattr(row.build(length), side_name)
    if not side.compiles:
        side.call()
    side = getattr(row.build(row.length), side_name)
    if side.compiles:
        side.call()
    before = _reset_peak()
    result = side.call()
    beyond = _peak_bytes() - before - byte_count([result])
    # Outputs of a short call may lie in pages that were there before.
    return max(beyond, 0) + byte_count(side.state)


def measure(row: Row, side_name: str) -> int:
    """Bytes beyond inputs and outputs, state included."""
    read_end, write_end = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read_end)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            answer = {"bytes": _measure(row, side_name)}
            code = 0
        except BaseException as failure:
            traceback.print_exc()
            answer = {"failure": f"{type(failure).__name__}: {failure}"}
        with os.fdopen(write_end, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(code)
    os.close(write_end)
    try:
        with os.fdopen(read_end) as pipe:
            text = pipe.read()
    finally:
        os.waitpid(child, 0)
    answer = json.loads(text) if text else {"failure": "the process was ended"}
    if "failure" in answer:
        raise RuntimeError(
            f"memory of {side_name} in {row.name} could not be measured: "
            f"{answer['failure']}"
        )
    return answer["bytes"]
