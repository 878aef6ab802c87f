"""Modules made from the descriptors of encodings, `locus.encodings()`.

An encoding without parameters is its settings: its module takes the arguments of the
class of `locus`. One with parameters takes the sizes that their shapes name (heads,
head_dim, length) and the options of `EncodingInfo.example`; its parameters have the
names, shapes, starting values and bounds of the descriptor.

Encodings whose checkpoints name their parameters otherwise, such as T5's
`relative_attention_bias.weight`, have classes of their own in the files beside this.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import locus_attn as locus

from . import biases, inputs, rotary, tables
from .kinds import Encoding, describe
from .module import EncodingModule, FixedModule, InputModule, RotaryModule

# Where the classes are that are written by hand.
_OWN = (biases, inputs, rotary, tables)
# How the shapes of tables name the sizes of a call.
_SIZES = {"heads": "heads", "D": "head_dim", "d_model": "head_dim", "L": "length"}


def names() -> list[str]:
    """The classes of all encodings."""
    return [info.class_name for info in locus.encodings()]


def _info(name: str) -> Any:
    return next(info for info in locus.encodings() if info.class_name == name)


def module_class(name: str) -> type[EncodingModule]:
    """The module of the encoding with this class name, else AttributeError."""
    if name not in names():
        raise AttributeError(f"module 'locus_attn.torch' has no attribute {name!r}")
    for file in _OWN:
        if hasattr(file, name):
            return getattr(file, name)
    info = _info(name)
    base, signature = (
        (TrainedModule, _sizes_and_options(info))
        if info.training
        else (_base(info), _settings(info))
    )

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        by_name = set(given.arguments)
        given.apply_defaults()
        arguments = {
            n: _plain(value)
            for n, value in given.arguments.items()
            if n in by_name or signature.parameters[n].kind is not _BY_NAME
        }
        base.__init__(self, **arguments)

    body = {
        "__init__": init,
        "__doc__": getattr(locus, name).__doc__,
        "__module__": "locus_attn.torch",
        "__signature__": signature,
        "described": name,
    }
    return type(name, (base,), body)


class TrainedModule(EncodingModule):
    """An encoding with parameters, which start and stay as the descriptor says."""

    described = ""  # the class name of the encoding

    def __init__(self, **arguments: Any) -> None:
        info = _info(self.described)
        options = {n: _text(x) for n, x in arguments.items() if x is not None}
        native = info.example(**options)
        params = native.params()
        # What the encoding's constructor takes beside the tables.
        settings = {
            n: x for n, x in native.__reduce__()[1][2].items() if n not in params
        }
        kind = describe(self.described, *params, **settings)
        super().__init__(kind, **arguments)
        rows = {row["name"]: row for row in info.training}
        self._bounds = {n: _bounds(rows[n], arguments) for n in params}
        for name, value in params.items():
            start = _start(rows[name], torch.tensor(value))
            self.register_parameter(name, nn.Parameter(start))

    def encoding(self) -> Encoding:
        return Encoding(self.kind, [self._inside(name) for name in self._bounds])

    def _inside(self, name: str) -> Tensor:
        lowest, highest = self._bounds[name]
        value = getattr(self, name)
        if lowest is None and highest is None:
            return value
        return value.clamp(min=lowest, max=highest)


_POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD
_BY_NAME = inspect.Parameter.KEYWORD_ONLY


def _base(info: Any) -> type[FixedModule]:
    """By what an instance can do: embed positions, or rotate tokens."""
    native = info.example(heads=1, head_dim=8, length=4)
    try:
        native.embed([0])
        return InputModule
    except ValueError:
        pass
    try:
        locus.rotate(np.ones((1, 1, 1, 8), np.float32), native)
        return RotaryModule
    except ValueError:
        return FixedModule


def _default(field: dict[str, Any]) -> Any:
    text = field["default"]
    if text is None:
        return inspect.Parameter.empty
    if field["type"] == "choice" and text != "None":
        return text
    return ast.literal_eval(text)


def _settings(info: Any) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                field["name"],
                _BY_NAME if field["by_name"] else _POSITIONAL,
                default=_default(field),
            )
            for field in info.fields
        ]
    )


def _sizes_and_options(info: Any) -> inspect.Signature:
    words = {w for f in info.fields for w in re.findall(r"\w+", f["shape"])}
    sizes = {size for word, size in _SIZES.items() if word in words}
    # Options come by name: new ones may join them in any place.
    return inspect.Signature(
        [
            inspect.Parameter(size, _POSITIONAL, annotation=int)
            for size in ("heads", "head_dim", "length")
            if size in sizes
        ]
        + [
            inspect.Parameter(field["name"], _BY_NAME, default=_default(field))
            for field in info.example_options
        ]
    )


def _plain(value: Any) -> Any:
    """Rows of numbers as lists, which a kind can hold."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _bounds(
    row: dict[str, Any], options: dict[str, Any]
) -> tuple[float | None, float | None]:
    name, _, value = row["highest_for"].partition("=")
    highest = row["highest"] if not name or options.get(name) == value else None
    return row["lowest"], highest


def _start(row: dict[str, Any], example: Tensor) -> Tensor:
    """The first values of a parameter in the shape of the example's."""
    value = example.to(torch.get_default_dtype())
    if row["start"] == "normal":
        return value.normal_(std=row["size"])
    bound = {
        "uniform": row["size"],
        "fan-in": value.shape[-1] ** -0.5,
        "xavier": (6 / sum(value.shape[-2:])) ** 0.5,
    }.get(row["start"])
    return value if bound is None else value.uniform_(-bound, bound)
