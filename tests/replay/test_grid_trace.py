"""The first requests of a trace, faster or slower, and its facts."""

import pickle
from array import array

import pytest
from replay_grids import conversations

from kvcellar.errors import ConfigError
from kvcellar.replay.grid_trace import cut_trace, facts_of
from kvcellar.replay.trace import Trace, TraceRequest


def test_speed_divides_the_times_and_limit_counts_requests():
    """Nothing else of a request changes; the cut may be walked again and sent on."""
    trace = conversations(20)
    cut = pickle.loads(pickle.dumps(cut_trace(trace, limit=5, speed=4.0)))
    for _ in range(2):
        pairs = list(zip(cut.requests, trace.requests[:5], strict=True))
        for mine, other in pairs:
            assert mine.arrival_seconds == other.arrival_seconds / 4
            assert mine.blocks == other.blocks
    assert cut_trace(trace) is trace


@pytest.mark.parametrize("changes", [{"limit": 0}, {"speed": 0.0}, {"speed": -1.0}])
def test_numbers_that_cannot_be_are_refused(changes):
    """With the number and what to give."""
    with pytest.raises(ConfigError, match=next(iter(changes))):
        cut_trace(conversations(3), **changes)


def test_facts_are_counted():
    """Requests, tokens, the span, equal stamps and answers that are told."""
    ids = array("q", [1])
    requests = [
        TraceRequest(5.0, 20, 3, ids),
        TraceRequest(5.0, 30, 4, ids, ids),
        TraceRequest(7.5, 40, 5, ids),
    ]
    facts = facts_of(Trace(16, requests, 2, "weka"))
    assert ("weka", 3, 2, 90, 12) == (
        facts.format_name,
        facts.num_requests,
        facts.num_skipped,
        facts.prompt_tokens,
        facts.output_tokens,
    )
    assert (2.5, 1, 1) == (
        facts.span_seconds,
        facts.num_same_stamp,
        facts.num_known_answers,
    )
