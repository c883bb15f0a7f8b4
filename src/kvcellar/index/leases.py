"""Paths that stay until a time, whatever else comes, within a share of host memory.

A leased node is in nobody's order of eviction, so it stays, and with it its
ancestors, since only leaves are evicted; its checkpoint is not dropped either. What a
lease protects is counted in whole: every node at or above a leased one, once however
many leases there are. That count is kept node by node, as a tree of references, so
that a grant costs the nodes that were not protected before and no more. Few nodes are
leased, so all of it is kept beside the nodes and not in them.
"""

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from kvcellar.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcellar.index.node import Node


class Leases:
    """Which nodes are leased, until when, and how many bytes that protects.

    Args:
        most_bytes: that leases may protect at once.
        chunk_bytes: of one chunk.
        checkpoint_bytes: of the largest checkpoint; counted for every leased node that
            needs one, so the true bytes are never more.

    Attributes:
        ends: when the lease of each leased node ends.
        used_bytes: protected now.
        next_end: when the next lease ends; infinity if there is none.
        num_refused: leases that would have gone beyond ``most_bytes``.
    """

    def __init__(
        self, most_bytes: int, chunk_bytes: int, checkpoint_bytes: int
    ) -> None:
        self._most_bytes = most_bytes
        self._chunk_bytes = chunk_bytes
        self._checkpoint_bytes = checkpoint_bytes
        self.ends: dict[Node, float] = {}
        self._num_protected: dict[Node, int] = {}  # own lease, and children at or below
        self._queue: list[tuple[float, int, Node]] = []
        self._tickets = itertools.count()
        self.used_bytes = 0
        self.next_end = math.inf
        self.num_refused = 0

    def grant(self, node: "Node", until: float) -> bool:
        """Lease ``node`` until a time, or for longer if it is leased already.

        Returns:
            Whether it is leased until then; False if too much would be protected.
        """
        end = self.ends.get(node)
        if end is not None and end >= until:
            return True
        if end is None and not self._protect(node):
            self.num_refused += 1
            return False
        self.ends[node] = until
        heapq.heappush(self._queue, (until, next(self._tickets), node))
        self.next_end = self._queue[0][0]
        return True

    def end(self, now: float) -> "list[Node]":
        """End the leases whose time has come; the nodes that are free again."""
        ended = []
        while self._queue and self._queue[0][0] <= now:
            until, _, node = heapq.heappop(self._queue)
            if self.ends.get(node) == until:  # else it was lengthened, or its node left
                self._expose(node)
                ended.append(node)
        self.next_end = self._queue[0][0] if self._queue else math.inf
        return ended

    def drop(self, top: "Node") -> None:
        """``top`` leaves the tree, and all that hangs below it."""
        pending = [top]
        while pending:
            node = pending.pop()
            if node in self._num_protected:
                pending.extend(node.children)
                if node in self.ends:
                    self._expose(node)

    def clear(self) -> None:
        """The tree is empty; every node was dropped before."""
        self._queue.clear()
        self.next_end = math.inf

    def check(self, nodes: "Iterable[Node]") -> None:
        """Verify the counts of all nodes in the tree.

        Raises:
            InvariantError: one of them is wrong.
        """
        found: dict[Node, int] = {}
        used = 0
        for node in sorted(nodes, key=lambda node: -node.depth):
            is_leased = node in self.ends
            count = found.pop(node, 0) + is_leased
            if self._num_protected.get(node, 0) != count:
                raise InvariantError(f"{node!r} is protected {count} times")
            used += is_leased * self._own_bytes(node)
            if count:
                used += self._chunk_bytes
                assert node.parent is not None
                found[node.parent] = found.get(node.parent, 0) + 1
        if not used == self.used_bytes <= self._most_bytes:
            raise InvariantError(f"leases protect {used} bytes, not {self.used_bytes}")

    def _own_bytes(self, node: "Node") -> int:
        return self._checkpoint_bytes if node.needs_checkpoint else 0

    def _protect(self, node: "Node") -> bool:
        """Count a new lease of ``node``; False if it would be too much."""
        counts, path, top = self._num_protected, [], node
        while top.parent is not None and top not in counts:
            path.append(top)
            top = top.parent
        num_bytes = len(path) * self._chunk_bytes + self._own_bytes(node)
        if self.used_bytes + num_bytes > self._most_bytes:
            return False
        self.used_bytes += num_bytes
        counts.update(dict.fromkeys(path, 1))
        counts[top] = counts.get(top, 0) + 1
        return True

    def _expose(self, node: "Node") -> None:
        """Count the end of a lease."""
        del self.ends[node]
        self.used_bytes -= self._own_bytes(node)
        counts, at = self._num_protected, node
        counts[at] -= 1
        while not counts[at]:
            del counts[at]
            if at.parent is None:
                break
            self.used_bytes -= self._chunk_bytes
            at = at.parent
            counts[at] -= 1
