"""Arrival times: order, gaps in what is known, and jitter."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.errors import ConfigError
from kvcellar.replay.readers.arrivals import Arrivals, settle, spread

STAMPS = st.lists(st.sampled_from([0.0, 3.0, 6.0, 6.5, 100.0]), min_size=1).map(sorted)


@given(STAMPS, st.floats(0.001, 50), st.integers(0, 5))
def test_jitter_stays_inside_the_step_and_keeps_the_order(stamps, step, seed):
    """Moved forward by less than the step, never past the next stamp, never back."""
    recorded = np.array(stamps)
    moved = spread(recorded, step, seed)
    assert (np.diff(moved) >= 0).all()
    assert (moved >= recorded).all()
    assert (moved - recorded <= step).all()
    for one, other in zip(sorted(set(stamps)), sorted(set(stamps))[1:], strict=False):
        assert moved[recorded == one].max() <= other
    assert np.array_equal(moved, spread(recorded, step, seed))


def test_jitter_is_uniform_over_the_step_and_depends_on_the_seed():
    """Ten thousand requests on one stamp fill every tenth of the step alike."""
    recorded = np.zeros(10_000)
    moved = spread(recorded, 3.0, 1)
    counts, _ = np.histogram(moved, bins=10, range=(0.0, 3.0))
    assert counts.sum() == 10_000
    assert (abs(counts - 1000) < 150).all()
    assert not np.array_equal(moved, spread(recorded, 3.0, 2))


def test_jitter_of_a_trace_is_the_one_asked_for():
    """Without it times stay as they are; with it they move, in their order."""
    recorded = np.array([3.0, 0.0, 0.0])
    order, plain = settle(recorded, Arrivals(), is_absolute=False)
    assert ([1, 2, 0], [0.0, 0.0, 3.0]) == (order.tolist(), plain.tolist())
    same_order, moved = settle(recorded, Arrivals(jitter_seconds=3), is_absolute=False)
    assert order.tolist() == same_order.tolist()
    assert 0 < moved[0] < moved[1] < 3.0 < moved[2]


@pytest.mark.parametrize(
    ("recorded", "settled"),
    [
        ([math.nan, math.nan], [0.0, 0.0]),
        ([math.nan, 50.0, math.nan, 51.0], [0.0, 0.0, 0.0, 1.0]),
        ([], []),
    ],
)
def test_requests_without_a_time_arrive_with_their_neighbour(recorded, settled):
    """The one before counts, at the head the first that is known, or else zero."""
    _, seconds = settle(np.array(recorded), Arrivals(), is_absolute=True)
    assert settled == seconds.tolist()


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "name", ["jitter_seconds", "sessions_per_second", "max_gap_seconds"]
)
def test_impossible_assumptions_are_refused(name, value):
    """The message names the setting."""
    with pytest.raises(ConfigError, match=f"{name} is .*above zero"):
        Arrivals(**{name: value})
