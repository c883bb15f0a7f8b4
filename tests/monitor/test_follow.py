"""Following a server that answers, falls silent, and comes back."""

import pytest
from status_answers import answer, engine, followed

from kvcellar.errors import CellarError
from kvcellar.monitor.follow import Follower


def test_silence_is_said_after_a_while():
    """With the reason, once the last answer is too old for its interval."""
    follower = followed(answer(engine(1)))
    assert "" == follower.silence(4.9, 1.0)
    assert "no answer for 5 s" == follower.silence(5.0, 1.0)
    follower.failed("no server answers")
    assert "no answer for 6 s: no server answers" == follower.silence(6.0, 1.0)
    assert "" == follower.silence(6.0, 10.0)
    follower.answered(answer(engine(9)), 7.0)
    assert "" == follower.silence(7.5, 1.0)
    assert "no answer for 6 s" == follower.silence(13.0, 1.0)  # the old reason is gone


def test_before_the_first_answer():
    """There is nothing to show, and a history is worth asking for."""
    follower = Follower()
    assert "no answer yet" == follower.silence(0.0, 1.0)
    assert follower.is_behind(0.0)
    follower.answered(answer(engine(1)), 1.0)
    assert not follower.is_behind(2.0)
    assert follower.is_behind(7.0)


def test_an_engine_that_left_is_missing():
    """It stays in the list, marked, until it answers again."""
    both = answer(engine(1, number=0), engine(1, number=1))
    follower = followed(both, answer(engine(2, number=0)))
    assert [False, True] == [one.is_missing for one in follower.engines.values()]
    follower.answered(both, 3.0)
    assert not any(one.is_missing for one in follower.engines.values())


def test_reset_forgets_engines_that_left():
    """They may never come back; what is there still has something to show."""
    both = answer(engine(1, number=0), engine(1, number=1))
    follower = followed(both, answer(engine(2, number=1)))
    follower.reset()
    assert [1] == list(follower.engines)
    follower.answered(answer(engine(1, number=5)), 9.0)
    for one in follower.engines.values():
        one.is_missing = True
    follower.reset()
    assert 1 == len(follower.engines)


def test_what_is_no_status_changes_nothing():
    """The last picture stays."""
    follower = followed(answer(engine(1)))
    with pytest.raises(CellarError):
        follower.answered({"engines": "none"}, 1.0)
    assert [False] == [one.is_missing for one in follower.engines.values()]
