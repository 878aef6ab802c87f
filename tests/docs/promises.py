#!/usr/bin/env python3
"""Every promise of docs/promises.md names tests, and the tests exist.

Names are `Suite.Case` of GoogleTest, `path` or `path::test` below tests/.

Usage: promises.py REPOSITORY
"""

import pathlib
import re
import sys

CASE = re.compile(r"^(\w+)\.(\w+)$")
DEFINED = re.compile(r"^TEST(?:_[PF])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


def rows(page):
    """(line number, promise, names) of every row of a table."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells != ["promise", "tested by"]:
            yield number, cells[0], re.findall(r"`([^`]+)`", cells[-1])


def missing(tests, cases, name):
    """Why a name is no test, or None."""
    case = CASE.match(name)
    path, _, function = name.partition("::")
    if case and "/" not in name:
        return None if case.groups() in cases else "no such case"
    if not (tests / path).is_file():
        return "no such file"
    text = (tests / path).read_text(encoding="utf-8")
    if function and not re.search(rf"def {re.escape(function)}\b", text):
        return "no such function"
    return None


def main():
    root = pathlib.Path(sys.argv[1])
    tests = root / "tests"
    cases = {
        found
        for path in tests.rglob("*.cc")
        for found in DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    problems, promises = [], 0
    for number, promise, names in rows(root / "docs" / "promises.md"):
        promises += 1
        if not names:
            problems.append(f"{number}: no test holds: {promise}")
        for name in names:
            why = missing(tests, cases, name)
            if why:
                problems.append(f"{number}: {name}: {why}")
    for problem in problems:
        print(f"docs/promises.md:{problem}")
    if promises == 0:
        print("docs/promises.md: there is no promise")
    sys.exit(1 if problems or promises == 0 else 0)


if __name__ == "__main__":
    main()
