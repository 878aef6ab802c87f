"""Inputs of a small model, made of the names of its arguments.

What a model reads is told by the parameters of its forward. Where a name leaves
the shape open there are several candidates, and the first that the model's own
attention accepts is taken: see `candidates`. Types that no rule serves
have a recipe: see `recipes`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from . import sizes

BATCH, LENGTH = 2, 19
# Ids from here on stand for images and the like; those below 3 are special too.
_FIRST, _END = 3, sizes.VOCABULARY - 17
# Of a decoder's inputs.
_DECODED = 11
_KEPT = (LENGTH, 12)

Inputs = dict[str, Any]


def tokens(length: int = LENGTH, end: int = _END) -> Tensor:
    """[2, length], without the special ones."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(_FIRST, end, (BATCH, length), generator=generator)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


def padding(side: str) -> Tensor:
    """int64 [2, LENGTH] of ones and zeros, the zeros at one side."""
    mask = (torch.arange(LENGTH) < torch.tensor(_KEPT)[:, None]).long()
    return mask if side == "right" else mask.flip(-1)


def packing() -> Tensor:
    """Position ids [2, LENGTH] of two sequences, one behind the other."""
    first = 8
    ids = torch.cat([torch.arange(first), torch.arange(LENGTH - first)])
    return ids.expand(BATCH, -1).clone()


