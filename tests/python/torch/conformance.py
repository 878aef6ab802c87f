"""Locus against a model's own attention: equal, or one sentence that says why not.

`examine(model_type)` builds a small random model twice, once on eager attention,
and compares the logits of every case: padding, caches, generation. A model that
Locus cannot run must say so by a ValueError; any other exception is a defect and
comes through.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tiny
import torch

import locus.torch as lt
import models
from locus.torch.hf import bloom, deberta, interface, t5, xlnet

# Largest difference of logits, in parts of the largest logit. Both sides compute
# in float32 and differ in the order of their sums: dozens of roundings of 6e-8.
TOLERANCE = 2e-5

# Models without attention of this kind: there is nothing for Locus to run.
NO_ATTENTION = {"falcon_mamba", "fnet", "mamba", "mamba2"}

# Cases in which the original itself goes wrong.
FLAWED = {
    # It sizes its masks by a layer of the cache that is never filled, so that all
    # keys are hidden from a padded sequence.
    ("recurrent_gemma", "static-left"),
}

_KEPT = (tiny.LENGTH, 12)
_NEW_TOKENS = 4


@dataclasses.dataclass
class Finding:
    """One model, one case. error: of the logits; said: why it was refused."""

    model_type: str
    case: str
    error: float | None = None
    said: str = ""

    @property
    def verdict(self) -> str:
        return "refused" if self.said else "equal" if self.equal else "WRONG"

    @property
    def equal(self) -> bool:
        return self.error is not None and self.error <= TOLERANCE


# Where a fused attention is called from: the interface, and what patch installs.
_CALLERS = (interface, bloom, deberta, t5, xlnet)


class _Count:
    """How often the fused attention runs inside."""

    def __enter__(self) -> _Count:
        self.calls = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return lt.attention(*args, **kwargs)

        for caller in _CALLERS:
            caller.attention = counted
        return self

    def __exit__(self, *_: Any) -> None:
        for caller in _CALLERS:
            caller.attention = lt.attention


def _padding(side: str | None) -> dict[str, torch.Tensor]:
    if side is None:
        return {}
    return {"attention_mask": models.padding(list(_KEPT), tiny.LENGTH, side)}


def _forward(side: str | None) -> Callable[[Any], list[torch.Tensor]]:
    def run(model: Any) -> list[torch.Tensor]:
        inputs = {"input_ids": tiny.tokens(), "use_cache": False, **_padding(side)}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = tiny.tokens()[:, :11]
        logits = model(**inputs)[0]
        if side is not None and logits.shape[:2] == (2, tiny.LENGTH):
            return [logits[inputs["attention_mask"].bool()]]
        return [logits]

    return run


def _generate(side: str | None, cache: str | None) -> Callable[[Any], Any]:
    def run(model: Any) -> list[torch.Tensor]:
        made = model.generate(
            tiny.tokens(),
            **_padding(side),
            cache_implementation=cache,
            max_new_tokens=_NEW_TOKENS,
            min_new_tokens=_NEW_TOKENS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
            disable_compile=True,
        )
        return list(made.logits)

    return run


FORWARD = {
    "forward": _forward(None),
    "right": _forward("right"),
    "left": _forward("left"),
}
GENERATION = {
    "generate": _generate("left", None),
    "static": _generate(None, "static"),
    "static-left": _generate("left", "static"),
}


def difference(got: list[torch.Tensor], want: list[torch.Tensor]) -> float:
    """The largest, in parts of the largest logit.

    Of generated tokens, only the steps up to the first where rounding decided.
    """
    largest = max(float(w.abs().max()) for w in want)
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        worst = max(worst, float((a - b).abs().max()) / largest)
        if a.dim() == 2 and not torch.equal(a.argmax(-1), b.argmax(-1)):
            break
    return worst


@functools.lru_cache(maxsize=1)
def original(model_type: str) -> Any:
    """The model on eager attention. The last one is kept for the next question."""
    return models.respread(tiny.build(model_type, "eager"), models.SPREAD)


def references(model_type: str, cases: dict[str, Any]) -> dict[str, Any]:
    """The logits of the original in each case that it can.

    Cases run on copies, for some models keep a state from call to call.
    """
    model, want = original(model_type), {}
    for case, run in cases.items():
        if case in GENERATION and not model.can_generate():
            continue
        if (model_type, case) in FLAWED:
            continue
        try:
            with torch.no_grad():
                want[case] = run(copy.deepcopy(model))
        except Exception:
            # Not every original takes every cache, but all run.
            if case == "forward":
                raise
    return want


@functools.lru_cache(maxsize=1)
def by_name(model_type: str) -> Any:
    """The same model with attn_implementation="locus"."""
    model = tiny.build(model_type, "locus")
    model.load_state_dict(original(model_type).state_dict())
    return model


def by_patch(model_type: str) -> Any:
    return lt.patch(copy.deepcopy(original(model_type)))


def examine(
    model_type: str,
    cases: dict[str, Callable[[Any], list[torch.Tensor]]],
    make: Callable[[str], Any] = by_name,
) -> Iterator[Finding]:
    """A finding per case; a single one if the model is refused as it is built."""
    try:
        model = make(model_type)
    except ValueError as refused:
        yield Finding(model_type, "build", said=str(refused))
        return
    for case, expected in references(model_type, cases).items():
        with _Count() as count, torch.no_grad():
            try:
                error = difference(cases[case](copy.deepcopy(model)), expected)
            except ValueError as refused:
                yield Finding(model_type, case, said=str(refused))
                continue
        if count.calls == 0 and model_type not in NO_ATTENTION:
            error = float("inf")
        yield Finding(model_type, case, error)


def table(findings: list[Finding]) -> str:
    """How many models are equal, case by case, and what was said of the others."""
    lines = ["case           equal  refused  wrong"]
    for case in dict.fromkeys(f.case for f in findings):
        count = collections.Counter(f.verdict for f in findings if f.case == case)
        if count:
            numbers = [count[v] for v in ("equal", "refused", "WRONG")]
            lines.append("{:<13} {:>6} {:>8} {:>6}".format(case, *numbers))
    lines += [f"{f.model_type}, {f.case}: {f.said}" for f in findings if f.said]
    return "\n".join(lines)


def assert_one_sentence(finding: Finding) -> None:
    """A refusal is a line that names the model or its attention."""
    if not finding.said:
        return
    assert "\n" not in finding.said, finding
    cls = type(original(finding.model_type)).__name__
    stem = cls.split("For")[0].removesuffix("LMHeadModel").removesuffix("WithLMHead")
    named = (stem, finding.model_type)
    assert any(name.lower() in finding.said.lower() for name in named), finding
