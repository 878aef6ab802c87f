"""`patch(model)`: fused attention for models with position schemes of their own."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterable
from typing import Any, TypeVar

from torch import nn

from locus_attn import _locus

from . import support
from .interface import NAME, register

_RECORD = "_locus_swaps"
Model = TypeVar("Model", bound=nn.Module)


class Swaps:
    """Attributes set on modules of one model, and what was there before."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, bool, Any]] = []
        self._modules: list[tuple[nn.Module, str]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an instance attribute, so classes and other models stay as they are."""
        had = name in vars(owner)
        self._undo.append((owner, name, had, vars(owner).get(name)))
        object.__setattr__(owner, name, value)

    def add(self, owner: nn.Module, name: str, module: nn.Module) -> None:
        """Makes `module` a submodule, whose parameters are those of its owner."""
        owner.add_module(name, module)
        self._modules.append((owner, name))

    def undo(self) -> None:
        for owner, name in self._modules:
            delattr(owner, name)
        self._modules.clear()
        for owner, name, had, old in reversed(self._undo):
            if had:
                object.__setattr__(owner, name, old)
            else:
                object.__delattr__(owner, name)
        self._undo.clear()


def patch(
    model: Model,
    *,
    encoding: nn.Module | None = None,
    ignore_attention_dropout: bool = False,
) -> Model:
    """Swaps the attention of a Hugging Face model for the fused one, in place.

    T5, MT5, BLOOM, MPT, Falcon, GPT-J, CodeGen, GPT-Neo, DeBERTa and XLNet keep their
    parameters, names and state_dict, and so do models whose attention is captured
    (MPNet, Funnel, SAM and more, see docs/conformance.md); models with the attention
    interface (LLaMA and its kin) get attn_implementation="locus". Other models are
    refused here. Dropout
    of attention weights draws from PyTorch's generator, but drops others than the
    original does under the same seed; `ignore_attention_dropout` trains without it.

    encoding: a module of `locus.torch`, such as a `RelativeBias` of your own, that
    joins the attention of every layer, beside the model's own positions; only for
    models with the attention interface. It becomes the submodule `locus_encoding`
    of the model, so that its parameters train and are saved with the others.

    Returns the model. `unpatch(model)` restores it.
    """
    if _RECORD in vars(model):
        raise ValueError(f"this {type(model).__name__} is patched already")
    known = {support.patched_by(type(m)) for m in model.modules()} - {None}
    _refuse_others(model)
    register()
    swaps = Swaps()
    try:
        if encoding is not None:
            _join(model, encoding, known, swaps)
        for name in sorted(known):
            load(name).install(model, swaps)
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


def pass_question_on(block: Any, attention: Any, swaps: Swaps) -> None:
    """Lets an attention know whether its block is asked for weights.

    Some blocks keep the argument output_attentions to themselves.
    """
    swaps.set(attention, "locus_asked", False)
    forward = functools.partial(_ask, block.forward, attention)
    swaps.set(block, "forward", forward)


def _ask(
    forward: Any,
    attention: Any,
    *args: Any,
    output_attentions: bool = False,
    **kwargs: Any,
) -> Any:
    object.__setattr__(attention, "locus_asked", bool(output_attentions))
    return forward(*args, output_attentions=output_attentions, **kwargs)


def load(name: str) -> Any:
    """A module here that replaces attention classes."""
    return importlib.import_module(f".{name}", __package__)


def _join(model: nn.Module, encoding: Any, known: Iterable[str], swaps: Swaps) -> None:
    """Gives an encoding to every layer whose attention asks the interface."""
    if not isinstance(encoding, nn.Module) or not hasattr(encoding, "encoding"):
        raise TypeError(
            f"encoding must be a module of locus.torch, got {_locus._shown(encoding)}"
        )
    if known:
        raise ValueError(
            f"{type(model).__name__} has positions of its own, and patch gives "
            f"encodings only to models with transformers' attention interface"
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"{type(model).__name__} has an encoder and a decoder, and patch gives "
            f"encodings only to models of one stack"
        )
    layers = [m for m in model.modules() if support.asks_interface(type(m))]
    swaps.add(model, "locus_encoding", encoding)
    for layer in layers:
        if layer is not model:
            swaps.set(layer, "locus_encoding", encoding)


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
