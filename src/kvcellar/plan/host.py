"""What host memory holds, by the code that a starting server runs.

The lines of its log are made here by the same functions, so that both say the same.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvcellar.config import (
    Settings,
    describe_host_memory,
    rank_bytes,
    settings_from_extra_config,
)
from kvcellar.errors import ConfigError
from kvcellar.index.capacity import Capacity, capacity, describe
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry
from kvcellar.plan.shape import ServerShape
from kvcellar.plan.words import rounded_up

_WHOLE_KEYS = ("host_memory", "cpu_bytes_to_use")
_GROWTH = 50  # slabs cost a little more than their payload: try 2 % more each time
_RANK_KEYS = ("host_memory_per_rank", "cpu_bytes_to_use_per_rank")


@dataclass(frozen=True, slots=True)
class HostPlan:
    """Host memory of one server; each "fits" figure is for an otherwise empty one.

    Attributes:
        asked_bytes_per_rank: one rank's share of what was asked for.
        arena_bytes_per_rank: what each rank maps: whole slabs of it.
        arena_bytes_per_node: of all ranks on one machine, all replicas'.
        arena_bytes_per_server: of one replica's ranks.
        arena_bytes_in_total: of all replicas.
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

    asked_bytes_per_rank: int
    arena_bytes_per_rank: int
    arena_bytes_per_node: int
    arena_bytes_per_server: int
    arena_bytes_in_total: int
    stages: tuple[Capacity, ...]
    num_prompts: int
    num_prompts_in_total: int
    prompt_tokens: int
    num_chunks: int
    chunk_tokens_total: int
    num_checkpoints: int
    bytes_per_prompt: int
    log_lines: tuple[str, ...]


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
            found = plan_host(layouts, settings, shape, host.prompt_tokens)
            if found.num_prompts >= num_prompts:
                return server
        wanted += wanted // _GROWTH + 1


def plan_host(
    layouts: Sequence[CacheLayout],
    settings: Settings,
    shape: ServerShape,
    prompt_tokens: int,
) -> HostPlan:
    """Cut and count the memory of every rank.

    Args:
        layouts: of one rank of each pipeline stage.
        prompt_tokens: length of the typical prompt.

    Raises:
        ConfigError: the memory is too small for the model.
    """
    share = rank_bytes(settings, shape.ranks_per_server)
    cuts = [(layout, plan_geometry(layout, share)) for layout in layouts]
    stages = tuple(capacity(*cut, prompt_tokens) for cut in cuts)
    arena = max(stage.arena_bytes for stage in stages)
    num_prompts = min(stage.num_prompts for stage in stages)
    num_chunks = min(stage.num_chunks for stage in stages)
    said = describe_host_memory(settings, shape.ranks_per_server)
    return HostPlan(
        asked_bytes_per_rank=share,
        arena_bytes_per_rank=arena,
        arena_bytes_per_node=arena * shape.ranks_per_node,
        arena_bytes_per_server=arena * shape.ranks_per_server,
        arena_bytes_in_total=arena * shape.num_ranks,
        stages=stages,
        num_prompts=num_prompts,
        num_prompts_in_total=num_prompts * shape.data_parallel,
        prompt_tokens=stages[0].prompt_tokens,
        num_chunks=num_chunks,
        chunk_tokens_total=num_chunks * stages[0].chunk_tokens,
        num_checkpoints=min(stage.num_checkpoints for stage in stages),
        bytes_per_prompt=max(stage.prompt_bytes for stage in stages)
        * shape.ranks_per_server,
        log_lines=(said, *describe(capacity(*cuts[0])).splitlines()),
    )
