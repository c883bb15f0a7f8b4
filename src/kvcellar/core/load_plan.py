"""Which host blocks go into which device blocks to resume a request at a node."""

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
    def __init__(self, index: Index, local_tokens: int, tables: BlockTables) -> None:
        self._index = index
        self._layout = index.rules.layout
        self._local_tokens = local_tokens
        self._tables = tables
        self.copies = [BlockCopies(p) for p in range(len(self._layout.groups))]
        self.is_short = False

    def add_chunks(self, node: Node) -> None:
        path = []
        while self._index.boundary(node) > self._local_tokens:
            path.append(node)
            assert node.parent is not None
            node = node.parent
        for chunk in reversed(path):
            for position, cell in zip(
                self._layout.chunk_positions, chunk.cells, strict=True
            ):
                num_blocks = self._layout.blocks_per_cell(position)
                first = (chunk.depth - 1) * num_blocks
                for j in range(num_blocks):
                    self._add(position, first + j, cell.number * num_blocks + j)

    def add_checkpoint(self, node: Node) -> None:
        if node.checkpoint is None:
            return
        cells = iter(node.checkpoint.cells)
        boundary = self._index.boundary(node)
        for position, blocks in self._index.rules.checkpoint_blocks(boundary):
            for block in blocks:
                self._add(position, block, next(cells).number)

    def _add(self, position: int, block: int, host_block: int) -> None:
        group = self._layout.groups[position]
        if block * group.tokens_per_block < self._local_tokens:
            return
        device_block = self._tables.block_id(group.group_id, block)
        if not device_block:
            self.is_short = True
            return
        copies = self.copies[position]
        copies.device_blocks.append(device_block)
        copies.host_blocks.append(host_block)
