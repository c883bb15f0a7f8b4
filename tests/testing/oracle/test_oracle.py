"""vLLM's real scheduler with the real connector: no step reads a wrong byte."""

import pytest

pytest.importorskip("vllm")

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kvcellar.testing.oracle import events
from kvcellar.testing.oracle.figures import HangError, LeakError
from kvcellar.testing.oracle.forward import WrongBytesError
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES
from kvcellar.testing.oracle.runner import OutOfStepError
from kvcellar.testing.oracle.setup import OracleOptions, drawn, make_oracle

# Small devices and few tokens per prompt: many evictions and preemptions per second.
QUICK = ("llama-3.1-8b", "three-windows", "chunked-odd", "coarse-alignment", "ring")


def start(name, seed, **options):
    return make_oracle(OracleOptions(name, seed=seed, **options))


@pytest.mark.contract
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("mode", ["eager", "lazy"])
@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_a_random_run_reads_only_right_bytes(name, mode, ahead):
    """Every layout and mode, in turn and a step ahead: no wrong byte, no leak.

    All requests end and the index is whole. The rest of the options is drawn.
    """
    seed = LAYOUT_NAMES.index(name)
    options = OracleOptions(name, mode, seed, failure_rate=0.02)
    oracle = make_oracle(drawn(options, async_scheduling=ahead))
    try:
        figures = oracle.run(120)
        # Lazy mode stores what the device is about to lose: a large one loses little.
        while not figures.stored_chunks and figures.num_steps < 2000:
            figures = oracle.run(120)
    finally:
        oracle.close()
    assert figures.num_steps >= 120
    assert figures.num_units_checked > 0
    assert figures.stored_chunks > 0
    assert ahead == (figures.num_ahead > 100)


class AnyOrder(RuleBasedStateMachine):
    """Requests, aborts, resets, slow and fast copies in any order."""

    @initialize(
        name=st.sampled_from(QUICK),
        mode=st.sampled_from(["eager", "lazy"]),
        seed=st.integers(0, 1000),
        failure_rate=st.sampled_from([0.0, 0.0, 0.1]),
        host_prompts=st.sampled_from([1.5, 3.0, 8.0]),
        device_prompts=st.sampled_from([1.0, 1.5, 3.0]),
        async_scheduling=st.booleans(),
        is_v2=st.booleans(),
        num_connectors=st.sampled_from([1, 1, 2]),
    )
    def start_engine(self, name, seed, **options):
        self.oracle = start(name, seed, **options)

    @rule(count=st.integers(1, 3))
    def requests_arrive(self, count):
        for _ in range(count):
            self.oracle.apply(self.oracle.driver.arrival())

    @rule(count=st.integers(1, 12))
    def engine_runs(self, count):
        self.oracle.apply(events.Steps(count))

    @rule(choose=st.sampled_from(["abort", "reset", "forget", "session_input"]))
    def something_happens(self, choose):
        event = getattr(self.oracle.driver, choose)()
        if event is not None:
            self.oracle.apply(event)

    @rule(slowness=st.sampled_from([0.0, 0.5, 0.95]))
    def copies_change_speed(self, slowness):
        self.oracle.apply(events.Speed(slowness))

    @invariant()
    def index_is_whole(self):
        if hasattr(self, "oracle"):
            self.oracle.check()

    def teardown(self):
        if hasattr(self, "oracle"):
            try:
                self.oracle.apply(events.Finish())
            finally:
                self.oracle.close()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_run_replays_exactly(ahead):
    """The same seed gives the same figures, so a failure can be looked at again."""
    figures = []
    for _ in range(2):
        oracle = start("three-windows", 5, failure_rate=0.05, async_scheduling=ahead)
        figures.append(oracle.run(150).describe())
        oracle.close()
    assert figures[0] == figures[1]


def test_a_store_that_copies_a_wrong_block_is_seen(monkeypatch):
    """The oracle can fail: with a planted fault, a step reads wrong bytes."""
    oracle = start("three-windows", 3, host_prompts=8.0)
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


@pytest.mark.interpreted
def test_a_pin_that_is_never_released_is_seen(monkeypatch):
    """The oracle can fail: a leaked reference is reported at the end."""
    oracle = start("llama-3.1-8b", 3)
    monkeypatch.setattr(oracle.planner.index, "unpin", lambda node: None)
    oracle.apply(events.Arrive("r1", (("p", 0, 100),), new_tokens=1))
    with pytest.raises(LeakError, match="pinned nodes"):
        oracle.apply(events.Finish())
    oracle.close()


def test_a_load_that_never_ends_is_seen(monkeypatch):
    """The oracle can fail: a request that waits for ever is a hang."""
    monkeypatch.setattr("kvcellar.testing.oracle.oracle.HANG_STEPS", 50)
    oracle = start("llama-3.1-8b", 3, meddles=False)
    prompt = (("p", 0, 100),)
    oracle.apply(events.Arrive("r1", prompt, new_tokens=1))
    oracle.apply(events.Steps(20))
    oracle.apply(events.Forget(1.0, seed=0))
    monkeypatch.setattr(oracle.transfers, "poll", list)
    oracle.apply(events.Arrive("r2", prompt, new_tokens=1))
    with pytest.raises(HangError, match="1 requests wait"):
        oracle.apply(events.Steps(60))
    oracle.close()


def test_a_wrong_count_of_computed_tokens_is_seen():
    """The oracle can fail: engine and worker must count alike."""
    oracle = start("llama-3.1-8b", 3, meddles=False)
    oracle.apply(events.Arrive("r1", (("p", 0, 40),), new_tokens=5))
    oracle.apply(events.Steps(2))
    oracle.runner.rows["r1"].computed -= 1
    with pytest.raises(OutOfStepError, match="the engine counts 41 computed tokens"):
        oracle.apply(events.Steps(1))
    oracle.close()
