"""Attention that a module writes out: a product, a softmax, a product.

    softmax(scale q.k^T + bias) v

Many models compute this with operations of PyTorch, and add biases of their own:
windows of Swin, decomposed positions of SAM, relative positions of Conformers. While
such a module runs, a product of two tensors is deferred, and so is what may follow it
up to the second product: a factor, a bias or a mask, the softmax, dropout. The second
product then runs fused attention, and the scores and weights of all pairs never
exist. A bias per pair that the module makes stays one, with its gradient.

Any other operation on what was deferred computes it first, as the module itself would.
A module whose attention cannot be deferred as a whole is refused when it runs.
"""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..functional import attention
from . import support
from .interface import dropout_of, visibility_of, weights_asked
from .masks import Visibility
from .patching import Swaps

# Numbers from here on hide a pair: their exponential is 0 beside any other.
_HIDES = -1e4

# What changes the shape and keeps the order.
_RESHAPES = frozenset({"view", "reshape", "unflatten", "flatten", "squeeze"})
_RESHAPES |= {"unsqueeze"}
# What changes the type or the layout alone; the result has that of the values.
_CASTS = frozenset({"to", "float", "type", "type_as", "contiguous", "clone"})
_CASTS |= {"half", "bfloat16"}
_SUMS = frozenset({"add", "__add__", "__radd__", "add_", "__iadd__"})
_FACTORS = frozenset({"mul", "__mul__", "__rmul__", "mul_", "__imul__"})
_FACTORS |= {"multiply"}
_QUOTIENTS = frozenset({"div", "__truediv__", "div_", "__itruediv__", "true_divide"})
_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm"})


def install(model: nn.Module, swaps: Swaps) -> None:
    for module in model.modules():
        if support.patched_by(type(module)) == "captured":
            asked = list(inspect.signature(module.forward).parameters)
            place = asked.index("output_attentions") if _ASKED in asked else None
            forward = functools.partial(_forward, module, module.forward, place)
            swaps.set(module, "forward", forward)
            if hasattr(module, "cogview_attention"):
                # The same softmax, by way of the largest score of a row.
                swaps.set(module, "cogview_attention", _softmax)


_ASKED = "output_attentions"


def _softmax(scores: Any, alpha: float = 0.0) -> Any:
    return nn.functional.softmax(scores, dim=-1)


@torch.compiler.disable
def _forward(
    module: Any, original: Any, place: int | None, *args: Any, **kwargs: Any
) -> Any:
    """The original forward of a module, with its attention captured.

    place: of output_attentions among the arguments.
    """
    asked = kwargs.get(_ASKED)
    if place is not None and place < len(args):
        asked = args[place]
    capture = _Capture(module)
    with capture:
        result = original(*args, **kwargs)
    if not capture.runs:
        why = f" ({capture.broken})" if capture.broken else ""
        raise ValueError(
            f"patch cannot capture the attention of {type(module).__name__}{why}; "
            f"call locus.torch.unpatch(model) and leave it on its own attention"
        )
    return _settled(result, weights_asked(asked))


def _settled(result: Any, asked: bool) -> Any:
    """The results of a module; weights only where they are asked for."""
    if isinstance(result, _Pending):
        return result.dense() if asked or not result.is_weights else None
    if isinstance(result, tuple) and type(result) is tuple:
        return tuple(_settled(part, asked) for part in result)
    if isinstance(result, list):
        return [_settled(part, asked) for part in result]
    return result


