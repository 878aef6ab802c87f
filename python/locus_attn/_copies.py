"""What unpickling calls: pickles hold these functions by name."""

from __future__ import annotations

from typing import Any

from . import _locus


def rebuild(native: type, own: type, arguments: dict[str, Any]) -> Any:
    """An encoding of the class `own`, by the constructor of `native` above it."""
    encoding = own.__new__(own)
    native.__init__(encoding, **arguments)
    return encoding


def rebuild_layer(*state: Any) -> _locus.LayerPosition:
    """A LayerPosition from its config, and its encodings."""
    return _locus._rebuild_layer(*state)


def rebuild_buckets(*state: Any) -> Any:
    """How a Tupe's offsets find their column of the bias."""
    return _locus._rebuild_buckets(*state)


def find(name: str) -> _locus.EncodingInfo:
    """The row of encodings() with this name."""
    return next(info for info in _locus.encodings() if info.name == name)
