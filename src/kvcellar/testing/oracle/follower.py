"""A router that believes every KV event, and is compared with host memory."""

from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    BlockRemoved,
    BlockStored,
    EventPublisher,
)
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import hash_block_tokens, maybe_convert_block_hash

from kvcellar.core.offloader import Offloader
from kvcellar.index.cells import Cell
from kvcellar.index.states import State

HeldKey = tuple[int, Any]  # the engine's group id, hash at a block's end as published


class WrongEventError(AssertionError):
    """Who follows the events would believe something that is not so."""


class EventFollower(EventPublisher):
    """Takes the place of the engine's publisher.

    Args:
        planner: whose host memory the events are about.
        hash_tokens: tokens per prefix hash.

    Attributes:
        num_stored: blocks that were announced.
        num_removed: blocks that were taken back.
        num_rebuilt: hashes that were rebuilt from tokens and parent.
    """

    def __init__(self, planner: Offloader, hash_tokens: int) -> None:
        super().__init__()
        self._planner = planner
        self._hash_tokens = hash_tokens
        self._held: set[HeldKey] = set()
        self._rebuilt: dict[Any, Any] = {None: None}  # published hash -> whole hash
        self.num_stored = 0
        self.num_removed = 0
        self.num_rebuilt = 0

    def publish(self, events: Any) -> None:
        """Believe a step's events.

        Raises:
            WrongEventError: one of them cannot be right.
        """
        self.believe(events.events)

    def shutdown(self) -> None:
        """Nothing runs here."""

    def believe(self, events: Iterable[Any]) -> None:
        """Take in events in order; those of the device are not looked at.

        Raises:
            WrongEventError: one of them cannot be right.
        """
        for event in events:
            if getattr(event, "medium", None) != MEDIUM_CPU:
                continue
            if isinstance(event, BlockStored):
                self._stored(event)
            else:
                assert isinstance(event, BlockRemoved)
                self._removed(event)

    def check(self) -> None:
        """Compare what is believed with what host memory can serve.

        Raises:
            WrongEventError: something that can be loaded is not known, or something
                is believed to be there whose bytes have gone.
        """
        ready, there = self._blocks(only_ready=True), self._blocks(only_ready=False)
        if not ready <= self._held:
            raise WrongEventError(f"{len(ready - self._held)} were never announced")
        if not self._held <= there:
            raise WrongEventError(f"{len(self._held - there)} have gone in silence")

    def _stored(self, event: BlockStored) -> None:
        keys = self._keys(event)
        if not self._held.isdisjoint(keys):
            raise WrongEventError(f"announced twice: {event}")
        if len(event.token_ids) != event.block_size * len(keys):
            raise WrongEventError(f"tokens do not fill the blocks: {event}")
        if event.parent_block_hash in self._rebuilt and not any(event.extra_keys or ()):
            self._rebuild(event)
        self._held |= keys
        self.num_stored += len(keys)

    def _removed(self, event: BlockRemoved) -> None:
        keys = self._keys(event)
        if not keys <= self._held:
            raise WrongEventError(f"taken back but never announced: {event}")
        self._held -= keys
        self.num_removed += len(keys)

    @staticmethod
    def _keys(event: BlockStored | BlockRemoved) -> set[HeldKey]:
        assert event.group_idx is not None
        return {(event.group_idx, key) for key in event.block_hashes}

    def _rebuild(self, event: BlockStored) -> None:
        """The hashes must follow from the parent and the tokens."""
        whole = self._rebuilt[event.parent_block_hash]
        size = self._hash_tokens
        for number, published in enumerate(event.block_hashes):
            first = number * event.block_size
            for start in range(first, first + event.block_size, size):
                tokens = event.token_ids[start : start + size]
                whole = hash_block_tokens(sha256, whole, tokens)
            if maybe_convert_block_hash(whole) != published:
                raise WrongEventError(f"tokens do not make the hash: {event}")
            self._rebuilt[published] = whole
            self.num_rebuilt += 1

    def _blocks(self, *, only_ready: bool) -> set[HeldKey]:
        """Blocks that can be loaded now, or all whose bytes are there."""
        index = self._planner.index
        cells: list[Cell] = []
        for node in (*index.nodes.values(), *index.detached):
            if not only_ready or node.state is State.READY:
                cells += node.cells
            checkpoint = node.checkpoint
            if checkpoint and (not only_ready or checkpoint.state is State.READY):
                cells += checkpoint.cells
        return {key for cell in cells for key in self._keys_of(cell)}

    def _keys_of(self, cell: Cell) -> list[HeldKey]:
        group = self._planner.layout.groups[cell.position]
        notice: Any = cell.notice  # every request here is followed
        if isinstance(notice, tuple):  # nobody was told yet
            content, first = notice
            stride = group.tokens_per_block // self._hash_tokens
            num_blocks = self._planner.layout.blocks_per_cell(cell.position)
            found = content.hashes(first * stride, num_blocks * stride)
            notice = found[stride - 1 :: stride]
        keys = notice if isinstance(notice, list) else [notice]
        return [(group.group_id, key) for key in keys]
