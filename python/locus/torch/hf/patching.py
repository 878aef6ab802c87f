"""`patch(model)`: fused attention for models with position schemes of their own."""

from __future__ import annotations

import importlib
import sys
from typing import Any, TypeVar

from torch import nn

from .interface import NAME, register

_RECORD = "_locus_swaps"
Model = TypeVar("Model", bound=nn.Module)

# Attention class -> the module here that knows how to replace it.
_KNOWN = {
    "T5Attention": "t5",
    "MT5Attention": "t5",
    "BloomAttention": "bloom",
    "DisentangledSelfAttention": "deberta",
    "XLNetRelativeAttention": "xlnet",
}


class Swaps:
    """Attributes set on modules of one model, and what was there before."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, bool, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an instance attribute, so classes and other models stay as they are."""
        had = name in vars(owner)
        self._undo.append((owner, name, had, vars(owner).get(name)))
        object.__setattr__(owner, name, value)

    def undo(self) -> None:
        for owner, name, had, old in reversed(self._undo):
            if had:
                object.__setattr__(owner, name, old)
            else:
                object.__delattr__(owner, name)
        self._undo.clear()


def patch(model: Model, *, ignore_attention_dropout: bool = False) -> Model:
    """Swaps the attention of a Hugging Face model for the fused one, in place.

    T5, MT5, BLOOM, DeBERTa-v2 and XLNet keep their parameters, names and
    state_dict; models with the attention interface (LLaMA and its kin) get
    attn_implementation="locus". What cannot be said to the engine exactly is
    refused when it is called for: arbitrary masks, attention probabilities as an
    output, dropout on them in training. `ignore_attention_dropout` trains without
    that dropout instead.

    Returns the model. `unpatch(model)` restores it.
    """
    if _RECORD in vars(model):
        raise ValueError(f"this {type(model).__name__} is patched already")
    found = {type(m).__name__ for m in model.modules()} & _KNOWN.keys()
    if not found and not _has_interface(model):
        raise ValueError(
            f"{type(model).__name__} has neither an attention that patch knows "
            f"({', '.join(sorted(_KNOWN))}) nor the attention interface"
        )
    register()
    swaps = Swaps()
    try:
        for name in sorted({_KNOWN[f] for f in found}):
            importlib.import_module(f".{name}", __package__).install(model, swaps)
        for module in model.modules():
            config = getattr(module, "config", None)
            if hasattr(config, "_attn_implementation_internal"):
                swaps.set(config, "_attn_implementation_internal", NAME)
            if ignore_attention_dropout:
                swaps.set(module, "locus_ignores_dropout", True)
    except Exception:
        swaps.undo()
        raise
    object.__setattr__(model, _RECORD, swaps)
    return model


def unpatch(model: Model) -> Model:
    """Undoes `patch`."""
    swaps = vars(model).get(_RECORD)
    if swaps is None:
        raise ValueError(f"this {type(model).__name__} is not patched")
    swaps.undo()
    object.__delattr__(model, _RECORD)
    return model


def _has_interface(model: nn.Module) -> bool:
    """Whether the model's own file calls attention by its registered name."""
    file = sys.modules.get(type(model).__module__)
    return hasattr(file, "ALL_ATTENTION_FUNCTIONS")
