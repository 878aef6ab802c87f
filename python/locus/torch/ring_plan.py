"""Who holds which tokens, which blocks travel how far, and the messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

Mine = TypeVar("Mine")

_SHARDINGS = ("contiguous", "zigzag", "round-robin")


def ring_shard(sharding: str, length: int, rank: int, ranks: int) -> Tensor:
    """The tokens that a rank holds, as indices: `x[:, :, ring_shard(...)]`.

    contiguous: one stretch each. zigzag: of 2 R even stretches, r and
    2 R - 1 - r, which balances causal work. round-robin: r, r + R, r + 2 R, ...
    """
    return torch.cat(stretches(sharding, length, rank, ranks))


def stretches(sharding: str, length: int, rank: int, ranks: int) -> list[Tensor]:
    def stretch(n: int, count: int) -> Tensor:
        size, rest = divmod(length, count)
        first = n * size + min(n, rest)
        return torch.arange(first, first + size + (n < rest))

    if sharding == "contiguous":
        return [stretch(rank, ranks)]
    if sharding == "zigzag":
        return [stretch(rank, 2 * ranks), stretch(2 * ranks - 1 - rank, 2 * ranks)]
    if sharding == "round-robin":
        return [torch.arange(length)[rank::ranks]]
    raise ValueError(
        f"there is no sharding {sharding!r}; known are {', '.join(_SHARDINGS)}"
    )


class Ring:
    """The ranks of a group, and messages between them."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group if group is not None else dist.group.WORLD
        self.rank = dist.get_rank(self.group)
        self.size = dist.get_world_size(self.group)

    def gather(self, mine: Any) -> list[Any]:
        """What every rank brings."""
        all_of_them: list[Any] = [None] * self.size
        dist.all_gather_object(all_of_them, mine, group=self.group)
        return all_of_them

    def agree(
        self,
        prepare: Callable[[], Mine],
        describe: Callable[[Mine], tuple[dict[str, Any], Any]],
    ) -> tuple[Mine, list[Any]]:
        """What `prepare` gives here, and the counts of every rank.

        describe: what must be the same on every rank, and this rank's counts. An
        error of one rank, and the first difference, are raised on all of them.
        """
        error, mine, shared = None, None, None
        try:
            mine = prepare()
            shared = describe(mine)
        except Exception as caught:  # of any kind: the others must hear of it
            error = caught
        ranks = self.gather((_told(error), shared))
        _raise_first(error, [told for told, _ in ranks])
        first = ranks[0][1][0]
        for rank, (_, (other, _)) in enumerate(ranks):
            for label, value in first.items():
                if other[label] != value:
                    raise ValueError(
                        f"every rank must bring the same {label}: rank 0 has "
                        f"{value} and rank {rank} has {other[label]}"
                    )
        return mine, [counts for _, (_, counts) in ranks]

    def finish(self, error: Exception | None) -> None:
        """Ends a pass on every rank: an error of one is raised on all of them."""
        failed = torch.tensor([error is not None], dtype=torch.int32)
        dist.all_reduce(failed, group=self.group)
        if failed.item():
            _raise_first(error, self.gather(_told(error)))

    def owner(self, step: int) -> int:
        """Whose block is here at a step."""
        return (self.rank - step) % self.size

    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> list[Any]:
        """Starts to send; the work and the memory it reads."""
        peer = dist.get_global_rank(self.group, to % self.size)
        return [
            (dist.isend(data, peer, self.group, tag), data)
            for data in map(_as_bytes, tensors)
            if data.numel()
        ]

    def receive(self, tensors: Sequence[Tensor], source: int, tag: int) -> list[Any]:
        """Starts to fill the tensors, which are contiguous."""
        peer = dist.get_global_rank(self.group, source % self.size)
        return [
            (dist.irecv(data, peer, self.group, tag), data)
            for data in map(_as_bytes, tensors)
            if data.numel()
        ]


