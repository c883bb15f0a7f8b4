"""One cell of a replay's grid, and how it is built and run."""

from dataclasses import dataclass, field

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


def replay(trace: Trace, configuration: Configuration) -> Outcome:
    """Play a trace through one configuration; the same input gives the same result."""
    layout = configuration.layout
    unit = unit_tokens(layout, trace.block_tokens)
    rows = DeviceRows.of(layout, unit, configuration.limits.step_tokens)
    device = None
    if configuration.num_device_rows is not None:
        device = DeviceCache(
            max(configuration.num_device_rows - rows.step, 0),
            rows.chunk,
            rows.tail,
            has_windows=bool(rows.tail),
        )
    host = _host(configuration, unit, rows)
    memory = Memory(host, device, rows, trace.block_tokens, Outcome())
    outcome = Server(memory, configuration.costs, configuration.limits).run(trace)
    outcome.counters = host.counters()
    if device is not None:
        outcome.evicted_device_chunks = device.evicted_chunks
    return outcome


def _host(configuration: Configuration, unit: int, rows: DeviceRows) -> Host:
    settings = configuration.settings
    num_bytes = settings.host_memory_bytes
    if configuration.system != "kvcellar":
        coarse = coarse_layout(configuration.layout, unit)
        row_bytes = configuration.row_bytes
        return NativeHost(coarse, rows, row_bytes, num_bytes, configuration.system)
    kept = configuration.host_layout or configuration.layout
    return HostSide(coarse_layout(kept, unit), num_bytes, settings)
