"""Ring attention over a torch.distributed group: one sequence on several ranks.

Queries stay where they are, with all that belongs to them. Keys and values travel
around the ring with theirs, and partial results join by their lse (`locus.merge`).
Backward, each block's gradients travel behind it and end with their owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import locus_attn as locus

from . import functional, kinds, ops
from .raw import mask as raw_mask
from .raw import raw, raw_or_none
from .raw import threads as thread_count
from .ring_plan import Block, FirstError, Plan, Ring, Visibility, kv_ring, wait


def ring_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: Any = None,
    *,
    group: dist.ProcessGroup | None = None,
    sharding: str = "contiguous",
    causal: bool = False,
    scale: float | None = None,
    window: int | tuple[int, int] | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    q_positions: Tensor | Sequence[int] | None = None,
    k_positions: Tensor | Sequence[int] | None = None,
    key_lengths: Tensor | Sequence[int] | None = None,
    q_segments: Tensor | Sequence[int] | None = None,
    k_segments: Tensor | Sequence[int] | None = None,
    mask: Tensor | None = None,
    prefix_lengths: Tensor | Sequence[int] | None = None,
    key_bias: Tensor | None = None,
    pair_bias: Tensor | None = None,
    sinks: Tensor | None = None,
    table_queries: Tensor | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
    threads: int | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """`attention` over a sequence that is spread over the ranks of a group.

    q [B, Hq, nq, D], k [B, Hkv, nk, D], v [B, Hkv, nk, Dv]: this rank's tokens;
    see `ring_shard` for which these are. Contiguous shards may have any lengths.
    The result is that of this rank's queries over every rank's keys. Every rank
    must call it with the same arguments but for the tokens, and every rank must
    run the backward pass. Ranks that disagree all raise the same ValueError, and
    an error of one rank is raised on all of them.

    group: of the backend gloo; None: the default one. A rank that dies or stalls
      ends the others after the group's own timeout (`init_process_group`).
    q_positions, k_positions, q_segments, k_segments: of this rank's tokens.
      Without positions, tokens count through the whole sequence, and queries
      end where its keys end.
    key_lengths, prefix_lengths: [B], tokens of each whole sequence; the same on
      every rank.
    key_bias [B or 1, Hq or 1, nk], table_queries [B, Hq, nq, R]: of this rank's
      tokens.
    mask, pair_bias [B or 1, Hq or 1, nq or 1, N]: rows of this rank's queries over
      the N keys of all ranks, in the order of the sequence.
    sinks, dropout, seed: the same on every rank. What is dropped is what one
      process drops by that seed; None takes one from the generator of rank 0.
    return_weights: [B, Hq, nq, N], over the keys of all ranks in their order.

    Gradients of sinks and of the encoding's parameters are the sums over all
    ranks, the same on each; those of a row of pair_bias for all queries are of
    this rank's queries alone. Other arguments are those of `attention`.
    """
    ring = Ring(group)

    def prepare() -> _Local:
        nonlocal scale, window, softcap, chunk
        for name, x in (("q", q), ("k", k), ("v", v)):
            functional._check(name, x)
        tokens = [q, k, v]
        if torch.is_autocast_enabled("cpu"):
            tokens = functional._autocast(*tokens)
        _check_tokens(*tokens)
        if isinstance(encoding, locus.LayerPosition):
            scale, window, softcap = functional._of_layer(
                encoding, scale, window, softcap
            )
            if chunk is None and encoding.chunk and q_segments is None:
                chunk = encoding.chunk
        kind, params, native = kinds.resolve(encoding)
        holder = None
        if native is not None:
            kind, holder = kinds.hold(native)
        left, right = functional._window(window, causal)
        ids = [
            _token_ids("q_positions", q_positions, q),
            _token_ids("k_positions", k_positions, k),
            _token_ids("q_segments", q_segments, q),
            _token_ids("k_segments", k_segments, k),
        ]
        visibility = Visibility(
            *(causal, left, right, chunk),
            _lengths("key_lengths", key_lengths, q.shape[0]),
            _lengths("prefix_lengths", prefix_lengths, q.shape[0]),
        )
        operands = Operands(
            functional._mask(mask),
            *(key_bias, pair_bias, sinks, table_queries),
        )
        operands.check(q, k)
        # What must be the same everywhere.
        said = {
            "batch": q.shape[0],
            "query heads": q.shape[1],
            "key heads": k.shape[1],
            "head dim": q.shape[3],
            "value dim": v.shape[3],
            "type": [x.dtype for x in tokens],
            "sharding": sharding,
            "causal": causal,
            "scale": scale,
            "window": (left, right),
            "chunk": chunk,
            "softcap": softcap,
            "encoding": kind if native is None else type(native).__name__,
            "parameters of the encoding": _digest(params if native is None else native),
            "key lengths": _listed(visibility.key_lengths),
            "prefix lengths": _listed(visibility.prefix_lengths),
            "form of positions and segments": [
                0 if x is None else x.dim() for x in ids
            ],
            **operands.form(),
            "dropout": dropout,
            "seed": seed,
        }
        # A seed that nobody gave is that of rank 0, and any will do before.
        drawn = functional._seed(dropout, seed)
        drawn = 0 if drawn is None else int(drawn)
        call = _Call(kind, holder, scale, softcap, dropout, drawn, threads)
        return _Local(said, tokens, call, params, native, ids, visibility, operands)

    local, ranks = ring.agree(prepare, lambda mine: (mine.said, mine.own()))
    call = local.call._replace(seed=ranks[0].seed)
    if local.native is not None:
        _check_native(ring, local.native, q.shape[1], q.shape[3])
    plan = Plan.make(
        ring,
        sharding,
        [(own.queries, own.keys) for own in ranks],
        local.ids,
        local.visibility,
    )
    _check_totals(plan, ranks)
    if causal and isinstance(kinds.build(call.kind, local.params), locus.MRope):
        _check_order(ring, plan)
    operands = local.operands
    results = _RingAttention.apply(
        *(plan, call, operands.mask, return_weights),
        *(*local.tokens, *operands.tensors(), *local.params),
    )
    wanted = (True, return_lse, return_weights)
    chosen = [x for x, want in zip(results, wanted, strict=True) if want]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


class Operands(NamedTuple):
    """What a rank brings to the scores beside its encoding."""

    mask: Tensor | None = None  # [B or 1, Hq or 1, nq or 1, N]
    key_bias: Tensor | None = None
    pair_bias: Tensor | None = None
    sinks: Tensor | None = None
    table_queries: Tensor | None = None

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Those that have gradients, in the order of `ops.OPERANDS`."""
        return tuple(getattr(self, name) for name in ops.OPERANDS)

    def check(self, q: Tensor, k: Tensor) -> None:
        """An error for what does not fit this rank's tokens."""
        batch, heads, queries, _ = q.shape
        for name, x in zip(ops.OPERANDS, self.tensors(), strict=True):
            functional._operand(name, x)
        pairs = [(batch, 1), (heads, 1), (queries, 1), None]
        wanted = {
            "mask": pairs,
            "pair_bias": pairs,
            "key_bias": [(batch, 1), (heads, 1), (k.shape[2],)],
            "sinks": [(heads,)],
            "table_queries": [(batch,), (heads,), (queries,), None],
        }
        for name, sizes in wanted.items():
            x = getattr(self, name)
            fits = x is None or (
                x.dim() == len(sizes)
                and all(
                    s is None or n in s for n, s in zip(x.shape, sizes, strict=True)
                )
            )
            if not fits:
                said = ["any" if s is None else " or ".join(map(str, s)) for s in sizes]
                raise ValueError(
                    f"{name} must be [{', '.join(said)}], got {list(x.shape)}"
                )

    def form(self) -> dict[str, Any]:
        """What must be the same on every rank."""
        bias, table = self.key_bias, self.table_queries
        return {
            "mask, given or not": self.mask is not None,
            "pair_bias, given or not": self.pair_bias is not None,
            "key_bias, batch and heads": bias if bias is None else [*bias.shape[:2]],
            "table_queries, width": table if table is None else table.shape[3],
            "sinks": None if self.sinks is None else _digest([self.sinks]),
        }


