"""From answers to what is shown."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from status_answers import answer, engine, followed, recorded, tokens

from kvcellar.monitor.make_view import Wish, make_view
from kvcellar.monitor.reason_words import MOST_CHARACTERS, WORDS, words
from kvcellar.monitor.view import Level
from kvcellar.reasons import MissReason

NOW = 1.0


def view_of(*answers, **wish):
    return make_view(followed(*answers), Wish(**wish), NOW)


def test_the_recorded_server():
    """Sources, reasons and copies add up; the window is the last minute."""
    view = view_of(recorded())
    assert 59 < view.window_seconds < 62
    assert view.sources.computed == pytest.approx(sum(r.tokens for r in view.misses))
    assert 1 == pytest.approx(sum(row.share for row in view.misses))
    assert ["store", "load"] == [row.direction for row in view.copies]
    assert all(row.seconds_each > 0 for row in view.copies)
    host = view.host
    assert host.capacity_bytes == pytest.approx(
        host.chunk_bytes + host.checkpoint_bytes + host.free_bytes
    )
    assert 0 < view.device.held_share < 1
    assert view.loading.saved_seconds > 0
    assert view.prefixes[0].num_requests > 1
    assert ("tiny-gemma3", "eager adaptive") == (view.server.model, view.server.setting)
    assert () == view.engines


def test_savings_are_told_at_the_best_rate_measured():
    """Short remainders of prompts look slow: they do not make loads look better."""
    key = "kvcellar_measured_prefill_tokens_per_second"
    counters = [{"counters": {key: rate}} for rate in (0, 200, 50)]
    totals = [tokens(0, host, 0) for host in (0, 400, 600)]
    answers = [answer(engine(10 + at, totals[at], **counters[at])) for at in range(3)]
    assert view_of(answers[0]).loading.saved_seconds is None
    loading = view_of(*answers).loading
    assert (3.0, 50) == (loading.saved_seconds, loading.prefill_tokens_per_second)
    again = answer(engine(1, totals[0], process_id=8, **counters[2]))
    later = answer(engine(2, totals[1], process_id=8, **counters[2]))
    assert 8.0 == view_of(*answers, again, later).loading.saved_seconds


def test_engines_are_added_up_or_shown_alone():
    """Each by its own clock; host memory and rates are sums."""
    first = answer(
        engine(10, tokens(0, 0, 0, requests=0)),
        engine(1000, tokens(0, 0, 0, requests=0), number=1),
    )
    second = answer(
        engine(20, tokens(100, 50, 50, requests=5)),
        engine(1020, tokens(0, 0, 400, requests=8), number=1),
    )
    view = view_of(first, second)
    assert (100, 50, 450) == dataclasses.astuple(view.sources)
    assert 200 / 10 + 400 / 20 == view.tokens_per_second
    assert 5 / 10 + 8 / 20 == pytest.approx(view.requests_per_second)
    assert (2000, 600, 200) == (
        view.host.capacity_bytes,
        view.host.chunk_bytes,
        view.host.checkpoint_bytes,
    )
    assert [0.75, 0.0] == [row.served_share for row in view.engines]
    alone = view_of(first, second, engine=1)
    assert 400 == alone.sources.total
    assert (1, 2) == (alone.server.engine, alone.server.num_engines)


def test_prefixes_of_several_engines_are_one():
    """The same prefix on two engines is one row; the heaviest comes first."""
    row = {"key": "aa", "tokens": 8, "requests": 2, "served_tokens": 16, "weight": 16}
    other = {"key": "bb", "tokens": 8, "requests": 3, "served_tokens": 24, "weight": 24}
    view = view_of(
        answer(
            engine(1, prefixes=[other, row | {"host_tokens": 16}]),
            engine(1, number=1, prefixes=[row | {"host_tokens": 0}]),
        )
    )
    assert ["aa", "bb"] == [one.key for one in view.prefixes]
    assert (8, 4, 32, 0.5) == dataclasses.astuple(view.prefixes[0])[1:]


def test_the_picture_over_time_spans_the_window():
    """Slots are as long as the window and the interval ask for."""
    assert 1.0 == view_of(recorded(), num_slots=70).slot_seconds
    assert 10.0 == view_of(recorded(), num_slots=70, window_seconds=600.0).slot_seconds
    assert 5.0 == view_of(recorded(), interval_seconds=5.0).slot_seconds
    assert 90.0 == view_of(recorded(), interval_seconds=90.0).slot_seconds
    view = view_of(recorded(), num_slots=30)
    assert 30 == len(view.slots)
    assert None not in view.slots


def test_the_fullest_tenant_is_named():
    """By its share of what it may hold."""
    tenants = {
        "tenants": 2,
        "most_bytes": 100,
        "fullest": [{"name": "red\x1b", "used_bytes": 90}, {"name": 3}],
    }
    host = view_of(answer(engine(1, tenants=tenants))).host
    assert (2, ("red?", 0.9)) == (host.num_tenants, host.fullest)
    assert view_of(answer(engine(1))).host.fullest is None


def remarks_of(totals, **fields):
    """The remarks after ten seconds in which these totals grew from nothing."""
    start = answer(engine(1, tokens(), **fields))
    return view_of(start, answer(engine(11, totals, **fields))).remarks


@pytest.mark.parametrize(
    ("totals", "text"),
    [
        (
            {"missed_tokens_evicted": 20, "evicted_chunks": 5},
            "host memory is small for this: 20% of prompt tokens had "
            "been evicted, or not let in",
        ),
        (
            {"missed_tokens_no_room": 9},
            "running requests fill host memory: 9% of prompt tokens found no room",
        ),
        ({"failed_load_jobs": 2}, "2 load jobs failed; the server's log says why"),
        (
            {"load_jobs": 2, "load_seconds": 6},
            "a request waits 3.0 s for its load: copies are slow",
        ),
    ],
)
def test_what_is_wrong_comes_first(totals, text):
    """Memory that is too small or too full, failed copies and slow ones."""
    first = remarks_of(tokens(0, 0, 100, **totals))[0]
    assert (Level.WARNING, text) == (first.level, first.text)


def test_an_engine_that_left_is_a_warning():
    """It may have died, and the others go on."""
    both = answer(engine(1), engine(1, number=1))
    view = view_of(both, answer(engine(2)))
    assert "engine 1 no longer answers" == view.remarks[0].text


@pytest.mark.parametrize(
    ("totals", "part"),
    [
        (tokens(), "no prompt began"),
        (
            tokens(0, 0, 100, missed_tokens_never_seen=90),
            "prompts are new: 90% of computed tokens were never seen",
        ),
        (
            tokens(0, 60, 40, missed_tokens_last_boundary=40),
            "short beside a chunk: 40% of tokens",
        ),
        (tokens(0, 90, 10), "host memory is not full and nothing was evicted"),
        (
            tokens(0, 90, 10, evicted_chunks=1, missed_tokens_evicted=1),
            "host memory suffices: 1% of prompt tokens",
        ),
    ],
)
def test_what_is_not_wrong_is_said_too(totals, part):
    """Nothing asked, new prompts, short prompts, room left, enough room."""
    first = remarks_of(totals)[0]
    assert part in first.text
    assert Level.WARNING is not first.level


def test_every_reason_has_short_words():
    """Each its own, none longer than its column; a newer server's stays as it is."""
    assert set(MissReason) == set(WORDS)
    assert len(WORDS) == len(set(WORDS.values()))
    assert max(map(len, WORDS.values())) <= MOST_CHARACTERS
    assert "gone_fishing" == words("gone_fishing")


TOTALS = st.dictionaries(
    st.sampled_from(
        [*tokens(), "requests", "missed_tokens_evicted", "load_jobs", "load_seconds"]
    ),
    st.integers(0, 10**12),
)


@given(st.lists(st.tuples(st.floats(0.1, 1e6), TOTALS), min_size=1, max_size=6))
def test_any_history_makes_a_view(moments):
    """Shares stay within bounds and no figure is negative, restarts included."""
    view = view_of(*(answer(engine(at, totals)) for at, totals in moments))
    assert 0 <= view.sources.served_share <= 1 + 1e-9
    assert min(dataclasses.astuple(view.sources)) >= 0
    assert min(view.tokens_per_second, view.requests_per_second) >= 0
    assert 60 == len(view.slots)
    assert view.remarks
