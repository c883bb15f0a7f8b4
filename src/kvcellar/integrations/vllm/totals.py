"""What a live view works its rates out of, and what is under way, in plain types."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvcellar.metrics import series

if TYPE_CHECKING:
    from kvcellar.core.offloader import Offloader
    from kvcellar.integrations.vllm.jobs import Jobs

_COUNTED = {
    "prompt_tokens_device": series("kvcellar_prompt_tokens_total", "device"),
    "prompt_tokens_host": series("kvcellar_prompt_tokens_total", "host"),
    "prompt_tokens_computed": series("kvcellar_prompt_tokens_total", "computed"),
    "stored_chunks": series("kvcellar_stores_total", "chunk"),
    "stored_checkpoints": series("kvcellar_stores_total", "checkpoint"),
    "evicted_chunks": series("kvcellar_evictions_total", "chunk"),
    "evicted_checkpoints": series("kvcellar_evictions_total", "checkpoint"),
    "unused_chunks": "kvcellar_unused_evictions_total",
    "stores_without_room": series("kvcellar_skipped_stores_total", "no_room"),
    "chosen_loads": series("kvcellar_load_choices_total", "load"),
    "short_loads": series("kvcellar_load_choices_total", "too_short"),
    "cheap_recomputes": series("kvcellar_load_choices_total", "too_cheap"),
}


def read_totals(
    counters: Mapping[str, int], offloader: "Offloader", jobs: "Jobs"
) -> dict[str, float]:
    """Growing numbers since start, by short names; reasons without a token left out.

    Args:
        counters: every counter of the planning half, by series.
        offloader: the planner.
        jobs: its jobs in flight.
    """
    totals: dict[str, float] = {name: counters[key] for name, key in _COUNTED.items()}
    ledger = offloader.ledger
    totals["requests"] = sum(ledger.num_requests.values())
    for source, count in ledger.num_requests.items():
        totals[f"requests_{source}"] = count
    for reason, tokens in ledger.missed_tokens.items():
        if tokens:
            totals[f"missed_tokens_{reason.value}"] = tokens
    for direction, traffic in jobs.in_flight.by_direction.items():
        totals[f"{direction.value}_bytes"] = traffic.ended_bytes
        totals[f"{direction.value}_jobs"] = traffic.num_ended
        totals[f"{direction.value}_seconds"] = traffic.ended_seconds
        totals[f"failed_{direction.value}_jobs"] = traffic.num_failed
    return totals


def copies_state(jobs: "Jobs") -> dict[str, Any]:
    """Copies under way by direction, and what was copied since start."""
    return {
        direction.value: {
            "jobs": traffic.num_jobs,
            "in_flight_bytes": traffic.num_bytes,
            "copied_bytes": traffic.ended_bytes,
            "ended_jobs": traffic.num_ended,
            "failed_jobs": traffic.num_failed,
        }
        for direction, traffic in jobs.in_flight.by_direction.items()
    }


def device_state(jobs: "Jobs") -> dict[str, int]:
    """The engine's own block pool; empty until it is bound."""
    blocks = jobs.device_blocks
    if blocks is None:
        return {}
    return {"blocks": blocks.num_blocks, "free_blocks": blocks.num_free}
