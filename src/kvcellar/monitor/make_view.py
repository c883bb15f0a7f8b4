"""From the histories of the engines to one view of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from kvcellar.monitor.engine_answer import clean
from kvcellar.monitor.follow import Followed, Follower
from kvcellar.monitor.history import Growth
from kvcellar.monitor.make_rows import copies, engine_rows, misses, prefixes
from kvcellar.monitor.remarks import remarks
from kvcellar.monitor.view import Device, HostMemory, Loading, Server, Sources, View

_SLOT_SECONDS = (1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0)
_TOKENS = tuple(f"prompt_tokens_{source}" for source in ("device", "host", "computed"))


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be shown.

    Attributes:
        window_seconds: None for all since start.
        num_slots: of the picture over time.
        interval_seconds: between two answers; no slot is shorter.
        engine: only this one; None for all together.
    """

    window_seconds: float | None = 60.0
    num_slots: int = 60
    interval_seconds: float = 1.0
    engine: int | None = None


def make_view(
    follower: Follower, wish: Wish, now: float, *, is_paused: bool = False
) -> View:
    """The view at a moment; some engine must have answered before.

    Args:
        follower: of the server.
        wish: what is to be shown.
        now: on the clock that the follower is told of.
        is_paused: whether nobody asks, so that no answer is missed.
    """
    shown = [
        followed
        for number, followed in sorted(follower.engines.items())
        if wish.engine is None or number == wish.engine
    ]
    grown = [one.history.window(wish.window_seconds) for one in shown]
    slot_seconds = _slot_seconds(wish)
    sources = _sources(grown)
    view = View(
        server=_server(shown, wish, len(follower.engines)),
        silence="" if is_paused else follower.silence(now, wish.interval_seconds),
        window_seconds=max(one.seconds for one in grown),
        wished_seconds=wish.window_seconds,
        sources=sources,
        tokens_per_second=sum(_rate(grown, name) for name in _TOKENS),
        requests_per_second=_rate(grown, "requests"),
        slots=_slots(shown, wish.num_slots, slot_seconds),
        slot_seconds=slot_seconds,
        host=_host(shown, grown),
        device=_device(shown),
        copies=copies(shown, grown),
        loading=_loading(shown, grown, sources),
        misses=misses(grown),
        prefixes=prefixes(shown),
        engines=engine_rows(follower, wish.window_seconds),
    )
    return replace(view, remarks=remarks(view))


def _server(shown: Sequence[Followed], wish: Wish, num_engines: int) -> Server:
    first = shown[0].answer
    return Server(
        model=first.text("served_model") or PurePath(first.text("model")).name,
        setting=" ".join(
            name
            for name in (
                first.text("settings", "mode"),
                first.text("settings", "eviction_policy"),
            )
            if name
        ),
        uptime_seconds=min(one.history.latest.uptime_seconds for one in shown),
        engine=wish.engine,
        num_engines=num_engines,
    )


def _sources(grown: Sequence[Growth]) -> Sources:
    return Sources(*(sum(one.get(name) for one in grown) for name in _TOKENS))


def _rate(grown: Sequence[Growth], name: str) -> float:
    return sum(one.per_second(name) for one in grown)


def _slot_seconds(wish: Wish) -> float:
    """The shortest slot that lets the picture span the window."""
    least = max((wish.window_seconds or 0.0) / wish.num_slots, wish.interval_seconds)
    return next((s for s in _SLOT_SECONDS if s >= least), least)


def _slots(
    shown: Sequence[Followed], number: int, slot_seconds: float
) -> tuple[Sources | None, ...]:
    """Engines added up, slot by slot; each by its own clock."""
    by_engine = [one.history.slots(number, slot_seconds, _TOKENS) for one in shown]
    added: list[Sources | None] = []
    for column in zip(*by_engine, strict=True):
        known = [one for one in column if one is not None]
        values = (sum(one[name] for one in known) for name in _TOKENS)
        added.append(Sources(*values) if known else None)
    return tuple(added)


def _host(shown: Sequence[Followed], grown: Sequence[Growth]) -> HostMemory:
    def total(*path: str) -> float:
        return sum(one.answer.number(*path) for one in shown)

    used, chunk_bytes = total("tiers", "host", "used_bytes"), 0.0
    for one in shown:
        num_chunks = one.answer.number("tiers", "host", "chunks")
        chunk_bytes += num_chunks * one.answer.number("capacity", "chunk_bytes")
    chunk_bytes = min(chunk_bytes, used)
    evicted = sum(one.get("evicted_chunks") for one in grown)
    unused = sum(one.get("unused_chunks") for one in grown)
    return HostMemory(
        capacity_bytes=total("tiers", "host", "capacity_bytes"),
        chunk_bytes=chunk_bytes,
        checkpoint_bytes=used - chunk_bytes,
        num_chunks=total("tiers", "host", "chunks"),
        num_checkpoints=total("tiers", "host", "checkpoints"),
        num_pinned_chunks=total("tiers", "host", "pinned_chunks"),
        leased_bytes=total("tiers", "host", "leased_bytes"),
        num_leases=total("tiers", "host", "leases"),
        stored_per_second=_rate(grown, "stored_chunks"),
        evicted_per_second=_rate(grown, "evicted_chunks"),
        unused_share=unused / evicted if evicted else 0.0,
        num_tenants=total("tenants", "tenants"),
        fullest=_fullest_tenant(shown),
    )


def _fullest_tenant(shown: Sequence[Followed]) -> tuple[str, float] | None:
    """The one that fills most of its bound, in any engine."""
    found: list[tuple[float, str]] = []
    for one in shown:
        most_bytes = one.answer.number("tenants", "most_bytes")
        for row in one.answer.rows("tenants", "fullest"):
            used, name = row.get("used_bytes"), row.get("name")
            if most_bytes and isinstance(used, int) and isinstance(name, str):
                found.append((used / most_bytes, clean(name)))
    return (max(found)[1], max(found)[0]) if found else None


def _device(shown: Sequence[Followed]) -> Device:
    blocks = sum(one.answer.number("tiers", "device", "blocks") for one in shown)
    free = sum(one.answer.number("tiers", "device", "free_blocks") for one in shown)
    requests = sum(one.answer.number("num_requests") for one in shown)
    return Device(blocks, max(blocks - free, 0.0), requests)


def _loading(
    shown: Sequence[Followed], grown: Sequence[Growth], sources: Sources
) -> Loading:
    """Engines' measured rates are averaged: they run the same model."""

    def measured(name: str) -> float:
        found = [one.answer.number("counters", name) for one in shown]
        known = [value for value in found if value > 0]
        return sum(known) / len(known) if known else 0.0

    prefill = measured("kvcellar_measured_prefill_tokens_per_second")
    best_prefill = max((one.history.best_prefill for one in shown), default=0.0)
    return Loading(
        num_loaded=sum(one.get("chosen_loads") for one in grown),
        num_too_short=sum(one.get("short_loads") for one in grown),
        num_too_cheap=sum(one.get("cheap_recomputes") for one in grown),
        bytes_per_second=measured("kvcellar_measured_load_bytes_per_second"),
        prefill_tokens_per_second=prefill,
        saved_seconds=sources.host / best_prefill if best_prefill else None,
    )
