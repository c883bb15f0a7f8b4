"""Is host memory right-sized: how full it is and of what, and what leaves it."""

from kvcellar.monitor.numbers import count, percent, size
from kvcellar.monitor.top.bars import mark, stacked
from kvcellar.monitor.top.box import Panel
from kvcellar.monitor.top.spans import Line, Span, line
from kvcellar.monitor.view import HostMemory, View

_LABEL = 8


def memory_panel(view: View, width: int, height: int, *, has_colour: bool) -> Panel:
    """Bars of both memories, then what is in the host's; the last lines go first."""
    host = view.host
    lines = [
        _host_bar(host, width, has_colour=has_colour),
        _held("chunks", host.num_chunks, host.chunk_bytes, has_colour=has_colour),
        _held(
            "checkpoints",
            host.num_checkpoints,
            host.checkpoint_bytes,
            has_colour=has_colour,
        ),
        _flow(host),
        _device_bar(view, width, has_colour=has_colour),
        _kept(host),
    ]
    if host.num_tenants:
        lines.append(_tenants(host))
    return Panel(
        title="Host memory",
        figure=f"{percent(host.used_share)} of {size(host.capacity_bytes)}",
        lines=lines[:height],
    )


def _host_bar(host: HostMemory, width: int, *, has_colour: bool) -> Line:
    parts = [
        ("chunks", host.chunk_bytes),
        ("checkpoints", host.checkpoint_bytes),
        ("free", host.free_bytes),
    ]
    return line(
        f"{'host':<{_LABEL}}",
        *stacked(parts, max(width - _LABEL, 0), has_colour=has_colour),
    )


def _device_bar(view: View, width: int, *, has_colour: bool) -> Line:
    device = view.device
    words = f" {percent(device.held_share):>4} in use"
    parts = [
        ("device", device.num_held_blocks),
        ("free", device.num_blocks - device.num_held_blocks),
    ]
    room = max(width - _LABEL - len(words), 0)
    return line(
        f"{'device':<{_LABEL}}",
        *stacked(parts, room, has_colour=has_colour),
        Span(words, "dim"),
    )


def _held(kind: str, number: float, num_bytes: float, *, has_colour: bool) -> Line:
    return line(
        mark(kind, has_colour=has_colour),
        f" {kind:<12}",
        Span(f"{count(number):>8}", "value"),
        Span(f"  {size(num_bytes)}", "dim"),
    )


def _flow(host: HostMemory) -> Line:
    if not host.evicted_per_second:
        stored = f", {count(host.stored_per_second)}/s stored"
        return line("nothing evicted", Span(stored, "dim"))
    return line(
        "evicted ",
        Span(f"{count(host.evicted_per_second)}/s", "value"),
        Span(f", {percent(host.unused_share)} never loaded", "dim"),
    )


def _kept(host: HostMemory) -> Line:
    leased = f", {size(host.leased_bytes)} leased" if host.num_leases else ""
    return line(
        "pinned ",
        Span(count(host.num_pinned_chunks), "value"),
        Span(f" chunk{'' if host.num_pinned_chunks == 1 else 's'}{leased}", "dim"),
    )


def _tenants(host: HostMemory) -> Line:
    fullest = host.fullest
    most = f", {fullest[0]} at {percent(fullest[1])} of its share" if fullest else ""
    return line("tenants ", Span(count(host.num_tenants), "value"), Span(most, "dim"))
