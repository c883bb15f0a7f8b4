"""Tells routers, over vLLM's KV events, which blocks host memory can serve.

``BlockStored`` when blocks become loadable, with what a consumer needs to rebuild their
keys; ``BlockRemoved`` when the last cell that holds them is given back. Both name the
medium, so they say nothing of the device's copy. ``AllBlocksCleared`` knows no medium:
sent behind a reset it would also take back what the device has cached since, so a
reset takes back block by block.

Source of fields and values: BlockStored and BlockRemoved, vLLM 0.32.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
)
from vllm.v1.core.kv_cache_utils import (
    ExternalBlockHash,
    generate_block_hash_extra_keys,
    maybe_convert_block_hash,
    to_event_extra_keys,
)
from vllm.v1.kv_cache_interface import (
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
)

from kvcellar.layout.groups import CacheLayout, GroupLayout

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.core.offloader import Offloader
    from kvcellar.index.announcements import Change

LOCALITY = "LOCAL"  # host memory of the machine that publishes


def are_followed(vllm_config: "VllmConfig") -> bool:
    """Whether the engine publishes KV events."""
    config = vllm_config.kv_events_config
    return config is not None and bool(config.enable_kv_cache_events)


class HostBlocks:
    """What is told of one cell; the tokens are kept only until they have been told.

    Attributes:
        hashes: its blocks' hashes as consumers know them.
        group_id: the engine's id of its group.
    """

    __slots__ = ("_stored", "group_id", "hashes")

    def __init__(self, stored: BlockStored) -> None:
        assert stored.group_idx is not None
        self._stored: BlockStored | None = stored
        self.hashes = stored.block_hashes
        self.group_id = stored.group_idx

    def take_stored(self, num_known: int) -> BlockStored | None:
        """The event that announces it, once; None if there is nothing to tell.

        Args:
            num_known: blocks at its start that another chunk holds too: the two are
                of one prompt up to a place inside them.
        """
        stored, self._stored = self._stored, None
        assert stored is not None  # a cell is announced once
        if num_known == len(self.hashes):
            return None
        if not num_known:
            return stored
        return msgspec.structs.replace(
            stored,
            block_hashes=stored.block_hashes[num_known:],
            parent_block_hash=stored.block_hashes[num_known - 1],
            token_ids=stored.token_ids[num_known * stored.block_size :],
            extra_keys=stored.extra_keys and stored.extra_keys[num_known:],
        )


class HeldBlocks:
    """How many cells hold each block; turns cells' changes into blocks' events."""

    def __init__(self) -> None:
        self._num_cells: dict[tuple[int, ExternalBlockHash], int] = {}

    def event(self, change: "Change") -> KVCacheEvent | None:
        """The event that a change of a cell gives rise to; None if there is none."""
        blocks = change.content
        assert isinstance(blocks, HostBlocks)
        return self._stored(blocks) if change.is_stored else self._removed(blocks)

    def _stored(self, blocks: HostBlocks) -> BlockStored | None:
        num_known = 0
        for block_hash in blocks.hashes:
            key = (blocks.group_id, block_hash)
            count = self._num_cells.get(key, 0)
            self._num_cells[key] = count + 1
            num_known += bool(count)  # these come first: a hash stands for a prefix
        return blocks.take_stored(num_known)

    def _removed(self, blocks: HostBlocks) -> BlockRemoved | None:
        gone = []
        for block_hash in blocks.hashes:
            key = (blocks.group_id, block_hash)
            self._num_cells[key] -= 1
            if not self._num_cells[key]:
                del self._num_cells[key]
                gone.append(block_hash)
        if not gone:
            return None
        return BlockRemoved(
            block_hashes=gone,
            medium=MEDIUM_CPU,
            group_idx=blocks.group_id,
            locality=LOCALITY,
        )


class GroupEvents:
    """What all events of one cache group have in common.

    Args:
        group: of the layout.
        spec: the engine's specification of its blocks.
        hash_tokens: tokens per prefix hash.
    """

    def __init__(self, group: GroupLayout, spec: Any, hash_tokens: int) -> None:
        self._group = group
        self._hash_tokens = hash_tokens
        self._kind = get_kv_cache_spec_kind(spec).value
        self._window = get_kv_cache_spec_sliding_window(spec)

    def describe(self, request: Any, blocks: range) -> HostBlocks:
        """Describe ``blocks`` of a request's table; all their tokens are computed."""
        size = self._group.tokens_per_block
        keys = [self._key(request, block) for block in blocks]
        first, end = blocks.start * size, blocks.stop * size
        lora = request.lora_request
        stored = BlockStored(
            block_hashes=[maybe_convert_block_hash(key) for key in keys],
            parent_block_hash=(
                maybe_convert_block_hash(self._key(request, blocks.start - 1))
                if blocks.start
                else None
            ),
            token_ids=list(request.all_token_ids[first:end]),
            block_size=size,
            lora_id=lora.adapter_id if lora else None,
            medium=MEDIUM_CPU,
            lora_name=lora.name if lora else None,
            extra_keys=to_event_extra_keys(
                generate_block_hash_extra_keys(
                    request, block * size, (block + 1) * size, 0
                )[0]
                for block in blocks
            ),
            group_idx=self._group.group_id,
            kv_cache_spec_kind=self._kind,
            kv_cache_spec_sliding_window=self._window,
            locality=LOCALITY,
            session_id=request.session_id,
        )
        return HostBlocks(stored)

    def _key(self, request: Any, block: int) -> Any:
        end = (block + 1) * self._group.tokens_per_block
        return request.block_hashes[end // self._hash_tokens - 1]


class RequestContent:
    """What one request's blocks hold. Outlives the request, but not its media.

    Args:
        request: vLLM's; held until ``close``.
        groups: by layout position.
    """

    def __init__(self, request: "Request", groups: Sequence[GroupEvents]) -> None:
        self._request: Any = request
        self._groups = groups

    def describe(self, position: int, blocks: range) -> HostBlocks:
        """What followers are told of blocks of the group at a layout position."""
        return self._groups[position].describe(self._request, blocks)

    def close(self) -> None:
        """The request has ended: keep what names its blocks, let its media go."""
        request = self._request
        self._request = SimpleNamespace(
            all_token_ids=request.all_token_ids,
            block_hashes=request.block_hashes,
            cache_salt=request.cache_salt,
            lora_request=request.lora_request,
            mm_features=[
                SimpleNamespace(identifier=f.identifier, mm_position=f.mm_position)
                for f in request.mm_features
            ],
            prompt_embeds=request.prompt_embeds,
            _prompt_embeds_per_block_hashes=request._prompt_embeds_per_block_hashes,
            session_id=request.session_id,
        )


class KvEvents:
    """One planner's changes as KV events. Exists only if the engine publishes them.

    Args:
        offloader: the planner.
        kv_cache_config: the engine's groups.
    """

    def __init__(
        self, offloader: "Offloader", kv_cache_config: "KVCacheConfig"
    ) -> None:
        self._announcements = offloader.announce()
        self._groups = _groups(offloader.layout, kv_cache_config)
        self._open: dict[str, RequestContent] = {}
        self._held = HeldBlocks()

    def content(self, request: "Request") -> RequestContent:
        """What a request that has arrived will hold."""
        content = RequestContent(request, self._groups)
        self._open[request.request_id] = content
        return content

    def close(self, request_id: str) -> None:
        """A request has ended."""
        content = self._open.pop(request_id, None)
        if content is not None:
            content.close()

    def take(self) -> list[KVCacheEvent]:
        """What has changed since the last call, in order."""
        found = (self._held.event(change) for change in self._announcements.take())
        return [event for event in found if event is not None]


def _groups(layout: CacheLayout, kv_cache_config: "KVCacheConfig") -> list[GroupEvents]:
    return [
        GroupEvents(
            group,
            kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec,
            layout.hash_block_tokens,
        )
        for group in layout.groups
    ]
