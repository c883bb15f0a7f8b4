"""From a figure to a pixel, and where the ticks are."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_NUM_TICKS = 5
_NICE_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_LOG_FROM_RATIO = 30.0  # a linear axis shows nothing of values this far apart


class Tick(NamedTuple):
    """A mark on an axis."""

    place: float
    label: str


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis.

    Attributes:
        place: position of a value, from 0 to 1.
        ticks: with places from 0 to 1.
    """

    place: Callable[[float], float]
    ticks: tuple[Tick, ...]


def linear_scale(highest: float, label: Callable[[float], str]) -> Scale:
    """From 0 to a round number at or above ``highest``."""
    highest = highest if highest > 0 else 1.0
    rough = highest / _NUM_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in _NICE_STEPS if power * n >= rough * (1 - 1e-9))
    num_steps = math.ceil(highest / step - 1e-9)
    end = step * num_steps
    ticks = [Tick(i / num_steps, label(step * i)) for i in range(num_steps + 1)]
    return Scale(lambda value: value / end, tuple(ticks))


def log_scale(lowest: float, highest: float, label: Callable[[float], str]) -> Scale:
    """Powers of ten around positive values."""
    first = math.floor(math.log10(lowest) + 1e-9)
    last = max(math.ceil(math.log10(highest) - 1e-9), first + 1)
    span = last - first
    ticks = [Tick((p - first) / span, label(10.0**p)) for p in range(first, last + 1)]
    return Scale(lambda value: (math.log10(value) - first) / span, tuple(ticks))


def value_scale(values: Sequence[float], label: Callable[[float], str]) -> Scale:
    """Linear from 0, or logarithmic where values are far apart."""
    lowest, highest = min(values, default=0.0), max(values, default=0.0)
    if lowest > 0 and highest / lowest >= _LOG_FROM_RATIO:
        return log_scale(lowest, highest, label)
    return linear_scale(highest, label)


def memory_scale(sizes: Sequence[float], label: Callable[[float], str]) -> Scale:
    """Sizes of memory by their logarithm; 0 stands one step left of the smallest.

    Each size has a tick, unless it would come too close to the one before.
    """
    ordered = sorted(set(sizes))
    logs = [math.log2(size) for size in ordered if size > 0]
    low, high = (logs[0], logs[-1]) if logs else (0.0, 0.0)
    gap = (high - low) / max(len(logs) - 1, 1) or 1.0
    start = low - gap if ordered[0] == 0 else low
    span = high - start

    def place(size: float) -> float:
        return (
            ((math.log2(size) if size > 0 else start) - start) / span if span else 0.5
        )

    ticks: list[Tick] = []
    for size in ordered:
        if not ticks or place(size) - ticks[-1].place >= _MIN_TICK_GAP:
            ticks.append(Tick(place(size), label(size)))
    return Scale(place, tuple(ticks))


_MIN_TICK_GAP = 0.11
