"""Inputs of model types that the rules of `inputs` do not serve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import inputs, sizes
from .inputs import (
    BATCH,
    LENGTH,
    Inputs,
    decoder_inputs,
    numbers,
    parameters,
    patch_grid,
    pictures,
    tokens,
    tower,
    vocabulary,
)


def _decisions(model: Any) -> Iterator[Inputs]:
    """States, actions and rewards of a decision transformer."""
    config = model.config
    yield {
        "states": numbers(BATCH, LENGTH, config.state_dim),
        "actions": numbers(BATCH, LENGTH, config.act_dim),
        "rewards": numbers(BATCH, LENGTH, 1),
        "returns_to_go": numbers(BATCH, LENGTH, 1),
        "timesteps": torch.arange(LENGTH).expand(BATCH, -1),
        "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.int64),
    }


def _regions(model: Any) -> Iterator[Inputs]:
    """Text beside regions of an image and their boxes."""
    config = model.config
    yield {
        "input_ids": tokens(end=vocabulary(config)),
        "visual_feats": numbers(BATCH, 5, config.visual_feat_dim),
        "visual_pos": numbers(BATCH, 5, config.visual_pos_dim),
    }


def _ids_as_inputs(model: Any) -> Iterator[Inputs]:
    yield {"inputs": tokens(end=vocabulary(model.config))}


def _flattened(model: Any) -> Iterator[Inputs]:
    """Patches that begin with their row and column."""
    vision = tower(model.config)
    width = vision.patch_embed_hidden_size
    places = torch.stack([torch.arange(16) // 4 + 1, torch.arange(16) % 4 + 1], dim=-1)
    places = places.expand(BATCH, -1, -1).float()
    patches = torch.cat([places, numbers(BATCH, 16, width)], dim=-1)
    names = parameters(model)
    yield {"flattened_patches": patches, **decoder_inputs(model, names)}


def _prompted(model: Any) -> Iterator[Inputs]:
    """An image, and another one with what is wanted of it."""
    # The model puts the two on top of each other.
    pixels = next(iter(pictures(model.config))).chunk(2, dim=-2)[0]
    yield dict.fromkeys(("pixel_values", "prompt_pixel_values", "prompt_masks"), pixels)


def _shaped(model: Any) -> Iterator[Inputs]:
    """Patches of images of several shapes."""
    vision = tower(model.config)
    width = vision.num_channels * vision.patch_size**2
    given: Inputs = {
        "pixel_values": numbers(BATCH, 16, width),
        "pixel_attention_mask": torch.ones(BATCH, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4], [2, 8]]),
    }
    if "input_ids" in parameters(model):
        given["input_ids"] = tokens(end=vocabulary(model.config))
    yield given


def _with_image_tokens(model: Any, count: int, token: int) -> Inputs:
    """Text that begins with so many tokens of an image, and the image."""
    config = model.config
    ids = tokens(end=vocabulary(config))
    image = torch.full((BATCH, count), token)
    names = parameters(model)
    given = {"input_ids": torch.cat([image, ids], dim=1)}
    given["pixel_values"] = next(iter(pictures(config)))
    return {**given, **decoder_inputs(model, names)}


def _queried(model: Any) -> Iterator[Inputs]:
    """Images by way of a query transformer, which may read a text too."""
    config = model.config
    given = _with_image_tokens(model, config.num_query_tokens, config.image_token_id)
    if "qformer_input_ids" in parameters(model):
        given["qformer_input_ids"] = tokens()
    yield given


def _queried_frames(model: Any) -> Iterator[Inputs]:
    """The same of four frames."""
    count = 4 * model.config.num_query_tokens
    given = _with_image_tokens(model, count, model.config.video_token_index)
    frames = given["pixel_values"][:, None].repeat(1, 4, 1, 1, 1)
    yield {**given, "pixel_values": frames, "qformer_input_ids": tokens()}


def _embedded(model: Any) -> Iterator[Inputs]:
    """Queries that attend to what another model made of an image."""
    width, other = model.config.hidden_size, model.config.encoder_hidden_size
    yield {
        "query_embeds": numbers(BATCH, LENGTH, width),
        "encoder_hidden_states": numbers(BATCH, 12, other),
    }


def _image_in_text(model: Any) -> Iterator[Inputs]:
    """Text of which a mask says which tokens an image stands for."""
    ids = tokens(end=vocabulary(model.config))
    mask = torch.zeros_like(ids)
    mask[:, 1 : 1 + model.config.latent_query_num] = 1
    yield {
        "input_ids": ids,
        "pixel_values": next(iter(pictures(model.config))),
        "image_embeds_position_mask": mask,
    }


def _several_images(model: Any) -> Iterator[Inputs]:
    """Text of which every token may attend to its images."""
    pixels = next(iter(pictures(model.config)))
    yield {
        "input_ids": tokens(end=vocabulary(model.config)),
        "pixel_values": pixels[:, None],
        "image_attention_mask": torch.ones(BATCH, LENGTH, 1, dtype=torch.int64),
    }


def _placed(model: Any) -> Iterator[Inputs]:
    """Flattened patches and their columns and rows."""
    config = model.config
    side = 2 * config.pooling_kernel_size
    steps = torch.arange(side)
    places = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1)
    width = 3 * config.patch_size**2
    yield {
        "pixel_values": numbers(BATCH, side * side, width).sigmoid(),
        "pixel_position_ids": places.flatten(0, 1).expand(BATCH, -1, -1).clone(),
    }


def _channels(model: Any) -> Iterator[Inputs]:
    """Text, and sound of several channels of codes."""
    count = model.config.decoder_config.num_channels
    codes = tokens(11, sizes.VOCABULARY)[..., None].expand(-1, -1, count)
    yield {
        "input_ids": tokens(end=vocabulary(model.config)),
        "decoder_input_ids": codes.clone(),
    }


def _series(model: Any) -> Iterator[Inputs]:
    """The past and the future of a series, both known."""
    config = model.config
    past = config.context_length + max(config.lags_sequence)
    future, features = config.prediction_length, config.num_time_features
    yield {
        "past_values": numbers(BATCH, past),
        "past_time_features": numbers(BATCH, past, features),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_values": numbers(BATCH, future),
        "future_time_features": numbers(BATCH, future, features),
    }


def _patched_series(model: Any) -> Iterator[Inputs]:
    """A series, which of it is padding, and its frequency."""
    length = 4 * model.config.patch_length
    yield {
        "past_values": numbers(BATCH, length),
        "past_values_padding": torch.zeros(BATCH, length, dtype=torch.int64),
        "freq": torch.zeros(BATCH, 1, dtype=torch.int64),
    }


def _spectra(model: Any) -> Iterator[Inputs]:
    """Text beside a picture of a sound [B, 1, time, mel bins]."""
    audio = getattr(model.config, "audio_config", model.config)
    given: Inputs = {"input_features": numbers(BATCH, 1, 64, audio.num_mel_bins)}
    given["is_longer"] = torch.zeros(BATCH, 1, dtype=torch.bool)
    if "input_ids" in parameters(model):
        given["input_ids"] = tokens(end=vocabulary(model.config))
    yield given


def _merged_patches(model: Any) -> Iterator[Inputs]:
    """Patches of two pictures, whose neighbours are merged or not."""
    patches, grid = patch_grid(model.config)
    merges = torch.tensor([2, 1])
    yield {"pixel_values": patches, "grid_thw": grid, "merge_sizes": merges}


def _cubes(model: Any) -> Iterator[Inputs]:
    """Patches of several frames, of two pictures."""
    config = model.config
    _, grid = patch_grid(config)
    width = 3 * config.patch_temporal * config.patch_size**2
    yield {"pixel_values": numbers(int(grid.prod(-1).sum()), width), "grid_thw": grid}


def _tasked(model: Any) -> Iterator[Inputs]:
    """An image and the words of a task."""
    yield {
        "pixel_values": next(iter(pictures(model.config))),
        "task_inputs": tokens(model.config.task_seq_len).float(),
    }


def _acting(model: Any) -> Iterator[Inputs]:
    """What a robot sees, is told and is; noise that becomes its actions."""
    config = model.config
    for given in inputs.candidates(model):
        if "input_ids" not in given:
            continue
        yield {
            **given,
            "state": numbers(BATCH, config.max_state_dim),
            "noise": numbers(BATCH, config.chunk_size, config.max_action_dim),
            "timestep": torch.full((BATCH,), 0.5),
            "attention_mask": torch.ones_like(given["input_ids"]),
        }


def _boxed(model: Any) -> Iterator[Inputs]:
    """Text and its boxes in parts of the page."""
    for given in inputs.candidates(model):
        if "bbox" in given:
            yield {**given, "bbox": given["bbox"] / 60.0}


def _heard(model: Any) -> Iterator[Inputs]:
    """A text that is spoken."""
    ids = tokens(end=vocabulary(model.config))
    yield {"input_ids": ids, "input_features": numbers(BATCH, 80, 64)}


# Model types whose inputs no rule finds.
_RECIPES: dict[str, Any] = {
    "autoformer": _series,
    "blip-2": _queried,
    "blip_2_qformer": _embedded,
    "clap": _spectra,
    "clap_audio_model": _spectra,
    "clvp": _heard,
    "decision_transformer": _decisions,
    "dia": _channels,
    "gemma4_vision": _placed,
    "idefics": _several_images,
    "informer": _series,
    "instructblip": _queried,
    "instructblipvideo": _queried_frames,
    "kosmos-2": _image_in_text,
    "lxmert": _regions,
    "muse_glimmer_vision": _cubes,
    "muse_spark_vision": _cubes,
    "oneformer": _tasked,
    "perceiver": _ids_as_inputs,
    "pi0": _acting,
    "pix2struct": _flattened,
    "seggpt": _prompted,
    "siglip2": _shaped,
    "siglip2_vision_model": _shaped,
    "time_series_transformer": _series,
    "timesfm": _patched_series,
    "udop": _boxed,
    "video_llama_3_vision": _merged_patches,
}


def candidates(model: Any) -> Iterator[Inputs]:
    """Inputs to try, the most complete first."""
    yield from _RECIPES.get(model.config.model_type, inputs.candidates)(model)
