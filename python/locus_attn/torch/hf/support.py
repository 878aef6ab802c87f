"""Which models run on Locus, found out when they are built, not when they run.

transformers takes any registered name for any model, whether its attention asks
the interface or not. So three methods of PreTrainedModel are wrapped, and with
another attn_implementation do what they did:

    get_correct_attn_implementation   a class whose file has attention of its own
    post_init                         a model whose attention passes operands that
                                      Locus does not understand
    set_attn_implementation           both, for a model that is there already
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any

from torch import nn

from .interface import NAME, UNDERSTOOD, UNRELATED

# Attention that is written out with operations of PyTorch: file -> classes. Each is
# judged by the sweep, or by a test of its own.
_CAPTURED = {
    "modeling_blip": "BlipAttention",
    "modeling_blip_text": "BlipTextSelfAttention",
    "modeling_bros": "BrosSelfAttention",
    "modeling_canine": "CanineSelfAttention",
    "modeling_convbert": "ConvBertSelfAttention",
    "modeling_cpmant": "CpmAntAttention",
    "modeling_dab_detr": "DetrAttention DabDetrAttention",
    "modeling_data2vec_vision": "Data2VecVisionSelfAttention "
    "Data2VecVisionSdpaSelfAttention",
    "modeling_donut_swin": "DonutSwinSelfAttention",
    "modeling_fastspeech2_conformer": "FastSpeech2ConformerAttention",
    "modeling_flaubert": "MultiHeadAttention",
    "modeling_flava": "FlavaSelfAttention",
    "modeling_fsmt": "Attention",
    "modeling_funnel": "FunnelRelMultiheadAttention",
    "modeling_glpn": "GLPNEfficientSelfAttention",
    "modeling_got_ocr2": "GotOcr2VisionAttention",
    "modeling_gpt_neox_japanese": "GPTNeoXJapaneseAttention",
    "modeling_granite_speech": "GraniteSpeechConformerAttention",
    "modeling_granite_speech_plus": "GraniteSpeechPlusConformerAttention",
    "modeling_groupvit": "GroupViTAttention",
    "modeling_hiera": "HieraMaskUnitAttention",
    "modeling_imagegpt": "ImageGPTAttention",
    "modeling_layoutlmv3": "LayoutLMv3SelfAttention",
    "modeling_levit": "LevitAttention LevitAttentionSubsample",
    "modeling_lilt": "LiltSelfAttention",
    "modeling_luke": "LukeSelfAttention",
    "modeling_lxmert": "LxmertAttention",
    "modeling_maskformer_swin": "MaskFormerSwinSelfAttention",
    "modeling_megatron_bert": "MegatronBertSelfAttention",
    "modeling_mgp_str": "MgpstrAttention",
    "modeling_mobilevit": "MobileViTSelfAttention",
    "modeling_mpnet": "MPNetSelfAttention",
    "modeling_mvp": "MvpAttention",
    "modeling_perceiver": "PerceiverSelfAttention",
    "modeling_prophetnet": "ProphetNetAttention ProphetNetNgramSelfAttention",
    "modeling_pvt": "PvtEfficientSelfAttention",
    "modeling_pvt_v2": "PvtV2SelfAttention",
    "modeling_rembert": "RemBertSelfAttention",
    "modeling_roformer": "RoFormerSelfAttention",
    "modeling_sam": "SamVisionAttention SamVisionSdpaAttention",
    "modeling_slanext": "SLANeXtVisionAttention",
    "modeling_speecht5": "SpeechT5Attention",
    "modeling_squeezebert": "SqueezeBertSelfAttention",
    "modeling_swin2sr": "Swin2SRSelfAttention",
    "modeling_swinv2": "Swinv2SelfAttention",
    "modeling_table_transformer": "TableTransformerAttention",
    "modeling_tapas": "TapasSelfAttention",
    "modeling_timesformer": "TimesformerSelfAttention",
    "modeling_trocr": "TrOCRAttention",
    "modeling_vilt": "ViltSelfAttention",
    "modeling_visual_bert": "VisualBertSelfAttention",
    "modeling_vitdet": "VitDetAttention",
    "modeling_xglm": "XGLMAttention",
    "modeling_xlm": "MultiHeadAttention",
}

# The attention that `patch` replaces: file and class -> the module here.
PATCHED = {
    ("modeling_t5", "T5Attention"): "t5",
    ("modeling_mt5", "MT5Attention"): "t5",
    ("modeling_bloom", "BloomAttention"): "bloom",
    ("modeling_codegen", "CodeGenAttention"): "gptj",
    ("modeling_falcon", "FalconAttention"): "falcon",
    ("modeling_gpt_neo", "GPTNeoSelfAttention"): "gptj",
    ("modeling_gptj", "GPTJAttention"): "gptj",
    ("modeling_mpt", "MptAttention"): "mpt",
    ("modeling_deberta", "DisentangledSelfAttention"): "deberta",
    ("modeling_deberta_v2", "DisentangledSelfAttention"): "deberta",
    ("modeling_xlnet", "XLNetRelativeAttention"): "xlnet",
    **{
        (file, name): "captured"
        for file, names in _CAPTURED.items()
        for name in names.split()
    },
}

# Files whose attention asks the interface, but makes more of its mask than Locus
# can say.
_MASKS_OF_THEIR_OWN = {
    "modeling_bigbird_pegasus": "its encoder's attention is sparse by blocks",
    "modeling_blt": "its patches depend on what padding sees",
    "modeling_informer": "its encoder's attention is sparse by content",
    # Forward passes are equal; the biases' gradients were found off by 3 %.
    "modeling_udop": "gradients of its biases by boxes are not those of its own "
    "attention",
}
# Classes with attention written out in a file of others that ask the interface.
_WRITTEN_OUT = {"Gemma3nAudioEncoder": "it attends in overlapping blocks of its own"}

_PATCH = 'build it with attn_implementation="eager" and call locus.torch.patch(model)'
_EAGER = 'build it with attn_implementation="eager"'


def patched_by(cls: type) -> str | None:
    """The module here that replaces an attention class, if there is one."""
    return PATCHED.get((_file(cls), cls.__name__))


def class_refusal(cls: type) -> str | None:
    """Why no model of this class runs on Locus by name, and what to do."""
    for name, owner in PATCHED:
        if any(_file(c) == name for c in cls.__mro__):
            return f"{owner} does not ask the attention interface; {_PATCH}"
    reason = class_obstacle(cls)
    return None if reason is None else f"{reason}; {_EAGER}"


def class_obstacle(cls: type) -> str | None:
    """What in the files of a class and its bases keeps Locus out, but for patch."""
    files = [sys.modules[c.__module__] for c in _own_bases(cls)]
    for file in files:
        reason = _MASKS_OF_THEIR_OWN.get(file.__name__.rsplit(".", 1)[-1])
        if reason is not None:
            return reason
    for base in cls.__mro__:
        if base.__name__ in _WRITTEN_OUT:
            return _WRITTEN_OUT[base.__name__]
    table = _table_of_attentions(cls)
    if table is not None:
        return f"its attention is one of {table}"
    if any(hasattr(file, "ALL_ATTENTION_FUNCTIONS") for file in files):
        return None
    for file in files:
        for name, thing in vars(file).items():
            if "Attention" in name and _is_module(thing):
                return f"{name} does not use transformers' attention interface"
    return None


def model_obstacle(model: nn.Module) -> str | None:
    """Which operand of a model's layers keeps Locus out, but for patch."""
    for module in model.modules():
        cls = type(module)
        unknown = _operands_of(cls) - UNDERSTOOD - UNRELATED
        if unknown and patched_by(cls) is None:
            return f"{cls.__name__} passes {sorted(unknown)[0]} to its attention"
    return None


