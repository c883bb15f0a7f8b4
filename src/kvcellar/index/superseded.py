"""Checkpoints that a deeper one on the same unbranched path has replaced."""

from collections import deque

from kvcellar.index.evictable import NEVER
from kvcellar.index.node import Checkpoint, Node


class SupersededCheckpoints:
    """First to go when room is needed, oldest first.

    Whether one is superseded is decided when it is taken, not when it is added: a
    branch that grows below it meanwhile makes it worth keeping.
    """

    def __init__(self) -> None:
        self._candidates: deque[tuple[Node, Checkpoint]] = deque()

    def add(self, node: Node) -> None:
        """A deeper checkpoint has become ready below ``node``."""
        if node.checkpoint is not None:
            self._candidates.append((node, node.checkpoint))

    def take(self) -> Node | None:
        """A node whose checkpoint may go; None when there is none."""
        while self._candidates:
            node, checkpoint = self._candidates.popleft()
            is_free = not node.pins and node.lease_end == NEVER
            if node.checkpoint is checkpoint and is_free and _is_replaced(node):
                return node
        return None

    def clear(self) -> None:
        """Forget all candidates."""
        self._candidates.clear()


def _is_replaced(node: Node) -> bool:
    """Whether the only path down leads to another resume point."""
    child = node.only_child
    while child is not None:
        if child.checkpoint is not None:
            return child.is_resumable
        child = child.only_child
    return False
