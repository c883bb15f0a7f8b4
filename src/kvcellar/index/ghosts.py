"""What is remembered of chunks that have gone: each until it returns, the latest only.

Without it everything that returns looks new, and what is used rarely but surely could
never be told from what is used once.

A path leaves chunk by chunk from its end, and mostly all of them have one history. So
there is one entry for as many as followed each other: its end is forgotten first, and
it returns from its beginning, by whose key it is found.
"""

from collections import OrderedDict, deque

from kvcellar.index.evictable import Evictable, Past


class _GonePath:
    """Chunks of one path that went one after another, with one history.

    Attributes:
        keys: of the deepest first.
    """

    __slots__ = ("keys", "past")

    def __init__(self, past: Past) -> None:
        self.past = past
        self.keys: deque[bytes] = deque()


class Ghosts:
    """Histories of single chunks, which leave and return as the prefix tree allows."""

    def __init__(self) -> None:
        self._oldest_first: OrderedDict[_GonePath, None] = OrderedDict()
        self._by_first_key: dict[bytes, _GonePath] = {}
        self._latest: _GonePath | None = None
        self._expected: Evictable | None = None  # the one above the latest to go
        self._num_chunks = 0

    def leave(self, key: bytes, node: Evictable, parent: Evictable, most: int) -> None:
        """A leaf goes.

        Args:
            node: whose history it has.
            parent: the one above; its own turn may be next.
            most: histories that are kept from now on.
        """
        past, path, by_first_key = node.past(), self._latest, self._by_first_key
        if node is self._expected and path is not None and path.past == past:
            del by_first_key[path.keys[-1]]
        else:
            path = self._latest = _GonePath(past)
            self._oldest_first[path] = None
        path.keys.append(key)
        by_first_key[key] = path
        self._expected = parent
        self._num_chunks += 1
        while self._num_chunks > most:
            self._forget_oldest()

    def returns(self, key: bytes) -> Past | None:
        """What is known of a chunk that comes back; those above it are there."""
        path = self._by_first_key.pop(key, None)
        if path is None:
            return None
        path.keys.pop()
        self._num_chunks -= 1
        if path.keys:
            self._by_first_key[path.keys[-1]] = path
        else:
            self._end(path)
        return path.past

    def clear(self) -> None:
        """Forget everything."""
        self._oldest_first.clear()
        self._by_first_key.clear()
        self._latest = self._expected = None
        self._num_chunks = 0

    def _forget_oldest(self) -> None:
        path = next(iter(self._oldest_first))
        key = path.keys.popleft()
        self._num_chunks -= 1
        if not path.keys:
            del self._by_first_key[key]
            self._end(path)

    def _end(self, path: _GonePath) -> None:
        """Nothing is left of ``path``."""
        del self._oldest_first[path]
        if path is self._latest:
            self._latest = None