class FirstError:
    """Keeps the first error of its blocks, which then end early."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, value: BaseException | None, _trace: Any) -> bool:
        if not isinstance(value, Exception):
            return False
        self.error = self.error or value
        return True


def _told(error: Exception | None) -> tuple[str, str] | None:
    """An error as it travels."""
    return None if error is None else (type(error).__name__, str(error))


def _raise_first(mine: Exception | None, ranks: list[tuple[str, str] | None]) -> None:
    """The error of the first rank that has one; this rank's own if all agree."""
    if mine is not None and all(told == _told(mine) for told in ranks):
        raise mine
    for rank, told in enumerate(ranks):
        if told is not None:
            kinds = {"TypeError": TypeError, "MemoryError": MemoryError}
            kind = kinds.get(told[0], ValueError)
            raise kind(f"rank {rank}: {told[1]}") from mine


def _as_bytes(x: Tensor) -> Tensor:
    return x.contiguous().view(-1).view(torch.uint8)


def wait(work: list[Any]) -> None:
    for request, _ in work:
        request.wait()
    work.clear()


@dataclasses.dataclass
class Side:
    """Queries or keys of one rank: tokens in pieces, and what is known of them."""

    pieces: list[slice]
    tokens: list[Tensor]  # of each piece, by their place in the whole sequence
    positions: list[tuple[int, int]]  # lowest and highest of each piece
    segments: list[tuple[int, int]] | None


