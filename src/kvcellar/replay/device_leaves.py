"""Chunks on the device, and the order in which those that nobody uses are given away.

A replay of long prompts enters and evicts millions of chunks, so nodes are small and a
run of chunks that leave one after another passes through the order once.
"""

import heapq
import math

_MIN_HEAP = 64  # below this many entries stale ones are not worth sweeping


class DeviceNode:
    """A chunk on the device.

    Attributes:
        key: prefix hash at its end.
        parent: the chunk before it; the root is its own.
        depth: chunks from the root.
        last_use: time of the last release of it or of a chunk below it that left.
        num_children: chunks below it.
        num_active: pins on it and on nodes below it, each child counted once.
        ticket: of its entry among the leaves that may go; 0 if it has none.
        holder: the node whose tail contains the windows that resuming here needs;
            itself, or one below while windows are cut off by the prompt's start.
        served: the nodes whose ``holder`` this is.
    """

    __slots__ = (
        "depth",
        "holder",
        "key",
        "last_use",
        "num_active",
        "num_children",
        "parent",
        "served",
        "ticket",
    )

    parent: "DeviceNode"

    def __init__(self, key: bytes, parent: "DeviceNode | None") -> None:
        self.key = key
        if parent is None:
            self.parent, self.depth, self.last_use = self, 0, 0.0
        else:
            self.parent, self.depth = parent, parent.depth + 1
            self.last_use = parent.last_use
        self.num_children = self.num_active = self.ticket = 0
        self.holder: DeviceNode | None = None
        self.served: tuple[DeviceNode, ...] = ()


class DeviceLeaves:
    """Leaves that nobody uses: the oldest stamp goes first, and of these the deepest.

    The same order as that of ``LruPolicy``, which a test compares it with.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, DeviceNode]] = []
        self._num_tickets = 0
        self._num_leaves = 0

    def add(self, node: DeviceNode) -> None:
        """Enter ``node``, which is not there."""
        self._num_tickets += 1
        self._num_leaves += 1
        node.ticket = self._num_tickets
        heapq.heappush(self._heap, (node.last_use, -node.depth, node.ticket, node))
        if len(self._heap) > 2 * self._num_leaves + _MIN_HEAP:
            self._heap = [entry for entry in self._heap if entry[3].ticket == entry[2]]
            heapq.heapify(self._heap)

    def remove(self, node: DeviceNode) -> None:
        """Forget ``node`` if it is there."""
        if node.ticket:
            node.ticket = 0
            self._num_leaves -= 1

    def first(self) -> DeviceNode | None:
        """The leaf to go next; None if there is none."""
        heap = self._heap
        while heap:
            _, _, ticket, node = heap[0]
            if node.ticket == ticket:
                return node
            heapq.heappop(heap)
        return None

    def first_place(self) -> tuple[float, int]:
        """Stamp and negative depth of the leaf to go next; what is less goes before."""
        return (math.inf, 0) if self.first() is None else self._heap[0][:2]
