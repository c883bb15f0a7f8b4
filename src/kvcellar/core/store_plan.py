"""One store job in the making: chunks and checkpoints of one request in one step."""

from collections.abc import Sequence

from kvcellar.core.actions import BlockCopies
from kvcellar.core.counters import CoreCounters
from kvcellar.core.events import BlockTables
from kvcellar.core.origin import Origin
from kvcellar.core.record import StoreRecord
from kvcellar.index.announcements import Notice
from kvcellar.index.cells import Cell
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.reasons import MissReason

_Filled = tuple[Cell, list[int]]  # a cell, and the device blocks that fill it


class StorePlan:
    """Takes cells and enters nodes; the copies are written down at the end.

    Cell numbers are read only in ``copies``: making room for a later cell may move an
    earlier one.

    Args:
        hashes: the request's prefix hashes.
        tables: its block tables during the step that computes the tokens.
        counters: what was decided.
        origin: what the request brings along.
    """

    def __init__(
        self,
        index: Index,
        hashes: Sequence[bytes],
        tables: BlockTables,
        counters: CoreCounters,
        origin: Origin,
    ) -> None:
        self._index = index
        self._content = origin.content
        self._priority = origin.priority
        self._tenant = origin.tenant
        self._layout = index.rules.layout
        self._blocks_per_cell = index.cells.slabs.geometry.blocks_per_cell
        self._chunk_positions = index.rules.chunk_positions
        self._hashes = hashes
        self._tables = tables
        self._counters = counters
        self._filled: list[_Filled] = []
        self.record = StoreRecord()
        self.refusal: MissReason | None = None  # of the last chunk that was not added

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy and nothing to publish."""
        return not (self.record.nodes or self.record.checkpoints)

    def add_chunk(self, parent: Node) -> Node | None:
        """Store the chunk after ``parent``.

        Returns:
            The new node, or None when there is no room or no block to read.
        """
        sources = self._chunk_sources(parent.depth)
        if sources is None:
            self._counters.stores_without_block += 1
            self.refusal = MissReason.NO_BLOCK
            return None
        cells = self._take(self._chunk_positions)
        if cells is None:
            self.refusal = MissReason.NO_ROOM
            return None
        if self._content is not None:
            self._describe_chunk(cells, parent.depth)
        key = self._hashes[(parent.depth + 1) * self._index.hashes_per_chunk - 1]
        node = self._index.add_chunk(parent, key, tuple(cells))
        if self._priority:
            node.priority = self._priority
        if self._tenant is not None:
            self._index.tenants.owners[node] = self._tenant
        self._filled += zip(cells, sources, strict=True)
        self.record.nodes.append(node)
        self._counters.stored_chunks += 1
        return node

    def add_checkpoint(self, node: Node, *, is_decoded: bool = False) -> bool:
        """Store what resuming at the end of ``node`` needs besides chunks.

        Blocks that a neighbouring checkpoint holds already are shared, not copied.
        """
        cells: list[Cell] = []
        filled: list[_Filled] = []
        self._index.pin(node)
        for position, blocks in self._index.rules.checkpoint_blocks(
            self._index.boundary(node)
        ):
            for block in blocks:
                cell = self._checkpoint_cell(position, block, filled)
                if cell is None:
                    self._index.cells.release(cells)
                    self._index.unpin(node)
                    return False
                cells.append(cell)
        checkpoint = self._index.add_checkpoint(
            node, tuple(cells), is_decoded=is_decoded
        )
        self._index.unpin(node)
        self._filled += filled
        self.record.checkpoints.append((node, checkpoint))
        self._counters.stored_checkpoints += 1
        return True

    def copies(self) -> list[BlockCopies]:
        """What to copy; call it after the last cell has been taken."""
        by_position = [BlockCopies(p) for p in range(len(self._layout.groups))]
        for cell, device_blocks in self._filled:
            copies = by_position[cell.position]
            copies.device_blocks += device_blocks
            first = cell.number * self._blocks_per_cell[cell.position]
            copies.host_blocks += range(first, first + len(device_blocks))
        self.record.cells += [cell for cell, _ in self._filled]
        return [c for c in by_position if c.device_blocks]

    def _chunk_sources(self, depth: int) -> list[list[int]] | None:
        """Device blocks of the chunk at ``depth``, by group; None if one is gone."""
        sources = []
        for position in self._chunk_positions:
            group_id = self._layout.groups[position].group_id
            num_blocks = self._blocks_per_cell[position]
            first = depth * num_blocks
            blocks = [
                self._tables.block_id(group_id, index)
                for index in range(first, first + num_blocks)
            ]
            if 0 in blocks:
                return None
            sources.append(blocks)
        return sources

    def _describe_chunk(self, cells: Sequence[Cell], depth: int) -> None:
        for cell in cells:
            num_blocks = self._blocks_per_cell[cell.position]
            self._describe(cell, range(depth * num_blocks, (depth + 1) * num_blocks))

    def _describe(self, cell: Cell, blocks: range) -> None:
        """Note what followers are to be told of a cell."""
        announcements = self._index.cells.announcements
        if self._content is not None and announcements is not None:
            content = self._content.describe(cell.position, blocks)
            announcements.notices[cell] = Notice(content)

    def _checkpoint_cell(
        self, position: int, block: int, filled: list[_Filled]
    ) -> Cell | None:
        group = self._layout.groups[position]
        key = self._index.share_key(position, block, self._hashes)
        cell = self._index.cells.find(key)
        if cell is not None:
            return cell
        device_block = self._tables.block_id(group.group_id, block)
        if not device_block:
            self._counters.stores_without_block += 1
            return None
        cell = self._index.allocate(position, self._tenant)
        if cell is None:
            self._counters.stores_without_room += 1
            return None
        self._describe(cell, range(block, block + 1))
        self._index.cells.share(key, cell)
        filled.append((cell, [device_block]))
        return cell

    def _take(self, positions: Sequence[int]) -> list[Cell] | None:
        cells: list[Cell] = []
        for position in positions:
            cell = self._index.allocate(position, self._tenant)
            if cell is None:
                self._index.cells.release(cells)
                self._counters.stores_without_room += 1
                return None
            cells.append(cell)
        return cells
