"""Why kvcellar could not resume where one of vLLM's own connectors did."""

from dataclasses import dataclass
from typing import Any

from native_workload import Planned

from kvcellar.core.offloader import Offloader
from kvcellar.index.node import Node

WHOLE_PROMPT = "prompt known to its last token: only the native answers past a boundary"
FINER = "native hit inside a chunk"
NOT_STORED = "chunks never stored"
CHUNKS_EVICTED = "chunks evicted, least recently used"
CHUNKS_DEAD = "chunks evicted as dead weight behind a lost checkpoint"
MARGIN = "drafter: the prompt must agree for a whole chunk more"
CHECKPOINT_EVICTED = "checkpoint evicted with its chunk and not placed anew"
SUPERSEDED = "checkpoint given up for a deeper one on the same path"
BLOCKS_HELD = "no checkpoint placed, though all its blocks are held"
IN_PROMPT = "no checkpoint placed inside an earlier prompt"
IN_ANSWER = "no checkpoint placed among decoded tokens"


@dataclass(frozen=True, slots=True)
class View:
    """What kvcellar held just before a look-up.

    Attributes:
        boundary: the native hit in whole chunks.
        reason: why it is out of reach, if it is.
        resumable: boundaries of the prompt at which kvcellar could resume.
    """

    boundary: int
    reason: str
    resumable: list[int]


class Explainer:
    """Follows what kvcellar's planner stores and evicts.

    Args:
        planner: the planner before its first event.
    """

    def __init__(self, planner: Offloader) -> None:
        self._index = planner.index
        self._stored: set[bytes] = set()
        self._placed: set[bytes] = set()
        self._dead: set[bytes] = set()
        self._superseded: set[bytes] = set()
        self._served: list[Planned] = []
        self._follow()

    def served(self, planned: Planned) -> None:
        """A request has ended."""
        self._served.append(planned)

    def look(self, planned: Planned, native_tokens: int) -> View:
        """What stands in the way of a hit, just before the look-up.

        Args:
            native_tokens: what a native connector finds.
        """
        num_tokens, chunk = len(planned.prompt), self._index.chunk_tokens
        boundary = native_tokens // chunk * chunk
        limit = (num_tokens - 1) // chunk * chunk
        resumable = self.resumable(planned)
        if native_tokens >= num_tokens - 1 and not {limit, num_tokens}.isdisjoint(
            resumable
        ):
            return View(num_tokens, WHOLE_PROMPT, resumable)
        boundary = min(boundary, limit)
        reason = self._why_not(planned, boundary) if boundary else FINER
        return View(boundary, reason, resumable)

    def resumable(self, planned: Planned) -> list[int]:
        """Boundaries of the prompt at which kvcellar could resume now."""
        chunk, found = self._index.chunk_tokens, []
        for depth, key in enumerate(self._keys(planned), 1):
            node = self._index.nodes.get(key)
            if node is None:
                break
            if node.is_resumable:
                found.append(depth * chunk)
        return found

    def _why_not(self, planned: Planned, boundary: int) -> str:
        keys, nodes = self._keys(planned), self._index.nodes
        depth = boundary // self._index.chunk_tokens
        missing = next((key for key in keys[:depth] if key not in nodes), None)
        if missing is not None:
            if missing not in self._stored:
                return NOT_STORED
            return CHUNKS_DEAD if missing in self._dead else CHUNKS_EVICTED
        with_margin = depth + self._index.rules.margin_chunks
        if len(keys) < with_margin or keys[with_margin - 1] not in nodes:
            return MARGIN
        if nodes[keys[depth - 1]].is_resumable:
            return FINER
        return self._why_no_checkpoint(planned, boundary, keys[depth - 1])

    def _why_no_checkpoint(self, planned: Planned, boundary: int, key: bytes) -> str:
        if self._holds_blocks(planned, boundary):
            return BLOCKS_HELD
        if key in self._superseded:
            return SUPERSEDED
        if key in self._placed:
            return CHECKPOINT_EVICTED
        return IN_PROMPT if self._is_in_prompt(planned, boundary) else IN_ANSWER

    def _keys(self, planned: Planned) -> list[bytes]:
        """Keys of the prompt's whole chunks."""
        stride = self._index.hashes_per_chunk
        num_hashes = len(planned.prompt) // planned.hash_tokens
        return planned.hashes[stride - 1 : num_hashes : stride]

    def _holds_blocks(self, planned: Planned, boundary: int) -> bool:
        """Whether checkpoints elsewhere hold all that resuming here reads."""
        layout, shared = self._index.rules.layout, self._index.cells.shared
        for position, blocks in self._index.rules.checkpoint_blocks(boundary):
            tokens_per_block = layout.groups[position].tokens_per_block
            for block in blocks:
                end = (block + 1) * tokens_per_block // planned.hash_tokens
                cell = shared.get((position, planned.hashes[end - 1]))
                if cell is None or cell.is_lost:
                    return False
        return True

    def _is_in_prompt(self, planned: Planned, boundary: int) -> bool:
        """Whether an earlier prompt, its answer left out, reached ``boundary``."""
        last = boundary // planned.hash_tokens - 1
        return any(
            len(earlier.prompt) >= boundary
            and earlier.hashes[last] == planned.hashes[last]
            for earlier in self._served
        )

    def _follow(self) -> None:
        """Note what happens to every chunk and checkpoint from here on."""
        index: Any = self._index
        add_path, add_checkpoint = index.add_path, index.add_checkpoint
        drop_leaf, take_superseded = index._drop_leaf, index.order.superseded.take

        def path(*args: Any) -> list[Node]:
            nodes: list[Node] = add_path(*args)
            self._stored.update(node.key for node in nodes)
            return nodes

        def checkpoint(node: Node, cells: Any, **options: Any) -> Any:
            self._placed.add(node.key)
            return add_checkpoint(node, cells, **options)

        def leaf(node: Node) -> Node:
            is_dead = node.checkpoint is None and node.needs_checkpoint
            (self._dead.add if is_dead else self._dead.discard)(node.key)
            parent: Node = drop_leaf(node)
            return parent

        def superseded(*args: Any, **options: Any) -> Node | None:
            node: Node | None = take_superseded(*args, **options)
            if node is not None:
                self._superseded.add(node.key)
            return node

        index.add_path, index.add_checkpoint = path, checkpoint
        index._drop_leaf, index.order.superseded.take = leaf, superseded
