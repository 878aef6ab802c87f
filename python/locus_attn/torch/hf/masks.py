"""Masks of transformers as options of attention, in O(L) memory where they can.

transformers describes a mask by functions of (batch, head, query, key) indices,
composed of few primitives. Most are a causal flag, a window, a set of keys that
exist, or a partition into segments. A mask that is none of these (prefixes, image
blocks, a tensor of the caller's) stays a mask of pairs, and numbers that it adds
to the scores become a bias per pair: nothing is approximated.

Masks are read once per forward pass, outside of compiled graphs: torch.compile
breaks the graph here and goes on behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# What reads a mask as true and false, as a method or a function.
_AS_BOOLEAN = frozenset(
    {
        "all",
        "any",
        "cat",
        "concat",
        "device",
        "dim",
        "dtype",
        "expand",
        "logical_and",
        "logical_not",
    }
    | {"logical_or", "masked_fill", "repeat", "size", "squeeze", "unsqueeze", "where"}
)

# Models that join their mask to another, as numbers that are added to the scores.
_AS_NUMBERS = frozenset({"deepseek_v4", "qwen4_exp_text", "table-transformer"})

# The segment of keys that do not exist; queries have segments >= 0.
_NOWHERE = -1


@dataclasses.dataclass(eq=False)
class Visibility:
    """Which keys a query sees, where queries and keys are numbered from offsets.

    causal: key index <= query index. window: (left, right), inclusive bounds of
    query index - key index; None is unbounded. keep: bool [B, kv_length], keys
    that exist. q_segments [B, q_length], k_segments [B, kv_length]: only pairs of
    equal segment see each other. pairs: bool [B or 1, H or 1, Lq or 1, Lk], true
    where a pair may see each other; bias, of the same shape, is added to the
    scores. batch: B, or 1 if all are alike. owner: the model, for messages.

    It stands where a model expects a mask tensor. A model that hands it on never
    notices. One that reads it as a boolean tensor, the kind that sdpa takes, gets that
    tensor. One that computes with it would need to know what its numbers mean, and
    gets a sentence, not a wrong answer.
    """

    q_length: int
    kv_length: int
    q_offset: int = 0
    kv_offset: int = 0
    causal: bool = False
    window: tuple[int | None, int | None] = (None, None)
    keep: Tensor | None = None
    q_segments: Tensor | None = None
    k_segments: Tensor | None = None
    pairs: Tensor | None = None
    bias: Tensor | None = None
    batch: int = 1
    owner: str = "this model"
    _options: dict[str, Any] | None = dataclasses.field(default=None, repr=False)

    # Generation with a static cache makes masks ahead and passes them in as if
    # they were tensors, which this much of a tensor's interface satisfies.
    ndim = 4

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.batch, 1, self.q_length, self.kv_length))

    def contiguous(self) -> Visibility:
        return self

    def to(self, *_: Any, **__: Any) -> Visibility:
        return self

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ValueError(
            f"{self.owner} computes with the numbers of its mask, which are not those "
            f'of attn_implementation="locus"; use attn_implementation="eager" for this '
            f"model"
        )

    __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __neg__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __bool__ = __len__ = __iter__ = _refuse
    __hash__ = object.__hash__

    @torch.compiler.disable
    def dense(self) -> Tensor:
        """bool [B, 1 or H, Lq, Lk], true where a query sees a key."""
        if self.bias is not None:
            self._refuse()
        offset = self.q_indices()[:, None] - self.k_indices()
        seen = torch.ones(self.batch, 1, *offset.shape, dtype=torch.bool)
        if self.causal:
            seen = seen & (offset >= 0)
        left, right = self.window
        if left is not None:
            seen = seen & (offset <= left)
        if right is not None:
            seen = seen & (-offset <= right)
        if self.keep is not None:
            seen = seen & self.keep[:, None, None]
        if self.q_segments is not None and self.k_segments is not None:
            same = self.q_segments[:, :, None] == self.k_segments[:, None, :]
            seen = seen & same[:, None]
        return seen if self.pairs is None else seen & self.pairs

    def __getitem__(self, key: Any) -> Tensor:
        return self.dense()[key]

    def __invert__(self) -> Tensor:
        return ~self.dense()

    def __and__(self, other: Any) -> Tensor:
        return self.dense() & other

    def __or__(self, other: Any) -> Tensor:
        return self.dense() | other

    __rand__, __ror__ = __and__, __or__

    def __getattr__(self, name: str) -> Any:
        if name in _AS_BOOLEAN:
            return getattr(self.dense(), name)
        if not name.startswith("__") and hasattr(Tensor, name):
            self._refuse()
        raise AttributeError(f"Visibility has no attribute {name}")

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        boolean = getattr(function, "__name__", "") in _AS_BOOLEAN

        def plain(value: Any) -> Any:
            if isinstance(value, tuple | list):
                return type(value)(map(plain, value))
            if not isinstance(value, Visibility):
                return value
            return value.dense() if boolean else value._refuse()

        return function(
            *map(plain, args), **{name: plain(value) for name, value in kwargs.items()}
        )

    def q_indices(self) -> Tensor:
        return torch.arange(self.q_length) + self.q_offset

    def k_indices(self) -> Tensor:
        return torch.arange(self.kv_length) + self.kv_offset

    def limit(self, left: int | None, right: int | None) -> None:
        """Narrows the window."""
        self.window = (_least(self.window[0], left), _least(self.window[1], right))

    def partition(self, q_segments: Tensor, k_segments: Tensor) -> None:
        """Divides further, by segments >= 0."""
        if self.q_segments is not None and self.k_segments is not None:
            step = 1 + torch.maximum(q_segments.max(), k_segments.max())
            q_segments = self.q_segments * step + q_segments
            k_segments = self.k_segments * step + k_segments
        self.q_segments, self.k_segments = q_segments, k_segments

    def fit(self, q_length: int, kv_length: int) -> Visibility:
        """The same for the queries and keys that there are.

        A single query and key that see each other count for all, as an element of
        a tensor would; no other size fits another.
        """
        if (self.q_length, self.kv_length) == (q_length, kv_length):
            return self
        one = (self.q_length, self.kv_length, self.q_offset) == (1, 1, self.kv_offset)
        plain = self.keep is self.q_segments is self.pairs is self.bias is None
        if one and plain:
            start = kv_length - q_length
            return Visibility(q_length, kv_length, start, owner=self.owner)
        raise ValueError(
            f"{self.owner} made its mask for {self.q_length} queries and "
            f"{self.kv_length} keys and attends with {q_length} and {kv_length}"
        )

    def drop(self, keep: Tensor) -> None:
        """Keeps only the keys of `keep`, bool [B, kv_length]."""
        self.keep = keep if self.keep is None else self.keep & keep

    @torch.compiler.disable
    def options(self) -> dict[str, Any]:
        """Keywords of `locus.torch.attention` that say the same.

        Positions are the indices. They are left out where the queries end with
        the keys, for that is what attention assumes.
        """
        if self._options is None:
            self._options = self._make_options()
        return self._options

    def _make_options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"causal": self.causal}
        left, right = self.window
        if left is not None or right is not None:
            reach = self.q_length + self.kv_length + self.q_offset
            options["window"] = (_least(left, reach), _least(right, reach))
        if not self._ends_align():
            options["q_positions"] = self.q_indices()
            options["k_positions"] = self.k_indices()
        q_segments, k_segments = self.q_segments, self.k_segments
        if self.keep is not None:
            lengths = _prefix_lengths(self.keep)
            if lengths is not None:
                options["key_lengths"] = lengths
            else:
                batch = self.keep.shape[0]
                if q_segments is None or k_segments is None:
                    q_segments = torch.zeros(batch, self.q_length, dtype=torch.int64)
                    k_segments = torch.zeros(batch, self.kv_length, dtype=torch.int64)
                k_segments = k_segments.expand(batch, -1)
                k_segments = k_segments.masked_fill(~self.keep, _NOWHERE)
        if q_segments is not None and k_segments is not None:
            options["q_segments"], options["k_segments"] = q_segments, k_segments
        if self.pairs is not None:
            options["mask"] = self.pairs
        if self.bias is not None:
            options["pair_bias"] = self.bias
        return options

    def _ends_align(self) -> bool:
        if self.keep is not None and self.q_length < self.kv_length:
            # With key lengths, attention would end the queries with those.
            return False
        ends_align = self.q_offset + self.q_length == self.kv_offset + self.kv_length
        return ends_align and self.q_length <= self.kv_length


def _least(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


def _prefix_lengths(keep: Tensor) -> Tensor | None:
    """[B] lengths if the kept keys of every sequence come first, else None."""
    lengths = keep.sum(-1)
    prefix = torch.arange(keep.shape[-1]) < lengths[:, None]
    return lengths if torch.equal(prefix, keep) else None


def _captured(function: Callable) -> dict[str, Any]:
    """The variables a mask function was made with."""
    cells = function.__closure__ or ()
    names = function.__code__.co_freevars
    return {n: c.cell_contents for n, c in zip(names, cells, strict=True)}


def _apply(function: Callable, to: Visibility) -> bool:
    """Adds what a mask function of transformers says; false: it takes pairs."""
    name = function.__qualname__.split(".")[0]
    given = _captured(function)
    if name == "causal_mask_function":
        to.causal = True
    elif name == "bidirectional_mask_function":
        pass
    elif name == "and_masks":
        return all(_apply(part, to) for part in given["mask_functions"])
    elif name == "sliding_window_overlay":
        to.limit(given["sliding_window"] - 1, None)
    elif name == "sliding_window_bidirectional_overlay":
        to.limit(given["sliding_window"], given["sliding_window"])
    elif name == "padding_mask_function":
        to.drop(given["padding_mask"][:, to.k_indices()].bool())
    elif name == "packed_sequence_mask_function":
        ids = given["packed_sequence_mask"]
        to.partition(ids[:, to.q_indices()], ids[:, to.k_indices()])
    elif name == "chunked_overlay":
        size, start = given["chunk_size"], given["left_padding"][:, None]
        # Padding before the start would give negative chunks.
        to.partition(
            ((to.q_indices() - start) // size).clamp(min=0),
            ((to.k_indices() - start) // size).clamp(min=0),
        )
    else:
        return False
    return True


@torch.compiler.disable
def from_function(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable | None = None,
    attention_mask: Tensor | Visibility | None = None,
    config: Any = None,
    use_vmap: bool = False,
    **unused: Any,
) -> Visibility | Tensor:
    """The mask of a forward pass, as AttentionMaskInterface asks for it.

    q_offset: a static cache hands over its own counter, a tensor that the layers
    advance before they attend; so it is read here, once and for all layers.
    attention_mask: bool [B, seen tokens], False where a token is padding.
    """
    if isinstance(attention_mask, Visibility):
        return attention_mask
    owner = getattr(config, "model_type", "") or Visibility.owner
    place = (q_length, kv_length, int(q_offset), kv_offset)
    if owner in _AS_NUMBERS:
        from transformers.masking_utils import eager_mask

        given = (batch_size, *place, mask_function, attention_mask)
        return eager_mask(*given, use_vmap=use_vmap, **unused)
    mask = Visibility(*place, batch=batch_size, owner=owner)
    if mask_function is not None and not _apply(mask_function, mask):
        from transformers.masking_utils import sdpa_mask

        pairs = sdpa_mask(
            *(batch_size, *place, mask_function, attention_mask),
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
        )
        return Visibility(*place, pairs=pairs, batch=batch_size, owner=owner)
    if attention_mask is not None:
        missing = kv_length + kv_offset - attention_mask.shape[-1]
        if missing > 0:
            attention_mask = torch.nn.functional.pad(attention_mask, (0, missing))
        keep = attention_mask[:, kv_offset : kv_offset + kv_length].bool()
        if not bool(keep.all()):
            mask.drop(keep)
    return mask


@torch.compiler.disable
def from_dense(
    mask: Tensor, q_length: int, kv_length: int, owner: str = "this model"
) -> Visibility:
    """A materialised mask [B, 1 or H, Lq or 1, Lk].

    bool: True is seen; float: it is added to the scores, and large negative
    numbers hide a pair. Full, causal, windowed and packed attention, each with
    padding, are said in O(L); any other mask stays a mask of pairs.
    """
    fits = mask.dim() == 4 and mask.shape[2] in (1, q_length)
    if not fits or mask.shape[3] != kv_length:
        raise ValueError(
            f"the mask of {owner} must be [batch, 1 or heads, {q_length} queries, "
            f"{kv_length} keys], got {list(mask.shape)}"
        )
    seen, bias = mask, None
    if mask.dtype != torch.bool:
        seen = mask > torch.finfo(mask.dtype).min / 2
        if not bool(((mask == 0) | ~seen).all()):
            bias = mask.masked_fill(~seen, 0.0)
    fields: dict[str, Any] = {"batch": mask.shape[0], "owner": owner}
    if bias is None and mask.shape[1] == 1:
        said = _recognise(seen[:, 0].expand(-1, q_length, -1))
        if said is not None:
            fields.update(said)
            return Visibility(q_length, kv_length, kv_length - q_length, **fields)
    fields.update(pairs=None if bool(seen.all()) else seen, bias=bias)
    return Visibility(q_length, kv_length, kv_length - q_length, **fields)


def _recognise(seen: Tensor) -> dict[str, Any] | None:
    """The fields of a Visibility that say bool [B, Lq, Lk] exactly, in O(L)."""
    q_length, kv_length = seen.shape[1:]
    rows = torch.arange(q_length)[:, None] + kv_length - q_length
    offset = rows - torch.arange(kv_length)
    keep = seen.any(1)
    kept: dict[str, Any] = {"keep": None if bool(keep.all()) else keep}
    inside = keep[:, None]
    if torch.equal(seen, inside.expand_as(seen)):
        return kept
    causal = offset >= 0
    if torch.equal(seen, inside & causal):
        return {**kept, "causal": True}
    left = int(torch.where(seen, offset, 0).max())
    right = int(torch.where(seen, -offset, 0).max())
    if torch.equal(seen, inside & (offset <= left) & (-offset <= right)):
        return {**kept, "causal": right == 0, "window": (left, right)}
    if q_length == kv_length:
        # In a packed causal batch a token's first visible key names its segment.
        ids = seen.to(torch.int8).argmax(-1)
        same = ids[:, :, None] == ids[:, None, :]
        segments = {"q_segments": ids, "k_segments": ids}
        for ordered in (causal, torch.ones_like(causal)):
            if torch.equal(seen, inside & same & ordered):
                return {**kept, "causal": ordered is causal, **segments}
    return None
