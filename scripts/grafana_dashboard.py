"""Writes dashboards/grafana.json from the panels below.

    .venv/bin/python scripts/grafana_dashboard.py           write the file
    .venv/bin/python scripts/grafana_dashboard.py --check   fail if it is out of date

Source of the format: Grafana documentation, "Dashboard JSON model", schema version 39.
"""

import json
import pathlib
import sys
from dataclasses import dataclass
from typing import Any

FILE = pathlib.Path(__file__).resolve().parent.parent / "dashboards" / "grafana.json"

_WIDTH, _HEIGHT = 12, 8  # of a panel; the whole page is 24 wide
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLOURS = (
    ("device", "green"),
    ("host", "blue"),
    ("computed", "purple"),
    ("nothing", "purple"),
)
_CHOSEN = 'model_name=~"$model_name",engine=~"$engine"'


@dataclass(frozen=True)
class Panel:
    """One panel.

    Attributes:
        unit: Grafana's name of the unit.
        queries: legend and expression; ``CHOSEN`` stands for the page's variables.
        is_stacked: whether the series add up to something.
        colours: of series by their legend, so that a source looks alike everywhere.
    """

    title: str
    description: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    is_stacked: bool = False
    colours: tuple[tuple[str, str], ...] = ()


def _rate(metric: str, by: str = "", labels: str = "") -> str:
    inside = ",".join(part for part in (labels, "CHOSEN") if part)
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{{{inside}}}[$__rate_interval]))"


def _now(metric: str, by: str = "", labels: str = "") -> str:
    inside = ",".join(part for part in (labels, "CHOSEN") if part)
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} ({metric}{{{inside}}})"


def _quantile(share: float, metric: str, by: str = "") -> str:
    groups = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{metric}_bucket', groups)})"


