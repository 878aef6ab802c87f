#!/usr/bin/env python3
"""Counts in how many processes a helper shares the CPU of its caller.

Each process makes 60 calls of some 4 ms on one thread and then on two. On a
machine with nothing else to do two threads gain close to 2; a process whose two
threads share a CPU gains nothing. Times are printed and not judged, since
whatever else the machine does shows in them; where the two threads ran does not
depend on it much: in most processes most tasks of the helper must have run on
another CPU than the caller's.

Usage: short_calls.py PROGRAM [PROCESSES]
"""

import json
import subprocess
import sys

SKIPPED = 77
GAIN = 1.5


def main():
    program = sys.argv[1]
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    low = shared = helped = 0
    for number in range(processes):
        ran = subprocess.run([program], check=True, capture_output=True, text=True)
        found = json.loads(ran.stdout)
        if found["cpus"] < 2:
            print("there is one CPU only")
            sys.exit(SKIPPED)
        gain = found["one_ms"] / found["two_ms"]
        low += gain < GAIN
        helped += found["apart"] + found["together"] > 0
        shared += found["together"] > found["apart"]
        print(
            f"{number + 1:3}: {found['one_ms']:6.2f} ms, {found['two_ms']:6.2f} ms on "
            f"two threads, gain {gain:.2f}; the helper's tasks: {found['apart']} "
            f"beside the caller, {found['together']} on its CPU"
        )
    print(
        f"of {processes} processes {low} gained less than {GAIN}; in {helped} the "
        f"helper had work, in {shared} of these mostly on the caller's CPU"
    )
    if helped == 0:
        sys.exit("the helper never had work")
    if 2 * shared >= helped:
        sys.exit("caller and helper share a CPU in most processes")


if __name__ == "__main__":
    main()
