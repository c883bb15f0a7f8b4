"""What is stored at once in lazy mode: all that waits on the way to one chunk."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.core.waiting import WaitingChunk
from kvcellar.index.newcomers import Newcomer
from kvcellar.index.node import Node


@dataclass(frozen=True, slots=True)
class WaitingPath:
    """The path down to a chunk that the device is about to lose.

    Attributes:
        tip: the deepest node that is held of it.
        chunk: its end.
        waiting: what waits behind ``tip``, in the order of depth; the end is the last,
            unless it is held and its checkpoint waits alone.
    """

    tip: Node
    chunk: WaitingChunk
    waiting: Sequence[WaitingChunk]

    def is_weighed(self, now: float) -> bool:
        """Whether it comes in only if it is worth its room.

        Not what its user wants to keep, and what a tenant pays for out of its share.
        """
        is_kept = any(one.keep and one.keep.until > now for one in self.waiting)
        return self.chunk.origin.tenant is None and not is_kept

    def newcomer(self, hashes_per_chunk: int, now: float) -> Newcomer:
        """The path as something that asks to come in.

        It can be cut where a checkpoint waits: no other can be made any more.
        """
        end = self.chunk.depth * hashes_per_chunk
        uses = [(one.depth, time) for one in self.waiting for time in one.uses]
        if not self.chunk.uses:  # somebody who has not ended
            uses.append((self.chunk.depth, now))
        return Newcomer(
            self.tip,
            self.chunk.hashes[hashes_per_chunk - 1 : end : hashes_per_chunk],
            uses,
            self.chunk.origin.priority,
            [one.depth for one in self.waiting if one.has_checkpoint],
        )

    def uses_behind(self, depth: int) -> list[float]:
        """When prompts that end deeper did."""
        return [t for one in self.waiting if one.depth > depth for t in one.uses]

    def stops(self, end: int) -> list[int]:
        """Depths to store to, one after another: each checkpoint's, and ``end``.

        What is stored comes in the order of depth: it may all be evicted in turn.
        """
        inside = [o.depth for o in self.waiting if o.has_checkpoint and o.depth < end]
        return [*inside, end] if end > self.tip.depth else []
