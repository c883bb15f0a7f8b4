"""What host memory holds, by the code that a starting server runs.

The lines of its log are made here by the same functions, so that both say the same.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcellar.config import (
    Settings,
    host_budget,
    rank_bytes,
    settings_from_extra_config,
)
from kvcellar.errors import ConfigError
from kvcellar.index.capacity import TYPICAL_PROMPT_TOKENS, Capacity, capacity
from kvcellar.index.ranks import describe_server, wasted_share
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.ranks import RanksGeometry, cut_ranks, server_layout
from kvcellar.plan.shape import ServerShape
from kvcellar.plan.words import rounded_up

_WHOLE_KEYS = ("host_memory", "cpu_bytes_to_use")
_GROWTH = 50  # slabs cost a little more than their payload: try 2 % more each time
_RANK_KEYS = ("host_memory_per_rank", "cpu_bytes_to_use_per_rank")


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Host memory of one server; each "fits" figure is for an otherwise empty one.

    Attributes:
        asked_bytes_by_stage: one rank's share of what was asked for, in each stage.
        asked_bytes_per_server: what was asked for, of one replica's ranks.
        num_sharing: ranks that keep one copy of what all of them hold, in one arena.
        arena_bytes_per_rank: what the fullest rank maps: whole slabs of its share, or
            of the shares of all ranks that share an arena.
        arena_bytes_per_node: of all ranks on the fullest machine, all replicas'.
        arena_bytes_per_server: of one replica's ranks.
        arena_bytes_in_total: of all replicas.
        unusable_share: of what was asked for, because the stages hold the groups in
            different proportions, or one is fuller than the others.
        stages: what one rank of each pipeline stage holds.
        num_prompts: typical prompts that one server holds, each with its checkpoint.
        num_prompts_in_total: the same for all replicas.
        prompt_tokens: length of the typical prompt, in whole chunks.
        num_chunks: chunks that one server holds if there are no checkpoints.
        chunk_tokens_total: the tokens in them.
        num_checkpoints: checkpoints that one server holds if there are no chunks.
        bytes_per_prompt: host memory that one more such prompt takes, all ranks.
        log_lines: what the server says at its start, without prefixes.
    """

    asked_bytes_by_stage: tuple[int, ...]
    asked_bytes_per_server: int
    num_sharing: int
    arena_bytes_per_rank: int
    arena_bytes_per_node: int
    arena_bytes_per_server: int
    arena_bytes_in_total: int
    unusable_share: float
    stages: tuple[Capacity, ...]
    num_prompts: int
    num_prompts_in_total: int
    prompt_tokens: int
    num_chunks: int
    chunk_tokens_total: int
    num_checkpoints: int
    bytes_per_prompt: int
    log_lines: tuple[str, ...]

    @property
    def asked_bytes_per_rank(self) -> int:
        """One rank's share of what was asked for; that of the fullest."""
        return max(self.asked_bytes_by_stage)

    @property
    def fullest_stage(self) -> Capacity:
        """The stage, the first such, whose ranks hold most of a typical prompt."""
        return max(self.stages, key=lambda stage: stage.prompt_bytes)

    @property
    def are_ranks_even(self) -> bool:
        """Whether all ranks have equal shares."""
        return len(set(self.asked_bytes_by_stage)) == 1


def checked_settings(extra: Mapping[str, object]) -> Settings:
    """The connector's settings; one size of host memory, not two.

    Raises:
        ConfigError: as ``settings_from_extra_config``, or a size for the server and
            another for each rank.
    """
    whole = next((key for key in _WHOLE_KEYS if key in extra), None)
    rank = next((key for key in _RANK_KEYS if key in extra), None)
    if whole is not None and rank is not None:
        raise ConfigError(
            f"{whole}={extra[whole]!r} and {rank}={extra[rank]!r} both set the size of "
            "host memory; keep one of them"
        )
    return settings_from_extra_config(extra)


