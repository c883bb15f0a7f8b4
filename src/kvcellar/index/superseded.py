"""Checkpoints that a deeper one on the same unbranched path has replaced."""

from collections import deque
from collections.abc import Container

from kvcellar.index.node import Checkpoint, Node

_MIN_CANDIDATES = 256  # below this many it is not worth looking for stale ones


class SupersededCheckpoints:
    """First to go when room is needed, oldest first.

    Whether one is superseded is decided when it is taken, not when it is added: a
    branch that grows below it meanwhile makes it worth keeping.
    """

    def __init__(self) -> None:
        self._candidates: deque[tuple[Node, Checkpoint]] = deque()
        self._sweep_at = _MIN_CANDIDATES

    def add(self, node: Node) -> None:
        """A deeper checkpoint has become ready below ``node``."""
        if node.checkpoint is not None:
            self._candidates.append((node, node.checkpoint))
            if len(self._candidates) > self._sweep_at:
                self._sweep()

    def take(self, kept: Container[Node]) -> Node | None:
        """A node whose checkpoint may go; None when there is none.

        Args:
            kept: nodes whose checkpoints may not go.
        """
        while self._candidates:
            node, checkpoint = self._candidates.popleft()
            is_free = not node.pins and node not in kept
            if node.checkpoint is checkpoint and is_free and _is_replaced(node):
                return node
        return None

    def _sweep(self) -> None:
        """Forget those that have gone; nobody takes any while others go first."""
        self._candidates = deque(c for c in self._candidates if c[0].checkpoint is c[1])
        self._sweep_at = max(_MIN_CANDIDATES, 2 * len(self._candidates))

    def __len__(self) -> int:
        return len(self._candidates)

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
