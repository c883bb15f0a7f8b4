"""What is going to happen, in the order of time."""

import heapq
import itertools
from collections.abc import Callable


class Agenda:
    """A clock and the things that are due. Ties are kept in the order of entry."""

    def __init__(self) -> None:
        self.now = 0.0
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._tickets = itertools.count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let ``what`` happen at ``when``, in seconds."""
        heapq.heappush(self._entries, (when, next(self._tickets), what))

    def run_until(self, when: float) -> None:
        """Let everything happen that is due by ``when``."""
        while self._entries and self._entries[0][0] <= when:
            self.now, _, what = heapq.heappop(self._entries)
            what()


class Lane:
    """Something that serves one thing at a time, such as a copy engine."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def take(self, ready: float, seconds: float) -> float:
        """When something ends that is ready at a time and takes so many seconds."""
        self._free_at = max(self._free_at, ready) + seconds
        return self._free_at