def server_bytes_for(
    layouts: Sequence[CacheLayout], shape: ServerShape, host: HostPlan, num_prompts: int
) -> int:
    """Host memory of a server that holds so many typical prompts, a round number.

    Args:
        layouts: of one rank of each pipeline stage.
        host: what another size of it holds.
    """
    wanted = host.bytes_per_prompt * num_prompts
    while True:
        server = rounded_up(wanted)
        settings = Settings(host_memory_bytes=server)
        with contextlib.suppress(ConfigError):  # not even a slab for each size of cell
            found = plan_host(
                layouts, settings, shape, host.prompt_tokens, host.num_sharing
            )
            if found.num_prompts >= num_prompts:
                return server
        wanted += wanted // _GROWTH + 1


def plan_host(
    layouts: Sequence[CacheLayout],
    settings: Settings,
    shape: ServerShape,
    prompt_tokens: int,
    num_sharing: int = 1,
    longest_tokens: int = TYPICAL_PROMPT_TOKENS,
) -> HostPlan:
    """Cut and count the memory of every rank.

    Args:
        layouts: of one rank of each pipeline stage.
        prompt_tokens: length of the typical prompt.
        num_sharing: consecutive ranks that share an arena.
        longest_tokens: that a request may have.

    Raises:
        ConfigError: the memory is too small for the model.
    """
    per_stage = shape.tensor_parallel
    ranks = [layout for layout in layouts for _ in range(per_stage)]
    geometry = cut_ranks(ranks, host_budget(settings), num_sharing)
    stages = tuple(
        capacity(layout, geometry.ranks[stage * per_stage], prompt_tokens)
        for stage, layout in enumerate(layouts)
    )
    held = server_layout(ranks[::num_sharing])
    whole = capacity(held, geometry.server, prompt_tokens)
    asked = asked_bytes(settings, geometry)
    return HostPlan(
        asked_bytes_by_stage=tuple(asked[::per_stage]),
        asked_bytes_per_server=_asked_bytes_per_server(settings, shape),
        num_sharing=num_sharing,
        arena_bytes_per_rank=max(stage.arena_bytes for stage in stages),
        arena_bytes_per_node=_fullest_node(geometry, shape),
        arena_bytes_per_server=whole.arena_bytes,
        arena_bytes_in_total=whole.arena_bytes * shape.data_parallel,
        unusable_share=_unusable_share(geometry, sum(asked)),
        stages=stages,
        num_prompts=whole.num_prompts,
        num_prompts_in_total=whole.num_prompts * shape.data_parallel,
        prompt_tokens=whole.prompt_tokens,
        num_chunks=whole.num_chunks,
        chunk_tokens_total=whole.chunk_tokens_total,
        num_checkpoints=whole.num_checkpoints,
        bytes_per_prompt=whole.prompt_bytes,
        log_lines=tuple(describe_server(ranks, geometry, settings, longest_tokens)),
    )


def _asked_bytes_per_server(settings: Settings, shape: ServerShape) -> int:
    budget = host_budget(settings)
    if budget.is_per_rank:
        return budget.num_bytes * shape.ranks_per_server
    return budget.num_bytes


def asked_bytes(settings: Settings, geometry: RanksGeometry) -> list[int]:
    """Each rank's share: what it was given, or its part of what all were given.

    Args:
        geometry: the cut of the memory.
    """
    ranks = geometry.ranks
    if geometry.are_even or settings.host_memory_bytes_per_rank is not None:
        return [rank_bytes(settings, len(ranks))] * len(ranks)
    total = settings.host_memory_bytes
    slabs = geometry.server.slab_bytes * geometry.num_sharing
    return [total * rank.slab_bytes // slabs for rank in ranks]


def _fullest_node(geometry: RanksGeometry, shape: ServerShape) -> int:
    """Bytes of the machine with most; each has ranks that follow each other."""
    sizes = [arena.arena_bytes for arena in geometry.arenas] * shape.data_parallel
    step = max(shape.ranks_per_node // geometry.num_sharing, 1)
    return max(sum(sizes[at : at + step]) for at in range(0, len(sizes), step))


def _unusable_share(geometry: RanksGeometry, asked_bytes: int) -> float:
    """Of memory that is asked for; 0 where ranks are even."""
    if geometry.are_even:
        return 0.0
    usable = geometry.server.arena_bytes * (1 - wasted_share(geometry.server))
    return 1 - usable / asked_bytes
