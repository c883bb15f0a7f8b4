"""One cell of the grid: what is tried, and playing a trace through it."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvcellar.config import Settings, settings_from_extra_config
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.coarse import coarse_layout, unit_tokens
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.device import DeviceCache
from kvcellar.replay.device_rows import DeviceRows
from kvcellar.replay.grid_misses import Reason, WatchedMemory
from kvcellar.replay.host import HostSide
from kvcellar.replay.outcome import Outcome
from kvcellar.replay.server import Server
from kvcellar.replay.trace import Trace

_NUM_SPARE_CELLS = 16
_NUM_OBJECTS_PER_COLLECTION = 50_000


@dataclass(frozen=True, slots=True)
class GridCell:
    """One configuration, and where it stands in the grid.

    Attributes:
        device_memory_bytes: KV cache memory of one GPU; 0 keeps nothing.
        host_memory_bytes: of the whole server; 0 for none.
        policy: eviction policy; None without host memory, as the next two.
        admission: what host memory takes; None where the user has not chosen.
        mode: eager or lazy.
        configuration: the same for one rank.
    """

    device_memory_bytes: int
    host_memory_bytes: int
    policy: str | None
    admission: str | None
    mode: str | None
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
    settings, layout = configuration.settings, configuration.layout
    unit = unit_tokens(layout, trace.block_tokens)
    rows = DeviceRows.of(layout, unit, configuration.limits.step_tokens)
    device = _device(configuration.num_device_rows, rows)
    kept = coarse_layout(configuration.host_layout or layout, unit)
    host = HostSide(kept, settings.host_memory_bytes, settings)
    memory = WatchedMemory(host, device, rows, trace.block_tokens, Outcome())
    memory.watch(host, on_request)
    server = Server(memory, configuration.costs, configuration.limits)
    with _rare_collections():
        outcome = server.run(trace)
    outcome.counters = host.counters()
    if device is not None:
        outcome.evicted_device_chunks = device.evicted_chunks
    hits = outcome.device_tokens + outcome.host_tokens
    outcome.saved_seconds = hits / configuration.costs.prefill_tokens_per_second
    return Played(outcome, memory.missed_tokens)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for cycles less often: a third of a replay would be spent on that."""
    before = gc.get_threshold()
    gc.set_threshold(_NUM_OBJECTS_PER_COLLECTION, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _device(num_rows: int | None, rows: DeviceRows) -> DeviceCache | None:
    if num_rows is None:
        return None
    usable = max(num_rows - rows.step, 0)
    return DeviceCache(usable, rows.chunk, rows.tail, has_windows=bool(rows.tail))
