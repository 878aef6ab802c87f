"""Ring attention over a torch.distributed group: one sequence on several ranks.

Queries stay where they are. Keys and values travel around the ring, and partial
results join by their lse (`locus.merge`). Backward, each block's gradients travel
behind it and end with their owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

import locus

from . import functional, kinds, ops
from .ring_plan import FirstError, Plan, Ring, journey, wait


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
    softcap: float | None = None,
    q_positions: Tensor | Sequence[int] | None = None,
    k_positions: Tensor | Sequence[int] | None = None,
    key_lengths: Tensor | Sequence[int] | None = None,
    q_segments: Tensor | Sequence[int] | None = None,
    k_segments: Tensor | Sequence[int] | None = None,
    return_lse: bool = False,
    threads: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
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
    key_lengths: [B], how many tokens of each whole sequence exist; the same on
      every rank.

    Gradients of the encoding's parameters are the sums over all ranks, the same
    on each. Other arguments are those of `attention`.
    """
    ring = Ring(group)

    def prepare() -> _Local:
        _check_tokens(q, k, v)
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
        lengths = functional._integers("key_lengths", key_lengths)
        if lengths is not None and lengths.shape != q.shape[:1]:
            raise ValueError(
                f"key_lengths must be [{q.shape[0]}], got {list(lengths.shape)}"
            )
        # What must be the same everywhere.
        said = {
            "batch": q.shape[0],
            "query heads": q.shape[1],
            "key heads": k.shape[1],
            "head dim": q.shape[3],
            "value dim": v.shape[3],
            "type": (q.dtype, k.dtype, v.dtype),
            "sharding": sharding,
            "causal": causal,
            "scale": scale,
            "window": (left, right),
            "softcap": softcap,
            "encoding": kind if native is None else type(native).__name__,
            "parameters of the encoding": _digest(params if native is None else native),
            "key lengths": None if lengths is None else lengths.tolist(),
            "form of positions and segments": [
                0 if x is None else x.dim() for x in ids
            ],
        }
        return _Local(said, kind, params, native, holder, (left, right), ids, lengths)

    local, counts = ring.agree(prepare, lambda mine: (mine.said, _counts(q, k)))
    if local.native is not None:
        _check_native(ring, local.native, q.shape[1], q.shape[3])
    left, right = local.window
    plan = Plan.make(
        ring, sharding, counts, local.ids, (causal, left, right), local.lengths
    )
    plan.kind, plan.holder = local.kind, local.holder
    plan.options = (causal, False, scale, left, right, softcap)
    plan.threads = threads
    if causal and isinstance(kinds.build(local.kind, local.params), locus.MRope):
        _check_order(ring, plan)
    out, lse = _RingAttention.apply(plan, q, k, v, *local.params)
    return (out, lse) if return_lse else out


class _Local(NamedTuple):
    """What one rank brings to a call."""

    said: dict[str, Any]
    kind: str
    params: Sequence[Tensor]
    native: Any
    holder: Any
    window: tuple[int | None, int | None]
    ids: list[Tensor | None]
    lengths: Tensor | None


def _counts(q: Tensor, k: Tensor) -> tuple[int, int]:
    return q.shape[2], k.shape[2]


