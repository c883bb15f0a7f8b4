"""The prefix tree: closure, eviction order, resume points, references."""

import pytest
from checkpoints import add_checkpoint
from cycles import unfreed
from layouts import LAYOUTS

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import InvariantError
from kvcellar.index.checks import check_index
from kvcellar.index.index import Index
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.lru2 import Lru2Policy
from kvcellar.index.slabs import SlabAllocator
from kvcellar.index.states import TRANSITIONS, State, require
from kvcellar.layout.host import plan_geometry


def make_index(name="gemma", host_bytes=1 << 16, live=LruPolicy, **options):
    layout = LAYOUTS[name]
    slabs = SlabAllocator(plan_geometry(layout, host_bytes))
    return Index(HybridRules(layout), slabs, live(), LruPolicy(), **options)


def grow(index, parent, keys, *, ready=True):
    """Add one chunk per key below ``parent``; returns the nodes."""
    nodes = index.add_path(parent, list(keys))
    assert len(keys) == len(nodes)
    if ready:
        index.publish(nodes)
    return nodes


def keys(text):
    return [text[: i + 1].encode() for i in range(len(text))]


def test_halving_finds_the_deepest_known_node():
    """For every length of path and every number of known chunks."""
    for num_known in range(9):
        index = make_index()
        nodes = grow(index, index.root, keys("abcdefgh"[:num_known]))
        for limit in range(9):
            found = index.deepest_known(keys("abcdefgh"), limit)
            expected = [index.root, *nodes][min(num_known, limit)]
            assert expected is found


def test_a_wrong_hint_is_not_believed():
    """A node of another path, or one that has grown, is only a hint."""
    index = make_index()
    first = grow(index, index.root, keys("abcd"))
    other = grow(index, index.root, keys("xyz"))
    assert first[3] is index.deepest_known(keys("abcd"), 4, hint=other[2])
    assert first[3] is index.deepest_known(keys("abcd"), 4, hint=first[1])
    assert first[1] is index.deepest_known(keys("abzz"), 4, hint=first[3])


def test_a_node_is_ready_only_below_ready_ancestors():
    """Completions out of order publish nothing early, and everything in the end."""
    index = make_index()
    a, b, c = grow(index, index.root, keys("abc"), ready=False)
    index.publish([c])
    index.publish([b])
    assert [State.STORING, State.STORED, State.STORED] == [n.state for n in (a, b, c)]
    index.publish([a])
    assert {State.READY} == {n.state for n in (a, b, c)}
    check_index(index)


def test_a_failed_chunk_takes_what_hangs_below_it():
    """Descendants of a failed store are never served, whenever they complete."""
    index = make_index()
    a, b, c = grow(index, index.root, keys("abc"), ready=False)
    index.publish([a])
    index.fail(b)
    assert index.deepest_known(keys("abc"), 3) is a
    index.publish([c])
    assert State.GONE is c.state
    check_index(index)


def test_eviction_goes_tail_first_along_the_oldest_path():
    """The tail of the least recently used path goes, never its head."""
    index = make_index("full")
    old = grow(index, index.root, keys("abc"))
    new = grow(index, index.root, keys("xyz"))
    index.touch(old[2], 1.0)
    index.touch(new[2], 2.0)
    gone = []
    for _ in range(4):
        index.evict_one()
        check_index(index)
        gone.append([n.state is State.GONE for n in (*old, *new)].count(True))
    assert [1, 2, 3, 4] == gone
    assert [State.READY, State.READY, State.GONE] == [n.state for n in new]


def test_a_use_of_a_deep_node_keeps_its_whole_path():
    """The stamp of a leaf that leaves is handed to its parent."""
    index = make_index("full")
    first = grow(index, index.root, keys("abc"))
    second = grow(index, index.root, keys("xyz"))
    index.touch(second[2], 1.0)
    index.touch(first[2], 2.0)
    for _ in range(4):
        index.evict_one()
    assert {State.GONE} == {n.state for n in second}
    assert [State.READY, State.READY, State.GONE] == [n.state for n in first]


def test_a_pin_protects_the_node_and_its_ancestors():
    """Pinned paths survive; when all is pinned, allocation is refused."""
    index = make_index("full", host_bytes=64 * 4)
    nodes = grow(index, index.root, keys("abcd"))
    index.pin(nodes[3])
    assert index.allocate(0) is None
    index.unpin(nodes[3])
    assert index.allocate(0) is not None
    assert State.GONE is nodes[3].state


def test_resume_point_is_the_nearest_checkpoint_above():
    """Also when checkpoints come late, in the middle, or leave."""
    index = make_index()
    nodes = grow(index, index.root, keys("abcdef"))
    assert index.root is index.resume_point(nodes[5])
    assert add_checkpoint(index, nodes[1])
    assert nodes[1] is index.resume_point(nodes[5])
    assert add_checkpoint(index, nodes[3])
    assert nodes[3] is index.resume_point(nodes[5])
    assert nodes[1] is index.resume_point(nodes[2])
    check_index(index)
    index._drop_checkpoint(nodes[3])
    assert nodes[1] is index.resume_point(nodes[5])
    check_index(index)


