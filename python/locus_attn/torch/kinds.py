"""Encodings as tensors plus a string, which is what a torch operator can take.

An operator sees tensors and plain values only. So an encoding enters one as its
parameters, a list of tensors, and its *kind*: canonical JSON of the class, the
names of the parameters and every setting that is not a tensor. Equal encodings
have equal kinds, so compiled graphs are cached by them and can be serialised.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import locus_attn as locus
from locus_attn import _locus

NO_ENCODING = ""


@functools.cache
def _absent(class_name: str) -> dict[str, None]:
    """Tables without which a constructor wants to hear None."""
    rows = (info for info in locus.encodings() if info.class_name == class_name)
    return {
        field["name"]: None
        for info in rows
        for field in info.fields
        if field["type"] == "table" and field["optional"] and field["default"] is None
    }


class Encoding:
    """What `locus.torch.attention` takes: parameters that may need gradients.

    Modules make one by `encoding()`, tensors of your own by the function of that
    name. kind: from `describe`. params: tensors in the order of its names.
    """

    __slots__ = ("kind", "params")

    def __init__(self, kind: str, params: Iterable[Tensor] = ()) -> None:
        self.kind = kind
        self.params = list(params)

    def native(self) -> Any:
        """The encoding of the native module, over the present parameter values."""
        return build(self.kind, self.params)

    def __repr__(self) -> str:
        shapes = ", ".join(str(list(p.shape)) for p in self.params)
        return f"Encoding({self.kind}, params=[{shapes}])"


def describe(class_name: str, *param_names: str, **settings: Any) -> str:
    """The kind of an encoding: all of it but its tensors.

        describe("T5Bias", "table", max_distance=128, bidirectional=True)

    Names are those of the constructors in `locus`. Settings of None are left
    out, so they are the constructor's defaults.
    """
    given = {n: v for n, v in settings.items() if v is not None}
    return json.dumps(
        {"class": class_name, "params": list(param_names), "settings": given},
        sort_keys=True,
        separators=(",", ":"),
        default=_as_list,
    )


# Numbers of an array among settings, far more than there are heads or pairs.
_MOST_NUMBERS = 1 << 20


def _as_list(value: Any) -> Any:
    """Arrays among settings, such as slopes."""
    if hasattr(value, "tolist"):
        count = math.prod(getattr(value, "shape", ()))
        if count > _MOST_NUMBERS:
            raise ValueError(
                f"a setting holds at most {_MOST_NUMBERS} numbers, got {count}"
            )
        plain = value.tolist()
        if type(plain) is not type(value):  # numpy.longdouble gives itself
            return plain
    raise TypeError(
        f"a setting must be a number, string, list or dict, got {_locus._shown(value)}"
    )


def encoding(class_name: str, **arguments: Any) -> Encoding:
    """An encoding over tensors of your own, with gradients for them.

        encoding("T5Bias", table=table, max_distance=128, bidirectional=True)

    Arguments are those of the class of that name in `locus`; tensors among them
    are its parameters, all else its settings. None stands for an absent table.
    """
    tensors = {n: x for n, x in arguments.items() if isinstance(x, Tensor)}
    settings = {n: x for n, x in arguments.items() if n not in tensors}
    return Encoding(describe(class_name, *tensors, **settings), tensors.values())


@functools.lru_cache(maxsize=4096)
def _parse(kind: str) -> tuple[type, tuple[str, ...], dict[str, Any]]:
    try:
        fields = json.loads(kind)
        cls, names = getattr(locus, fields["class"]), tuple(fields["params"])
        absent = {n: None for n in _absent(fields["class"]) if n not in names}
        return cls, names, {**absent, **fields["settings"]}
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{_locus._shown(kind)} does not describe an encoding of locus"
        ) from error


@functools.lru_cache(maxsize=4096)
def _fixed(kind: str) -> Any:
    cls, _, settings = _parse(kind)
    return cls(**settings)


def build(kind: str, params: list[Tensor]) -> Any:
    """The native encoding of a kind over `params`; None for no encoding.

    Encodings without parameters are made once. Those with parameters borrow the
    tensors' memory, so a new one costs no copy.
    """
    if kind == NO_ENCODING:
        return None
    if kind.startswith("#"):
        return _held[int(kind[1:])].native
    cls, names, settings = _parse(kind)
    if len(names) != len(params):
        raise ValueError(
            f"{cls.__name__} takes the parameters {list(names)}, got {len(params)}"
        )
    if not names:
        return _fixed(kind)
    # Inside an operator detach() keeps requires_grad, and data does not.
    arrays = {n: p.data for n, p in zip(names, params, strict=True)}
    return cls(**arrays, **settings)


def resolve(encoding: Any) -> tuple[str, list[Tensor], Any]:
    """(kind, params, native) of whatever a user passes as an encoding.

    Accepts None, an `Encoding`, a module with `encoding()`, an encoding of `locus`
    or a LayerPosition, which stands for its encoding. `native` is the encoding of
    `locus` itself, else None.
    """
    if encoding is None:
        return NO_ENCODING, [], None
    if isinstance(encoding, torch.nn.Module):
        make = getattr(encoding, "encoding", None)
        if make is None:
            raise TypeError(
                f"encoding must be a module of locus.torch, got a module of type "
                f"{type(encoding).__name__} without an encoding() method"
            )
        return resolve(make())
    if isinstance(encoding, Encoding):
        return encoding.kind, encoding.params, None
    if isinstance(encoding, locus.LayerPosition):
        encoding = encoding.encoding
    if isinstance(encoding, locus.Encoding):
        return NO_ENCODING, [], encoding
    raise TypeError(
        f"encoding must be a module of locus.torch, an encoding or LayerPosition of "
        f"locus or None, got {type(encoding).__name__}"
    )


class _Held:
    """A native encoding that an operator finds by number."""

    __slots__ = ("__weakref__", "native")

    def __init__(self, native: Any) -> None:
        self.native = native


_held: weakref.WeakValueDictionary[int, _Held] = weakref.WeakValueDictionary()
_numbers = itertools.count()


def hold(native: Any) -> tuple[str, _Held]:
    """A kind for an encoding of `locus`, which has no description of its own.

    It names the object while the second result lives, in this process only. The
    backward pass keeps it alive through `held`.
    """
    if torch.compiler.is_compiling():
        raise TypeError(
            f"torch.compile cannot trace {native!r}; pass the module of the same "
            f"name from locus_attn.torch"
        )
    number = next(_numbers)
    _held[number] = holder = _Held(native)
    return f"#{number}", holder


def held(kind: str) -> _Held | None:
    return _held.get(int(kind[1:])) if kind.startswith("#") else None


def param_names(kind: str) -> tuple[str, ...]:
    """The names of a kind's parameters, in the order of its tensors."""
    if kind == NO_ENCODING or kind.startswith("#"):
        return ()
    return _parse(kind)[1]


@functools.lru_cache(maxsize=4096)
def gains(kind: str, head_dim: int) -> tuple[float, ...] | None:
    """What a rotation multiplies each channel by; None if all are 1.

    At position 0 all angles are 0, so ones come out as the gains.
    """
    ones = np.ones((1, 1, 1, head_dim), np.float64)
    row = locus.rotate(ones, build(kind, []), np.zeros(1, np.int64)).reshape(-1)
    return None if (row == 1).all() else tuple(map(float, row))
