"""What happens to an engine is drawn, written down, read and run again."""

import json

import pytest

pytest.importorskip("vllm")

from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash

from kvcellar.errors import ConfigError
from kvcellar.testing.oracle import events, record
from kvcellar.testing.oracle.__main__ import main
from kvcellar.testing.oracle.content import (
    TokenStream,
    next_value,
    prefix_values,
)
from kvcellar.testing.oracle.layouts import LAYOUT_NAMES
from kvcellar.testing.oracle.requests import arrived, cut, engine_request
from kvcellar.testing.oracle.setup import OracleOptions, make_oracle

OPTIONS = OracleOptions("three-windows", seed=3, host_prompts=8.0)
HASH_TOKENS = 16

names = st.sampled_from(["r1", "r2"])
counts = st.integers(0, 50)
segments = st.lists(st.tuples(names, counts, st.integers(1, 40)), max_size=3)
pictures = st.lists(st.tuples(counts, st.integers(1, 9), counts), max_size=2)
any_event = st.one_of(
    st.builds(
        events.Arrive,
        names,
        segments.map(tuple),
        counts,
        salt=counts,
        adapter=counts,
        pictures=pictures.map(tuple),
        is_embedded=st.booleans(),
        can_stop=st.booleans(),
        controls=st.sampled_from([(), (("skip_load", True), ("tags", ["a"]))]),
    ),
    st.builds(events.Extend, names, names, counts, counts),
    st.builds(events.CloseSession, names),
    st.builds(events.Abort, names),
    st.builds(events.Reset, st.booleans(), st.booleans()),
    st.builds(events.Forget, st.sampled_from([0.2, 1.0]), counts),
    st.builds(events.Speed, st.sampled_from([0.0, 0.9])),
    st.builds(events.Steps, counts),
    st.just(events.Finish()),
)


@given(any_event)
def test_an_event_survives_being_written(event):
    """As a line of JSON it reads back equal."""
    line = json.dumps(events.to_record(event))
    assert event == events.from_record(json.loads(line))


def test_a_run_draws_every_kind_of_event():
    """And every kind of request; prompts end on boundaries, before and behind them."""
    oracle = make_oracle(OracleOptions("three-windows", seed=2, device_prompts=3.0))
    figures = oracle.run(1500)
    oracle.close()
    assert set(events._KINDS) == {type(event).__name__ for event in oracle.log}
    arrivals = [e for e in oracle.log if isinstance(e, events.Arrive)]
    for trait in (
        "salt",
        "adapter",
        "pictures",
        "is_embedded",
        "skips_reading",
        "controls",
    ):
        assert any(getattr(event, trait) for event in arrivals), trait
    unit = oracle.planner.layout.chunk_tokens
    rests = {sum(n for _, _, n in e.segments) % unit for e in arrivals}
    assert {0, 1, unit - 1} <= rests
    assert figures.num_delayed
    assert figures.num_shortened
    assert figures.num_extensions
    assert figures.loaded_tokens


def test_the_events_of_a_run_make_the_same_run():
    """Applied to a fresh engine they lead to equal figures."""
    oracle = make_oracle(OPTIONS)
    expected = oracle.run(150).describe()
    oracle.close()
    again = make_oracle(OPTIONS)
    for event in oracle.log:
        again.apply(event)
    again.close()
    assert expected == again.figures.describe()


# -- files ----------------------------------------------------------------------------


@pytest.fixture
def fault(monkeypatch):
    """From its second prompt on, each run copies blocks in a wrong order."""
    from kvcellar.device.cpu import CpuDevice

    copy = CpuDevice.copy

    def shifted(self, job, fence=None):
        for part in job.copies:
            if job.direction.value == "store" and len(part.device_blocks) > 1:
                part.device_blocks[:] = part.device_blocks[::-1].copy()
        return copy(self, job, fence)

    monkeypatch.setattr(CpuDevice, "copy", shifted)


@pytest.fixture
def failed(fault, tmp_path, capsys):
    """The file of a failed run."""
    path = tmp_path / "failed.jsonl"
    arguments = ["--layout", "three-windows", "--steps", "400", "--seed", "3"]
    assert 1 == main([*arguments, "--mode", "eager", "--log", str(path)])
    told = capsys.readouterr().out
    assert "FAILED with --seed 3" in told
    assert f"--replay {path}" in told
    return path


def test_a_failed_run_replays_and_fails_the_same_way(failed, capsys):
    """Same exception, same words, same step."""
    assert 1 == main(["--replay", str(failed)])
    assert "as written" in capsys.readouterr().out
    assert record.read(failed).failure.kind == "WrongBytesError"


def test_a_replay_can_stop_right_before_the_failure(failed, capsys):
    """``--until`` ends it; one step more fails."""
    step = record.read(failed).failure.step
    assert 0 == main(["--replay", str(failed), "--until", str(step)])
    assert f"no failure in {step} steps" in capsys.readouterr().out
    assert 1 == main(["--replay", str(failed), "--until", str(step + 1)])


