"""When requests arrive: what a trace leaves open, and what a user may assume."""

import logging
import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvcellar.errors import ConfigError

Seconds: TypeAlias = NDArray[np.float64]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Assumptions about arrival times.

    Attributes:
        jitter_seconds: step of coarse time stamps (Mooncake's is about 3 s); requests
            that share a stamp are spread over it, see `spread`. None changes nothing.
        seed: of everything random here.
        sessions_per_second: rate of the Poisson process by which sessions start, for
            traces without a common clock; None starts all at 0.
        max_gap_seconds: longest pause inside such a session; None keeps all.
    """

    jitter_seconds: float | None = None
    seed: int = 0
    sessions_per_second: float | None = 0.05
    max_gap_seconds: float | None = 60.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigError: a number that is not finite or not above zero.
        """
        for name in ("jitter_seconds", "sessions_per_second", "max_gap_seconds"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} is {value}, expected a number above zero")


def settle(
    seconds: Seconds, arrivals: Arrivals, *, is_absolute: bool
) -> tuple[NDArray[np.int64], Seconds]:
    """Put requests in the order of arrival.

    A request without a time (NaN) arrives with the one before it in the file, those at
    the head with the first that has one, and all at 0 where none has one. Times that go
    backwards are sorted; requests that share a time keep the order of the file.

    Args:
        seconds: times as recorded, in the order of the file, ``[num_requests]``.
        arrivals: what to assume.
        is_absolute: the times count from some clock's zero; the first becomes 0.

    Returns:
        Positions in the file in the order of arrival, and their times.
    """
    filled = _fill(seconds)
    order = np.argsort(filled, kind="stable")
    num_back = int(np.count_nonzero(np.diff(filled) < 0))
    if num_back:
        logger.info("arrival times step back %d times: sorted", num_back)
    ordered = filled[order]
    if is_absolute and len(ordered):
        ordered = ordered - ordered[0]
    if arrivals.jitter_seconds is not None:
        ordered = spread(ordered, arrivals.jitter_seconds, arrivals.seed)
    return order, ordered


def _fill(seconds: Seconds) -> Seconds:
    known = np.flatnonzero(~np.isnan(seconds))
    if not len(known):
        return np.zeros_like(seconds)
    source = np.searchsorted(known, np.arange(len(seconds)), side="right") - 1
    filled: Seconds = seconds[known[np.maximum(source, 0)]]
    return filled


def spread(seconds: Seconds, step_seconds: float, seed: int) -> Seconds:
    """Spread requests that share a time stamp, uniformly from it to the next one.

    Each moves forward by less than ``step_seconds`` and stays before the next stamp;
    the order does not change. The same seed gives the same times.
    """
    stamps, counts = np.unique(seconds, return_counts=True)
    widths = np.full(len(stamps), step_seconds)
    widths[:-1] = np.minimum(widths[:-1], np.diff(stamps))
    draws = np.random.default_rng(seed).random(len(seconds))
    group = np.repeat(np.arange(len(stamps)), counts)
    draws = draws[np.lexsort((draws, group))]  # ascending within each stamp
    spread_seconds: Seconds = seconds + draws * widths[group]
    return spread_seconds