class _Call(NamedTuple):
    """What every pair of blocks is computed with."""

    kind: str
    holder: Any  # keeps an encoding of `locus` alive
    scale: float | None
    softcap: float | None
    dropout: float
    seed: int
    threads: int | None


class _Own(NamedTuple):
    """What a rank tells of its own."""

    queries: int
    keys: int
    mask_keys: int | None  # the last axis of its mask and of its pair_bias
    pair_keys: int | None
    seed: int


class _Local(NamedTuple):
    """What one rank brings to a call."""

    said: dict[str, Any]
    tokens: list[Tensor]
    call: _Call
    params: Sequence[Tensor]
    native: Any
    ids: list[Tensor | None]
    visibility: Visibility
    operands: Operands

    def own(self) -> _Own:
        q, k, _ = self.tokens
        mask, pairs = self.operands.mask, self.operands.pair_bias
        return _Own(
            q.shape[2],
            k.shape[2],
            None if mask is None else mask.shape[3],
            None if pairs is None else pairs.shape[3],
            self.call.seed,
        )


def _check_tokens(q: Tensor, k: Tensor, v: Tensor) -> None:
    fits = (
        q.shape[0] == k.shape[0]
        and q.shape[3] == k.shape[3]
        and k.shape[:3] == v.shape[:3]
        and k.shape[1] > 0
        and q.shape[1] % k.shape[1] == 0
    )
    if not fits:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit "
            f"each other"
        )


