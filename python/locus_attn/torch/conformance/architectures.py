"""Every architecture of the installed transformers, small and with random weights.

An architecture is a model type with a class in transformers' auto mappings. It is
judged by one of its classes, the one with the most of the model in it, on a
configuration that `sizes` shrinks.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch

from . import sizes

# Mappings of modeling_auto, in the order of preference.
_HEADS = (
    "SEQ_TO_SEQ_CAUSAL_LM",
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "TEXT_ENCODING",
)
# For models without text: the bare model, so that its hidden states are compared.
_OTHER = ("MODEL", "BACKBONE")

# Standard deviation times the square root of the width. Larger than the usual
# initialisation, so that positions and attention matter.
_SPREAD = 0.3
# A configuration with more was not shrunk: its forward pass would take too long.
_MOST_PARAMETERS = 100_000_000


class CannotBuild(Exception):
    """Why there is no small model of an architecture."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """name: what the user calls it. makers: functions of an attn_implementation that
    build it, in the order in which they are tried.
    """

    name: str
    makers: tuple[Callable[[str], Any], ...]


def model_types() -> list[str]:
    """The model types that transformers has a class for."""
    return sorted(set().union(*_mappings().values()))


def by_type(model_type: str) -> Architecture:
    def maker(shallow: bool) -> Callable[[str], Any]:
        def make(attention: str) -> Any:
            return _build(class_of(model_type), shallow, attention, model_type)

        return make

    return Architecture(model_type, (maker(False), maker(True)))


def by_path(path: str) -> Architecture:
    """`module:Class`, a model class of transformers' making, or `module:function`,
    a function of an attn_implementation that returns a model.
    """
    file, _, name = path.partition(":")
    made = getattr(importlib.import_module(file), name)

    def maker(shallow: bool) -> Callable[[str], Any]:
        return lambda attention: _build(made, shallow, attention)

    def call(attention: str) -> Any:
        torch.manual_seed(1)
        return made(attention).eval()

    makers = (maker(False), maker(True)) if inspect.isclass(made) else (call,)
    return Architecture(path, makers)


def _mappings() -> dict[str, dict[str, Any]]:
    from transformers.models.auto import modeling_auto as auto

    kinds = re.compile(r"MODEL_(?:FOR_)?(?:(\w+)_)?MAPPING_NAMES$")
    found = {}
    for name, mapping in vars(auto).items():
        match = kinds.fullmatch(name)
        if match is not None:
            found[match[1] or "MODEL"] = mapping
    return found


def class_of(model_type: str) -> type:
    """The class that stands for a model type."""
    import transformers

    mappings = _mappings()
    order = [*_HEADS, *_OTHER, *mappings]
    kind = next(k for k in order if model_type in mappings.get(k, {}))
    names = mappings[kind][model_type]
    name = names if isinstance(names, str) else names[0]
    try:
        cls = getattr(transformers, name)
    except (AttributeError, ImportError) as reason:
        raise CannotBuild(_sentence(reason)) from reason
    if not hasattr(cls, "config_class"):
        raise CannotBuild(f"{name} needs a package that is not installed")
    return cls


def _build(cls: Any, shallow: bool, attention: str, kind: str | None = None) -> Any:
    """The same random model for every `attention`."""
    try:
        config = configuration(cls, shallow, kind)
        with torch.device("meta"):
            size = sum(p.numel() for p in cls(config).parameters())
    except Exception as reason:
        raise CannotBuild(_sentence(reason)) from reason
    if size > _MOST_PARAMETERS:
        raise CannotBuild(f"it has {size} parameters; its sizes are not known")
    config = configuration(cls, shallow, kind)
    torch.manual_seed(1)
    return cls._from_config(config, attn_implementation=attention).eval()


def _sentence(reason: Exception) -> str:
    words = " ".join(str(reason).split())
    return f"{type(reason).__name__}: {words}"[:200]


def respread(model: Any) -> Any:
    """Random weights in which attention and positions count."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                # Convolutions sum over their kernels too.
                inputs = p.shape[1:].numel() if p.dim() > 2 else p.shape[-1]
                p.normal_(std=_SPREAD / max(inputs, 1) ** 0.5)
            elif "bias" in name:
                p.normal_(std=0.1)
    for name, p in model.named_parameters():
        if "relative_attention_bias" in name or "rel_embeddings" in name:
            torch.nn.init.normal_(p, std=1.0)
    return model.eval()


def configuration(cls: Any, shallow: bool = False, kind: str | None = None) -> Any:
    """A small configuration of a model class.

    shallow: only the layers become few, and widths stay, for classes whose widths
    depend on one another. kind: the model type, where a class serves it and is
    annotated with the configuration of the model around it.
    """
    from transformers import CONFIG_MAPPING

    made = cls.config_class
    if kind in CONFIG_MAPPING:
        own = CONFIG_MAPPING[kind]
        made = own if own in getattr(made, "sub_configs", {}).values() else made
    particular = sizes.PARTICULAR.get(made.model_type, {})
    return _Shrink(shallow).shrink(made, particular)


