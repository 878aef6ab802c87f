"""python -m locus_attn.torch.conformance.timing: popular models on three attentions.

A small model of each architecture, with the head size, the grouping of heads and
the windows of a published one but few heads and layers, runs on eager attention,
on sdpa and on Locus, in alternating rounds. Inference is a forward pass,
training forward and backward. Memory is how far the peak of a pass lies above what
was held before it, in a process of its own for each attention.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import ctypes
import dataclasses
import gc
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

from .. import hf
from . import inputs, page

_HEADS, _LAYERS, _VOCABULARY = 8, 2, 1000


@dataclasses.dataclass(frozen=True)
class _Model:
    """model_type and what its configuration takes besides the sizes below.

    of: the published model whose head is meant. groups: query heads per key head.
    """

    model_type: str
    of: str
    head_dim: int
    groups: int = 1
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)


_SLIDING = {"layer_types": ["sliding_attention", "full_attention"]}
_T5 = {"d_kv": 64, "num_layers": _LAYERS, "num_decoder_layers": _LAYERS, "d_ff": 1024}

MODELS = (
    _Model("llama", "Llama 3.1 8B", 128, 4),
    _Model("qwen3", "Qwen3 8B", 128, 4),
    _Model("mistral", "Mistral 7B, window 512", 128, 4, {"sliding_window": 512}),
    _Model("gemma3_text", "Gemma 3 4B", 256, 2, {"sliding_window": 512, **_SLIDING}),
    _Model("gpt_oss", "gpt-oss 20B", 64, 8, {"sliding_window": 128, **_SLIDING}),
    _Model("gpt2", "GPT-2", 64),
    _Model("bert", "BERT base", 64),
    _Model("modernbert", "ModernBERT base", 64),
    _Model("t5", "T5 base", 64, 1, _T5),
    _Model("deberta-v2", "DeBERTa v3 base", 64, 1, {"position_buckets": 256}),
    _Model("bloom", "BLOOM 560M", 64),
    _Model("mpt", "MPT 7B", 128),
)


@dataclasses.dataclass
class Timing:
    """Medians in seconds and peaks in bytes, by attention; None: it has none."""

    model_type: str
    of: str
    head_dim: int
    groups: int
    training: bool
    seconds: dict[str, float | None]
    memory: dict[str, float | None]

    @property
    def gain(self) -> float:
        """The better of transformers' own two over Locus."""
        others = [self.seconds[n] for n in ("eager", "sdpa") if self.seconds[n]]
        return min(others) / self.seconds["locus"]


def configuration(model: _Model, length: int) -> Any:
    """The configuration of a small model with the heads of a published one."""
    from transformers import CONFIG_MAPPING

    cls = CONFIG_MAPPING[model.model_type]
    width = _HEADS * model.head_dim
    sizes = {
        **dict.fromkeys(("hidden_size", "d_model", "n_embd"), width),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads"), _HEADS),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers"), _LAYERS),
        **dict.fromkeys(("intermediate_size", "n_inner"), 1024),
        **dict.fromkeys(("num_local_experts", "num_experts_per_tok"), 2),
        **dict.fromkeys(("max_position_embeddings", "max_seq_len"), length),
        **dict.fromkeys(("n_positions",), length),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
        "num_key_value_heads": _HEADS // model.groups,
        "head_dim": model.head_dim,
        "num_heads": _HEADS,
        "query_pre_attn_scalar": model.head_dim,
        "vocab_size": _VOCABULARY,
    }
    if model.model_type == "deberta-v2":
        sizes.update(relative_attention=True, pos_att_type=["p2c", "c2p"])
    names = {f.name for f in dataclasses.fields(cls)}
    aliases = set(getattr(cls, "attribute_map", {}))
    known = {k: v for k, v in sizes.items() if k in names - aliases}
    for rate in [n for n in names if "drop" in n]:
        if isinstance(getattr(cls(), rate, None), float):
            known[rate] = 0.0
    return cls(**{**known, **model.fields})


def _built(model: _Model, length: int, attention: str) -> Any:
    """A model on one attention; None if its class does not support it."""
    import transformers

    cls = transformers.AutoModel._model_mapping[type(configuration(model, length))]
    cls = cls[0] if isinstance(cls, tuple) else cls
    if attention == "sdpa" and not cls._supports_sdpa:
        return None
    torch.manual_seed(1)
    config = configuration(model, length)
    if attention != "locus":
        return cls._from_config(config, attn_implementation=attention).eval()
    try:
        return cls._from_config(config, attn_implementation="locus").eval()
    except ValueError:
        torch.manual_seed(1)
        config = configuration(model, length)
        made = cls._from_config(config, attn_implementation="eager")
        return hf.patch(made.eval())


