"""The time of a step, whether the engine schedules in turn or ahead."""

import pytest

pytest.importorskip("vllm")

from own_layouts import plan
from scripted import Scripted, prompt

from kvcellar.core import events
from kvcellar.integrations.vllm.step_times import MOST_UNDER_WAY, StepTime, StepTimes
from kvcellar.testing.oracle.layouts.specs import SMALL, full, stack


def test_in_turn_a_step_takes_from_its_beginning_to_its_end():
    """An idle time between two steps counts for neither."""
    times = StepTimes(1)
    times.begin(100, 4, 10.0)
    assert StepTime(100, 96, 2.0) == times.end(12.0)
    times.begin(50, 1, 100.0)
    assert StepTime(50, 49, 0.5) == times.end(100.5)
    assert times.end(101.0) is None


def test_ahead_a_step_begins_when_the_one_before_it_ends():
    """Scheduled at 10 and 11, ended at 15 and 18: five seconds and three."""
    times = StepTimes(2)
    times.begin(100, 50, 10.0)
    times.begin(30, 50, 11.0)
    assert StepTime(100, 0, 5.0) == times.end(15.0)
    assert StepTime(30, 0, 3.0) == times.end(18.0)


def test_steps_that_never_end_are_forgotten():
    """Nothing grows if the engine ends steps without a word."""
    times = StepTimes(1)
    for number in range(10 * MOST_UNDER_WAY):
        times.begin(number, 0, float(number))
    step = times.end(10_000.0)
    assert step is not None
    assert 9 * MOST_UNDER_WAY == step.num_tokens


@pytest.mark.interpreted
@pytest.mark.parametrize("ahead", [False, True])
def test_every_step_of_the_engine_is_paired(monkeypatch, ahead):
    """All tokens that were computed are told once, in steps that took some time."""
    layout = plan(
        stack("FF", F=full(SMALL, 16)),
        prompt_tokens=400,
        extra_config={"host_memory": "64MiB"},
        async_scheduling=ahead,
    )
    run, told = Scripted(layout), []
    handle = run.planner.handle
    monkeypatch.setattr(
        run.planner,
        "handle",
        lambda event, now: (told.append(event), handle(event, now))[1],
    )
    run.ask(prompt(400))
    steps = [e for e in told if isinstance(e, events.StepEnded)]
    assert 400 == sum(step.num_tokens for step in steps)
    assert all(step.seconds > 0 for step in steps)
    assert not run.side._step_times._under_way
    run.finish()
    run.close()
