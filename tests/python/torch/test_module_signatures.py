"""Calls of locus.torch that programs rely on stay possible: those of signatures.txt.

A signature may gain arguments behind its own, and loses none. An encoding that is
added later has no line there; a line changes only when a change of the API is meant.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import locus_attn.torch as lt

KEPT = (Path(__file__).parent / "signatures.txt").read_text().splitlines()


def signature(line):
    """The signature that a line shows, of a function without a body."""
    _, _, arguments = line.partition("(")
    names = {}
    exec(f"def shown({arguments}: ...", names)
    return inspect.signature(names["shown"])


@pytest.mark.parametrize("line", KEPT)
def test_every_argument_stays(line):
    thing = getattr(lt, line.partition("(")[0])
    found = list(inspect.signature(thing).parameters.values())
    names = [p.name for p in found]
    for at, wanted in enumerate(signature(line).parameters.values()):
        assert wanted.name in names, (wanted, names)
        given = found[names.index(wanted.name)]
        assert given.default == wanted.default, (given, wanted)
        if wanted.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            assert names.index(wanted.name) == at, (wanted, names)
        assert given.kind == wanted.kind, (given, wanted)


@pytest.mark.parametrize("line", KEPT)
def test_no_new_argument_is_needed(line):
    thing = getattr(lt, line.partition("(")[0])
    old = signature(line).parameters
    for name, parameter in inspect.signature(thing).parameters.items():
        variadic = parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
        assert name in old or variadic or parameter.default is not parameter.empty


def test_a_module_for_every_encoding():
    kept = {line.partition("(")[0] for line in KEPT}
    assert len(kept) == len(KEPT) == 29
    assert kept <= set(lt.__all__)
