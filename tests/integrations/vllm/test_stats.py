"""From both halves' counts to vLLM's ``/metrics``, over ranks and processes."""

import functools
import itertools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from vllm.distributed.kv_transfer.kv_connector.v1.offloading import metrics as native
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder
from vllm.v1.simple_kv_offload.metrics import MetricName as SimpleMetricName

from kvcellar.integrations.vllm.in_flight import InFlight
from kvcellar.integrations.vllm.prometheus import CellarPromMetrics
from kvcellar.integrations.vllm.stats import CellarStats, WorkerCounts
from kvcellar.metrics import METRICS, NOT_EXPORTED, SERIES
from kvcellar.testing.oracle.events import Arrive, Finish, Forget, Steps
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy, JobResult

HERE = Path(__file__).parent
STORE_BYTES = 'kvcellar_transfer_bytes{direction="store"}'
FAILED_LOADS = 'kvcellar_failed_jobs_total{direction="load"}'


def make_exporter(registry, extra=None):
    """The exporter for two engines, and what it registers at."""
    types = {
        kind: functools.partial(kind, registry=registry)
        for kind in (Counter, Gauge, Histogram)
    }
    transfer = SimpleNamespace(kv_connector_extra_config=extra or {})
    config = SimpleNamespace(kv_transfer_config=transfer)
    engines = {0: ["tiny", "0"], 1: ["tiny", "1"]}
    return CellarPromMetrics(config, types, ["model_name", "engine"], engines)


def value_of(registry, name, engine="0", **labels):
    return registry.get_sample_value(
        name, {"model_name": "tiny", "engine": engine, **labels}
    )


def test_ranks_and_halves_add_up():
    """Counters are added, samples collected, and the last gauge counts."""
    first, second = WorkerCounts(), WorkerCounts()
    first.count(JobResult(1, Direction.STORE, 100, 0.5))
    second.count(JobResult(1, Direction.STORE, 60, 0.25))
    second.count(JobResult(2, Direction.LOAD, 0, 0.0, "broken"))
    stats = first.take().aggregate(second.take())
    stats.aggregate(CellarStats(data={"kvcellar_host_chunks": 5, FAILED_LOADS: 2}))
    stats.aggregate(CellarStats(data={"kvcellar_host_chunks": 3}))
    assert stats.data == {
        STORE_BYTES: [100, 60],
        'kvcellar_transfer_seconds{direction="store"}': [0.5, 0.25],
        FAILED_LOADS: 3,
        "kvcellar_host_chunks": 3,
    }
    assert first.take() is None
    assert {"stored_bytes": 160, "failed_loads": 3} == stats.reduce()


def test_adding_up_leaves_the_other_side_alone():
    """vLLM keeps a step's numbers for its log line while they are exported."""
    one = CellarStats(data={STORE_BYTES: [1.0]})
    total = CellarStats().aggregate(one).aggregate(CellarStats(data={STORE_BYTES: [2]}))
    assert [1.0] == one.data[STORE_BYTES]
    assert [1.0, 2] == total.data[STORE_BYTES]


def test_every_series_is_exported_from_the_start():
    """A rule that divides two series finds both before anything has happened."""
    registry = CollectorRegistry()
    make_exporter(registry, {"mode": "lazy"})
    samples = {
        (sample.name, sample.labels["engine"])
        for family in registry.collect()
        for sample in family.samples
    }
    for metric in METRICS.values():
        for name in metric.exported_names():
            assert {(name, "0"), (name, "1")} <= samples
    (info,) = (f for f in registry.collect() if f.name == "kvcellar_info")
    assert {"lazy"} == {sample.labels["mode"] for sample in info.samples}