def _check_totals(plan: Plan, ranks: list[_Own]) -> None:
    """The same ValueError on every rank for what does not fit the whole."""
    total = plan.key_total()
    see = plan.visibility
    for name, lengths in (
        ("key_lengths", see.key_lengths),
        ("prefix_lengths", see.prefix_lengths),
    ):
        for n in [] if lengths is None else lengths.tolist():
            if not 0 <= n <= total:
                raise ValueError(f"{name} must lie in [0, {total}], got {n}")
    for rank, own in enumerate(ranks):
        for name, keys in (("mask", own.mask_keys), ("pair_bias", own.pair_keys)):
            if keys not in (None, total):
                raise ValueError(
                    f"rank {rank}: {name} must be over the {total} keys of all ranks, "
                    f"got {keys}"
                )


def _lengths(name: str, x: Any, batch: int) -> Tensor | None:
    lengths = functional._integers(name, x)
    if lengths is not None and lengths.shape != (batch,):
        raise ValueError(f"{name} must be [{batch}], got {list(lengths.shape)}")
    return lengths


def _listed(x: Tensor | None) -> list[int] | None:
    return None if x is None else x.tolist()


def _token_ids(name: str, x: Any, tokens: Tensor) -> Tensor | None:
    """Integers of the tokens of this rank: [n] or [B, n]."""
    ids = functional._integers(name, x)
    batch, _, count, _ = tokens.shape
    if ids is not None and tuple(ids.shape) not in {(count,), (batch, count)}:
        raise ValueError(
            f"{name} must be [{count}] or [{batch}, {count}], got {list(ids.shape)}"
        )
    return ids


def _digest(encoding: Any) -> str:
    """Of parameters, or of those of an encoding of `locus`."""
    params = encoding
    if isinstance(encoding, locus.Encoding):
        params = [torch.as_tensor(x) for x in encoding.params().values()]
    digest = hashlib.sha256()
    for x in params:
        data = x.detach().contiguous().view(-1).view(torch.uint8)
        digest.update(f"{tuple(x.shape)} {x.dtype}".encode())
        digest.update(data.numpy().tobytes())
    return digest.hexdigest()[:16]


# Where encodings of `locus` are compared: near, and so far that frequencies
# which differ in their fifth digit give other angles; near alone for those that
# have no such positions.
_PROBES = ([0, 1, 2, 3, 1000, 100_000], [0, 1, 2, 3, 4, 5])


def _check_native(ring: Ring, native: Any, heads: int, dim: int) -> None:
    """ValueError if an encoding of `locus` does something else on another rank.

    It has no description to compare beside its parameters. So each rank attends
    to the same few tokens with it; machines may round differently.
    """
    x = torch.randn(3, 1, heads, 6, dim, generator=torch.Generator().manual_seed(1))
    mine = None
    for where in map(torch.tensor, _PROBES):
        try:
            out = locus.attention(*x, native, q_positions=where, k_positions=where)
            mine = torch.as_tensor(out)
            break
        except ValueError:
            continue
    # A hundred times what the engine may be off.
    tolerance = 100 * 4 * torch.finfo(torch.float32).eps * (dim + 12) ** 0.5
    probes = ring.gather(mine)
    for rank, other in enumerate(probes):
        same = (other is None) == (probes[0] is None) and (
            other is None or torch.allclose(other, probes[0], rtol=0, atol=tolerance)
        )
        if not same:
            raise ValueError(
                f"every rank must bring the same encoding: {native!r} of rank {rank} "
                f"gives other scores than that of rank 0"
            )


