"""How one engine's totals grew: over a window, and slot by slot.

All times are the engine's own clock, so a slow network or a paused view bends no rate.
An engine that was started again begins a new history.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvcellar.monitor.engine_answer import EngineAnswer, Sample

KEPT_SECONDS = 3600.0
_MOST_SAMPLES = 8000
_LEAST_SAMPLES = 2
_PREFILL_RATE = "kvcellar_measured_prefill_tokens_per_second"


@dataclass(frozen=True, slots=True)
class Growth:
    """What was added to the totals within some seconds.

    Attributes:
        seconds: of the engine's clock; 0 with nothing to compare.
    """

    seconds: float
    totals: dict[str, float]

    def get(self, name: str) -> float:
        """How much one total grew."""
        return self.totals.get(name, 0.0)

    def per_second(self, name: str) -> float:
        """How fast one total grew."""
        return self.get(name) / self.seconds if self.seconds > 0 else 0.0


class EngineHistory:
    """The latest samples of one engine.

    Attributes:
        num_restarts: how often another engine took its place.
        best_prefill: most prefill tokens per second that it has measured. Where little
            is left to compute, a step's fixed time makes the latest rate look slow.
    """

    def __init__(self) -> None:
        self._identity: int | None = None
        self._samples: deque[Sample] = deque(maxlen=_MOST_SAMPLES)
        self.num_restarts = 0
        self.best_prefill = 0.0

    def add(self, answer: EngineAnswer) -> None:
        """Take in an answer; what it says of the time before, only if that is new."""
        if self._is_other(answer):
            self.num_restarts += self._identity is not None
            self._samples.clear()
            self.best_prefill = 0.0
        measured = answer.number("counters", _PREFILL_RATE)
        self.best_prefill = max(self.best_prefill, measured)
        self._identity = answer.identity
        for sample in (*answer.history, answer.sample):
            self._append(sample)

    def reset(self) -> None:
        """Let windows begin now."""
        while len(self._samples) > 1:
            self._samples.popleft()

    @property
    def latest(self) -> Sample:
        """The newest sample; there is one once an answer was added."""
        return self._samples[-1]

    @property
    def is_short(self) -> bool:
        """Whether there is nothing to compare the newest sample with."""
        return len(self._samples) < _LEAST_SAMPLES

    def window(self, seconds: float | None) -> Growth:
        """Growth over the last seconds, or as many as are known; None: since start."""
        if seconds is None:
            return Growth(self.latest.uptime_seconds, dict(self.latest.totals))
        begin = self.latest.uptime_seconds - seconds
        start = self.latest
        for sample in reversed(self._samples):
            start = sample
            if sample.uptime_seconds <= begin:
                break
        return growth(start, self.latest)

    def slots(
        self, number: int, slot_seconds: float, names: Sequence[str]
    ) -> list[dict[str, float] | None]:
        """Growth per second in each slot of time, the newest last; None if unknown.

        Slots begin at multiples of their length, so a picture moves by whole slots. The
        growth between two samples is spread evenly over the time between them.
        """
        newest = math.floor(self.latest.uptime_seconds / slot_seconds)
        first = newest - number + 1
        seconds = [0.0] * number
        grown = [dict.fromkeys(names, 0.0) for _ in seconds]
        for earlier, later in self._pairs(first * slot_seconds):
            added = growth(earlier, later, names)
            for slot, inside in _spread(earlier, later, slot_seconds, first):
                seconds[slot - first] += inside
                for name in names:
                    share = inside / added.seconds
                    grown[slot - first][name] += share * added.get(name)
        return [
            {name: value / spent for name, value in slot.items()} if spent else None
            for slot, spent in zip(grown, seconds, strict=True)
        ]

    def _pairs(self, begin: float) -> Iterator[tuple[Sample, Sample]]:
        """Neighbouring samples, from the newest back to the first that matters."""
        for later, earlier in pairwise(reversed(self._samples)):
            yield earlier, later
            if earlier.uptime_seconds <= begin:
                return

    def _is_other(self, answer: EngineAnswer) -> bool:
        if not self._samples:
            return False
        is_younger = answer.sample.uptime_seconds < self.latest.uptime_seconds
        return answer.identity != self._identity or is_younger

    def _append(self, sample: Sample) -> None:
        if self._samples and sample.uptime_seconds <= self.latest.uptime_seconds:
            return
        self._samples.append(sample)
        begin = sample.uptime_seconds - KEPT_SECONDS
        while len(self._samples) > 1 and self._samples[1].uptime_seconds <= begin:
            self._samples.popleft()


def growth(start: Sample, end: Sample, names: Iterable[str] | None = None) -> Growth:
    """What was added between two samples; nothing shrinks while an engine runs.

    Args:
        start: the earlier sample.
        end: the later one.
        names: of the totals that are wanted; all if None.
    """
    before, after = start.totals, end.totals
    wanted = after if names is None else names
    return Growth(
        end.uptime_seconds - start.uptime_seconds,
        {n: max(after.get(n, 0.0) - before.get(n, 0.0), 0.0) for n in wanted},
    )


def _spread(
    earlier: Sample, later: Sample, slot_seconds: float, first: int
) -> Iterator[tuple[int, float]]:
    """Slots from ``first`` on between two samples, and the seconds inside each."""
    begin, end = earlier.uptime_seconds, later.uptime_seconds
    slot = max(math.floor(begin / slot_seconds), first)
    while slot * slot_seconds < end:
        inside = min(end, (slot + 1) * slot_seconds) - max(begin, slot * slot_seconds)
        if inside > 0:
            yield slot, inside
        slot += 1
