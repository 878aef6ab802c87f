"""Programs of the tree that documents name can be run as they are named.

A program that is written as a command must be executable, and its first line must
name an interpreter that is there. What is only mentioned, without arguments and
outside README.md, need not be.

usage: commands.py REPOSITORY
"""

import os
import pathlib
import re
import shlex
import shutil
import sys

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")
# Those that run what follows them.
RUNNERS = re.compile(r"^(mpirun|nice|time|env)$")


def lines_of(page: str) -> list[str]:
    """Commands of blocks and inline code, with arguments of wrapped ones."""
    commands = []
    for language, text in BLOCK.findall(page):
        if language in ("sh", "console", ""):
            text = text.replace("\\\n", " ")
            commands += [line.removeprefix("$ ") for line in text.splitlines()]
    prose = BLOCK.sub("", page)
    commands += [code.replace("\n", " ") for code in CODE.findall(prose)]
    return commands


def words_of(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # code that is no command
        return []


def program_of(words: list[str]) -> list[str]:
    """From the program on: without variables, runners and their options."""
    while words and (ASSIGNMENT.match(words[0]) or RUNNERS.match(words[0])):
        runner = bool(RUNNERS.match(words[0]))
        words = words[1:]
        while runner and words and (words[0].startswith("-") or words[0].isdigit()):
            words = words[1:]
    return words


def complaint(path: pathlib.Path) -> str:
    """Why the file cannot be run by its name; empty if it can."""
    if not os.access(path, os.X_OK):
        return "is not executable"
    with path.open("rb") as file:
        first = file.readline().decode(errors="replace").strip()
    if not first.startswith("#!"):
        return "does not name its interpreter in the first line"
    words = first[2:].split()
    program = words[1] if words[0] == "/usr/bin/env" else words[0]
    return "" if shutil.which(program) else f"names the interpreter {program}"


def main(repository: pathlib.Path) -> int:
    pages = [repository / "README.md", *sorted(repository.glob("*/*.md"))]
    found, wrong = set(), []
    for page in pages:
        for command in lines_of(page.read_text()):
            words = program_of(words_of(command))
            if len(words) == 1 and page.name != "README.md":
                continue
            # The program, or what an interpreter of another place is given.
            for word in words[:2]:
                path = repository / word
                if path.suffix not in (".py", ".sh") or not path.is_file():
                    continue
                found.add(word)
                if why := complaint(path):
                    wrong.append(f"{page.relative_to(repository)}: {word} {why}")
    for line in wrong:
        print(line, file=sys.stderr)
    # Fewer would mean that the pages are not read as they are written.
    expected = {"tools/pictures.sh", "tools/golden.py", "bench/scale.py"}
    if missing := expected - found:
        print(f"not found in any page: {sorted(missing)}", file=sys.stderr)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
