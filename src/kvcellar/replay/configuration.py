"""One cell of a replay's grid, and how it is built and run."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from kvcellar.config import Settings
from kvcellar.layout.groups import CacheLayout
from kvcellar.replay.coarse import coarse_layout, unit_tokens
from kvcellar.replay.costs import NO_TIME, CostModel
from kvcellar.replay.device import DeviceCache
from kvcellar.replay.device_rows import DeviceRows
from kvcellar.replay.host import HostSide
from kvcellar.replay.host_base import Host
from kvcellar.replay.memory import Memory
from kvcellar.replay.native import NativeHost
from kvcellar.replay.outcome import Outcome
from kvcellar.replay.server import Server, ServerLimits
from kvcellar.replay.trace import Trace


@dataclass(frozen=True, slots=True)
class Configuration:
    """What is being tried.

    Attributes:
        layout: the model's, with its own blocks.
        num_device_rows: blocks of the device's pool; None for a device that keeps
            nothing.
        settings: kvcellar's, host memory included.
        host_layout: what host memory keeps of it, if that is less.
        system: ``"kvcellar"``, or one of vLLM's own connectors, ``"simple"`` or
            ``"offloading"``, of which only the size of host memory can be set.
        row_bytes: of one block in the engine's pool; what those two keep for each.
    """

    layout: CacheLayout
    num_device_rows: int | None
    settings: Settings
    costs: CostModel = NO_TIME
    limits: ServerLimits = field(default_factory=ServerLimits)
    host_layout: CacheLayout | None = None
    system: str = "kvcellar"
    row_bytes: int = 0


M = TypeVar("M", bound=Memory)


def replay(trace: Trace, configuration: Configuration) -> Outcome:
    """Play a trace through one configuration; the same input gives the same result."""
    memory = make_memory(trace, configuration, Memory)
    return play_through(trace, configuration, memory)


def make_memory(trace: Trace, configuration: Configuration, memory_type: type[M]) -> M:
    """The empty memories of a configuration.

    Args:
        memory_type: ``Memory``, or a kind of it that watches.
    """
    unit = unit_tokens(configuration.layout, trace.block_tokens)
    step_tokens = configuration.limits.step_tokens
    rows = DeviceRows.of(configuration.layout, unit, step_tokens)
    device = None
    if configuration.num_device_rows is not None:
        usable = rows.usable(configuration.num_device_rows)
        has_windows = bool(rows.tail)
        device = DeviceCache(usable, rows.chunk, rows.tail, has_windows=has_windows)
    host = _host(configuration, unit, rows)
    return memory_type(host, device, rows, trace.block_tokens, Outcome())


def play_through(trace: Trace, configuration: Configuration, memory: Memory) -> Outcome:
    """Play a trace through memories that are empty."""
    server = Server(memory, configuration.costs, configuration.limits)
    with _no_collections():
        outcome = server.run(trace)
    outcome.counters = memory.host.counters()
    if memory.device is not None:
        outcome.evicted_device_chunks = memory.device.evicted_chunks
    hits = outcome.device_tokens + outcome.host_tokens
    outcome.saved_seconds = hits / configuration.costs.prefill_tokens_per_second
    return outcome


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Look for no cycles, which costs up to a third of a replay: none are left behind.

    What is evicted has been untied from what it hung on, so it goes at once.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _host(configuration: Configuration, unit: int, rows: DeviceRows) -> Host:
    settings = configuration.settings
    num_bytes = settings.host_memory_bytes
    if configuration.system != "kvcellar":
        coarse = coarse_layout(configuration.layout, unit)
        row_bytes = configuration.row_bytes
        return NativeHost(coarse, rows, row_bytes, num_bytes, configuration.system)
    kept = configuration.host_layout or configuration.layout
    return HostSide(coarse_layout(kept, unit), num_bytes, settings)
