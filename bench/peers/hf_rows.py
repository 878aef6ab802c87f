"""Rows of the Hugging Face models; what is compared is in hf_models.py."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from .case import (
    FORWARD,
    TRAINING,
    Contest,
    Row,
    Side,
    attention_flops,
    gradients,
    inference,
    leaf,
    normal,
)
from .hf_models import MODELS, T5, Model

GROUP = "Hugging Face eager"


# Tells which weights matter; nothing of full size may run before memory is
# measured.
TINY = 8


def _used(make: Callable[[int], Model]) -> set[str]:
    """Names of the parameters that the output depends on."""
    model = make(TINY)
    names, weights = zip(*model.named_parameters(), strict=True)
    out = model.by_the_book(model.x())
    grads = torch.autograd.grad(out.sum(), weights, allow_unused=True)
    return {name for name, grad in zip(names, grads, strict=True) if grad is not None}


def _weights(model: Model, used: set[str]) -> list[Tensor]:
    return [weight for name, weight in model.named_parameters() if name in used]


def _contest(make: Callable[[int], Model], length: int, direction: str) -> Contest:
    torch.manual_seed(0)
    model = make(length)
    x = leaf(model.x())
    d_out = normal(9, *model.out_shape())
    used = _used(make) if direction == TRAINING else set()

    def side(forward: Callable[[Tensor], Tensor], setting: str, state: list) -> Side:
        if direction == FORWARD:
            return Side(inference(lambda: forward(x.detach())), setting, state)
        leaves = [x, *_weights(model, used)]
        return Side(gradients(lambda: forward(x), leaves, d_out), setting, state)

    def truth() -> tuple[Tensor, ...]:
        exact = copy.deepcopy(model).double()
        x64 = leaf(x, torch.float64)

        def forward() -> Tensor:
            return exact.by_the_book(x64)

        if direction == FORWARD:
            return (forward().detach(),)
        return gradients(forward, [x64, *_weights(exact, used)], d_out.double())()

    flops = attention_flops(
        model.heads, length, model.dim, causal=model.causal, direction=direction
    )
    passes = 1 if direction == FORWARD else 3
    return Contest(
        peer=side(
            model.peer,
            "attention alone, as the model computes it"
            if model.core
            else "the attention module, projections included",
            model.state(),
        ),
        locus=side(
            model.with_locus,
            "locus.torch.attention"
            if model.core
            else "locus.torch.attention between the same projections",
            [],
        ),
        truth=truth,
        work=flops + passes * model.projection_flops(),
        shapes={
            "x": [*x.shape],
            "q, k, v": [1, model.heads, length, model.dim],
        },
    )


def rows(longest: int) -> list[Row]:
    n = min(2048, longest)
    found = []

    def add(cls: type[Model], part: str, direction: str, label: str, **more) -> None:
        def make(length: int) -> Model:
            return cls(length, part == "core", **more)

        found.append(
            Row(
                name=f"hf/{cls.title.lower()}/{part}{'-first' if more else ''}/"
                f"{direction}/N:{n}/D:{cls.dim}/H:{cls.heads}",
                group=GROUP,
                label=f"{cls.title} {label}, N {n}",
                direction=direction,
                length=n,
                build=lambda length: _contest(make, length, direction),
                required=4.0,
                required_memory=0.1,
                shown=part == "core" or direction == TRAINING,
            )
        )

    for cls in MODELS:
        add(cls, "core", FORWARD, "attention")
        add(cls, "module", FORWARD, "with projections")
        if cls is T5:
            add(cls, "module", FORWARD, "with projections, first layer", first=True)
            add(cls, "module", TRAINING, "with projections, first layer", first=True)
        else:
            add(cls, "module", TRAINING, "with projections")
    return found
