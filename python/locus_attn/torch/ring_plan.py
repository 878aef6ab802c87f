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
    return _indices(stretches(sharding, length, rank, ranks))


def stretches(sharding: str, length: int, rank: int, ranks: int) -> list[range]:
    def stretch(n: int, count: int) -> range:
        size, rest = divmod(length, count)
        first = n * size + min(n, rest)
        return range(first, first + size + (n < rest))

    if sharding == "contiguous":
        return [stretch(rank, ranks)]
    if sharding == "zigzag":
        return [stretch(rank, 2 * ranks), stretch(2 * ranks - 1 - rank, 2 * ranks)]
    if sharding == "round-robin":
        return [range(length)[rank::ranks]]
    raise ValueError(
        f"there is no sharding {sharding!r}; known are {', '.join(_SHARDINGS)}"
    )


def _indices(tokens: list[range]) -> Tensor:
    return torch.cat([torch.arange(t.start, t.stop, t.step) for t in tokens])


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
        """What `prepare` gives here, and what every rank tells of its own.

        describe: what must be the same on every rank, and this rank's own. An
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
        return mine, [own for _, (_, own) in ranks]

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

    def sum_in_order(self, mine: Tensor) -> Tensor:
        """Rank 0 + rank 1 + ...: the same bits on every rank and in every run."""
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine, group=self.group)
        return sum(parts[1:], parts[0])


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
    tokens: list[range]  # of each piece, by their place in the whole sequence
    positions: list[tuple[int, int]]  # lowest and highest of each piece
    segments: list[tuple[int, int]] | None


@dataclasses.dataclass
class Block:
    """Keys and values of one rank, and what belongs to each key."""

    k: Tensor
    v: Tensor
    positions: Tensor
    segments: Tensor | None = None
    key_bias: Tensor | None = None  # [B or 1, Hq or 1, n] float32

    def tensors(self) -> list[Tensor]:
        everything = (self.k, self.v, self.positions, self.segments, self.key_bias)
        return [x for x in everything if x is not None]

    def empty(self, count: int) -> Block:
        """Room for a block of so many keys of another rank."""

        def room(x: Tensor | None, axis: int) -> Tensor | None:
            if x is None:
                return None
            shape = list(x.shape)
            shape[axis] = count
            return x.new_empty(shape)

        return Block(
            room(self.k, 2),
            room(self.v, 2),
            room(self.positions, -1),
            room(self.segments, -1),
            room(self.key_bias, 2),
        )


@dataclasses.dataclass
class Visibility:
    """What a query may see, as far as the whole sequence tells."""

    causal: bool = False
    left: int | None = None
    right: int | None = None
    chunk: int | None = None
    key_lengths: Tensor | None = None  # [B], of the whole sequence
    prefix_lengths: Tensor | None = None


@dataclasses.dataclass
class Plan:
    """What every rank knows of a call before the first block travels."""

    ring: Ring
    queries: list[Side]  # by rank
    keys: list[Side]
    counts: list[tuple[int, int]]  # of queries and keys, by rank
    ids: list[Tensor | None]  # of this rank: positions and segments, q and k
    visibility: Visibility
    hops: list[int]  # ranks that a block goes on, by its owner

    @staticmethod
    def make(
        ring: Ring,
        sharding: str,
        counts: list[tuple[int, int]],
        ids: list[Tensor | None],
        visibility: Visibility,
    ) -> Plan:
        totals = [sum(c[side] for c in counts) for side in (0, 1)]
        ids = list(ids)
        local: list[Side] = []
        for side, what in ((0, "queries"), (1, "keys")):
            count = counts[ring.rank][side]
            first = sum(c[side] for c in counts[: ring.rank])
            tokens = (
                [range(first, first + count)]
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
                ids[side] = _indices(tokens)
                if side == 0:
                    # Queries end where the keys of their sequence end.
                    ends = torch.tensor(totals[1])
                    if visibility.key_lengths is not None:
                        ends = visibility.key_lengths[:, None]
                    ids[side] = ids[side] + (ends - totals[0]).clamp(min=0)
            local.append(_side(tokens, ids[side], ids[side + 2]))
        ranks = ring.gather(local)
        plan = Plan(
            ring,
            [sides[0] for sides in ranks],
            [sides[1] for sides in ranks],
            counts,
            ids,
            visibility,
            [],
        )
        plan.hops = [plan._last(owner) for owner in range(ring.size)]
        return plan

    def key_total(self) -> int:
        return sum(keys for _, keys in self.counts)

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
        if not q.tokens[i] or not k.tokens[j]:
            return False
        if (
            q.segments is not None
            and k.segments is not None
            and (
                q.segments[i][0] > k.segments[j][1]
                or k.segments[j][0] > q.segments[i][1]
            )
        ):
            return False
        see = self.visibility
        if see.prefix_lengths is not None and k.tokens[j][0] < see.prefix_lengths.max():
            return True
        (q_low, q_high), (k_low, k_high) = q.positions[i], k.positions[j]
        if see.chunk is not None and (
            q_low // see.chunk > k_high // see.chunk
            or k_low // see.chunk > q_high // see.chunk
        ):
            return False
        if see.causal and q_high < k_low:
            return False
        return see.left is None or (
            q_low - k_high <= see.left and q_high - k_low >= -see.right
        )

    def pair_options(
        self, query: int, key: tuple[int, int], block: Block
    ) -> dict[str, Any]:
        """Which of two pieces sees which of the other, as `locus.attention` takes it.

        query: the piece of this rank's queries. key: whose keys, and which piece.
        """
        rows = self.queries[self.ring.rank].pieces[query]
        side = self.keys[key[0]]
        cols, tokens = side.pieces[key[1]], side.tokens[key[1]]
        q_positions, _, q_segments, _ = self.ids
        see = self.visibility

        def before(lengths: Tensor | None) -> Any:
            # Tokens of a piece rise: those before a length come first.
            if lengths is None:
                return None
            return [
                len(range(tokens.start, min(n, tokens.stop), tokens.step))
                for n in lengths.tolist()
            ]

        prefix = before(see.prefix_lengths)
        segments = None if q_segments is None else q_segments[..., rows].numpy()
        return {
            "causal": see.causal,
            "window": None if see.left is None else (see.left, see.right),
            "chunk": see.chunk,
            "q_positions": q_positions[..., rows].numpy(),
            "k_positions": block.positions[..., cols].numpy(),
            "key_lengths": before(see.key_lengths),
            "q_segments": segments,
            "k_segments": (
                None if block.segments is None else block.segments[..., cols].numpy()
            ),
            "prefix_lengths": prefix if prefix and any(prefix) else None,
        }


def _side(tokens: list[range], positions: Tensor, segments: Tensor | None) -> Side:
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


def kv_ring(plan: Plan, own: Block) -> Iterator[tuple[int, Block | None]]:
    """Yields (step, block) as blocks come around; None if one does not come."""
    ring, here, sending = plan.ring, own, []
    for step in range(ring.size):
        coming, receiving, following = ring.owner(step + 1), [], None
        if step + 1 < ring.size and plan.hops[coming] > step:
            following = own.empty(plan.counts[coming][1])
            receiving = ring.receive(following.tensors(), ring.rank - 1, tag=0)
        if here is not None and plan.hops[ring.owner(step)] > step:
            sending = ring.send(here.tensors(), ring.rank + 1, tag=0)
        yield step, here
        wait(receiving)
        wait(sending)
        here = following
