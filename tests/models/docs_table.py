"""The table of docs/models.md is what `locus explain --families --json` says.

usage: docs_table.py PAGE LOCUS [--write]

Its last column says whose values each model_type is held to, out of the golden
files beside this program.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

BEGIN = "<!-- families: written by tests/models/docs_table.py --write -->\n"
END = "<!-- end of families -->\n"
NOBODY = "nobody"


def judges() -> dict[str, str]:
    """Who made the golden values of each model_type."""
    found: dict[str, list[str]] = {}
    folder = pathlib.Path(__file__).resolve().parent / "golden"
    for path in sorted(folder.glob("*.json")):
        golden = json.loads(path.read_text(encoding="utf-8"))
        for case in golden["cases"]:
            model_type = case.get("config", case).get("model_type")
            if model_type is None:
                continue
            judge = golden["transformers"]
            if "peer" in case:
                judge += f", as `{case['peer']}`"
            if path.name == "formulas.json":
                judge = "a published formula"
            known = found.setdefault(model_type, [])
            if judge not in known:
                known.append(judge)
    by_default = default_configs()
    for model_type in by_default:
        found.setdefault(model_type, [f"{by_default[model_type]}, its default config"])
    return {model_type: " and ".join(names) for model_type, names in found.items()}


def default_configs() -> dict[str, str]:
    """Types that are read with the values of their classes, and the release."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    head, *lines = (
        (root / "src/models/class_defaults.inc")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    release = head.rstrip(".").rsplit(" ", 1)[1]
    return {line.split('"')[1]: release for line in lines}


def judged_by(types: list[str], known: dict[str, str]) -> str:
    """One judge for all types of a family, or each with its types."""
    by: dict[str, list[str]] = {}
    for name in types:
        # A model of several parts is read by its text model's reader.
        judge = known.get(name) or known.get(f"{name}_text") or NOBODY
        by.setdefault(judge, []).append(f"`{name}`")
    if len(by) == 1:
        return next(iter(by))
    return "; ".join(f"{', '.join(names)}: {judge}" for judge, names in by.items())


def table(locus: str) -> str:
    """The table as Markdown, a row a family."""
    listed = subprocess.run(
        [locus, "explain", "--families", "--json"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    known = judges()
    rows = [
        "| family | `model_type` | scheme | traps | judged by transformers |",
        "|---|---|---|---|---|",
    ]
    for family in json.loads(listed)["families"]:
        types = ", ".join(f"`{name}`" for name in family["model_types"])
        cells = [family["name"], types, family["scheme"], family["traps"]]
        cells.append(judged_by(family["model_types"], known))
        rows.append(f"| {' | '.join(cells)} |")
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