@dataclasses.dataclass
class Plan:
    """What every rank knows of a call before the first block travels."""

    ring: Ring
    queries: list[Side]  # by rank
    keys: list[Side]
    key_counts: list[int]
    ids: list[Tensor | None]  # of this rank: positions and segments, q and k
    hops: list[int]  # ranks that a block goes on, by its owner
    mask: tuple[bool, int | None, int | None]
    key_lengths: Tensor | None = None  # [B], of the whole sequence
    kind: str = ""
    holder: Any = None
    options: tuple[Any, ...] = ()
    threads: int | None = None

    @staticmethod
    def make(
        ring: Ring,
        sharding: str,
        counts: list[tuple[int, int]],
        ids: list[Tensor | None],
        mask: tuple[bool, int | None, int | None],
        key_lengths: Tensor | None = None,
    ) -> Plan:
        totals = [sum(c[side] for c in counts) for side in (0, 1)]
        ids = list(ids)
        local: list[Side] = []
        for side, what in ((0, "queries"), (1, "keys")):
            count = counts[ring.rank][side]
            first = sum(c[side] for c in counts[: ring.rank])
            tokens = (
                [torch.arange(first, first + count)]
                if sharding == "contiguous"
                else stretches(sharding, totals[side], ring.rank, ring.size)
            )
            for rank, held in enumerate(c[side] for c in counts):
                given = len(ring_shard(sharding, totals[side], rank, ring.size))
                if sharding != "contiguous" and given != held:
                    raise ValueError(
                        f"{sharding} sharding of {totals[side]} {what} over "
                        f"{ring.size} ranks gives rank {rank} {given}, "
                        f"it holds {held}"
                    )
            if ids[side] is None:
                ids[side] = torch.cat(tokens)
                if side == 0:
                    # Queries end where the keys of their sequence end.
                    ends = torch.tensor(totals[1])
                    if key_lengths is not None:
                        ends = key_lengths[:, None]
                    ids[side] = ids[side] + (ends - totals[0]).clamp(min=0)
            local.append(_side(tokens, ids[side], ids[side + 2]))
        ranks = ring.gather(local)
        plan = Plan(
            ring,
            [sides[0] for sides in ranks],
            [sides[1] for sides in ranks],
            [c[1] for c in counts],
            ids,
            [],
            mask,
            key_lengths,
        )
        plan.hops = [plan._last(owner) for owner in range(ring.size)]
        return plan

    def _last(self, owner: int) -> int:
        """How far the block of a rank must go."""
        size = self.ring.size
        needed = [
            hop for hop in range(1, size) if self.pairs((owner + hop) % size, owner)
        ]
        return max(needed, default=0)

    def pairs(self, rank: int, owner: int) -> list[tuple[int, int]]:
        """Pieces of queries and keys of which one may see the other."""
        q, k = self.queries[rank], self.keys[owner]
        return [
            (i, j)
            for j in range(len(k.pieces))
            for i in range(len(q.pieces))
            if self._sees(q, i, k, j)
        ]

    def _sees(self, q: Side, i: int, k: Side, j: int) -> bool:
        if q.pieces[i].start == q.pieces[i].stop or k.pieces[j].start == (
            k.pieces[j].stop
        ):
            return False
        causal, left, right = self.mask
        lowest = q.positions[i][0] - k.positions[j][1]
        highest = q.positions[i][1] - k.positions[j][0]
        if causal and highest < 0:
            return False
        if left is not None and (lowest > left or highest < -right):
            return False
        if q.segments is None or k.segments is None:
            return True
        return (
            q.segments[i][0] <= k.segments[j][1]
            and k.segments[j][0] <= q.segments[i][1]
        )

    def arguments(
        self, i: slice, key: tuple[int, int], block: list[Tensor]
    ) -> tuple[Any, ...]:
        """The options of one pair, as the operators take them.

        i: the queries. key: whose keys, and which piece of them.
        """
        side, piece = self.keys[key[0]], key[1]
        j = side.pieces[piece]
        lengths = None
        if self.key_lengths is not None:
            # Tokens of a piece rise: those that exist come first.
            lengths = (side.tokens[piece] < self.key_lengths[:, None]).sum(1)
        k_positions, *k_segments = block[2:]
        q_positions, _, q_segments, _ = self.ids
        return (
            *self.options,
            q_positions[..., i],
            k_positions[..., j],
            lengths,
            None if q_segments is None else q_segments[..., i],
            k_segments[0][..., j] if k_segments else None,
            self.threads,
        )

    def own_block(self, k: Tensor, v: Tensor) -> list[Tensor]:
        """Keys, values, positions and, if there are any, segments."""
        block = [k, v, self.ids[1], *([] if self.ids[3] is None else [self.ids[3]])]
        return [x.contiguous() for x in block]

    def empty_block(self, own: list[Tensor], owner: int) -> list[Tensor]:
        """Room for the block of another rank."""
        count = self.key_counts[owner]
        axes = [2, 2, -1, -1]
        return [
            x.new_empty([*x.shape[:2], count, *x.shape[3:]])
            if axis == 2
            else x.new_empty([*x.shape[:-1], count])
            for axis, x in zip(axes, own, strict=False)
        ]


def _side(tokens: list[Tensor], positions: Tensor, segments: Tensor | None) -> Side:
    pieces, begin = [], 0
    for piece in tokens:
        pieces.append(slice(begin, begin + len(piece)))
        begin += len(piece)

    def extremes(ids: Tensor) -> list[tuple[int, int]]:
        parts = [ids[..., piece] for piece in pieces]
        return [(int(x.min()), int(x.max())) if x.numel() else (0, 0) for x in parts]

    return Side(
        pieces,
        tokens,
        extremes(positions),
        None if segments is None else extremes(segments),
    )


def journey(plan: Plan, own: list[Tensor]) -> Iterator[tuple[int, list[Tensor] | None]]:
    """Yields (step, block) as blocks come around; None if one does not come."""
    ring, here, sending = plan.ring, own, []
    for step in range(ring.size):
        coming, receiving, following = ring.owner(step + 1), [], None
        if step + 1 < ring.size and plan.hops[coming] > step:
            following = plan.empty_block(own, coming)
            receiving = ring.receive(following, ring.rank - 1, tag=0)
        if here is not None and plan.hops[ring.owner(step)] > step:
            sending = ring.send(here, ring.rank + 1, tag=0)
        yield step, here
        wait(receiving)
        wait(sending)
        here = following
