"""The dashboard imports into Grafana, and every query asks for what is exported."""

import importlib.util
import json
import pathlib
import re
import shutil
import subprocess

import pytest

from kvcellar.metrics import INFO, INFO_LABELS, METRICS

jsonschema = pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")

ROOT = pathlib.Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "dashboards" / "grafana.json").read_text())
ALERTS = yaml.safe_load((ROOT / "dashboards" / "alerts.yml").read_text())

# vLLM's own labels, and what Prometheus adds.
COMMON_LABELS = {"model_name", "engine", "le"}
WANTED_ALERTS = {
    "KvcellarStoredNeverServed",
    "KvcellarHostMemoryPinned",
    "KvcellarCopiesFail",
    "KvcellarEvictedBeforeUse",
}

# What Grafana 10 and later need in a dashboard that is imported.
# Source: Grafana documentation, "Dashboard JSON model"; the types of @grafana/schema
# 13.2, Dashboard, Panel, VariableModel and the time series panel's Options.
GRID = {
    "type": "object",
    "required": ["h", "w", "x", "y"],
    "properties": {
        "h": {"type": "integer", "minimum": 1},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
    },
    "additionalProperties": False,
}
DATASOURCE = {
    "type": "object",
    "required": ["type", "uid"],
    "properties": {
        "type": {"const": "prometheus"},
        "uid": {"const": "${datasource}"},
    },
}
TARGET = {
    "type": "object",
    "required": ["refId", "datasource", "expr", "legendFormat"],
    "properties": {
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "datasource": DATASOURCE,
        "expr": {"type": "string", "minLength": 1},
    },
}
LEGEND = {
    "type": "object",
    "required": ["calcs", "displayMode", "placement", "showLegend"],
    "properties": {
        "calcs": {"type": "array"},
        "displayMode": {"enum": ["hidden", "list", "table"]},
        "placement": {"enum": ["bottom", "right"]},
    },
}
TOOLTIP = {
    "type": "object",
    "required": ["mode", "sort"],
    "properties": {
        "mode": {"enum": ["multi", "none", "single"]},
        "sort": {"enum": ["asc", "desc", "none"]},
    },
}
OPTIONS = {
    "type": "object",
    "required": ["legend", "tooltip"],
    "properties": {"legend": LEGEND, "tooltip": TOOLTIP},
    "additionalProperties": False,
}
VARIABLE_KEYS = (
    "name label type datasource query current hide includeAll multi options refresh "
    "regex sort"
)
VARIABLE = {
    "type": "object",
    "required": ["name", "type", "query"],
    "properties": {key: {} for key in VARIABLE_KEYS.split()}
    | {"current": {"type": "object", "required": ["text", "value"]}},
    "additionalProperties": False,
}
PANEL = {
    "type": "object",
    "required": ["id", "type", "title", "gridPos"],
    "properties": {"id": {"type": "integer", "minimum": 1}, "gridPos": GRID},
    "if": {"properties": {"type": {"const": "timeseries"}}},
    "then": {
        "required": ["datasource", "targets", "fieldConfig", "options", "description"],
        "properties": {
            "datasource": DATASOURCE,
            "options": OPTIONS,
            "targets": {"type": "array", "minItems": 1, "items": TARGET},
        },
    },
    "else": {"properties": {"type": {"const": "row"}}, "required": ["collapsed"]},
}
SCHEMA = {
    "type": "object",
    "required": [
        "id",
        "uid",
        "title",
        "schemaVersion",
        "version",
        "panels",
        "templating",
        "time",
        "annotations",
    ],
    "properties": {
        "id": {"type": "null"},  # a number would overwrite another dashboard
        "uid": {"type": "string", "maxLength": 40, "pattern": "^[a-zA-Z0-9_-]+$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {"type": "array", "items": PANEL, "minItems": 5},
        "templating": {
            "type": "object",
            "required": ["list"],
            "properties": {
                "list": {"type": "array", "items": VARIABLE},
            },
        },
    },
}


def labels_by_name():
    """Every exported name, with its own labels and their values (None for any)."""
    found = {INFO: dict.fromkeys(INFO_LABELS)}
    for metric in METRICS.values():
        own = {metric.label: set(metric.values)} if metric.label else {}
        found |= dict.fromkeys(metric.exported_names(), own)
    return found


EXPORTED = labels_by_name()


def check_expression(expression):
    """Names, label names and label values are all exported ones."""
    names = set(re.findall(r"\bkvcellar_\w+", expression))
    assert names, expression
    assert names <= EXPORTED.keys(), names - EXPORTED.keys()
    for name, selector in re.findall(r"\b(kvcellar_\w+)\{([^}]*)\}", expression):
        for label, value in re.findall(r'(\w+)=~?"([^"]*)"', selector):
            assert label in COMMON_LABELS | EXPORTED[name].keys(), (name, label)
            values = EXPORTED[name].get(label)
            assert values is None or value in values, (name, label, value)
    for labels in re.findall(r"\bby \(([^)]*)\)", expression):
        for label in re.split(r",\s*", labels):
            known = set().union(*(EXPORTED[name] for name in names))
            assert label in COMMON_LABELS | known, (expression, label)


def targets():
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target, id=f"{panel['title']} {target['refId']}")


