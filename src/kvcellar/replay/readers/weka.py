"""Sessions of coding agents as Weka published them: one JSON object a session.

A session has its own clock, so how sessions interleave is an ASSUMPTION: they start by
a Poisson process in the order of the file, and pauses longer than a limit are cut (see
`Arrivals`). Sessions that repeat an earlier one (same times and sizes throughout) are
left out. A sub-agent is a list of requests nested in its parent's, with a clock that
begins where the sub-agent stands; its requests carry the session's name and its own.

Early sets were recorded by a proxy that wrote a streamed request a second time,
unstreamed. Their ids are ``global`` or do not say, and there the second half of each
such pair is left out.

Source: callanjfox/kv-cache-tester, folder ``traces`` and its documentation.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kvcellar.replay.readers.ids import id_array
from kvcellar.replay.readers.reader import ReadSettings
from kvcellar.replay.readers.record import Fields, Record
from kvcellar.replay.readers.weka_ids import IdList, IdScope
from kvcellar.replay.trace import TraceRequest

DEFAULT_BLOCK_TOKENS = 64
_SUB_AGENT = "subagent"


def recognises(value: object) -> bool:
    """Whether a trace whose first record is ``value`` is of this format."""
    return isinstance(value, dict) and {"block_size", "requests"} <= value.keys()


@dataclass(slots=True)
class _Lane:
    """One list of requests being walked: a session's own, or a sub-agent's."""

    name: str
    now_seconds: float
    ids: IdList
    last_recorded_seconds: float = 0.0
    is_after_streamed: bool = False

    def advance(self, recorded: float, max_gap_seconds: float | None) -> None:
        """Move the clock on to a recorded time, over a pause that may be cut."""
        gap = max(0.0, recorded - self.last_recorded_seconds)
        self.last_recorded_seconds = max(self.last_recorded_seconds, recorded)
        if max_gap_seconds is not None:
            gap = min(gap, max_gap_seconds)
        self.now_seconds += gap


@dataclass(slots=True)
class WekaReader:
    """Reads Weka's session files; see the module."""

    settings: ReadSettings
    block_tokens: int = 0
    is_absolute: bool = False
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _scope: IdScope = field(default_factory=IdScope)
    _random: random.Random = field(init=False)
    _start_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Seed the process by which sessions start."""
        # Not for secrets: the same seed must give the same trace.
        self._random = random.Random(self.settings.arrivals.seed)

    def read(self, record: Record) -> Iterable[TraceRequest]:
        """Turn one session into its requests, or into none if it is a repetition."""
        session = record.fields()
        requests = session.objects("requests")
        signature = tuple(_signature(request) for request in requests)
        if signature in self._seen:
            return ()
        self._seen.add(signature)
        self._take_block_tokens(session)
        self._scope.begin_session(is_global=_scope_of(session) == "global")
        name = session.text("id", f"session {record.line}")
        lane = _Lane(name, self._next_start(), IdList(self._scope))
        has_pairs = _scope_of(session) != "local"
        return list(self._walk(requests, lane, has_pairs=has_pairs))

    def finish(self) -> Iterable[TraceRequest]:
        """Nothing is left over in this format."""
        return ()

    def _take_block_tokens(self, session: Fields) -> None:
        recorded = session.whole("block_size")
        if recorded == 0 or self.block_tokens not in (0, recorded):
            expected = str(self.block_tokens or "a number above zero")
            raise session.error("block_size", f"{expected}, one size for all sessions")
        self.block_tokens = self.settings.accept_block_tokens(recorded)

    def _next_start(self) -> float:
        rate = self.settings.arrivals.sessions_per_second
        if rate is not None:
            self._start_seconds += self._random.expovariate(rate)
        return self._start_seconds

    def _walk(
        self, requests: list[Fields], lane: _Lane, *, has_pairs: bool
    ) -> Iterator[TraceRequest]:
        max_gap = self.settings.arrivals.max_gap_seconds
        for request in requests:
            lane.advance(request.number("t"), max_gap)
            if request.data.get("type") == _SUB_AGENT:
                name = f"{lane.name}/{request.text('agent_id', 'agent')}"
                inner = _Lane(name, lane.now_seconds, IdList(self._scope))
                nested = request.objects("requests")
                yield from self._walk(nested, inner, has_pairs=has_pairs)
                continue
            is_repeated = lane.ids.take(request, self.block_tokens)
            is_second = is_repeated and request.data.get("type") == "n"
            if has_pairs and lane.is_after_streamed and is_second:
                lane.is_after_streamed = False
                continue
            lane.is_after_streamed = request.data.get("type") == "s"
            yield _request(request, lane)


def _request(request: Fields, lane: _Lane) -> TraceRequest:
    return TraceRequest(
        lane.now_seconds,
        request.whole("in"),
        request.whole("out"),
        id_array(lane.ids.current),
        session=lane.name,
    )


def _signature(request: Fields) -> tuple[object, ...]:
    data = request.data
    return tuple(
        value if isinstance(value, int | float) else None
        for value in (data.get("t"), data.get("in"), data.get("out"))
    )


def _scope_of(session: Fields) -> str:
    scope = session.text("hash_id_scope", "")
    if scope not in ("", "local", "global"):
        raise session.error("hash_id_scope", "'local' or 'global'")
    return scope
