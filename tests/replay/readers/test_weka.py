"""Weka's session files: encodings, sub-agents, repetitions, scopes, start times."""

import random

import pytest

from kvcellar.errors import ConfigError
from kvcellar.replay.readers import Arrivals, TraceError, open_trace

AT_ONCE = Arrivals(sessions_per_second=None, max_gap_seconds=60.0)


def request(seconds, ids, kind="s", **more):
    return {
        "t": seconds,
        "type": kind,
        "in": 64 * len(ids) + 1,
        "out": 2,
        "hash_ids": ids,
        **more,
    }


def session(name, *requests, scope="local"):
    return {"id": name, "block_size": 64, "hash_id_scope": scope, "requests": requests}


def read(path, arrivals=AT_ONCE):
    return list(open_trace(path, arrivals=arrivals).requests)


def shape(requests):
    """Ids numbered anew in order of sight: what they share, whatever they are."""
    seen = {}
    return [[seen.setdefault(i, len(seen)) for i in r.blocks] for r in requests]


def test_runs_against_the_request_before_mean_the_ids_they_spell(trace_file):
    """``k`` kept ids and runs of new ones equal the plain list of ids."""
    ids = [[1, 2, 3], [1, 2, 7, 8, 5], [1]]
    plain = trace_file(session("a", *[request(t, i) for t, i in enumerate(ids)]))
    spelled = read(plain)
    short = [(0, [1, 3]), (2, [7, 2, 5, 1]), (1, [])]
    compact = [
        {"t": t, "type": "s", "in": 64 * len(i) + 1, "out": 2, "k": k, "r": r}
        for t, (i, (k, r)) in enumerate(zip(ids, short, strict=True))
    ]
    assert spelled == read(trace_file(session("a", *compact)))
    assert [[0, 1, 2], [0, 1, 3, 4, 5], [0]] == shape(spelled)


def test_local_ids_of_two_sessions_never_meet(trace_file):
    """The same number in two sessions is two blocks."""
    path = trace_file(
        session("a", request(0, [1, 2])), session("b", request(1, [1, 3]))
    )
    assert [[0, 1], [2, 3]] == shape(read(path))


def test_global_ids_are_shared_but_only_behind_the_same_prefix(trace_file):
    """Equal ids behind unequal ones are other prefixes."""
    path = trace_file(
        session("a", request(0, [1, 2, 3]), request(1, [1, 2, 4]), scope="global"),
        session("b", request(2, [1, 2, 3, 5]), request(3, [9, 2, 3]), scope="global"),
    )
    assert [[0, 1, 2], [0, 1, 3], [0, 1, 2, 4], [5, 6, 7]] == shape(read(path))


def test_local_and_global_sessions_in_one_trace_never_meet(trace_file):
    """Ids of the two kinds come from ranges of their own."""
    path = trace_file(
        session("a", request(0, [0, 1])),
        session("b", request(1, [0, 1]), scope="global"),
    )
    assert [[0, 1], [2, 3]] == shape(read(path))


def test_a_sub_agent_runs_on_its_own_clock_from_where_it_stands(trace_file):
    """Its requests share the session's ids, and carry both names."""
    nested = request(2, [1, 5])
    agent = {"t": 10, "type": "subagent", "agent_id": "x", "requests": [nested]}
    path = trace_file(session("a", request(0, [1, 2]), agent, request(11, [1, 2, 3])))
    found = read(path)
    times = [(r.arrival_seconds, r.session) for r in found]
    assert [(0.0, "a"), (11.0, "a"), (12.0, "a/x")] == times
    assert [[0, 1], [0, 1, 2], [0, 3]] == shape(found)


def test_long_pauses_are_cut_unless_told_otherwise(trace_file):
    """A pause counts at most the limit; a clock that steps back adds nothing."""
    path = trace_file(session("a", *[request(t, [1]) for t in (0, 500, 490, 510)]))
    assert [0.0, 60.0, 60.0, 70.0] == [r.arrival_seconds for r in read(path)]
    uncut = Arrivals(sessions_per_second=None, max_gap_seconds=None)
    assert [0.0, 500.0, 500.0, 510.0] == [r.arrival_seconds for r in read(path, uncut)]


