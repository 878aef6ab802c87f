#!/usr/bin/env python3
"""NumPy calls beside PyTorch in one process: do they share its threads?

    python bench/beside_torch.py [--rounds N] [--threads N]

Times `locus.attention` on NumPy arrays, `locus.torch.attention` and
`scaled_dot_product_attention` on the same numbers, interleaved call by call: each
finds the OpenMP threads of PyTorch as the call before has left them, still
spinning. A second pool of threads would have to share the cores with these.
"""

import argparse
import os
import statistics
import sys
import time

# NumPy's own threads are not needed, and would spin beside what is measured.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

LENGTH, DIM, HEADS = 512, 64, (8, 16)
WARM_UP = 10  # rounds that do not count


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200, help="calls of each side")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    for name in ("rounds", "threads"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(given, name)}")
    return given


def sides(heads, threads):
    """The calls by name, after a look at what they return."""
    import numpy as np
    import torch

    import locus_attn as locus
    import locus_attn.torch as lt

    generator = torch.Generator().manual_seed(1)
    shape = (1, heads, LENGTH, DIM)
    tensors = [torch.randn(shape, generator=generator) for _ in range(3)]
    arrays = [tensor.numpy() for tensor in tensors]
    calls = {
        "SDPA": lambda: torch.nn.functional.scaled_dot_product_attention(*tensors),
        "locus.torch": lambda: lt.attention(*tensors, threads=threads),
        "NumPy": lambda: locus.attention(*arrays, threads=threads),
    }
    sdpa, by_torch, by_numpy = (call() for call in calls.values())
    if not np.array_equal(by_torch.numpy(), by_numpy):
        sys.exit("beside_torch.py: NumPy and locus.torch have different bits")
    if not torch.allclose(sdpa, by_torch, atol=1e-5):
        sys.exit("beside_torch.py: Locus and SDPA have different results")
    return calls


def measure(calls, rounds):
    """Seconds of every call, by side. Each side follows each of the others."""
    times = {name: [] for name in calls}
    names = list(calls)
    for number in range(-WARM_UP, rounds):
        names.append(names.pop(0))
        for name in names if number % 2 else reversed(names):
            start = time.perf_counter()
            calls[name]()
            taken = time.perf_counter() - start
            if number >= 0:
                times[name].append(taken)
    return times


def ratio(times, of, to):
    """Of each round, where both saw the same machine; then the median."""
    pairs = zip(times[of], times[to], strict=True)
    return statistics.median(a / b for a, b in pairs)


def main():
    given = arguments()
    import torch
    from peers.machine import OthersBusy, cpu_name

    torch.set_num_threads(given.threads)
    print(
        f"{cpu_name()}, {given.threads} threads, N {LENGTH}, D {DIM}, float32; "
        f"milliseconds, medians of {given.rounds}"
    )
    print(
        f"{'H':>3} {'SDPA':>8} {'locus.torch':>12} {'NumPy':>8} "
        f"{'NumPy / locus.torch':>20} {'NumPy / SDPA':>13} {'others':>7}"
    )
    with torch.inference_mode():
        for heads in HEADS:
            calls = sides(heads, given.threads)
            busy = OthersBusy()
            times = measure(calls, given.rounds)
            ms = {name: 1e3 * statistics.median(t) for name, t in times.items()}
            print(
                f"{heads:>3} {ms['SDPA']:>8.2f} {ms['locus.torch']:>12.2f} "
                f"{ms['NumPy']:>8.2f} {ratio(times, 'NumPy', 'locus.torch'):>20.3f} "
                f"{ratio(times, 'NumPy', 'SDPA'):>13.3f} {busy.share():>7.0%}",
                flush=True,
            )
    print(
        "Ratios are medians over rounds; others: the share of the machine that "
        "other processes took."
    )


if __name__ == "__main__":
    main()