def test_lines_can_be_deleted(failed):
    """Without a request that has no part in it, the same bytes are wrong."""
    written = record.read(failed)
    victim = written.failure.message.split()[1]
    others = [
        event
        for event in written.events
        if isinstance(event, events.Arrive) and event.request_id != victim
    ]
    messages = []
    for event in others:
        fewer = [e for e in written.events if e is not event]
        failure, _ = record.run_events(written.options, fewer)
        messages.append(failure.message if failure else "")
    assert any(victim in message for message in messages)


def test_a_failure_shrinks_by_itself(failed, capsys):
    """To few events of which none can be left out; they fail alike."""
    assert 1 == main(["--replay", str(failed), "--shrink"])
    assert "shrunk to" in capsys.readouterr().out
    small = record.read(failed.with_suffix(".small.jsonl"))
    assert len(small.events) <= len(record.read(failed).events) // 2
    assert small.failure.kind == "WrongBytesError"
    assert small.failure == record.run_events(small.options, small.events)[0]
    for event in small.events:
        fewer = [e for e in small.events if e is not event]
        assert record.run_events(small.options, fewer)[0] is None


def test_without_the_fault_the_same_events_do_no_harm(failed, monkeypatch, capsys):
    """What is written is what happened, not that it failed."""
    monkeypatch.undo()
    assert 0 == main(["--replay", str(failed)])
    assert "no failure" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"event":"Storm"}'], "line 1 is not an oracle's event"),
        (['{"options":{"layout":"ring"}}', "nonsense"], "line 2 is not"),
        (['{"event":"Steps","speed":1}'], "line 1 is not"),
        (['{"event":"Finish"}'], "has no line with options"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(tmp_path, capsys, lines, message):
    """With the line's number; exit code 2."""
    path = tmp_path / "bad.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=message):
        record.read(path)
    assert 2 == main(["--replay", str(path)])
    assert message in capsys.readouterr().err


def test_other_versions_are_told(tmp_path):
    """Those of the packages that were others when the file was written."""
    path = tmp_path / "old.jsonl"
    record.write(path, OPTIONS, [], record.Failure("HangError", "", 1))
    assert {} == record.other_versions(path)
    path.write_text(path.read_text().replace('"vllm":"', '"vllm":"0.1+'))
    assert ["vllm"] == list(record.other_versions(path))


def test_the_command_line_reports_and_returns(capsys):
    """Figures in the last line, exit code 0; ``list`` names the layouts."""
    assert 0 == main(["--layout", "full24-swa16", "--steps", "60", "--mode", "lazy"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("full24-swa16 lazy: num_steps")
    assert 0 == main(["--layout", "list"])
    assert list(LAYOUT_NAMES) == capsys.readouterr().out.split()


# -- what a prefix is -----------------------------------------------------------------


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 5))
def test_values_grow_token_by_token(tokens, mark):
    """One more token at a time leads to the values of the whole."""
    marks = ((0, mark), (len(tokens) // 2, 7))
    expected, total = prefix_values(tokens, marks)
    longer, _ = prefix_values([*tokens, 3], marks)
    assert next_value(total, len(tokens), 3)[1] == longer[-1]
    assert expected.tolist() == longer[:-1].tolist()


def test_a_stream_reads_alike_at_once_and_one_by_one():
    """Its tokens depend on name, place and seed alone."""
    stream = TokenStream(1, "r1")
    assert stream.span(5, 40) == [stream.at(place) for place in range(5, 40)]
    assert stream.span(0, 40) != TokenStream(2, "r1").span(0, 40)
    assert stream.span(0, 40) != TokenStream(1, "r2").span(0, 40)


@given(segments.map(tuple), st.integers(0, 130))
def test_cut_segments_are_a_prefix(parts, num_tokens):
    """Of exactly so many tokens, where there are that many."""
    whole = arrived(0, events.Arrive("r", parts, 1)).tokens
    some = arrived(0, events.Arrive("r", cut(parts, num_tokens), 1)).tokens
    assert whole[:num_tokens] == some


a_request = st.builds(
    events.Arrive,
    st.just("r"),
    st.sampled_from([(("a", 0, 64),), (("a", 0, 33), ("b", 33, 31))]),
    st.just(1),
    salt=st.sampled_from([0, 0, 1]),
    adapter=st.sampled_from([0, 0, 1, 2]),
    pictures=st.sampled_from(
        [(), ((20, 9, 0),), ((20, 9, 1),), ((20, 8, 1),), ((4, 3, 1), (32, 20, 2))]
    ),
    is_embedded=st.sampled_from([False, False, True]),
)


@settings(max_examples=300, deadline=None)
@given(a_request, a_request)
def test_contents_are_equal_exactly_where_the_engine_s_keys_are(one, other):
    """Adapters, salts, pictures and embeddings: the cache must tell what keys tell."""
    init_none_hash(sha256)
    hasher = get_request_block_hasher(HASH_TOKENS, sha256)
    keys, contents = [], []
    for event in (one, other):
        wanted = arrived(0, event)
        keys.append(engine_request(wanted, hasher).block_hashes)
        values, _ = prefix_values(wanted.tokens, wanted.marks)
        contents.append(values[HASH_TOKENS - 1 :: HASH_TOKENS].tolist())
    equal_keys = [a == b for a, b in zip(*keys, strict=True)]
    equal_contents = [a == b for a, b in zip(*contents, strict=True)]
    assert equal_keys == equal_contents