def asks_interface(cls: type) -> bool:
    """Whether layers of a class call `attention_interface`."""
    return bool(_operands_of(cls))


def parts_of(model: nn.Module) -> list[nn.Module]:
    """The models of transformers in a model, itself included."""
    return [m for m in model.modules() if hasattr(m, "post_init")]


def refuse(model: nn.Module, reason: str | None) -> None:
    if reason is not None:
        raise ValueError(
            f'attn_implementation="{NAME}" cannot run {type(model).__name__}: {reason}'
        )


def _refuse_operands(model: nn.Module) -> None:
    reason = model_obstacle(model)
    refuse(model, None if reason is None else f"{reason}; {_EAGER}")


def _file(cls: type) -> str:
    return cls.__module__.rsplit(".", 1)[-1]


def _is_module(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, nn.Module)


def _own_bases(cls: type) -> list[type]:
    """The class and its bases up to PreTrainedModel, which is everybody's."""
    common = ("transformers.modeling_utils", "torch.nn.modules.module")
    return [
        c
        for c in cls.__mro__
        if issubclass(c, nn.Module) and c.__module__ not in common
    ]


@functools.lru_cache(maxsize=512)
def _table_of_attentions(cls: type) -> str | None:
    """The dict in which the layers of a class look their attention up by name.

    Other models of the same file, which may be parts of this one, are passed over.
    """
    file = vars(sys.modules[cls.__module__])
    tables = [name for name in file if name.endswith("_ATTENTION_CLASSES")]
    texts = sources(cls.__module__) if tables else {}
    seen: set[str] = set()
    todo = {cls.__name__} & texts.keys()
    while todo:
        text = texts[(name := todo.pop())]
        seen.add(name)
        for table in tables:
            if table in text:
                return table
        for other in set(re.findall(r"\b[A-Z]\w+", text)) & texts.keys() - seen:
            if not hasattr(file.get(other), "post_init"):
                todo.add(other)
    return None


