"""What both halves work out at start, and what is refused then."""

from typing import TYPE_CHECKING

from kvcellar.config import Settings
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.integrations.vllm.dead_state import (
    compressor_states,
    with_proven_dead_states,
)
from kvcellar.integrations.vllm.translate import layout_from_kv_cache_config
from kvcellar.layout.groups import CacheLayout, with_chosen_chunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm.config import ParallelConfig, VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


def layout_for(
    vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig", settings: Settings
) -> CacheLayout:
    """What one rank that is alone keeps of the model.

    Raises:
        ConfigError: prefix caching is off, or the chunk size does not fit.
        IncompatibleError: the model needs what this release cannot serve.
    """
    layout = declared_layout(vllm_config, kv_cache_config)
    layout = with_chosen_chunk(layout, settings.chunk_tokens, settings.blocks_per_chunk)
    if settings.dead_state:
        layout = with_proven_dead_states(layout, compressor_states(kv_cache_config))
    return layout


def declared_layout(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    payload_bytes: "Mapping[int, int] | None" = None,
) -> CacheLayout:
    """The model's layout as the engine declares it, in the smallest chunks.

    Args:
        payload_bytes: bytes of one block by group id, where the ranks reported them.

    Raises:
        ConfigError: prefix caching is off.
        IncompatibleError: the model needs what this release cannot serve.
    """
    if not vllm_config.cache_config.enable_prefix_caching:
        raise ConfigError(
            "prefix caching is off (enable_prefix_caching=False), so nothing could "
            "ever be found again; remove --no-enable-prefix-caching"
        )
    _refuse_context_parallelism(vllm_config.parallel_config)
    return layout_from_kv_cache_config(
        kv_cache_config,
        payload_bytes_by_group=payload_bytes,
        has_drafter=drafts_with_own_layers(vllm_config),
    )


def _refuse_context_parallelism(parallel_config: "ParallelConfig") -> None:
    for name in ("decode", "prefill"):
        key = f"{name}_context_parallel_size"
        num_ranks = getattr(parallel_config, key)
        if num_ranks > 1:
            raise IncompatibleError(
                f"{name} context parallelism over {num_ranks} ranks comes with a later "
                f"release; set {key} to 1 until then"
            )


def drafts_with_own_layers(vllm_config: "VllmConfig") -> bool:
    """Whether a drafter's layers are in the cache whose entries need the next token.

    The engine marks their group where it can tell them apart; where it cannot, they
    share an unmarked one, and the margin must be kept all the same.
    Source: SpeculativeConfig.use_eagle_block_drop, vLLM 0.32.
    """
    speculative = vllm_config.speculative_config
    return speculative is not None and bool(speculative.use_eagle_block_drop())
