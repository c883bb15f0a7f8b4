"""Leases: what stays, for how long, and never beyond the share."""

import random

import pytest
from checkpoints import add_checkpoint
from layouts import LAYOUTS

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import InvariantError
from kvcellar.index.checks import check_index
from kvcellar.index.index import Index
from kvcellar.index.limits import Limits
from kvcellar.index.policies.classes import PriorityClasses
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.slabs import SlabAllocator
from kvcellar.index.states import State
from kvcellar.layout.host import plan_geometry


def make_index(name="full", *, chunks=100, most_chunks=50):
    """An index with room for so many chunks, of which leases may keep some."""
    rules = HybridRules(LAYOUTS[name])
    slabs = SlabAllocator(plan_geometry(LAYOUTS[name], chunks * rules.chunk_bytes))
    live = PriorityClasses(LruPolicy())
    most = most_chunks * rules.chunk_bytes
    return Index(rules, slabs, live, LruPolicy(), limits=Limits(leased_bytes=most))


def grow(index, parent, length, *, is_ready=True, priority=0):
    """Add ``length`` chunks below ``parent``; returns the nodes."""
    nodes = []
    for _ in range(length):
        (parent,) = index.add_path(parent, [b"%d" % len(index.nodes)])
        parent.priority = priority
        nodes.append(parent)
    if is_ready:
        index.publish(nodes)
    return nodes


def test_a_leased_path_stays_until_its_time_and_not_longer():
    """Everything else goes; at its end the leased path may go too, tail first."""
    index = make_index()
    kept, other = grow(index, index.root, 3), grow(index, index.root, 3)
    assert index.lease(kept[1], 10.0)
    while index.evict_one():
        check_index(index)
    states = [node.state is State.READY for node in (*kept, *other)]
    assert [True, True, False, False, False, False] == states
    index.end_leases(9.9)
    assert not index.evict_one()
    index.end_leases(10.0)
    check_index(index)
    assert index.evict_one()
    assert [State.READY, State.GONE] == [node.state for node in kept[:2]]
    assert 0 == index.leases.used_bytes


def test_a_later_end_wins_and_an_earlier_one_changes_nothing():
    """Two requests lease one path: it stays for the longer of the two."""
    index = make_index()
    *_, end = grow(index, index.root, 2)
    for until in (10.0, 30.0, 20.0):
        assert index.lease(end, until)
    index.end_leases(29.0)
    assert {end: 30.0} == index.leases.ends
    index.end_leases(30.0)
    check_index(index)
    assert 0 == index.leases.used_bytes


def test_paths_that_share_a_prefix_count_it_once():
    """Bytes protected are those of the union, grant by grant and end by end."""
    index = make_index()
    stem = grow(index, index.root, 4)
    left, right = grow(index, stem[3], 2), grow(index, stem[3], 3)
    size = index.rules.chunk_bytes
    assert index.lease(left[1], 10.0)
    assert 6 * size == index.leases.used_bytes
    assert index.lease(right[2], 20.0)
    assert 9 * size == index.leases.used_bytes
    assert index.lease(stem[1], 30.0)
    assert 9 * size == index.leases.used_bytes
    for now, expected in ((10.0, 7), (20.0, 2), (30.0, 0)):
        index.end_leases(now)
        check_index(index)
        assert expected * size == index.leases.used_bytes


def test_what_would_go_beyond_the_share_is_refused_and_counted():
    """Five chunks may be kept: a path of three and one of two more, no sixth."""
    index = make_index(most_chunks=5)
    paths = [grow(index, index.root, length) for length in (3, 3, 2, 1)]
    granted = [index.lease(path[-1], 10.0) for path in paths]
    assert [True, False, True, False] == granted
    assert 2 == index.leases.num_refused
    assert index.lease(paths[0][1], 20.0)  # adds nothing
    index.end_leases(10.0)
    assert index.lease(paths[1][-1], 20.0)


