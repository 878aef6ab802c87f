"""The table of docs/models.md is what `locus explain --families --json` says.

usage: docs_table.py PAGE LOCUS [--write]
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

BEGIN = "<!-- families: written by tests/models/docs_table.py --write -->\n"
END = "<!-- end of families -->\n"


def table(locus: str) -> str:
    """The table as Markdown, a row a family."""
    listed = subprocess.run(
        [locus, "explain", "--families", "--json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    rows = ["| family | `model_type` | scheme | traps |", "|---|---|---|---|"]
    for family in json.loads(listed)["families"]:
        types = ", ".join(f"`{name}`" for name in family["model_types"])
        rows.append(
            f"| {family['name']} | {types} | {family['scheme']} | {family['traps']} |"
        )
    return "\n".join(rows) + "\n"


def main() -> int:
    page = pathlib.Path(sys.argv[1])
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    old, _, tail = rest.partition(END)
    new = table(sys.argv[2])
    if "--write" in sys.argv[3:]:
        page.write_text(head + BEGIN + new + END + tail, encoding="utf-8")
        return 0
    if not rest or old != new:
        print(f"{page.name} differs from the code's own table; run with --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