def _check_order(ring: Ring, plan: Plan) -> None:
    """ValueError if packed positions fall from one token to the next.

    A rank sees that of its own tokens only, and all of them must stop.
    """
    for side, sides in enumerate((plan.queries, plan.keys)):
        ranks = ring.gather((plan.ids[side], plan.ids[side + 2]))
        order = torch.tensor([n for s in sides for t in s.tokens for n in t]).argsort()
        positions = torch.cat([x for x, _ in ranks], -1)[..., order]
        falls = positions.diff() <= 0
        if plan.ids[side + 2] is not None:
            falls = falls & (
                torch.cat([x for _, x in ranks], -1)[..., order].diff() == 0
            )
        lengths = plan.visibility.key_lengths
        if side == 1 and lengths is not None:
            falls = falls & (torch.arange(1, len(order)) < lengths[:, None])
        if bool(falls.any()) and int(positions.max()) >= locus.pack_position(0, 0, 0):
            raise ValueError(
                "causal attention cannot go by packed positions such as "
                f"{int(positions.max())} that do not rise from token to token"
            )


class _Pair:
    """A piece of this rank's queries and one of a block's keys, as float32."""

    def __init__(
        self,
        plan: Plan,
        call: _Call,
        operands: Operands,
        pieces: tuple[int, int, int],
        block: Block,
    ) -> None:
        """pieces: of the queries, whose keys, and of these."""
        i, owner, j = pieces
        queries, keys = plan.queries[plan.ring.rank], plan.keys[owner]
        self.rows, self.cols = queries.pieces[i], keys.pieces[j]
        tokens, q_tokens = keys.tokens[j], queries.tokens[i]
        self.keys = slice(tokens.start, tokens.stop, tokens.step)  # of all ranks
        self.k = block.k[:, :, self.cols].float()
        self.v = block.v[:, :, self.cols].float()
        self.mask = self.pairs_of(operands.mask)
        self.operands = {
            "key_bias": None
            if block.key_bias is None
            else block.key_bias[..., self.cols],
            "pair_bias": self.pairs_of(operands.pair_bias),
            "table_queries": self.rows_of(operands.table_queries),
        }
        self.options = {
            **plan.pair_options(i, (owner, j), block),
            **{name: raw_or_none(x) for name, x in self.operands.items()},
            "mask": raw_mask(self.mask),
            "scale": call.scale,
            "softcap": call.softcap,
            "dropout": call.dropout,
            "seed": call.seed,
            "dropout_tokens": (
                (q_tokens.start, q_tokens.step),
                (tokens.start, tokens.step),
            ),
            "threads": thread_count(call.threads),
        }

    def rows_of(self, x: Tensor | None) -> Tensor | None:
        """The rows [.., .., queries, D] or [.., .., queries] of its queries."""
        return None if x is None else x[:, :, self.rows].float()

    def pairs_of(self, x: Tensor | None) -> Tensor | None:
        """A view of its part of [.., .., nq or 1, N]."""
        if x is None:
            return None
        return (x if x.shape[2] == 1 else x[:, :, self.rows])[..., self.keys]

    def attention(self, q: Tensor, encoding: Any, weights: bool) -> tuple[Tensor, ...]:
        """(out, lse) and, if asked for, the weights."""
        rows = self.rows_of(q)
        return locus.attention(
            *map(raw, (rows, self.k, self.v)),
            encoding,
            return_lse=True,
            return_weights=weights,
            **self.options,
        )

    def backward(
        self, tensors: Sequence[Tensor], d_lse: Tensor, encoding: Any, pair_grad: bool
    ) -> tuple[Any, ...]:
        """d_q, d_k, d_v and the others by name; tensors: d_out, q, out, lse."""
        d_out, q, out, lse, d_lse = map(self.rows_of, (*tensors, d_lse))
        return locus.attention_backward(
            *map(raw, (d_out, q, self.k, self.v, out, lse)),
            encoding,
            d_lse=raw(d_lse),
            pair_bias_grad=pair_grad,
            **self.options,
        )


