"""What the planner has decided, as series of ``kvcellar.metrics``."""

from typing import Any

from kvcellar.core.cost import LoadChoice
from kvcellar.core.ledger import Ledger
from kvcellar.core.offloader import Offloader
from kvcellar.integrations.vllm.in_flight import InFlight
from kvcellar.integrations.vllm.jobs import Jobs
from kvcellar.integrations.vllm.stats import CellarStats
from kvcellar.metrics import SERIES, SOURCES, series
from kvcellar.reasons import MissReason
from kvcellar.transfer.jobs import Direction

_LOOK_UPS = series("kvcellar_lookup_seconds")
_LOAD_WAITS = series("kvcellar_load_wait_seconds")
_STORE_BLOCKS = series("kvcellar_store_blocks")
_DEVICE, _HOST, _COMPUTED = (
    series("kvcellar_prompt_tokens_total", source) for source in SOURCES
)
_MISSED = tuple((r, series("kvcellar_missed_tokens_total", r)) for r in MissReason)
_SERVED_BY = tuple(
    (source, series("kvcellar_requests_total", source))
    for source in ("host", "device", "nothing")
)
_CHUNKS = series("kvcellar_stores_total", "chunk")
_CHECKPOINTS = series("kvcellar_stores_total", "checkpoint")
_NO_ROOM = series("kvcellar_skipped_stores_total", "no_room")
_NO_BLOCK = series("kvcellar_skipped_stores_total", "no_block")
_LOST = series("kvcellar_skipped_stores_total", "lost")
_HELD = series("kvcellar_skipped_stores_total", "already_held")
_EVICTED_CHUNKS = series("kvcellar_evictions_total", "chunk")
_EVICTED_CHECKPOINTS = series("kvcellar_evictions_total", "checkpoint")
_CHOICES = {c: series("kvcellar_load_choices_total", c.value) for c in LoadChoice}
_IN_FLIGHT = {d: series("kvcellar_jobs_in_flight", d) for d in Direction}
_COPIES = tuple(
    (
        direction,
        series("kvcellar_in_flight_blocks", direction),
        series("kvcellar_in_flight_bytes", direction),
        series("kvcellar_transferred_blocks_total", direction),
    )
    for direction in (Direction.STORE, Direction.LOAD)
)


def read_planner(offloader: Offloader) -> dict[str, int]:
    """The planner's counters and gauges now."""
    core, index = offloader.counters, offloader.index
    return {
        "kvcellar_loaded_tokens_total": core.loaded_tokens,
        "kvcellar_refused_loads_total": core.refused_loads,
        _CHUNKS: core.stored_chunks,
        _CHECKPOINTS: core.stored_checkpoints,
        _NO_ROOM: core.stores_without_room,
        _NO_BLOCK: core.stores_without_block,
        _LOST: core.lost_chunks,
        _HELD: core.held_checkpoints,
        "kvcellar_unadmitted_requests_total": core.unadmitted_requests,
        _EVICTED_CHUNKS: index.counters.evicted_chunks,
        _EVICTED_CHECKPOINTS: index.counters.evicted_checkpoints,
        "kvcellar_unused_evictions_total": index.counters.unused_chunks,
        "kvcellar_borrowed_checkpoints_total": index.counters.borrowed_checkpoints,
        "kvcellar_host_capacity_bytes": offloader.slabs.geometry.arena_bytes,
        "kvcellar_host_used_bytes": offloader.slabs.used_bytes,
        "kvcellar_host_claimed_bytes": offloader.slabs.claimed_bytes,
        "kvcellar_host_chunks": len(index.nodes),
        "kvcellar_host_checkpoints": index.num_checkpoints,
        "kvcellar_pinned_chunks": index.num_pinned_chunks,
        _CHOICES[LoadChoice.LOAD]: core.chosen_loads,
        _CHOICES[LoadChoice.TOO_SHORT]: core.short_loads,
        _CHOICES[LoadChoice.TOO_CHEAP]: core.cheap_recomputes,
        "kvcellar_measured_load_bytes_per_second": round(offloader.cost.loaded.latest),
        "kvcellar_measured_prefill_tokens_per_second": round(
            offloader.cost.computed.latest
        ),
        "kvcellar_tenant_refusals_total": index.counters.over_share,
        "kvcellar_leased_bytes": index.leases.used_bytes,
        "kvcellar_refused_leases_total": index.leases.num_refused,
    }


def read_ledger(ledger: Ledger) -> dict[str, int]:
    """Where prompt tokens came from so far."""
    values = {
        _DEVICE: ledger.device_tokens,
        _HOST: ledger.host_tokens,
        _COMPUTED: ledger.computed_tokens,
    }
    for reason, key in _MISSED:
        values[key] = ledger.missed_tokens[reason]
    for source, key in _SERVED_BY:
        values[key] = ledger.num_requests[source]
    return values


def read_copies(in_flight: InFlight) -> dict[str, int]:
    """The counters and gauges of copies now."""
    values = {
        key: in_flight.by_direction[direction].num_jobs
        for direction, key in _IN_FLIGHT.items()
    }
    for direction, blocks, num_bytes, ended in _COPIES:
        traffic = in_flight.by_direction[direction]
        values[blocks] = traffic.num_blocks
        values[num_bytes] = traffic.num_bytes
        values[ended] = traffic.ended_blocks
    return values


def read_all(offloader: Offloader, jobs: Jobs) -> dict[str, int]:
    """Every counter and gauge of the planning half now, by series."""
    values = read_planner(offloader)
    values |= read_ledger(offloader.ledger)
    values |= read_copies(jobs.in_flight)
    values["kvcellar_overtaken_jobs_total"] = jobs.num_overtaken
    return values


class SchedulerCounts:
    """What has changed since the last step.

    The engine asks after every step in which anything happened, so series are compared
    part by part, and accounts are only read when there is a new one.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[str, int]] = {}
        self._num_accounts = -1
        self._look_ups: list[float] = []

    def look_up_took(self, seconds: float) -> None:
        """The engine has waited for a look-up."""
        self._look_ups.append(seconds)

    def since_last(
        self, offloader: Offloader, jobs: Jobs, num_bad_controls: int = 0
    ) -> CellarStats | None:
        """The differences and new samples; None when nothing changed."""
        changed = self._changes("planner", read_planner(offloader))
        num_accounts = sum(offloader.ledger.num_requests.values())
        if num_accounts != self._num_accounts:
            self._num_accounts = num_accounts
            changed |= self._changes("ledger", read_ledger(offloader.ledger))
        others = read_copies(jobs.in_flight)
        others["kvcellar_overtaken_jobs_total"] = jobs.num_overtaken
        others["kvcellar_bad_controls_total"] = num_bad_controls
        changed |= self._changes("others", others)
        changed |= self._take_samples(jobs.in_flight)
        return CellarStats(data=changed) if changed else None

    def _changes(self, part: str, now: dict[str, int]) -> dict[str, Any]:
        """Increases of counters and new values of gauges in one part of all series."""
        last = self._last.get(part, {})
        if now == last:
            return {}
        self._last[part] = now
        return {
            key: value if SERIES[key].is_gauge else value - last.get(key, 0)
            for key, value in now.items()
            if value != last.get(key)
        }

    def _take_samples(self, in_flight: InFlight) -> dict[str, list[float]]:
        look_ups, self._look_ups = self._look_ups, []
        taken = {
            _LOOK_UPS: look_ups,
            _LOAD_WAITS: in_flight.take_load_waits(),
            _STORE_BLOCKS: [float(n) for n in in_flight.take_store_blocks()],
        }
        return {key: found for key, found in taken.items() if found}
