"""Time short calls: no garbage collection in between, medians of many.

Medians are of wall time. Where every call must count, as in a mean or a sum, it is the
processor time of this thread: there the turns of other processes would count too.
"""

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
        laps_ns: wall nanoseconds of every call so far.
        processor_ns: processor nanoseconds of all of them together.
    """

    laps_ns: list[int] = field(default_factory=list)
    processor_ns: int = 0

    def time(self, call: Callable[[], T]) -> T:
        """Run ``call`` once and remember how long it took."""
        processor_started = time.thread_time_ns()
        started = time.perf_counter_ns()
        result = call()
        self.laps_ns.append(time.perf_counter_ns() - started)
        self.processor_ns += time.thread_time_ns() - processor_started
        return result

    @property
    def total_us(self) -> float:
        """Processor microseconds of all calls together."""
        return self.processor_ns / 1e3

    @property
    def mean_us(self) -> float:
        """Processor microseconds of the average call."""
        return self.processor_ns / 1e3 / len(self.laps_ns)

    @property
    def median_us(self) -> float:
        """Wall microseconds of the middle call."""
        return statistics.median(self.laps_ns) / 1e3


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))