ROWS: dict[str, tuple[Panel, ...]] = {
    "What became of prompts": (
        Panel(
            "Prompt tokens by source",
            "Per second. Device, host and computed add up to all prompt tokens.",
            "short",
            tuple(
                (
                    source,
                    _rate("kvcellar_prompt_tokens_total", "", f'source="{source}"'),
                )
                for source in ("device", "host", "computed")
            ),
            is_stacked=True,
            colours=_COLOURS[:3],
        ),
        Panel(
            "Share of prompt tokens that nobody had to compute",
            "By where they came from.",
            "percentunit",
            tuple(
                (
                    source,
                    _rate("kvcellar_prompt_tokens_total", "", f'source="{source}"')
                    + " / "
                    + _rate("kvcellar_prompt_tokens_total"),
                )
                for source in ("device", "host")
            ),
            is_stacked=True,
            colours=_COLOURS[:2],
        ),
        Panel(
            "Computed prompt tokens by reason",
            "Per second. The reasons add up to the computed tokens; docs/metrics.md "
            "says what each means.",
            "short",
            # Most of the reasons never come: their legends would fill the panel.
            (("{{reason}}", _rate("kvcellar_missed_tokens_total", "reason") + " > 0"),),
            is_stacked=True,
        ),
        Panel(
            "Requests by the furthest source that served them",
            "Per second.",
            "reqps",
            (("{{served_by}}", _rate("kvcellar_requests_total", "served_by")),),
            is_stacked=True,
            colours=_COLOURS,
        ),
    ),
    "Host memory": (
        Panel(
            "Host memory of all ranks",
            "Used is payload; claimed is slabs that hold something; leased is what "
            "requests asked to keep.",
            "bytes",
            (
                ("capacity", _now("kvcellar_host_capacity_bytes")),
                ("claimed", _now("kvcellar_host_claimed_bytes")),
                ("used", _now("kvcellar_host_used_bytes")),
                ("leased", _now("kvcellar_leased_bytes")),
            ),
        ),
        Panel(
            "Chunks and checkpoints held",
            "Pinned chunks are held by running requests and copies.",
            "short",
            (
                ("chunks", _now("kvcellar_host_chunks")),
                ("checkpoints", _now("kvcellar_host_checkpoints")),
                ("pinned chunks", _now("kvcellar_pinned_chunks")),
            ),
        ),
        Panel(
            "Stored and evicted",
            "Per second.",
            "short",
            (
                ("stored {{kind}}", _rate("kvcellar_stores_total", "kind")),
                ("evicted {{kind}}", _rate("kvcellar_evictions_total", "kind")),
                (
                    "chunks evicted, never loaded",
                    _rate("kvcellar_unused_evictions_total"),
                ),
            ),
        ),
        Panel(
            "Not stored",
            "Per second, by reason.",
            "short",
            (("{{reason}}", _rate("kvcellar_skipped_stores_total", "reason")),),
        ),
    ),
    "Copies": (
        Panel(
            "Bytes copied",
            "Per second, all ranks; a move stays inside host memory.",
            "Bps",
            (("{{direction}}", _rate("kvcellar_transfer_bytes_sum", "direction")),),
        ),
        Panel(
            "Speed while copying",
            "Bytes per second while one rank copies one job.",
            "Bps",
            (
                (
                    "{{direction}}",
                    _rate("kvcellar_transfer_bytes_sum", "direction")
                    + " / "
                    + _rate("kvcellar_transfer_seconds_sum", "direction"),
                ),
            ),
        ),
        Panel(
            "Time of a copy",
            "Half and 99 of 100 copies are faster.",
            "s",
            (
                (
                    "p50 {{direction}}",
                    _quantile(0.5, "kvcellar_transfer_seconds", "direction"),
                ),
                (
                    "p99 {{direction}}",
                    _quantile(0.99, "kvcellar_transfer_seconds", "direction"),
                ),
            ),
        ),
        Panel(
            "Under way",
            "Copy jobs that have not ended.",
            "short",
            (("{{direction}}", _now("kvcellar_jobs_in_flight", "direction")),),
        ),
    ),
    "Waiting and trouble": (
        Panel(
            "Time that requests wait for a load",
            "From the decision to load until the request may run.",
            "s",
            (
                ("p50", _quantile(0.5, "kvcellar_load_wait_seconds")),
                ("p99", _quantile(0.99, "kvcellar_load_wait_seconds")),
            ),
        ),
        Panel(
            "Time of a look-up",
            "The engine waits for it.",
            "s",
            (
                ("p50", _quantile(0.5, "kvcellar_lookup_seconds")),
                ("p99", _quantile(0.99, "kvcellar_lookup_seconds")),
            ),
        ),
        Panel(
            "Failures",
            "Per second. Whatever failed is computed again.",
            "short",
            (
                (
                    "failed {{direction}}",
                    _rate("kvcellar_failed_jobs_total", "direction"),
                ),
                ("refused loads", _rate("kvcellar_refused_loads_total")),
                ("refused leases", _rate("kvcellar_refused_leases_total")),
                ("bad controls", _rate("kvcellar_bad_controls_total")),
                ("overtaken copies (lazy)", _rate("kvcellar_overtaken_jobs_total")),
            ),
        ),
        Panel(
            "Settings",
            "One line per engine; what is set is in the legend.",
            "short",
            (
                (
                    "engine {{engine}}: {{version}}, {{mode}}, {{eviction_policy}}, "
                    "{{admission}}",
                    "kvcellar_info{CHOSEN}",
                ),
            ),
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The whole page."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        panels.append(_row(len(panels) + 1, title, top))
        top += 1
        for place, panel in enumerate(row):
            left, below = place % 2 * _WIDTH, place // 2 * _HEIGHT
            panels.append(_panel(len(panels) + 1, panel, left, top + below))
        top += -(-len(row) // 2) * _HEIGHT
    return {
        "__requires": [
            {
                "type": "grafana",
                "id": "grafana",
                "name": "Grafana",
                "version": "10.0.0",
            },
            {
                "type": "datasource",
                "id": "prometheus",
                "name": "Prometheus",
                "version": "1.0.0",
            },
            {
                "type": "panel",
                "id": "timeseries",
                "name": "Time series",
                "version": "",
            },
        ],
        "annotations": {"list": []},
        "description": "kvcellar: where prompt tokens come from, and what host memory "
        "does. Made by scripts/grafana_dashboard.py.",
        "editable": True,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": panels,
        "refresh": "10s",
        "schemaVersion": 39,
        "tags": ["kvcellar", "vllm"],
        "templating": {"list": _variables()},
        "time": {"from": "now-1h", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "title": "kvcellar",
        "uid": "kvcellar",
        "version": 1,
        "weekStart": "",
    }


def _variables() -> list[dict[str, Any]]:
    chosen = [
        {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": "prometheus",
            "hide": 0,
            "includeAll": False,
            "multi": False,
            "options": [],
            "refresh": 1,
            "regex": "",
        }
    ]
    for name, label in (("model_name", "Model"), ("engine", "Engine")):
        query = f"label_values(kvcellar_host_capacity_bytes, {name})"
        chosen.append(
            {
                "name": name,
                "label": label,
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": query, "refId": f"variable-{name}"},
                "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
                "hide": 0,
                "includeAll": True,
                "multi": True,
                "options": [],
                "refresh": 2,
                "regex": "",
                "sort": 1,
            }
        )
    return chosen


def _row(number: int, title: str, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
        "panels": [],
    }


def _panel(number: int, panel: Panel, left: int, top: int) -> dict[str, Any]:
    stacking = {"group": "A", "mode": "normal" if panel.is_stacked else "none"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": left, "y": top},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                **({"max": 1} if panel.unit == "percentunit" else {}),
                "custom": {
                    **({"axisSoftMax": 1} if panel.unit == "short" else {}),
                    "drawStyle": "line",
                    "fillOpacity": 30 if panel.is_stacked else 5,
                    "showPoints": "never",
                    "stacking": stacking,
                },
            },
            "overrides": [_painted(*pair) for pair in panel.colours],
        },
        "options": {
            "legend": {
                "calcs": [],
                "displayMode": "list",
                "placement": "bottom",
                "showLegend": True,
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "editorMode": "code",
                "expr": expression.replace("CHOSEN", _CHOSEN),
                "legendFormat": legend,
                "range": True,
            }
            for place, (legend, expression) in enumerate(panel.queries)
        ],
    }


def _painted(legend: str, colour: str) -> dict[str, Any]:
    paint = {"mode": "fixed", "fixedColor": colour}
    return {
        "matcher": {"id": "byName", "options": legend},
        "properties": [{"id": "color", "value": paint}],
    }


def main(arguments: list[str]) -> int:
    """Write the file, or say whether it is up to date."""
    text = json.dumps(dashboard(), indent=1) + "\n"
    if arguments == ["--check"]:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        print("dashboards/grafana.json is out of date: run this script")
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
