"""The table of metrics on vLLM's own ``/metrics``."""

from typing import Any

from prometheus_client import Counter, Gauge, Histogram
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics

import kvcellar
from kvcellar.config import settings_from_extra_config
from kvcellar.metrics import INFO, INFO_LABELS, METRICS, SERIES, Metric, MetricKind

_BASES = {
    MetricKind.COUNTER: Counter,
    MetricKind.GAUGE: Gauge,
    MetricKind.HISTOGRAM: Histogram,
}
# With several API servers only one of them is told of a step. Counters and histograms
# are added up over the processes; of a gauge the value set last is the right one.
_LAST_WINS = {"multiprocess_mode": "mostrecent"}


class CellarPromMetrics(KVConnectorPromMetrics):
    """kvcellar's metrics, labelled by engine as vLLM's own are, at 0 from the start."""

    def __init__(
        self,
        vllm_config: Any,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._series: dict[str, dict[int, Any]] = {}
        for metric in METRICS.values():
            self._series |= self._make(metric_types, metric)
        self._set_info(vllm_config, metric_types)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Add one step's numbers.

        A series that is not known here is passed over: an engine of another version
        must not end the web server.
        """
        for key, value in transfer_stats_data.items():
            by_engine = self._series.get(key)
            if by_engine is None:
                continue
            child = by_engine[engine_idx]
            kind = SERIES[key].kind
            if kind is MetricKind.GAUGE:
                child.set(value)
            elif kind is MetricKind.COUNTER:
                child.inc(value)
            else:
                for sample in value:
                    child.observe(sample)

    def _make(
        self, metric_types: dict[Any, Any], metric: Metric
    ) -> dict[str, dict[int, Any]]:
        """A metric's series, each by engine."""
        options: dict[str, Any] = {}
        if metric.kind is MetricKind.GAUGE:
            options = _LAST_WINS
        elif metric.kind is MetricKind.HISTOGRAM:
            options = {"buckets": metric.buckets}
        own_label = [metric.label] if metric.label else []
        family = metric_types[_BASES[metric.kind]](
            name=metric.name,
            documentation=metric.documentation,
            labelnames=[*self._labelnames, *own_label],
            **options,
        )
        return {
            key: {
                engine: family.labels(*engine_values, *values)
                for engine, engine_values in self.per_engine_labelvalues.items()
            }
            for key, values in metric.series()
        }

    def _set_info(self, vllm_config: Any, metric_types: dict[Any, Any]) -> None:
        """What is set, as labels of a gauge that is always 1."""
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        settings = settings_from_extra_config(extra)
        family = metric_types[Gauge](
            name=INFO,
            documentation="Always 1; the settings are in the labels.",
            labelnames=[*self._labelnames, *INFO_LABELS],
            **_LAST_WINS,
        )
        values = (
            kvcellar.__version__,
            settings.mode,
            settings.eviction_policy,
            settings.admission,
        )
        for engine_values in self.per_engine_labelvalues.values():
            family.labels(*engine_values, *values).set(1)