class _Weights:
    """Weights of this rank's queries over the keys of all ranks, if wanted.

    Those of a pair of pieces have their sum at 1 until the final lse is known:
    p_ij = exp(s_ij - lse_i) = exp(s_ij - part_i) exp(part_i - lse_i).
    """

    def __init__(self, q: Tensor, keys: int, wanted: bool) -> None:
        self.weights = torch.zeros(*q.shape[:3], keys) if wanted else None
        self.parts: list[tuple[_Pair, Tensor]] = []

    def add(self, pair: _Pair, lse: Tensor, weights: Sequence[Tensor]) -> None:
        for part in weights:
            pair.pairs_of(self.weights).copy_(part)
            self.parts.append((pair, lse))

    def finish(self, lse: Tensor) -> Tensor | None:
        for pair, part in self.parts:
            factor = (part - pair.rows_of(lse)).exp()
            # Where the part saw no key, its weights are 0.
            factor.masked_fill_(part.isinf(), 0.0)
            pair.pairs_of(self.weights).mul_(factor[..., None])
        return self.weights


def _own_block(plan: Plan, k: Tensor, v: Tensor, key_bias: Tensor | None) -> Block:
    def whole(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.contiguous()

    bias = None if key_bias is None else key_bias.float()
    return Block(*map(whole, (k, v, plan.ids[1], plan.ids[3], bias)))


class _RingAttention(torch.autograd.Function):
    """Both passes; a collective each."""

    @staticmethod
    def forward(ctx, plan: Plan, call: _Call, mask, weighed: bool, *tensors):
        q, k, v, *rest = tensors
        count = len(ops.OPERANDS)
        operands, params = Operands(mask, *rest[:count]), rest[count:]
        ring, encoding = plan.ring, kinds.build(call.kind, params)
        parts: list[Any] = [None] * len(plan.queries[ring.rank].pieces)
        weights = _Weights(q, plan.key_total(), weighed)
        first = FirstError()
        for step, block in kv_ring(plan, _own_block(plan, k, v, operands.key_bias)):
            # After an error blocks still travel: other ranks wait for them.
            if block is None or first.error is not None:
                continue
            owner = ring.owner(step)
            with first:
                for i, j in plan.pairs(ring.rank, owner):
                    pair = _Pair(plan, call, operands, (i, owner, j), block)
                    out, lse, *rest = pair.attention(q, encoding, weighed)
                    weights.add(pair, lse, rest)
                    part, old = (out, lse), parts[i]
                    parts[i] = part if old is None else locus.merge(old, part)
        ring.finish(first.error)
        out = torch.zeros(*q.shape[:3], v.shape[3])
        lse = torch.full(q.shape[:3], -torch.inf)
        pieces = plan.queries[ring.rank].pieces
        for rows, part in zip(pieces, parts, strict=True):
            if part is not None:
                out[:, :, rows], lse[:, :, rows] = map(torch.as_tensor, part)
        if operands.sinks is not None:
            out, lse = _add_sinks(out, lse, operands.sinks)
        out = out.to(q.dtype)
        ctx.plan, ctx.call = plan, call
        ctx.save_for_backward(out, lse, mask, *tensors)
        given = weights.finish(lse)
        if given is not None:
            ctx.mark_non_differentiable(given)
        return out, lse, given

    @staticmethod
    def backward(ctx, d_out: Tensor, d_lse: Tensor, _d_weights):
        plan, call = ctx.plan, ctx.call
        out, lse, mask, q, k, v, *rest = ctx.saved_tensors
        count = len(ops.OPERANDS)
        operands, params = Operands(mask, *rest[:count]), rest[count:]
        ring, encoding, hops = plan.ring, kinds.build(call.kind, params), plan.hops
        # plan, call, mask, weighed, q, k and v come before the operands.
        wanted = ctx.needs_input_grad[7 : 7 + count]
        pair_grad = wanted[ops.OPERANDS.index("pair_bias")]
        d_q = torch.zeros(q.shape)
        d_pairs = torch.zeros(operands.pair_bias.shape) if pair_grad else None
        d_table = _zeros_like(operands.table_queries)
        d_params = [torch.zeros(p.shape, dtype=torch.float64) for p in params]
        own = _own_block(plan, k, v, operands.key_bias)
        home = _KeyGrads.like(own)
        coming_home: list[Any] = []
        if hops[ring.rank]:
            coming_home = ring.receive(home.tensors, ring.rank + hops[ring.rank], tag=2)
        own_share = home
        sending: list[Any] = []
        first = FirstError()
        for step, block in kv_ring(plan, own):
            if block is None:
                continue
            owner = ring.owner(step)
            total, share = _KeyGrads.like(block), _KeyGrads.like(block)
            # The owner keeps its share, the next rank starts the sum.
            receiving = (
                ring.receive(total.tensors, ring.rank - 1, tag=1) if step > 1 else []
            )
            pairs = [] if first.error else plan.pairs(ring.rank, owner)
            with first:
                for i, j in pairs:
                    pair = _Pair(plan, call, operands, (i, owner, j), block)
                    d_rows, d_k, d_v, others = pair.backward(
                        (d_out, q, out, lse), d_lse, encoding, pair_grad
                    )
                    d_q[:, :, pair.rows] += d_rows
                    share.add(pair.cols, (d_k, d_v, others.get("key_bias")))
                    if d_pairs is not None:
                        pair.pairs_of(d_pairs).add_(others["pair_bias"])
                    if d_table is not None:
                        d_table[:, :, pair.rows] += others["table_queries"]
                    grads = ops.param_grads(call.kind, params, others)
                    for total_p, part_p in zip(d_params, grads, strict=True):
                        total_p += part_p
            if step == 0:
                own_share = share
                continue
            if step > 1:
                wait(receiving)
                share.add_all(total)
            wait(sending)
            sending = (
                ring.send(share.tensors, ring.rank + 1, tag=1)
                if step < hops[owner]
                else ring.send(share.tensors, owner, tag=2)
            )
        wait(sending)
        if hops[ring.rank]:
            wait(coming_home)
            own_share.add_all(home)
        ring.finish(first.error)
        d_k, d_v, *d_bias = own_share.tensors
        by_name = {
            "key_bias": d_bias[0] if d_bias else None,
            "pair_bias": d_pairs,
            "sinks": _sink_grads(ring, operands.sinks, (d_out, out, lse, d_lse)),
            "table_queries": d_table,
        }
        d_operands = [
            by_name[name].to(x.dtype) if want else None
            for name, x, want in zip(
                ops.OPERANDS, operands.tensors(), wanted, strict=True
            )
        ]
        sums = [
            ring.sum_in_order(x).to(p.dtype)
            for x, p in zip(d_params, params, strict=True)
        ]
        d_tokens = [d_q.to(q.dtype), d_k.to(k.dtype), d_v.to(v.dtype)]
        return None, None, None, None, *d_tokens, *d_operands, *sums


class _KeyGrads:
    """Gradients of the keys of one block: k, v and, if there is one, key_bias."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors

    @staticmethod
    def like(block: Block) -> _KeyGrads:
        given = (block.k, block.v, block.key_bias)
        return _KeyGrads([torch.zeros(x.shape) for x in given if x is not None])

    def add(self, cols: slice, parts: Sequence[Tensor | None]) -> None:
        for x, part in zip(self.tensors, parts, strict=False):
            x[:, :, cols] += part

    def add_all(self, other: _KeyGrads) -> None:
        for x, y in zip(self.tensors, other.tensors, strict=True):
            x += y


def _zeros_like(x: Tensor | None) -> Tensor | None:
    return None if x is None else torch.zeros(x.shape)


def _add_sinks(out: Tensor, lse: Tensor, sinks: Tensor) -> tuple[Tensor, Tensor]:
    """Once, when all keys have passed: a sink is a result without a value."""
    nothing = torch.zeros(()).expand(out.shape)
    logits = sinks.detach().float()[None, :, None].expand(lse.shape)
    return tuple(map(torch.as_tensor, locus.merge((out, lse), (nothing, logits))))


def _sink_grads(
    ring: Ring, sinks: Tensor | None, given: tuple[Tensor, ...]
) -> Tensor | None:
    """Over all ranks: d z_h = -sum_i exp(z_h - lse_i) (d_out_i.out_i - d_lse_i)."""
    if sinks is None:
        return None
    d_out, out, lse, d_lse = (x.double() for x in given)
    share = (sinks.double()[None, :, None] - lse).exp()
    delta = (d_out * out).sum(-1) - d_lse
    terms = (share * delta).masked_fill(lse.isinf(), 0.0)
    return -ring.sum_in_order(terms.sum((0, 2)))
