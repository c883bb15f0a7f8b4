"""Time short calls: no garbage collection in between, medians of many."""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def quiet_interpreter() -> Iterator[None]:
    """Collect garbage once, then not again until the block ends."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(slots=True)
class Stopwatch:
    """Collects the time of single calls.

    Attributes:
        laps_ns: nanoseconds of every call so far.
    """

    laps_ns: list[int] = field(default_factory=list)

    def time(self, call: Callable[[], T]) -> T:
        """Run ``call`` once and remember how long it took."""
        started = time.perf_counter_ns()
        result = call()
        self.laps_ns.append(time.perf_counter_ns() - started)
        return result

    @property
    def total_us(self) -> float:
        """Microseconds of all calls together."""
        return sum(self.laps_ns) / 1e3

    @property
    def mean_us(self) -> float:
        """Microseconds of the average call."""
        return statistics.fmean(self.laps_ns) / 1e3

    @property
    def median_us(self) -> float:
        """Microseconds of the middle call."""
        return statistics.median(self.laps_ns) / 1e3


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))
