"""What both halves work out at start, and what is refused then."""

from typing import TYPE_CHECKING

from kvcellar.config import Settings
from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.translate import (
    layout_from_kv_cache_config,
    refuse_unsupported,
)
from kvcellar.layout.groups import CacheLayout, with_chunk_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


def layout_for(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    settings: Settings,
    payload_bytes: "Mapping[int, int] | None" = None,
) -> CacheLayout:
    """The model's layout, with the chunk size that the user asked for.

    Args:
        payload_bytes: bytes of one block by group id, where the ranks reported them.

    Raises:
        ConfigError: prefix caching is off, or the chunk size does not fit.
        IncompatibleError: the model needs what this release cannot serve.
    """
    if not vllm_config.cache_config.enable_prefix_caching:
        raise ConfigError(
            "prefix caching is off (enable_prefix_caching=False), so nothing could "
            "ever be found again; remove --no-enable-prefix-caching"
        )
    layout = layout_from_kv_cache_config(
        kv_cache_config, payload_bytes_by_group=payload_bytes
    )
    chunk_tokens = settings.chunk_tokens
    if settings.blocks_per_chunk is not None:
        chunk_tokens = settings.blocks_per_chunk * layout.chunk_tokens
    if chunk_tokens is not None:
        layout = with_chunk_tokens(layout, chunk_tokens)
    parallel = vllm_config.parallel_config
    refuse_unsupported(layout, num_context_ranks=parallel.decode_context_parallel_size)
    return layout
