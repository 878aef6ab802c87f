"""What a ```console block shows is what the tool prints.

A line "$ locus ..." is run; the lines below it are its output, errors
included, at a width of 100. A line "…" stands for any lines. Numbers that are
rounding errors (below 1e-8) may differ from one machine to another.

usage: console.py LOCUS PAGE...
"""

import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROUNDING = re.compile(r" *\b\d(\.\d+)?e-(09|[1-9]\d)\b")


def run(locus, command, folder):
    words = shlex.split(command)
    if words[0] != "locus":
        sys.exit(f"not a locus command: {command}")
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.run(
        [locus, *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    ).stdout


def matches(shown, printed):
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…\n" else re.escape(line)
        for line in shown.splitlines(True)
    )
    return re.fullmatch(pattern, printed) is not None


def main():
    locus = pathlib.Path(sys.argv[1]).resolve()
    wrong = commands = 0
    for page in sys.argv[2:]:
        for block in BLOCK.findall(pathlib.Path(page).read_text(encoding="utf-8")):
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = step.partition("\n")
                with tempfile.TemporaryDirectory() as folder:
                    printed = run(locus, command, folder)
                shown, printed = (ROUNDING.sub(" ~0", t) for t in (shown, printed))
                commands += 1
                if not matches(shown, printed):
                    wrong += 1
                    sys.stdout.writelines(
                        difflib.unified_diff(
                            printed.splitlines(True),
                            shown.splitlines(True),
                            f"locus: {command}",
                            page,
                        )
                    )
    if commands == 0:
        sys.exit("no page has a command to run")
    sys.exit(1 if wrong else 0)


main()