def _pass(model: Any, given: dict[str, Any], training: bool) -> None:
    if not training:
        with torch.no_grad():
            model(**given)
        return
    model.zero_grad(set_to_none=True)
    model(**given)[0].square().mean().backward()


def _peak(
    model: _Model, length: int, attention: str, training: bool, threads: int
) -> float:
    """Bytes that passes add at their peak. Changes how this process allocates."""
    libc = ctypes.CDLL(None)
    # Every large block goes back to the system when it is freed, so that the peak is
    # that of what is in use, not of how the heap is fragmented.
    m_mmap_threshold = -3
    libc.mallopt(m_mmap_threshold, 1 << 16)
    torch.set_num_threads(threads)
    _quiet()
    made = _built(model, length, attention)
    # Libraries that a first pass loads are no memory of attention.
    _pass(made, _inputs(made, 16, training), training)
    given = _inputs(made, length, training)
    made.zero_grad(set_to_none=True)
    gc.collect()
    libc.malloc_trim(0)
    before = _held("VmRSS")
    reset_peak = "5"
    Path("/proc/self/clear_refs").write_text(reset_peak)
    # What the first pass leaves behind counts in the second.
    for _ in range(2):
        _pass(made, given, training)
    return _held("VmHWM") - before


def _held(kind: str) -> float:
    """Bytes of physical memory, or VmHWM: their maximum."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return float(value.split()[0]) * 1024
    raise OSError(f"/proc/self/status has no {kind}")


def peak(model: _Model, length: int, attention: str, training: bool) -> float:
    """Bytes that a pass adds at its peak, measured in a process of its own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["transformers", "locus_attn.torch"])
    arguments = (model, length, attention, training, torch.get_num_threads())
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_peak, *arguments).result()


def _inputs(model: Any, length: int, training: bool) -> dict[str, Any]:
    """What a pass is given."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(1, _VOCABULARY, (1, length), generator=generator)
    given: dict[str, Any] = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids
    if not training and "use_cache" in inputs.parameters(model):
        given["use_cache"] = False
    return given


def measure(model: _Model, length: int, rounds: int, training: bool) -> Timing:
    """Alternates between the attentions, after a warm-up pass of each."""
    made = {n: _built(model, length, n) for n in ("eager", "sdpa", "locus")}
    running = {name: m for name, m in made.items() if m is not None}
    given = _inputs(made["eager"], length, training)
    taken: dict[str, list[float]] = {name: [] for name in running}
    for turn in range(rounds + 1):
        for name, one in running.items():
            start = time.perf_counter()
            _pass(one, given, training)
            if turn:
                taken[name].append(time.perf_counter() - start)
    seconds: dict[str, float | None] = dict.fromkeys(made)
    memory: dict[str, float | None] = dict.fromkeys(made)
    for name in running:
        seconds[name] = statistics.median(taken[name])
        memory[name] = peak(model, length, name, training)
    told = (model.model_type, model.of, model.head_dim, model.groups)
    return Timing(*told, training, seconds, memory)


_HEAD = """\
# Popular models, timed

Written by `python -m locus_attn.torch.conformance.timing --write docs/model-timing.md`;
do not edit. {machine}, {threads} threads. Versions: {versions}.
float32, {length} tokens, batch 1, medians of {rounds} alternating rounds.

Each is a model of {layers} layers with {heads} query heads of the size, the grouping
and the windows of the one named; linear layers and embeddings are small, and the same
for all three. Milliseconds per pass; memory is the peak of physical memory in a pass
in MiB above what was held before it, in a process of its own for each attention whose
allocator keeps no large blocks. Gain is the faster of eager attention and sdpa over
Locus. A dash: the class does not support sdpa.

