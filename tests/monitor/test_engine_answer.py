"""Reading a status: what is missing is nothing, what is no status is refused."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from status_answers import answer, engine, followed, recorded

from kvcellar.errors import CellarError
from kvcellar.monitor.engine_answer import clean, read_status

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["engine", "tiers", "host", "totals"]), inner)
    ),
    max_leaves=8,
)


def test_a_real_servers_answer():
    """Its history comes first, then the totals of now."""
    (one,) = read_status(recorded())
    assert "tiny-gemma3" == one.text("model")
    assert one.number("tiers", "host", "chunks") > 0
    assert len(list(one.rows("prefixes"))) > 3
    uptimes = [sample.uptime_seconds for sample in (*one.history, one.sample)]
    assert sorted(uptimes) == uptimes
    assert len(uptimes) > 60


def test_what_is_missing_is_nothing():
    """An older server says less, and nothing fails."""
    (one,) = read_status({"engines": [{"tiers": {}}]})
    assert (0, 0, ()) == (one.engine, one.identity, one.history)
    assert "" == one.text("settings", "mode")
    assert 0 == one.number("tiers", "host", "chunks")
    assert [] == list(one.rows("prefixes"))


def test_engines_are_ordered_by_number():
    """However the server lists them."""
    found = read_status(answer(engine(1, number=1), engine(1, number=0)))
    assert [0, 1] == [one.engine for one in found]


def test_engines_with_the_same_number_are_told_apart():
    """By their processes, so that none hides another and none looks started again."""
    both = answer(engine(1, process_id=9), engine(5, process_id=4))
    follower = followed(both, both, both)
    assert [0, 1] == list(follower.engines)
    assert [4, 9] == [one.answer.identity for one in follower.engines.values()]
    assert [0, 0] == [one.history.num_restarts for one in follower.engines.values()]


@pytest.mark.parametrize(
    "wrong", [{}, {"engines": []}, {"engines": [3]}, {"engines": [{}]}, {"error": "x"}]
)
def test_what_is_no_status_is_refused(wrong):
    """In one sentence."""
    with pytest.raises(CellarError, match="no kvcellar status"):
        read_status(wrong)


@given(st.dictionaries(st.just("engines"), ANYTHING))
def test_no_answer_breaks_it(wrong):
    """Whatever comes is read or refused."""
    with contextlib.suppress(CellarError):
        assert read_status(wrong)


@given(st.text())
def test_names_cannot_move_the_terminal(text):
    """One cell for each character, and no control sequence."""
    cleaned = clean(text)
    assert len(text) == len(cleaned)
    assert cleaned.isprintable()
    assert "\x1b" not in cleaned


def test_wide_characters_are_replaced():
    """They would take two cells."""
    assert "a?b?" == clean("a模b\u0301")
