"""LHD: what earns least for the room it takes goes first.

How much a chunk earns is told by its class and the time since its last use
(``reuse``). Where a path's end has a checkpoint, that takes room too, for the sake of
the chunks since the one before it. What waits for a use that comes late earns more and
more until then, what is used soon or never less and less; so of nodes of one kind the
longest unused and the latest used are compared.
Source: Beckmann et al., LHD: Improving cache hit rate by maximizing hit density, NSDI
2018.
"""

import math
import operator
from collections.abc import Iterator
from typing import Generic

from kvcellar.index.policies.by_age import ByAge
from kvcellar.index.policies.policy import Prompt, T
from kvcellar.index.policies.reuse import UPPER_EDGES, ReuseTimes, age_band, class_of

Kind = tuple[int, int]
"""Class of a history, and how often its checkpoint doubles the room of its chunks."""

NO_RANK = (math.inf, math.inf)  # behind all
UNKNOWN = -1


_rank_of = operator.attrgetter("rank")


class _Queue(ByAge[T]):
    """Nodes of one kind, and which of them goes first.

    Attributes:
        first: it.
        rank: its density and its last use.
        until: time at which they have to be looked for again.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        self.first: T | None = None
        self.rank = NO_RANK
        self.until = -math.inf


class LhdPolicy(Generic[T]):
    """One queue per class of nodes, each in the order of the last use.

    Args:
        times: what is known of reuse; ``observe`` adds to it.
        chunks_per_key: it is told of one chunk in so many.
        superseded_first: whether replaced checkpoints go first.
        checkpoint_chunks: what resuming needs besides, in chunks; 0 where they suffice.
    """

    wants_history = True
    reads_due = False
    is_selective = True

    def __init__(
        self,
        times: ReuseTimes,
        chunks_per_key: int = 1,
        *,
        superseded_first: bool = False,
        checkpoint_chunks: float = 0.0,
    ) -> None:
        self.superseded_first = superseded_first
        self._times = times
        self._chunks_per_key = chunks_per_key
        self._checkpoint_chunks = checkpoint_chunks
        self._queues: dict[Kind, _Queue[T]] = {}
        self._queue_of: dict[T, _Queue[T]] = {}
        self._density = times.density  # by which the queues know who goes first
        self._until = -math.inf  # no earlier does time alone change that
        self._changed: set[_Queue[T]] = set()
        self._next: T | None = None
        self._rank_of_next = NO_RANK
        self._known_at = UNKNOWN  # prompt since which nothing has changed

    def observe(self, prompt: Prompt, now: float) -> None:
        """Learn from a prompt."""
        prompt = prompt.sampled(self._chunks_per_key)
        self._times.observe(prompt.keys, prompt.num_local, now)

    def another(self) -> "LhdPolicy[T]":
        """An empty one that goes by the same times."""
        return LhdPolicy(
            self._times,
            self._chunks_per_key,
            superseded_first=self.superseded_first,
            checkpoint_chunks=self._checkpoint_chunks,
        )

    def add(self, node: T) -> None:
        """Enter ``node`` into the queue of its class."""
        self.remove(node)
        kind = self._kind(node)
        queue = self._queues.get(kind)
        if queue is None:
            queue = self._queues[kind] = _Queue(kind)
        queue.add(node)
        self._changed.add(queue)
        self._queue_of[node] = queue
        self._known_at = UNKNOWN

    def touch(self, node: T) -> None:
        """Its class may have changed, and its place."""
        if node in self._queue_of:
            self.add(node)

    def remove(self, node: T) -> None:
        """Forget ``node``."""
        queue = self._queue_of.pop(node, None)
        if queue is not None:
            queue.remove(node)
            self._changed.add(queue)
            if not queue:
                del self._queues[queue.kind]
            self._known_at = UNKNOWN

    def victim(self) -> T | None:
        """The one of the least density; of equals, the longest unused."""
        if self._known_at != self._times.num_prompts:
            self._find_next()
        return self._next

    def would_be_next(self, node: T) -> bool:
        """Whether ``node`` is of less density than all, or used longer ago."""
        if self.victim() is None:
            return True
        return self._rank(self._kind(node), node)[0] < self._rank_of_next

    def _find_next(self) -> None:
        self._look_at_changed()
        first = min(self._queues.values(), key=_rank_of, default=None)
        self._rank_of_next = NO_RANK if first is None else first.rank
        self._next = None if first is None else first.first
        self._known_at = self._times.num_prompts

    def _look_at_changed(self) -> None:
        """Nodes have come or gone, or time has passed, or more is known."""
        now, queues, changed = self._times.now, self._queues.values(), self._changed
        is_new = self._density is not self._times.density
        if is_new:
            self._density = self._times.density
        if is_due := is_new or now >= self._until:
            changed.update(q for q in queues if is_new or now >= q.until)
        for queue in changed:
            self._look_at(queue)
        looked_at = queues if is_due else changed
        until = min((queue.until for queue in looked_at), default=math.inf)
        self._until = until if is_due else min(until, self._until)
        changed.clear()

    def _look_at(self, queue: _Queue[T]) -> None:
        queue.rank, queue.until = NO_RANK, math.inf
        for node in queue.ends():
            rank, until = self._rank(queue.kind, node)
            queue.until = min(queue.until, until)
            if rank < queue.rank:
                queue.rank, queue.first = rank, node

    def _kind(self, node: T) -> Kind:
        number = class_of(node.num_uses, node.depth // self._chunks_per_key)
        if not self._checkpoint_chunks:
            return number, 0
        reach = node.reach(past_replaced=self.superseded_first)
        return number, int(1.0 + self._checkpoint_chunks / reach).bit_length() - 1

    def _rank(self, kind: Kind, node: T) -> tuple[tuple[float, float], float]:
        """Density and latest use of ``node``, and the time until which that holds."""
        number, doublings = kind
        used_at = node.used_at
        band = age_band(self._times.now - used_at)
        density = self._times.density[number][band] / (1 << doublings)
        return (density, used_at), used_at + UPPER_EDGES[band]

    def __contains__(self, node: T) -> bool:
        return node in self._queue_of

    def __len__(self) -> int:
        return len(self._queue_of)

    def __iter__(self) -> Iterator[T]:
        return iter(self._queue_of)
