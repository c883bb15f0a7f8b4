"""Prefixes by their hashes: how deep a prompt is known, and where it can be resumed.

Every node is one chunk, and its key stands for the whole prefix that ends with it. Who
adds and removes nodes keeps the tree prefix-closed (``index``); here it is only read.
"""

from collections.abc import Sequence

from kvcellar.index.node import Node
from kvcellar.index.states import READY
from kvcellar.layout.groups import CacheLayout


class PrefixTree:
    """Nodes below a root that stands for the empty prompt.

    Args:
        layout: says how many tokens a chunk and a hash stand for.

    Attributes:
        nodes: chunks that can be found, by key.
        root: always ready, and resumable.
    """

    def __init__(self, layout: CacheLayout) -> None:
        self.chunk_tokens = layout.chunk_tokens
        self.hashes_per_chunk = layout.chunk_tokens // layout.hash_block_tokens
        self._hashes_per_block = [
            group.tokens_per_block // layout.hash_block_tokens
            for group in layout.groups
        ]
        self.nodes: dict[bytes, Node] = {}
        self.root = Node(b"", None, (), needs_checkpoint=False)
        self.root.state = READY

    def deepest_known(
        self, hashes: Sequence[bytes], num_chunks: int, hint: Node | None = None
    ) -> Node:
        """Deepest node, ready or being stored, on a path of ``num_chunks`` chunks.

        Args:
            hashes: the request's prefix hashes, one per hash block.
            num_chunks: how far to look.
            hint: where this path ended last time; if it still does, no search.
        """
        nodes, stride = self.nodes, self.hashes_per_chunk
        if hint is not None and self._is_end(hint, hashes, num_chunks):
            return hint
        low, high, found = 0, num_chunks, self.root
        while low < high:
            middle = (low + high + 1) // 2
            node = nodes.get(hashes[middle * stride - 1])
            if node is None:
                high = middle - 1
            else:
                low, found = middle, node
        return found

    def _is_end(self, node: Node, hashes: Sequence[bytes], num_chunks: int) -> bool:
        """Whether ``node`` is on the path and its next chunk is not known."""
        stride, depth = self.hashes_per_chunk, node.depth
        if depth > num_chunks:
            return False
        if depth and self.nodes.get(hashes[depth * stride - 1]) is not node:
            return False
        return depth == num_chunks or hashes[(depth + 1) * stride - 1] not in self.nodes

    def boundary(self, node: Node) -> int:
        """Tokens that the prefix ending at ``node`` covers."""
        return node.depth * self.chunk_tokens

    def share_keys(
        self, position: int, blocks: range, hashes: Sequence[bytes]
    ) -> list[tuple[int, bytes]]:
        """What checkpoints that need the same blocks of a group find their cells by."""
        size = self._hashes_per_block[position]
        first = (blocks.start + 1) * size - 1
        return [(position, key) for key in hashes[first : blocks.stop * size : size]]

    def resume_point(self, node: Node) -> Node:
        """Nearest node at or above ``node`` where a prompt can be resumed.

        Follows the ``resume`` pointers, which may lag behind evictions but never
        behind additions, and shortens the ones it passes.
        """
        while node.state is not READY:
            assert node.parent is not None  # the root is always ready
            node = node.parent
        passed = []
        while True:
            target = node.resume
            if target is not node:
                passed.append(node)
                node = target
            elif node.is_resumable:
                break
            else:
                assert node.parent is not None  # the root is always resumable
                node.resume = node.parent.resume
        for lagging in passed:
            lagging.resume = node
        return node
