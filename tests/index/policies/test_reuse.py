"""What is learnt of reuse, and the order that follows from it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.index.policies.reuse import (
    EDGES,
    NUM_AGES,
    RANKED_EVERY,
    ReuseTimes,
    age_band,
    class_of,
)

LONG = 1_000_000  # chunks; nothing is given up


def chain(name, length):
    """A prompt that shares nothing with others."""
    return [f"{name}:{i}".encode() for i in range(length)]


def paths():
    """Prompts over a small tree: a path is its own prefixes' names."""
    steps = st.lists(st.integers(0, 2), min_size=1, max_size=7)
    return steps.map(lambda s: [bytes(s[: i + 1]) for i in range(len(s))])


def runs_below(run):
    return [run, *(r for child in run.children.values() for r in runs_below(child))]


@settings(max_examples=100, deadline=None)
@given(
    prompts=st.lists(st.tuples(paths(), st.integers(0, 60)), max_size=150),
    most_chunks=st.sampled_from([5, 12, LONG]),
)
def test_every_run_waits_in_the_class_of_its_history(prompts, most_chunks):
    """Whatever was split, given up or ranked meanwhile."""
    times, now = ReuseTimes(most_chunks), 0.0
    for keys, pause in prompts:
        now += pause
        times.observe(keys, 0, now)
    times._enter_noted()
    runs = runs_below(times._root)[1:]
    expected = np.zeros(len(times._waiting))
    for run in runs:
        expected[class_of(run.num_uses, run.depth)] += 1
    assert expected.tolist() == times._waiting.sum(axis=1).tolist()
    assert sum(len(run.keys) for run in runs) == times._num_chunks
    longest = max((len(keys) for keys, _ in prompts), default=0)
    assert times._num_chunks <= max(most_chunks, longest)


@given(st.floats(0.0, 1e6))
def test_a_time_lies_between_the_edges_of_its_band(seconds):
    """The last band has no upper one."""
    band = age_band(seconds)
    assert EDGES[band] <= seconds + 1e-6
    assert band == NUM_AGES - 1 or seconds <= EDGES[band + 1] + 1e-6


def rhythm(num_local=0):
    """Prompts of 8 chunks that come twice, ten seconds apart; others of 2 just once."""
    times = ReuseTimes(LONG)
    for number in range(600):
        now = 10.0 * number
        times.observe(chain(f"twice{number}", 8), 0, now)
        times.observe(chain(f"once{number}", 2), 0, now + 1.0)
        times.observe(chain(f"twice{number - 1}", 8), num_local, now + 0.5)
    return times


def density(times, num_uses, depth, age):
    return times.density[class_of(num_uses, depth)][age_band(age)]


def test_what_will_be_used_is_worth_more_than_what_will_not():
    """Before its time has come; and after it, no more than the rest."""
    times = rhythm()
    assert density(times, 1, 8, 3.0) > 10 * density(times, 1, 2, 3.0)
    assert density(times, 1, 8, 3.0) > 10 * density(times, 1, 8, 60.0)
    assert density(times, 1, 8, 3.0) > 10 * density(times, 2, 8, 3.0)


def test_the_nearer_the_use_the_more_it_is_worth():
    """Room that is taken for a shorter time is worth more per second."""
    times = rhythm()
    assert density(times, 1, 8, 8.0) > density(times, 1, 8, 4.0)
    assert density(times, 1, 8, 4.0) > density(times, 1, 8, 0.0)


def test_uses_that_the_device_serves_earn_nothing():
    """Then nothing is worth more than anything else."""
    times = rhythm(num_local=8)
    assert density(times, 1, 8, 3.0) == pytest.approx(density(times, 1, 2, 3.0))


def test_a_prompt_learns_when_it_was_used_before():
    """As far as it is known; what is new has not been."""
    times = ReuseTimes(LONG)
    assert 1.0 == times.observe(chain("a", 4), 0, 1.0)
    assert 1.0 == times.observe([*chain("a", 2), b"b"], 0, 3.0)
    assert 3.0 == times.observe(chain("a", 2), 0, 4.0)


def test_a_small_cache_follows_more_than_it_could_ever_hold():
    """Its uses come long after it has forgotten."""
    times = ReuseTimes.of_cache(10)
    for number in range(100):
        times.observe(chain(str(number), 10), 0, float(number))
    assert 0.0 == times.observe(chain("0", 10), 0, 1000.0)


def test_epochs_in_which_nothing_waits_are_forgotten():
    """However long a server runs, it keeps no more than what is followed."""
    times = ReuseTimes(most_chunks=100)
    for number in range(RANKED_EVERY * 40):
        times.observe(chain(str(number), 4), 0, float(number))
    assert times._waiting.shape[1] <= 3
