"""A cache that holds no bytes: what a policy would have kept.

Chunks of one run share one history and would stand side by side in any order of
leaves; so runs are evicted from their ends, and the outcome is that of the chunks' own
tree.
"""

import itertools
from collections.abc import Iterable, Sequence

from kvcellar.index.evictable import GHOSTS_PER_NODE, Ghosts, Past
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.policies.runs import Run, find


class ShadowCache:
    """What host memory would hold under another order of eviction.

    Args:
        policy: the order; empty.
        num_bytes: its size.
        chunk_bytes: of one chunk.
        checkpoint_bytes: of what resuming needs besides; 0 where chunks suffice.
    """

    def __init__(
        self,
        policy: EvictionPolicy[Run],
        num_bytes: int,
        chunk_bytes: int,
        checkpoint_bytes: int,
    ) -> None:
        self._policy = policy
        self._num_bytes = num_bytes
        self._chunk_bytes = chunk_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._used_bytes = 0
        self._num_chunks = 0
        self._ghosts = Ghosts()
        self._root = Run([], None)

    def use(self, keys: Sequence[bytes], now: float) -> int:
        """A prompt comes and is stored.

        Args:
            keys: one per chunk.

        Returns:
            Chunks of it that could have been loaded.
        """
        end, num_shared = find(self._root, keys)
        num_hits = self._num_hits(end, num_shared)
        end = self._open(end, num_shared)
        num_fitting = self._num_fitting(len(keys))
        if end.depth < num_fitting:
            end = self._grow(end, list(keys[end.depth : num_fitting]))
        self._policy.remove(end)
        end.count_use(now)
        self._settle(end, now)
        return num_hits

    def store_due(self, keys: Iterable[bytes], now: float) -> None:
        """These chunks have waited long enough; here nothing waits."""

    def _num_hits(self, end: Run, num_shared: int) -> int:
        """Chunks to be loaded by a prompt that leaves ``end`` after so many of its."""
        num_lacking = len(end.keys) - num_shared
        if num_lacking and self._checkpoint_bytes:
            num_lacking = len(end.keys)  # inside a run there is none to resume with
        return end.depth - num_lacking

    def _num_fitting(self, num_chunks: int) -> int:
        """Chunks of a path that are of use in a cache that has nothing else.

        Where resuming takes a checkpoint, a part without its end is of none.
        """
        most = (self._num_bytes - self._checkpoint_bytes) // self._chunk_bytes
        if num_chunks <= most:
            return num_chunks
        return 0 if self._checkpoint_bytes else most

    def _open(self, end: Run, num_shared: int) -> Run:
        """A run that ends where a path leaves ``end``."""
        if num_shared == len(end.keys):
            return end
        self._used_bytes += self._checkpoint_bytes
        return end.split(num_shared)

    def _settle(self, end: Run, now: float) -> None:
        """What ends here was used now; make room for it. The order does not have it."""
        end.last_use = now
        while self._used_bytes > self._num_bytes and self._evict_one():
            pass
        if not end.children and end.is_there:
            self._policy.add(end)

    def _grow(self, parent: Run, keys: list[bytes]) -> Run:
        """Add chunks below ``parent``; those that were here before know their past."""
        self._policy.remove(parent)
        pasts = self._ghosts.all_return(keys)
        if not pasts:
            return self._append(parent, keys)
        # Chunks that went together have one history; new ones have none.
        for past, run in itertools.groupby(zip(pasts, keys, strict=True), _past_of):
            parent = self._append(parent, [key for _, key in run])
            if past is not None:
                parent.remember(past)
        return parent

    def _append(self, parent: Run, keys: list[bytes]) -> Run:
        self._num_chunks += len(keys)
        self._used_bytes += len(keys) * self._chunk_bytes + self._checkpoint_bytes
        return parent.append(keys)

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

    def _drop(self, leaf: Run) -> None:
        self._policy.remove(leaf)
        self._leave(leaf, len(leaf.keys))
        self._used_bytes -= self._checkpoint_bytes
        parent = leaf.drop()
        parent.take_over(leaf)
        if not parent.children and parent.keys:
            self._policy.add(parent)

    def _leave(self, leaf: Run, num_chunks: int) -> None:
        """So many chunks at the end of ``leaf`` go."""
        self._num_chunks -= num_chunks
        self._used_bytes -= num_chunks * self._chunk_bytes
        most = GHOSTS_PER_NODE * self._num_chunks
        self._ghosts.leave(leaf.keys[-num_chunks:], leaf, most)


def _past_of(chunk: tuple[Past | None, bytes]) -> Past | None:
    return chunk[0]
