"""Mooncake's format."""

import pytest

from kvcellar.replay.readers import TraceError, open_trace


def line(milliseconds, num_tokens, *ids):
    return {
        "timestamp": milliseconds,
        "input_length": num_tokens,
        "output_length": 3,
        "hash_ids": ids,
    }


def test_times_are_seconds_from_the_first_request(trace_file):
    """Milliseconds of any clock become seconds since the trace began."""
    trace = open_trace(trace_file(line(5000, 512, 1), line(8500, 512, 2)))
    assert [0.0, 3.5] == [request.arrival_seconds for request in trace.requests]
    assert 512 == trace.block_tokens


@pytest.mark.parametrize(
    ("num_tokens", "ids", "kept"),
    [
        (1023, [1, 2], [1]),
        (1024, [1, 2], [1, 2]),
        (1025, [1, 2], [1, 2]),
        (1025, [1, 2, 3], [1, 2]),
        (100, [1], []),
        (0, [], []),
    ],
)
def test_the_id_of_a_partial_block_is_dropped(trace_file, num_tokens, ids, kept):
    """Only full blocks are in ``blocks``, whether or not the trace names the rest."""
    (request,) = open_trace(trace_file(line(0, num_tokens, *ids))).requests
    assert kept == list(request.blocks)


def test_another_block_size_is_taken_and_a_wrong_one_is_noticed(trace_file):
    """Ids that do not fit the length are an error, not a shorter prompt."""
    path = trace_file(line(0, 40, 1, 2, 3))
    (request,) = open_trace(path, block_tokens=16).requests
    assert [1, 2] == list(request.blocks)
    with pytest.raises(TraceError, match=r"hash_ids gives 3 ids, expected 0.*of 512"):
        open_trace(path)


def test_times_that_go_backwards_are_sorted_and_equal_ones_keep_their_order(trace_file):
    """A stable sort: nothing is clamped, and ties stay as they were."""
    lines = [line(2500, 1), line(2000, 2), line(2500, 3), line(2000, 4)]
    trace = open_trace(trace_file(*[item | {"hash_ids": []} for item in lines]))
    found = [(r.arrival_seconds, r.num_prompt_tokens) for r in trace.requests]
    assert [(0.0, 2), (0.0, 4), (0.5, 1), (0.5, 3)] == found