def test_a_steps_numbers_reach_the_right_engine():
    """Increases are added, gauges set and samples observed, for one engine only."""
    registry = CollectorRegistry()
    exporter = make_exporter(registry)
    step = {STORE_BYTES: [2.0**20, 5.0], FAILED_LOADS: 2, "kvcellar_host_chunks": 7}
    exporter.observe(step, engine_idx=1)
    exporter.observe({FAILED_LOADS: 1, "kvcellar_host_chunks": 4}, engine_idx=1)
    of_one = functools.partial(value_of, registry, engine="1")
    assert 2**20 + 5 == of_one("kvcellar_transfer_bytes_sum", direction="store")
    assert 2 == of_one("kvcellar_transfer_bytes_count", direction="store")
    assert 1 == of_one(
        "kvcellar_transfer_bytes_bucket", direction="store", le="16384.0"
    )
    assert 3 == of_one("kvcellar_failed_jobs_total", direction="load")
    assert 4 == of_one("kvcellar_host_chunks")
    assert 0 == value_of(registry, "kvcellar_host_chunks", engine="0")


def test_series_of_another_version_are_passed_over():
    """An engine that was updated before the web server does not end it."""
    registry = CollectorRegistry()
    exporter = make_exporter(registry)
    step = {"kvcellar_of_tomorrow_total": 1, 'kvcellar_x{y="z"}': [2], FAILED_LOADS: 3}
    exporter.observe(step)
    assert 3 == value_of(registry, "kvcellar_failed_jobs_total", direction="load")
    total = CellarStats().aggregate(CellarStats(data=step))
    assert {FAILED_LOADS: 3} == total.data


SERVERS = """
import os, sys
sys.path.insert(0, os.environ["TESTS"])
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
from test_stats import FAILED_LOADS, STORE_BYTES, make_exporter

for num in (9, 5):
    child = os.fork()
    if not child:
        step = {FAILED_LOADS: 2, STORE_BYTES: [100.0], "kvcellar_host_chunks": num}
        make_exporter(CollectorRegistry()).observe(step)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(generate_latest(registry).decode())
"""


