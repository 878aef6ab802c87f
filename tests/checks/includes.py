#!/usr/bin/env python3
"""Checks the arrows between rooms by reading #include lines.

Each room may include its own files, the rooms below it, and the public headers
of those; public headers include the standard library and locus/ only. Every
room must be named in docs/architecture.md.

Usage: includes.py REPOSITORY
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# Public headers by the room that they belong to; encodings/*.h are of
# "encodings", and locus.h may include everything.
HEADERS = {
    "core": {
        *("api.h", "error.h", "files.h", "tensor.h", "text.h", "threads.h"),
        "version.h",
    },
    "terms": {"terms.h", "attention.h", "forget_gate.h", "rotary.h"},
    "encoding": {"descriptor.h", "encoding.h"},  # no encoding by name
    "encodings": set(),
    "reference": {"reference.h", "linear_attention.h"},
    "kernels": {"kv_cache.h", "machine.h", "plan.h", "simd.h"},
    "analysis": {"check.h"},
    "models": {"checkpoint.h", "models.h"},
}

# What a room of src/ may include: files of rooms, and public headers of rooms.
BASE = {"core", "terms"}
ANY = set(HEADERS)
ROOMS = {
    "core": ({"core"}, {"core"}),
    "terms": (BASE, BASE),
    "encodings": (BASE | {"encodings"}, BASE | {"encoding", "encodings"}),
    "reference": (BASE | {"reference"}, BASE | {"encoding", "reference"}),
    "kernels": (BASE | {"kernels"}, BASE | {"encoding", "kernels"}),
    "analysis": ({"core", "analysis"}, ANY),
    "models": ({"core", "models"}, BASE | {"encoding", "encodings", "models"}),
}

# Headers of the room on the left may include headers of the rooms on the right.
PUBLIC = {
    "core": {"core"},
    "terms": BASE,
    "encoding": BASE | {"encoding"},
    "encodings": BASE | {"encoding", "encodings"},
    "reference": BASE | {"encoding", "reference"},
    "kernels": BASE | {"encoding", "kernels"},
    "analysis": BASE | {"encoding", "analysis"},
    "models": BASE | {"encoding", "models"},
}


def includes(path):
    """(quote, target) of every #include of a file."""
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def header_room(name):
    """The room of the public header locus/`name`, or None."""
    if name.startswith("encodings/"):
        return "encodings"
    for room, headers in HEADERS.items():
        if name in headers:
            return room
    return None


def check_public(root):
    for path in sorted((root / "include").rglob("*.h")):
        name = path.relative_to(root / "include" / "locus").as_posix()
        room = header_room(name)
        if room is None and name != "locus.h":
            yield f"include/locus/{name}: no room in tests/checks/includes.py"
            continue
        for quote, target in includes(path):
            if quote == "<":
                # Standard headers have neither a folder nor an ending.
                if "/" in target or "." in target:
                    yield f"include/locus/{name}: <{target}> is not standard"
            elif not target.startswith("locus/"):
                yield f'include/locus/{name}: "{target}" is not public'
            elif name != "locus.h":
                other = header_room(target.removeprefix("locus/"))
                if other not in PUBLIC[room]:
                    yield (
                        f'include/locus/{name}: "{target}" points from '
                        f"{room} to {other}"
                    )


def check_exported(root):
    """Public headers open their namespace as exported, see locus/api.h."""
    for folder in ("include", "ring/include"):
        for path in sorted((root / folder).rglob("*.h")):
            text = path.read_text(encoding="utf-8")
            inner = re.search(r"^namespace locus \{\nnamespace LOCUS_API", text, re.M)
            for line in re.findall(r"^namespace locus\b.*", text, re.M):
                if not (inner and line == "namespace locus {"):
                    where = path.relative_to(root).as_posix()
                    yield f"{where}: '{line}' should be 'namespace LOCUS_API locus {{'"


def check_sources(root):
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        room = folder.name
        if room not in ROOMS:
            yield f"src/{room}: no arrows in tests/checks/includes.py"
            continue
        files, headers = ROOMS[room]
        for path in sorted(folder.rglob("*")):
            if path.suffix not in (".h", ".cc", ".inc"):
                continue
            where = path.relative_to(root).as_posix()
            for quote, target in includes(path):
                if quote == "<":
                    continue
                first, _, rest = target.partition("/")
                if first == "locus":
                    other = header_room(rest)
                    if other not in headers:
                        yield f'{where}: "{target}" points from {room} to {other}'
                elif first not in files:
                    yield f'{where}: "{target}" points from {room} to {first}'


def check_apps(root):
    """Apps stand on the public headers: nothing of src/ in them."""
    for app in ("bench", "cli", "examples", "lab", "ring", "web"):
        for path in sorted((root / app).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            for quote, target in includes(path):
                first = target.partition("/")[0]
                if quote == '"' and first in ROOMS:
                    where = path.relative_to(root).as_posix()
                    yield f'{where}: "{target}" is not public'


def check_documented(root):
    page = root / "docs" / "architecture.md"
    text = page.read_text(encoding="utf-8")
    rooms = [f"src/{p.name}/" for p in (root / "src").iterdir() if p.is_dir()]
    rooms += [
        f"{app}/"
        for app in (
            *("bench", "cli", "examples", "lab", "ring", "tests", "web"),
            "include/locus",
        )
        if (root / app).is_dir()
    ]
    for room in sorted(rooms):
        if f"`{room}`" not in text:
            yield f"docs/architecture.md does not list `{room}`"


def main():
    root = pathlib.Path(sys.argv[1])
    problems = [
        problem
        for check in (
            check_public,
            check_exported,
            check_sources,
            check_apps,
            check_documented,
        )
        for problem in check(root)
    ]
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
