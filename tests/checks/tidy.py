#!/usr/bin/env python3
"""Runs clang-tidy over the sources of the library, the tool and the benchmarks.

A file that passed is not looked at again until it, a header or the list of
checks changes: a stamp in the build folder says so.

Usage: tidy.py REPOSITORY BUILD
"""

import concurrent.futures
import functools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

FOLDERS = ("src", "cli", "bench", "lab", "ring")


INCLUDE = re.compile(r'^#include ([<"])([^>"]+)', re.MULTILINE)


@functools.cache
def uses_torch(path, root):
    """Whether a file includes libtorch, itself or by headers of the lab."""
    for quote, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
        if quote == "<" and target.startswith(("torch/", "ATen/", "c10/")):
            return True
        if target.startswith("lab/") and uses_torch(root / target, root):
            return True
    return False


def main():
    root, build = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(
            f"{commands} is missing: configure with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
        )
    entries = json.loads(commands.read_text())
    compiled = {pathlib.Path(entry["file"]) for entry in entries}
    sources = sorted(
        path
        for path in compiled
        if any(path.is_relative_to(root / f) for f in FOLDERS)
        # clang 14 cannot read the headers of libtorch 1.13 in C++20.
        and not uses_torch(path, root)
    )
    if not sources:
        sys.exit(f"{commands} has no source of {', '.join(FOLDERS)}")

    shared = [root / ".clang-tidy"]
    for folder in ("include", *FOLDERS):
        shared += (root / folder).rglob("*.h")
    newest = max(path.stat().st_mtime for path in shared)
    stamps = build / "tidy"
    stamps.mkdir(exist_ok=True)
    # Kernels have an option of g++'s that clang does not know. Instead they get
    # one SIMD target: the others would be the same lines once more.
    x86 = platform.machine() == "x86_64"
    one_target = " -march=haswell -DHWY_COMPILE_ONLY_STATIC" if x86 else ""
    for entry in entries:
        entry["command"] = entry["command"].replace(
            " -fno-tree-loop-vectorize", one_target
        )
    (stamps / "compile_commands.json").write_text(json.dumps(entries))

    def tidy(path):
        stamp = stamps / path.relative_to(root).as_posix().replace("/", "-")
        if stamp.exists() and stamp.stat().st_mtime > max(newest, path.stat().st_mtime):
            return True
        run = subprocess.run(
            [
                "clang-tidy-14",
                "-p",
                stamps,
                "--quiet",
                "--warnings-as-errors=*",
                # The commands may be those of another compiler.
                "--extra-arg=-Wno-unknown-warning-option",
                path,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            print(run.stdout, run.stderr if not run.stdout else "", sep="")
            return False
        stamp.touch()
        return True

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(tidy, sources))
    print(f"{sum(passed)} of {len(passed)} files pass")
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