@pytest.mark.timeout(600)  # a fresh process imports the engine
def test_several_api_servers_export_one_truth(tmp_path):
    """Counters of all processes are added; of a gauge the value set last is shown."""
    where = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "TESTS": str(HERE)}
    result = subprocess.run(
        [sys.executable, "-c", SERVERS],
        env={**os.environ, **where},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == result.returncode, result.stderr
    lines = [line for line in result.stdout.splitlines() if 'engine="0"' in line]
    found = {line.split("{")[0]: [] for line in lines}
    for line in lines:
        found[line.split("{")[0]].append((line.split("}")[0], line.split()[-1]))
    assert ["5.0"] == [value for _, value in found["kvcellar_host_chunks"]]
    assert "4.0" in [
        value
        for labels, value in found["kvcellar_failed_jobs_total"]
        if 'direction="load"' in labels
    ]
    assert "200.0" in [
        value
        for labels, value in found["kvcellar_transfer_bytes_sum"]
        if 'direction="store"' in labels
    ]
    assert all('pid="' not in labels for rows in found.values() for labels, _ in rows)


def test_every_name_of_vllms_connectors_has_a_twin():
    """What either of vLLM's connectors exports is found here, or named as left out."""
    theirs = {
        *native.get_connector_metric_definitions(),
        *native._DEPRECATED_CONNECTOR_METRIC_DEFINITIONS,
        *CPUOffloadingSpec.build_metric_definitions({"store_threshold": 2}),
        *(n for k, n in vars(SimpleMetricName).items() if not k.startswith("_")),
    }
    ours = {name for metric in METRICS.values() for name in metric.native}
    assert len(theirs) > 15
    assert theirs <= ours | set(NOT_EXPORTED)


def test_jobs_under_way_are_counted_until_they_end():
    """Blocks and bytes of a store and a load, and how long the load was waited for."""
    now = iter((1.0, 2.0, 4.5, 5.0))
    in_flight = InFlight(clock=lambda: next(now))
    in_flight.block_bytes = [10, 1000]
    blocks = [GroupCopy(0, [1, 2], [3, 4]), GroupCopy(1, [5], [6])]
    in_flight.begin(CopyJob(1, Direction.STORE, tuple(blocks)))
    in_flight.begin(CopyJob(2, Direction.LOAD, tuple(blocks[:1])))
    store, load = (in_flight.by_direction[d] for d in (Direction.STORE, Direction.LOAD))
    assert (1, 3, 1020) == (store.num_jobs, store.num_blocks, store.num_bytes)
    assert (1, 2, 20) == (load.num_jobs, load.num_blocks, load.num_bytes)
    in_flight.end(2, has_failed=False)
    in_flight.end(1, has_failed=True)
    assert (0, 0, 0, 2) == (
        load.num_jobs,
        load.num_blocks,
        load.num_bytes,
        load.ended_blocks,
    )
    assert (0, 0, 0) == (store.num_blocks, store.num_bytes, store.ended_blocks)
    assert (1, 0, 2.5) == (load.num_ended, load.num_failed, load.ended_seconds)
    assert (0, 1, 0.0) == (store.num_ended, store.num_failed, store.ended_seconds)
    assert [2.5] == in_flight.take_load_waits()
    assert [3] == in_flight.take_store_blocks()
    assert [] == in_flight.take_load_waits()


def test_what_a_run_counts_is_what_the_planner_holds():
    """Over a whole run the steps' increases add up to the planner's own totals, and
    they survive the way to another process."""
    oracle = make_oracle(OracleOptions("gemma-3-27b", meddles=False))
    total, connector = CellarStats(), oracle.scheduler.connector
    take = connector.get_kv_connector_stats

    def noted_take():
        stats = take()
        if stats is not None:
            wire = MsgpackEncoder().encode(stats.to_dict())
            rebuilt = MsgpackDecoder(dict).decode(wire)
            total.aggregate(connector.build_kv_connector_stats(rebuilt))
        return stats

    connector.get_kv_connector_stats = noted_take
    try:
        for number in range(3):
            oracle.apply(Arrive(f"r{number}", (("p", 0, 600),), new_tokens=2))
            oracle.apply(Steps(30))
            oracle.apply(Forget(1.0, seed=0))
        oracle.apply(Finish())
        noted_take()
        planner, data = oracle.planner, total.data
        assert data.keys() <= SERIES.keys()
        assert planner.counters.loaded_tokens > 0
        assert planner.counters.loaded_tokens == data["kvcellar_loaded_tokens_total"]
        chunks = planner.counters.stored_chunks
        assert chunks == data['kvcellar_stores_total{kind="chunk"}']
        assert len(planner.index.nodes) == data["kvcellar_host_chunks"]
        assert planner.index.num_checkpoints == data["kvcellar_host_checkpoints"]
        assert 0 == data["kvcellar_pinned_chunks"]
        assert 0 == data['kvcellar_jobs_in_flight{direction="store"}']
        assert data['kvcellar_transferred_blocks_total{direction="load"}'] > 0
        assert len(data["kvcellar_lookup_seconds"]) >= 3
    finally:
        oracle.close()


@pytest.mark.parametrize("step_seconds", [0.0, 1.0])
def test_figures_wait_while_requests_run_and_are_whole_with_the_last(step_seconds):
    """Steps that follow each other at once share one reading; none of it gets lost."""
    oracle = make_oracle(OracleOptions("gemma-3-27b", meddles=False))
    total, connector = CellarStats(), oracle.scheduler.connector
    side, take = connector.scheduler_side, connector.get_kv_connector_stats
    ticks = itertools.count()
    side.clock = lambda: step_seconds * next(ticks)
    num_told = 0

    def noted_take():
        nonlocal num_told
        stats = take()
        if stats is not None:
            total.aggregate(stats)
            num_told += bool(side.num_watched)
        return stats

    connector.get_kv_connector_stats = noted_take
    try:
        oracle.apply(Arrive("r", (("p", 0, 600),), new_tokens=100))
        oracle.apply(Steps(150))
        stored = oracle.planner.counters.stored_chunks
        assert stored > 0
        assert not side.num_watched
        assert stored == total.data['kvcellar_stores_total{kind="chunk"}']
        assert (num_told == 1) == (step_seconds == 0)
        assert num_told > 0
    finally:
        oracle.apply(Finish())
        oracle.close()
