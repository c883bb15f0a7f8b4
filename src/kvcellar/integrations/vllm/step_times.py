"""How long the engine's steps take, seen from its scheduler.

With async scheduling a step is scheduled while the one before it still runs, so a step
begins when it was scheduled or when the one before it ended, whichever was later.
"""

from collections import deque
from dataclasses import dataclass

MOST_UNDER_WAY = 64  # far more than the engine keeps; a step may end untold


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step that has ended.

    Attributes:
        num_tokens: that it computed.
        num_prefill_tokens: of these, those that were not decoded one by one.
    """

    num_tokens: int
    num_prefill_tokens: int
    seconds: float


class StepTimes:
    """Pairs the beginnings of steps with their ends, in order.

    Args:
        most_decoded: tokens that a decoding request computes in one step, at most.
    """

    def __init__(self, most_decoded: int) -> None:
        self._most_decoded = most_decoded
        self._under_way: deque[tuple[int, int, float]] = deque(maxlen=MOST_UNDER_WAY)
        self._last_end = 0.0

    def begin(self, num_tokens: int, num_requests: int, now: float) -> None:
        """A step was scheduled."""
        num_prefill = max(num_tokens - num_requests * self._most_decoded, 0)
        self._under_way.append((num_tokens, num_prefill, now))

    def end(self, now: float) -> StepTime | None:
        """The oldest step under way has ended; None if there is none."""
        if not self._under_way:
            return None
        num_tokens, num_prefill, begun = self._under_way.popleft()
        seconds = now - max(begun, self._last_end)
        self._last_end = now
        return StepTime(num_tokens, num_prefill, seconds)
