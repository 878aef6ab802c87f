"""Encodings of your own: any function of the offset m - n, trained by autograd.

    class Gaussian(nn.Module):
        def __init__(self, heads):
            super().__init__()
            self.sigma = nn.Parameter(torch.linspace(2, 16, heads))

        def forward(self, offsets):                      # int64 [n]
            return -(offsets**2) / (2 * self.sigma[:, None] ** 2)

    bias = RelativeBias(Gaussian(8), heads=8)
    out = bias(q, k, v, causal=True)

The function is called once per call of attention, on the O(N) offsets that occur,
and not on the N^2 pairs; the fused engine takes what it returns as a table by
offset and gives back the gradient of that table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import locus_attn as locus
from locus_attn import _locus

from . import offsets as offsets_of
from .functional import attention
from .kinds import Encoding, describe
from .module import EncodingModule

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Of a table that is asked for without a call: past any length that attention can
# run.
_MOST_OFFSETS = 1 << 27
# A function of the offset: int64 [n] -> [heads, n] or [heads, n, D].
OffsetFunction = Callable[[Tensor], Tensor]


class TermsModule(EncodingModule):
    """Terms whose arrays are tensors of PyTorch, computed anew for each call.

    names: of the arguments of `locus.Terms` that `arrays` gives. by_offset: whether
    these depend on the offsets of the call.
    """

    names: tuple[str, ...] = ()
    by_offset = True

    def __init__(self, settings: dict[str, Any], **shown: Any) -> None:
        own = (*self.names, "offsets") if self.by_offset else self.names
        ends = {"clip": False} if self.by_offset else {}
        super().__init__(describe("Terms", *own, **settings, **ends), **shown)
        self.settings = settings

    def arrays(self, offsets: Tensor) -> list[Tensor]:
        """The arrays of `names`, for these offsets."""
        raise NotImplementedError

    def row(self, head_dim: int) -> int:
        """How many numbers there are per offset and head."""
        return 1

    def at(self, offsets: Tensor) -> Encoding:
        """The encoding over these offsets, int64 [n], which must rise by one."""
        own = [offsets] if self.by_offset else []
        return Encoding(self.kind, [*self.arrays(offsets), *own])

    def for_call(self, call: offsets_of.Call, head_dim: int) -> Encoding:
        """The encoding over the offsets that occur in a call."""
        if not self.by_offset:
            return self.encoding()
        return self.at(offsets_of.of_call(call, self.row(head_dim)))

    def encoding(
        self, first_offset: int | None = None, last_offset: int | None = None
    ) -> Encoding:
        """The encoding for offsets first_offset .. last_offset, both included.

        For what asks for an encoding without a call: `.native()` of it is a
        `locus.Terms`, which a KvCache takes. Another offset is a ValueError there.
        """
        if not self.by_offset:
            return self.at(torch.empty(0, dtype=torch.int64))
        if first_offset is None or last_offset is None:
            raise TypeError(
                f"{type(self).__name__} is evaluated on the offsets of a call, which "
                f"are not known here: name them, as encoding(first_offset, last_offset)"
            )
        first_offset = _locus._int("first_offset", first_offset)
        last_offset = _locus._int("last_offset", last_offset)
        if last_offset - first_offset >= _MOST_OFFSETS:
            raise ValueError(
                f"offsets {first_offset} .. {last_offset} are too many for one table: "
                f"at most {_MOST_OFFSETS}"
            )
        if first_offset > last_offset:
            raise ValueError(
                f"first_offset must not be above last_offset, got {first_offset} and "
                f"{last_offset}"
            )
        return self.at(torch.arange(first_offset, last_offset + 1))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """`locus.torch.attention(q, k, v, self, **options)`."""
        return attention(q, k, v, self, **options)


class _OfOffset(TermsModule):
    """One table by offset, from a function."""

    axes = ""

    def __init__(self, fn: OffsetFunction, heads: int) -> None:
        if not callable(fn):
            raise TypeError(
                f"fn must be a function of the offsets, got {_locus._shown(fn)}"
            )
        heads = _locus._int("heads", heads)
        if heads < 1:
            raise ValueError(f"heads must be at least 1, got {heads}")
        super().__init__({}, heads=heads)
        self.heads = heads
        self.fn = fn

    def arrays(self, offsets: Tensor) -> list[Tensor]:
        table = self.fn(offsets)
        self._check(table, offsets)
        return [table]

    def _check(self, table: Any, offsets: Tensor) -> None:
        name = type(self).__name__
        if not isinstance(table, Tensor):
            raise TypeError(
                f"the function of {name} must return a torch.Tensor, got "
                f"{_locus._shown(table)}"
            )
        if table.dtype not in _DTYPES or table.layout != torch.strided:
            dense = table.layout == torch.strided
            raise TypeError(
                f"the function of {name} must return float32, bfloat16 or float16, got "
                f"{table.dtype if dense else table.layout}"
            )
        if table.device.type != "cpu":
            raise ValueError(
                f"the function of {name} must return a tensor on the CPU, got device "
                f"{table.device}"
            )
        rank = 2 + bool(self.axes)
        if (
            table.dim() != rank
            or table.shape[0] != self.heads
            or table.shape[1] != offsets.shape[0]
        ):
            raise ValueError(
                f"the function of {name} must return [{self.heads} heads, "
                f"{offsets.shape[0]} offsets{self.axes}], got {list(table.shape)}"
            )
        _check_finite(name, table, offsets)


def _check_finite(name: str, table: Tensor, offsets: Tensor) -> None:
    """The engine refuses such a table too, but cannot say where it comes from."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return
    with torch.no_grad():
        wrong = ~torch.isfinite(table.flatten(2) if table.dim() > 2 else table)
        if not bool(wrong.any()):
            return
        head, at = wrong.nonzero()[0, :2].tolist()
        values = table[head, at].reshape(-1)
        value = float(values[~torch.isfinite(values)][0])
    raise ValueError(
        f"the function of {name} must return finite numbers, got {value} at offset "
        f"{int(offsets[at])} of head {head}"
    )


