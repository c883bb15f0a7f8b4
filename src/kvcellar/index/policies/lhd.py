"""LHD: what earns least for the room it takes goes first.

How much a chunk earns is told by its class and the time since its last use
(``reuse``). Inside a class the longest unused goes first, so only the first of each
class have to be compared.
Source: Beckmann et al., LHD: Improving cache hit rate by maximizing hit density, NSDI
2018.
"""

import math
from collections.abc import Iterator
from typing import Generic

from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.lru import lru_key
from kvcellar.index.policies.policy import Prompt, T
from kvcellar.index.policies.reuse import ReuseTimes, age_band, class_of


class LhdPolicy(Generic[T]):
    """One queue per class of nodes, each in the order of the last use.

    Args:
        times: what is known of reuse; ``observe`` adds to it.
        chunks_per_key: it is told of one chunk in so many.
        superseded_first: whether replaced checkpoints go first.
    """

    wants_history = True
    reads_due = False

    def __init__(
        self,
        times: ReuseTimes,
        chunks_per_key: int = 1,
        *,
        superseded_first: bool = False,
    ) -> None:
        self.superseded_first = superseded_first
        self._times = times
        self._chunks_per_key = chunks_per_key
        self._queues: dict[int, KeyedPolicy[T]] = {}
        self._queue_of: dict[T, KeyedPolicy[T]] = {}

    def observe(self, prompt: Prompt, now: float) -> None:
        """Learn from a prompt."""
        prompt = prompt.sampled(self._chunks_per_key)
        self._times.observe(prompt.keys, prompt.num_local, now)

    def another(self) -> "LhdPolicy[T]":
        """An empty one that goes by the same times."""
        return LhdPolicy(
            self._times, self._chunks_per_key, superseded_first=self.superseded_first
        )

    def add(self, node: T) -> None:
        """Enter ``node`` into the queue of its class."""
        self.remove(node)
        number = class_of(node.num_uses, node.depth // self._chunks_per_key)
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = KeyedPolicy(lru_key)
        queue.add(node)
        self._queue_of[node] = queue

    def touch(self, node: T) -> None:
        """Its class may have changed, and its place."""
        if node in self._queue_of:
            self.add(node)

    def remove(self, node: T) -> None:
        """Forget ``node``."""
        queue = self._queue_of.pop(node, None)
        if queue is not None:
            queue.remove(node)

    def victim(self) -> T | None:
        """The one of the least density; of equals, the longest unused."""
        density, now = self._times.density, self._times.now
        least, found = (math.inf, math.inf), None
        for number, queue in self._queues.items():
            node = queue.victim()
            if node is not None:
                last_use = node.last_use
                rank = density[number][age_band(now - last_use)], last_use
                if rank < least:
                    least, found = rank, node
        return found

    def would_be_next(self, node: T) -> bool:
        """Not known."""
        del node
        return False

    def __contains__(self, node: T) -> bool:
        return node in self._queue_of

    def __len__(self) -> int:
        return len(self._queue_of)

    def __iter__(self) -> Iterator[T]:
        return iter(self._queue_of)
