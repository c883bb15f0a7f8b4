"""Asking in the background."""

import threading

from kvcellar.errors import CellarError, NoAnswerError
from kvcellar.monitor.poll import Poller


def outcome_of(poller):
    """What comes back; the thread is waited for, not the clock."""
    for thread in threading.enumerate():
        if thread.name == "kvcellar-top":
            thread.join(10)
    return poller.take()


def test_one_question_at_a_time():
    """A slow server is not asked again before it has answered."""
    asked, release = [], threading.Event()

    def fetch(with_history):
        asked.append(with_history)
        release.wait(10)
        return {"engines": []}

    poller = Poller(fetch)
    poller.ask(with_history=True)
    poller.ask(with_history=False)
    assert poller.is_busy
    assert poller.take() is None
    release.set()
    assert {"engines": []} == outcome_of(poller)
    assert [True] == asked
    poller.ask(with_history=False)
    assert {"engines": []} == outcome_of(poller)
    assert [True, False] == asked


def test_what_goes_wrong_is_an_outcome():
    """In words, and the next question may be asked."""
    for error, words in (
        (CellarError("no status"), "no status"),
        (ValueError("odd"), "ValueError('odd')"),
        (NoAnswerError("http://h", "timed out", "wait"), "timed out"),
    ):

        def fetch(_, error=error):
            raise error

        poller = Poller(fetch)
        poller.ask(with_history=False)
        assert words == outcome_of(poller)
        assert not poller.is_busy
