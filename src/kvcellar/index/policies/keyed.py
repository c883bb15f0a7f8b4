"""The base of most policies: whoever has the smallest key goes first."""

import heapq
from collections.abc import Callable, Iterator
from typing import Generic

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.policy import Prompt, T

Key = Callable[[Evictable], tuple[float, float]]
"""Of a history; the smallest is evicted first, among equals the deepest."""

_Entry = tuple[tuple[float, float], int, int, T]
"""Key, -depth, ticket, node: in the order in which nodes go."""

_MIN_HEAP = 64  # below this many entries stale ones are not worth sweeping


class KeyedPolicy(Generic[T]):
    """A heap of (key, -depth) with stale entries skipped when they surface.

    A parent that becomes a leaf takes over the history of the leaf that left, so it
    takes that one's place in the order and not the end of it; an ordered dict could
    not do that.
    """

    wants_history = True
    reads_due = False
    is_selective = False
    superseded_first = False

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[_Entry[T]] = []
        self._current: dict[T, int] = {}  # the ticket that holds
        self._ticket = 0

    def observe(self, prompt: Prompt, now: float) -> None:
        """Nothing is learnt."""

    def another(self) -> "KeyedPolicy[T]":
        """An empty one with the same key."""
        return KeyedPolicy(self._key)

    def add(self, node: T) -> None:
        """Enter ``node`` at the place its history gives it."""
        self._ticket += 1
        entry = (self._key(node), -node.depth, self._ticket, node)
        self._current[node] = self._ticket
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._current) + _MIN_HEAP:
            self._sweep()

    def touch(self, node: T) -> None:
        """Move ``node`` to the place of its newer history."""
        if node in self._current:
            self.add(node)

    def remove(self, node: T) -> None:
        """Forget ``node``."""
        self._current.pop(node, None)

    def victim(self) -> T | None:
        """The node to go next; it stays until it is removed."""
        while self._heap:
            entry = self._heap[0]
            if self._current.get(entry[3]) == entry[2]:
                return entry[3]
            heapq.heappop(self._heap)
        return None

    def would_be_next(self, node: T) -> bool:
        """Whether ``node`` would be the victim; of equals, the one that is here is."""
        if self.victim() is None:
            return True
        return (self._key(node), -node.depth) < self._heap[0][:2]

    def __contains__(self, node: T) -> bool:
        return node in self._current

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[T]:
        return iter(self._current)

    def _sweep(self) -> None:
        self._heap = [e for e in self._heap if self._current.get(e[3]) == e[2]]
        heapq.heapify(self._heap)
