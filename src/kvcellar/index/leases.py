"""Paths that stay until a time, whatever else comes, within a share of host memory.

A leased node is in nobody's order of eviction, so it stays, and with it its
ancestors, since only leaves are evicted; its checkpoint is not dropped either. What a
lease protects is counted in whole: every node at or above a leased one, once however
many leases there are. That count is kept node by node, as a tree of references, so
that a grant costs the nodes that were not protected before and no more.
"""

import heapq
import itertools
import math
from typing import TYPE_CHECKING

from kvcellar.errors import InvariantError
from kvcellar.index.evictable import NEVER

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
        self._ends: list[tuple[float, int, Node]] = []
        self._tickets = itertools.count()
        self.used_bytes = 0
        self.next_end = math.inf
        self.num_refused = 0

    def grant(self, node: "Node", until: float) -> bool:
        """Lease ``node`` until a time, or for longer if it is leased already.

        Returns:
            Whether it is leased until then; False if too much would be protected.
        """
        if node.lease_end < until:
            if node.lease_end == NEVER and not self._protect(node):
                self.num_refused += 1
                return False
            node.lease_end = until
            heapq.heappush(self._ends, (until, next(self._tickets), node))
            self.next_end = self._ends[0][0]
        return True

    def end(self, now: float) -> "list[Node]":
        """End the leases whose time has come; the nodes that are free again."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            until, _, node = heapq.heappop(self._ends)
            if node.lease_end == until:  # else it was lengthened, or its node left
                self._expose(node)
                ended.append(node)
        self.next_end = self._ends[0][0] if self._ends else math.inf
        return ended

    def drop(self, top: "Node") -> None:
        """``top`` leaves the tree, and all that hangs below it."""
        pending = [top]
        while pending:
            node = pending.pop()
            if node.num_protected:
                pending.extend(node.children)
                if node.lease_end != NEVER:
                    self._expose(node)

    def clear(self) -> None:
        """The tree is empty; every node was dropped before."""
        self._ends.clear()
        self.next_end = math.inf

    def check(self, nodes: "Iterable[Node]") -> None:
        """Verify the counts of all nodes in the tree.

        Raises:
            InvariantError: one of them is wrong.
        """
        found: dict[Node, int] = {}
        used = 0
        for node in sorted(nodes, key=lambda node: -node.depth):
            is_leased = node.lease_end != NEVER
            count = found.pop(node, 0) + is_leased
            if node.num_protected != count:
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
        path, top = [], node
        while top.parent is not None and not top.num_protected:
            path.append(top)
            top = top.parent
        num_bytes = len(path) * self._chunk_bytes + self._own_bytes(node)
        if self.used_bytes + num_bytes > self._most_bytes:
            return False
        self.used_bytes += num_bytes
        for fresh in path:
            fresh.num_protected = 1
        top.num_protected += 1
        return True

    def _expose(self, node: "Node") -> None:
        """Count the end of a lease."""
        node.lease_end = NEVER
        self.used_bytes -= self._own_bytes(node)
        top = node
        top.num_protected -= 1
        while top.parent is not None and not top.num_protected:
            self.used_bytes -= self._chunk_bytes
            top = top.parent
            top.num_protected -= 1
