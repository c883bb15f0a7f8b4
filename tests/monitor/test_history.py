"""How totals grew, by the engine's own clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from status_answers import answer, engine, recorded

from kvcellar.monitor.engine_answer import read_status
from kvcellar.monitor.history import KEPT_SECONDS, EngineHistory


def history_of(*engines):
    history = EngineHistory()
    for one in engines:
        history.add(*read_status(answer(one)))
    return history


STEPS = st.lists(
    st.tuples(st.floats(0.05, 30), st.integers(0, 1000)), min_size=1, max_size=30
)


def grown(steps):
    """A history of one total, with what was added in all."""
    at, total, engines = 1.0, 5, [engine(1.0, {"a": 5})]
    for seconds, added in steps:
        at, total = at + seconds, total + added
        engines.append(engine(at, {"a": total}))
    return history_of(*engines)


def test_rates_are_growth_by_the_engines_clock():
    """Over the window, from the sample before its begin."""
    history = history_of(*(engine(s, {"a": 10 * s}) for s in range(1, 31)))
    window = history.window(10)
    assert (10, 100, 10) == (window.seconds, window.get("a"), window.per_second("a"))
    assert 29 == history.window(1000).seconds
    since_start = history.window(None)
    assert (30, 300) == (since_start.seconds, since_start.get("a"))


def test_one_sample_says_nothing_yet():
    """No rate is made up."""
    history = history_of(engine(100, {"a": 7}))
    assert history.is_short
    window = history.window(60)
    assert (0, 0, 0) == (window.seconds, window.get("a"), window.per_second("a"))
    assert [None] * 4 == history.slots(4, 1, ["a"])


def test_a_new_total_began_at_nothing():
    """A reason that had no token before is not in the samples before."""
    history = history_of(engine(1, {}), engine(2, {"a": 3}))
    assert 3 == history.window(60).get("a")


@pytest.mark.parametrize(
    "again",
    [
        engine(2, {"a": 1}, process_id=8),
        engine(2, {"a": 1}),
        engine(200, {"a": 70}, process_id=8),
    ],
)
def test_an_engine_that_was_started_again_begins_anew(again):
    """Another process, or a younger one: no rate goes below zero."""
    history = history_of(engine(90, {"a": 50}), engine(99, {"a": 60}), again)
    assert history.is_short
    assert 1 == history.num_restarts
    assert 0 == history.window(60).get("a")


def test_the_servers_own_history_fills_in():
    """What came before the first answer, and what was missed while paused."""
    past = [{"uptime_seconds": s, "totals": {"a": s}} for s in range(1, 10)]
    history = history_of(engine(10, {"a": 10}, history=past))
    assert 9 == history.window(60).get("a")
    missed = [{"uptime_seconds": s, "totals": {"a": s}} for s in range(5, 30)]
    history.add(*read_status(answer(engine(30, {"a": 30}, history=missed))))
    assert [1.0] * 10 == [slot["a"] for slot in history.slots(11, 1, ["a"])[:-1]]


def test_reset_lets_the_window_begin_now():
    """Only the newest sample is left to compare with, and old ones do not return."""
    history = history_of(*(engine(s, {"a": s}) for s in range(1, 31)))
    history.reset()
    assert 0 == history.window(60).seconds
    past = [{"uptime_seconds": s, "totals": {"a": s}} for s in range(1, 31)]
    history.add(*read_status(answer(engine(33, {"a": 40}, history=past))))
    assert (3, 10) == (history.window(60).seconds, history.window(60).get("a"))


def test_samples_are_bounded():
    """By time, whatever the interval."""
    seconds = range(1, 3 * int(KEPT_SECONDS), 60)
    history = history_of(*(engine(s, {"a": s}) for s in seconds))
    window = history.window(10 * KEPT_SECONDS)
    assert KEPT_SECONDS <= window.seconds <= KEPT_SECONDS + 60


@given(STEPS)
def test_slots_add_up_to_the_growth(steps):
    """Nothing is lost or counted twice when growth is spread over slots."""
    history = grown(steps)
    number = int(history.latest.uptime_seconds // 2) + 1
    slots = history.slots(number, 2.0, ["a"])
    begin, end = 1.0, history.latest.uptime_seconds
    total = 0.0
    for at, slot in enumerate(slots):
        inside = min(end, 2.0 * at + 2) - max(begin, 2.0 * at)
        total += (slot["a"] if slot else 0.0) * max(inside, 0.0)
    assert total == pytest.approx(sum(added for _, added in steps), abs=1e-6)


@given(STEPS, st.floats(0.1, 600))
def test_no_rate_is_negative_or_over_the_growth(steps, window_seconds):
    """A window has at most what was added, over at least what it asks for."""
    window = grown(steps).window(window_seconds)
    assert 0 <= window.get("a") <= sum(added for _, added in steps)
    assert window.seconds >= min(window_seconds, sum(s for s, _ in steps)) - 1e-9


def test_recorded_rates_equal_the_servers_own():
    """Ten seconds here are the ten seconds that the server works out itself."""
    (one,) = read_status(recorded())
    history = EngineHistory()
    history.add(one)
    theirs = one.number("rates", "per_second", "prompt_tokens_host")
    ours = history.window(one.number("rates", "window_seconds"))
    assert theirs == pytest.approx(ours.per_second("prompt_tokens_host"), rel=0.15)
