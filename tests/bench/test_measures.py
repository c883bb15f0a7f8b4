"""What is measured without a server: copies are real, figures are positive."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from kvcellar.bench import copies, planner, run
from kvcellar.bench.copies import CopySpeed, CopySpeeds, bytes_per_second
from kvcellar.bench.host_memory import measure_host_memory
from kvcellar.bench.line import line_through
from kvcellar.bench.planner import measure_planner
from kvcellar.bench.result import BenchResult, write_speeds
from kvcellar.bench.run import BenchRequest, run_bench
from kvcellar.bench.serving import PrefillPoint, ServingSpeed
from kvcellar.bench.table import table_of
from kvcellar.bench.words import lengths_of, page_sizes_of
from kvcellar.device.trial import (
    TrialShape,
    device_problem,
    on_accelerator,
    open_trial,
)
from kvcellar.errors import ConfigError
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.models import model_layout
from kvcellar.replay.presets_choice import COST_NAMES, CostChoice, choose_costs
from kvcellar.testing.fake_driver import FakeDriver
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import Direction

KIB = 1024


@pytest.fixture
def small(monkeypatch):
    """Little memory, short prompts, few rounds."""
    monkeypatch.setattr(copies, "CACHE_BYTES", 2**22)
    monkeypatch.setattr(run, "CACHE_BYTES", 2**22)
    monkeypatch.setattr(run, "measure_host_memory", lambda: measure_host_memory(2**20))
    monkeypatch.setattr(planner, "PROMPT_TOKENS", 4096)
    return BenchRequest("llama-3.1-8b", "cpu", (KIB, 4 * KIB))


def test_a_trial_copies_every_byte_of_its_job():
    """Half of the blocks, each once, all layers."""
    shape = TrialShape(page_bytes=KIB, cache_bytes=2**18)
    with open_trial("cpu", shape) as trial:
        job = trial.job(Direction.STORE, seed=1)
        (copy,) = job.copies
        assert shape.num_blocks // 2 == len(np.unique(copy.device_blocks))
        assert len(copy.device_blocks) == len(np.unique(copy.host_blocks))
        num_bytes = trial.device.copy(job, trial.device.fence())
        assert len(copy.device_blocks) * shape.block_bytes == num_bytes
        other = trial.job(Direction.STORE, seed=2).copies[0]
        assert list(copy.device_blocks) != list(other.device_blocks)


def test_a_trial_on_an_accelerator_locks_host_memory_and_gives_it_back():
    """By the code that serves there; the fake one counts what is asked of it."""
    shape = TrialShape(page_bytes=KIB, cache_bytes=2**18)
    cache = np.full(shape.cache_bytes, 2, dtype=np.uint8)
    driver = FakeDriver()
    driver.add_device_memory(int(cache.ctypes.data), cache.nbytes)
    with HostMemory(plan_geometry(shape.layout(), shape.cache_bytes)) as memory:
        memory.array[:] = 1
        with on_accelerator(shape, memory, int(cache.ctypes.data), driver) as trial:
            assert memory.num_bytes <= trial.pinned_bytes
            job = trial.job(Direction.LOAD, seed=1)
            num_bytes = trial.device.copy(job, trial.device.fence())
            assert num_bytes == int((cache == 1).sum()) == shape.cache_bytes // 2
        names = [call.name for call in driver.calls]
        assert names.count("register") == names.count("unregister") > 0


def test_speed_is_the_median_of_rounds_after_the_first():
    """By a clock on which the first round takes ten seconds, the others one."""
    clock = itertools.chain([0, 10], itertools.count(20)).__next__
    with open_trial("cpu", TrialShape(KIB, 2**18)) as trial:
        half = 2**18 // 2
        assert half == bytes_per_second(trial, Direction.LOAD, clock)


def test_everything_is_measured_without_a_server(small):
    """Every size once, the model's own page among them, and all of it above zero."""
    stages = []
    result = run_bench(small, stages.append)
    assert [KIB, 4 * KIB, 64 * KIB] == [s.page_bytes for s in result.copies.sizes]
    assert 64 * KIB == result.page_bytes
    for size in result.copies.sizes:
        assert size.load_bytes_per_second > 0 < size.store_bytes_per_second
    assert min(dataclasses.astuple(result.planner)) > 0
    assert result.host_memory.touch_bytes_per_second > 0
    assert {"load_bytes_per_second", "store_bytes_per_second"} == set(result.speeds)
    assert "copying pages of 1.00 KiB (cpu)" == stages[0]
    content = json.loads(result.to_json())
    assert ("kvcellar-bench", 1) == (content["format"], content["version"])
    assert content["speeds"] == result.speeds
    assert "name a running server" in table_of(result)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v4-flash", "qwen3-next"])
