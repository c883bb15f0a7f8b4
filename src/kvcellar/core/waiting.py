"""Lazy mode's waiting room: what is on the device only, and worth storing.

A chunk waits from the step that computes it until one of its blocks comes near the
head of the device's free queue; so does a checkpoint whose blocks the engine itself
keeps. Then the path down to it is stored, or it is found to be lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcellar.attention.hybrid import HybridRules
from kvcellar.core.keeping import Keep
from kvcellar.core.origin import Origin

BlockKey = tuple[int, bytes]  # engine group id, prefix hash at the block's end


class CachedBlocks(Protocol):
    """The device's own prefix cache."""

    def find(self, group_id: int, block_hash: bytes) -> int:
        """A device block that holds this content now; 0 if there is none."""
        ...


@dataclass(slots=True, eq=False)
class WaitingChunk:
    """One chunk that is on the device only.

    Attributes:
        hashes: a hash list of which this chunk's prefix is the beginning.
        depth: chunks from the root, as a node's.
        origin: what the request that computed it brought along.
        has_checkpoint: whether the checkpoint at its end waits too.
        keep: what its path is to be leased for once it is in host memory.
        uses: when requests that ended here had finished, in seconds.
    """

    key: bytes
    hashes: Sequence[bytes]
    depth: int
    origin: Origin
    has_checkpoint: bool = False
    keep: Keep | None = None
    blocks: list[BlockKey] = field(default_factory=list)
    uses: list[float] = field(default_factory=list)


class HashTables:
    """Block tables of a prefix, read from the device's prefix cache."""

    def __init__(
        self, hashes: Sequence[bytes], cached: CachedBlocks, tokens: dict[int, int]
    ) -> None:
        self._hashes = hashes
        self._cached = cached
        self._hashes_per_block = tokens

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Where the blocks' content is on the device now; 0 if nowhere."""
        return [self._find(group_id, index) for index in indices]

    def is_kept(self, group_id: int, index: int) -> bool:
        """Whether it is there at all."""
        return bool(self._find(group_id, index))

    def _find(self, group_id: int, index: int) -> int:
        end = (index + 1) * self._hashes_per_block[group_id]
        return self._cached.find(group_id, self._hashes[end - 1])


class WaitingRoom:
    """Chunks and checkpoints on the device only, found by any of their blocks."""

    def __init__(self, rules: HybridRules) -> None:
        self._rules = rules
        layout = rules.layout
        hash_tokens = layout.hash_block_tokens
        self._stride = layout.chunk_tokens // hash_tokens
        self._hashes_per_block = {
            g.group_id: g.tokens_per_block // hash_tokens for g in layout.groups
        }
        self.chunks: dict[bytes, WaitingChunk] = {}
        self._by_block: dict[BlockKey, list[WaitingChunk]] = {}

    def add_chunk(
        self, hashes: Sequence[bytes], depth: int, origin: Origin
    ) -> WaitingChunk:
        """A chunk was computed; its blocks are on the device."""
        chunk = self.add_checkpoint_only(hashes, depth, origin)
        layout = self._rules.layout
        for position in layout.chunk_positions:
            num_blocks = layout.blocks_per_cell(position)
            blocks = range((depth - 1) * num_blocks, depth * num_blocks)
            self._enter(chunk, layout.groups[position].group_id, blocks)
        return chunk

    def add_checkpoint_only(
        self, hashes: Sequence[bytes], depth: int, origin: Origin
    ) -> WaitingChunk:
        """A place for a checkpoint whose chunk is in host memory already."""
        key = hashes[depth * self._stride - 1]
        chunk = self.chunks[key] = WaitingChunk(key, hashes, depth, origin)
        return chunk

    def add_checkpoint(self, chunk: WaitingChunk) -> None:
        """The checkpoint at the chunk's end was computed, and the engine keeps it."""
        chunk.has_checkpoint = True
        layout = self._rules.layout
        boundary = chunk.depth * layout.chunk_tokens
        for position, blocks in self._rules.checkpoint_blocks(boundary):
            self._enter(chunk, layout.groups[position].group_id, blocks)

    def threatened(self, block: BlockKey) -> list[WaitingChunk]:
        """What would be lost with this block."""
        return list(self._by_block.get(block, ()))

    def __contains__(self, chunk: WaitingChunk) -> bool:
        """Whether it still waits."""
        return self.chunks.get(chunk.key) is chunk

    def behind(self, start: int, chunk: WaitingChunk) -> list[WaitingChunk]:
        """What waits on the path down to a chunk, behind the first ``start`` ones."""
        stride, chunks = self._stride, self.chunks
        keys = chunk.hashes[(start + 1) * stride - 1 : chunk.depth * stride : stride]
        return [chunks[key] for key in keys if key in chunks]

    def remove(self, chunk: WaitingChunk) -> None:
        """It is stored, or lost."""
        if chunk in self:
            del self.chunks[chunk.key]
        for block in chunk.blocks:
            holders = self._by_block[block]
            holders.remove(chunk)
            if not holders:
                del self._by_block[block]
        chunk.blocks.clear()

    def tables(self, chunk: WaitingChunk, cached: CachedBlocks) -> HashTables:
        """Where the chunk's whole prefix is on the device now."""
        return HashTables(chunk.hashes, cached, self._hashes_per_block)

    def clear(self) -> None:
        """Forget everything."""
        self.chunks.clear()
        self._by_block.clear()

    def _enter(self, chunk: WaitingChunk, group_id: int, blocks: range) -> None:
        size = self._hashes_per_block[group_id]
        for block in blocks:
            key = (group_id, chunk.hashes[(block + 1) * size - 1])
            chunk.blocks.append(key)
            self._by_block.setdefault(key, []).append(chunk)
