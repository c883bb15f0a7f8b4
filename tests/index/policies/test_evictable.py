"""Histories against lists of all uses."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import HALF_LIFE_SECONDS, NEVER, Evictable
from kvcellar.index.ghosts import Ghosts

TIMES = st.lists(st.integers(0, 5000), unique=True, max_size=12).map(sorted)


def used_at(times):
    node = Evictable(1, 0.0)
    for time in times:
        node.count_use(float(time))
    return node


def assert_history(node, times):
    """``node`` has been used at exactly these times."""
    latest = sorted(times, reverse=True)
    assert [*latest, NEVER, NEVER][:2] == [node.latest, node.previous]
    score = sum(2.0 ** (time / HALF_LIFE_SECONDS) for time in times)
    expected = math.log2(score) if times else NEVER
    assert node.score == pytest.approx(expected)


@given(times=TIMES)
def test_a_history_is_the_two_latest_uses_and_a_fading_sum(times):
    """However many uses there were."""
    assert_history(used_at(times), times)


@given(times=TIMES, split=st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_parent_takes_over_what_its_child_was_used_for(times, split):
    """Uses are written on one of the two; in the end the parent has them all."""
    own = [t for t, is_own in zip(times, split, strict=False) if is_own]
    childs = [t for t in times if t not in own]
    parent = used_at(own)
    parent.take_over(used_at(childs))
    assert_history(parent, times)
    assert len(times) == parent.num_uses


@given(times=TIMES, later=st.lists(st.integers(5001, 9000), unique=True, max_size=4))
def test_what_returns_and_goes_again_counts_once(times, later):
    """The uses from before are known to the parent already."""
    parent, child, ghosts = used_at([]), used_at(times), Ghosts()
    parent.take_over(child)
    ghosts.leave(b"child", child, parent, most=5)
    child = Evictable(2, 0.0)
    child.remember(ghosts.returns(b"child"))
    assert_history(child, times)
    for time in sorted(later):
        child.count_use(float(time))
    parent.take_over(child)
    assert_history(parent, [*times, *later])


def test_only_the_latest_ghosts_are_kept():
    """And each is told once."""
    ghosts, root = Ghosts(), used_at([])
    for key in (b"a", b"b", b"c", b"a"):
        ghosts.leave(key, used_at([1]), root, most=2)
    assert [False, False, True] == [
        ghosts.returns(key) is not None for key in (b"b", b"x", b"c")
    ]
    assert [True, False] == [ghosts.returns(b"a") is not None for _ in range(2)]
