"""Writes docs/metrics.md from the table in ``kvcellar.metrics``.

.venv/bin/python scripts/metrics_page.py            write the page
.venv/bin/python scripts/metrics_page.py --check    fail if it is out of date
"""

import pathlib
import sys
from collections.abc import Iterator

from kvcellar.metrics import INFO, INFO_LABELS, METRICS, NOT_EXPORTED, Metric
from kvcellar.reasons import MEANINGS

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "metrics.md"

_HEAD = (
    "# Metrics",
    "",
    "Made from the table in `src/kvcellar/metrics.py` by `scripts/metrics_page.py`.",
    "",
    "They appear on vLLM's own `/metrics`, beside vLLM's, with vLLM's labels "
    "(`model_name`, `engine`) and at most one more.",
    "Bytes and blocks are those of one rank where it says so; copies are counted on "
    "every rank. With several API servers",
    "(`--api-server-count`) the numbers are those of the whole server. "
    "`dashboards/grafana.json` draws them in Grafana 10 or newer",
    "(made by `scripts/grafana_dashboard.py`), and `dashboards/alerts.yml` has alert "
    "rules for Prometheus.",
    "",
)


def page() -> str:
    """The whole page."""
    return "\n".join(
        (
            *_HEAD,
            *_table(("metric", "kind", "label", "meaning"), _rows()),
            "",
            "## Why tokens were computed",
            "",
            "Every prompt token of a request that begins to run is counted once: as "
            '`source="device"`, `source="host"` or `source="computed"`',
            "in `kvcellar_prompt_tokens_total`, and each computed one under one reason "
            "in `kvcellar_missed_tokens_total`.",
            "",
            *_table(
                ("`reason`", "what it says of the tokens"),
                ((f"`{reason}`", text) for reason, text in MEANINGS.items()),
            ),
            "",
            "## Beside vLLM's own connectors",
            "",
            "What the OffloadingConnector and the SimpleCPUOffloadConnector of vLLM "
            "0.32 export, and where it is found here.",
            "",
            *_table(("vLLM's connectors", "here"), _twins()),
            "",
        )
    )


def _rows() -> Iterator[tuple[str, ...]]:
    for metric in METRICS.values():
        yield f"`{metric.name}`", metric.kind, _label(metric), metric.documentation
    labels = ", ".join(f"`{label}`" for label in INFO_LABELS)
    yield f"`{INFO}`", "gauge", labels, "Always 1; the settings are in the labels."


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


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is up to date."""
    text = page()
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print("docs/metrics.md is out of date: run scripts/metrics_page.py")
        return 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
