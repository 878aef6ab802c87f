#!/usr/bin/env python3
"""Runs clang-tidy over the sources of the library, the tool and the benchmarks.

Most of the time of clang-tidy goes into the headers that a source includes, so
sources of a folder are looked at several together, as far as their names do not
clash. What passed is not looked at again until one of its files, a header that
it includes, its options or the list of checks changes: a stamp says so, whose
name is made from all of these. Stamps are kept as a compiler's cache is, in
locus-tidy under $XDG_CACHE_HOME or ~/.cache, so that another copy of the tree
profits as well.

Usage: tidy.py REPOSITORY BUILD
"""

import collections
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys

FOLDERS = ("src", "cli", "bench", "lab", "ring")

CHECKS = pathlib.Path(__file__).resolve().parents[2] / ".clang-tidy"

# Sources looked at together.
MOST = 8

# Where headers of the repository are looked for.
PLACES = (".", "include", "src", "ring/include")

INCLUDE = re.compile(r'^#include ([<"])([^>"]+)', re.MULTILINE)


def stamps():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "locus-tidy"


@functools.cache
def uses_torch(path, root):
    """Whether a file includes libtorch, itself or by headers of the lab."""
    for quote, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
        if quote == "<" and target.startswith(("torch/", "ATen/", "c10/")):
            return True
        if target.startswith("lab/") and uses_torch(root / target, root):
            return True
    return False


def options_of(entry):
    """The options of a compiler's command that decide what a source means."""
    words = iter(shlex.split(entry["command"]))
    kept = []
    for word in words:
        if word == "-isystem":
            kept += [word, next(words)]
        elif word.startswith(("-D", "-I", "-std=", "-fopenmp")):
            kept.append(word)
        elif word == "-fno-tree-loop-vectorize" and platform.machine() == "x86_64":
            # The kernels. They get one SIMD target: the others would be the
            # same lines once more.
            kept += ["-march=haswell", "-DHWY_COMPILE_ONLY_STATIC"]
    return tuple(kept)


@functools.cache
def includes(path, root):
    """The files of the repository that a file names in its #include lines."""
    found = []
    for _, target in INCLUDE.findall(path.read_text(encoding="utf-8")):
        for folder in (path.parent, *(root / place for place in PLACES)):
            if (folder / target).is_file():
                found.append((folder / target).resolve())
                break
    return found


def reached(paths, root):
    """These files, and all of the repository that they include."""
    found, left = set(paths), list(paths)
    while left:
        new = set(includes(left.pop(), root)) - found
        found |= new
        left += new
    return found


@functools.cache
def tool():
    """What clang-tidy it is."""
    return subprocess.run(
        ["clang-tidy-14", "--version"], capture_output=True, check=True
    ).stdout


class Group:
    """Sources that one run of clang-tidy looks at."""

    def __init__(self, folder, options, paths, root):
        self.options, self.paths = options, paths
        names = "\n".join(map(str, paths))
        digest = hashlib.sha256(names.encode()).hexdigest()[:16]
        self.source = folder / f"{paths[0].stem}-{digest}.cc"
        self.stamp = stamps() / self.key(root)

    def key(self, root):
        """A name for all that decides whether the group passes."""
        key = hashlib.sha256(tool())
        key.update(CHECKS.read_bytes())
        key.update(" ".join(self.options).replace(str(root), "").encode())
        for path in sorted(reached(self.paths, root)):
            key.update(path.relative_to(root).as_posix().encode())
            key.update(hashlib.sha256(path.read_bytes()).digest())
        return key.hexdigest()

    def write(self):
        lines = "".join(f'#include "{path}"\n' for path in self.paths)
        if not self.source.exists() or self.source.read_text() != lines:
            self.source.write_text(lines)

    def passed(self):
        return self.stamp.exists()

    def compiles(self):
        run = subprocess.run(
            ["clang++-14", "-fsyntax-only", "-w", *self.options, self.source],
            capture_output=True,
            check=False,
        )
        return run.returncode == 0

    def tidy(self):
        run = subprocess.run(
            [
                "clang-tidy-14",
                "--quiet",
                f"--config-file={CHECKS}",
                "--warnings-as-errors=*",
                "--checks=-bugprone-suspicious-include",
                self.source,
                "--",
                *self.options,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            print(run.stdout, run.stderr if not run.stdout else "", sep="")
            return False
        self.stamp.touch()
        return True


def check(folder, options, paths, root):
    """How many of the sources pass, halved as long as their names clash."""
    group = Group(folder, options, paths, root)
    if group.passed():
        return len(paths)
    group.write()
    if len(paths) > 1 and not group.compiles():
        half = (len(paths) + 1) // 2
        good = sum(
            check(folder, options, part, root) for part in (paths[:half], paths[half:])
        )
        if good == len(paths):
            group.stamp.touch()
        return good
    return len(paths) if group.tidy() else 0


def main():
    root, build = (pathlib.Path(arg).resolve() for arg in sys.argv[1:3])
    commands = build / "compile_commands.json"
    if not commands.exists():
        sys.exit(
            f"{commands} is missing: configure with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON"
        )
    sources = {}
    for entry in json.loads(commands.read_text()):
        path = pathlib.Path(entry["file"])
        if not any(path.is_relative_to(root / f) for f in FOLDERS):
            continue
        # clang 14 cannot read the headers of libtorch in C++20.
        if not uses_torch(path, root):
            sources.setdefault(path, options_of(entry))
    if not sources:
        sys.exit(f"{commands} has no source of {', '.join(FOLDERS)}")

    merged = build / "tidy"
    merged.mkdir(exist_ok=True)
    stamps().mkdir(parents=True, exist_ok=True)

    alike = collections.defaultdict(list)
    for path, options in sorted(sources.items()):
        alike[path.parent, options].append(path)
    tasks = [
        (options, paths[n : n + MOST])
        for (_, options), paths in alike.items()
        for n in range(0, len(paths), MOST)
    ]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = sum(pool.map(lambda task: check(merged, *task, root), tasks))
    print(f"{passed} of {len(sources)} files pass")
    sys.exit(0 if passed == len(sources) else 1)


if __name__ == "__main__":
    main()
