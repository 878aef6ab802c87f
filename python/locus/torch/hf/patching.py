"""`patch(model)`: fused attention for models with position schemes of their own."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from torch import nn

from . import support
from .interface import NAME, register

_RECORD = "_locus_swaps"
Model = TypeVar("Model", bound=nn.Module)


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
    attn_implementation="locus". Other models are refused here. What cannot be said
    to the engine exactly is refused when it is called for: arbitrary masks,
    attention probabilities as an output, dropout on them in training.
    `ignore_attention_dropout` trains without that dropout instead.

    Returns the model. `unpatch(model)` restores it.
    """
    if _RECORD in vars(model):
        raise ValueError(f"this {type(model).__name__} is patched already")
    known = {support.patched_by(type(m)) for m in model.modules()} - {None}
    _refuse_others(model)
    register()
    swaps = Swaps()
    try:
        for name in sorted(known):
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


def _refuse_others(model: nn.Module) -> None:
    """Refuses a model that has attention which neither patch nor the name reaches."""
    obstacle = None
    files = {name for name, _ in support.PATCHED}
    parts = support.parts_of(model)
    if not parts:
        obstacle = "it is not a model of transformers"
    for part in parts:
        if type(part).__module__.rsplit(".", 1)[-1] not in files:
            obstacle = obstacle or support.class_obstacle(type(part))
    obstacle = obstacle or support.model_obstacle(model)
    if obstacle is not None:
        raise ValueError(
            f"patch cannot run {type(model).__name__}: {obstacle}; leave it on its own "
            f"attention"
        )
