"""The way in: formats, compression, folders, and records that cannot be read."""

import gzip
import json
import lzma
import sys

import pytest

from kvcellar.errors import CellarError, ConfigError
from kvcellar.replay.readers import FORMATS, TraceError, open_trace

LINE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]}

FIRST_RECORDS = {
    "kvcellar-events": {"format": "kvcellar-events", "version": 1, "block_tokens": 4},
    "mooncake": LINE,
    "weka": {
        "id": "s",
        "block_size": 64,
        "requests": [{"t": 0, "in": 64, "out": 1, "hash_ids": [1]}],
    },
    "kv-events": {
        "ts": 1.0,
        "events": [{"type": "BlockStored", "block_hashes": [1], "block_size": 16}],
    },
    "sessions": {"id": "a", "requests": [{"input": "hello", "output": "you"}]},
    "openai": {"messages": [{"role": "user", "content": "hello"}]},
}


def test_every_format_is_recognised_by_its_first_record(trace_file):
    """Unnamed and named, the same requests come out, for each format there is."""
    assert set(FORMATS) == set(FIRST_RECORDS)
    for name, record in FIRST_RECORDS.items():
        path = trace_file(record)
        named = open_trace(path, format=name)
        found = open_trace(path)
        assert name == named.format_name == found.format_name
        assert list(named.requests) == list(found.requests)
        assert (name != "kvcellar-events") == len(named.requests)


@pytest.mark.parametrize(
    "compress",
    [
        pytest.param(bytes, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lzma.compress, id="xz"),
        pytest.param(lambda text: b"\xef\xbb\xbf" + text, id="byte order mark"),
        pytest.param(lambda text: gzip.compress(b"") + gzip.compress(text), id="two"),
    ],
)
def test_compression_is_told_by_content_not_by_name(tmp_path, compress):
    """The file's name says nothing, its first bytes do."""
    path = tmp_path / "trace.bin"
    path.write_bytes(compress(json.dumps(LINE).encode() + b"\n"))
    (request,) = open_trace(path).requests
    assert (600, 5, [7]) == (
        request.num_prompt_tokens,
        request.num_output_tokens,
        list(request.blocks),
    )


def test_zstd_is_read_across_its_frames(tmp_path):
    """Two frames, one after the other, are one file."""
    zstandard = pytest.importorskip("zstandard")
    frame = zstandard.ZstdCompressor().compress(json.dumps(LINE).encode() + b"\n")
    path = tmp_path / "trace.zst"
    path.write_bytes(frame + frame)
    assert 2 == len(list(open_trace(path).requests))
    for damaged in (frame[:-5], frame[:3], b"no frame"):
        path.write_bytes(frame + damaged)
        with pytest.raises(TraceError, match="line 2: the file is damaged or cut"):
            open_trace(path)
        assert 1 == open_trace(path, skip_bad=True).num_skipped


def test_zstd_without_its_package_says_what_to_do(tmp_path, monkeypatch):
    """A missing package is the user's to install, and is named."""
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "trace.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(ConfigError, match="needs the package zstandard: install it"):
        open_trace(path)


def test_a_bad_line_ends_the_reading_with_its_place_and_value(trace_file):
    """File, line, field, value and what is expected are all in the message."""
    path = trace_file(LINE, LINE | {"input_length": "many"}, LINE)
    with pytest.raises(TraceError) as caught:
        open_trace(path)
    error = caught.value
    assert f"{path}, line 2: input_length is 'many', expected a whole number" == str(
        error
    )
    assert (str(path), 2, "input_length") == (error.path, error.line, error.field)
    assert isinstance(error, CellarError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    "bad",
    [
        "{not json",
        "[1, 2]",
        "7",
        json.dumps(LINE | {"timestamp": None}),
        json.dumps(LINE | {"input_length": -1}),
        json.dumps(LINE | {"input_length": True}),
        json.dumps(LINE | {"input_length": 1e300}),
        json.dumps(LINE | {"hash_ids": [7]}).replace("7", "1.5"),
        json.dumps(LINE | {"hash_ids": [7, 2**64]}),
        json.dumps(LINE | {"hash_ids": [7, 8, 9]}),
        json.dumps(LINE | {"hash_ids": "78"}),
        '{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": []}',
        '{"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": []}',
        '{"timestamp": %s, "input_length": 1, "output_length": 1, "hash_ids": []}'
        % ("9" * 400),
        '{"input_length": 0, "hash_ids": []}',
        "[" * 100_000,
    ],
)
def test_bad_records_are_refused_or_counted(trace_file, bad):
    """Whatever is wrong with a line is a TraceError, or one more in num_skipped."""
    path = trace_file(LINE, bad, LINE)
    with pytest.raises(TraceError, match="line 2: "):
        open_trace(path)
    trace = open_trace(path, skip_bad=True)
    assert (1, 2) == (trace.num_skipped, len(list(trace.requests)))


