"""Tells routers, over vLLM's KV events, which blocks host memory can serve.

``BlockStored`` when blocks become loadable, with what a consumer needs to rebuild their
keys; ``BlockRemoved`` when the last cell that holds them is given back. Both name the
medium, so they say nothing of the device's copy. ``AllBlocksCleared`` knows no medium:
sent behind a reset it would also take back what the device has cached since, so a
reset takes back block by block.

Source of fields and values: BlockStored and BlockRemoved, vLLM 0.32.
"""

from typing import TYPE_CHECKING

from kvcellar.integrations.vllm.compat import event_hash_converter
from kvcellar.integrations.vllm.event_content import RequestContent
from kvcellar.integrations.vllm.event_groups import event_groups
from kvcellar.integrations.vllm.event_runs import EventRuns

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.core.offloader import Offloader


def are_followed(vllm_config: "VllmConfig") -> bool:
    """Whether the engine publishes KV events."""
    config = vllm_config.kv_events_config
    return config is not None and bool(config.enable_kv_cache_events)


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
        self._convert = event_hash_converter()
        self._open: dict[str, RequestContent] = {}
        self._runs = EventRuns(event_groups(offloader.layout, kv_cache_config))

    def content(self, request: "Request") -> RequestContent:
        """What a request that has arrived will hold."""
        content = RequestContent(request, self._convert)
        self._open[request.request_id] = content
        return content

    def close(self, request_id: str) -> None:
        """A request has ended."""
        content = self._open.pop(request_id, None)
        if content is not None:
            content.close()

    def take(self) -> "list[KVCacheEvent]":
        """What has changed since the last call, in order."""
        changes = self._announcements.take()
        return self._runs.events(changes) if changes else []
