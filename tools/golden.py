#!/usr/bin/env python3
"""Golden values for the reader of model configs, from transformers itself.

    golden.py write [FOLDER]    writes the files of this release of transformers
    golden.py check [FOLDER]    regenerates them and compares

FOLDER is tests/models/golden. The current release writes rotary.json, tables.json,
layers.json, inputs.json and stacks.json; 4.35.2, the last with Transformer-XL and
BERT's relative keys, writes legacy.json. formulas.json holds what no release has.
Each file names the versions that made it. Values are float32 in 9 digits, which is
all of them.

For a model that rotates, the whole path is recorded: the fields go through the
model's own config class, a model of one layer is built from it, and

    q, k   [heads, tokens, channels] before the rotation
    logits [heads, tokens, tokens]   scaling * rotated q . rotated k

are what its attention saw. q and k are those of the same tokens at position 0,
where the rotation is the gain alone. A case with a `peer` has the config of a model
that transformers lacks, and the values of the class there with the same arithmetic.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import torch
import transformers
from golden_cases import COUNTING, MULTIMODAL, OWN_SIZES, ROTARY, SMALL, UNGROUPED
from golden_peers import PEERS
from golden_tables import Case, legacy_file, numbers, tables_file

# Inside every trained length, at its ends, and far past most of them.
POSITIONS = [0, 1, 511, 4096, 131071]
# Text, a patch of a later image, text after it: (time, height, width).
PATCHES = [(0, 0, 0), (1, 1, 1), (511, 520, 513), (511, 511, 530), (4096, 4096, 4096)]


def small_fields(model_type: str, fields: Case) -> Case:
    """The fields of a case, over the small sizes."""
    if model_type in OWN_SIZES:
        return dict(fields)
    small = {**SMALL, **fields}
    if model_type in UNGROUPED:
        del small["num_key_value_heads"]
    return small


class Seen(Exception):
    """Carries what attention was called with, out of the model."""

    def __init__(self, q: torch.Tensor, k: torch.Tensor, scaling: float) -> None:
        super().__init__()
        self.q, self.k, self.scaling = q, k, scaling


def capture(model: torch.nn.Module, positions: list[Any]) -> Seen:
    """q [H, n, D], k [Hkv, n, D] and the scaling that the layer attends with."""

    def attention(module: Any, q: Any, k: Any, *_: Any, **kw: Any) -> None:
        scaling = kw.get("scaling")
        raise Seen(q, k, q.shape[-1] ** -0.5 if scaling is None else scaling)

    def own(q: torch.Tensor, k: torch.Tensor, *_: Any, **__: Any) -> None:
        raise Seen(q, k, q.shape[-1] ** -0.5)

    def fused(q: Any, k: Any, *_: Any, **kw: Any) -> None:
        raise Seen(q, k, kw.get("scale") or q.shape[-1] ** -0.5)

    transformers.AttentionInterface.register("golden", attention)
    transformers.AttentionMaskInterface.register("golden", lambda *_, **__: None)
    plain = torch.nn.functional.scaled_dot_product_attention
    model.set_attn_implementation("golden")
    # Older models have attention of their own, or call PyTorch's directly.
    for module in model.modules():
        if hasattr(module, "_attn"):
            module._attn = own
    torch.nn.functional.scaled_dot_product_attention = fused
    ids = torch.arange(len(positions))[None]
    at = torch.tensor(positions)
    at = at[None] if at.dim() == 1 else at.T[:, None]
    try:
        model(input_ids=ids, position_ids=at, use_cache=False)
    except Seen as seen:
        seen.q, seen.k = seen.q[0].double(), seen.k[0].double()
        return seen
    finally:
        torch.nn.functional.scaled_dot_product_attention = plain
    raise RuntimeError("the model did not call its attention")


def unturned_latent(model: torch.nn.Module, still: Seen) -> None:
    """Puts DeepSeek-V3's turning channels into q and k as projected.

    Its attention sees them sorted into halves, whatever the rotation.
    """
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda _, __, out: found.__setitem__(name, out[0].double())

    attention = model.layers[0].self_attn
    hooks = [
        attention.q_proj.register_forward_hook(keep("q")),
        attention.kv_a_proj_with_mqa.register_forward_hook(keep("k")),
    ]
    capture(model, [0] * len(POSITIONS))
    for hook in hooks:
        hook.remove()
    heads, tokens, dim = still.q.shape
    turning = model.config.qk_rope_head_dim
    gain = frequencies(model, model.config)[1]
    q = found["q"].view(tokens, heads, dim).transpose(0, 1)
    still.q[..., -turning:] = gain * q[..., -turning:]
    still.k[..., -turning:] = gain * found["k"][:, -turning:]


def rotary_embedding(model: torch.nn.Module) -> torch.nn.Module | None:
    """The module that owns the frequencies, if the model keeps one."""
    for module in model.modules():
        if any("inv_freq" in name for name, _ in module.named_buffers(recurse=False)):
            return module
    return None


def frequencies(model: torch.nn.Module, config: Any) -> tuple[Any, Any]:
    """inv_freq [pairs] as last used, and the gain of cos and sin."""
    rotary = rotary_embedding(model)
    if rotary is None:
        return None, 1.0
    kind = (getattr(config, "layer_types", None) or [""])[0]
    name = f"{kind}_inv_freq" if hasattr(rotary, f"{kind}_inv_freq") else "inv_freq"
    gain = getattr(rotary, f"{kind}_attention_scaling", None)
    if gain is None:
        gain = getattr(rotary, "attention_scaling", 1.0)
    return getattr(rotary, name), float(gain)


def pack(position: Any) -> int:
    """Three coordinates in one integer, as Locus packs them."""
    if isinstance(position, int):
        return position
    t, h, w = position
    return (1 << 60) + (t << 40) + (h << 20) + w


def rotary_case(name: str, model_type: str, fields: Case, positions: list[Any]) -> Case:
    """What a model of one layer does with its positions."""
    fields = small_fields(model_type, fields)
    config = transformers.AutoConfig.for_model(
        model_type, **json.loads(json.dumps(fields))
    )
    torch.manual_seed(1)
    model = transformers.AutoModel.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            # Large enough for logits of order one, whatever the initialisation.
            if parameter.dim() > 1:
                parameter.normal_(std=0.4)
    zero = (0, 0, 0) if isinstance(positions[0], tuple) else 0
    if name in COUNTING:
        positions = list(range(len(positions)))
        # Without the temperature that grows with the count.
        attention = model.layers[0].self_attn
        strength, attention.attn_scale = attention.attn_scale, 0.0
        still = capture(model, positions)
        attention.attn_scale = strength
    else:
        still = capture(model, [zero] * len(positions))
    if model_type == "deepseek_v3":
        unturned_latent(model, still)
    turned = capture(model, positions)
    inv_freq, gain = frequencies(model, config)
    heads = turned.q.shape[0]
    rotated = [
        x.repeat_interleave(heads // x.shape[0], 0) for x in (turned.q, turned.k)
    ]
    logits = float(turned.scaling) * rotated[0] @ rotated[1].transpose(1, 2)
    fields["model_type"] = model_type
    case = {
        "name": name,
        "config": fields,
        "positions": [pack(position) for position in positions],
        "scaling": float(turned.scaling),
        "gain": gain,
        "q": numbers(still.q),
        "k": numbers(still.k),
        "logits": numbers(logits),
    }
    if inv_freq is not None:
        case["inv_freq"] = numbers(inv_freq)
    return case


def peer_case(name: str, peer: str, fields: Case, config: Case) -> Case:
    """The config of a model, and what `peer` does with the same numbers."""
    case = rotary_case(name, peer, fields, POSITIONS)
    return {**case, "config": config, "peer": peer}


def rotary_file() -> list[Case]:
    """rotary.json: every model that rotates q and k."""
    return (
        [rotary_case(*case, POSITIONS) for case in ROTARY]
        + [peer_case(*case) for case in PEERS]
        + [rotary_case(*case, PATCHES) for case in MULTIMODAL]
    )


def files() -> dict[str, Callable[[], list[Case]]]:
    """The files that the installed release makes."""
    if transformers.__version__.startswith("4.35."):
        return {"legacy.json": legacy_file}
    from golden_formulas import formulas_file
    from golden_inputs import inputs_file
    from golden_layers import layers_file
    from golden_stacks import stacks_file

    return {
        "rotary.json": rotary_file,
        "tables.json": tables_file,
        "layers.json": layers_file,
        "inputs.json": inputs_file,
        "stacks.json": stacks_file,
        "formulas.json": formulas_file,
    }


# What passes through random weights. PyTorch draws them with other last bits where
# it has AVX-512 than where it has AVX2, and layers pass the difference on: 2e-5 is the
# most that was seen, in the last layer of a stack. Formulas and tables are closer.
WEIGHED = {"q", "k", "logits", "prob", "still", "turned"}


def close(a: Any, b: Any, roundings: float = 2.0) -> bool:
    """Equal up to that many roundings of float32, for another machine's libm."""
    if isinstance(a, float) and isinstance(b, int | float):
        return abs(a - b) <= roundings * 1.2e-7 * max(abs(a), abs(b), 1.0)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(
            close(x, y, roundings) for x, y in zip(a, b, strict=True)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(
            close(a[k], b[k], 500.0 if k in WEIGHED else roundings) for k in a
        )
    return a == b


def main() -> int:
    transformers.logging.set_verbosity_error()
    if len(sys.argv) < 2 or sys.argv[1] not in ("write", "check"):
        print(__doc__)
        return 2
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = (
        pathlib.Path(sys.argv[2])
        if len(sys.argv) > 2
        else (root / "tests" / "models" / "golden")
    )
    wrong = 0
    for name, make in files().items():
        made = {
            "made_by": "tools/golden.py",
            "transformers": transformers.__version__,
            "torch": torch.__version__,
            "cases": make(),
        }
        if sys.argv[1] == "write":
            text = json.dumps(made, separators=(",", ":")).replace(
                '{"name"', '\n{"name"'
            )
            (folder / name).write_text(text + "\n", encoding="utf-8")
            continue
        kept = json.loads((folder / name).read_text(encoding="utf-8"))
        made = json.loads(json.dumps(made))
        for old, new in zip(kept["cases"], made["cases"], strict=True):
            if not close(old, new):
                print(f"{name}: {old['name']} differs")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
