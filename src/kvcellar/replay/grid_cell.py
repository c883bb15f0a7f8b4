"""One cell of the grid: what is tried, and playing a trace through it."""

from collections.abc import Callable
from dataclasses import dataclass

from kvcellar.config import Settings, settings_from_extra_config
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.coarse import coarse_layout, unit_tokens
from kvcellar.replay.configuration import (
    Configuration,
    make_memory,
    play_through,
)
from kvcellar.replay.grid_choice import Choice
from kvcellar.replay.grid_misses import Reason, WatchedMemory
from kvcellar.replay.outcome import Outcome
from kvcellar.replay.trace import Trace

_NUM_SPARE_CELLS = 16


@dataclass(frozen=True, slots=True)
class GridCell:
    """One configuration, and where it stands in the grid.

    Attributes:
        device_memory_bytes: KV cache memory of one GPU; 0 keeps nothing.
        host_memory_bytes: of the whole server; 0 for none.
        choice: how host memory is run.
        configuration: the same for one rank.
    """

    device_memory_bytes: int
    host_memory_bytes: int
    choice: Choice
    configuration: Configuration


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a cell.

    Attributes:
        missed_tokens: computed prompt tokens by reason.
    """

    outcome: Outcome
    missed_tokens: dict[Reason, int]


def no_host_settings(layout: CacheLayout, block_tokens: int) -> Settings:
    """Settings under which nothing is stored, so nothing is ever loaded."""
    coarse = coarse_layout(layout, unit_tokens(layout, block_tokens))
    sizes = [coarse.cell_bytes(position) for position in range(len(coarse.groups))]
    num_bytes = max(sizes) * len(sizes) * _NUM_SPARE_CELLS
    return settings_from_extra_config({"host_memory": num_bytes, "max_store_tokens": 0})


def play(
    trace: Trace, configuration: Configuration, on_request: Callable[[], None]
) -> Played:
    """``replay`` that also says why tokens were missed.

    Args:
        on_request: called for each request that is admitted.
    """
    memory = make_memory(trace, configuration, WatchedMemory)
    memory.watch(on_request)
    outcome = play_through(trace, configuration, memory)
    return Played(outcome, memory.missed_tokens)
