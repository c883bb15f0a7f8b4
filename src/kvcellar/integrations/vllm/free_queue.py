"""Which cached blocks the engine will soon give away.

The queue's order changes only at its head, which is taken, and its tail; blocks in
between may leave. So one look at its first ``2 * horizon`` blocks is good until the
head has come ``horizon`` blocks further: a look costs little per block given away, and
a step that allocates nothing costs one comparison.
"""

from kvcellar.core.waiting import BlockKey
from kvcellar.integrations.vllm.compat import DeviceBlocks

_GROUP_ID_BYTES = 4  # a cached block's key ends with its group id


def block_key(key: bytes) -> BlockKey:
    """Group id and prefix hash of a cached block's key."""
    return int.from_bytes(key[-_GROUP_ID_BYTES:], "big"), key[:-_GROUP_ID_BYTES]


class FreeQueueWatch:
    """Reports blocks once, when they come within reach of the queue's head.

    Args:
        device_blocks: the engine's block pool.
        horizon: blocks that may be given away before a copy planned now has ended.
    """

    def __init__(self, device_blocks: DeviceBlocks, horizon: int) -> None:
        self._device_blocks = device_blocks
        self.horizon = horizon
        self._places: dict[int, int] = {}
        self._reported: set[bytes] = set()

    def newly_threatened(self) -> list[BlockKey]:
        """Cached blocks within reach that were not reported at the last look."""
        if not self._is_due():
            return []
        front = self._device_blocks.front_of_free_queue(2 * self.horizon)
        self._places = {block.block_id: place for place, block in enumerate(front)}
        keys = {block.block_hash for block in front if block.block_hash is not None}
        unreported = keys - self._reported
        new = [b.block_hash for b in front if b.block_hash in unreported]
        self._reported = keys
        return [block_key(key) for key in dict.fromkeys(new)]

    def _is_due(self) -> bool:
        """Whether less than a horizon of what was looked at is left."""
        if len(self._places) < 2 * self.horizon:
            return True
        (head,) = self._device_blocks.front_of_free_queue(1) or (None,)
        if head is None:
            return False
        place = self._places.get(head.block_id)
        return place is None or place >= self.horizon
