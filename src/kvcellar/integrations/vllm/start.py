"""The planner of one engine, and what its log says at the start."""

import logging
from typing import TYPE_CHECKING

from vllm.logger import init_logger

from kvcellar.config import Settings, describe_host_memory, rank_bytes
from kvcellar.core.offloader import Offloader
from kvcellar.index.capacity import capacity, describe
from kvcellar.integrations.vllm.accounts import log_account
from kvcellar.integrations.vllm.setup import layout_for
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

logger = init_logger("vllm.kvcellar")


def build_planner(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    settings: Settings,
    payload_bytes: dict[int, int] | None,
) -> Offloader:
    """The planner for this model and host memory; logs what fits.

    Args:
        payload_bytes: of a block of each group, by its id, as the ranks found them.
    """
    layout = layout_for(vllm_config, kv_cache_config, settings, payload_bytes)
    num_ranks = vllm_config.parallel_config.world_size
    geometry = plan_geometry(layout, rank_bytes(settings, num_ranks))
    offloader = Offloader(layout, geometry, settings)
    if logger.isEnabledFor(logging.DEBUG):
        offloader.ledger.on_account = log_account
    _warn_of(layout, vllm_config.model_config.max_model_len)
    logger.info("kvcellar: %s", describe_host_memory(settings, num_ranks))
    for line in describe(capacity(layout, geometry)).splitlines():
        logger.info("kvcellar: %s", line)
    return offloader


def _warn_of(layout: CacheLayout, longest_tokens: int) -> None:
    """Say what will find less than a user expects, or nothing."""
    if layout.has_drafter and not any(g.is_draft for g in layout.groups):
        logger.warning(
            "kvcellar: speculative decoding is on and the engine has marked no "
            "drafter's group, so every prefix must match one chunk further"
        )
    if layout.chunk_tokens >= longest_tokens:
        logger.warning(
            "kvcellar: a chunk is %d tokens and no request can be longer than %d, "
            "so nothing will ever be served; set a smaller chunk or block size",
            *(layout.chunk_tokens, longest_tokens),
        )
