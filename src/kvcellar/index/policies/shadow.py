"""A cache that holds no bytes: what a policy would have kept.

A radix tree whose segments are runs of chunks that have always been used together, so
a request costs a few steps however long it is. Chunks of one segment share one history
and would stand side by side in any order of leaves; so segments are evicted from their
ends, and the outcome is that of the chunks' own tree.
"""

import itertools
from collections.abc import Sequence

from kvcellar.index.evictable import GHOSTS_PER_NODE, Evictable, Ghosts, Past
from kvcellar.index.halving import num_leading
from kvcellar.index.policies.keyed import Key, KeyedPolicy


class Segment(Evictable):
    """A run of chunks.

    Attributes:
        keys: the chunks' keys, in order.
        children: by their first key.
    """

    __slots__ = ("children", "keys", "parent")

    def __init__(self, keys: list[bytes], parent: "Segment | None") -> None:
        if parent is None:
            super().__init__(0, 0.0)
        else:
            super().__init__(parent.depth + len(keys), parent.last_use)
        self.keys = keys
        self.parent = parent
        self.children: dict[bytes, Segment] = {}


class ShadowCache:
    """What host memory would hold under another order of eviction.

    Args:
        key: the order.
        num_bytes: its size.
        chunk_bytes: of one chunk.
        checkpoint_bytes: of what resuming needs besides; 0 where chunks suffice.
    """

    def __init__(
        self, key: Key, num_bytes: int, chunk_bytes: int, checkpoint_bytes: int
    ) -> None:
        self._policy: KeyedPolicy[Segment] = KeyedPolicy(key)
        self._num_bytes = num_bytes
        self._chunk_bytes = chunk_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._used_bytes = 0
        self._num_chunks = 0
        self._ghosts = Ghosts()
        self._root = Segment([], None)

    def use(self, keys: Sequence[bytes], now: float) -> int:
        """A prompt comes and is stored.

        Args:
            keys: one per chunk.

        Returns:
            Chunks of it that could have been loaded.
        """
        end, num_known, num_resumable = self._follow(keys)
        num_hits = num_resumable if self._checkpoint_bytes else num_known
        if num_known < len(keys):
            end = self._grow(end, list(keys[num_known:]))
        self._policy.remove(end)
        end.last_use = now
        end.count_use(now)
        while self._used_bytes > self._num_bytes and self._evict_one():
            pass
        if not end.children and self._is_there(end):
            self._policy.add(end)
        return num_hits

    @staticmethod
    def _is_there(segment: Segment) -> bool:
        """Whether it is in the tree, and not its root."""
        parent = segment.parent
        return parent is not None and parent.children.get(segment.keys[0]) is segment

    def _follow(self, keys: Sequence[bytes]) -> tuple[Segment, int, int]:
        """Where a path ends, splitting there: segment, chunks known and resumable."""
        node, num_known, num_resumable = self._root, 0, 0
        while num_known < len(keys):
            child = node.children.get(keys[num_known])
            if child is None:
                break
            shared = _num_shared(child.keys, keys, num_known)
            if shared < len(child.keys):
                node, num_known = self._split(child, shared), num_known + shared
                break
            node, num_known = child, num_known + shared
            num_resumable = num_known
        return node, num_known, num_resumable

    def _split(self, segment: Segment, length: int) -> Segment:
        """Cut ``segment`` after ``length`` chunks; the upper part."""
        parent = segment.parent
        assert parent is not None
        upper = Segment(segment.keys[:length], parent)
        parent.children[upper.keys[0]] = upper
        segment.keys = segment.keys[length:]
        segment.parent = upper
        upper.children[segment.keys[0]] = segment
        self._used_bytes += self._checkpoint_bytes
        return upper

    def _grow(self, parent: Segment, keys: list[bytes]) -> Segment:
        """Add chunks below ``parent``; those that were here before know their past."""
        self._policy.remove(parent)
        pasts = [self._ghosts.returns(key) for key in keys]
        # Chunks that went together have one history; new ones have none.
        for past, run in itertools.groupby(zip(pasts, keys, strict=True), _past_of):
            parent = self._append(parent, [key for _, key in run])
            if past is not None:
                parent.remember(past)
        return parent

    def _append(self, parent: Segment, keys: list[bytes]) -> Segment:
        child = parent.children[keys[0]] = Segment(keys, parent)
        self._num_chunks += len(keys)
        self._used_bytes += len(keys) * self._chunk_bytes + self._checkpoint_bytes
        return child

    def _evict_one(self) -> bool:
        """Let the end of a leaf go; False if only the running prompt is left."""
        leaf = self._policy.victim()
        if leaf is None:
            return False
        excess = -(-(self._used_bytes - self._num_bytes) // self._chunk_bytes)
        if not self._checkpoint_bytes and excess < len(leaf.keys):
            self._leave(leaf, excess)
            del leaf.keys[-excess:]
            leaf.depth -= excess
        else:
            self._drop(leaf)
        return True

    def _drop(self, leaf: Segment) -> None:
        self._policy.remove(leaf)
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.keys[0]]
        self._leave(leaf, len(leaf.keys))
        self._used_bytes -= self._checkpoint_bytes
        parent.take_over(leaf)
        if not parent.children and parent.keys:
            self._policy.add(parent)

    def _leave(self, leaf: Segment, num_chunks: int) -> None:
        """So many chunks at the end of ``leaf`` go."""
        self._num_chunks -= num_chunks
        self._used_bytes -= num_chunks * self._chunk_bytes
        most = GHOSTS_PER_NODE * self._num_chunks
        self._ghosts.leave(leaf.keys[-num_chunks:], leaf, most)


def _num_shared(known: Sequence[bytes], keys: Sequence[bytes], first: int) -> int:
    """How far two runs agree; by halving, since a key stands for all before it."""
    most = min(len(known), len(keys) - first)
    return num_leading(1, most, lambda n: known[n - 1] == keys[first + n - 1])


def _past_of(chunk: tuple[Past | None, bytes]) -> Past | None:
    return chunk[0]