class RelativeBias(_OfOffset):
    """s_ij + fn(m - n)[h]: a bias by offset.

    fn: any differentiable function or module, offsets m - n int64 [n] to
    [heads, n] of float32, bfloat16 or float16. A module's parameters are parameters
    of this one, `fn.*` in its state_dict.
    """

    names = ("bias",)


class RelativeKeys(_OfOffset):
    """s_ij = scale q_i.(k_j + fn(m - n)[h]), as Shaw et al. (2018) with a table.

    fn: int64 [n] to [heads, n, D]; heads = 1 is shared by all heads.
    """

    names = ("q_table",)
    axes = ", head_dim"

    def row(self, head_dim: int) -> int:
        return head_dim


class RelativeValues(_OfOffset):
    """o_i = sum_j p_ij (v_j + fn(m - n)[h]).

    fn: int64 [n] to [heads, n, Dv]; heads = 1 is shared by all heads.
    """

    names = ("v_table",)
    axes = ", head_dim"

    def row(self, head_dim: int) -> int:
        return head_dim


class Rotary(TermsModule):
    """Rotates pair p of q and k by m frequencies[p], or by all coordinates of m.

    frequencies: [pairs], [pairs, axes] or, for each key head, [heads, pairs, axes],
    radians per position: numbers, a tensor, which becomes the parameter
    `frequencies` (a buffer with trainable=False), or a function without arguments
    that makes one for each call. layout: "interleaved" pairs (2p, 2p + 1) or
    "halves" (p, p + pairs); it has no default. axes: for each axis (divisor,
    modulus) or (divisor, modulus, offset); the coordinate is position // divisor %
    modulus + offset, and modulus 0 is none. A raster of rows of w tokens has
    axes=[(w, 0), (1, w)]. rotation: what else `locus.Terms` takes under that name,
    such as first_channel or gain.
    """

    names = ("theta",)
    by_offset = False

    def __init__(
        self,
        frequencies: Tensor | Sequence[float] | Callable[[], Tensor],
        layout: str,
        *,
        axes: Sequence[Sequence[float]] | None = None,
        trainable: bool = True,
        **rotation: Any,
    ) -> None:
        if axes is not None:
            rotation = {"axes": [list(axis) for axis in axes], **rotation}
        settings = {"layout": layout, "rotation": rotation or None}
        super().__init__(settings, layout=layout, **rotation)
        self.fn = None
        if isinstance(frequencies, nn.Parameter):
            self.frequencies = frequencies
        elif callable(frequencies):
            self.fn = frequencies
        else:
            if frequencies is None:
                raise TypeError("frequencies must be numbers, got None")
            if not isinstance(frequencies, Tensor):
                native = locus.Terms(theta=frequencies, **settings)
                frequencies = torch.tensor(native.params()["theta"])
                frequencies = frequencies.to(torch.get_default_dtype())
            own = frequencies.detach().clone()
            if trainable:
                self.frequencies = nn.Parameter(own)
            else:
                self.register_buffer("frequencies", own)
        # Wrong settings fail here, not at the first call.
        self.encoding().native()

    def arrays(self, offsets: Tensor) -> list[Tensor]:
        theta = self.frequencies if self.fn is None else self.fn()
        if not isinstance(theta, Tensor) or not theta.is_floating_point():
            raise TypeError(
                f"frequencies must be a tensor of floats, got "
                f"{theta.dtype if isinstance(theta, Tensor) else _locus._shown(theta)}"
            )
        return [theta]


class Combined(TermsModule):
    """Several of the modules of this file as one encoding, such as a bias and a
    rotation.

    Each brings other terms: two biases are the sum of two functions.
    """

    def __init__(self, *parts: TermsModule) -> None:
        for part in parts:
            if not isinstance(part, TermsModule):
                raise TypeError(
                    f"Combined takes RelativeBias, RelativeKeys, RelativeValues and "
                    f"Rotary, got {_locus._shown(part)}"
                )
        names = [name for part in parts for name in part.names]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"two of the parts bring the same term: {min(twice)}")
        if not parts:
            raise ValueError("Combined needs at least one part, got none")
        self.names = tuple(names)
        self.by_offset = any(part.by_offset for part in parts)
        settings = {n: x for part in parts for n, x in part.settings.items()}
        super().__init__(settings)
        self.parts = nn.ModuleList(parts)

    def arrays(self, offsets: Tensor) -> list[Tensor]:
        return [x for part in self.parts for x in part.arrays(offsets)]

    def row(self, head_dim: int) -> int:
        return max(part.row(head_dim) for part in self.parts)