def test_bytes_that_are_no_text_are_a_bad_line(tmp_path):
    """A line that is not UTF-8 is refused, or counted like any other."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(json.dumps(LINE).encode() + b'\n{"a": "\xff"}\n')
    with pytest.raises(TraceError, match="line 2: not JSON"):
        open_trace(path)
    assert 1 == open_trace(path, skip_bad=True).num_skipped


def test_bad_lines_before_the_first_good_one_do_not_hide_the_format(trace_file):
    """The format is that of the first record that is of any."""
    path = trace_file("{oops", {"strange": 1}, LINE)
    trace = open_trace(path, skip_bad=True)
    assert (2, 1) == (trace.num_skipped, len(list(trace.requests)))


def test_a_file_that_is_cut_short_keeps_what_came_before(tmp_path):
    """Damage is an error with its line, or counts as a bad record."""
    text = b"".join(
        json.dumps(LINE | {"timestamp": number * 7919 % 1000}).encode() + b"\n"
        for number in range(5000)
    )
    path = tmp_path / "trace.gz"
    path.write_bytes(gzip.compress(text)[:-100])
    with pytest.raises(TraceError, match="damaged or cut short"):
        open_trace(path)
    trace = open_trace(path, skip_bad=True)
    assert 1 <= trace.num_skipped <= 2
    assert 0 < len(list(trace.requests)) < 5000


@pytest.mark.parametrize(
    "content", ["", "\n\n", "{}", '{"strange": 1}', "hello", "[" * 100_000]
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_without_a_trace_is_refused(trace_file, content, skip_bad):
    """Nothing at all, or nothing known, is never an empty trace."""
    with pytest.raises(
        TraceError, match=r"no record of a trace|no known trace|not JSON"
    ):
        open_trace(trace_file(content), skip_bad=skip_bad)


def test_a_missing_file_is_refused_even_if_bad_records_are_not(tmp_path):
    """skip_bad is about records, not about the file."""
    with pytest.raises(TraceError, match="cannot be opened: No such file"):
        open_trace(tmp_path / "none.jsonl", skip_bad=True)


def test_an_unknown_format_is_refused_with_the_known_ones(trace_file):
    """The message lists what may be written."""
    with pytest.raises(ConfigError, match=r"'mooncoke' is unknown.*mooncake"):
        open_trace(trace_file(LINE), format="mooncoke")


def test_an_impossible_block_size_is_refused(trace_file):
    """Zero tokens per block is nothing."""
    with pytest.raises(ConfigError, match="block_tokens is 0"):
        open_trace(trace_file(LINE), block_tokens=0)


def test_a_folder_is_read_file_by_file_and_documents_may_span_lines(tmp_path):
    """One JSON object per file, in the order of the names; notes are left alone."""
    for name, tokens in (("b.json", 128), ("a.json", 64)):
        request = {
            "t": 0,
            "in": tokens,
            "out": 1,
            "hash_ids": list(range(tokens // 64)),
        }
        session = {"id": name, "block_size": 64, "requests": [request]}
        (tmp_path / name).write_text(json.dumps(session, indent=1))
    (tmp_path / "README.md").write_text("about the trace")
    assert ["a.json", "b.json"] == [r.session for r in open_trace(tmp_path).requests]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(TraceError, match="the folder holds no trace"):
        open_trace(empty)


def test_a_trace_can_be_walked_again_and_by_two_at_once(trace_file):
    """Each walk begins anew, whatever another one has reached."""
    trace = open_trace(trace_file(LINE, LINE | {"timestamp": 10}))
    first, second = iter(trace.requests), iter(trace.requests)
    assert next(first) == next(second)
    assert list(trace.requests)[1:] == list(first)
