"""What one way of running adds to another, from the same steps played by both.

Two means of hundreds of microseconds cannot be subtracted to find ten of them. So both
ways play the same step in turn, several times over, and a difference is taken step by
step. The step's figure is the middle one of its repeats, which leaves interruptions
out; the whole is the mean over all steps, so that no rare, expensive step is left out.

    repeat 0   step 0: b - a   step 1: b - a   ...
    repeat 1   step 0: b - a   step 1: b - a   ...
                 middle          middle         -> mean
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Played = Sequence[Sequence[float]]
"""Of one way of running, ``[num_repeats][num_steps]``; microseconds."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Of an average step.

    Attributes:
        us: microseconds.
        error_us: standard error of them, from how much the repeats differ.
    """

    us: float
    error_us: float


def average(played: Played) -> Figure:
    """What an average step takes.

    Raises:
        ValueError: the repeats are not of the same steps, or are fewer than two.
    """
    if len(played) < 2:
        raise ValueError(f"{len(played)} repeats have no spread; play two or more")
    us = _mean_of_middles(played)
    others = [
        _mean_of_middles([*played[:left_out], *played[left_out + 1 :]])
        for left_out in range(len(played))
    ]
    return Figure(us, _jackknife_error(others))


def added(ways: Played, without: Played) -> Figure:
    """What the steps take more than the same steps ``without``.

    Raises:
        ValueError: as ``average``, or one was repeated more often than the other.
    """
    return average(
        [
            [one - other for one, other in zip(steps, fewer, strict=True)]
            for steps, fewer in zip(ways, without, strict=True)
        ]
    )


def _mean_of_middles(played: Played) -> float:
    steps = zip(*played, strict=True)
    return statistics.fmean(statistics.median(of_step) for of_step in steps)


def _jackknife_error(others: Sequence[float]) -> float:
    """Standard error from the figures that come out with one repeat left out."""
    mean, count = statistics.fmean(others), len(others)
    return math.sqrt((count - 1) / count * sum((one - mean) ** 2 for one in others))
