"""Nodes in the order of their latest use, with both ends at hand."""

import bisect
from collections.abc import Iterator
from typing import Generic

from kvcellar.index.policies.policy import T

_Entry = tuple[float, int, int, T]
"""Latest use, -depth, ticket, node: in the order in which nodes are."""

_MIN_ENTRIES = 64  # below this many, entries that hold no longer are not worth sweeping


class ByAge(Generic[T]):
    """A sorted list; entries that hold no longer are skipped when they are met.

    What comes was mostly used last of all, so it goes to the end at once; a parent
    that takes over the history of a leaf goes to the place of that.
    """

    def __init__(self) -> None:
        self._entries: list[_Entry[T]] = []
        self._first = 0  # entries before it hold no longer
        self._current: dict[T, int] = {}  # the ticket that holds
        self._ticket = 0

    def add(self, node: T) -> None:
        """Enter ``node``, which must not be here; of equals the deepest is first."""
        self._ticket += 1
        entry = (node.used_at, -node.depth, self._ticket, node)
        self._current[node] = self._ticket
        entries = self._entries
        if not entries or entries[-1] < entry:
            entries.append(entry)
        else:
            bisect.insort(entries, entry, lo=self._first)
        if len(entries) > 2 * len(self._current) + _MIN_ENTRIES:
            self._sweep()

    def remove(self, node: T) -> None:
        """Forget ``node``, which must be here."""
        del self._current[node]

    def ends(self) -> tuple[T, ...]:
        """The longest unused and the latest used; one if they are the same."""
        if not self._current:
            return ()
        entries, current = self._entries, self._current
        while current.get(entries[-1][3]) != entries[-1][2]:
            entries.pop()
        while current.get(entries[self._first][3]) != entries[self._first][2]:
            self._first += 1
        oldest, newest = entries[self._first][3], entries[-1][3]
        return (oldest,) if oldest is newest else (oldest, newest)

    def __len__(self) -> int:
        return len(self._current)

    def __iter__(self) -> Iterator[T]:
        return iter(self._current)

    def _sweep(self) -> None:
        self._entries = [e for e in self._entries if self._current.get(e[3]) == e[2]]
        self._first = 0
