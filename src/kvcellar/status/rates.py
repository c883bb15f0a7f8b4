"""Growing totals at the latest moments: their rates, and how they grew."""

from collections import deque
from collections.abc import Mapping
from typing import Any

WINDOW_SECONDS = 10.0
KEPT_SECONDS = 120.0


class RateWindow:
    """Totals at the latest moments.

    Args:
        window_seconds: over which rates are worked out.
        kept_seconds: for which moments are kept, at least the window.
    """

    def __init__(
        self,
        window_seconds: float = WINDOW_SECONDS,
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        self._window = window_seconds
        self._kept = max(kept_seconds, window_seconds)
        self._moments: deque[tuple[float, Mapping[str, float]]] = deque()

    def note(self, now: float, totals: Mapping[str, float]) -> None:
        """What the totals are now; one moment before those that are kept stays."""
        self._moments.append((now, totals))
        while len(self._moments) > 1 and self._moments[1][0] <= now - self._kept:
            self._moments.popleft()

    def per_second(self, now: float, totals: Mapping[str, float]) -> dict[str, float]:
        """Growth per second since the window began, or since the first moment."""
        start = None
        for moment in reversed(self._moments):
            start = moment
            if moment[0] <= now - self._window:
                break
        if start is None or now <= start[0]:
            return dict.fromkeys(totals, 0.0)
        then, before = start
        seconds = now - then
        return {
            name: (total - before.get(name, 0)) / seconds
            for name, total in totals.items()
        }

    def history(self, started: float) -> list[dict[str, Any]]:
        """The kept moments, oldest first; times in seconds since ``started``."""
        return [
            {"uptime_seconds": then - started, "totals": totals}
            for then, totals in list(self._moments)
        ]
