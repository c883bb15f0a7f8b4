"""Which blocks of one group followers believe to be held, for many at a time.

Two cells may hold the same block: chunks that part inside share their first blocks, and
a cell whose readers have not ended stays beside the one that takes its place. Such a
block is told of with the first of them, and taken back with the last.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.v1.core.kv_cache_utils import ExternalBlockHash


class HeldBlocks:
    """Hashes of blocks that were announced and not taken back, of one group."""

    def __init__(self) -> None:
        self._held: set[ExternalBlockHash] = set()
        self._again: dict[ExternalBlockHash, int] = {}  # cells besides the first

    def add_new(self, hashes: "Sequence[ExternalBlockHash]") -> bool:
        """Cells hold these blocks from now on, if nobody held one of them."""
        if self._held.isdisjoint(hashes):
            self._held.update(hashes)
            return True
        return False

    def add(self, hashes: "Sequence[ExternalBlockHash]") -> list[range]:
        """One more cell holds each of these blocks, no two of which are the same.

        Returns:
            Which of them nobody held, as few ranges of places in ``hashes``.
        """
        known = [-1]
        for place, block_hash in enumerate(hashes):
            if block_hash in self._held:
                self._again[block_hash] = self._again.get(block_hash, 0) + 1
                known.append(place)
        self._held.update(hashes)
        gaps = pairwise((*known, len(hashes)))
        return [range(one + 1, other) for one, other in gaps if one + 1 < other]

    def remove(
        self, hashes: "Sequence[ExternalBlockHash]"
    ) -> "list[ExternalBlockHash]":
        """One cell less holds each of these blocks; of one block it may be several.

        Returns:
            What nobody holds any more.
        """
        if self._again:
            hashes = [h for h in hashes if not self._is_held_again(h)]
        gone = [block_hash for block_hash in hashes if block_hash in self._held]
        self._held.difference_update(gone)
        return gone

    def _is_held_again(self, block_hash: "ExternalBlockHash") -> bool:
        """Whether another cell holds a block still; it may be the last one now."""
        num_more = self._again.get(block_hash, 0)
        if num_more > 1:
            self._again[block_hash] = num_more - 1
        elif num_more:
            del self._again[block_hash]
        return num_more > 0
