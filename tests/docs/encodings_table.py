"""The documents agree with the library and with the tree.

 * The tables of README.md and docs/encodings.md are what tools/tables.py makes of
   `locus list --json`: every encoding, in order, with its terms and facts. A section
   about one has a picture, its source, its test and a construction.
 * Links between files, and to headings, resolve.
 * Tests named as `SuiteTest.Case` exist.
 * `locus check NAME -o option=value`, quoted anywhere, runs; if a property and
   a verdict follow (`locus check index`: bounded no), they are what it finds.

usage: encodings_table.py REPOSITORY LOCUS
"""

import json
import pathlib
import re
import subprocess
import sys

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED_TEST = re.compile(r"`([A-Z]\w*Test)\.([A-Z]\w*)`")
DEFINED_TEST = re.compile(r"^TEST(?:_[PF])?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)
COMMAND = re.compile(
    r"`locus (check|show) ([a-z0-9-]+)((?: -o \S+)*)`"
    r"(?::\s+([a-z-]+)\s+(yes|no)\b)?"
)


def table(text, *columns):
    """The rows, as dicts by column, of the first table with these columns."""
    header = None
    rows = []
    for line in text.splitlines():
        cells = [
            c.strip().replace("\\|", "|") for c in re.split(r"(?<!\\)\|", line)[1:-1]
        ]
        if header is None:
            if set(columns) <= set(cells):
                header = cells
        elif not cells:
            break
        elif not set(cells[0]) <= set("-: "):
            rows.append(dict(zip(header, cells, strict=True)))
    return rows


def slugs(text):
    """Anchors of the headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE):
        found.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
    return found


class Documents:
    def __init__(self, root, locus):
        self.root = root
        self.locus = locus
        self.faults = []
        self.pages = sorted([root / "README.md", *root.glob("docs/*.md")])
        output = subprocess.run(
            [locus, "list", "--json"], capture_output=True, check=True, text=True
        ).stdout
        self.encodings = json.loads(output)["encodings"]

    def expect(self, page, holds, fault):
        if not holds:
            self.faults.append(f"{page.relative_to(self.root)}: {fault}")

    def check_table(self, name, facts):
        """`facts` maps a column to the text it must hold for an encoding."""
        page = self.root / name
        rows = table(page.read_text(encoding="utf-8"), "encoding", *facts)
        names = [
            m.group(1) if (m := re.search(r"`([^`]+)`", row["encoding"])) else ""
            for row in rows
        ]
        expected = [e["name"] for e in self.encodings]
        self.expect(
            page, names == expected, f"the table has {names}, the list has {expected}"
        )
        for row, listed in zip(rows, self.encodings, strict=True):
            for column, fact in facts.items():
                self.expect(
                    page,
                    row[column] == fact(listed),
                    f"{listed['name']}: {column} is '{row[column]}', "
                    f"the list says '{fact(listed)}'",
                )

    def check_tables_are_made(self):
        tool = self.root / "tools" / "tables.py"
        command = [sys.executable, str(tool), self.locus, "--check"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.expect(tool, done.returncode == 0, done.stderr.strip())

    def check_sections(self):
        page = self.root / "docs/encodings.md"
        text = page.read_text(encoding="utf-8")
        for e in self.encodings:
            section = re.search(
                rf"^## {e['name']}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
            )
            if section:
                for part in (
                    f"pictures/{e['name']}.png",
                    "../src/encodings/",
                    "../tests/encodings/",
                    "```cpp\n",
                ):
                    self.expect(
                        page,
                        part in section.group(1),
                        f"section {e['name']} lacks {part.strip()}",
                    )

    def check_links(self, page):
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        for link in LINK.findall(text):
            if link.startswith(("http://", "https://")):
                continue
            path, _, fragment = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            self.expect(page, target.exists(), f"{link} leads nowhere")
            if fragment and target.exists():
                self.expect(
                    page,
                    fragment in slugs(target.read_text(encoding="utf-8")),
                    f"{link}: no such heading",
                )

    def check_tests(self, page):
        defined = {
            match
            for path in self.root.glob("tests/**/*_test.cc")
            for match in DEFINED_TEST.findall(path.read_text(encoding="utf-8"))
        }
        for suite, case in NAMED_TEST.findall(page.read_text(encoding="utf-8")):
            self.expect(
                page, (suite, case) in defined, f"there is no test {suite}.{case}"
            )

    def check_commands(self, page):
        text = page.read_text(encoding="utf-8")
        for command, name, options, prop, verdict in set(COMMAND.findall(text)):
            line = [command, name, *options.split()]
            if prop:
                line += ["--require", f"{prop}={verdict}"]
            done = subprocess.run(
                [self.locus, *line], capture_output=True, text=True, check=False
            )
            self.expect(
                page,
                done.returncode == 0,
                f"`locus {' '.join(line)}` fails: {done.stderr.strip()}",
            )


def terms(listed):
    return ", ".join(f"`{t}`" for t in listed["terms"]) or "-"


def yes_no(listed):
    return "yes" if listed["trainable"] else "no"


def main():
    documents = Documents(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2])
    documents.check_table("README.md", {"terms": terms, "trained": yes_no})
    documents.check_table(
        "docs/encodings.md",
        {
            "terms": terms,
            "position": lambda e: e["reference"],
            "trained": yes_no,
            "extrapolates": lambda e: e["extrapolates"],
        },
    )
    documents.check_tables_are_made()
    documents.check_sections()
    for page in documents.pages:
        documents.check_links(page)
        documents.check_tests(page)
        documents.check_commands(page)
    for fault in documents.faults:
        print(fault)
    sys.exit(1 if documents.faults else 0)


main()
