"""Which ranks hold the same bytes, and how they come to keep one copy of them.

The engine declares it where all layers say so (latent attention). KV heads that ranks
repeat, because a model has fewer than there are ranks, are the same bytes too, as long
as every layer has as few; the engine does not declare that, so it must be asked for.

Source: kv_cache_groups_tp_replicas in v1/core/kv_cache_utils.py, and QKVParallelLinear
in model_executor/layers/linear.py, vLLM 0.32: ranks that repeat a head are neighbours.
"""

import math
from typing import TYPE_CHECKING

from vllm.logger import init_logger
from vllm.v1.kv_cache_interface import AttentionSpec, iter_layer_specs

from kvcellar.config import Settings
from kvcellar.errors import ConfigError
from kvcellar.integrations.vllm.exchange import Exchange
from kvcellar.transfer.joining import Joined, join

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

logger = init_logger("vllm.kvcellar")


def num_identical_ranks(
    vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig", settings: Settings
) -> int:
    """Consecutive tensor-parallel ranks that are to share an arena; 1 for none.

    Those that hold the same bytes and are on one machine, which has ranks that follow.

    Raises:
        ConfigError: sharing is asked for, and no two ranks of a machine hold the same
            bytes.
    """
    if settings.share_replicated == "off":
        return 1
    parallel = vllm_config.parallel_config
    num_ranks: int = parallel.tensor_parallel_size
    found = int(getattr(kv_cache_config, "kv_tp_replicas", 1))
    if found == 1 and settings.share_replicated == "on":
        found = _num_repeating_heads(vllm_config, kv_cache_config, num_ranks)
    found = math.gcd(found, parallel.local_world_size)
    if found == 1 and settings.share_replicated == "on":
        raise ConfigError(
            f'share_replicated="on" has nothing to share: none of {num_ranks} '
            "tensor-parallel rank(s) is known to hold the same bytes as another of its "
            'machine; set it to "auto"'
        )
    return found


def _num_repeating_heads(
    vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig", num_ranks: int
) -> int:
    """Ranks that repeat each KV head, if that is so in every layer; else 1.

    A drafter's layers have heads of their own number, which nothing here tells.
    """
    architecture = vllm_config.model_config.model_arch_config
    overrides = architecture.per_layer_overrides or ()
    total_heads: int = architecture.total_num_kv_heads
    specs = [
        spec
        for group in kv_cache_config.kv_cache_groups
        for spec in iter_layer_specs(group.kv_cache_spec)
    ]
    is_so = (
        all(isinstance(s, AttentionSpec) and s.num_kv_heads == 1 for s in specs)
        and not any("total_num_kv_heads" in layer for layer in overrides)
        and vllm_config.speculative_config is None
        and num_ranks % total_heads == 0
    )
    return num_ranks // total_heads if is_so else 1


def share_arena(
    exchange: Exchange, num_sharing: int, settings: Settings
) -> Joined | None:
    """Join the ranks that hold the same bytes; called by all ranks alike.

    Returns:
        None if each rank keeps an arena of its own: nobody holds the same, or this
        system does not let processes share memory, which is a warning.

    Raises:
        ConfigError: sharing is asked for and cannot be had.
    """
    if num_sharing == 1:
        return None
    answer = join(
        lambda given: exchange.gather("shared arena", given), exchange.rank, num_sharing
    )
    if isinstance(answer, Joined):
        return answer
    if settings.share_replicated == "on":
        raise ConfigError(
            f'share_replicated="on" cannot be done: {answer.reason}; set it to "off"'
        )
    if exchange.rank == 0:
        logger.warning(
            "kvcellar: %d ranks hold the same bytes and each keeps a copy of its own, "
            'since they cannot share one: %s; set share_replicated to "off" to '
            "silence this",
            *(num_sharing, answer.reason),
        )
    return None
