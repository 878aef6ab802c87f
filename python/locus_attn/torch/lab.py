"""A function of the offset as a file that `locus compare` trains.

    save_encoding(RelativeBias(Gaussian(4), heads=4), "gaussian.pt",
                  training={"sigma": {"rate": 10, "lowest": 0.1}})

    locus compare --encodings gaussian.pt,alibi,rope

The file holds the function as TorchScript, its parameters and how they train, so
that the lab needs neither Python nor the code that made it.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import tempfile
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from locus_attn import _locus

from .relative import RelativeBias, RelativeKeys, RelativeValues

_KINDS = {RelativeBias: "bias", RelativeKeys: "keys", RelativeValues: "values"}
# As the lab reads it, in lab/train/scripted.cc.
_FORMAT = 1
_DESCRIPTION = "locus.json"
_TRAINING = {"rate": 1.0, "decays": False, "lowest": None, "highest": None}


def save_encoding(
    module: RelativeBias | RelativeKeys | RelativeValues,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    formula: str = "",
    training: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Writes a file that `locus compare --encodings FILE.pt,...` trains.

    module: over an nn.Module, with as many heads as the lab's models (4, or
    `--heads`). The name of the file is that of the encoding. Every layer starts from
    the present parameters, whatever the seed. training: for each parameter of the
    function that should not train like a weight, its "rate" (times the learning rate;
    biases that train number by number want 10), whether it "decays" by weight decay,
    and the "lowest" and "highest" value that a step may reach. title, formula: for
    the report.
    """
    kind = _KINDS.get(type(module))
    if kind is None:
        raise TypeError(
            f"save_encoding takes a RelativeBias, RelativeKeys or RelativeValues, got "
            f"{_locus._shown(module)}"
        )
    path = pathlib.Path(path)
    if path.suffix != ".pt":
        raise ValueError(f"the name of the file must end in .pt, got '{path.name}'")
    if not isinstance(module.fn, nn.Module):
        raise TypeError(
            f"the function must be an nn.Module, whose parameters can be saved, got "
            f"{_locus._shown(module.fn)}"
        )
    names = [name for name, _ in module.fn.named_parameters()]
    given = training or {}
    for name in given:
        if name not in names:
            raise ValueError(
                f"training names the parameter '{name}'; known values: "
                f"{', '.join(names) or 'none, since there is no parameter'}"
            )
    description = {
        "format": _FORMAT,
        "kind": kind,
        "heads": module.heads,
        "title": title or path.stem,
        "formula": formula,
        "torch": torch.__version__,
        "parameters": [{"name": n, **_row(n, given.get(n, {}))} for n in names],
    }
    scripted = _script(module.fn)
    with tempfile.TemporaryDirectory(dir=path.resolve().parent) as folder:
        beside = os.path.join(folder, path.name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            extra = {_DESCRIPTION: json.dumps(description)}
            torch.jit.save(scripted, beside, _extra_files=extra)
        os.replace(beside, path)


def _row(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """How a parameter trains, checked."""
    for key in given:
        if key not in _TRAINING:
            raise ValueError(
                f"training of {name} has no '{key}'; known values: "
                f"{', '.join(_TRAINING)}"
            )
    row = {**_TRAINING, **given}
    row["decays"] = bool(row["decays"])
    for key in ("rate", "lowest", "highest"):
        if row[key] is None:
            continue
        row[key] = float(row[key])
        if not math.isfinite(row[key]) or (key == "rate" and row[key] <= 0):
            kind = "positive" if key == "rate" else "a finite number"
            raise ValueError(f"{key} of {name} must be {kind}, got {row[key]}")
    return row


def _script(fn: nn.Module) -> torch.jit.ScriptModule:
    """The function as TorchScript: from its source, else from what it does."""
    # Two ranges, so that a length that a trace has frozen shows.
    ranges = [torch.arange(0, 24), torch.arange(0, 41)]
    with warnings.catch_warnings():
        # Deprecated in favour of tools that need Python to run.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", torch.jit.TracerWarning)
        try:
            made = torch.jit.script(fn)
        except Exception:
            try:
                made = torch.jit.trace(fn, ranges[0], check_trace=False)
            except Exception as error:
                raise ValueError(
                    f"the function cannot be written as TorchScript: "
                    f"{str(error).strip().splitlines()[0]}"
                ) from error
    with torch.no_grad():
        for offsets in ranges:
            if not _same(made, fn, offsets):
                raise ValueError(
                    "the function as TorchScript gives other values than in Python: "
                    "it must not depend on anything but the offsets and its parameters"
                )
    return made


def _same(made: Any, fn: nn.Module, offsets: Tensor) -> bool:
    want = fn(offsets)
    try:
        got = made(offsets)
    except RuntimeError:
        return False
    return got.shape == want.shape and torch.allclose(
        got, want, rtol=1e-5, equal_nan=True
    )
