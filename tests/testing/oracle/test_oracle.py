"""vLLM's real scheduler with the real connector: no step reads a wrong byte."""

import pytest

pytest.importorskip("vllm")

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvcellar.index.checks import check_index
from kvcellar.testing.oracle.__main__ import main, prompt_bytes
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES, build
from kvcellar.testing.oracle.oracle import LeakError, Oracle
from kvcellar.testing.oracle.runner import WrongBytesError

# Small devices and few tokens per prompt: many evictions and preemptions per second.
QUICK = ("llama-3.1-8b", "three-windows", "chunked-odd", "coarse-alignment", "ring")


def make_oracle(name, seed, *, mode="eager", failures=0.0, host=3.0, device=1.5):
    host_bytes = round(host * prompt_bytes(build(name, extra_config={})))
    layout = build(
        name,
        extra_config={"host_memory": host_bytes, "mode": mode},
        device_prompts=device,
    )
    return Oracle(layout, seed, failure_rate=failures)


@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_a_random_run_reads_only_right_bytes(name, mode):
    """Every layout and mode: all requests end, nothing leaks, the index is whole."""
    oracle = make_oracle(name, seed=3, mode=mode, failures=0.02)
    try:
        figures = oracle.run(120)
    finally:
        oracle.close()
    assert figures.num_steps >= 120
    assert figures.num_units_checked > 0
    assert figures.stored_chunks > 0


class AnyOrder(RuleBasedStateMachine):
    """Requests, aborts, resets, slow and fast copies in any order."""

    @initialize(
        name=st.sampled_from(QUICK),
        mode=st.sampled_from(["eager", "lazy"]),
        seed=st.integers(0, 1000),
        failures=st.sampled_from([0.0, 0.0, 0.1]),
        host=st.sampled_from([1.5, 3.0, 8.0]),
        device=st.sampled_from([1.0, 1.5, 3.0]),
    )
    def start(self, name, mode, seed, failures, host, device):
        self.oracle = make_oracle(
            name, seed, mode=mode, failures=failures, host=host, device=device
        )

    @rule(count=st.integers(1, 3))
    def requests_arrive(self, count):
        for _ in range(count):
            self.oracle.add(self.oracle.workload.next_request())

    @rule(count=st.integers(1, 12))
    def engine_runs(self, count):
        for _ in range(count):
            self.oracle.step()

    @rule()
    def client_goes_away(self):
        self.oracle.abort_one()

    @rule()
    def weights_change(self):
        self.oracle.reset()

    @rule(slowness=st.sampled_from([0.0, 0.5, 0.95]))
    def copies_change_speed(self, slowness):
        self.oracle.transfers.slowness = slowness

    @invariant()
    def index_is_whole(self):
        if hasattr(self, "oracle"):
            check_index(self.oracle.planner.index)

    def teardown(self):
        if hasattr(self, "oracle"):
            try:
                self.oracle.finish()
            finally:
                self.oracle.close()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def test_a_run_replays_exactly():
    """The same seed gives the same figures, so a failure can be looked at again."""
    figures = []
    for _ in range(2):
        oracle = make_oracle("three-windows", seed=5, failures=0.05)
        figures.append(oracle.run(150).describe())
        oracle.close()
    assert figures[0] == figures[1]


def test_a_store_that_copies_a_wrong_block_is_seen(monkeypatch):
    """The oracle can fail: with a planted fault, a step reads wrong bytes."""
    oracle = make_oracle("three-windows", seed=3, host=8.0)
    copy = oracle.transfers._device.copy

    def shifted(job, fence=None):
        for part in job.copies:
            if job.direction.value == "store" and len(part.device_blocks) > 1:
                part.device_blocks[:] = part.device_blocks[::-1].copy()
        return copy(job, fence)

    monkeypatch.setattr(oracle.transfers._device, "copy", shifted)
    with pytest.raises(WrongBytesError, match="not what its prefix demands"):
        oracle.run(400)
    oracle.close()


def test_a_pin_that_is_never_released_is_seen(monkeypatch):
    """The oracle can fail: a leaked reference is reported at the end."""
    oracle = make_oracle("llama-3.1-8b", seed=3)
    monkeypatch.setattr(oracle.planner.index, "unpin", lambda node: None)
    with pytest.raises(LeakError, match="pinned nodes"):
        oracle.run(40)
    oracle.close()


def test_the_command_line_reports_and_returns(capsys):
    """Figures in the last line, exit code 0; ``list`` names the layouts."""
    assert 0 == main(["--layout", "full24-swa16", "--steps", "60", "--mode", "lazy"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("full24-swa16 lazy: num_steps")
    assert 0 == main(["--layout", "list"])
    assert list(LAYOUT_NAMES) == capsys.readouterr().out.split()