def test_a_checkpoint_that_returns_is_found_below_lagging_pointers():
    """A deep node that skipped its parents' pointers still learns of it."""
    index = make_index()
    nodes = grow(index, index.root, keys("abcd"))
    assert add_checkpoint(index, nodes[0])
    index._drop_checkpoint(nodes[0])
    assert index.root is index.resume_point(nodes[3])
    assert add_checkpoint(index, nodes[0])
    assert nodes[0] is index.resume_point(nodes[3])
    check_index(index)


def test_superseded_checkpoints_go_first_unless_a_branch_needs_them():
    """Replaced on an unbranched path: gone. With a branch between: kept."""
    index = make_index()
    nodes = grow(index, index.root, keys("abcd"))
    assert add_checkpoint(index, nodes[1])
    assert add_checkpoint(index, nodes[3])
    index.evict_one()
    assert nodes[1].checkpoint is None
    assert nodes[3].checkpoint is not None

    index = make_index()
    nodes = grow(index, index.root, keys("abcd"))
    grow(index, nodes[2], [b"abcx"])
    assert add_checkpoint(index, nodes[1])
    assert add_checkpoint(index, nodes[3])
    index.evict_one()
    assert nodes[1].checkpoint is not None


@pytest.mark.parametrize(
    "options", [{"superseded_first": False}, {"live": LrfuPolicy}, {"live": Lru2Policy}]
)
def test_superseded_checkpoints_may_be_left_in_their_place(options):
    """Then they go with their chunks, in the order of leaves like everything else; so
    they do wherever a path does not leave as a whole."""
    index = make_index(**options)
    nodes = grow(index, index.root, keys("abcd"))
    assert add_checkpoint(index, nodes[1])
    assert add_checkpoint(index, nodes[3])
    index.evict_one()
    assert State.GONE is nodes[3].state
    assert nodes[1].checkpoint is not None
    assert 0 == index.counters.superseded_checkpoints
    check_index(index)


def test_an_answer_does_not_supersede_the_end_of_its_prompt():
    """Its own checkpoints it does; a prompt that goes further supersedes them all."""
    index = make_index()
    nodes = grow(index, index.root, keys("abcdef"))
    assert add_checkpoint(index, nodes[1])  # the end of a prompt
    for node in nodes[2:4]:  # inside its answer
        assert add_checkpoint(index, node, is_decoded=True)
    index.evict_one()
    held = [node.checkpoint is not None for node in nodes]
    assert [False, True, False, True, False, False] == held
    assert index.order.superseded.take(()) is None
    assert add_checkpoint(index, nodes[5])  # the next turn repeats the answer
    assert [nodes[3], nodes[1], None] == [
        index.order.superseded.take(()) for _ in range(3)
    ]


def test_chunks_behind_the_last_checkpoint_go_before_useful_ones():
    """A tail that no resume point covers is dead weight, however recent."""
    index = make_index()
    useful = grow(index, index.root, keys("abc"))
    assert add_checkpoint(index, useful[2])
    dead = grow(index, useful[2], [b"abcd"])
    index.touch(dead[0], 99.0)
    other = grow(index, index.root, keys("xy"))
    assert add_checkpoint(index, other[1])
    index.evict_one()
    assert State.GONE is dead[0].state
    assert 1 == index.counters.dead_chunks
    check_index(index)


def test_reset_waits_for_jobs_and_publishes_none_of_them():
    """False while a store is in flight; its completion re-publishes nothing."""
    index = make_index()
    grow(index, index.root, keys("ab"))
    (late,) = grow(index, index.root, [b"x"], ready=False)
    assert not index.reset()
    assert index.root is index.deepest_known(keys("ab"), 2)
    index.publish([late])
    assert {} == index.nodes
    assert index.reset()
    assert 0 == index.cells.slabs.used_bytes


@pytest.mark.parametrize("name", ["full", "gemma"])
def test_what_has_gone_is_freed_without_a_search_for_cycles(name):
    """Chunks point at themselves and at each other only while they are there."""
    index = make_index(name)
    for node in (index.root, grow(index, index.root, keys("ab"))[-1]):
        for first in "cd":
            end = grow(
                index, node, [node.key + first.encode() + k for k in keys("xyz")]
            )[-1]
            if end.needs_checkpoint:
                assert add_checkpoint(index, end)
    del node, end
    with unfreed() as cycles:
        assert all(index.evict_one() for _ in range(5))
        index.reset()
        assert not index.nodes
    assert not cycles


def test_states_change_only_as_the_table_says():
    """Every step outside the table is refused; gone is final."""
    for old in State:
        for new in State:
            if new in TRANSITIONS[old]:
                assert new is require(old, new)
            else:
                with pytest.raises(InvariantError, match="illegal transition"):
                    require(old, new)
    assert frozenset() == TRANSITIONS[State.GONE]


def test_check_index_notices_a_broken_invariant():
    """Each planted fault is found."""

    def unpinned(index, nodes):
        nodes[-1].pins = 1

    def wrong_state(index, nodes):
        nodes[0].state = State.STORING

    def lost_reference(index, nodes):
        nodes[1].cells[0].refs = 2

    def wrong_key(index, nodes):
        index.nodes[b"q"] = index.nodes.pop(nodes[1].key)

    for fault in (unpinned, wrong_state, lost_reference, wrong_key):
        index = make_index()
        nodes = grow(index, index.root, keys("abc"))
        check_index(index)
        fault(index, nodes)
        with pytest.raises(InvariantError):
            check_index(index)
