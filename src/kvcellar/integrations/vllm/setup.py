"""What both halves work out at start, and what is refused then."""

from typing import TYPE_CHECKING

from kvcellar.config import Settings
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.integrations.vllm.dead_state import with_proven_dead_states
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.groups import CacheLayout, with_chosen_chunk

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
    num_context_ranks = vllm_config.parallel_config.decode_context_parallel_size
    if num_context_ranks > 1:
        raise IncompatibleError(
            f"decode context parallelism over {num_context_ranks} ranks comes with a "
            "later release; set decode_context_parallel_size to 1 until then"
        )
    layout = layout_from_kv_cache_config(
        kv_cache_config,
        payload_bytes_by_group=payload_bytes,
        has_drafter=drafts_with_own_layers(vllm_config),
    )
    layout = with_chosen_chunk(layout, settings.chunk_tokens, settings.blocks_per_chunk)
    if settings.dead_state:
        layout = with_proven_dead_states(layout, kv_cache_config)
    return layout


def drafts_with_own_layers(vllm_config: "VllmConfig") -> bool:
    """Whether a drafter's layers are in the cache whose entries need the next token.

    The engine marks their group where it can tell them apart; where it cannot, they
    share an unmarked one, and the margin must be kept all the same.
    Source: SpeculativeConfig.use_eagle_block_drop, vLLM 0.32.
    """
    speculative = vllm_config.speculative_config
    return speculative is not None and bool(speculative.use_eagle_block_drop())
