"""Rates of growing totals over the last seconds."""

from collections import deque
from collections.abc import Mapping

WINDOW_SECONDS = 10.0


class RateWindow:
    """Totals at the latest moments.

    Args:
        window_seconds: over which rates are worked out.
    """

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._moments: deque[tuple[float, Mapping[str, float]]] = deque()

    def note(self, now: float, totals: Mapping[str, float]) -> None:
        """What the totals are now; one moment before the window is kept too."""
        self._moments.append((now, totals))
        while len(self._moments) > 1 and self._moments[1][0] <= now - self._window:
            self._moments.popleft()

    def per_second(self, now: float, totals: Mapping[str, float]) -> dict[str, float]:
        """Growth per second since the oldest moment, up to now."""
        if not self._moments or now <= self._moments[0][0]:
            return dict.fromkeys(totals, 0.0)
        then, before = self._moments[0]
        seconds = now - then
        return {
            name: (total - before.get(name, 0)) / seconds
            for name, total in totals.items()
        }
