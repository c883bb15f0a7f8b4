"""The device's contents as lazy mode asks for them: by group and prefix hash."""

from kvcellar.attention.hybrid import HybridRules
from kvcellar.core.waiting import BlockKey
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.device import DeviceCache
from kvcellar.replay.device_leaves import DeviceNode
from kvcellar.replay.keys import PrefixKeys


class DeviceContents:
    """Which blocks the simulated device holds.

    Args:
        layout: the coarse layout, whose append-only blocks are whole chunks.
    """

    def __init__(
        self, device: DeviceCache, layout: CacheLayout, rules: HybridRules
    ) -> None:
        self._device = device
        self._layout = layout
        self._rules = rules
        self._chunk_groups = {
            layout.groups[position].group_id for position in layout.chunk_positions
        }
        self._holder: dict[BlockKey, DeviceNode] = {}
        self._tail_blocks: dict[DeviceNode, list[BlockKey]] = {}

    def find(self, group_id: int, block_hash: bytes) -> int:
        """1 if the device holds the block, 0 if not."""
        if group_id in self._chunk_groups:
            return int(block_hash in self._device.nodes)
        return int((group_id, block_hash) in self._holder)

    def blocks_of(self, node: DeviceNode, *, is_tail: bool) -> list[BlockKey]:
        """Blocks that go with a chunk, or with the windows at its end."""
        if is_tail:
            return self._tail_blocks.get(node, [])
        return [(group_id, node.key) for group_id in self._chunk_groups]

    def tail_kept(self, node: DeviceNode, keys: PrefixKeys, boundary: int) -> None:
        """The device keeps the windows at ``boundary``."""
        blocks = []
        for position, indices in self._rules.checkpoint_blocks(boundary):
            group = self._layout.groups[position]
            size = group.tokens_per_block // self._layout.hash_block_tokens
            blocks += [(group.group_id, keys[(i + 1) * size - 1]) for i in indices]
        self._tail_blocks[node] = blocks
        self._holder.update(dict.fromkeys(blocks, node))

    def tail_dropped(self, node: DeviceNode) -> None:
        """The windows at ``node`` have gone."""
        for block in self._tail_blocks.pop(node, ()):
            if self._holder.get(block) is node:
                del self._holder[block]
