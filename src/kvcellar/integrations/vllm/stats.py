"""What each half counts between two steps, on its way to vLLM's ``/metrics``.

Each half keeps plain numbers and hands over what changed since the last step; vLLM
adds the ranks up and carries the sum to the process that exports it. A key is a series
of ``kvcellar.metrics``; its value is an increase, a gauge's value, or a histogram's new
samples.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats

from kvcellar.metrics import DIRECTIONS, SERIES, MetricKind, series
from kvcellar.transfer.jobs import JobResult

_BYTES = {d: series("kvcellar_transfer_bytes", d) for d in DIRECTIONS}
_SECONDS = {d: series("kvcellar_transfer_seconds", d) for d in DIRECTIONS}
_FAILED = {d: series("kvcellar_failed_jobs_total", d) for d in DIRECTIONS}

_LOGGED = {
    "device_tokens": series("kvcellar_prompt_tokens_total", "device"),
    "host_tokens": series("kvcellar_prompt_tokens_total", "host"),
    "computed_tokens": series("kvcellar_prompt_tokens_total", "computed"),
    "stored_bytes": _BYTES["store"],
    "loaded_bytes": _BYTES["load"],
    "evicted_chunks": series("kvcellar_evictions_total", "chunk"),
    "failed_stores": _FAILED["store"],
    "failed_loads": _FAILED["load"],
    "host_used_bytes": "kvcellar_host_used_bytes",
}


class CellarStats(KVConnectorStats):
    """Series to what was added since the last step."""

    def reset(self) -> None:
        """Forget everything."""
        self.data: dict[str, Any] = {}

    def increase(self, key: str, amount: float = 1) -> None:
        """Add to a counter."""
        self.data[key] = self.data.get(key, 0) + amount

    def observe(self, key: str, sample: float) -> None:
        """Add one sample to a histogram."""
        self.data.setdefault(key, []).append(sample)

    def aggregate(self, other: KVConnectorStats) -> "CellarStats":
        """Add another half's or rank's numbers."""
        for key, value in other.data.items():
            if key not in SERIES:  # from an engine of another version
                continue
            kind = SERIES[key].kind
            if kind is MetricKind.GAUGE:
                self.data[key] = value
            elif kind is MetricKind.HISTOGRAM:
                self.data.setdefault(key, []).extend(value)
            else:
                self.increase(key, value)
        return self

    def reduce(self) -> dict[str, int | float]:
        """The few numbers that vLLM's periodic log line shows; zeros are left out."""
        reduced: dict[str, int | float] = {}
        for name, key in _LOGGED.items():
            value = self.data.get(key, 0)
            total = sum(value) if isinstance(value, list) else value
            if total:
                reduced[name] = total
        return reduced

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class WorkerCounts:
    """What one rank has copied since the last step."""

    def __init__(self) -> None:
        self._stats: CellarStats | None = None

    def count(self, result: JobResult) -> None:
        """Add one ended job."""
        if self._stats is None:
            self._stats = CellarStats()
        direction = result.direction.value
        if result.error is not None:
            self._stats.increase(_FAILED[direction])
            return
        if not result.num_bytes:  # of a job whose cells are shared, others did all
            return
        self._stats.observe(_BYTES[direction], result.num_bytes)
        self._stats.observe(_SECONDS[direction], result.seconds)

    def take(self) -> CellarStats | None:
        """Hand over and start again."""
        taken, self._stats = self._stats, None
        return taken
