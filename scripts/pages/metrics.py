"""docs/metrics.md: the table in ``kvcellar.metrics``."""

from collections.abc import Iterator

from kvcellar.doctor.checks.misses import REMEDIES
from kvcellar.metrics import INFO, INFO_LABELS, METRICS, NOT_EXPORTED, Metric
from kvcellar.reasons import MEANINGS, MissReason
from pages.markdown import origin, table

_HEAD = (
    "# Metrics",
    "",
    origin("the table in `src/kvcellar/metrics.py`"),
    "",
    "They appear on vLLM's own `/metrics`, beside vLLM's, with vLLM's labels "
    "(`model_name`, `engine`) and at most one more.",
    "Bytes and blocks are those of one rank where it says so; copies are counted on "
    "every rank. With several API servers",
    "(`--api-server-count`) the numbers are those of the whole server. "
    "[A Grafana page](../dashboards/grafana.json) draws them",
    "in Grafana 10 or newer, and [alert rules](../dashboards/alerts.yml) for "
    "Prometheus watch them ([how](operate.md#dashboard-and-alerts)).",
    "",
)


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            *_HEAD,
            *table(("metric", "kind", "label", "meaning"), _rows()),
            "",
            "## Why tokens were computed",
            "",
            "Every prompt token of a request that begins to run is counted once: as "
            '`source="device"`, `source="host"` or `source="computed"`',
            "in `kvcellar_prompt_tokens_total`, and each computed one under one reason "
            "in `kvcellar_missed_tokens_total`. What to do is what",
            "`kvcellar doctor --server URL` says of a reason that costs 5 % or more.",
            "",
            *table(
                ("`reason`", "what it says of the tokens", "what to do"),
                ((f"`{r}`", text, _remedy(r)) for r, text in MEANINGS.items()),
            ),
            "",
            "## Beside vLLM's own connectors",
            "",
            "What the OffloadingConnector and the SimpleCPUOffloadConnector of vLLM "
            "0.32 export, and where it is found here.",
            "",
            *table(("vLLM's connectors", "here"), _twins()),
            "",
        )
    )


def _rows() -> Iterator[tuple[str, ...]]:
    for metric in METRICS.values():
        yield f"`{metric.name}`", metric.kind, _label(metric), metric.documentation
    labels = ", ".join(f"`{label}`" for label in INFO_LABELS)
    yield f"`{INFO}`", "gauge", labels, "Always 1; the settings are in the labels."


def _remedy(reason: MissReason) -> str:
    """What the doctor says; a dash where it must be so or passes by itself."""
    _, remedy = REMEDIES.get(reason, (False, "-"))
    return remedy


def _label(metric: Metric) -> str:
    if not metric.label:
        return "none"
    if metric.values == tuple(MEANINGS):
        return f"`{metric.label}`: see below"
    return f"`{metric.label}`: {', '.join(metric.values)}"


def _twins() -> Iterator[tuple[str, str]]:
    twins: dict[str, list[str]] = {}
    for metric in METRICS.values():
        for name in metric.native:
            twins.setdefault(name, []).append(f"`{metric.name}`")
    for name in sorted(twins):
        yield f"`{name}`", ", ".join(twins[name])
    for name, text in NOT_EXPORTED.items():
        yield f"`{name}`", text