def rules():
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def test_the_dashboard_is_what_the_script_makes():
    """Nobody edits the file by hand."""
    script = ROOT / "scripts" / "grafana_dashboard.py"
    spec = importlib.util.spec_from_file_location("grafana_dashboard", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.main(["--check"]) == 0
    assert json.loads(json.dumps(module.dashboard())) == DASHBOARD


def test_the_dashboard_has_grafanas_form():
    """Required fields are there and of the right type, and ids are unique."""
    jsonschema.validate(DASHBOARD, SCHEMA)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        letters = [target["refId"] for target in panel.get("targets", ())]
        assert letters == sorted(set(letters))


def test_no_panel_lies_on_another():
    """Each cell of the grid belongs to one panel at most, and none is outside."""
    taken = {}
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        assert grid["x"] + grid["w"] <= 24
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


@pytest.mark.parametrize("target", list(targets()))
def test_panels_ask_for_what_is_exported(target):
    """Metric, label and value of every query exist; only known variables are used."""
    check_expression(target["expr"])
    defined = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", target["expr"]))
    assert used <= defined | {"__rate_interval"}
    labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    by_clause = re.findall(r"\bby \(([^)]*)\)", target["expr"])
    if by_clause:
        assert labels <= set(re.split(r",\s*", ", ".join(by_clause)))


def test_everything_about_host_memory_and_prompts_is_drawn():
    """A metric that nobody draws is a metric that nobody sees."""
    drawn = {name for name in METRICS if name in json.dumps(DASHBOARD)}
    themes = ("kvcellar_host_", "kvcellar_prompt_", "kvcellar_missed_", "kvcellar_leas")
    wanted = {name for name in METRICS if name.startswith(themes)}
    assert len(wanted) > 6
    assert wanted <= drawn


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_alerts_ask_for_what_is_exported(rule):
    """Each has a severity, a summary and advice, and asks for what exists."""
    check_expression(rule["expr"])
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    kept = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
    by_clause = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
    assert kept <= set(re.split(r",\s*", ", ".join(by_clause)))


def test_the_four_troubles_have_an_alert():
    """Stored but never served, pinned full, failing, evicted before use."""
    assert {rule["alert"] for rule in rules()} >= WANTED_ALERTS


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not here")
def test_prometheus_reads_all_expressions(tmp_path):
    """Prometheus' own parser takes the alert rules and every panel's query."""
    recorded = [
        {
            "record": f"panel:{number}",
            "expr": parameters.values[0]["expr"].replace("$__rate_interval", "5m"),
        }
        for number, parameters in enumerate(targets())
    ]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "p", "rules": recorded}]}))
    for path in (ROOT / "dashboards" / "alerts.yml", panels):
        command = ["promtool", "check", "rules", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