def parameters(model: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def candidates(model: Any) -> Iterator[Inputs]:
    """Inputs to try, the most complete first, by the rules for all types."""
    names = parameters(model)
    main = model.main_input_name
    main = main[0] if isinstance(main, list) else main
    config = model.config
    if "grid_thw" in names:
        yield from _patches(model, names)
        return
    text = _text(model, names) if "input_ids" in names else {}
    if main == "input_ids" and text:
        yield from _with_pictures(model, names, text)
        yield text
        for size in pictures(config):
            yield {**text, "pixel_values": size}
    rest = dict(text) if main != "input_ids" else {}
    if "pixel_values" in names:
        for pixels in pictures(config):
            yield {**rest, **decoder_inputs(model, names), "pixel_values": pixels}
    if "pixel_values_videos" in names:
        for pixels in pictures(config):
            if pixels.dim() == 5:
                yield {**rest, "pixel_values_videos": pixels}
            else:
                frames = pixels[:, None].repeat(1, 4, 1, 1, 1)
                yield {**rest, "pixel_values_videos": frames}
    for name in ("input_features", "audio_mel", "input_values", "audio_values"):
        if name in names:
            for sound in sounds(config):
                given = {**rest, **decoder_inputs(model, names), name: sound}
                yield given
                yield from _with_masks(names, given, sound)
    if "inputs_embeds" in names or "hidden_states" in names:
        name = "inputs_embeds" if "inputs_embeds" in names else "hidden_states"
        width = getattr(config, "hidden_size", sizes.WIDTH)
        yield {name: numbers(BATCH, LENGTH, width)}
    if main in ("past_values", "latents", "inputs"):
        width = getattr(config, "hidden_size", sizes.WIDTH)
        length = getattr(config, "context_length", LENGTH)
        yield {main: numbers(BATCH, length)}
        yield {main: numbers(BATCH, length, getattr(config, "num_input_channels", 1))}
        yield {main: numbers(BATCH, width, LENGTH)}
        yield {main: numbers(BATCH, LENGTH, width)}


def _with_masks(names: Any, given: Inputs, sound: Tensor) -> Iterator[Inputs]:
    """Masks of sounds, where a model insists on them: all of it exists."""
    masks = [n for n in names if n.endswith("mask") and "head" not in n]
    masks = [n for n in masks if "decoder" not in n]
    for axis in range(1, sound.dim()):
        ones = torch.ones(BATCH, sound.shape[axis], dtype=torch.int64)
        yield {**given, **dict.fromkeys(masks, ones)}
        yield {**given, **dict.fromkeys(masks, ones.bool())}


def vocabulary(config: Any) -> int:
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    size = getattr(text, "vocab_size", None) or getattr(config, "vocab_size", None)
    return min(int(size or _END), _END)


def _text(model: Any, names: Any) -> Inputs:
    inputs: Inputs = {"input_ids": tokens(end=vocabulary(model.config))}
    if "bbox" in names:
        corner = torch.arange(LENGTH) % 40
        box = torch.stack([corner, corner, corner + 9, corner + 9], dim=-1)
        inputs["bbox"] = box.expand(BATCH, -1, -1).clone()
    inputs.update(decoder_inputs(model, names))
    return inputs


def decoder_inputs(model: Any, names: Any) -> Inputs:
    if "decoder_input_ids" not in names:
        return {}
    return {"decoder_input_ids": tokens(_DECODED, vocabulary(model.config))}


def _part(config: Any, *names: str) -> Any:
    for name in names:
        part = getattr(config, name, None)
        if part is not None:
            return part
    return config


def tower(config: Any) -> Any:
    return _part(config, "vision_config", "backbone_config", "encoder")


def pictures(config: Any) -> Iterator[Tensor]:
    vision = tower(config)
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", 32)
    while isinstance(size, list | tuple) and isinstance(size[0], list | tuple):
        size = size[0]
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(vision, "num_channels", None) or 3
    given = getattr(vision, "in_channels", None)
    channels = given if isinstance(given, int) else channels
    frames = getattr(vision, "num_frames", None)
    if frames:
        yield numbers(BATCH, frames, channels, height, width)
    yield numbers(BATCH, channels, height, width)
    yield numbers(BATCH, channels, 64, 64)
    yield numbers(BATCH, 1, channels, height, width)
    yield numbers(BATCH, 4, channels, height, width)
    yield numbers(BATCH, 2, channels, height, width)


def sounds(config: Any) -> Iterator[Tensor]:
    part = _part(config, "audio_config", "encoder_config", "encoder")
    names = ("num_mel_bins", "input_feat_per_channel", "feature_size", "n_mels")
    bins = next((getattr(part, n) for n in names if getattr(part, n, None)), 16)
    length = getattr(part, "max_source_positions", None)
    if length:
        yield numbers(BATCH, bins, 2 * length)
    yield numbers(BATCH, 64, bins)
    yield numbers(BATCH, bins, 64)
    yield numbers(BATCH, 4000)
    yield numbers(BATCH, 1, 4000)
    yield numbers(BATCH, 1024, 128)
    width = getattr(part, "feature_projection_input_dim", None)
    if width:
        yield numbers(BATCH, 40, width)
    for width in (160, 80, 128):
        yield numbers(BATCH, 64, width)
        yield numbers(BATCH, width, 64)


def patch_grid(vision: Any) -> tuple[Tensor, Tensor]:
    """Patches [P, numbers] of two pictures and their grids (t, h, w)."""
    grid = torch.tensor([[1, 4, 4], [1, 4, 8]])
    channels = getattr(vision, "in_channels", None)
    channels = channels or getattr(vision, "num_channels", None) or 3
    frames = getattr(vision, "temporal_patch_size", 1) or 1
    size = getattr(vision, "patch_size", 8)
    count = int(grid.prod(-1).sum())
    return numbers(count, channels * frames * size * size), grid


def _patches(model: Any, names: Any) -> Iterator[Inputs]:
    patches, grid = patch_grid(model.config)
    first = next(n for n in names if n not in ("self", "grid_thw"))
    yield {first: patches, "grid_thw": grid}
    size = getattr(model.config, "patch_size", 8)
    yield {first: patches.unflatten(-1, (-1, size, size)), "grid_thw": grid}


def _with_pictures(model: Any, names: Any, text: Inputs) -> Iterator[Inputs]:
    """Text with the tokens of an image in each sequence, where there is a way.

    How many tokens an image makes is what get_image_features returns.
    """
    config = model.config
    token = getattr(config, "image_token_id", None)
    if token is None:
        token = getattr(config, "image_token_index", None)
    if token is None or "pixel_values" not in names:
        return
    tries: list[Inputs] = []
    if "image_grid_thw" in names:
        patches, grid = patch_grid(tower(config))
        tries.append({"pixel_values": patches, "image_grid_thw": grid})
    tries += [{"pixel_values": pixels} for pixels in pictures(config)]
    for given in tries:
        count = _image_tokens(model, given)
        if not count or count > 64:
            continue
        ids = text["input_ids"]
        image = torch.full((BATCH, count), token)
        ids = torch.cat([ids[:, :2], image, ids[:, 2:]], dim=1)
        inputs = {**text, **given, "input_ids": ids}
        kinds = (ids == token).long()
        for name in ("token_type_ids", "mm_token_type_ids"):
            if name in names:
                inputs[name] = kinds
        yield inputs


def _image_tokens(model: Any, given: Inputs) -> int:
    """How many tokens the images of one sequence take, 0 if that is not known."""
    finder = getattr(model, "get_image_features", None)
    finder = finder or getattr(
        getattr(model, "model", None), "get_image_features", None
    )
    if finder is None:
        return 0
    accepted = inspect.signature(finder).parameters
    given = {k: v for k, v in given.items() if k in accepted}
    try:
        with torch.no_grad():
            made = finder(**given)
    except Exception:
        return 0
    made = getattr(made, "pooler_output", made)
    if isinstance(made, list | tuple):
        sizes_ = {int(part.shape[:-1].numel()) for part in made}
        total = sum(int(part.shape[:-1].numel()) for part in made)
        return total // BATCH if len(sizes_) == 1 else 0
    if not isinstance(made, Tensor):
        return 0
    return made.shape[:-1].numel() // BATCH
