"""Which host blocks go into which device blocks to resume a request at a node."""

import itertools

from kvcellar.core.actions import BlockCopies
from kvcellar.core.events import BlockTables
from kvcellar.index.index import Index
from kvcellar.index.node import Node


def plan_load(
    index: Index, node: Node, local_tokens: int, tables: BlockTables
) -> list[BlockCopies] | None:
    """Pair every block between the local prefix and ``node`` with its host block.

    ``[0, local) [local, boundary)``: what lies below ``local_tokens`` is on the device
    already, the windows' part of it included, because a later boundary never needs an
    earlier block than a nearer one does.

    Returns:
        None if the engine has not allocated a block that must be written.
    """
    plan = _LoadPlan(index, local_tokens, tables)
    plan.add_chunks(node)
    plan.add_checkpoint(node)
    return None if plan.is_short else [c for c in plan.copies if c.device_blocks]


class _LoadPlan:
    """Copies in the making; a long prompt has thousands of chunks to go through."""

    def __init__(self, index: Index, local_tokens: int, tables: BlockTables) -> None:
        self._index = index
        self._layout = index.rules.layout
        self._local_tokens = local_tokens
        self._tables = tables
        self.copies = [BlockCopies(p) for p in range(len(self._layout.groups))]
        self.is_short = False

    def add_chunks(self, node: Node) -> None:
        first_depth = self._local_tokens // self._index.chunk_tokens
        path = []
        while node.depth > first_depth:
            path.append(node.cells)
            assert node.parent is not None
            node = node.parent
        path.reverse()
        for place, position in enumerate(self._index.rules.chunk_positions):
            num_blocks = self._layout.blocks_per_cell(position)
            numbers = [cells[place].number * num_blocks for cells in path]
            if num_blocks > 1:
                numbers = [n + i for n in numbers for i in range(num_blocks)]
            self._add(position, first_depth * num_blocks, numbers)

    def add_checkpoint(self, node: Node) -> None:
        if node.checkpoint is None:
            return
        cells = iter(node.checkpoint.cells)
        boundary = self._index.boundary(node)
        for position, blocks in self._index.rules.checkpoint_blocks(boundary):
            numbers = [cell.number for cell in itertools.islice(cells, len(blocks))]
            self._add(position, blocks.start, numbers)

    def _add(self, position: int, first: int, host_blocks: list[int]) -> None:
        """Copy consecutive blocks of a group, the one numbered ``first`` first."""
        group = self._layout.groups[position]
        end = first + len(host_blocks)
        wanted = max(first, -(-self._local_tokens // group.tokens_per_block))
        device_blocks = self._tables.block_ids(group.group_id, range(wanted, end))
        if 0 in device_blocks:
            self.is_short = True
            return
        copies = self.copies[position]
        copies.device_blocks += device_blocks
        copies.host_blocks += host_blocks[wanted - first :]
