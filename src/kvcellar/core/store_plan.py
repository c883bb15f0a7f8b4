"""One store job in the making: chunks and checkpoints of one request in one step."""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from kvcellar.core.actions import BlockCopies
from kvcellar.core.counters import CoreCounters
from kvcellar.core.events import BlockTables
from kvcellar.core.origin import Origin
from kvcellar.core.record import StoreRecord
from kvcellar.index.cells import Cell
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.reasons import MissReason


class _Filled(NamedTuple):
    """Cells of one group, and the device blocks that fill them, in order."""

    position: int
    cells: list[Cell]
    device_blocks: list[int]


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

    def add_path(self, parent: Node, depth: int) -> list[Node]:
        """Store the chunks behind ``parent`` down to ``depth``, as far as possible.

        Returns:
            The new nodes; fewer when there is no room or no block to read.
        """
        first = parent.depth
        if first >= depth:
            return []
        sources, num_there = self._chunk_sources(first, depth - first)
        stride = self._index.hashes_per_chunk
        keys = self._hashes[
            (first + 1) * stride - 1 : (first + num_there) * stride : stride
        ]
        nodes = self._index.add_path(parent, keys, self._tenant)
        if len(nodes) < num_there:
            self._counters.stores_without_room += 1
            self.refusal = MissReason.NO_ROOM
        elif first + num_there < depth:
            self._counters.stores_without_block += 1
            self.refusal = MissReason.NO_BLOCK
        self._fill(nodes, sources)
        return nodes

    def _fill(self, nodes: list[Node], sources: list[list[int]]) -> None:
        """Note where the cells of new nodes come from.

        Args:
            sources: device blocks by group; those of the first nodes come first.
        """
        for place, position in enumerate(self._chunk_positions):
            num_blocks = len(nodes) * self._blocks_per_cell[position]
            cells = [node.cells[place] for node in nodes]
            filled = _Filled(position, cells, sources[place][:num_blocks])
            self._filled.append(filled)
        if self._content is not None:
            for node in nodes:
                self._describe_chunk(node.cells, node.depth - 1)
        if self._priority:
            for node in nodes:
                node.priority = self._priority
        self.record.nodes += nodes
        self._counters.stored_chunks += len(nodes)

    def add_checkpoint(self, node: Node, *, is_decoded: bool = False) -> bool:
        """Store what resuming at the end of ``node`` needs besides chunks.

        Blocks that a neighbouring checkpoint holds already are shared, not copied.
        """
        index, filled = self._index, list[_Filled]()
        index.pin(node)  # making room must not take it
        evictions = index.evictions()
        cells = self._checkpoint_cells(index.boundary(node), filled, evictions)
        evictions.close()
        if cells is not None:
            checkpoint = index.add_checkpoint(node, cells, is_decoded=is_decoded)
            self._filled += filled
            self.record.checkpoints.append((node, checkpoint))
            self._counters.stored_checkpoints += 1
        index.unpin(node)
        return cells is not None

    def _checkpoint_cells(
        self, boundary: int, filled: list[_Filled], evictions: Generator[bool]
    ) -> tuple[Cell, ...] | None:
        """Cells of a checkpoint; None, and none is taken, when one cannot be had."""
        cells: list[Cell] = []
        for position, blocks in self._index.rules.checkpoint_blocks(boundary):
            new = _Filled(position, [], [])
            filled.append(new)
            if not self._take_cells(blocks, cells, new, evictions):
                self._index.cells.release(cells)
                return None
        return tuple(cells)

    def _take_cells(
        self, blocks: range, cells: list[Cell], new: _Filled, evictions: Generator[bool]
    ) -> bool:
        """Add the cells of consecutive blocks; False when one cannot be had.

        Args:
            cells: takes all of them.
            new: of the group's position; takes those that nobody has yet.
        """
        find, share = self._index.cells.find, self._index.cells.share
        group_id = self._layout.groups[new.position].group_id
        keys = self._index.share_keys(new.position, blocks, self._hashes)
        sources = self._tables.block_ids(group_id, blocks)
        for block, key, source in zip(blocks, keys, sources, strict=True):
            cell = find(key)
            if cell is None:
                cell = self._new_cell(new.position, source, evictions)
                if cell is None:
                    return False
                if self._content is not None:
                    cell.notice = (self._content, block)
                share(key, cell)
                new.cells.append(cell)
                new.device_blocks.append(source)
            cells.append(cell)
        return True

    def _new_cell(
        self, position: int, source: int, evictions: Generator[bool]
    ) -> Cell | None:
        """A cell to be filled from a device block; None without a block or room."""
        if not source:
            self._counters.stores_without_block += 1
            return None
        cell = self._index.allocate(position, self._tenant, evictions)
        if cell is None:
            self._counters.stores_without_room += 1
        return cell

    def copies(self) -> list[BlockCopies]:
        """What to copy; call it after the last cell has been taken."""
        by_position: dict[int, BlockCopies] = {}
        for position, cells, device_blocks in self._filled:
            if not cells:
                continue
            host_blocks = self._host_blocks(position, cells)
            copies = by_position.get(position)
            if copies is None:
                by_position[position] = BlockCopies(
                    position, device_blocks, host_blocks
                )
            else:
                copies.device_blocks += device_blocks
                copies.host_blocks += host_blocks
            self.record.cells += cells
        return [by_position[position] for position in sorted(by_position)]

    def _host_blocks(self, position: int, cells: list[Cell]) -> list[int]:
        size = self._blocks_per_cell[position]
        if size == 1:
            return [cell.number for cell in cells]
        firsts = [cell.number * size for cell in cells]
        return [first + place for first in firsts for place in range(size)]

    def _chunk_sources(
        self, depth: int, num_chunks: int
    ) -> tuple[list[list[int]], int]:
        """Device blocks of the chunks behind ``depth``, by group.

        Returns:
            The blocks, and how many chunks from the first on have all of theirs.
        """
        sources = []
        for position in self._chunk_positions:
            size = self._blocks_per_cell[position]
            indices = range(depth * size, (depth + num_chunks) * size)
            group_id = self._layout.groups[position].group_id
            blocks = self._tables.block_ids(group_id, indices)
            if 0 in blocks:
                num_chunks = blocks.index(0) // size
            sources.append(blocks)
        return sources, num_chunks

    def _describe_chunk(self, cells: Sequence[Cell], depth: int) -> None:
        """Note what followers are to be told of a chunk's cells."""
        for cell in cells:
            first_block = depth * self._blocks_per_cell[cell.position]
            cell.notice = (self._content, first_block)
