"""Differences of the same steps: interruptions left out, rare expensive steps kept."""

import math
import random
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "paired.py"


@pytest.fixture(scope="module")
def paired():
    """The module, which is a file beside the scripts."""
    spec = spec_from_file_location("benchmarks_paired", PATH)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_rare_expensive_step_is_in_the_average(paired):
    """One step of a hundred costs a thousand more in every repeat: ten on average."""
    without = [[5.0] * 100 for _ in range(3)]
    ways = [[5.0] * 99 + [1005.0] for _ in range(3)]
    assert paired.Figure(10.0, 0.0) == paired.added(ways, without)


def test_an_interruption_in_one_repeat_is_left_out(paired):
    """It hits the same step in none of the others."""
    without = [[5.0] * 4 for _ in range(3)]
    ways = [[6.0, 6.0, 6.0, 6.0], [6.0, 9006.0, 6.0, 6.0], [6.0, 6.0, 6.0, 506.0]]
    assert 1.0 == paired.added(ways, without).us


def test_what_is_common_to_both_does_not_disturb(paired):
    """Steps of very different length, the same for both: the difference is exact."""
    lengths = [10.0, 200000.0, 30.0, 7.0]
    drift = [1.0, 1.5, 2.0]
    without = [[f * us for us in lengths] for f in drift]
    ways = [[f * us + 3.0 for us in lengths] for f in drift]
    found = paired.added(ways, without)
    assert math.isclose(3.0, found.us)
    assert found.error_us < 1e-9


def test_the_error_is_what_repeats_differ_by(paired):
    """One step, repeats of 1 and 3: the standard error of the mean of two values."""
    found = paired.average([[1.0], [3.0]])
    assert (2.0, 1.0) == (found.us, found.error_us)


def test_noise_is_told_as_an_error(paired):
    """The true difference lies within four standard errors of what is found."""
    rng = random.Random(1)

    def play(us):
        return [[us + rng.gauss(0, 50) for _ in range(100)] for _ in range(5)]

    found = paired.added(play(1020.0), play(1000.0))
    assert 0 < found.error_us < 20
    assert abs(found.us - 20) < 4 * found.error_us


def test_one_repeat_has_no_spread(paired):
    """An error cannot be told, so nothing is."""
    with pytest.raises(ValueError, match="1 repeats have no spread"):
        paired.average([[1.0, 2.0]])


def test_repeats_are_of_the_same_steps(paired):
    """A step that one of them lacks has no pair."""
    with pytest.raises(ValueError, match="shorter"):
        paired.added([[1.0], [1.0, 2.0]], [[1.0], [1.0]])
