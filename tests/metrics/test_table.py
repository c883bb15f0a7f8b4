"""The table of metrics keeps Prometheus' conventions and has one page of its own."""

import re

import pytest
from pages import metrics as metrics_page

from kvcellar.metrics import METRICS, SERIES, MetricKind, series
from kvcellar.reasons import MEANINGS, MissReason

UNITS = (
    "_bytes",
    "_seconds",
    "_tokens",
    "_blocks",
    "_chunks",
    "_per_second",
    "_checkpoints",
)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_names_and_kinds_agree(metric):
    """Counters end in ``_total`` and nothing else does; the rest ends in its unit."""
    assert re.fullmatch(r"kvcellar_[a-z_]+", metric.name)
    is_counter = metric.kind is MetricKind.COUNTER
    assert metric.name.endswith("_total") == is_counter
    assert is_counter or metric.name.endswith((*UNITS, "_in_flight"))
    assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert bool(metric.label) == bool(metric.values)
    assert metric.documentation.endswith(".")


def test_series_are_the_tables_and_nothing_else():
    """A key is made of a known name and a known value, or refused."""
    assert "kvcellar_host_chunks" == series("kvcellar_host_chunks")
    assert series("kvcellar_stores_total", "chunk") in SERIES
    for name, value in (
        ("kvcellar_stores_total", "slab"),
        ("kvcellar_stores_total", ""),
        ("kvcellar_host_chunks", "chunk"),
        ("kvcellar_unknown", ""),
    ):
        with pytest.raises(KeyError):
            series(name, value)


def test_every_reason_has_a_meaning_and_a_series():
    """Whoever adds a reason must say what it means."""
    assert list(MissReason) == list(MEANINGS)
    for reason in MissReason:
        assert series("kvcellar_missed_tokens_total", reason) in SERIES


def test_the_page_names_every_metric():
    """Each metric has its row, and each of vLLM's twins its own."""
    page = metrics_page.page()
    for metric in METRICS.values():
        assert f"| `{metric.name}` | {metric.kind} |" in page
        for name in metric.native:
            assert f"| `{name}` |" in page