def test_sessions_start_by_a_seeded_poisson_process(trace_file):
    """Starts are sums of seeded exponential pauses, merged in order of arrival."""
    path = trace_file(
        session("a", request(0, [1]), request(1000, [1])), session("b", request(1, [1]))
    )
    rng = random.Random(3)
    first = rng.expovariate(0.05)
    second = first + rng.expovariate(0.05)
    found = read(path, Arrivals(seed=3))
    expected = sorted([(first, "a"), (first + 60.0, "a"), (second + 1.0, "b")])
    assert expected == [(r.arrival_seconds, r.session) for r in found]


def test_repeated_sessions_are_left_out_and_take_no_start(trace_file):
    """The same times and sizes throughout are the same session under another name."""
    first, other = session("a", request(0, [1])), session("b", request(0, [1, 2]))
    with_copy = read(trace_file(first, first | {"id": "copy"}, other), Arrivals())
    assert with_copy == read(trace_file(first, other), Arrivals())


@pytest.mark.parametrize(
    ("scope", "kept"),
    [
        ("local", [0.0, 1.0, 2.0, 3.0]),
        ("global", [0.0, 2.0, 3.0]),
        (None, [0.0, 2.0, 3.0]),
    ],
)
def test_the_second_half_of_a_recorded_pair_is_left_out(trace_file, scope, kept):
    """Streamed, then again unstreamed is one request, in sets that have such pairs."""
    requests = [
        request(0, [1, 2]),
        request(1, [1, 2], kind="n"),
        request(2, [1, 2], kind="n"),
        request(3, [1, 2, 3], kind="s"),
    ]
    recorded = session("a", *requests, scope=scope)
    if scope is None:
        del recorded["hash_id_scope"]
    assert kept == [r.arrival_seconds for r in read(trace_file(recorded))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 4}, r"requests\[1\]\.k is 4, expected at most 3"),
        ({"r": [1]}, r"requests\[1\]\.r is \[1\], expected start, count"),
        ({"r": [1, -1]}, "expected start, count"),
        ({"r": [1, 2**50]}, "expected start, count"),
        ({"r": [7, 9]}, r"requests\[1\]\.r gives 11 ids, expected 3"),
        ({"r": [-5, 1]}, "expected local ids from 0"),
        ({"r": [2**40, 1]}, "expected local ids from 0"),
        ({"in": None}, r"requests\[1\]\.in is None"),
        ({"t": "x"}, r"requests\[1\]\.t is 'x', expected a number"),
    ],
)
def test_a_bad_session_is_refused_or_left_out_whole(trace_file, change, message):
    """The error names the request; a session is never read by half."""
    good = {"t": 0, "type": "s", "in": 192, "out": 1, "k": 0, "r": [1, 3]}
    second = {"t": 1, "type": "s", "in": 192, "out": 1, "k": 2, "r": [4, 1]} | change
    path = trace_file(session("a", good, second), session("b", request(0, [1])))
    with pytest.raises(TraceError, match=message):
        read(path)
    trace = open_trace(path, skip_bad=True)
    assert (1, ["b"]) == (trace.num_skipped, [r.session for r in trace.requests])


def test_one_block_size_holds_for_the_whole_trace(trace_file):
    """A session of another size is bad, and so is a wish for another size."""
    odd = session("b", request(5, [1])) | {"block_size": 32}
    path = trace_file(session("a", request(0, [1])), odd)
    with pytest.raises(TraceError, match="block_size is 32, expected 64"):
        read(path)
    with pytest.raises(
        ConfigError, match="blocks of 64 tokens: leave it out, or give a multiple"
    ):
        open_trace(path, block_tokens=16)
