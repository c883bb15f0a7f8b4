"""The one table of metrics: name, meaning, kind. Docs and exporters read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, in Prometheus' conventions: base units, counters end ``_total``."""

    name: str
    documentation: str
    is_gauge: bool = False


_TABLE = (
    Metric("kvcellar_stored_bytes_total", "Bytes copied from device to host memory."),
    Metric("kvcellar_loaded_bytes_total", "Bytes copied from host memory to device."),
    Metric("kvcellar_store_seconds_total", "Time spent copying to host memory."),
    Metric("kvcellar_load_seconds_total", "Time spent copying to the device."),
    Metric("kvcellar_loaded_tokens_total", "Prompt tokens served from host memory."),
    Metric("kvcellar_stored_chunks_total", "Chunks handed to store jobs."),
    Metric("kvcellar_stored_checkpoints_total", "Checkpoints handed to store jobs."),
    Metric("kvcellar_evicted_chunks_total", "Chunks evicted to make room."),
    Metric("kvcellar_evicted_checkpoints_total", "Checkpoints evicted to make room."),
    Metric(
        "kvcellar_stores_without_room_total",
        "Chunks or checkpoints not stored because all of host memory was pinned.",
    ),
    Metric(
        "kvcellar_stores_without_block_total",
        "Chunks or checkpoints not stored because a device block had gone.",
    ),
    Metric("kvcellar_refused_loads_total", "Loads that could not be planned."),
    Metric(
        "kvcellar_lost_chunks_total",
        "Chunks whose device copy went before they were stored (lazy mode).",
    ),
    Metric(
        "kvcellar_overtaken_jobs_total",
        "Copies that a step had to wait for (lazy mode).",
    ),
    Metric("kvcellar_failed_jobs_total", "Copies that failed on a rank."),
    Metric("kvcellar_host_capacity_bytes", "Host memory of one rank.", is_gauge=True),
    Metric(
        "kvcellar_host_used_bytes",
        "Payload bytes held in host memory, one rank.",
        is_gauge=True,
    ),
    Metric(
        "kvcellar_host_claimed_bytes",
        "Host memory in slabs that hold something, one rank.",
        is_gauge=True,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
