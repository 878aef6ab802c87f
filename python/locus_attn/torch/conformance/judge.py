"""Locus against a model's own attention: equal, or one sentence that says why not.

A model is built once on eager attention and once on Locus, by name or, where the
name is refused, by `patch`, with the same weights. Every case then gives the same
numbers, or is refused by a ValueError of one line. Anything else is wrong: other
numbers, any other exception, and an answer without a call of Locus.
"""

from __future__ import annotations

import copy
import dataclasses
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import functional
from ..hf import interface, patching, support
from . import architectures, cases, recipes
from . import inputs as made

# Largest difference in parts of the largest number of a tensor. Both sides compute
# in float32 and differ in the order of their sums: dozens of roundings of 6e-8,
# and as many again on the way back.
TOLERANCE = {"forward": 2e-5, "gradients": 1e-4}
# Ill-conditioned models are allowed so many times what a rounding does to them.
_CONDITION, _EPSILON = 4.0, 2.0**-23
# bf16 is held to the model's own distance from float32, times this.
_BF16_FACTOR = 2.0
_BF16_FLOOR = 2.0**-7

# Cases in which the original itself goes wrong.
FLAWED = {
    # Its windows count from the end of the cache, not from the query.
    ("gpt_neo", "static"),
    ("gpt_neo", "static-left"),
    # It sizes its masks by a layer of the cache that is never filled, so that all
    # keys are hidden from a padded sequence.
    ("recurrent_gemma", "static-left"),
}


@dataclasses.dataclass
class Finding:
    """One case. verdict: equal, refused or wrong; said: why it is not equal."""

    case: str
    verdict: str
    error: float | None = None
    said: str = ""


@dataclasses.dataclass
class Row:
    """One architecture.

    verdict: equal, refused, wrong, does not build, or no attention. way: name or
    patch. sdpa: whether the class supports it; sdpa_error: its largest difference
    from eager attention in the forward pass. reached, attentions: how many modules
    with attention ran on Locus, of how many.
    """

    name: str
    cls: str = ""
    verdict: str = ""
    way: str = ""
    said: str = ""
    sdpa: bool = False
    relative: bool = False
    sdpa_error: float | None = None
    reached: int = 0
    attentions: int = 0
    seconds: float = 0.0
    findings: list[Finding] = dataclasses.field(default_factory=list)


