"""vLLM's KV events: chains of stored blocks as requests."""

import json

import pytest

from kvcellar.errors import ConfigError
from kvcellar.replay.readers import TraceError, open_trace


def stored(hashes, parent=None, **more):
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": [0] * 16 * len(hashes),
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
        **more,
    }


CLEARED = {"type": "AllBlocksCleared"}
REMOVED = {"type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"}


def read(path, **settings):
    return list(open_trace(path, **settings).requests)


def shape(requests):
    """Ids numbered anew in order of sight, with the times."""
    seen = {}
    return [
        (r.arrival_seconds, [seen.setdefault(i, len(seen)) for i in r.blocks])
        for r in requests
    ]


def test_blocks_that_follow_a_request_at_once_belong_to_it(trace_file):
    """A prefill in pieces, and decoding, are one request from its first step on."""
    path = trace_file(
        [100.0, [stored([1, 2])]],
        [100.5, [stored([3], parent=2)]],
        [101.0, [stored([4], parent=3)], 0],
    )
    found = read(path)
    assert [(0.0, [0, 1, 2, 3])] == shape(found)
    assert (64, 0) == (found[0].num_prompt_tokens, found[0].num_output_tokens)


def test_blocks_behind_a_known_prefix_begin_a_request_with_that_prefix(trace_file):
    """The prompt is the path to the parent and the new blocks."""
    path = trace_file(
        [0.0, [stored([1, 2, 3]), stored([8, 9], parent=2)]],
        [1.0, [stored([7], parent=1)]],
    )
    expected = [(0.0, [0, 1, 2]), (0.0, [0, 1, 3, 4]), (1.0, [0, 5])]
    assert expected == shape(read(path))


def test_a_turn_that_comes_later_is_a_request_of_its_own(trace_file):
    """After the gap, what extends a request is the next turn of its conversation."""
    path = trace_file([0.0, [stored([1, 2])]], [60.0, [stored([3], parent=2)]])
    assert [(0.0, [0, 1]), (60.0, [0, 1, 2])] == shape(read(path))


def test_sessions_are_told_apart_where_the_engine_tells_them(trace_file):
    """Another session that extends a prompt is another request."""
    path = trace_file(
        [0.0, [stored([1], session_id="a"), stored([2], parent=1, session_id="b")]]
    )
    assert ["a", "b"] == [request.session for request in read(path)]


def test_blocks_stored_again_are_a_prompt_that_came_back(trace_file):
    """After removal the same hashes are the same ids in a new request."""
    path = trace_file(
        [0.0, [stored([1, 2, 3])]],
        [50.0, [REMOVED | {"block_hashes": [3, 2]}]],
        [90.0, [stored([2, 3], parent=1)]],
    )
    assert [(0.0, [0, 1, 2]), (90.0, [0, 1, 2])] == shape(read(path))


def test_after_a_clearing_the_same_hashes_are_other_prefixes(trace_file):
    """What was computed with other weights is no longer worth anything."""
    path = trace_file([0.0, [stored([1]), CLEARED, stored([1])]])
    assert [(0.0, [0]), (0.0, [1])] == shape(read(path))


def test_only_one_group_on_the_device_is_followed(trace_file):
    """Windows, copies in other memory, and blocks of other sizes tell nothing new."""
    path = trace_file(
        [
            0.0,
            [
                stored([50], group_idx=0, kv_cache_spec_kind="sliding_window"),
                stored([1], group_idx=1, kv_cache_spec_kind="full_attention"),
                stored([1, 2], group_idx=1, medium="CPU"),
                stored([3], parent=1, group_idx=1) | {"block_size": 8},
                stored([60], group_idx=2, kv_cache_spec_kind="full_attention"),
            ],
        ]
    )
    assert [(0.0, [0])] == shape(read(path))
    only_windows = trace_file([0.0, [stored([5], kv_cache_spec_kind="mamba")]])
    with pytest.raises(TraceError, match="no record that tells the size of the blocks"):
        read(only_windows)


def test_batches_events_and_old_arrays_mean_the_same(trace_file):
    """Objects with a time, batches as objects, and events as arrays are read alike."""
    array_event = ["BlockStored", [1, 2], None, [0] * 32, 16, None, "GPU"]
    spellings = [
        [3.0, [stored([1, 2])]],
        [3.0, [array_event], 0],
        {"ts": 3.0, "events": [stored([1, 2])]},
        stored([1, 2]) | {"timestamp": 3.0},
    ]
    assert all(
        [(0.0, [0, 1])] == shape(read(trace_file(spelling))) for spelling in spellings
    )


def test_hashes_may_be_bytes_in_messagepack(tmp_path):
    """Payloads as vLLM's publisher sends them, one after the other, hashes as bytes."""
    msgspec = pytest.importorskip("msgspec")
    first, second = b"\x01" * 32, b"\xff" * 32
    batches = [
        [1.0, [stored([first])], 0],
        [2.5, [stored([second], parent=first), CLEARED], 0],
        [9.0, [stored([first])], 0],
    ]
    path = tmp_path / "events.msgpack"
    payloads = [msgspec.msgpack.encode(batch) for batch in batches]
    path.write_bytes(b"".join(payloads))
    assert [(0.0, [0, 1]), (8.0, [2])] == shape(read(path))
    path.write_bytes(b"".join(payloads)[:-3])
    with pytest.raises(TraceError, match="line 3: not MessagePack from here on"):
        read(path)
    trace = open_trace(path, skip_bad=True)
    assert (1, 1) == (trace.num_skipped, len(trace.requests))


@pytest.mark.parametrize(
    "bad",
    [
        [1.0, 5],
        ["x", [stored([1])]],
        [1.0, ["x"]],
        [1.0, [stored([1]), {"type": "Other"}]],
        [1.0, [stored([1]), stored([1.5])]],
        [1.0, [stored([1]), stored([2], parent=[])]],
        [1.0, [stored([1]), stored([2]) | {"block_size": 0}]],
        [1.0, [stored([1]), stored("12")]],
        {"events": [stored([1])]},
        "{",
    ],
)
def test_a_bad_batch_is_refused_or_left_out_whole(trace_file, bad):
    """Nothing of a batch counts if anything in it cannot be read."""
    path = trace_file([0.0, [stored([9])]], bad)
    with pytest.raises(TraceError, match="line 2: "):
        read(path)
    trace = open_trace(path, skip_bad=True)
    assert (1, [(0.0, [0])]) == (trace.num_skipped, shape(trace.requests))


def test_the_block_size_is_that_of_the_events(trace_file):
    """One that is no multiple of the events' own is refused."""
    path = trace_file(json.dumps([0.0, [stored([1])]]))
    assert 16 == open_trace(path, block_tokens=16).block_tokens
    with pytest.raises(ConfigError, match="blocks of 16 tokens"):
        open_trace(path, block_tokens=24)
