"""The benchmarks run, in tiny sizes, and print figures that make sense."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SCRIPTS = (
    *("planner_lookup", "planner_idle", "planner_store", "host_bytes", "copies"),
    *("start_up", "instrumentation"),
)


def run(script: str, *args: str) -> str:
    """What the script prints on stdout; fails the test if it fails."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / f"{script}.py"), *args],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def tables(script: str, *args: str) -> dict[str, list[dict[str, Any]]]:
    """The script's rows by table title."""
    found = json.loads(run(script, "--quick", "--json", *args))
    return {table["title"]: table["rows"] for table in found["tables"]}


def load(name: str) -> ModuleType:
    """One file of ``benchmarks/`` as a module."""
    path = BENCHMARKS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def check_rows(rows: list[dict[str, Any]]) -> None:
    """Rows have the same columns, and their numbers are finite."""
    assert rows
    assert 1 == len({tuple(row) for row in rows})
    numbers = [v for row in rows for v in row.values() if isinstance(v, float)]
    assert numbers
    assert all(math.isfinite(number) for number in numbers)


# Without the engine ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "num_tables"), [("planner_lookup", 1), ("planner_store", 1)]
)
def test_planner_scripts_without_vllm(script: str, num_tables: int) -> None:
    """The planner is timed alone, and nothing is said about vLLM's connectors."""
    found = tables(script, "--without-vllm")
    assert num_tables == len(found)
    for rows in found.values():
        check_rows(rows)
        for row in rows:
            assert row["kvcellar_us"] > 0
            assert row["simple_us"] is row["offloading_us"] is None


def test_start_up_runs_whole_commands() -> None:
    """Help and two plans, each in a process of its own."""
    (rows,) = tables("start_up").values()
    check_rows(rows)
    words = [row["command"].split()[1] for row in rows]
    assert ["--help", "plan", "plan"] == words


@pytest.mark.parametrize("script", ["planner_idle", "instrumentation"])
def test_steps_need_vllm(script: str) -> None:
    """The engine's own step drives these, so without it there is none."""
    assert {} == tables(script, "--without-vllm")


def test_host_bytes_without_vllm() -> None:
    """Payload figures are exact, and slabs stay within what they may waste."""
    kept, point, in_use, resident = tables("host_bytes", "--without-vllm").values()
    for rows in (kept, point, in_use, resident):
        check_rows(rows)
    chunk, checkpoint = 985_664, 15_420_416
    deepseek = kept[0]
    assert (16, 2) == (deepseek["chunks"], deepseek["checkpoints"])
    assert (16 * chunk + 2 * checkpoint) / 2**20 == deepseek["kvcellar_mib"]
    assert checkpoint / 2**20 == point[0]["kvcellar_mib"]
    assert all(row["within"] for row in in_use)
    assert all(row["resident_mib"] > row["payload_mib"] for row in resident)


def test_run_all_writes_what_it_prints(tmp_path: Path) -> None:
    """The report names the machine, prints each table and writes the same as JSON."""
    path = tmp_path / "report.json"
    printed = run(
        "run_all",
        *("--quick", "--without-vllm", "--only", "planner_store", "--json", str(path)),
    )
    report = json.loads(path.read_text())
    assert {"machine", "is_quick", "results"} == set(report)
    assert report["machine"]["cpu"] in printed
    assert report["is_quick"]
    (table,) = report["results"]["planner_store"]
    check_rows(table["rows"])
    for row in table["rows"]:
        assert row["case"] in printed


# With the engine's classes -----------------------------------------------------------


@pytest.mark.engine
def test_all_scripts_beside_vllm(tmp_path: Path) -> None:
    """Every script runs, and vLLM's connectors are measured wherever they can be."""
    path = tmp_path / "report.json"
    run("run_all", "--quick", "--json", str(path))
    results = json.loads(path.read_text())["results"]
    assert SCRIPTS == tuple(results)
    rows = {name: [r for t in results[name] for r in t["rows"]] for name in SCRIPTS}
    for table in (t for tables_of in results.values() for t in tables_of):
        check_rows(table["rows"])
    for name in ("planner_lookup", "planner_idle", "planner_store"):
        beside = [row for row in rows[name] if row["offloading_us"] is not None]
        assert beside
        assert all(row["fastest_native_ratio"] > 0 for row in beside)
    kept = [row for row in rows["host_bytes"] if "simple_mib" in row]
    assert all(row["simple_mib"] > 0 and row["offloading_mib"] > 0 for row in kept)


@pytest.mark.engine
def test_watching_is_measured_beside_not_watching() -> None:
    """Three workloads; the share is what watching adds to a step, told with its error,
    beside a control and the engine's own events."""
    (rows,) = tables("instrumentation").values()
    check_rows(rows)
    assert 3 == len(rows)
    for row in rows:
        assert row["unwatched_us"] > 0
        assert row["error_percent"] > 0
        for way in ("usual", "with_kv_events"):
            share = 100 * row[f"{way}_adds_us"] / row["step_us"]
            assert math.isclose(row[f"{way}_percent"], share)
        assert (row["with_kv_events_percent"] <= 1) == row["within_1_percent"]
        assert {"control_percent", "engine_events_percent"} <= row.keys()


# The parts ---------------------------------------------------------------------------


def test_compare_measures_against_the_faster_native() -> None:
    """The ratio is to the faster of vLLM's two, and a budget is met or missed."""
    report = load("report")
    row = report.compare("x", 2.0, simple_us=10.0, offloading_us=6.0, budget_us=1.5)
    assert 3.0 == row["fastest_native_ratio"]
    assert row["within"] is False
    alone = report.compare("x", 2.0)
    assert alone["fastest_native_ratio"] is alone["within"] is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "-"), (True, "yes"), (False, "NO"), (3.14159, "3.14"), (1234.5, "1,234")],
)
def test_values_are_short(value: object, expected: str) -> None:
    """Numbers keep three digits or so, and what was not measured is a dash."""
    assert expected == load("report").format_value(value)


def payload_bytes(recorded: dict[str, Any], group: dict[str, Any]) -> int:
    """Unpadded bytes of one block of a recorded group, over its layers."""
    specs = recorded["specs"]
    spec = specs[group["kv_cache_spec"]]
    inner = spec.get("kv_cache_specs") or dict.fromkeys(
        group["layer_names"], group["kv_cache_spec"]
    )
    return sum(specs[n]["unpadded_page_size_bytes"] for n in inner.values())


@pytest.mark.parametrize("name", ["deepseek_v4_flash", "gemma3_27b", "gpt_oss_20b"])
def test_models_are_what_vllm_makes_of_them(name: str) -> None:
    """Blocks, payloads and pool rows equal those recorded from vLLM."""
    model = getattr(load("models"), name)()
    recorded = json.loads((ROOT / "tests" / "data" / f"{name}.json").read_text())
    found = [(g.tokens_per_block, g.payload_bytes) for g in model.layout.groups]
    groups = recorded["kv_cache_groups"]
    blocks = [recorded["specs"][g["kv_cache_spec"]]["block_size"] for g in groups]
    payloads = [payload_bytes(recorded, group) for group in groups]
    assert list(zip(blocks, payloads, strict=True)) == found
    size = recorded["kv_cache_tensors"][0]["size"]
    assert size // recorded["num_blocks"] == model.row_bytes
    assert recorded["hash_block_size"] == model.layout.hash_block_tokens
    assert recorded["cache_hit_alignment_tokens"] == model.layout.alignment_tokens
