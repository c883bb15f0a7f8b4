"""kvcellar's own format: what is written comes back."""

import itertools
import json
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.errors import ConfigError
from kvcellar.replay.readers import TraceError, open_trace, write_trace
from kvcellar.replay.trace import Trace, TraceRequest

HEADER = {"format": "kvcellar-events", "version": 1, "block_tokens": 4}
LINE = {"t": 0.5, "prompt_tokens": 9, "output_tokens": 2, "blocks": [1, 2]}

IDS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6),
    st.integers(0, 50).map(lambda n: list(range(n, 2 * n))),
)


@st.composite
def requests(draw):
    blocks = array("q", draw(IDS))
    return TraceRequest(
        draw(st.floats(0, 1e6)),
        4 * len(blocks) + draw(st.integers(0, 3)),
        draw(st.integers(0, 1000)),
        blocks,
        array("q", draw(IDS)),
        draw(st.text(max_size=5)),
    )


@given(
    st.lists(requests(), max_size=8),
    st.sampled_from(["trace.jsonl", "trace.jsonl.gz", "trace.jsonl.xz"]),
)
def test_what_is_written_is_read_again(tmp_path_factory, found, name):
    """Any requests in order of arrival survive, compressed or not, to the last bit."""
    found.sort(key=lambda request: request.arrival_seconds)
    path = tmp_path_factory.mktemp("log") / name
    assert len(found) == write_trace(path, Trace(4, found))
    trace = open_trace(path)
    assert (4, found) == (trace.block_tokens, list(trace.requests))


def test_long_prompts_are_written_as_runs(tmp_path):
    """A thousand neighbouring ids take one line of two numbers."""
    path = tmp_path / "trace.jsonl"
    request = TraceRequest(0.0, 4000, 1, array("q", range(5, 1005)))
    write_trace(path, Trace(4, [request]))
    assert [5, 1000] == json.loads(path.read_text().splitlines()[1])["block_runs"]


def test_hexadecimal_ids_and_absent_fields_are_read(trace_file):
    """Hashes may be written as digits; output blocks and session may be absent."""
    path = trace_file(HEADER, LINE | {"blocks": ["0a", "ff" * 32], "later": 1})
    (request,) = open_trace(path).requests
    assert TraceRequest(0.5, 9, 2, array("q", [10, -1])) == request


@pytest.mark.parametrize(
    "change",
    [
        {"t": -1},
        {"t": None},
        {"blocks": [1]},
        {"blocks": ["zz", "1"]},
        {"block_runs": [1, 2, 3]},
        {"block_runs": [1, 0]},
        {"block_runs": [1, 2**60]},
        {"block_runs": [1, 2**24, 5, 2**24]},
        {"session": 3},
        {"output_blocks": 3},
    ],
)
def test_bad_lines_are_refused_or_counted(trace_file, change):
    """Each is an error with its line, and can be left out."""
    path = trace_file(HEADER, LINE | change, LINE)
    with pytest.raises(TraceError, match="line 2: "):
        open_trace(path)
    trace = open_trace(path, skip_bad=True)
    assert (1, 1) == (trace.num_skipped, len(list(trace.requests)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version is 2, expected 1"),
        ({"version": None}, "version is None"),
        ({"block_tokens": 0}, "block_tokens is 0, expected a number above zero"),
        ({"format": "other"}, "format is 'other', expected 'kvcellar-events'"),
    ],
)
def test_a_bad_header_is_never_skipped(trace_file, change, message):
    """Without it no line means anything."""
    path = trace_file(HEADER | change, LINE)
    with pytest.raises(TraceError, match=message):
        open_trace(path, format="kvcellar-events", skip_bad=True)


@pytest.mark.parametrize("size", [2, 6])
def test_a_block_size_that_the_ids_cannot_give_is_refused(trace_file, size):
    """Blocks of four tokens cannot be cut, nor joined to six."""
    path = trace_file(HEADER, LINE)
    with pytest.raises(ConfigError, match="blocks of 4 tokens: leave it out, or"):
        open_trace(path, block_tokens=size)
    assert 4 == open_trace(path, block_tokens=4).block_tokens


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=30),
    st.lists(st.integers(0, 12), min_size=30, max_size=30),
    st.integers(1, 5),
)
def test_joined_blocks_are_those_that_end_at_multiples(
    tmp_path_factory, lengths, outputs, num_joined
):
    """An id of a longer block is that of the short one at its end, in answers too."""
    found, fresh = [], itertools.count()
    for length, output in zip(lengths, outputs, strict=False):
        ids = array("q", itertools.islice(fresh, length + output))
        request = TraceRequest(0.0, 4 * length + 3, 4 * output, ids[:length])
        found.append(replace(request, output_blocks=ids[length:]))
    path = tmp_path_factory.mktemp("log") / "trace.jsonl"
    write_trace(path, Trace(4, found))
    trace = open_trace(path, block_tokens=4 * num_joined)
    assert 4 * num_joined == trace.block_tokens
    for request, joined in zip(found, trace.requests, strict=True):
        whole = request.blocks + request.output_blocks
        assert whole[num_joined - 1 :: num_joined] == (
            joined.blocks + joined.output_blocks
        )
        most = request.num_prompt_tokens // (4 * num_joined)
        assert most == len(joined.blocks)
