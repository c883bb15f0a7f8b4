"""Why prompt tokens were computed although a cache was there.

A prompt is cut at growing depths, and each piece has one reason:

    | found | no checkpoint | storing | evicted | in progress | never seen | partial |
    0      hit            ready     held     computed       seen         limit     end

Chunks of a prefix are computed and seen from its beginning on, and kvcellar and the
device hold its beginning, so depths are found by halving, in chunks. vLLM's own
connectors may hold an end without its beginning: there every chunk is asked for.
"""

import enum
import functools
from collections.abc import Callable, Sequence

from kvcellar.index.halving import num_leading
from kvcellar.replay.host_base import HostJob
from kvcellar.replay.memory import Memory, Running
from kvcellar.replay.trace import TraceRequest


class Reason(enum.StrEnum):
    """Why a token was computed; in the order of depth."""

    NO_CHECKPOINT = "no_checkpoint"
    STORING = "storing"
    EVICTED = "evicted"
    IN_PROGRESS = "in_progress"
    NEVER_SEEN = "never_seen"
    PARTIAL = "partial"


MEANINGS = {
    Reason.NO_CHECKPOINT: "chunks are held, but no checkpoint to resume from",
    Reason.STORING: "their copy to host memory was still under way",
    Reason.EVICTED: "computed before and held no more, or never stored",
    Reason.IN_PROGRESS: "an earlier request was still computing them",
    Reason.NEVER_SEEN: "no earlier request had them",
    Reason.PARTIAL: "behind the last boundary at which the prompt can be resumed",
}

_TESTED = tuple(Reason)[:4]  # one test each

AVOIDABLE = (
    Reason.NO_CHECKPOINT,
    Reason.STORING,
    Reason.EVICTED,
    Reason.IN_PROGRESS,
)
"""Reasons that a larger or faster cache could remove."""


class WatchedMemory(Memory):
    """``Memory`` that also notes why tokens have to be computed.

    Attributes:
        missed_tokens: per reason; together the prompt tokens that were computed.
        on_request: told of each request that is admitted.
    """

    missed_tokens: dict[Reason, int]
    on_request: Callable[[], None]
    _seen: set[bytes]
    _computed: set[bytes]
    _fresh: dict[str, tuple[int, list[bytes]]]  # chunks found, keys of the others

    def watch(self, on_request: Callable[[], None]) -> None:
        """Begin; before the first request."""
        self.missed_tokens = dict.fromkeys(Reason, 0)
        self.on_request = on_request
        self._seen, self._computed, self._fresh = set(), set(), {}

    def admit(
        self, request: TraceRequest, request_id: str, now: float
    ) -> Running | None:
        """As ``Memory.admit``; counts once the request is in."""
        running = super().admit(request, request_id, now)
        if running is not None:
            self._explain(running)
            self.on_request()
        return running

    def compute(self, running: Running, end: int, now: float) -> list[HostJob]:
        """As ``Memory.compute``; what was computed is remembered for good."""
        found, fresh = self._fresh[running.request_id]
        first, last = running.computed // self.unit, end // self.unit
        self._computed.update(fresh[first - found : last - found])
        return super().compute(running, end, now)

    def release(self, running: Running, now: float) -> None:
        """As ``Memory.release``."""
        del self._fresh[running.request_id]
        super().release(running, now)

    def _explain(self, running: Running) -> None:
        """Count why tokens will be computed, as things stand now."""
        num_tokens, stride = running.request.num_prompt_tokens, self._stride
        found = running.computed // self.unit
        num_chunks = len(running.keys) // stride
        first = (found + 1) * stride - 1
        fresh = running.keys[first : num_chunks * stride : stride]
        self._fresh[running.request_id] = found, fresh
        limit = max(min((num_tokens - 1) // self.unit - found, len(fresh)), 0)
        tests = (
            self._is_ready,
            self._is_held,
            self._computed.__contains__,
            self._seen.__contains__,
        )
        above, num_so_far = running.computed, 0
        count = num_leading if self.host.is_prefix_closed else _num_in_a_row
        for reason, test in zip(_TESTED, tests, strict=True):
            if num_so_far < limit and test(fresh[num_so_far]):
                holds = functools.partial(_is_so, fresh, test)
                num_so_far = count(num_so_far, limit, holds)
            above = self._count(reason, above, (found + num_so_far) * self.unit)
        self._seen.update(fresh[num_so_far:])  # an answer's too
        above = self._count(Reason.NEVER_SEEN, above, (found + limit) * self.unit)
        self._count(Reason.PARTIAL, above, num_tokens)

    def _count(self, reason: Reason, above: int, end: int) -> int:
        self.missed_tokens[reason] += max(end - above, 0)
        return max(above, end)

    def _is_ready(self, key: bytes) -> bool:
        """Whether a chunk could be used now, on the device or in host memory."""
        is_on_device = self.device is not None and key in self.device.nodes
        return is_on_device or self.host.is_ready(key)

    def _is_held(self, key: bytes) -> bool:
        return self.host.is_held(key) or self._is_ready(key)


def _is_so(keys: Sequence[bytes], test: Callable[[bytes], bool], count: int) -> bool:
    """Whether something holds for the first ``count`` keys, and so for the last."""
    return test(keys[count - 1])


def _num_in_a_row(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """As ``num_leading``, for what may hold again beyond where it does not."""
    while low < high and holds(low + 1):
        low += 1
    return low