def _check_tokens(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        functional._check(name, x)
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
        order = torch.cat([x for s in sides for x in s.tokens]).argsort()
        positions = torch.cat([x for x, _ in ranks], -1)[..., order]
        falls = positions.diff() <= 0
        if plan.ids[side + 2] is not None:
            falls = falls & (
                torch.cat([x for _, x in ranks], -1)[..., order].diff() == 0
            )
        if side == 1 and plan.key_lengths is not None:
            falls = falls & (torch.arange(1, len(order)) < plan.key_lengths[:, None])
        if bool(falls.any()) and int(positions.max()) >= locus.pack_position(0, 0, 0):
            raise ValueError(
                "causal attention cannot go by packed positions such as "
                f"{int(positions.max())} that do not rise from token to token"
            )


class _RingAttention(torch.autograd.Function):
    """Both passes; a collective each."""

    @staticmethod
    def forward(ctx, plan: Plan, q: Tensor, k: Tensor, v: Tensor, *params: Tensor):
        ring = plan.ring
        pieces = plan.queries[ring.rank].pieces
        keys = [side.pieces for side in plan.keys]
        parts: list[Any] = [None] * len(pieces)
        first = FirstError()
        for step, block in journey(plan, plan.own_block(k, v)):
            # After an error blocks still travel: other ranks wait for them.
            if block is None or first.error is not None:
                continue
            owner = ring.owner(step)
            with first:
                for i, j in plan.pairs(ring.rank, owner):
                    rows, cols = pieces[i], keys[owner][j]
                    part = ops.attention_op(
                        q[:, :, rows].float(),
                        block[0][:, :, cols].float(),
                        block[1][:, :, cols].float(),
                        params,
                        plan.kind,
                        *plan.arguments(rows, (owner, j), block),
                    )
                    old = parts[i]
                    parts[i] = part if old is None else locus.merge(old, part)
        ring.finish(first.error)
        out = torch.zeros(*q.shape[:3], v.shape[3])
        lse = torch.full(q.shape[:3], -torch.inf)
        for rows, part in zip(pieces, parts, strict=True):
            if part is not None:
                out[:, :, rows], lse[:, :, rows] = map(torch.as_tensor, part)
        out = out.to(q.dtype)
        ctx.plan = plan
        ctx.save_for_backward(q, k, v, out, lse, *params)
        return out, lse

    @staticmethod
    def backward(ctx, d_out: Tensor, d_lse: Tensor):
        plan, (q, k, v, out, lse, *params) = ctx.plan, ctx.saved_tensors
        ring = plan.ring
        pieces = plan.queries[ring.rank].pieces
        hops = plan.hops
        d_q = torch.zeros(q.shape)
        d_params = [torch.zeros(p.shape, dtype=torch.float64) for p in params]
        home = [torch.empty(k.shape), torch.empty(v.shape)]
        coming_home: list[Any] = []
        if hops[ring.rank]:
            coming_home = ring.receive(home, ring.rank + hops[ring.rank], tag=2)
        own_share: list[Tensor] = []
        sending: list[Any] = []
        first = FirstError()
        with first:
            ops.refuse_lse_gradient(d_lse)
        for step, block in journey(plan, plan.own_block(k, v)):
            if block is None:
                continue
            owner = ring.owner(step)
            total = [torch.empty(x.shape) for x in block[:2]]
            # The owner keeps its share, the next rank starts the sum.
            receiving = ring.receive(total, ring.rank - 1, tag=1) if step > 1 else []
            share = [torch.zeros(x.shape) for x in block[:2]]
            pairs = [] if first.error else plan.pairs(ring.rank, owner)
            with first:
                for i, j in pairs:
                    rows, cols = pieces[i], plan.keys[owner].pieces[j]
                    part_q, part_k, part_v, part_params = ops.attention_backward_op(
                        d_out[:, :, rows].float(),
                        None,
                        q[:, :, rows].float(),
                        block[0][:, :, cols].float(),
                        block[1][:, :, cols].float(),
                        out[:, :, rows].float(),
                        lse[:, :, rows].contiguous(),
                        params,
                        plan.kind,
                        *plan.arguments(rows, (owner, j), block),
                    )
                    d_q[:, :, rows] += part_q
                    share[0][:, :, cols] += part_k
                    share[1][:, :, cols] += part_v
                    for total_p, part_p in zip(d_params, part_params, strict=True):
                        total_p += part_p
            if step == 0:
                own_share = share
                continue
            if step > 1:
                wait(receiving)
                share = [a + b for a, b in zip(total, share, strict=True)]
            wait(sending)
            sending = (
                ring.send(share, ring.rank + 1, tag=1)
                if step < hops[owner]
                else ring.send(share, owner, tag=2)
            )
        wait(sending)
        if hops[ring.rank]:
            wait(coming_home)
            own_share = [a + b for a, b in zip(home, own_share, strict=True)]
        ring.finish(first.error)
        return (
            None,
            d_q.to(q.dtype),
            own_share[0].to(k.dtype),
            own_share[1].to(v.dtype),
            *_sum_in_order(ring, d_params, params),
        )


def _sum_in_order(
    ring: Ring, mine: list[Tensor], params: Sequence[Tensor]
) -> list[Tensor]:
    """Rank 0 + rank 1 + ...: the same bits on every rank and in every run."""
    sums = []
    for x, param in zip(mine, params, strict=True):
        parts = [torch.empty_like(x) for _ in range(ring.size)]
        dist.all_gather(parts, x, group=ring.group)
        sums.append(sum(parts[1:], parts[0]).to(param.dtype))
    return sums
