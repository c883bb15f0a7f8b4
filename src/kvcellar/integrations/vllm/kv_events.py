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

from vllm.distributed.kv_events import (
    MEDIUM_CPU,
    BlockRemoved,
    BlockStored,
    KVCacheEvent,
)
from vllm.v1.core.kv_cache_utils import (
    ExternalBlockHash,
    generate_block_hash_extra_keys,
    to_event_extra_keys,
)
from vllm.v1.kv_cache_interface import (
    get_kv_cache_spec_kind,
    get_kv_cache_spec_sliding_window,
)

from kvcellar.integrations.vllm.compat import event_hash_converter, has_extra_keys
from kvcellar.integrations.vllm.event_runs import EventRuns, HostBlocks
from kvcellar.layout.groups import CacheLayout, GroupLayout

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.core.offloader import Offloader

LOCALITY = "LOCAL"  # host memory of the machine that publishes


def are_followed(vllm_config: "VllmConfig") -> bool:
    """Whether the engine publishes KV events."""
    config = vllm_config.kv_events_config
    return config is not None and bool(config.enable_kv_cache_events)


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
        self._convert = event_hash_converter()
        self._kind = get_kv_cache_spec_kind(spec).value
        self._window = get_kv_cache_spec_sliding_window(spec)

    @property
    def group_id(self) -> int:
        """The engine's id of the group."""
        return self._group.group_id

    def hashes(self, request: Any, blocks: range) -> list[ExternalBlockHash]:
        """Hashes of blocks of a request's table, as consumers know them."""
        convert = self._convert
        return [convert(self._key(request, block)) for block in blocks]

    def stored(
        self, request: Any, blocks: range, hashes: list[ExternalBlockHash]
    ) -> BlockStored:
        """Announce blocks of a request's table; all their tokens are computed."""
        size = self._group.tokens_per_block
        first, end = blocks.start * size, blocks.stop * size
        lora = request.lora_request
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=(
                self._convert(self._key(request, blocks.start - 1))
                if blocks.start
                else None
            ),
            token_ids=list(request.all_token_ids[first:end]),
            block_size=size,
            lora_id=lora.adapter_id if lora else None,
            medium=MEDIUM_CPU,
            lora_name=lora.name if lora else None,
            extra_keys=self._extra_keys(request, blocks),
            group_idx=self._group.group_id,
            kv_cache_spec_kind=self._kind,
            kv_cache_spec_sliding_window=self._window,
            locality=LOCALITY,
            session_id=request.session_id,
        )

    def removed(self, hashes: list[ExternalBlockHash]) -> BlockRemoved:
        """Take blocks back."""
        return BlockRemoved(
            block_hashes=hashes,
            medium=MEDIUM_CPU,
            group_idx=self._group.group_id,
            locality=LOCALITY,
        )

    def _extra_keys(self, request: Any, blocks: range) -> list[Any] | None:
        """What else than tokens is in the blocks' hashes, as the device's events."""
        size = self._group.tokens_per_block
        if not has_extra_keys(request):
            return [None] * len(blocks)
        keys: list[Any] | None = to_event_extra_keys(
            generate_block_hash_extra_keys(
                request, block * size, (block + 1) * size, 0
            )[0]
            for block in blocks
        )
        return keys

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
        return HostBlocks(self, self._groups[position], blocks)

    def hashes(self, group: GroupEvents, blocks: range) -> list[ExternalBlockHash]:
        """Hashes of blocks of a group, as consumers know them."""
        return group.hashes(self._request, blocks)

    def stored(
        self, group: GroupEvents, blocks: range, hashes: list[ExternalBlockHash]
    ) -> BlockStored:
        """The event that announces them."""
        return group.stored(self._request, blocks, hashes)

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
        self._runs = EventRuns()

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
        return self._runs.events(self._announcements.take())


def _groups(layout: CacheLayout, kv_cache_config: "KVCacheConfig") -> list[GroupEvents]:
    return [
        GroupEvents(
            group,
            kv_cache_config.kv_cache_groups[group.group_id].kv_cache_spec,
            layout.hash_block_tokens,
        )
        for group in layout.groups
    ]
