# Modules of encodings, written by tools/stubs.py.
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from .biases import Fire as Fire
from .biases import Kerple as Kerple
from .biases import SwinBias as SwinBias
from .biases import T5Bias as T5Bias
from .inputs import Learned as Learned
from .rotary import RopeLearned as RopeLearned
from .rotary import RopeMixed as RopeMixed
from .tables import Deberta as Deberta
from .tables import KeyOffset as KeyOffset
from .tables import Shaw as Shaw
from .tables import TransformerXL as TransformerXL
from .tables import Tupe as Tupe
from .made import TrainedModule
from .module import FixedModule, InputModule, RotaryModule

class NoPosition(FixedModule):
    def __init__(
        self,
    ) -> None: ...

class Index(InputModule):
    def __init__(
        self,
        dim: int,
        mode: Literal["add", "concatenate"] = "add",
    ) -> None: ...

class NormalisedIndex(InputModule):
    def __init__(
        self,
        dim: int,
        mode: Literal["add", "concatenate"] = "add",
        length: int | None = None,
    ) -> None: ...

class Binary(InputModule):
    def __init__(
        self,
        bits: int,
        dim: int = 0,
    ) -> None: ...

class SineOnly(InputModule):
    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
    ) -> None: ...

class Sinusoidal(InputModule):
    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        layout: Literal["interleaved", "halves", "halves-inclusive"] = "interleaved",
        offset: int = 0,
    ) -> None: ...

class Alibi(FixedModule):
    def __init__(
        self,
        heads: int,
        bias_max: float = 8.0,
        slopes: Sequence[float] | None = None,
        future_slopes: Sequence[float] | None = None,
    ) -> None: ...

class Sandwich(FixedModule):
    def __init__(
        self,
        heads: int,
        dim: int = 128,
        base: float = 10000.0,
    ) -> None: ...

class Rope(RotaryModule):
    def __init__(
        self,
        head_dim: int,
        layout: Literal["interleaved", "halves"],
        base: float = 10000.0,
        rotary_dim: int | None = None,
        scaling: Any = None,
        angles: Literal["exact", "float32"] = "exact",
        *,
        place: Literal["leading", "trailing"] = "leading",
        frequencies: Sequence[float] | None = None,
        softmax_factor: float = 1.0,
        temperature_beta: float = 0.0,
        temperature_shift: int = 0,
        temperature_span: int = 8192,
        values: Literal["none", "relative", "absolute"] = "none",
    ) -> None: ...

class Rope2D(RotaryModule):
    def __init__(
        self,
        head_dim: int,
        layout: Literal["interleaved", "halves"],
        width: int,
        base: float = 10000.0,
        frequencies: Literal["shared", "alternating"] = "shared",
    ) -> None: ...

class MRope(RotaryModule):
    def __init__(
        self,
        head_dim: int,
        layout: Literal["interleaved", "halves"],
        sections: Sequence[int],
        dealing: Literal["chunked", "interleaved"] = "chunked",
        base: float = 1000000.0,
    ) -> None: ...

class XPos(FixedModule):
    def __init__(
        self,
        head_dim: int,
        layout: Literal["interleaved", "halves"],
        base: float = 10000.0,
        scale_base: float = 512.0,
        gamma: float = 0.4,
    ) -> None: ...
