"""Time short calls: no garbage collection in between, medians of many.

Short calls are timed by the wall clock. Where a call takes long enough to be
interrupted, or each one counts, as in a mean, it is the processor time of this thread:
the wall clock would count the turns of other processes too.
"""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
processor_ns = time.thread_time_ns
"""Nanoseconds that this thread has run so far."""

LONG_CALL_NS = 200_000  # reading the thread's clock costs too much below this


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
        processor_laps_ns: processor nanoseconds of the same calls.
    """

    laps_ns: list[int] = field(default_factory=list)
    processor_laps_ns: list[int] = field(default_factory=list)

    def time(self, call: Callable[[], T]) -> T:
        """Run ``call`` once and remember how long it took."""
        processor_started = processor_ns()
        started = time.perf_counter_ns()
        result = call()
        self.laps_ns.append(time.perf_counter_ns() - started)
        self.processor_laps_ns.append(processor_ns() - processor_started)
        return result

    @property
    def total_us(self) -> float:
        """Processor microseconds of all calls together."""
        return sum(self.processor_laps_ns) / 1e3

    @property
    def mean_us(self) -> float:
        """Processor microseconds of the average call."""
        return statistics.fmean(self.processor_laps_ns) / 1e3

    @property
    def median_us(self) -> float:
        """Microseconds of the middle call; processor time if it is a long one."""
        wall_ns = statistics.median(self.laps_ns)
        if wall_ns < LONG_CALL_NS:
            return wall_ns / 1e3
        return statistics.median(self.processor_laps_ns) / 1e3


class Turns:
    """Processor time of one of those who carry out the same steps, step by step.

    Attributes:
        steps_us: of every step that has ended.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget all steps."""
        self.steps_us: list[float] = []
        self._now_ns = 0

    def time(self, call: Callable[[], T]) -> T:
        """Run ``call``; it belongs to the step that ends next."""
        started = processor_ns()
        result = call()
        self._now_ns += processor_ns() - started
        return result

    def end(self) -> None:
        """The step has ended."""
        self.steps_us.append(self._now_ns / 1e3)
        self._now_ns = 0


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return float(statistics.median(values))
