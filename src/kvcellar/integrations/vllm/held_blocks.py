"""Which blocks followers believe to be held, of groups that come and go together.

Two cells of a group may hold the same block: chunks that part inside share their first
blocks, and a cell whose readers have not ended stays beside the one that takes its
place. Such a block is told of with the first of them, and taken back with the last.

Groups whose blocks have the same hashes are noted in one place, each as a bit: what a
checkpoint holds of several windows is looked up once, not once for each of them.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.v1.core.kv_cache_utils import ExternalBlockHash


class HeldBlocks:
    """Hashes of blocks that were announced and not taken back."""

    def __init__(self) -> None:
        self._groups: dict[ExternalBlockHash, int] = {}  # a bit for each that holds it
        # Cells besides the first, by hash and group.
        self._again: dict[tuple[ExternalBlockHash, int], int] = {}

    def add_new(self, hashes: "Sequence[ExternalBlockHash]", groups: int) -> bool:
        """A cell of each group holds these blocks now, if nobody held one of them.

        Args:
            groups: their bits.
        """
        if self._groups.keys().isdisjoint(hashes):
            self._groups.update(dict.fromkeys(hashes, groups))
            return True
        return False

    def add(self, hashes: "Sequence[ExternalBlockHash]", group: int) -> list[range]:
        """One more cell of a group holds each of these blocks, all of them different.

        Args:
            group: its bit.

        Returns:
            Which of them the group did not hold, as few ranges of places in ``hashes``.
        """
        known = [-1]
        for place, block_hash in enumerate(hashes):
            groups = self._groups.get(block_hash, 0)
            if groups & group:
                cell = block_hash, group
                self._again[cell] = self._again.get(cell, 0) + 1
                known.append(place)
            else:
                self._groups[block_hash] = groups | group
        gaps = pairwise((*known, len(hashes)))
        return [range(one + 1, other) for one, other in gaps if one + 1 < other]

    def remove_all(self, hashes: "Sequence[ExternalBlockHash]", groups: int) -> bool:
        """The last cells of these groups are gone, if nobody else holds these blocks.

        Args:
            groups: bits of all groups that lose them.
        """
        held = self._groups
        if self._again or [held.get(one) for one in hashes] != [groups] * len(hashes):
            return False
        for block_hash in hashes:
            del held[block_hash]
        return True

    def remove(
        self, hashes: "Sequence[ExternalBlockHash]", group: int
    ) -> "list[ExternalBlockHash]":
        """One cell less of a group holds each block; of one it may be several.

        Args:
            group: its bit.

        Returns:
            What the group does not hold any more.
        """
        return [one for one in hashes if self._is_last(one, group)]

    def _is_last(self, block_hash: "ExternalBlockHash", group: int) -> bool:
        """Take a cell away; whether it was the last one of the group."""
        cell = block_hash, group
        num_more = self._again.pop(cell, 0)
        if num_more:
            if num_more > 1:
                self._again[cell] = num_more - 1
            return False
        groups = self._groups.get(block_hash, 0)
        if not groups & group:
            return False  # was never told of
        if groups == group:
            del self._groups[block_hash]
        else:
            self._groups[block_hash] = groups & ~group
        return True
