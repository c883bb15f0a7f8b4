"""Meetings of ranks over pipes."""

import os
import threading

import pytest
from meeting_ranks import LONG_SECONDS, in_threads, meetings

from kvcellar.errors import TierError


@pytest.fixture(params=[2, 3, 5])
def ranks(request):
    """Meetings of so many ranks, closed at the end."""
    made = meetings(request.param)
    yield made
    for meeting in made:
        meeting.close()


def test_nobody_goes_on_before_the_last_has_come(ranks):
    """Each rank sees, after each meeting, that all have done what comes before it."""
    done = [0] * len(ranks)

    def work(rank: int) -> list[int]:
        seen = []
        for token in range(200):
            done[rank] = token + 1
            ranks[rank].meet(token)
            seen.append(min(done))
        return seen

    for seen in in_threads(work, len(ranks)):
        assert all(lowest >= token + 1 for token, lowest in enumerate(seen))


def test_a_rank_that_leaves_ends_the_others_wait(ranks):
    """They learn it while they wait, not when a time is up, and leave too."""

    def work(rank: int) -> str:
        if not rank:
            ranks[0].leave()
            return ""
        with pytest.raises(TierError) as caught:
            ranks[rank].meet(7)
        return str(caught.value)

    told = in_threads(work, len(ranks))
    assert all("has left" in text for text in told[1:])
    for meeting in ranks:
        with pytest.raises(TierError, match="this rank has left"):
            meeting.meet(8)


def test_other_meetings_are_refused():
    """Ranks that were given different jobs find out instead of going on."""
    one, other = made = meetings(2)

    def work(rank: int) -> str:
        with pytest.raises(TierError) as caught:
            made[rank].meet(10 + rank)
        return str(caught.value)

    texts = in_threads(work, 2)
    assert any("is at 11 and this one at 10" in text for text in texts) or any(
        "is at 10 and this one at 11" in text for text in texts
    )
    one.close()
    other.close()


def test_time_is_bounded():
    """A rank that does not come is named when the time is up."""
    one, other = meetings(2, timeout_seconds=0.01)
    with pytest.raises(TierError, match=r"rank\(s\) 1 did not come within 0.01 s"):
        one.meet(1)
    other.meet(1)  # rank 0 did come to this one
    with pytest.raises(TierError, match="rank 0 has left"):
        other.meet(2)
    one.close()
    other.close()


def test_an_interrupt_ends_waiting_now_and_later():
    """Closing an engine does not wait for other ranks."""
    one, other = meetings(2)
    caught = []

    def wait() -> None:
        with pytest.raises(TierError, match="interrupted") as error:
            one.meet(1)
        caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    one.interrupt()
    thread.join(LONG_SECONDS)
    assert 1 == len(caught)
    one.close()
    one.interrupt()
    other.close()


def test_everything_is_closed_once():
    """No descriptor is left, and a second close does nothing."""
    before = len(os.listdir("/proc/self/fd"))
    made = meetings(3)
    for meeting in made * 2:
        meeting.close()
    assert before == len(os.listdir("/proc/self/fd"))
