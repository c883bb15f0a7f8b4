"""Chains of stored blocks, put together from events: the tree, and who grows in it."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kvcellar.replay.readers.ids import IdArray

BlockHash: TypeAlias = bytes | str | int

REQUEST_GAP_SECONDS = 10.0
"""Blocks that follow the last one later than this belong to a new request."""

_ROOT = 0


@dataclass(frozen=True, slots=True)
class StoredBlocks:
    """What one event says was stored.

    Attributes:
        hashes: of the blocks, in their order in the prompt.
        parent: hash of the block before them; None for the beginning of a prompt.
        session: what the engine says the request belongs to; empty if nothing.
    """

    hashes: Sequence[BlockHash]
    parent: BlockHash | None
    session: str


@dataclass(slots=True)
class Chain:
    """Blocks that are taken for one request.

    Attributes:
        first_seconds: when its first block was stored.
        last_seconds: when its last block so far was stored.
        last_block: prefix id of that block.
        session: what the engine says the request belongs to; empty if nothing.
    """

    first_seconds: float
    last_seconds: float
    last_block: int
    session: str


class EventChains:
    """Tree of all blocks seen, and the chains that end in it.

    A block's id is its place in the order of first sight, from 1; the parent of block
    ``i`` is ``_parents[i]``, and 0 is the empty prefix.
    """

    def __init__(self) -> None:
        self._parents = array("q", [_ROOT])
        self._ids: dict[BlockHash, int] = {}
        self._chains: list[Chain] = []
        self._by_end: dict[int, Chain] = {}

    def store(self, stored: StoredBlocks, seconds: float) -> None:
        """Take blocks that were stored at ``seconds``."""
        parent = stored.parent
        end = _ROOT if parent is None else self._ids.get(parent, _ROOT)
        chain = self._by_end.pop(end, None)
        if chain is None or not _is_same(chain, seconds, stored.session):
            chain = Chain(seconds, seconds, end, stored.session)
            self._chains.append(chain)
        for block_hash in stored.hashes:
            end = self._id(block_hash, end)
        chain.last_seconds = seconds
        chain.last_block = end
        self._by_end[end] = chain

    def take_all(self) -> Iterator[tuple[Chain, IdArray]]:
        """Give each chain with the ids of its whole prompt, and forget the chains."""
        chains, self._chains = self._chains, []
        self._by_end.clear()
        for chain in chains:
            yield chain, self._path(chain.last_block)

    def clear(self) -> None:
        """Forget which block has which hash; ids go on counting."""
        self._ids.clear()

    def _id(self, block_hash: BlockHash, parent: int) -> int:
        known = self._ids.get(block_hash)
        if known is None:
            known = self._ids[block_hash] = len(self._parents)
            self._parents.append(parent)
        return known

    def _path(self, end: int) -> IdArray:
        path = array("q")
        while end != _ROOT:
            path.append(end)
            end = self._parents[end]
        path.reverse()
        return path


def _is_same(chain: Chain, seconds: float, session: str) -> bool:
    is_in_time = seconds - chain.last_seconds <= REQUEST_GAP_SECONDS
    return is_in_time and chain.session == session
