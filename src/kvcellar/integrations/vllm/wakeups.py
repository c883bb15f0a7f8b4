"""Which requests may cross a boundary in this step, without looking at the others.

A decoding request gains a known number of tokens per step at most, so the first step
in which it can reach its next boundary is known too; it sleeps until then. Requests
still in their prompt are looked at in every step they are scheduled in.
"""

from typing import Any


class Watched:
    """A request the scheduler side follows.

    Attributes:
        request: vLLM's request.
        num_chunks: whole chunks offered to the planner so far; -1 before the first.
        has_run: whether it was scheduled since it was admitted. Until then its blocks
            may wait for a load, ours or another connector's.
    """

    __slots__ = ("has_run", "num_chunks", "request", "wake_step")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.num_chunks = -1
        self.has_run = False
        self.wake_step = 0


class Wakeups:
    """A calendar by scheduler step.

    Args:
        most_tokens_per_step: what a decoding request can gain in one step.
    """

    def __init__(self, most_tokens_per_step: int) -> None:
        self._most = most_tokens_per_step
        self._step = 0
        self._calendar: dict[int, list[Watched]] = {}
        self._awake: dict[str, Watched] = {}

    def watch(self, watched: Watched) -> None:
        """Look at a request in every step until it is put to sleep."""
        watched.wake_step = 0
        self._awake[watched.request.request_id] = watched

    def forget(self, watched: Watched) -> None:
        """Never look at a request again unless it is watched anew."""
        watched.wake_step = 0
        self._awake.pop(watched.request.request_id, None)

    def next_step(self) -> list[Watched]:
        """Begin a step; the requests to look at in it."""
        self._step += 1
        for watched in self._calendar.pop(self._step, ()):
            if watched.wake_step == self._step:
                self.watch(watched)
        return list(self._awake.values()) if self._awake else []

    def sleep(self, watched: Watched, num_tokens: int) -> None:
        """Look at a decoding request again once it may have gained ``num_tokens``."""
        steps = max(-(-num_tokens // self._most), 1)
        if steps > 1:
            del self._awake[watched.request.request_id]
            watched.wake_step = self._step + steps
            self._calendar.setdefault(watched.wake_step, []).append(watched)
