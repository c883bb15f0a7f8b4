"""Keys and time, without a terminal."""

import pytest
from status_answers import answer, engine, followed, recorded, tokens

from kvcellar.monitor.top.session import INTERVALS, Session


class ToldPoller:
    """Answers what a test gives it; notes what is asked."""

    def __init__(self):
        self.asked = []
        self.outcome = None

    def ask(self, *, with_history):
        self.asked.append(with_history)

    def take(self):
        outcome, self.outcome = self.outcome, None
        return outcome


@pytest.fixture
def poller():
    return ToldPoller()


@pytest.fixture
def session(poller):
    return Session(followed(recorded()), poller, 1.0)


def test_it_asks_once_an_interval(session, poller):
    """And for a history only when more than a moment is missing."""
    for tenth in range(35):
        session.tick(tenth / 10)
    assert [False] * 4 == poller.asked
    session.tick(9.0)
    assert [False] * 4 + [True] == poller.asked


def test_answers_and_failures_are_taken_in(session, poller):
    """A failure is said once the last answer is old; odd answers are failures."""
    assert not session.tick(0.0)
    poller.outcome = "no server answers"
    assert session.tick(1.0)
    assert "" == session.silence(1.0)
    assert "no answer for 6 s: no server answers" == session.silence(6.0)
    poller.outcome = {"engines": 3}
    session.tick(7.0)
    assert "no kvcellar status" in session.view(80, 7.0).silence
    poller.outcome = recorded()
    assert session.tick(8.0)
    assert "" == session.view(80, 8.0).silence


def test_pause_stops_asking(session, poller):
    """Nothing is called silent meanwhile; going on asks at once, with history."""
    session.tick(0.0)
    session.pause()
    assert "paused" == session.state
    session.tick(50.0)
    assert [False] == poller.asked
    assert "" == session.silence(50.0) == session.view(80, 50.0).silence
    session.pause()
    session.tick(50.1)
    assert [False, True] == poller.asked


def test_the_interval_has_steps(session):
    """Both ends are ends."""
    for _ in range(20):
        session.slower()
    assert INTERVALS[-1] == session.interval_seconds
    for _ in range(20):
        session.faster()
    assert (INTERVALS[0], "every 0.5 s") == (session.interval_seconds, session.state)


def test_windows_go_round(session):
    """A minute, ten minutes, since start, a minute."""
    wished = []
    for _ in range(4):
        wished.append(session.view(80, 0.0).wished_seconds)
        session.next_window()
    assert [60.0, 600.0, None, 60.0] == wished


def test_reset_lets_the_window_begin_now(session):
    """Nothing of before is in it."""
    session.reset()
    assert 0 == session.view(80, 0.0).sources.total


def test_reset_shows_all_if_the_engine_shown_has_left(poller):
    """And nothing fails."""
    both = answer(engine(1, tokens()), engine(1, tokens(), number=1))
    session = Session(followed(both, answer(engine(2, tokens()))), poller, 1.0)
    session.next_engine()
    session.next_engine()
    assert 1 == session.view(80, 0.0).server.engine
    session.reset()
    assert session.view(80, 0.0).server.engine is None


def test_engines_go_round(session, poller):
    """All, each alone, all; one engine is always all."""
    session.next_engine()
    assert session.view(80, 0.0).server.engine is None
    both = answer(engine(1, tokens()), engine(1, tokens(), number=1))
    several, shown = Session(followed(both), poller, 1.0), []
    for _ in range(4):
        shown.append(several.view(80, 0.0).server.engine)
        several.next_engine()
    assert [None, 0, 1, None] == shown
