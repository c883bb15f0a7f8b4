"""The one table of metrics: name, meaning, kind, labels. Docs and exporters read it.

Prometheus' conventions: base units in the name, counters end ``_total``, labels only
from closed sets. A metric has at most one label of its own; the engine's come on top.
"""

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from kvcellar.reasons import MissReason


class MetricKind(enum.StrEnum):
    """How a metric's numbers behave."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        label: its own label; empty for none.
        values: every value that the label may have.
        buckets: upper bounds of a histogram's buckets, ascending, without infinity.
        native: what vLLM's own connectors export of the same meaning, if anything.
    """

    name: str
    documentation: str
    kind: MetricKind = MetricKind.COUNTER
    label: str = ""
    values: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    native: tuple[str, ...] = ()

    @property
    def is_gauge(self) -> bool:
        """Whether the last value counts, not the sum."""
        return self.kind is MetricKind.GAUGE

    def series(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Key and label values of each of its series."""
        if not self.label:
            yield self.name, ()
        for value in self.values:
            yield f'{self.name}{{{self.label}="{value}"}}', (value,)

    def exported_names(self) -> tuple[str, ...]:
        """The names under which Prometheus stores it."""
        if self.kind is MetricKind.HISTOGRAM:
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


DIRECTIONS = ("store", "load", "move")
KINDS = ("chunk", "checkpoint")
SOURCES = ("device", "host", "computed")
SKIP_REASONS = ("no_room", "no_block", "lost", "already_held")

_SIZE_BUCKETS = tuple(float(4**power) for power in range(7, 17))  # 16 KiB to 4 GiB
_TRANSFER_BUCKETS = (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0, 5.0, 10.0)
_LOOKUP_BUCKETS = (1e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.1)

_GAUGE, _HISTOGRAM = MetricKind.GAUGE, MetricKind.HISTOGRAM

INFO = "kvcellar_info"
"""Always 1; what is set is in its labels. Its values are open, unlike all others'."""
INFO_LABELS = ("version", "mode", "eviction_policy", "admission")

_TABLE = (
    # -- what became of prompts
    Metric(
        "kvcellar_prompt_tokens_total",
        "Prompt tokens of requests that began to run, by where they came from; the "
        "sources add up to the prompts' lengths.",
        label="source",
        values=SOURCES,
        native=("vllm:kv_offload_tiering_chunk_hits",),
    ),
    Metric(
        "kvcellar_missed_tokens_total",
        "Prompt tokens that were computed, by why; the reasons add up to "
        'kvcellar_prompt_tokens_total{source="computed"}.',
        label="reason",
        values=tuple(MissReason),
        native=("vllm:kv_offload_tiering_chunk_queries",),
    ),
    Metric(
        "kvcellar_requests_total",
        "Requests that began to run, by the furthest source that served a part of "
        "their prompt.",
        label="served_by",
        values=("host", "device", "nothing"),
    ),
    Metric(
        "kvcellar_loaded_tokens_total",
        "Tokens that loads from host memory were started for.",
    ),
    Metric(
        "kvcellar_refused_loads_total",
        "Loads that the engine wanted and that could not be planned.",
    ),
    Metric(
        "kvcellar_lookup_seconds",
        "Time of one look-up, as the engine waits for it.",
        _HISTOGRAM,
        buckets=_LOOKUP_BUCKETS,
        native=("vllm:kv_offload_lookup_sync_delay_seconds",),
    ),
    Metric(
        "kvcellar_load_wait_seconds",
        "Time from the decision to load until the request may run.",
        _HISTOGRAM,
        buckets=_TRANSFER_BUCKETS,
        native=("vllm:kv_offload_lookup_async_delay_seconds",),
    ),
    # -- copies
    Metric(
        "kvcellar_transfer_bytes",
        "Bytes of one copy job of one rank; a move stays inside host memory.",
        _HISTOGRAM,
        label="direction",
        values=DIRECTIONS,
        buckets=_SIZE_BUCKETS,
        native=(
            "vllm:kv_offload_load_bytes",
            "vllm:kv_offload_load_size",
            "vllm:kv_offload_store_bytes",
            "vllm:kv_offload_store_size",
            "vllm:kv_offload_total_bytes",
            "vllm:kv_offload_size",
        ),
    ),
    Metric(
        "kvcellar_transfer_seconds",
        "Time of one copy job of one rank, without waiting for its turn.",
        _HISTOGRAM,
        label="direction",
        values=DIRECTIONS,
        buckets=_TRANSFER_BUCKETS,
        native=(
            "vllm:kv_offload_load_time",
            "vllm:kv_offload_store_time",
            "vllm:kv_offload_total_time",
        ),
    ),
    Metric(
        "kvcellar_transferred_blocks_total",
        "Blocks of all groups in copy jobs that ended well; each counts once.",
        label="direction",
        values=("store", "load"),
        native=("vllm:simple_kv_offload_load_blocks_total",),
    ),
    Metric(
        "kvcellar_failed_jobs_total",
        "Copy jobs that failed, on any rank.",
        label="direction",
        values=DIRECTIONS,
    ),
    Metric(
        "kvcellar_overtaken_jobs_total",
        "Copies that a step had to wait for (lazy mode).",
    ),
    Metric(
        "kvcellar_jobs_in_flight",
        "Copy jobs that have not ended.",
        _GAUGE,
        label="direction",
        values=DIRECTIONS,
    ),
    Metric(
        "kvcellar_in_flight_bytes",
        "Payload bytes of the copy jobs that have not ended, all ranks.",
        _GAUGE,
        label="direction",
        values=("store", "load"),
        native=(
            "vllm:kv_offload_cpu_cache_usage_perc",
            "vllm:kv_offload_cpu_cache_write_usage_perc",
            "vllm:kv_offload_cpu_cache_read_usage_perc",
        ),
    ),
    Metric(
        "kvcellar_in_flight_blocks",
        "Blocks of all groups in the copy jobs that have not ended; each once.",
        _GAUGE,
        label="direction",
        values=("store", "load"),
        native=("vllm:simple_kv_offload_pending_store_blocks",),
    ),
    # -- what is stored, and what goes
    Metric(
        "kvcellar_stores_total",
        "Chunks and checkpoints handed to store jobs.",
        label="kind",
        values=KINDS,
        native=("vllm:simple_kv_offload_save_outcomes_total",),
    ),
    Metric(
        "kvcellar_store_blocks",
        "Blocks of all groups that one store job takes in host memory.",
        _HISTOGRAM,
        buckets=tuple(float(4**power) for power in range(10)),
        native=("vllm:kv_offload_cpu_allocation_size",),
    ),
    Metric(
        "kvcellar_skipped_stores_total",
        "Chunks and checkpoints that were not stored: all of host memory was pinned "
        "(no_room), a device block had gone (no_block), lazy mode came too late "
        "(lost), or it was there (already_held; checkpoints only).",
        label="reason",
        values=SKIP_REASONS,
        native=(
            "vllm:simple_kv_offload_save_outcomes_total",
            "vllm:kv_offload_allocation_failure",
        ),
    ),
    Metric(
        "kvcellar_unadmitted_requests_total",
        "Requests of which nothing or not all was stored, since no earlier prompt had "
        "the same tokens (admission: second-touch).",
        native=("vllm:kv_offload_stores_skipped",),
    ),
    Metric(
        "kvcellar_evictions_total",
        "Chunks and checkpoints evicted to make room.",
        label="kind",
        values=KINDS,
    ),
    Metric(
        "kvcellar_unused_evictions_total",
        "Chunks evicted that had never been loaded.",
    ),
    Metric(
        "kvcellar_borrowed_checkpoints_total",
        "Checkpoints made of blocks that neighbouring ones hold; nothing was copied.",
    ),
    # -- host memory
    Metric("kvcellar_host_capacity_bytes", "Host memory of all ranks.", _GAUGE),
    Metric(
        "kvcellar_host_used_bytes",
        "Payload bytes held in host memory, all ranks.",
        _GAUGE,
        native=("vllm:simple_kv_offload_used_blocks",),
    ),
    Metric(
        "kvcellar_host_claimed_bytes",
        "Host memory in slabs that hold something, all ranks.",
        _GAUGE,
    ),
    Metric("kvcellar_host_chunks", "Chunks held in host memory.", _GAUGE),
    Metric("kvcellar_host_checkpoints", "Checkpoints held in host memory.", _GAUGE),
    Metric(
        "kvcellar_pinned_chunks",
        "Chunks that running requests and copies hold; what lies before them in a "
        "prompt cannot be evicted either.",
        _GAUGE,
    ),
    Metric(
        "kvcellar_load_choices_total",
        "Requests that host memory could have served, by what became of them: loaded, "
        "too short (min_load_tokens), or too cheap to load, since recomputing was "
        "measured to be faster.",
        label="choice",
        values=("load", "too_short", "too_cheap"),
    ),
    Metric(
        "kvcellar_measured_load_bytes_per_second",
        "Bytes per second of loads, all ranks, as last measured; 0 before the first.",
        _GAUGE,
    ),
    Metric(
        "kvcellar_measured_prefill_tokens_per_second",
        "Tokens per second of steps that were mostly prefill, as last measured; 0 "
        "before the first.",
        _GAUGE,
    ),
    Metric(
        "kvcellar_leased_bytes",
        "Host memory, all ranks, that requests keep by a lease.",
        _GAUGE,
    ),
    Metric(
        "kvcellar_refused_leases_total",
        "Leases that were not given, since they would have gone beyond lease_share.",
    ),
    Metric(
        "kvcellar_tenant_refusals_total",
        "Chunks or checkpoints not stored since a tenant's share was full of what its "
        "running requests and leases hold.",
    ),
    Metric(
        "kvcellar_bad_controls_total",
        "Controls in kv_transfer_params that could not be read, and were left out.",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}

SERIES: dict[str, Metric] = {
    key: metric for metric in _TABLE for key, _ in metric.series()
}
"""Every series by its key, such as ``kvcellar_evictions_total{kind="chunk"}``."""


def series(name: str, value: str = "") -> str:
    """The key of one series.

    Raises:
        KeyError: there is no such metric, or its label never has that value.
    """
    metric = METRICS[name]
    key = f'{name}{{{metric.label}="{value}"}}' if value else name
    if key not in SERIES:
        raise KeyError(key)
    return key


NOT_EXPORTED: dict[str, str] = {
    "vllm:simple_kv_offload_info": f"`{INFO}`, and `kvcellar_host_capacity_bytes`",
    "vllm:kv_offload_tiering_*": "the figures of tiers below host memory come with "
    "those tiers",
}
"""What vLLM's connectors export and no metric above stands for, and what does."""