def test_a_leased_checkpoint_is_not_superseded():
    """A deeper checkpoint replaces it only once the lease has ended."""
    index = make_index("gemma")
    nodes = grow(index, index.root, 4)
    assert add_checkpoint(index, nodes[1])
    assert index.lease(nodes[1], 10.0)
    assert add_checkpoint(index, nodes[3])
    while index.evict_one():
        check_index(index)
    assert nodes[1].is_resumable
    assert State.GONE is nodes[2].state


def test_a_reset_ends_every_lease():
    """Nothing stays leased, nothing is counted, and the clock ends nothing twice."""
    index = make_index()
    nodes = grow(index, index.root, 3)
    index.lease(nodes[2], 10.0)
    index.lease(nodes[0], 20.0)
    assert index.reset()
    assert 0 == index.leases.used_bytes
    index.end_leases(20.0)
    check_index(index)


def test_a_failed_chunk_takes_its_lease_along():
    """A path that is leased while it is stored: its failure frees what was counted."""
    index = make_index()
    ready = grow(index, index.root, 2)
    stored = grow(index, ready[1], 2, is_ready=False)
    index.lease(stored[1], 10.0)
    index.publish([stored[1]])
    index.fail(stored[0])
    check_index(index)
    assert 0 == index.leases.used_bytes
    assert index.evict_one()


def test_the_check_sees_a_wrong_count():
    """Each planted fault of the accounting is found."""

    def byte(index, node):
        index.leases.used_bytes += 1

    def count(index, node):
        index.leases._num_protected[node.parent] += 1

    def forgotten(index, node):
        del index.leases.ends[node]

    for fault in (byte, count, forgotten):
        index = make_index()
        *_, end = grow(index, index.root, 3)
        index.lease(end, 10.0)
        check_index(index)
        fault(index, end)
        with pytest.raises(InvariantError):
            check_index(index)


def test_the_lowest_priority_goes_first_and_a_use_raises_it():
    """Order of class, then of use; a path counts as its most important user."""
    index = make_index()
    batch, plain, vip, late = (
        grow(index, index.root, 1, priority=p)[0] for p in (-1, 0, 5, -1)
    )
    for now, node in enumerate((vip, plain, batch, late)):
        index.touch(node, float(now))
    index.raise_priority(late, 1)
    gone = []
    while True:
        check_index(index)
        alive = {n for n in (batch, plain, vip, late) if n.state is State.READY}
        if not index.evict_one():
            break
        gone += [n for n in alive if n.state is State.GONE]
    assert [batch, plain, late, vip] == gone


def test_a_parent_inherits_the_priority_of_a_leaf_that_leaves():
    """The prefix of an important path is as important."""
    index = make_index()
    stem = grow(index, index.root, 2)
    grow(index, stem[1], 1, priority=3)
    other = grow(index, index.root, 1, priority=1)
    for _ in range(2):
        index.evict_one()
    assert [State.GONE, State.READY] == [other[0].state, stem[1].state]
    assert 3 == stem[1].priority


@pytest.mark.parametrize("name", ["full", "gemma"])
def test_random_leases_and_evictions_keep_every_invariant(name):
    """Grants, ends, evictions, failures and resets in any order."""
    for seed in range(10):
        rng, now = random.Random(seed), 0.0
        index = make_index(name, chunks=60, most_chunks=20)
        for _ in range(150):
            now += 1.0
            nodes = [n for n in index.nodes.values() if n.state is State.READY]
            place = rng.choice([*nodes, index.root])
            roll = rng.random()
            if roll < 0.3:
                _grow_if_room(index, place, rng.randint(1, 4), rng)
            elif roll < 0.6 and nodes:
                index.lease(rng.choice(nodes), now + rng.randint(1, 30))
            elif roll < 0.8:
                index.evict_one()
            elif roll < 0.81:
                index.reset()
            index.end_leases(now)
            check_index(index)


def _grow_if_room(index, parent, length, rng):
    nodes = index.add_path(parent, [b"%d" % rng.getrandbits(60) for _ in range(length)])
    for node in nodes:
        if rng.random() < 0.95:
            index.publish([node])
        else:
            index.fail(node)
