"""The share of prompt tokens that no order of stores and evictions can exceed.

A true upper bound for requests that come one after another, each ended before the next
(``kvcellar replay --no-time``), for kvcellar and for vLLM's own connectors alike, with
the same bytes of device and host memory used as one and all of the trace known:

* Where chunks suffice to resume it is exact: somebody who knew the future could do it.
* With windows or recurrent state it is the lower of two bounds: chunks alone, as if
  resuming took nothing else; and a price on memory, which charges for the checkpoint at
  the boundary that is resumed. Neither can be too low. The second is found by a search
  that stops early; on the traces in the documentation it ends 0.1 to 0.3 points above
  the exact value where that is known.

Requests that overlap, as in a replay with time, find less, since much is still being
computed or stored when it is asked for. In principle they might also find a little
more: what is being computed takes no room for its checkpoint yet. No replay has.
"""

from collections.abc import Callable, Sequence

from kvcellar.replay.coarse import unit_tokens
from kvcellar.replay.configuration import Configuration
from kvcellar.replay.device_rows import DeviceRows
from kvcellar.replay.grid_cell import GridCell
from kvcellar.replay.offline.descent import lowest_bound
from kvcellar.replay.offline.farthest import most_chunks_found
from kvcellar.replay.offline.prices import PricedUses
from kvcellar.replay.offline.sizes import least_sizes, room_of
from kvcellar.replay.offline.uses import uses_of
from kvcellar.replay.trace import Trace, TraceRequest


class OfflineBound:
    """The bound for one device and any size of host memory.

    Args:
        configuration: device, layouts and limits; its host memory is not read.
    """

    def __init__(self, trace: Trace, configuration: Configuration) -> None:
        self._configuration = configuration
        self._unit = unit_tokens(configuration.layout, trace.block_tokens)
        layout = configuration.host_layout or configuration.layout
        self._sizes = least_sizes(layout, self._unit, trace.block_tokens)
        self._uses = uses_of(trace, self._unit, _served_by(configuration, self._unit))

    def hit_ratio(self, host_bytes: int) -> float:
        """Share of the served prompts' tokens that at most can be found.

        Args:
            host_bytes: host memory of one rank; 0 for none.
        """
        uses, sizes = self._uses, self._sizes
        room = room_of(self._configuration, host_bytes, sizes, self._unit)
        num_tokens = float(most_chunks_found(uses, room.num_chunks) * self._unit)
        if num_tokens and sizes.tail_bytes:
            priced = PricedUses(uses, sizes, self._unit, room.num_bytes)
            num_tokens = min(num_tokens, lowest_bound(priced, uses.num_requests))
        return num_tokens / uses.prompt_tokens if num_tokens else 0.0


def _served_by(
    configuration: Configuration, unit: int
) -> Callable[[TraceRequest], bool]:
    """Which requests fit onto the device at all."""
    num_rows = configuration.num_device_rows
    if num_rows is None:
        return lambda _: True
    step_tokens = configuration.limits.step_tokens
    rows = DeviceRows.of(configuration.layout, unit, step_tokens)
    num_usable = rows.usable(num_rows)
    return lambda request: rows.fits(request.num_tokens, num_usable)


def offline_hit_ratios(trace: Trace, cells: Sequence[GridCell]) -> list[float]:
    """The bound of each cell; worked out once for each pair of memory sizes."""
    by_device: dict[int, OfflineBound] = {}
    by_sizes: dict[tuple[int, int], float] = {}
    ratios = []
    for cell in cells:
        device, host = cell.device_memory_bytes, cell.host_memory_bytes
        if device not in by_device:
            by_device[device] = OfflineBound(trace, cell.configuration)
        if (device, host) not in by_sizes:
            rank_bytes = cell.configuration.settings.host_memory_bytes if host else 0
            by_sizes[device, host] = by_device[device].hit_ratio(rank_bytes)
        ratios.append(by_sizes[device, host])
    return ratios
