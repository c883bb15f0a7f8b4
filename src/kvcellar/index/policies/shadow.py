"""A cache that holds no bytes: what a policy would have kept.

Chunks of one run share one history and would stand side by side in any order of
leaves; so runs are evicted from their ends, and the outcome is that of the chunks' own
tree. Where resuming takes a checkpoint, there is one at the end of each run, until a
deeper one has replaced it and the order gives it up.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from kvcellar.index.evictable import GHOSTS_PER_NODE
from kvcellar.index.policies.ghost_runs import GhostRuns
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
        self._is_selective = policy.is_selective
        self._num_bytes = num_bytes
        self._chunk_bytes = chunk_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self._most_chunks = (num_bytes - checkpoint_bytes) // chunk_bytes  # of a path
        self._used_bytes = 0
        self._num_chunks = 0
        self._ghosts = GhostRuns()
        self._root = Run([], None)
        self._replaced: deque[Run] = deque()  # whose checkpoint may have been

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
        end.count_use(now)
        self._settle(end, now)
        return num_hits

    def store_due(self, keys: Iterable[bytes], now: float) -> None:
        """These chunks have waited long enough; here nothing waits."""

    def _num_hits(self, end: Run, num_shared: int) -> int:
        """Chunks to be loaded by a prompt that leaves ``end`` after so many of its."""
        num_lacking = len(end.keys) - num_shared
        if not self._checkpoint_bytes:
            return end.depth - num_lacking
        # Inside a run there is none to resume with.
        return self._resume_point(end.parent_run if num_lacking else end).depth

    def _resume_point(self, run: Run) -> Run:
        """The nearest run at or above this one with a checkpoint, or the root."""
        while run.parent is not None and not run.has_checkpoint:
            run = run.parent
        return run

    def _num_fitting(self, num_chunks: int) -> int:
        """Chunks of a path that are of use in a cache that has nothing else.

        Where resuming takes a checkpoint, a part without its end is of none.
        """
        if num_chunks <= self._most_chunks:
            return num_chunks
        return 0 if self._checkpoint_bytes else self._most_chunks

    def _open(self, end: Run, num_shared: int) -> Run:
        """A run that ends where a path leaves ``end``; the order does not have it."""
        if num_shared < len(end.keys):
            end = end.split(num_shared)
        if end.keys and not end.has_checkpoint:
            self._add_checkpoint(end)
        self._policy.remove(end)
        return end

    def _add_checkpoint(self, run: Run) -> None:
        """A prompt leaves at the end of ``run``, so it can be resumed there."""
        run.has_checkpoint = True
        self._used_bytes += self._checkpoint_bytes
        if self._checkpoint_bytes and self._policy.superseded_first:
            above = self._resume_point(run.parent_run)
            if above.has_checkpoint:
                self._replaced.append(above)

    def _settle(self, end: Run, now: float) -> None:
        """What ends here was used now; make room for it. The order does not have it.

        A selective order may let it go at once: then it does not come in.
        """
        end.last_use = now
        if self._is_selective and not end.children and end.is_there:
            self._policy.add(end)
        while self._used_bytes > self._num_bytes and self._evict_one():
            pass
        if not end.children and end.is_there and end not in self._policy:
            self._policy.add(end)

    def _grow(self, parent: Run, keys: list[bytes]) -> Run:
        """Add chunks below ``parent``; those that were here before know their past."""
        for part, past in self._ghosts.all_return(keys):
            parent = self._append(parent, part)
            if past is not None:
                parent.remember(past)
        return parent

    def _append(self, parent: Run, keys: list[bytes]) -> Run:
        self._num_chunks += len(keys)
        self._used_bytes += len(keys) * self._chunk_bytes
        run = parent.append(keys)
        self._add_checkpoint(run)
        return run

    def _evict_one(self) -> bool:
        """Let the next to go go; False if only the running prompt is left."""
        if self._replaced and (replaced := self._take_replaced()):
            self._drop_checkpoint(replaced)
            return True
        leaf = self._policy.victim()
        if leaf is None:
            return False
        excess = -(-(self._used_bytes - self._num_bytes) // self._chunk_bytes)
        if not self._checkpoint_bytes and excess < len(leaf.keys):
            self._leave(leaf.cut(excess), leaf)
        else:
            self._drop(leaf)
        return True

    def _take_replaced(self) -> Run | None:
        """A run whose checkpoint a deeper one has replaced, the oldest first."""
        while self._replaced:
            run = self._replaced.popleft()
            if run.has_checkpoint and run.is_there and _is_replaced(run):
                return run
        return None

    def _drop_checkpoint(self, run: Run) -> None:
        run.has_checkpoint = False
        self._used_bytes -= self._checkpoint_bytes

    def _drop(self, leaf: Run) -> None:
        """Let a leaf go, and what could not be resumed at without it."""
        self._policy.remove(leaf)
        while True:
            parent = leaf.drop()
            self._leave(leaf.keys, leaf)
            if leaf.has_checkpoint:
                self._drop_checkpoint(leaf)
            if not parent.is_there:
                return
            parent.take_over(leaf)
            if parent.children:
                return
            if parent.has_checkpoint:
                self._policy.add(parent)
                return
            leaf = parent

    def _leave(self, keys: list[bytes], run: Run) -> None:
        """Chunks at the end of ``run`` go."""
        self._num_chunks -= len(keys)
        self._used_bytes -= len(keys) * self._chunk_bytes
        self._ghosts.leave(keys, run, GHOSTS_PER_NODE * self._num_chunks)


def _is_replaced(run: Run) -> bool:
    """Whether the only path down leads to another checkpoint."""
    while len(run.children) == 1:
        (run,) = run.children.values()
        if run.has_checkpoint:
            return True
    return False
