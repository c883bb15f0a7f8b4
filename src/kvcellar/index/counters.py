"""What the index has let go of, and why."""

from dataclasses import dataclass

from kvcellar.index.node import Node


@dataclass(slots=True)
class IndexCounters:
    """Running totals since start.

    Attributes:
        evicted_chunks: chunks evicted to make room.
        evicted_checkpoints: checkpoints evicted to make room, for any reason.
        superseded_checkpoints: of these, those that a deeper one had replaced.
        borrowed_checkpoints: resume points made of what their neighbours hold.
        over_share: cells refused since a tenant's share was full, and nothing of it
            could go.
        dead_chunks: of the chunks, those behind their path's last checkpoint.
        unused_chunks: of the chunks, those that had never been loaded.
    """

    evicted_chunks: int = 0
    evicted_checkpoints: int = 0
    superseded_checkpoints: int = 0
    borrowed_checkpoints: int = 0
    over_share: int = 0
    dead_chunks: int = 0
    unused_chunks: int = 0

    def count_leaf(self, node: Node) -> None:
        """Count a leaf that is about to be evicted."""
        self.evicted_chunks += 1
        if node.checkpoint is not None:
            self.evicted_checkpoints += 1
        elif node.needs_checkpoint:
            self.dead_chunks += 1
        if not node.is_loaded:
            self.unused_chunks += 1
