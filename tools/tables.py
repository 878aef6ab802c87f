#!/usr/bin/env python3
"""Writes the rows of the tables of encodings in README.md and docs/encodings.md.

    python tools/tables.py build/release/cli/locus [--check]

Everything in them comes from `locus list --json`. In docs/encodings.md the column
"lowering" of a row that is there stays as it is; a new row has the formula. With
--check nothing is written, and a table that would change is an error.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
YEAR = re.compile(r"\d{4}")


def cells_of(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def short(paper):
    """ "Su et al., RoFormer: ..., 2021" as "Su et al., 2021"."""
    authors, comma, rest = paper.partition(", ")
    years = YEAR.findall(rest)
    return f"{authors}, {years[-1]}" if comma and years else paper


def link(encoding, page, sections):
    """The name, linked to its section if it has one."""
    name = encoding["name"]
    return f"[`{name}`]({page}#{name})" if name in sections else f"`{name}`"


def terms(encoding):
    return ", ".join(f"`{term}`" for term in encoding["terms"]) or "-"


def trained(encoding):
    return "yes" if encoding["trainable"] else "no"


def table(text, header, rows):
    """The text with the rows of the table under `header` replaced by rows(old)."""
    start = text.index(header + "\n") + len(header) + 1
    start = text.index("\n", start) + 1  # past |---|
    end = start
    while text.startswith("|", end):
        end = text.index("\n", end) + 1
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows(text[start:end]))
    return text[:start] + lines + text[end:]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("locus")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    listed = subprocess.run(
        [args.locus, "list", "--json"], capture_output=True, check=True, text=True
    ).stdout
    encodings = json.loads(listed)["encodings"]
    page = (ROOT / "docs/encodings.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (\S+)$", page, re.MULTILINE))

    def readme(_):
        for e in encodings:
            name = link(e, "docs/encodings.md", sections)
            yield [name, terms(e), "yes", "yes", trained(e), short(e["paper"])]

    def rewrite(old):
        kept = {
            re.search(r"`([^`]+)`", row[0]).group(1): row[2]
            for row in map(cells_of, old.splitlines())
        }
        for e in encodings:
            formula = e["formula"].replace("|", "\\|")
            lowering = kept.get(e["name"], formula)
            facts = [e["reference"], trained(e), e["extrapolates"]]
            yield [link(e, "", sections), terms(e), lowering, *facts]

    tables = {
        "README.md": (
            "| encoding | terms | forward | backward | trained | paper |",
            readme,
        ),
        "docs/encodings.md": (
            "| encoding | terms | lowering | position | trained | extrapolates |",
            rewrite,
        ),
    }
    stale = []
    for name, (header, rows) in tables.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        made = table(text, header, rows)
        if made != text:
            stale.append(name)
            if not args.check:
                path.write_text(made, encoding="utf-8")
    if args.check and stale:
        sys.exit(
            f"{' and '.join(stale)}: rows of encodings are not those of the list; "
            f"run cmake --build --preset release --target generate"
        )


main()
