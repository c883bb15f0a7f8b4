"""What shadow caches remember of runs that have gone.

Chunks that go together have one history, and what is left of them is always their end:
a path returns from its beginning, and of the oldest the first are forgotten first. So
there is one entry per run, found by its first key.
"""

from collections import OrderedDict

from kvcellar.index.evictable import Evictable, Past
from kvcellar.index.policies.runs import num_shared


class _Ghost:
    """Chunks that went together, and their history."""

    __slots__ = ("keys", "past")

    def __init__(self, keys: list[bytes], past: Past) -> None:
        self.keys = keys
        self.past = past


class GhostRuns:
    """Histories of runs, each until it returns; the latest chunks' only."""

    def __init__(self) -> None:
        self._oldest_first: OrderedDict[_Ghost, None] = OrderedDict()
        self._by_first_key: dict[bytes, _Ghost] = {}
        self._num_chunks = 0

    def leave(self, keys: list[bytes], node: Evictable, most_chunks: int) -> None:
        """Chunks of ``node`` go.

        Args:
            keys: in order; they are this one's from now on.
            node: whose history they have.
            most_chunks: that are remembered from now on.
        """
        ghost = self._by_first_key[keys[0]] = _Ghost(keys, node.past())
        self._oldest_first[ghost] = None
        self._num_chunks += len(keys)
        while self._num_chunks > most_chunks:
            oldest = next(iter(self._oldest_first))
            self._take(oldest, min(self._num_chunks - most_chunks, len(oldest.keys)))

    def all_return(self, keys: list[bytes]) -> list[tuple[list[bytes], Past | None]]:
        """The next part of a path is there again.

        Returns:
            The keys in order, cut where what is known of them changes.
        """
        parts: list[tuple[list[bytes], Past | None]] = []
        first = 0
        while first < len(keys):
            end, past = self._next_part(keys, first)
            if parts and parts[-1][1] == past:
                parts[-1][0].extend(keys[first:end])
            else:
                parts.append((keys[first:end], past))
            first = end
        return parts

    def _next_part(self, keys: list[bytes], first: int) -> tuple[int, Past | None]:
        """Where it ends, and what was known of it."""
        ghost = self._by_first_key.get(keys[first])
        if ghost is None:
            return self._end_of_unknown(keys, first), None
        num_chunks = num_shared(ghost.keys, keys, first)
        self._take(ghost, num_chunks)
        return first + num_chunks, ghost.past

    def _end_of_unknown(self, keys: list[bytes], first: int) -> int:
        """Where what is known begins again.

        What hung below a chunk went before it or with it. So behind one that is
        forgotten nothing is known but the rest of its own run, the oldest there is.
        """
        oldest = next(iter(self._oldest_first), None)
        if oldest is not None and oldest.keys[0] in keys[first:]:
            return keys.index(oldest.keys[0], first)
        return len(keys)

    def _take(self, ghost: _Ghost, num_chunks: int) -> None:
        """Forget so many at the beginning of ``ghost``."""
        keys = ghost.keys
        self._num_chunks -= num_chunks
        del self._by_first_key[keys[0]]
        if num_chunks == len(keys):
            del self._oldest_first[ghost]
            return
        del keys[:num_chunks]
        self._by_first_key[keys[0]] = ghost
