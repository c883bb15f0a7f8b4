"""What all events of one cache group have in common."""

from typing import TYPE_CHECKING, Any

import msgspec
from vllm.distributed.kv_events import MEDIUM_CPU, BlockRemoved, BlockStored
from vllm.v1.kv_cache_interface import (
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
)

from kvcellar.integrations.vllm.event_content import LOCALITY

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import ExternalBlockHash
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvcellar.layout.groups import CacheLayout


class GroupEvents:
    """Of one group.

    Args:
        layout: of the cache.
        position: of the group in it.
        spec: the engine's specification of its blocks.

    Attributes:
        group_id: the engine's.
        block_tokens: tokens in one of its blocks.
        hashes_per_block: prefix hashes in one of its blocks.
        blocks_per_cell: blocks in one of its cells.
        family: the same for groups whose blocks have the same hashes, and come and go
            together: chunks' groups, or checkpoints', with blocks of one size.
        kind: as the engine names it.
        window: tokens that its layers look back; None if all.
    """

    def __init__(self, layout: "CacheLayout", position: int, spec: Any) -> None:
        group = layout.groups[position]
        self.group_id = group.group_id
        self.block_tokens = group.tokens_per_block
        self.hashes_per_block = group.tokens_per_block // layout.hash_block_tokens
        self.blocks_per_cell = layout.blocks_per_cell(position)
        is_chunk = position in layout.chunk_positions
        self.family = (self.block_tokens, self.blocks_per_cell, is_chunk)
        self.kind: str = get_kv_cache_spec_kind(spec).value
        self.window: int | None = get_kv_cache_spec_sliding_window(spec)

    def stored_too(self, event: BlockStored) -> BlockStored:
        """The same blocks of another group, which hold as many tokens, came too.

        The two events share their lists; nobody changes them any more.
        """
        same: BlockStored = msgspec.structs.replace(
            event,
            group_idx=self.group_id,
            kv_cache_spec_kind=self.kind,
            kv_cache_spec_sliding_window=self.window,
        )
        return same

    def removed(self, hashes: "list[ExternalBlockHash]") -> BlockRemoved:
        """Take blocks back."""
        return BlockRemoved(
            block_hashes=hashes,
            medium=MEDIUM_CPU,
            group_idx=self.group_id,
            locality=LOCALITY,
        )


def event_groups(
    layout: "CacheLayout", kv_cache_config: "KVCacheConfig"
) -> list[GroupEvents]:
    """By layout position."""
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    return [
        GroupEvents(layout, position, specs[group.group_id])
        for position, group in enumerate(layout.groups)
    ]