| model | head | pass | eager | sdpa | Locus | gain | memory eager | sdpa | Locus |
|---|---|---|---|---|---|---|---|---|---|
"""


def _machine() -> str:
    """The name of the processor, and how many of its cores there are."""
    name = platform.machine()
    told = Path("/proc/cpuinfo")
    for line in told.read_text().splitlines() if told.exists() else ():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {os.cpu_count()} cores"


def report(rows: list[Timing], length: int, rounds: int) -> str:
    """The page of docs."""
    told = ", ".join(f"{name} {version}" for name, version in page.versions().items())
    lines = [
        _HEAD.format(
            versions=told,
            machine=_machine(),
            threads=torch.get_num_threads(),
            length=length,
            rounds=rounds,
            layers=_LAYERS,
            heads=_HEADS,
        ).rstrip("\n")
    ]

    def cell(value: float | None, unit: float) -> str:
        return "-" if value is None else f"{value * unit:.0f}"

    for row in rows:
        times = [cell(row.seconds[n], 1e3) for n in ("eager", "sdpa", "locus")]
        peaks = [cell(row.memory[n], 2.0**-20) for n in ("eager", "sdpa", "locus")]
        head = f"{row.head_dim}" + (f", {row.groups} to 1" if row.groups > 1 else "")
        kind = "training" if row.training else "inference"
        cells = [row.of, head, kind, *times, f"{row.gain:.2f}", *peaks]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + _losses(rows) + "\n"


def _losses(rows: list[Timing]) -> str:
    """Where Locus gains nothing."""

    def named(chosen: list[Timing]) -> str:
        names = [
            f"{row.of} ({'training' if row.training else 'inference'}, {row.gain:.2f})"
            for row in chosen
        ]
        return ", ".join(names) or "none"

    def larger(row: Timing) -> bool:
        others = [row.memory[n] for n in ("eager", "sdpa") if row.memory[n] is not None]
        own = row.memory["locus"]
        # Pages and small blocks come and go: less than a MiB more does not count.
        return own is not None and bool(others) and own > min(others) + 2**20

    slower = [row for row in rows if row.gain < 1.0]
    even = [row for row in rows if 1.0 <= row.gain < 1.05]
    memory = [row for row in rows if larger(row)]
    return (
        f"Slower than the better of the two: {named(slower)}.\n"
        f"Within 5 %, so that Locus gains nothing: {named(even)}.\n"
        f"More memory than the better of the two: {named(memory)}."
    )


def main(arguments: list[str] | None = None) -> int:
    """0, or 2 for bad usage."""
    parser = argparse.ArgumentParser(
        prog="python -m locus_attn.torch.conformance.timing",
        description="Times popular models on eager attention, sdpa and Locus.",
    )
    names = [model.model_type for model in MODELS]
    parser.add_argument("--models", nargs="+", metavar="M", choices=names)
    parser.add_argument("--length", type=int, default=1024, help="tokens")
    parser.add_argument("--rounds", type=int, default=7, help="passes of each")
    parser.add_argument("--threads", type=int, help="default: PyTorch's own choice")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep rows in this file of JSON lines and measure only what it lacks; "
        "all with the same settings",
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page")
    options = parser.parse_args(arguments)
    for name in ("length", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    if options.threads is not None:
        if options.threads < 1:
            parser.error(f"--threads must be at least 1, got {options.threads}")
        torch.set_num_threads(options.threads)
    _quiet()
    kept = _kept(options.resume)
    rows = []
    for model in MODELS:
        for training in (False, True):
            row = kept.get((model.model_type, training))
            if row is not None:
                rows.append(row)
                continue
            if options.models and model.model_type not in options.models:
                continue
            row = measure(model, options.length, options.rounds, training)
            rows.append(row)
            if options.resume is not None:
                with options.resume.open("a") as file:
                    file.write(json.dumps(dataclasses.asdict(row)) + "\n")
            print(f"{row.of}, training {training}: {row.gain:.2f}", file=sys.stderr)
    text = report(rows, options.length, options.rounds)
    if options.json:
        told = [{**dataclasses.asdict(row), "gain": row.gain} for row in rows]
        json.dump({"versions": page.versions(), "rows": told}, sys.stdout, indent=1)
        print()
    else:
        print(text)
    if options.write is not None:
        page.replace(options.write, text)
    return 0


def _kept(path: Path | None) -> dict[tuple[str, bool], Timing]:
    """The rows of earlier runs, by model type and pass."""
    if path is None or not path.exists():
        return {}
    rows = [Timing(**json.loads(line)) for line in path.read_text().splitlines()]
    return {(row.model_type, row.training): row for row in rows}


def _quiet() -> None:
    import transformers

    transformers.logging.set_verbosity_error()


if __name__ == "__main__":
    sys.exit(main())
