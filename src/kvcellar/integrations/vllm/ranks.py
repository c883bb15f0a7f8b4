"""What the ranks found at start, and what every half makes of it: the same, everywhere.

Each worker translates its own part of the cache, the workers exchange these facts, and
each works out the one cut for all. The handshake carries facts and cut to the
scheduler, which works it out again and refuses to start if anything differs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcellar.config import Settings, host_budget
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.dead_state import (
    compressor_states,
    with_proven_dead_states,
)
from kvcellar.integrations.vllm.messages import RankFacts, RankHandshake
from kvcellar.integrations.vllm.setup import declared_layout
from kvcellar.layout.groups import CacheLayout, with_chosen_chunk
from kvcellar.layout.ranks import (
    RanksGeometry,
    cut_ranks,
    rank_layout,
    server_layout,
)

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What all ranks agree on.

    Attributes:
        layout: with the bytes of all ranks together, those that are shared once.
        ranks: the same with each rank's own bytes, in rank order.
        geometry: one cut of host memory for all.
    """

    layout: CacheLayout
    ranks: tuple[CacheLayout, ...]
    geometry: RanksGeometry


def find_facts(
    vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig"
) -> RankFacts:
    """What one rank can say by itself.

    Raises:
        ConfigError: prefix caching is off.
        IncompatibleError: the model needs what this release cannot serve.
    """
    layout = declared_layout(vllm_config, kv_cache_config)
    return RankFacts(layout, compressor_states(kv_cache_config))


def plan_server(
    facts: Sequence[RankFacts],
    settings: Settings,
    ranks_per_stage: int,
    num_sharing: int = 1,
) -> ServerPlan:
    """One layout and one cut for all ranks. Pure: every half gets the same.

    Args:
        facts: in rank order.
        ranks_per_stage: tensor-parallel ranks.
        num_sharing: consecutive ranks of a stage that share an arena.

    Raises:
        ConfigError: the host memory is too small, or the chunk does not fit the model.
        IncompatibleError: the ranks cannot be served by one plan.
    """
    held_once = [one.layout for one in facts[::num_sharing]]
    layout = server_layout(held_once, ranks_per_stage // num_sharing)
    layout = with_chosen_chunk(layout, settings.chunk_tokens, settings.blocks_per_chunk)
    if settings.dead_state:
        layout = with_proven_dead_states(layout, _agreed_ratios(facts))
    ranks = tuple(rank_layout(layout, one.layout) for one in facts)
    geometry = cut_ranks(ranks, host_budget(settings), num_sharing)
    return ServerPlan(layout, ranks, geometry)


def _agreed_ratios(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Compressors' states that every rank with layers of the group takes them for."""
    agreed = {}
    for position, group in enumerate(facts[0].layout.groups):
        ratios = {
            one.compressor_ratios.get(group.group_id)
            for one in facts
            if one.layout.groups[position].num_layers
        }
        ratio = ratios.pop() if len(ratios) == 1 else None
        if ratio is not None:
            agreed[group.group_id] = ratio
    return agreed


def facts_of_all(
    handshakes: Mapping[tuple[int, int], RankHandshake],
    num_ranks: int,
    ranks_per_stage: int,
) -> tuple[RankFacts, ...]:
    """What all ranks found, as each of them has told it.

    Args:
        handshakes: by pipeline stage and tensor rank.

    Raises:
        IncompatibleError: a rank is missing, or ranks have heard different things.
    """
    if len(handshakes) != num_ranks:
        raise IncompatibleError(
            f"{len(handshakes)} of {num_ranks} ranks have told the scheduler what they "
            "hold, so nobody would learn when the others have copied; use vLLM's "
            '"mp" or "ray" executor'
        )
    told = [handshakes[key] for key in sorted(handshakes)]
    for number, ((stage, tensor), one) in enumerate(sorted(handshakes.items())):
        if one.rank != number or number != stage * ranks_per_stage + tensor:
            raise IncompatibleError(
                f"pipeline stage {stage}, tensor rank {tensor} calls itself rank "
                f"{one.rank} of {num_ranks}; start all ranks with the same vLLM"
            )
        if one.facts != told[0].facts:
            raise IncompatibleError(
                f"rank {number} has heard other bytes from the ranks than rank 0: "
                f"{_bytes_of(one.facts)} and {_bytes_of(told[0].facts)} per block; "
                "start all ranks at the same time, with the same kvcellar"
            )
    return told[0].facts


def check_cut(
    handshakes: Mapping[tuple[int, int], RankHandshake], plan: ServerPlan
) -> None:
    """Refuse ranks that have cut their memory in another way than the planner counts.

    Raises:
        IncompatibleError: one has.
    """
    for key in sorted(handshakes):
        one, ours = handshakes[key], plan.geometry.ranks[handshakes[key].rank]
        if one.geometry == ours:
            continue
        raise IncompatibleError(
            f"rank {one.rank} cut its host memory into {one.geometry.num_slabs} slabs "
            f"of {one.geometry.slab_bytes} bytes, where the scheduler counts "
            f"{ours.num_slabs} of {ours.slab_bytes}; start all of them with the same "
            "kvcellar"
        )


def _bytes_of(facts: Sequence[RankFacts]) -> list[list[int]]:
    return [[g.payload_bytes for g in one.layout.groups] for one in facts]
