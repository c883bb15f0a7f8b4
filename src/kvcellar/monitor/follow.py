"""Following a server: its engines' histories, and whether it still answers.

Pure: what was fetched and when is told to it. The last picture stays when a server
falls silent, and says for how long it has been.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvcellar.monitor.engine_answer import EngineAnswer, clean, read_status
from kvcellar.monitor.history import EngineHistory

SILENT_SECONDS = 5.0
_SILENT_INTERVALS = 3


@dataclass(slots=True)
class Followed:
    """One engine.

    Attributes:
        answer: its latest.
        history: of its totals.
        is_missing: whether the server's latest answer left it out.
    """

    answer: EngineAnswer
    history: EngineHistory
    is_missing: bool = False


class Follower:
    """All engines behind one server."""

    def __init__(self) -> None:
        self.engines: dict[int, Followed] = {}
        self._answered_at: float | None = None
        self._failure = ""

    def answered(self, answer: Mapping[str, Any], now: float) -> None:
        """The server has answered.

        Raises:
            CellarError: that is no status of kvcellar.
        """
        found = read_status(answer)
        for followed in self.engines.values():
            followed.is_missing = True
        for one in found:
            followed = self.engines.setdefault(
                one.engine, Followed(one, EngineHistory())
            )
            followed.answer, followed.is_missing = one, False
            followed.history.add(one)
        self._answered_at, self._failure = now, ""

    def failed(self, reason: str) -> None:
        """The server did not answer, or not as it should."""
        self._failure = clean(reason)

    def reset(self) -> None:
        """Let all windows begin now; engines that have left are forgotten."""
        left = [number for number, one in self.engines.items() if one.is_missing]
        for number in left[: len(self.engines) - 1]:  # one stays, to show something
            del self.engines[number]
        for followed in self.engines.values():
            followed.history.reset()

    def silence(self, now: float, interval_seconds: float) -> str:
        """For how long there was no answer, and why; empty if all is well."""
        if self._answered_at is None:
            return self._failure or "no answer yet"
        age = now - self._answered_at
        if age < max(SILENT_SECONDS, _SILENT_INTERVALS * interval_seconds):
            return ""
        behind = f": {self._failure}" if self._failure else ""
        return f"no answer for {age:.0f} s{behind}"

    def is_behind(self, now: float) -> bool:
        """Whether more than a moment is missing, so that a history is worth asking."""
        return self._answered_at is None or now - self._answered_at > SILENT_SECONDS
