"""The planner of one engine, and what its log says at the start."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from vllm.logger import init_logger

from kvcellar.config import Settings
from kvcellar.core.offloader import Offloader
from kvcellar.errors import IncompatibleError
from kvcellar.index.ranks import describe_server
from kvcellar.integrations.vllm.accounts import log_account
from kvcellar.integrations.vllm.messages import RankFacts, RankHandshake
from kvcellar.integrations.vllm.ranks import (
    ServerPlan,
    check_cut,
    facts_of_all,
    find_facts,
    plan_server,
)
from kvcellar.integrations.vllm.setup import declared_layout
from kvcellar.integrations.vllm.sharing import num_identical_ranks
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.ranks import server_layout

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

logger = init_logger("vllm.kvcellar")


def build_planner(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    settings: Settings,
    handshakes: Mapping[tuple[int, int], RankHandshake],
) -> Offloader:
    """The planner for this model and the host memory of all ranks; logs what fits.

    Args:
        handshakes: what the ranks found, by pipeline stage and tensor rank; none where
            they can only be like this process's own part of the cache.

    Raises:
        ConfigError: host memory is too small for all that the ranks hold.
        IncompatibleError: one plan cannot serve all ranks, or they have cut their
            memory in another way than it would.
    """
    ranks_per_stage = vllm_config.parallel_config.tensor_parallel_size
    facts = _facts(vllm_config, kv_cache_config, handshakes)
    num_sharing = _num_sharing(vllm_config, kv_cache_config, settings, handshakes)
    plan = plan_server(facts, settings, ranks_per_stage, num_sharing)
    # Behind MultiConnector another one of ours may have told, with its own memory.
    if all(told.settings == settings for told in handshakes.values()):
        check_cut(handshakes, plan)
    offloader = Offloader(plan.layout, plan.geometry.server, settings)
    if logger.isEnabledFor(logging.DEBUG):
        offloader.ledger.on_account = log_account
    longest_tokens = vllm_config.model_config.max_model_len
    _warn_of(plan.layout, longest_tokens)
    _log(plan, settings, longest_tokens)
    return offloader


def _facts(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    handshakes: Mapping[tuple[int, int], RankHandshake],
) -> tuple[RankFacts, ...]:
    """What all ranks hold, which must be what the scheduler knows, too."""
    parallel = vllm_config.parallel_config
    if not handshakes:
        if parallel.pipeline_parallel_size > 1:
            raise IncompatibleError(
                "no rank has told what its pipeline stage holds; name kvcellar's "
                "connector first in MultiConnector"
            )
        num_ranks: int = parallel.world_size
        return (find_facts(vllm_config, kv_cache_config),) * num_ranks
    ranks_per_stage = parallel.tensor_parallel_size
    facts = facts_of_all(handshakes, parallel.world_size, ranks_per_stage)
    told = server_layout([one.layout for one in facts], ranks_per_stage)
    payload_bytes = {group.group_id: group.payload_bytes for group in told.groups}
    own = declared_layout(vllm_config, kv_cache_config, payload_bytes)
    _refuse_other_units(own, told)
    return facts


def _num_sharing(
    vllm_config: "VllmConfig",
    kv_cache_config: "KVCacheConfig",
    settings: Settings,
    handshakes: Mapping[tuple[int, int], RankHandshake],
) -> int:
    """Ranks that share an arena: that only they know for certain."""
    told = {one.num_sharing for one in handshakes.values() if one.settings == settings}
    if len(told) == 1:
        return told.pop()
    if told or num_identical_ranks(vllm_config, kv_cache_config, settings) > 1:
        raise IncompatibleError(
            "not every rank has told whether it shares its arena with others; name "
            "kvcellar's connector first in MultiConnector, or set share_replicated to "
            '"off"'
        )
    return 1


def _refuse_other_units(ours: CacheLayout, told: CacheLayout) -> None:
    """The scheduler's copy of the cache configuration must agree with the workers'."""
    for name in ("hash_block_tokens", "alignment_tokens", "chunk_tokens"):
        if getattr(ours, name) != getattr(told, name):
            raise IncompatibleError(
                f"scheduler and workers disagree about {name}: {getattr(ours, name)} "
                f"and {getattr(told, name)}; start them with the same vLLM"
            )
    ids, theirs = ([g.group_id for g in x.groups] for x in (ours, told))
    if ids != theirs:
        raise IncompatibleError(
            f"scheduler and workers disagree about the cache groups to keep: {ids} "
            f"and {theirs}; start them with the same vLLM"
        )


def _log(plan: ServerPlan, settings: Settings, longest_tokens: int) -> None:
    for line in describe_server(plan.ranks, plan.geometry, settings, longest_tokens):
        logger.info("kvcellar: %s", line)


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
