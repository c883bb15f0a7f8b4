"""The engine's device cache as far as hits and evictions depend on it.

vLLM's free queue gives away the block that was released longest ago, and of one request
the deepest block first. A prefix is released whenever something below it is, so a block
never outlives the ones before it; the queue is thus an order over the leaves of a tree,
in which a parent inherits the stamp of its last child.

Windows are kept at the end of a prompt and where it leaves a known path, the engine's
default (``prefix_cache_retention_interval`` 0); these *tails* are released with their
request and go just before its chunks. Blocks of two tails that together hold what a
boundary between them needs are not put together, so the device finds a little less.
Source: KVCacheManager, BlockPool and SlidingWindowManager, vLLM 0.32.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from kvcellar.index.halving import num_leading
from kvcellar.replay.device_leaves import DeviceLeaves, DeviceNode


class OnEvict(Protocol):
    """Called just before the device gives something away."""

    def __call__(self, node: DeviceNode, now: float, *, is_tail: bool) -> None:
        """The chunk of ``node`` goes, or the windows kept at its end."""
        ...


class DeviceCache:
    """A pool of rows, in use or holding what was computed.

    Args:
        num_rows: blocks of the pool.
        rows_per_chunk: blocks that a chunk takes, all append-only groups together.
        tail_rows: blocks of the windows at one boundary.
        has_windows: whether resuming needs more than chunks.

    Attributes:
        on_evict: told before anything is given away.
    """

    def __init__(
        self, num_rows: int, rows_per_chunk: int, tail_rows: int, *, has_windows: bool
    ) -> None:
        self.num_rows = num_rows
        self.num_free = num_rows
        self.rows_per_chunk = rows_per_chunk
        self.tail_rows = tail_rows
        self.has_windows = has_windows
        self.nodes: dict[bytes, DeviceNode] = {}
        self.root = DeviceNode(b"", None)
        self.root.num_active = 1  # never leaves
        self._leaves = DeviceLeaves()
        self._tails: OrderedDict[DeviceNode, float] = OrderedDict()
        self._num_active_nodes = 0
        self.evicted_chunks = 0
        self.on_evict: OnEvict | None = None

    # -- finding -------------------------------------------------------------------

    def known(self, keys: Sequence[bytes], stride: int, limit: int) -> DeviceNode:
        """Deepest chunk of a prompt that is held, at most the one numbered ``limit``.

        Args:
            keys: the prompt's prefix hashes.
            stride: hashes per chunk.
        """
        nodes = self.nodes
        depth = num_leading(0, limit, lambda n: keys[n * stride - 1] in nodes)
        return nodes[keys[depth * stride - 1]] if depth else self.root

    def resume_point(self, node: DeviceNode) -> DeviceNode:
        """Deepest node at or above ``node`` where a prompt can be resumed."""
        while self.has_windows and node is not self.root and node.holder is None:
            node = node.parent
        return node

    # -- using ---------------------------------------------------------------------

    def reserve(self, num_rows: int, now: float) -> bool:
        """Take rows out of the pool, evicting what is needed; all or nothing."""
        if num_rows > self.num_free + self.num_evictable:
            return False
        while self.num_free < num_rows:
            self._evict_some(num_rows, now)
        self.num_free -= num_rows
        return True

    @property
    def num_evictable(self) -> int:
        """Rows that hold something which nobody uses."""
        held = len(self.nodes) - self._num_active_nodes
        return held * self.rows_per_chunk + len(self._tails) * self.tail_rows

    def give_back(self, num_rows: int) -> None:
        """Rows that were reserved hold nothing worth keeping."""
        self.num_free += num_rows

    def add_path(
        self, parent: DeviceNode, keys: Sequence[bytes]
    ) -> tuple[DeviceNode, int]:
        """Enter chunks computed into reserved rows; the last is pinned, not ``parent``.

        Returns:
            The last node, and how many are new; the rows of others are duplicates.
        """
        nodes, num_new = self.nodes, 0
        for key in keys:
            node = nodes.get(key)
            if node is not None:
                self.pin(node)
                self.unpin(parent, parent.last_use)
            else:
                # The pin moves to the child, which counts at the parent instead.
                node = nodes[key] = DeviceNode(key, parent)
                node.num_active = 1
                parent.num_children += 1
                num_new += 1
            parent = node
        self._num_active_nodes += num_new
        return parent, num_new

    def keep_tail(self, nodes: tuple[DeviceNode, ...], now: float) -> bool:
        """Keep the windows at the first node, which are enough for the others too.

        Returns:
            Whether they are new; if not, the rows are a duplicate.
        """
        node = nodes[0]
        is_new = node not in self._tails
        for served in nodes:
            served.holder = node
        node.served = nodes
        self._tails[node] = now
        self._tails.move_to_end(node)
        return is_new

    def touch_tail(self, node: DeviceNode, now: float) -> None:
        """A prompt resumes at ``node`` and so uses the windows there."""
        holder = node.holder
        if holder is not None:
            self._tails[holder] = now
            self._tails.move_to_end(holder)

    def pin(self, node: DeviceNode) -> None:
        """Use a node, and so all before it."""
        node.num_active += 1
        while node.num_active == 1 and node is not self.root:
            self._num_active_nodes += 1
            self._leaves.remove(node)
            node = node.parent
            node.num_active += 1

    def unpin(self, node: DeviceNode, now: float) -> None:
        """Release a node and all before it."""
        node.last_use = max(node.last_use, now)
        node.num_active -= 1
        while node.num_active == 0 and node is not self.root:
            self._num_active_nodes -= 1
            if not node.num_children:
                self._leaves.add(node)
            node = node.parent
            node.num_active -= 1

    # -- leaving -------------------------------------------------------------------

    def _evict_some(self, num_rows: int, now: float) -> None:
        """Give away what was released longest ago: a tail, or chunks of one path."""
        leaf, oldest_tail = self._leaves.first(), self._oldest_tail()
        if leaf is None or oldest_tail <= leaf.last_use:
            self._drop_tail(next(iter(self._tails)), now)
            return
        self._leaves.remove(leaf)
        following = self._leaves.first_place()
        while True:
            if leaf in self._tails:
                self._drop_tail(leaf, now)
                oldest_tail = self._oldest_tail()
            parent = self._drop_chunk(leaf, now)
            if parent.num_children or parent.num_active:
                return
            # It takes the stamp over, so mostly it is the next to go.
            if (
                self.num_free >= num_rows
                or oldest_tail <= parent.last_use
                or (parent.last_use, -parent.depth) >= following
            ):
                self._leaves.add(parent)
                return
            leaf = parent

    def _oldest_tail(self) -> float:
        """When the windows that go next were used last."""
        return next(iter(self._tails.values()), math.inf)

    def _drop_chunk(self, leaf: DeviceNode, now: float) -> DeviceNode:
        if self.on_evict is not None:
            self.on_evict(leaf, now, is_tail=False)
        del self.nodes[leaf.key]
        parent = leaf.parent
        parent.num_children -= 1
        if leaf.last_use > parent.last_use:
            parent.last_use = leaf.last_use
        self.num_free += self.rows_per_chunk
        self.evicted_chunks += 1
        return parent

    def _drop_tail(self, node: DeviceNode, now: float) -> None:
        if self.on_evict is not None:
            self.on_evict(node, now, is_tail=True)
        del self._tails[node]
        for served in node.served:
            if served.holder is node:
                served.holder = None
        node.served = ()
        self.num_free += self.tail_rows