class _Pending:
    """scale q.k^T + bias, or its softmax, not computed yet.

    q [..., Lq, D], k [..., Lk, D] with the same leading axes; biases: tensors that
    broadcast to [..., Lq, Lk]; hidden: bool, true where a pair does not see each
    other; seen: the mask of a whole model, where it is added. is_weights: whether
    the softmax is taken; drop: the dropout of weights.
    """

    def __init__(self, capture: _Capture, q: Tensor, k: Tensor) -> None:
        self.capture = capture
        lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        self.q = q.expand(*lead, *q.shape[-2:])
        self.k = k.expand(*lead, *k.shape[-2:])
        self.scale = 1.0
        self.biases: list[Tensor] = []
        self.hidden: Tensor | None = None
        self.seen: Visibility | None = None
        self.is_weights = False
        self.drop = 0.0
        self._dense: Tensor | None = None

    def copy(self) -> _Pending:
        other = _Pending(self.capture, self.q, self.k)
        other.__dict__.update(self.__dict__, biases=list(self.biases), _dense=None)
        return other

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.q.shape[:-1], self.k.shape[-2]))

    def dense(self) -> Tensor:
        if self._dense is None:
            scores = self.q @ self.k.transpose(-1, -2)
            scores = scores if self.scale == 1.0 else scores * self.scale
            for bias in self.biases:
                scores = scores + bias
            hidden = self._all_hidden()
            if hidden is not None:
                scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
            if self.is_weights:
                scores = nn.functional.softmax(scores, dim=-1)
                scores = nn.functional.dropout(scores, self.drop, self.drop > 0)
            self._dense = scores
        return self._dense

    def _all_hidden(self) -> Tensor | None:
        if self.seen is None:
            return self.hidden
        hidden = ~self.seen.fit(*self.shape[-2:]).dense()
        return hidden if self.hidden is None else self.hidden | hidden

    def reshaped(self, shape: torch.Size) -> _Pending | None:
        """The same with other leading axes, None if it is not that."""
        own = self.shape
        if len(shape) < 3 or shape[-2:] != own[-2:]:
            return None
        other = self.copy()
        other.q = self.q.reshape(*shape[:-1], self.q.shape[-1])
        other.k = self.k.reshape(*shape[:-2], *self.k.shape[-2:])
        other.biases = [_spread(x, own, shape) for x in self.biases]
        hidden, other.seen = self._all_hidden(), None
        if hidden is not None:
            other.hidden = _spread(hidden, own, shape)
        return other

    # What a module asks a tensor for without computing with it.
    @property
    def dtype(self) -> torch.dtype:
        return self.q.dtype

    @property
    def device(self) -> torch.device:
        return self.q.device

    @property
    def ndim(self) -> int:
        return self.q.dim()

    def dim(self) -> int:
        return self.q.dim()

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def __getattr__(self, name: str) -> Any:
        method = getattr(Tensor, name, None)
        if name.startswith("__") or method is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        if not callable(method):
            return getattr(self.dense(), name)
        return functools.partial(self.capture.run, method, self)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Outside of the module that made it, it is a tensor like others."""
        return function(*_plain(args), **_plain(kwargs or {}))


def _dunder(name: str) -> Any:
    method = getattr(Tensor, name)

    def call(self: _Pending, *args: Any) -> Any:
        return self.capture.run(method, self, *args)

    return call


for _name in ("add", "radd", "iadd", "sub", "rsub", "mul", "rmul", "imul"):
    setattr(_Pending, f"__{_name}__", _dunder(f"__{_name}__"))
for _name in ("truediv", "itruediv", "matmul", "getitem", "neg"):
    setattr(_Pending, f"__{_name}__", _dunder(f"__{_name}__"))


def _plain(value: Any) -> Any:
    if isinstance(value, _Pending):
        return value.dense()
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return value


def _spread(x: Tensor, own: torch.Size, shape: torch.Size) -> Tensor:
    """A tensor that broadcasts to `own`, such that it broadcasts to `shape`."""
    x = x[(None,) * (len(own) - x.dim())]
    if x.shape[:-2].numel() == 1:
        return x.reshape(*[1] * (len(shape) - 2), *x.shape[-2:])
    lead = x.expand(*own[:-2], *x.shape[-2:])
    return lead.reshape(*shape[:-2], *x.shape[-2:])


class _Capture(TorchFunctionMode):
    """Puts off the products of one call of a module.

    runs: how often fused attention ran. broken: the operation that made weights
    or scores exist.
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module
        self.runs = 0
        self.broken = ""
        self._busy = False

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._busy:
            return function(*args, **kwargs)
        return self.run(function, *args, **kwargs)

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """A function of torch, deferred if it can be."""
        busy, self._busy = self._busy, True
        try:
            return self._run(function, args, kwargs)
        finally:
            self._busy = busy

    def _run(self, function: Any, args: Any, kwargs: Any) -> Any:
        name = getattr(function, "__name__", "")
        found = self._found(name, args, kwargs)
        if found is not None:
            return found
        pending = [x for x in (*args, *kwargs.values()) if isinstance(x, _Pending)]
        if any(x.is_weights for x in pending):
            self.broken = self.broken or f"it computes {name} of its weights"
        elif name == "softmax":
            self.broken = self.broken or "its softmax is not of products and biases"
        return function(*_plain(args), **_plain(kwargs))

    def _found(self, name: str, args: Any, kwargs: Any) -> Any:
        """What stands for a deferred result; None: it is computed."""
        if name == "einsum":
            return self._einsum(args, kwargs)
        if name == "scaled_dot_product_attention":
            return self._whole(*args, **kwargs)
        if name == "baddbmm" and _both_tensors(args[1:3]):
            bias, a, b = args[:3]
            made = _Pending(self, a, b.transpose(-1, -2))
            made.scale = float(kwargs.get("alpha", 1))
            if beta := kwargs.get("beta", 1):
                made.biases.append(bias * beta)
            return made
        if name in _PRODUCTS and len(args) == 2:
            if _both_tensors(args):
                return _Pending(self, args[0], args[1].transpose(-1, -2))
            if _is_weights(args[0]) and isinstance(args[1], Tensor):
                return self._attend(args[0], args[1])
            return None
        if not any(isinstance(x, _Pending) for x in args[:3]):
            return None
        if name in ("reshape_as", "view_as") and isinstance(args[0], Tensor):
            return args[0].reshape(args[1].shape)
        if name == "type_as" and isinstance(args[0], Tensor):
            return args[0].to(args[1].dtype)
        made = self._followed(name, args, kwargs)
        if made is not None and name.endswith("_") and not name.startswith("__"):
            args[0].__dict__.update(made.__dict__)
            return args[0]
        return made

    def _followed(self, name: str, args: Any, kwargs: Any) -> _Pending | None:
        """What an operation makes of scores or weights, if that can wait too."""
        first = args[0]
        if name in _CASTS and isinstance(first, _Pending):
            return first
        if name in _RESHAPES and isinstance(first, _Pending):
            empty = torch.empty(first.shape, device="meta")
            shape = getattr(empty, name)(*args[1:], **kwargs).shape
            return first.reshaped(shape)
        if name in ("dropout", "dropout_") and _is_weights(first):
            return _dropped(first, *args[1:], **kwargs)
        if name in ("masked_fill", "masked_fill_") and _is_weights(first):
            return _zeroed(first, *args[1:], **kwargs)
        if any(_is_weights(x) for x in args):
            return None
        if name in ("softmax", "_softmax") and isinstance(first, _Pending):
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis not in (-1, first.dim() - 1):
                return None
            made = first.copy()
            made.is_weights = True
            return made
        if name in _SUMS and len(args) == 2 and not kwargs:
            return _added(*args)
        if name in ("sub", "__sub__") and isinstance(first, _Pending):
            other = args[1] if len(args) == 2 and not kwargs else None
            return _added(first, -other) if isinstance(other, Tensor) else None
        if name in _FACTORS and len(args) == 2:
            return _multiplied(*args)
        if name in _QUOTIENTS and len(args) == 2 and isinstance(first, _Pending):
            return _multiplied(first, _inverse(args[1]))
        if name in ("masked_fill", "masked_fill_") and isinstance(first, _Pending):
            return _hidden(first, args[1], args[2] if len(args) > 2 else kwargs)
        if name == "where" and len(args) == 3 and isinstance(args[1], _Pending):
            return _hidden(args[1], ~args[0], args[2])
        if name in ("max", "maximum") and isinstance(first, _Pending):
            # Keeps what a mask adds from overflowing.
            number = _number(args[1]) if len(args) == 2 else None
            return first if number is not None and number <= _HIDES else None
        return None

    def _einsum(self, args: Any, kwargs: Any) -> Any:
        operands = args[1] if isinstance(args[1], tuple | list) else args[1:]
        if kwargs or len(operands) != 2 or "->" not in args[0]:
            return None
        inputs, out = args[0].replace(" ", "").split("->")
        a, b = inputs.split(",")
        if "." in args[0] or len(set(a)) < len(a) or len(set(b)) < len(b):
            return None
        summed = [x for x in a if x in b and x not in out]
        rows = [x for x in a if x in out and x not in b]
        columns = [x for x in b if x in out and x not in a]
        if [len(summed), len(rows), len(columns)] != [1, 1, 1]:
            return None
        lead = [x for x in out if x in a and x in b]
        if not lead or len(lead) + 2 != len(out) or not set(a + b) <= {*out, *summed}:
            return None
        ordered = "".join(lead)
        if _both_tensors(operands) and out[-2:] == rows[0] + columns[0]:
            q = torch.einsum(f"{a}->{ordered}{rows[0]}{summed[0]}", operands[0])
            k = torch.einsum(f"{b}->{ordered}{columns[0]}{summed[0]}", operands[1])
            return _Pending(self, q, k)
        last = a == "".join([x for x in a if x in lead]) + rows[0] + summed[0]
        if _is_weights(operands[0]) and isinstance(operands[1], Tensor) and last:
            ordered = a[:-2]
            v = torch.einsum(f"{b}->{ordered}{summed[0]}{columns[0]}", operands[1])
            made = self._attend(operands[0], v)
            return torch.einsum(f"{ordered}{rows[0]}{columns[0]}->{out}", made)
        return None

    def _whole(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor | None:
        """PyTorch's own fused attention."""
        if q.dim() != 4 or enable_gqa or (is_causal and q.shape[2] != k.shape[2]):
            return None
        made = _Pending(self, q, k)
        made.scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
        made.is_weights, made.drop = True, dropout_p
        if is_causal:
            seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
            made.hidden = ~seen
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            made.hidden = ~attn_mask
        elif attn_mask is not None:
            made.biases.append(attn_mask)
        return self._attend(made, v)

    def _attend(self, weights: _Pending, v: Tensor) -> Tensor:
        """[..., Lq, Dv] of v [..., Lk, Dv]."""
        lead = weights.shape[:-2]
        batch, heads = (lead[0], 1) if len(lead) == 1 else (lead[:-1].numel(), lead[-1])

        def folded(x: Tensor) -> Tensor:
            x = x.expand(*lead, *x.shape[-2:])
            return x.reshape(batch, heads, *x.shape[-2:]).to(v.dtype)

        q, k = folded(weights.q), folded(weights.k)
        options = self._masks(weights, batch, heads)
        self.runs += 1
        made = attention(
            *(q, k, folded(v), None),
            scale=weights.scale,
            dropout=dropout_of(weights.drop, self.module),
            **options,
        )
        return made.reshape(*lead, *made.shape[-2:])

    def _masks(self, weights: _Pending, batch: int, heads: int) -> dict[str, Any]:
        """Biases and hidden pairs as options of attention."""
        lead, lengths = weights.shape[:-2], weights.shape[-2:]
        options: dict[str, Any] = {}
        if weights.seen is not None:
            options = dict(weights.seen.fit(*lengths).options())
        added: list[Tensor] = []

        def folded(x: Tensor) -> Tensor:
            """[B or 1, H or 1, Lq or 1, Lk]."""
            x = x[(None,) * (len(lead) + 2 - x.dim())]
            x = x.expand(*x.shape[:-1], lengths[1])
            if len(lead) == 1:
                return x[:, None]
            if len(lead) == 2:
                return x
            if x.shape[: len(lead) - 1].numel() > 1:
                x = x.expand(*lead[:-1], *x.shape[-3:])
            return x.reshape(-1, *x.shape[-3:])

        for bias in weights.biases:
            bias = folded(bias)
            if not options and not bias.requires_grad and bias.shape[1] == 1:
                seen = visibility_of(bias, self.module, *lengths)
                if seen.bias is None:
                    options = dict(seen.options())
                    continue
            added.append(bias)
        if "pair_bias" in options:
            added.append(options["pair_bias"])
        if added:
            options["pair_bias"] = functools.reduce(torch.add, added)
        if weights.hidden is not None:
            seen = folded(~weights.hidden)
            if not options:
                options = visibility_of(seen, self.module, *lengths).options()
            else:
                known = options.get("mask")
                options["mask"] = seen if known is None else known & seen
        return options


def _both_tensors(pair: Any) -> bool:
    return all(
        isinstance(x, Tensor) and x.dim() >= 3 and x.is_floating_point() for x in pair
    )


def _is_weights(x: Any) -> bool:
    return isinstance(x, _Pending) and x.is_weights


def _number(x: Any) -> float | None:
    """A scalar, or a tensor of one number without a gradient."""
    if isinstance(x, int | float):
        return float(x)
    if isinstance(x, Tensor) and x.numel() == 1 and not x.requires_grad:
        return float(x)
    return None


def _inverse(x: Any) -> Any:
    if isinstance(x, int | float):
        return 1.0 / x
    return x.reciprocal() if isinstance(x, Tensor) and x.dim() else 1.0 / x


def _added(a: Any, b: Any) -> _Pending | None:
    if not isinstance(a, _Pending):
        a, b = b, a
    if isinstance(b, Visibility) and b.shape[2:] != a.shape[-2:]:
        b = b.dense()  # One row may count for all queries.
    if isinstance(b, Visibility) and a.seen is None:
        made = a.copy()
        made.seen = b
        return made
    if not isinstance(b, _Pending | Tensor):
        return None
    b = _plain(b)
    if b.dtype == torch.bool:
        # Part of a mask that is true where a pair sees each other.
        return _hidden(a, ~b, -math.inf)
    if torch.broadcast_shapes(a.shape, b.shape) != a.shape or not b.dim():
        return None
    made = a.copy()
    made.biases.append(b)
    return made


def _multiplied(a: Any, b: Any) -> _Pending | None:
    if not isinstance(a, _Pending):
        a, b = b, a
    number = _number(b)
    if number is not None:
        made = a.copy()
        made.scale *= number
        made.biases = [x * number for x in a.biases]
        return made
    # One factor for a head or a sequence.
    if not isinstance(b, Tensor) or b.shape[-2:].numel() != 1 or b.dim() > a.dim():
        return None
    made = a.copy()
    made.q = a.q * b
    made.biases = [x * b for x in a.biases]
    return made


def _hidden(scores: _Pending, where: Tensor, value: Any) -> _Pending | None:
    value = _number(value.get("value") if isinstance(value, dict) else value)
    if value is None or math.isnan(value) or value > _HIDES:
        return None
    made = scores.copy()
    where = where.bool()
    made.hidden = where if made.hidden is None else made.hidden | where
    return made


def _zeroed(weights: _Pending, where: Tensor, value: Any) -> _Pending | None:
    """Weights that become 0 where their scores were hidden, and are so anyway."""
    hidden = weights.hidden
    if _number(value) != 0.0 or hidden is None or bool((where & ~hidden).any()):
        return None
    return weights


def _dropped(
    weights: _Pending, p: float = 0.5, training: bool = True, inplace: bool = False
) -> _Pending | None:
    if not training or p == 0.0:
        return weights
    if weights.drop:
        return None
    made = weights.copy()
    made.drop = float(p)
    return made
