"""A node: one chunk of a known prefix, and the checkpoint at its end.

Host memory may hold millions of chunks, most of them with one child. So children are
linked to each other, newest first, instead of being held in a set of their own.
"""

from typing import TYPE_CHECKING

from kvcellar.index.cells import Cell
from kvcellar.index.evictable import Evictable
from kvcellar.index.states import READY, STORING, State, require

if TYPE_CHECKING:
    from collections.abc import Iterator


class Checkpoint:
    """What the windowed and recurrent groups need to resume at a node's end.

    Attributes:
        cells: the blocks, in the order of ``HybridRules.checkpoint_blocks``.
        is_decoded: whether it lies inside an answer. Nobody knows yet if a later prompt
            will repeat the answer: many templates leave the reasoning out.
    """

    __slots__ = ("cells", "is_decoded", "state")

    def __init__(self, cells: tuple[Cell, ...], *, is_decoded: bool = False) -> None:
        self.cells = cells
        self.is_decoded = is_decoded
        self.state = STORING

    def move_to(self, state: State) -> None:
        """Change state, as the table allows."""
        self.state = require(self.state, state)


class Node(Evictable):
    """Index entry of one chunk.

    Attributes:
        key: the engine's prefix hash at the chunk's end.
        depth: chunks from the root; the node ends at ``depth * chunk_tokens``.
        cells: one per append-only group; all of them or the node does not exist.
        first_child: the newest node that hangs below it.
        needs_checkpoint: whether resuming at its end reads anything besides chunks.
        is_loaded: whether it, or a descendant that left, was ever loaded.
        older: the node that its parent got before it.
        priority: of the most important request that used it, or a descendant that
            left.
        pins: holders that forbid eviction.
        last_use: time of the last use of this node or of a descendant that left.
        resume: a node at or above this one, from which resume points are searched
            upwards; see ``Index.resume_point``.
    """

    __slots__ = (
        "_newer",
        "cells",
        "checkpoint",
        "first_child",
        "is_loaded",
        "key",
        "needs_checkpoint",
        "older",
        "parent",
        "pins",
        "priority",
        "resume",
        "state",
    )

    def __init__(
        self,
        key: bytes,
        parent: "Node | None",
        cells: tuple[Cell, ...],
        *,
        needs_checkpoint: bool,
    ) -> None:
        if parent is None:
            super().__init__(0, 0.0)
        else:
            super().__init__(parent.depth + 1, parent.last_use)
        self.key = key
        self.parent = parent
        self.cells = cells
        self.checkpoint: Checkpoint | None = None
        self.needs_checkpoint = needs_checkpoint
        self.first_child: Node | None = None
        self._newer: Node | None = None
        self.older: Node | None = None
        self.is_loaded = False
        self.priority = 0
        self.pins = 0
        self.resume: Node = self if parent is None else parent.resume
        self.state = STORING

    def move_to(self, state: State) -> None:
        """Change state, as the table allows."""
        self.state = require(self.state, state)

    @property
    def is_dead(self) -> bool:
        """Whether nobody can resume at its end, for want of a checkpoint."""
        return self.checkpoint is None and self.needs_checkpoint

    def reach(self, *, past_replaced: bool) -> int:
        """Chunks from the checkpoint before it to its end; see ``Evictable``."""
        above = self.parent
        while above is not None and above.parent is not None:
            if above.resume is not above:
                above = above.resume
            elif above.checkpoint and not (past_replaced and above.only_child):
                break
            else:
                above = above.parent
        return self.depth - (above.depth if above else 0)

    @property
    def is_leaf(self) -> bool:
        """Whether nothing hangs below it."""
        return self.first_child is None

    @property
    def children(self) -> "Iterator[Node]":
        """Nodes that hang below it, newest first; none may come or go meanwhile."""
        child = self.first_child
        while child is not None:
            yield child
            child = child.older

    @property
    def only_child(self) -> "Node | None":
        """Its child, if it has exactly one."""
        child = self.first_child
        return None if child is None or child.older is not None else child

    def adopt(self, child: "Node") -> None:
        """``child``, whose parent this is, hangs below it from now on."""
        first = child.older = self.first_child
        if first is not None:
            first._newer = child
        self.first_child = child

    def disown(self, child: "Node") -> None:
        """``child`` no longer hangs below it."""
        newer, older = child._newer, child.older
        if newer is None:
            self.first_child = older
        else:
            newer.older = older
        if older is not None:
            older._newer = newer
        child._newer = child.older = None

    @property
    def is_resumable(self) -> bool:
        """Whether chunks and checkpoint are both there, loadable now."""
        if self.state is not READY:
            return False
        if not self.needs_checkpoint:
            return True
        return self.checkpoint is not None and self.checkpoint.state is READY

    def __repr__(self) -> str:
        return f"Node(depth={self.depth}, {self.state.value}, pins={self.pins})"
