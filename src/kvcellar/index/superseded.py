"""Checkpoints that a deeper one on the same unbranched path has replaced."""

from collections import deque
from collections.abc import Container

from kvcellar.index.node import Checkpoint, Node

Candidates = deque[tuple[Node, Checkpoint]]

_MIN_CANDIDATES = 256  # below this many it is not worth looking for stale ones


class SupersededCheckpoints:
    """First to go when room is needed, oldest first.

    Whether one is superseded is decided when it is taken, not when it is added: a
    branch that grows below it meanwhile makes it worth keeping.
    """

    def __init__(self) -> None:
        self._of_prompts: Candidates = deque()
        self._of_answers: Candidates = deque()
        self._sweep_at = _MIN_CANDIDATES

    def add(self, node: Node) -> None:
        """A deeper checkpoint has become ready below ``node``."""
        if node.checkpoint is not None:
            is_decoded = node.checkpoint.is_decoded
            candidates = self._of_answers if is_decoded else self._of_prompts
            candidates.append((node, node.checkpoint))
            if len(self) > self._sweep_at:
                self._sweep()

    def take(self, kept: Container[Node], *, of_prompts: bool) -> Node | None:
        """A node whose checkpoint may go; None when there is none.

        Args:
            kept: nodes whose checkpoints may not go.
            of_prompts: whether those inside prompts may, and not only inside answers.
        """
        node = _take(self._of_answers, kept) if self._of_answers else None
        if node is None and of_prompts and self._of_prompts:
            node = _take(self._of_prompts, kept)
        return node

    def _sweep(self) -> None:
        """Forget those that have gone; nobody takes any while others go first."""
        for candidates in (self._of_prompts, self._of_answers):
            live = [c for c in candidates if c[0].checkpoint is c[1]]
            candidates.clear()
            candidates.extend(live)
        self._sweep_at = max(_MIN_CANDIDATES, 2 * len(self))

    def __len__(self) -> int:
        return len(self._of_prompts) + len(self._of_answers)

    def clear(self) -> None:
        """Forget all candidates."""
        self._of_prompts.clear()
        self._of_answers.clear()


def _take(candidates: Candidates, kept: Container[Node]) -> Node | None:
    while candidates:
        node, checkpoint = candidates.popleft()
        is_free = not node.pins and node not in kept
        if node.checkpoint is checkpoint and is_free and _is_replaced(node):
            return node
    return None


def _is_replaced(node: Node) -> bool:
    """Whether the only path down leads to another resume point."""
    child = node.only_child
    while child is not None:
        if child.checkpoint is not None:
            return child.is_resumable
        child = child.only_child
    return False
