"""What is remembered of chunks that have gone: each until it returns, the latest only.

Without it everything that returns looks new, and what is used rarely but surely could
never be told from what is used once.

A path leaves chunk by chunk from its end, and mostly all of them have one history. So
there is one entry for as many as followed each other: its end is forgotten first, and
it returns from its beginning, by whose key it is found.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence

from kvcellar.index.evictable import GHOSTS_PER_NODE, Evictable, Past


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
    """Histories of single chunks, which leave and return as the prefix tree allows.

    Args:
        sample: only one chunk in so many is remembered, by its depth.
    """

    def __init__(self, sample: int = 1) -> None:
        self.sample = sample
        self._oldest_first: OrderedDict[_GonePath, None] = OrderedDict()
        self._by_first_key: dict[bytes, _GonePath] = {}
        self._latest: _GonePath | None = None
        self._expected: Evictable | None = None  # the one above the latest to go
        self._num_chunks = 0

    def most_beside(self, num_chunks: int) -> int:
        """Histories that are worth keeping where so many chunks are there."""
        return GHOSTS_PER_NODE * num_chunks // self.sample

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

    # -- whole paths; all take the keys of a prompt, one per chunk -------------------

    def known_parts(
        self, keys: Sequence[bytes], start: int
    ) -> Iterator[tuple[int, Past]]:
        """What is known behind the first ``start`` chunks, which are there.

        Returns:
            The depth at which each part ends, and its history, which the next one does
            not share.
        """
        sampled = keys[self._first_sampled(start) :: self.sample]
        num_known, depth, past = 0, start // self.sample * self.sample, None
        while num_known < len(sampled):
            path = self._by_first_key.get(sampled[num_known])
            if path is None:
                break
            if past is not None and past != path.past:
                yield depth + num_known * self.sample, past
            past = path.past
            for key in reversed(path.keys):
                if num_known == len(sampled) or sampled[num_known] != key:
                    break
                num_known += 1
        if past is not None:
            yield depth + num_known * self.sample, past

    def all_return(self, keys: Sequence[bytes], start: int) -> None:
        """Forget what is known behind the first ``start`` chunks."""
        for key in keys[self._first_sampled(start) :: self.sample]:
            self.returns(key)

    def all_leave(
        self, keys: Sequence[bytes], start: int, end: int, past: Past, most: int
    ) -> None:
        """The chunks from ``start`` to ``end`` go together.

        Args:
            past: their history.
            most: histories that are kept from now on.
        """
        going = keys[self._first_sampled(start) : end : self.sample]
        if not going:
            return
        self._latest = None  # what goes next goes after these
        path = _GonePath(past)
        path.keys.extend(reversed(going))
        self._oldest_first[path] = None
        self._by_first_key[going[0]] = path
        self._num_chunks += len(going)
        while self._num_chunks > most:
            self._forget_oldest()

    def _first_sampled(self, start: int) -> int:
        """Place of the first key behind ``start`` that can be remembered."""
        return (start // self.sample + 1) * self.sample - 1

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
