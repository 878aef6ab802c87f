"""The page of docs that a sweep writes."""

from __future__ import annotations

import collections
import platform
from collections.abc import Iterable
from pathlib import Path

import torch

from .architectures import model_types
from .cases import CASES
from .judge import Row

VERDICTS = ("equal", "refused", "wrong", "does not build")
# Their sections.
TITLES = ("Equal", "Refused", "Wrong", "Does not build")

_HEAD = """\
# Models of transformers on Locus

Written by `python -m locus_attn.torch.conformance --write docs/conformance.md`; do
not edit. Versions: {versions}.
Judged: {judged} of {types} model types; the others are listed at the end.

For every architecture (a model type that has a class), a small model with random
weights is built on eager attention and on Locus: by `attn_implementation="locus"`, or
by `locus_attn.torch.patch` where the name is refused. The cases: {cases}.

- **Equal**: outputs are within {forward:g} and gradients within {gradients:g} of the
  largest number of their tensor. Where eager attention and sdpa disagree, as on what
  padding gives, one of the two; where a rounding of the weights moves the original
  further than that, four times as far. In bf16 at most twice as far from float32 as
  the further of the two.
- **Refused**: a ValueError of one sentence, when the model is built or in that case.
- **Wrong**: other numbers, any other exception, or Locus was never called.
- **Does not build**: there is no small model or there are no inputs for it here, or no
  verdict within the time limit.

Cases that a model does not have, or that fail on its own eager attention, are left
out. "Attention modules" counts those that ran on Locus in the forward pass.
"""


def versions() -> dict[str, str]:
    """Of everything that a result depends on."""
    import transformers

    import locus_attn

    return {
        "locus": locus_attn.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def tally(rows: Iterable[Row]) -> dict[str, int]:
    """How many rows have each verdict; models without attention are not counted."""
    found = collections.Counter(row.verdict for row in rows)
    return {verdict: found[verdict] for verdict in VERDICTS}


def expected(rows: Iterable[Row]) -> list[Row]:
    """Rows that ran and that sdpa supports, or would but for sinks and relative
    positions.
    """
    ran = [r for r in rows if r.verdict in ("equal", "refused", "wrong")]
    return [r for r in ran if r.sdpa or r.relative]


def counts(rows: list[Row]) -> str:
    """The counts of a sweep, as lines of a table."""
    groups = {
        "all with attention": rows,
        "of these, sdpa or sinks or relative positions": expected(rows),
    }
    lines = [f"| architectures | {' | '.join(VERDICTS)} |", "|---|" + "---|" * 4]
    for name, group in groups.items():
        numbers = tally(group).values()
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def page(rows: list[Row]) -> str:
    """The whole page, Markdown."""
    from .judge import TOLERANCE

    told = ", ".join(f"{name} {version}" for name, version in versions().items())
    head = _HEAD.format(
        versions=told,
        judged=len(rows),
        types=len(model_types()),
        cases=", ".join(CASES),
        **TOLERANCE,
    )
    parts = [head, counts(rows), "", _table(rows)]
    for verdict, title in list(zip(VERDICTS, TITLES, strict=True))[1:]:
        parts += _sentences(rows, verdict, title)
    idle = [row.name for row in rows if row.verdict == "no attention"]
    parts += ["", "## Without attention", "", ", ".join(idle) + "."]
    left = sorted(set(model_types()) - {row.name for row in rows})
    if left:
        why = "The sweep has not reached these."
        parts += ["", "## Not judged", "", f"{why} {', '.join(left)}."]
    return "\n".join(parts) + "\n"


def _table(rows: list[Row]) -> str:
    lines = ["## Equal", "", "| model type | class | by | attention modules | cases |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        if row.verdict == "equal":
            cases = ", ".join(f.case for f in row.findings)
            reached = f"{row.reached} of {row.attentions}"
            lines.append(
                f"| {row.name} | {row.cls} | {row.way} | {reached} | {cases} |"
            )
    return "\n".join(lines)


def _sentences(rows: list[Row], verdict: str, title: str) -> list[str]:
    chosen = [row for row in rows if row.verdict == verdict]
    if not chosen:
        return []
    lines = ["", f"## {title}", "", "| model type | why |", "|---|---|"]
    for row in chosen:
        said = row.said.replace("|", "\\|").replace("`", "")
        lines.append(f"| {row.name} | {said} |")
    return lines


def replace(path: Path, text: str) -> None:
    """Writes a page beside its place and renames it."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(text)
    beside.replace(path)