def _default(cls: type) -> Any:
    try:
        return cls()
    except Exception:
        return None


@dataclasses.dataclass
class _Shrink:
    shallow: bool

    def shrink(self, cls: Any, particular: dict[str, Any], whole: Any = None) -> Any:
        """whole: the configuration in its full size, if not that of cls()."""
        if not dataclasses.is_dataclass(cls):
            return cls(**particular)
        default = _default(cls)
        given: dict[str, Any] = {}
        names = [f.name for f in dataclasses.fields(cls)]
        for field in dataclasses.fields(cls):
            value = field.default
            if value is dataclasses.MISSING:
                value = getattr(default, field.name, None)
            if value is not None and self._shrinks(field.name):
                given[field.name] = _alike(value, sizes.SIZES[field.name])
            elif type(value) is int and re.fullmatch(_TOKEN, field.name):
                # Ids of images and the like, which no text below uses.
                given[field.name] = sizes.VOCABULARY - 1 - len(given) % 16
        kinds = list(dict.fromkeys(getattr(default, "layer_types", None) or ()))
        if kinds and "layer_types" in names and "num_hidden_layers" in names:
            given["layer_types"] = kinds if len(kinds) > 1 else kinds * 2
            given["num_hidden_layers"] = len(given["layer_types"])
        self._feature_maps(names, whole or default, given)
        if not self.shallow:
            self._relate(cls, names, default, given)
        parts = getattr(cls, "sub_configs", {})
        for name, part in parts.items():
            small = self._part(part, getattr(default, name, None), particular.get(name))
            if small is not None:
                given[name] = small
        given.update({k: v for k, v in particular.items() if k not in parts})
        return cls(**given)

    def _shrinks(self, name: str) -> bool:
        return name in (sizes.DEPTHS if self.shallow else sizes.SIZES)

    def _feature_maps(self, names: list[str], default: Any, given: Any) -> None:
        """A backbone gives as many maps as before, if need be one per layer."""
        wanted = list(getattr(default, "out_indices", None) or ())
        if len(wanted) < 2:
            return
        if "num_hidden_layers" in names and "depths" not in names:
            wanted = list(range(1, len(wanted) + 1))
            given["num_hidden_layers"] = len(wanted)
        given["out_indices"] = wanted

    def _relate(self, cls: Any, names: list[str], default: Any, given: Any) -> None:
        """Fields that depend on others."""
        if "kv_lora_rank" in names:
            given["num_key_value_heads"] = sizes.HEADS
        if "window_size" in given and "spatial_merge_size" in names:
            # Four patches of a picture to a side.
            given["window_size"] = 4 * given.get("patch_size", 8)
        if "rope_parameters" in names and _in_sections(cls):
            known = getattr(default, "rope_parameters", None) or {}
            dim = sizes.HEAD_DIM
            if "head_dim" in names:
                dim = given["head_dim"] = 2 * sizes.HEAD_DIM
            # Time, height and width share the rotary pairs.
            pairs = int(dim * known.get("partial_rotary_factor", 1.0)) // 2
            sections = [pairs - 2 * (pairs // 3), pairs // 3, pairs // 3]
            given["rope_parameters"] = {**known, "mrope_section": sections}

    def _part(self, cls: Any, default: Any, particular: Any) -> Any:
        """A part of a configuration, shrunk like the whole."""
        from transformers import CONFIG_MAPPING

        particular = dict(particular or {})
        kind = particular.pop("model_type", None)
        if kind is None and default is not None and not isinstance(default, dict):
            kind, cls = default.model_type, type(default)
        # timm is a package of its own, which need not be there.
        kind = "resnet" if kind == "timm_backbone" else kind
        known = kind in CONFIG_MAPPING  # Its get() does not load what is not there.
        cls = CONFIG_MAPPING[kind] if known else cls
        if not dataclasses.is_dataclass(cls) or (kind is None and not particular):
            return None
        return self.shrink(
            cls, {**sizes.PARTICULAR.get(kind, {}), **particular}, default
        )


_TOKEN = r"\w+_token(_id|_index)"


def _alike(value: Any, small: Any) -> Any:
    """A small value of the type of the default."""
    if isinstance(value, list | tuple) and isinstance(small, int | float):
        return type(value)([small] * len(value))
    if type(value) is int and isinstance(small, float):
        return int(small)
    return small


def _in_sections(cls: type) -> bool:
    """Whether the rotary pairs of a model are divided among time, height, width."""
    file = cls.__module__.replace(".configuration_", ".modeling_")
    try:
        text = inspect.getsource(importlib.import_module(file))
    except (ImportError, OSError):
        return False
    return "mrope_section" in text and "Vision" not in cls.__name__
