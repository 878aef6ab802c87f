"""The same small model on eager attention and on Locus."""

from __future__ import annotations

import copy
import functools
from typing import Any

import locus_attn.torch as lt
from locus_attn.torch.conformance import architectures


def make(model_type: str, attention: str) -> Any:
    return architectures.by_type(model_type).makers[0](attention)


@functools.lru_cache(maxsize=1)
def original(model_type: str) -> Any:
    """On eager attention. The last one is kept for the next question."""
    return architectures.respread(make(model_type, "eager"))


def by_name(model_type: str) -> Any:
    """With attn_implementation="locus"."""
    model = make(model_type, "locus")
    model.load_state_dict(original(model_type).state_dict())
    return model


def by_patch(model_type: str) -> Any:
    return lt.patch(copy.deepcopy(original(model_type)))