def test_planning_is_measured_for_every_kind_of_model(name, monkeypatch):
    """Chunks, windows and states; host memory has room for all."""
    monkeypatch.setattr(planner, "PROMPT_TOKENS", 4096)
    assert min(dataclasses.astuple(measure_planner(model_layout(name).layout))) > 0


def result_of(**changes):
    sizes = (CopySpeed(KIB, 1e9, 2e9), CopySpeed(64 * KIB, 3e9, 4.123456789e9))
    points = (PrefillPoint(100, 0.1), PrefillPoint(200, 0.15))
    result = BenchResult(
        "m",
        64 * KIB,
        CopySpeeds("cpu", sizes, None),
        measure_host_memory(2**20),
        planner.PlannerSpeed(1e-5, 2e-5, 3e-6),
        run.ServedModel("http://h:1", "served", 4096),
        ServingSpeed(points, 2000.0, 0.05, 0.3, 0.01),
    )
    return dataclasses.replace(result, **changes)


def test_the_file_is_what_a_replay_reads(tmp_path):
    """All five speeds, of the model's own page, so that nothing is left to assume."""
    path = tmp_path / "speeds.json"
    write_speeds(result_of(), str(path))
    chosen = choose_costs(CostChoice(costs_path=str(path)), "unknown", 1)
    assert dict.fromkeys(COST_NAMES, "file") == chosen.sources
    assert (3e9, 4.12346e9) == (
        chosen.costs.load_bytes_per_second,
        chosen.costs.store_bytes_per_second,
    )
    assert 2000.0 == chosen.costs.prefill_tokens_per_second
    with pytest.raises(ConfigError, match="cannot be written"):
        write_speeds(result_of(), str(tmp_path))


def test_the_table_warns_of_a_line_that_is_none():
    """And shows every length; pinning where there is any."""
    text = table_of(result_of())
    assert "off the line by 30% at most" in text
    assert "no straight line" in text
    assert "prefill: 2,000 tokens/s, and " in text
    assert "pinning" not in text
    pinned = dataclasses.replace(result_of().copies, pin_bytes_per_second=5e9)
    assert "pinning host memory" in table_of(result_of(copies=pinned))


def test_a_line_is_found_again():
    """Exactly where the points lie on one; through zero where it would start below."""
    line = line_through([(x, 0.25 + 0.5 * x) for x in (1.0, 2.0, 8.0)])
    assert (0.25, 0.5) == pytest.approx((line.fixed, line.per_unit))
    points = [(1.0, 0.5), (2.0, 2.0), (3.0, 3.0)]
    low = line_through(points)
    assert 0.0 == low.fixed
    assert low.per_unit == pytest.approx(13.5 / 14)
    assert low.worst_miss(points) == pytest.approx(abs(low.per_unit - 0.5) / 0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "none"}, "'none' is neither"),
        ({"page_bytes": (0,)}, "page_bytes=0 cannot"),
        ({"page_bytes": (2**30,)}, "page_bytes=1073741824 cannot"),
        ({"device": "tpu"}, "device='tpu' is unknown"),
        ({"server_url": "ftp://host:8000"}, "server='ftp://host:8000' cannot be asked"),
        ({"server_url": "http://h:x"}, "server='http://h:x' cannot be asked"),
    ],
)
def test_what_cannot_be_measured_is_refused(small, changes, words):
    """Before anything is measured, with the key and the value."""
    with pytest.raises(ConfigError, match=words):
        run_bench(dataclasses.replace(small, **changes), lambda stage: None)


def test_without_torch_there_is_one_sentence(small, monkeypatch):
    """And the processor can be measured all the same."""
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    assert "torch is not installed" in str(device_problem("cuda"))
    with pytest.raises(ConfigError, match="torch is not installed; install it"):
        run_bench(dataclasses.replace(small, device="cuda"), lambda stage: None)
    assert device_problem("cpu") is None
    assert (
        "cpu"
        == run_bench(
            dataclasses.replace(small, device="auto"), lambda stage: None
        ).copies.device_name
    )


def test_lists_are_read_as_they_are_written():
    """Sizes with units, lengths as whole numbers."""
    assert (4096, 1000) == page_sizes_of("4KiB, 1kB")
    assert (512, 4096) == lengths_of("512, 4096")
    assert lengths_of(None) is None
    for text in ("", "1,,2", "-1", "many", "1.5"):
        with pytest.raises(ConfigError, match="prompt_tokens"):
            lengths_of(text)
