"""How far the grid is, on one line."""

import time
from collections.abc import Callable
from typing import Protocol

_BAR_WIDTH = 20
_MIN_SHARE_FOR_ESTIMATE = 0.02  # before that, any estimate is a guess


class Line(Protocol):
    """Where progress is shown; the demo's ``Progress`` is one."""

    def stage(self, name: str) -> None:
        """Begin a stage."""
        ...

    def detail(self, text: str) -> None:
        """Say how far the stage is."""
        ...


class GridProgress:
    """Turns counts into a bar, a share and the time that is left.

    Args:
        num_cells: configurations in all.
        num_requests: of the trace; each configuration plays them all.
    """

    def __init__(
        self,
        line: Line,
        num_cells: int,
        num_requests: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._line = line
        self._num_cells = num_cells
        self._num_requests = num_requests
        self._clock = clock
        self._began = clock()
        noun = "configuration" if num_cells == 1 else "configurations"
        line.stage(f"replaying {num_requests:,} requests in {num_cells} {noun}")

    def __call__(self, num_admitted: int, num_done: int) -> None:
        """Show counts: requests admitted in all configurations, those that ended."""
        total = self._num_cells * self._num_requests
        # Requests too long for the device are never admitted; their cells end.
        share = max(num_admitted / total, num_done / self._num_cells)
        share = min(share, 1.0)
        filled = int(share * _BAR_WIDTH)
        bar = "#" * filled + "." * (_BAR_WIDTH - filled)
        text = f"[{bar}] {share:.0%}, {num_done} done{self._time_left(share)}"
        self._line.detail(text)

    def _time_left(self, share: float) -> str:
        if not _MIN_SHARE_FOR_ESTIMATE <= share < 1.0:
            return ""
        seconds = (self._clock() - self._began) * (1.0 / share - 1.0)
        minutes, rest = divmod(round(seconds), 60)
        return f", {minutes}:{rest:02} left"
