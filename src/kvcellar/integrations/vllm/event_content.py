"""What a request's blocks hold, in the words of the device's own events."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_events import MEDIUM_CPU, BlockStored
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    to_event_extra_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.v1.request import Request

    from kvcellar.integrations.vllm.event_groups import GroupEvents

LOCALITY = "LOCAL"  # host memory of the machine that publishes


class RequestContent:
    """What one request's blocks hold. Outlives the request, but not its media.

    Args:
        request: vLLM's; held until ``close``.
        convert: names block hashes as consumers know them.
    """

    __slots__ = (
        "_convert",
        "_has_keys",
        "_lora_id",
        "_lora_name",
        "_request",
        "_session_id",
    )

    def __init__(
        self, request: "Request", convert: "Callable[[Sequence[bytes]], list[Any]]"
    ) -> None:
        self._request: Any = request
        self._convert = convert
        lora = request.lora_request
        self._lora_id = lora.adapter_id if lora else None
        self._lora_name = lora.name if lora else None
        self._session_id = request.session_id
        # The engine's own function, asked block by block, takes longer than all else.
        # Source: generate_block_hash_extra_keys, v1/core/kv_cache_utils.py, vLLM 0.32.
        self._has_keys = bool(
            lora or request.cache_salt or request.prompt_embeds is not None
        )

    def stored(self, group: "GroupEvents", first: int, end: int) -> BlockStored:
        """Announce blocks ``[first, end)`` of a group; all are computed."""
        request, size = self._request, group.block_tokens
        stride = group.hashes_per_block
        # The block before them comes first, if there is one.
        keys = request.block_hashes[(first or 1) * stride - 1 : end * stride : stride]
        hashes = self._convert(keys)
        parent = hashes.pop(0) if first else None
        return BlockStored(
            block_hashes=hashes,
            parent_block_hash=parent,
            token_ids=request.all_token_ids[first * size : end * size],
            block_size=size,
            lora_id=self._lora_id,
            medium=MEDIUM_CPU,
            lora_name=self._lora_name,
            extra_keys=(
                self._extra_keys(size, first, end)
                if self._has_keys or request.mm_features
                else [None] * (end - first)
            ),
            group_idx=group.group_id,
            kv_cache_spec_kind=group.kind,
            kv_cache_spec_sliding_window=group.window,
            locality=LOCALITY,
            session_id=self._session_id,
        )

    def hashes(self, first_hash: int, num_hashes: int) -> list[Any]:
        """Prefix hashes of the request, as consumers know them."""
        keys = self._request.block_hashes[first_hash : first_hash + num_hashes]
        return self._convert(keys)

    def _extra_keys(self, size: int, first: int, end: int) -> list[Any] | None:
        """What else than tokens is in the blocks' hashes, as the device's events."""
        request, medium, found = self._request, 0, []
        for start in range(first * size, end * size, size):
            keys, medium = generate_block_hash_extra_keys(
                request, start, start + size, medium
            )
            found.append(keys)
        event_keys: list[Any] | None = to_event_extra_keys(found)
        return event_keys

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
        )