class _Watch:
    """Which modules of a model with attention in their name run, and on Locus.

    A module counts if no part of it that runs is an attention too.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.calls = 0
        self.ran: set[str] = set()
        self.reached: set[str] = set()

    def __enter__(self) -> _Watch:
        inside: list[str] = []

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            self.reached.update(inside)
            return functional.attention(*args, **kwargs)

        def before(name: str) -> Any:
            def hook(*_: Any) -> None:
                self.ran.difference_update(inside)
                self.ran.add(name)
                inside.append(name)

            return hook

        def after(*_: Any) -> None:
            inside.pop()

        self._hooks = []
        for name, module in self.model.named_modules():
            if _is_attention(type(module)):
                self._hooks.append(module.register_forward_pre_hook(before(name)))
                self._hooks.append(
                    module.register_forward_hook(after, always_call=True)
                )
        self._callers = _callers()
        for caller in self._callers:
            caller.attention = counted
        return self

    def __exit__(self, *_: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        for caller in self._callers:
            caller.attention = functional.attention


# A gate for channels, in spite of its name.
_NO_ATTENTION = {"PatchTSMixerGatedAttention"}


def _is_attention(cls: type) -> bool:
    named = any(word in cls.__name__ for word in ("Attention", "Attn"))
    return named and cls.__name__ not in _NO_ATTENTION


def _callers() -> list[Any]:
    """Where fused attention is called from: the interface, and what patch installs."""
    names = sorted({*support.PATCHED.values()})
    return [interface, *(patching.load(name) for name in names)]


def difference(got: list[Tensor], want: list[Tensor], stepwise: bool = False) -> float:
    """The largest, in parts of the largest number of its tensor.

    A tensor that cancels to less counts as a part of the largest of all. stepwise:
    of generated tokens, only the steps up to the first where rounding decided.
    """
    if [t.shape for t in got] != [t.shape for t in want]:
        return float("inf")
    sizes = [float(w[w.isfinite()].abs().max()) if w.numel() else 0.0 for w in want]
    least = max(sizes, default=0.0) / 256
    worst = 0.0
    for a, b, size in zip(got, want, sizes, strict=True):
        same = (a == b) | (a.isnan() & b.isnan())
        gap = torch.where(same, 0.0, (a.double() - b.double()).abs())
        if gap.numel():
            worst = max(
                worst,
                float(gap.nan_to_num(float("inf")).max()) / max(size, least, 1e-30),
            )
        if stepwise and not torch.equal(a.argmax(-1), b.argmax(-1)):
            break
    return worst


def refusal(reason: BaseException) -> str | None:
    """The sentence of a refusal by Locus; None for any other exception."""
    frames = traceback.extract_tb(reason.__traceback__)
    package = str(Path(functional.__file__).parents[1])
    said = str(reason)
    ours = bool(frames) and frames[-1].filename.startswith(package)
    if isinstance(reason, ValueError) and ours and "\n" not in said:
        return said
    return None


def _told(reason: BaseException) -> str:
    words = " ".join(str(reason).split())[:160]
    frames = traceback.extract_tb(reason.__traceback__)
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(reason).__name__} at {place}: {words}"


def examine(architecture: architectures.Architecture) -> Row:
    """All cases of one architecture."""
    started = time.monotonic()
    row = Row(architecture.name)
    try:
        _examine(architecture, row)
    finally:
        row.seconds = round(time.monotonic() - started, 1)
    return row


def _examine(architecture: architectures.Architecture, row: Row) -> None:
    made_ = _first_that_runs(architecture, row)
    if made_ is None:
        return
    make, model, given = made_
    row.verdict = row.said = ""
    with _Watch(copy.deepcopy(model)) as watch, torch.no_grad():
        cases.CASES["forward"].run(watch.model, given)
    row.attentions = len(watch.ran)
    locus = _on_locus(make, model, row)
    if locus is None:
        if row.verdict == "refused" and row.attentions == 0:
            row.verdict = "no attention"
        return
    peer = _peer(make, model) if row.sdpa else None
    for finding in _findings(model, locus, peer, given, row):
        row.findings.append(finding)
        if row.verdict == "no attention":
            return
    _conclude(row)


def _first_that_runs(
    architecture: architectures.Architecture, row: Row
) -> tuple[Any, Any, made.Inputs] | None:
    """The maker of a model, the model on eager attention, and inputs it takes."""
    for make in architecture.makers:
        try:
            model = architectures.respread(make("eager"))
            row.cls = type(model).__name__
            row.sdpa = bool(getattr(type(model), "_supports_sdpa", False))
            row.relative = _relative(type(model))
            return make, model, _accepted(model)
        except Exception as reason:
            if not row.said:
                row.verdict, row.said = "does not build", str(reason)[:300]
    return None


def _conclude(row: Row) -> None:
    """The worst verdict of its cases is that of a model."""
    row.verdict = "equal"
    for verdict in ("refused", "wrong"):
        for finding in row.findings:
            if finding.verdict == verdict and row.verdict != verdict:
                row.verdict = verdict
                row.said = f"{finding.case}: {finding.said}"


def _accepted(model: Any) -> made.Inputs:
    """The first inputs that the model accepts on its own attention."""
    first = None
    for given in recipes.candidates(model):
        try:
            with torch.no_grad():
                found = cases.CASES["forward"].run(copy.deepcopy(model), given)
        except Exception as reason:
            first = first or _told(reason)
            continue
        if found and not any(bool(t.isnan().any()) for t in found):
            return given
        first = first or "its own attention gives no numbers"
    words = first or f"no inputs are known for {model.main_input_name}"
    raise architectures.CannotBuild(f"the small model does not run: {words}")


def _on_locus(make: Any, model: Any, row: Row) -> Any:
    """The same model by name, else by patch; None if both are refused."""
    try:
        locus = make(interface.NAME)
        locus.load_state_dict(model.state_dict())
        row.way = "name"
        return locus
    except Exception as reason:
        by_name = refusal(reason)
        if by_name is None:
            row.verdict, row.said = "wrong", f"building: {_told(reason)}"
            return None
    try:
        locus = patching.patch(copy.deepcopy(model))
        row.way = "patch"
        return locus
    except Exception as reason:
        by_patch = refusal(reason)
        if by_patch is None:
            row.verdict, row.said = "wrong", f"patch: {_told(reason)}"
        else:
            row.verdict, row.said = "refused", by_name
    return None


def _peer(make: Any, model: Any) -> Any:
    """The same model on sdpa, None if a part of it cannot."""
    try:
        peer = make("sdpa")
        peer.load_state_dict(model.state_dict())
        return peer
    except Exception:
        return None


def _closest(
    got: list[Tensor], case: cases.Case, peer: Any, given: made.Inputs, steps: bool
) -> float:
    """How far a result is from that of sdpa."""
    if peer is None:
        return float("inf")
    try:
        with torch.no_grad():
            want = case.run(copy.deepcopy(peer), given)
    except Exception:
        return float("inf")
    return difference(got, want, stepwise=steps)


def _findings(
    model: Any, locus: Any, peer: Any, given: made.Inputs, row: Row
) -> Iterator[Finding]:
    for name, case in cases.CASES.items():
        if case.generates and not _writes(model, given):
            continue
        if (row.name, name) in FLAWED or not case.applies(model, given):
            continue
        if name == "bf16":
            yield from _bf16(model, locus, peer, given)
            continue
        # Cases run on copies, for some models keep a state from call to call.
        try:
            with torch.no_grad():
                want = case.run(copy.deepcopy(model), given)
        except Exception:
            continue  # Not every original takes every case.
        if not want or not all(bool(t.isfinite().any()) for t in want if t.numel()):
            continue
        with _Watch(copy.deepcopy(locus)) as watch, torch.no_grad():
            try:
                got = case.run(watch.model, given)
            except Exception as reason:
                yield _failed(name, reason)
                continue
        if name == "forward":
            row.reached = len(watch.ran & watch.reached)
            if watch.calls == 0 and row.attentions == 0:
                row.verdict = "no attention"
                yield Finding(name, "equal", 0.0)
                return
        steps = case.generates and name != "beam"
        error = difference(got, want, stepwise=steps)
        allowed = TOLERANCE.get(name, TOLERANCE["forward"])
        if name == "forward" and peer is not None:
            row.sdpa_error = _closest(want, case, peer, given, steps)
        if error > allowed:
            # Where transformers' own two disagree, as on what padding gives, sdpa
            # is as good a judge.
            error = min(error, _closest(got, case, peer, given, steps))
        if error > allowed:
            moved = _moved(model, case, given)
            allowed = max(allowed, _CONDITION * difference(moved, want, stepwise=steps))
        if watch.calls == 0:
            yield Finding(name, "wrong", said="Locus was never called")
        elif error <= allowed:
            yield Finding(name, "equal", error)
        else:
            yield Finding(name, "wrong", error, f"off by {error:.2g}")


def _writes(model: Any, given: made.Inputs) -> bool:
    """Whether a model generates token by token; those that only hear do it at once."""
    text = "input_ids" in given or model.config.is_encoder_decoder
    return text and model.can_generate()


def _moved(model: Any, case: cases.Case, given: made.Inputs) -> list[Tensor]:
    """What the original gives when each of its weights moves by a rounding.

    Some models, such as those with batch norms of random weights, multiply every
    rounding by millions; no two orders of summation agree then.
    """
    model = copy.deepcopy(model)
    torch.manual_seed(17)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + _EPSILON * torch.randn_like(p))
        return case.run(model, given)


def _failed(case: str, reason: Exception) -> Finding:
    said = refusal(reason)
    if said is not None:
        return Finding(case, "refused", said=said)
    return Finding(case, "wrong", said=_told(reason))


def _bf16(model: Any, locus: Any, peer: Any, given: made.Inputs) -> Iterator[Finding]:
    """Root mean squares of the differences from float32: the original's and Locus's."""
    run = cases.CASES["bf16"].run
    low = {
        k: v.bfloat16() if isinstance(v, Tensor) and v.is_floating_point() else v
        for k, v in given.items()
    }

    def distance(of: Any, want: list[Tensor]) -> float:
        found = run(copy.deepcopy(of).bfloat16(), low)
        pairs = zip(found, want, strict=True)
        gap = torch.cat([(a.double() - b.double()).flatten() for a, b in pairs])
        size = torch.cat([b.double().flatten() for b in want])
        ok = gap.isfinite()
        return float(gap[ok].square().mean().sqrt() / size[ok].square().mean().sqrt())

    with torch.no_grad():
        try:
            want = run(copy.deepcopy(model), given)
            own = distance(model, want)
            if peer is not None:
                own = max(own, distance(peer, want))
        except Exception:
            return
        try:
            error = distance(locus, want)
        except Exception as reason:
            yield _failed("bf16", reason)
            return
    if error <= max(_BF16_FACTOR * own, _BF16_FLOOR):
        yield Finding("bf16", "equal", error)
    else:
        said = f"off by {error:.2g}, the original by {own:.2g}"
        yield Finding("bf16", "wrong", error, said)


def _relative(cls: type) -> bool:
    """Whether the file of a class speaks of sinks or of relative positions."""
    text = " ".join(support.sources(cls.__module__).values())
    return any(word in text for word in ("sinks", "relative", "rel_pos", "alibi"))
