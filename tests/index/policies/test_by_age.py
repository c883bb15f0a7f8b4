"""The longest unused and the latest used, whatever comes and goes."""

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.by_age import ByAge


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 3))))
def test_both_ends_are_those_of_a_sorted_list(steps):
    """Of equals the deepest is the first, and of these who came first."""
    queue, here = ByAge(), []
    for is_added, time, depth in steps * 3:  # enough to sweep
        if is_added or not here:
            node = Evictable(depth, float(time))
            queue.add(node)
            here.append(node)
        else:
            queue.remove(here.pop(time % len(here)))
        ordered = sorted(here, key=lambda node: (node.last_use, -node.depth))
        expected = [*ordered[:1], *ordered[-1:]] if len(ordered) > 1 else ordered
        assert expected == list(queue.ends())
        assert set(here) == set(queue)
        assert len(here) == len(queue)


def test_what_has_gone_is_swept_out():
    """A queue is no longer than what it has held at one time, twice over."""
    queue, stays = ByAge(), Evictable(1, 3.0)
    queue.add(stays)
    for time in range(1000):
        node = Evictable(1, float(time % 7))
        queue.add(node)
        queue.remove(node)
    assert (stays,) == queue.ends()
    assert len(queue._entries) < 100
