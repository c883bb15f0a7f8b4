"""Counters on vLLM's own ``/metrics``: one table, filled by both halves.

Each half keeps plain integers and hands over what changed since the last step; vLLM
adds the ranks up and carries the sum to the process that exports it.
"""

from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter, Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from kvcellar.core.offloader import Offloader
from kvcellar.metrics import METRICS, Metric
from kvcellar.transfer.jobs import Direction, JobResult


class CellarStats(KVConnectorStats):
    """Metric name to what was added since the last step (a gauge: its value)."""

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> "CellarStats":
        """Add another half's or rank's numbers."""
        for name, value in other.data.items():
            if METRICS[name].is_gauge:
                self.data[name] = value
            else:
                self.data[name] = self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """The numbers for vLLM's periodic log line."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


@dataclass(slots=True)
class WorkerCounts:
    """What one rank has copied since the last step."""

    stats: CellarStats | None = None

    def count(self, result: JobResult) -> None:
        """Add one ended job."""
        if result.direction is Direction.MOVE:
            return
        if self.stats is None:
            self.stats = CellarStats()
        done = "stored" if result.direction is Direction.STORE else "loaded"
        data = self.stats.data
        for name, value in (
            (f"kvcellar_{done}_bytes_total", result.num_bytes),
            (f"kvcellar_{result.direction.value}_seconds_total", result.seconds),
            ("kvcellar_failed_jobs_total", int(result.error is not None)),
        ):
            data[name] = data.get(name, 0) + value

    def take(self) -> CellarStats | None:
        """Hand over and start again."""
        taken, self.stats = self.stats, None
        return taken


class SchedulerCounts:
    """What the planner has decided since the last step."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def since_last(
        self, offloader: Offloader, num_overtaken: int
    ) -> CellarStats | None:
        """The differences; None when nothing changed."""
        now = self._read(offloader)
        now["kvcellar_overtaken_jobs_total"] = num_overtaken
        if now == self._last:
            return None
        changed = {
            name: value if METRICS[name].is_gauge else value - self._last.get(name, 0)
            for name, value in now.items()
            if value != self._last.get(name)
        }
        self._last = now
        return CellarStats(data=changed)

    @staticmethod
    def _read(offloader: Offloader) -> dict[str, int]:
        core, index = offloader.counters, offloader.index.counters
        return {
            "kvcellar_loaded_tokens_total": core.loaded_tokens,
            "kvcellar_stored_chunks_total": core.stored_chunks,
            "kvcellar_stored_checkpoints_total": core.stored_checkpoints,
            "kvcellar_evicted_chunks_total": index.evicted_chunks,
            "kvcellar_evicted_checkpoints_total": index.evicted_checkpoints,
            "kvcellar_stores_without_room_total": core.stores_without_room,
            "kvcellar_stores_without_block_total": core.stores_without_block,
            "kvcellar_refused_loads_total": core.refused_loads,
            "kvcellar_lost_chunks_total": core.lost_chunks,
            "kvcellar_host_capacity_bytes": offloader.slabs.geometry.arena_bytes,
            "kvcellar_host_used_bytes": offloader.slabs.used_bytes,
            "kvcellar_host_claimed_bytes": offloader.slabs.claimed_bytes,
        }


class CellarPromMetrics(KVConnectorPromMetrics):
    """kvcellar's metrics, labelled by engine as vLLM's own are."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics = {
            name: self._make(metric_types, labelnames, metric)
            for name, metric in METRICS.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add one step's numbers."""
        for name, value in transfer_stats_data.items():
            series = self._metrics[name][engine_idx]
            if METRICS[name].is_gauge:
                series.set(value)
            else:
                series.inc(value)

    def _make(
        self, metric_types: dict[Any, Any], labelnames: list[str], metric: Metric
    ) -> dict[int, Any]:
        """One series per engine, at 0 from the start."""
        base = metric_types[Gauge if metric.is_gauge else Counter]
        family = base(
            name=metric.name, documentation=metric.documentation, labelnames=labelnames
        )
        return {
            engine: family.labels(*values)
            for engine, values in self.per_engine_labelvalues.items()
        }
