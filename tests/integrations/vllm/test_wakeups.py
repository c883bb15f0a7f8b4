"""Which requests are looked at in a step, and which sleep."""

from types import SimpleNamespace

from kvcellar.integrations.vllm.wakeups import Wakeups, Watched


def watched(name):
    return Watched(SimpleNamespace(request_id=name))


def test_a_request_in_its_prompt_is_looked_at_in_every_step():
    """Until it is put to sleep or forgotten."""
    wakeups, request = Wakeups(1), watched("a")
    wakeups.watch(request)
    assert [[request], [request]] == [wakeups.next_step() for _ in range(2)]
    wakeups.forget(request)
    assert [] == wakeups.next_step()


def test_a_sleeper_wakes_when_it_can_have_reached_its_boundary():
    """32 tokens at one a step: not before the 32nd step; with 3 drafts the 8th."""
    for most, steps in ((1, 32), (4, 8)):
        wakeups, request = Wakeups(most), watched("a")
        wakeups.watch(request)
        wakeups.next_step()
        wakeups.sleep(request, 32)
        seen = [wakeups.next_step() for _ in range(steps)]
        assert [[]] * (steps - 1) + [[request]] == seen


def test_a_sleeper_that_is_watched_again_does_not_wake_twice():
    """A preempted request starts afresh; its old appointment is void."""
    wakeups, request = Wakeups(1), watched("a")
    wakeups.watch(request)
    wakeups.next_step()
    wakeups.sleep(request, 3)
    wakeups.watch(request)
    wakeups.forget(request)
    assert [[], [], [], []] == [wakeups.next_step() for _ in range(4)]


def test_one_token_to_go_means_the_next_step():
    """A request about to cross stays awake."""
    wakeups, request = Wakeups(1), watched("a")
    wakeups.watch(request)
    wakeups.next_step()
    wakeups.sleep(request, 1)
    assert [request] == wakeups.next_step()
