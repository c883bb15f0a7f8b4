"""Load or recompute: by given rates, stable, and loading where nothing is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planner_workload import make_engine

from kvcellar.core import events
from kvcellar.core.cost import (
    FEWEST_SEEN,
    MARGIN,
    STALE_SECONDS,
    LoadChoice,
    LoadCost,
    Rate,
    load_bytes,
)

SHORT, CHEAP, LOAD = LoadChoice.TOO_SHORT, LoadChoice.TOO_CHEAP, LoadChoice.LOAD


def measured(bytes_per_second, tokens_per_second, *, now=0.0, min_load_tokens=0):
    """A cost rule that has seen these rates, just often enough."""
    cost = LoadCost(min_load_tokens, is_measured=True)
    for _ in range(FEWEST_SEEN):
        cost.loaded.observe(bytes_per_second, 1.0, now)
        cost.step_ended(tokens_per_second, tokens_per_second, 1.0, now)
    return cost


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(0, LOAD), (1000, LOAD), (1249, LOAD), (1251, CHEAP), (10**9, CHEAP)],
)
def test_a_load_is_given_up_only_if_recomputing_is_clearly_faster(num_bytes, expected):
    """100 tokens take a second; loads of 1,000 bytes per second may take 1.25."""
    cost = measured(1000.0, 100)
    assert MARGIN == 1.25
    assert expected is cost.choose(100, lambda: num_bytes, 0.0)


def test_nothing_is_given_up_before_both_rates_are_known():
    """Seven measurements of either are not enough, nor is one rate alone."""
    for num_loads, num_steps in ((7, 8), (8, 7), (0, 8), (8, 0)):
        cost = LoadCost(0, is_measured=True)
        for _ in range(num_loads):
            cost.loaded.observe(1.0, 1.0, 0.0)
        for _ in range(num_steps):
            cost.step_ended(10**6, 10**6, 1.0, 0.0)
        assert LOAD is cost.choose(1, lambda: 10**9, 0.0)


def test_bytes_are_counted_only_if_they_matter():
    """Before there are measurements a look-up pays nothing for the rule."""
    LoadCost(0, is_measured=True).choose(10, lambda: 1 // 0, 0.0)
    LoadCost(11, is_measured=True).choose(10, lambda: 1 // 0, 0.0)


def test_the_static_bound_holds_whatever_is_measured():
    """Fewer than ``min_load_tokens``: not loaded, however fast loads are."""
    cost = measured(10.0**12, 1, min_load_tokens=64)
    assert [SHORT, LOAD] == [cost.choose(n, lambda: 1, 0.0) for n in (63, 64)]


def test_the_rule_can_be_switched_off():
    """``cost_rule`` false: everything is loaded, measured or not."""
    cost = LoadCost(0, is_measured=False)
    for _ in range(100):
        cost.loaded.observe(1.0, 1.0, 0.0)
        cost.step_ended(10**6, 10**6, 1.0, 0.0)
    assert LOAD is cost.choose(1, lambda: 10**9, 0.0)


def test_an_old_rate_is_not_known_and_one_load_measures_again():
    """Loading cannot be turned off for good: after a minute it is tried again."""
    cost = measured(1.0, 10**6)
    assert CHEAP is cost.choose(1000, lambda: 1000, STALE_SECONDS)
    later = STALE_SECONDS + 1.0
    for _ in range(FEWEST_SEEN):
        cost.step_ended(10**6, 10**6, 1.0, later)
    assert LOAD is cost.choose(1000, lambda: 1000, later)
    cost.loaded.observe(10**9, 1.0, later)  # the slow moment is over
    assert LOAD is cost.choose(1000, lambda: 1000, later)
    slow = measured(1.0, 10**6)
    slow.loaded.observe(1.0, 1.0, later)  # it is not
    for _ in range(FEWEST_SEEN):
        slow.step_ended(10**6, 10**6, 1.0, later)
    assert CHEAP is slow.choose(1000, lambda: 1000, later)


def test_decoding_says_nothing_about_prefill():
    """A step of 200 decoded tokens, or of mostly such, is no measurement."""
    cost = measured(1000.0, 100)
    for _ in range(1000):
        cost.step_ended(200, 0, 100.0, 0.0)
        cost.step_ended(200, 99, 100.0, 0.0)
        cost.step_ended(63, 63, 100.0, 0.0)
    assert pytest.approx(100.0) == cost.computed.per_second(0.0)


@given(
    st.lists(
        st.tuples(st.floats(1, 1e12), st.floats(1e-6, 1e3), st.floats(0, 100)),
        min_size=FEWEST_SEEN,
        max_size=60,
    )
)
def test_a_rate_lies_between_the_slowest_and_the_fastest_it_has_seen(seen):
    """Whatever is measured, and however it fades."""
    rate, now = Rate(), 0.0
    for amount, seconds, pause in seen:
        now += pause
        rate.observe(amount, seconds, now)
    rates = [amount / seconds for amount, seconds, _ in seen]
    found = rate.per_second(now)
    assert found is not None
    assert min(rates) * (1 - 1e-9) <= found <= max(rates) * (1 + 1e-9)


def test_measurements_that_scatter_do_not_make_the_choice_flap():
    """Rates that scatter by a half around 2 : 1 never change the answer."""
    rng, cost, now = random.Random(0), measured(2000.0, 100), 0.0
    answers = set()
    for _ in range(2000):
        now += rng.uniform(0, 2)
        cost.loaded.observe(rng.uniform(1000, 3000), 1.0, now)
        cost.step_ended(rng.randint(64, 136), 64, 1.0, now)
        answers.add(cost.choose(100, lambda: 1000, now))
    assert {LOAD} == answers


def slow_loads(engine):
    """Let the planner believe that loads take for ever and prefill no time."""
    now = engine._now
    for _ in range(FEWEST_SEEN):
        engine.offloader.cost.loaded.observe(1.0, 10.0, now)
        step = events.StepEnded(10**6, 10**6, 1e-3)
        engine.offloader.handle(step, now)


@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_a_request_keeps_its_answer_while_it_waits(name):
    """Asked again and again it is told the same, though the rates have changed."""
    engine = make_engine(name)
    tokens = [1] * (3 * engine.layout.chunk_tokens) + [2]
    first = engine.start("first", list(tokens))
    engine.compute(first, len(tokens))
    engine.finish(first)
    engine.run_jobs()
    loaded = engine.start("loaded", list(tokens), accept=False)
    assert engine.look_up(loaded) == 3 * engine.layout.chunk_tokens
    slow_loads(engine)
    assert engine.look_up(loaded) == 3 * engine.layout.chunk_tokens
    engine.finish(loaded)
    cheap = engine.start("cheap", list(tokens), accept=False)
    assert 0 == cheap.num_computed == engine.look_up(cheap)
    engine._now += 2 * STALE_SECONDS
    assert 0 == engine.look_up(cheap)
    engine.finish(cheap)
    again = engine.start("again", list(tokens))
    assert 3 * engine.layout.chunk_tokens == again.num_computed
    engine.run_jobs()
    counters = engine.offloader.counters
    assert (1, 0) == (counters.chosen_loads, counters.short_loads)
    assert counters.cheap_recomputes == 1


@pytest.mark.parametrize("name", ["full", "gemma", "deepseek-v4-like"])
def test_loads_are_measured_by_the_bytes_they_copied(name):
    """What the rule reckons beforehand is what the job then copies, at most."""
    engine = make_engine(name)
    chunk = engine.layout.chunk_tokens
    tokens = [1] * (3 * chunk) + [2]
    first = engine.start("first", list(tokens))
    engine.compute(first, len(tokens))
    engine.finish(first)
    engine.run_jobs()
    engine.start("again", list(tokens))
    ((job_id, record),) = engine.offloader.jobs.items()
    index = engine.offloader.index
    assert record.num_bytes == load_bytes(index, record.node, 0)
    (load,) = engine.queue
    done = events.JobDone(load.job_id, seconds=0.5)
    engine.offloader.handle(done, engine._now)
    engine.queue.clear()
    assert job_id == load.job_id
    assert 2 * record.num_bytes == engine.offloader.cost.loaded.latest