def operands(source: str) -> frozenset[str]:
    """The keywords of the calls of `attention_interface` in a text of Python."""
    source = re.sub(r"#[^\n]*", "", source)
    names = set()
    for call in re.finditer(r"\battention_interface\(", source):
        # Up to the bracket that closes the call, and without those inside.
        own, depth = [], 1
        for character in source[call.end() :]:
            depth += (character in "([{") - (character in ")]}")
            if depth == 0:
                break
            if depth == 1:
                own.append(character)
        names.update(re.findall(r"(?:^|,)\s*(\w+)\s*=", "".join(own)))
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def _operands_of(cls: type) -> frozenset[str]:
    return operands(sources(cls.__module__).get(cls.__name__, ""))


@functools.lru_cache(maxsize=512)
def sources(module: str) -> dict[str, str]:
    """The text of every class of a file. inspect would parse it once per class."""
    try:
        text = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    parts = re.split(r"^class (\w+)", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _wrap(owner: type, name: str, check: Any) -> None:
    """Runs check(self, *arguments) before a method of `owner`, from now on."""
    method = getattr(owner, name)
    if hasattr(method, "checked_by_locus"):
        return

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(self, *args, **kwargs)
        return method(self, *args, **kwargs)

    checked.checked_by_locus = True  # type: ignore[attr-defined]
    setattr(owner, name, checked)


def _check_class(model: Any, asked: Any = None, *_: Any, **__: Any) -> None:
    if asked == NAME:
        refuse(model, class_refusal(type(model)))


def _check_built(model: Any) -> None:
    if model.config._attn_implementation == NAME:
        _refuse_operands(model)


def _check_set(model: Any, asked: Any, *_: Any, **__: Any) -> None:
    """Of a dict {part: name} the parts are checked as transformers sets them."""
    if asked == NAME:
        for part in parts_of(model):
            refuse(part, class_refusal(type(part)))
        _refuse_operands(model)


def check_when_built(pretrained_model: type) -> None:
    """Wraps the methods of PreTrainedModel that this file opens with."""
    _wrap(pretrained_model, "get_correct_attn_implementation", _check_class)
    _wrap(pretrained_model, "post_init", _check_built)
    _wrap(pretrained_model, "set_attn_implementation", _check_set)
