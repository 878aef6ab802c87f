#!/usr/bin/env python3
"""Checks that no file names a path of somebody's machine or leaves a promise.

Looks at every text file of the repository: those that git tracks or would
track, or, outside a git checkout, all but build/ and hidden folders.

Usage: clean_text.py REPOSITORY
"""

import pathlib
import re
import subprocess
import sys

# Written in pieces, or this file would find itself.
MACHINE_PATH = re.compile(r"(?<![\w.$})/])/" + r"(work|root|home|Users)/\w")
PROMISE = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def files(root):
    listed = subprocess.run(
        [
            "git",
            "-C",
            root,
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.decode().split("\0") if name]
    return [
        path
        for path in root.rglob("*")
        if not any(
            part == "build" or part.startswith(".")
            for part in path.relative_to(root).parts
        )
    ]


def main():
    root = pathlib.Path(sys.argv[1])
    found = False
    for path in sorted(files(root)):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data:
            continue
        text = data.decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern in (MACHINE_PATH, PROMISE):
                match = pattern.search(line)
                if match:
                    found = True
                    where = path.relative_to(root).as_posix()
                    print(f"{where}:{number}: {match.group(0)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
