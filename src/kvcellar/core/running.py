"""Requests that are computing what is not held, found by the first such chunk."""

from collections.abc import Sequence

from kvcellar.core.trail import Trail
from kvcellar.index.halving import num_leading


class Running:
    """Trails of running requests, by the key of their first chunk that is not held.

    Whoever meets that key first is remembered; a request behind it on the same path is
    found when it goes on alone.

    Args:
        stride: hashes per chunk.
    """

    def __init__(self, stride: int) -> None:
        self._stride = stride
        self._by_key: dict[bytes, Trail] = {}

    def follow(self, trail: Trail) -> None:
        """Its first chunk that is not held may be another one by now."""
        last = (trail.num_held + 1) * self._stride - 1
        key = trail.hashes[last] if last < len(trail.hashes) else None
        if key != trail.next_key:
            self.leave(trail)
            trail.next_key = key
        if key is not None:
            self._by_key.setdefault(key, trail)

    def leave(self, trail: Trail) -> None:
        """It ends, or goes on."""
        key, trail.next_key = trail.next_key, None
        if key is not None and self._by_key.get(key) is trail:
            del self._by_key[key]

    def find(self, key: bytes) -> Trail | None:
        """The request that has or will have a chunk, which is not held."""
        return self._by_key.get(key)

    def num_shared(self, trail: Trail, hashes: Sequence[bytes], most: int) -> int:
        """Chunks that two prompts share, at most ``most``."""
        stride, other = self._stride, trail.hashes
        return num_leading(
            0,
            min(most, len(other) // stride),
            lambda n: other[n * stride - 1] == hashes[n * stride - 1],
        )
