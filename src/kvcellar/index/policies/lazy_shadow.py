"""What a policy would have kept in lazy mode: of what the device loses.

Whatever a shadow lacks of a prompt waits until the device loses it, and is stored then
with all that it stands on. A shadow that stored at once would judge the orders by uses
that the device serves, and by a turnover that is not that of the cache.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.policies.runs import Run, find
from kvcellar.index.policies.shadow import ShadowCache

MOST_WAITING = 2**16  # chunks; the device may lose some without a word


@dataclass(slots=True, eq=False)
class _Waiting:
    """A chunk that the device has: the end of the first ``depth`` of ``keys``."""

    keys: Sequence[bytes]
    depth: int
    uses: tuple[float, ...] = ()  # of prompts that ended here


class LazyShadowCache(ShadowCache):
    """The same as ``ShadowCache``, filled as lazy mode fills host memory."""

    def __init__(
        self,
        policy: EvictionPolicy[Run],
        num_bytes: int,
        chunk_bytes: int,
        checkpoint_bytes: int,
    ) -> None:
        super().__init__(policy, num_bytes, chunk_bytes, checkpoint_bytes)
        self._waiting: OrderedDict[bytes, _Waiting] = OrderedDict()

    def use(self, keys: Sequence[bytes], now: float) -> int:
        """A prompt comes, and what it lacks here is on the device from now on.

        Args:
            keys: one per chunk.

        Returns:
            Chunks of it that could have been loaded.
        """
        end, num_shared = find(self._root, keys)
        is_whole = num_shared == len(end.keys)
        num_known = end.depth - len(end.keys) + num_shared
        if is_whole and end.keys:
            end.last_use = now
            if num_known == len(keys):
                end.count_use(now)
            self._policy.touch(end)
        if num_known < len(keys):
            self._let_wait(keys, num_known, now)
        return self._num_hits(end, num_shared)

    def store_due(self, keys: Iterable[bytes], now: float) -> None:
        """These chunks have waited long enough: they are stored."""
        for key in keys:
            chunk = self._waiting.get(key)
            if chunk is not None:
                num_fitting = self._num_fitting(chunk.depth)
                if num_fitting == chunk.depth or not self._checkpoint_bytes:
                    self._store(chunk.keys[:num_fitting], now)
                else:
                    self._give_up(chunk)

    def _let_wait(self, keys: Sequence[bytes], num_known: int, now: float) -> None:
        waiting = self._waiting
        for depth in range(num_known + 1, len(keys) + 1):
            key = keys[depth - 1]
            if key not in waiting:
                waiting[key] = _Waiting(keys, depth)
        waiting[keys[-1]].uses += (now,)
        while len(waiting) > MOST_WAITING:
            waiting.popitem(last=False)

    def _give_up(self, chunk: _Waiting) -> None:
        """Too long a path: down to a resume point that fits, none of it is of use."""
        for depth in range(chunk.depth, 0, -1):
            waiting = self._waiting.get(chunk.keys[depth - 1])
            if waiting is None:
                continue
            if waiting.uses and self._num_fitting(depth):
                break
            del self._waiting[chunk.keys[depth - 1]]

    def _store(self, keys: Sequence[bytes], now: float) -> None:
        """A path comes in; prompts that ended inside cut it, and count there."""
        end = self._open(*find(self._root, keys))
        first = end.depth
        for depth in range(first + 1, len(keys) + 1):
            chunk = self._waiting.pop(keys[depth - 1], None)
            uses = () if chunk is None else chunk.uses
            if uses or depth == len(keys):
                end = self._grow(end, list(keys[first:depth]))
                first = depth
            for time in uses:
                end.count_use(time)
        self._settle(end, now)
