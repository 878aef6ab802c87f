#!/usr/bin/env python3
"""What `locus.from_config` says to the default config of every model type.

usage: config_sweep.py [--json] [--write PAGE | --check PAGE] [TYPE ...]

Builds the default config of every model type of the installed transformers (or
of those named), reads every layer of every part, and prints one line per type:
accepted with its family, refused with the reader's sentence, or unknown. PAGE
is the Markdown table of the same (docs/model-types.md).
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import warnings

import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import locus_attn as locus

UNKNOWN = "is not known; it needs a reader"
WITHOUT = "has no default config in transformers"


def default_config(model_type: str) -> dict | None:
    """The default config as its JSON file has it; None where there is none."""
    try:
        config = CONFIG_MAPPING[model_type]()
    except Exception:  # the classes raise whatever their checks do
        return None
    return json.loads(json.dumps(config.to_dict(), default=str))


def schemes(config: dict, part: str | None) -> list[str]:
    """The distinct schemes of the layers of one part, in order of layers."""
    first = locus.from_config(config, part=part)
    found: list[str] = []
    for layer in range(first.layers):
        position = locus.from_config(config, layer=layer, part=part)
        name = position.scheme if position.attends else "no attention"
        if name not in found:
            found.append(name)
    return found


def read(model_type: str) -> dict:
    """One row: the type, the verdict, and the family or the sentence."""
    row = {"model_type": model_type}
    config = default_config(model_type)
    if config is None:
        return row | {"verdict": "unknown", "says": WITHOUT}
    try:
        first = locus.from_config(config)
        found = schemes(config, None)
        if first.other_part:
            other = "encoder" if first.part == "decoder" else "decoder"
            found += [s for s in schemes(config, other) if s not in found]
    except (ValueError, TypeError) as error:
        says = str(error)
        verdict = "unknown" if UNKNOWN in says else "refused"
        return row | {"verdict": verdict, "says": says}
    return row | {
        "verdict": "accepted",
        "read_as": first.model_type,
        "family": first.family,
        "schemes": found,
    }


def sweep(types: list[str]) -> dict:
    """Every row, with the counts and the release that the configs are of."""
    rows = [read(name) for name in types]
    counts = {
        verdict: sum(row["verdict"] == verdict for row in rows)
        for verdict in ("accepted", "refused", "unknown")
    }
    return {
        "transformers": transformers.__version__,
        "types": len(rows),
        **counts,
        "rows": rows,
    }


def page(result: dict) -> str:
    """The table as Markdown."""
    lines = [
        "# Model types",
        "",
        "What `locus.from_config` says to the default config of every model type of",
        f"transformers {result['transformers']}, every layer of every part; written by",
        "`build/venv/bin/python tools/config_sweep.py --write docs/model-types.md`.",
        "A type in brackets is the part that is read.",
        "",
        f"{result['types']} types: {result['accepted']} accepted,"
        f" {result['refused']} refused with a reason, {result['unknown']} unknown.",
        "",
        "| `model_type` | family, or the refusal | schemes |",
        "|---|---|---|",
    ]
    for row in result["rows"]:
        name = row["model_type"]
        if row["verdict"] == "accepted":
            inner = "" if row["read_as"] == name else f" (`{row['read_as']}`)"
            cells = [row["family"] + inner, ", ".join(row["schemes"])]
        elif row["verdict"] == "refused":
            cells = ["refused: " + row["says"].replace("|", "\\|"), ""]
        else:
            cells = ["unknown", ""]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", type=pathlib.Path, metavar="PAGE")
    parser.add_argument("--check", type=pathlib.Path, metavar="PAGE")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    result = sweep(arguments.types or sorted(CONFIG_MAPPING.keys()))
    if arguments.write:
        arguments.write.write_text(page(result), encoding="utf-8")
    elif arguments.check:
        if arguments.check.read_text(encoding="utf-8") != page(result):
            print(f"{arguments.check.name} differs; run config_sweep.py --write")
            return 1
    elif arguments.json:
        print(json.dumps(result, indent=1))
    else:
        for row in result["rows"]:
            what = row.get("says") or f"{row['family']}: {', '.join(row['schemes'])}"
            print(f"{row['model_type']:32} {row['verdict']:9} {what}")
        counts = [f"{result[v]} {v}" for v in ("accepted", "refused", "unknown")]
        print(f"transformers {result['transformers']}: {', '.join(counts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
