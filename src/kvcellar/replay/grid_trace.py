"""A trace as a replay takes it: the first requests, faster or slower, and its facts."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from kvcellar.errors import ConfigError
from kvcellar.replay.trace import Trace, TraceRequest


@dataclass(frozen=True, slots=True)
class CutRequests:
    """The first ``limit`` requests, arriving ``speed`` times as fast."""

    requests: Iterable[TraceRequest]
    limit: int | None
    speed: float

    def __iter__(self) -> Iterator[TraceRequest]:
        for request in itertools.islice(self.requests, self.limit):
            seconds = request.arrival_seconds / self.speed
            yield replace(request, arrival_seconds=seconds)


def cut_trace(trace: Trace, limit: int | None = None, speed: float = 1.0) -> Trace:
    """Take the first ``limit`` requests and divide the arrival times by ``speed``.

    Raises:
        ConfigError: a number that is not above zero.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit} leaves no request; give 1 or more")
    if not 0 < speed < float("inf"):
        raise ConfigError(f"speed={speed} is not possible; give a number above zero")
    if limit is None and speed == 1.0:
        return trace
    requests = CutRequests(trace.requests, limit, speed)
    return replace(trace, requests=requests)


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What there is in a trace.

    Attributes:
        format_name: what it was read as.
        num_skipped: records that could not be read.
        span_seconds: from the first arrival to the last.
        num_same_stamp: requests that arrive at the very moment of the one before.
        num_known_answers: requests whose answer's blocks the trace names.
    """

    format_name: str
    block_tokens: int
    num_requests: int
    num_skipped: int
    prompt_tokens: int
    output_tokens: int
    span_seconds: float
    num_same_stamp: int
    num_known_answers: int


def facts_of(trace: Trace) -> TraceFacts:
    """Walk the trace once and count."""
    num_requests = prompt_tokens = output_tokens = num_same = num_known = 0
    first = last = 0.0
    for request in trace.requests:
        now = request.arrival_seconds
        if num_requests == 0:
            first = now
        elif now == last:
            num_same += 1
        last = now
        num_requests += 1
        prompt_tokens += request.num_prompt_tokens
        output_tokens += request.num_output_tokens
        num_known += bool(request.output_blocks)
    return TraceFacts(
        format_name=trace.format_name,
        block_tokens=trace.block_tokens,
        num_requests=num_requests,
        num_skipped=trace.num_skipped,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        span_seconds=last - first,
        num_same_stamp=num_same,
        num_known_answers=num_known,
    )
