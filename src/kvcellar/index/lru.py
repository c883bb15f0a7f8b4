"""Least recently used, deepest first: the base policy."""

import heapq

from kvcellar.index.node import Node

_MIN_HEAP = 64  # below this many entries stale ones are not worth sweeping


class LruPolicy:
    """A heap of (stamp, -depth) with stale entries skipped when they surface.

    A parent that becomes a leaf inherits the stamp of the leaf that left, so it takes
    its place in the order and not the end of it; an ordered dict could not do that.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Node]] = []
        self._current: dict[Node, int] = {}
        self._ticket = 0

    def add(self, node: Node) -> None:
        """Enter ``node`` at the place its stamp gives it."""
        self._ticket += 1
        self._current[node] = self._ticket
        heapq.heappush(self._heap, (node.last_use, -node.depth, self._ticket, node))
        if len(self._heap) > 2 * len(self._current) + _MIN_HEAP:
            self._sweep()

    def touch(self, node: Node) -> None:
        """Move ``node`` to the place of its newer stamp."""
        if node in self._current:
            self.add(node)

    def remove(self, node: Node) -> None:
        """Forget ``node``."""
        self._current.pop(node, None)

    def victim(self) -> Node | None:
        """The node with the oldest stamp; among equals the deepest."""
        while self._heap:
            _, _, ticket, node = self._heap[0]
            if self._current.get(node) == ticket:
                return node
            heapq.heappop(self._heap)
        return None

    def __contains__(self, node: Node) -> bool:
        return node in self._current

    def __len__(self) -> int:
        return len(self._current)

    def _sweep(self) -> None:
        self._heap = [e for e in self._heap if self._current.get(e[3]) == e[2]]
        heapq.heapify(self._heap)
