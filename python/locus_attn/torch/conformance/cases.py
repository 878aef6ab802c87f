"""What is compared of a model: its outputs in every situation that uses attention.

A case runs a model and returns tensors. `applies` says whether a model has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import inputs as made
from .inputs import Inputs


@dataclasses.dataclass(frozen=True)
class Case:
    """run(model, inputs) -> tensors. generates: of models that can only."""

    run: Callable[[Any, Inputs], list[Tensor]]
    generates: bool = False
    applies: Callable[[Any, Inputs], bool] = lambda model, given: True


def tensors(output: Any) -> list[Tensor]:
    """The numbers in the output of a model, in order; caches are passed over."""
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, dict):
        items = [v for k, v in output.items() if k not in ("past_key_values", "mems")]
    elif isinstance(output, list | tuple):
        items = list(output)
    else:
        return []
    return [t for item in items for t in tensors(item)]


def _call(model: Any, given: Inputs) -> Any:
    if "use_cache" in made.parameters(model):
        given = {**given, "use_cache": False}
    # Some models draw random numbers even when they do not train.
    torch.manual_seed(11)
    return model(**given)


def _padded(given: Inputs, side: str | None) -> Inputs:
    if side is None:
        return given
    mask = made.padding(side)
    # Some models look for a token by its id; none is found in padding.
    ids = given["input_ids"].masked_fill(mask == 0, 0)
    return {**given, "input_ids": ids, "attention_mask": mask}


def _forward(side: str | None) -> Callable[[Any, Inputs], list[Tensor]]:
    def run(model: Any, given: Inputs) -> list[Tensor]:
        found = tensors(_call(model, _padded(given, side)))
        if side is None:
            return found
        keep = made.padding(side).bool()
        return [_without_padding(t, keep) for t in found]

    return run


def _without_padding(t: Tensor, keep: Tensor) -> Tensor:
    """The tokens of `keep`, bool [B, L]; of [B, L + 1, ...] those that are no padding
    whether the model's own token comes first or last.
    """
    if t.shape[:2] == (keep.shape[0], keep.shape[1] + 1):
        pad = torch.nn.functional.pad
        keep = pad(keep, (0, 1), value=True) & pad(keep, (1, 0), value=True)
    return t[keep] if t.shape[:2] == keep.shape else t


def _packed(model: Any, given: Inputs) -> list[Tensor]:
    return tensors(_call(model, {**given, "position_ids": made.packing()}))


def gradients(model: Any, given: Inputs) -> list[Tensor]:
    """Of every parameter, for a random loss of all outputs."""
    model.zero_grad()
    with torch.enable_grad():
        outputs = [t for t in tensors(_call(model, given)) if t.requires_grad]
        generator = torch.Generator().manual_seed(13)
        loss = torch.zeros(())
        for t in outputs:
            weight = torch.randn(t.shape, generator=generator)
            finite = torch.where(t.isfinite(), t, torch.zeros_like(t))
            loss = loss + (finite * weight).sum()
        loss.backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _generate(
    side: str | None,
    cache: str | None = None,
    prompt: int = made.LENGTH,
    steps: int = 4,
    beams: int = 1,
) -> Callable[[Any, Inputs], list[Tensor]]:
    """The logits of every step; of beams, the scores of those that are kept."""

    def run(model: Any, given: Inputs) -> list[Tensor]:
        given = {k: v for k, v in given.items() if k != "decoder_input_ids"}
        if prompt < made.LENGTH:
            given = {**given, "input_ids": given["input_ids"][:, :prompt]}
        torch.manual_seed(11)
        out = model.generate(
            **_padded(given, side),
            max_new_tokens=steps,
            min_new_tokens=steps,
            num_beams=beams,
            cache_implementation=cache,
            do_sample=False,
            output_logits=beams == 1,
            output_scores=beams > 1,
            return_dict_in_generate=True,
            disable_compile=True,
        )
        return [out.sequences_scores] if beams > 1 else list(out.logits)

    return run


def _plain_text(model: Any, given: Inputs) -> bool:
    """Whether sequences are of tokens alone, so that padding them means something."""
    ids = given.get("input_ids")
    return ids is not None and ids.shape[1] == made.LENGTH


def _masked(model: Any, given: Inputs) -> bool:
    return _plain_text(model, given) and "attention_mask" in made.parameters(model)


def _positioned(model: Any, given: Inputs) -> bool:
    return _plain_text(model, given) and "position_ids" in made.parameters(model)


def _slides(model: Any, given: Inputs) -> bool:
    """Whether some layers see a window or a chunk."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ()
    if kinds:
        moving = any("sliding" in k or "chunked" in k for k in kinds)
    else:
        moving = bool(getattr(config, "sliding_window", None))
    return moving and _plain_text(model, given)


# Past the window of a layer, from a prompt that is shorter than it.
_PAST_WINDOW = {"prompt": 4, "steps": 9}

CASES = {
    "forward": Case(_forward(None)),
    "gradients": Case(gradients),
    "right": Case(_forward("right"), applies=_masked),
    "left": Case(_forward("left"), applies=_masked),
    "packed": Case(_packed, applies=_positioned),
    "dynamic": Case(_generate(None), generates=True),
    "dynamic-left": Case(_generate("left"), generates=True, applies=_masked),
    "static": Case(_generate(None, "static"), generates=True),
    "static-left": Case(_generate("left", "static"), generates=True, applies=_masked),
    "sliding": Case(_generate(None, **_PAST_WINDOW), generates=True, applies=_slides),
    "sliding-static": Case(
        _generate(None, "static", **_PAST_WINDOW), generates=True, applies=_slides
    ),
    "beam": Case(_generate(None, beams=2), generates=True),
    "bf16": Case(_forward(None)),
}
