"""Tenants: who pays for what, to the byte, and what goes at the share's end."""

import pytest
from checkpoints import add_checkpoint
from layouts import LAYOUTS

from kvcellar.attention.hybrid import HybridRules
from kvcellar.errors import InvariantError
from kvcellar.index.checks import check_index
from kvcellar.index.index import Index
from kvcellar.index.limits import Limits
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.slabs import SlabAllocator
from kvcellar.index.states import State
from kvcellar.index.superseded import _MIN_CANDIDATES
from kvcellar.layout.host import plan_geometry


def make_index(name="full", *, chunks=100, tenant_chunks=5):
    rules = HybridRules(LAYOUTS[name])
    slabs = SlabAllocator(plan_geometry(LAYOUTS[name], chunks * rules.chunk_bytes))
    limits = Limits(
        leased_bytes=chunks * rules.chunk_bytes,
        tenant_bytes=tenant_chunks * rules.chunk_bytes,
    )
    return Index(rules, slabs, LruPolicy(), LruPolicy(), limits=limits)


def grow(index, parent, key, length, tenant=None, *, at=(0.0, 0)):
    """Add up to ``length`` chunks below ``parent``; the nodes, as many as fit.

    ``at`` is the time of use, and the priority.
    """
    now, priority = at
    keys = [b"%s%d" % (key, number) for number in range(length)]
    nodes = index.add_path(parent, keys, tenant)
    for node in nodes:
        node.priority = priority
        index.touch(node, now)
        index.publish([node])
    check_index(index)
    return nodes


def alive(nodes):
    return [node.state is State.READY for node in nodes]


def test_a_tenant_at_its_share_evicts_its_own_and_nobody_elses():
    """With room for all, the sixth chunk of a tenant of five costs its oldest."""
    index = make_index()
    a, b = index.tenants.named("a"), index.tenants.named("b")
    others = grow(index, index.root, b"x", 3, None, at=(0.0, 0))
    theirs = grow(index, index.root, b"b", 5, b, at=(1.0, 0))
    old = grow(index, index.root, b"a", 2, a, at=(2.0, 0))
    new = grow(index, index.root, b"n", 4, a, at=(3.0, 0))
    assert [True] * 8 == alive([*others, *theirs])
    assert [True, False] == alive(old)
    assert [True] * 4 == alive(new)
    size = index.rules.chunk_bytes
    assert (5 * size, 5 * size) == (a.used_bytes, b.used_bytes)


def test_what_cannot_go_is_not_exceeded():
    """One path longer than the share is stored as far as the share, and counted."""
    index = make_index()
    a = index.tenants.named("a")
    nodes = grow(index, index.root, b"a", 8, a)
    assert 5 == len(nodes)
    assert 1 == index.counters.over_share
    index.lease(nodes[-1], 10.0)
    assert [] == grow(index, index.root, b"n", 1, a)
    index.end_leases(10.0)
    assert 1 == len(grow(index, index.root, b"n", 1, a))


def test_within_its_share_the_lowest_priority_and_the_oldest_go_first():
    """A tenant's own order: priority, then use."""
    index = make_index()
    a = index.tenants.named("a")
    paths = [
        grow(index, index.root, key, 1, a, at=at)
        for key, at in (
            *((b"p", (0.0, 1)), (b"q", (3.0, -1))),
            *((b"r", (1.0, 0)), (b"s", (2.0, 0)), (b"t", (4.0, 0))),
        )
    ]
    gone = []
    for number in range(3):
        before = [path[0] for path in paths if path[0].state is State.READY]
        grow(index, index.root, b"z%d" % number, 1, a, at=(10.0, 0))
        gone += [paths.index([n]) for n in before if n.state is State.GONE]
    assert [1, 2, 3] == gone


def test_its_replaced_checkpoints_go_before_its_leaves():
    """What a deeper checkpoint has replaced costs a tenant nothing useful."""
    index = make_index("gemma", tenant_chunks=24)
    a = index.tenants.named("a")
    nodes = grow(index, index.root, b"a", 4, a)
    assert add_checkpoint(index, nodes[1], a)
    assert add_checkpoint(index, nodes[3], a)
    (other,) = grow(index, index.root, b"o", 1, a, at=(-1.0, 0))
    assert add_checkpoint(index, other, a)
    tail = index.root
    while nodes[1].checkpoint is not None:
        (tail,) = grow(index, tail, b"n%d" % tail.depth, 1, a)
    assert nodes[3].is_resumable
    assert other.is_resumable
    check_index(index)


def test_who_uses_it_later_pays_nothing():
    """A second tenant's longer prompt pays for what it adds alone."""
    index = make_index()
    a, b = index.tenants.named("a"), index.tenants.named("b")
    stem = grow(index, index.root, b"a", 4, a)
    grow(index, stem[-1], b"b", 2, b)
    size = index.rules.chunk_bytes
    assert (4 * size, 2 * size) == (a.used_bytes, b.used_bytes)
    # The first can let go of nothing below the second's chunks.
    assert 1 == len(grow(index, index.root, b"n", 3, a))


def test_a_tenant_is_forgotten_with_its_last_byte():
    """Salts that never return leave nothing behind; those that do pay on."""
    index = make_index()
    for number in range(20):
        tenant = index.tenants.named(f"t{number}")
        grow(index, index.root, b"%d-" % number, 1, tenant)
        assert tenant is index.tenants.named(f"t{number}")
    del tenant
    assert 20 == len(index.tenants)
    assert index.reset()
    assert 0 == len(index.tenants)


def test_nobody_is_bounded_without_a_limit_or_a_name():
    """No setting, no tenants; no name, no bound."""
    assert None is Index(
        HybridRules(LAYOUTS["full"]),
        SlabAllocator(plan_geometry(LAYOUTS["full"], 1 << 16)),
        LruPolicy(),
        LruPolicy(),
    ).tenants.named("a")
    assert None is make_index().tenants.named(None)


def test_replaced_checkpoints_that_went_another_way_are_forgotten():
    """A tenant that never reaches its share keeps no list of what has gone."""
    index = make_index("gemma", chunks=400, tenant_chunks=400)
    a = index.tenants.named("a")
    for number in range(4 * _MIN_CANDIDATES):
        nodes = grow(index, index.root, b"%d-" % number, 1, a)
        assert add_checkpoint(index, nodes[0], a)
        index.order.replaced(nodes[0])
        index.lose(nodes[0].cells)
    assert len(a.superseded) <= _MIN_CANDIDATES + 1


def test_the_check_sees_wrong_bytes():
    """A byte too many or too few, and a tenant beyond its share, are found."""

    def more(index, tenant):
        tenant.used_bytes += 1

    def less(index, tenant):
        tenant.used_bytes -= 1

    def beyond(index, tenant):
        index.tenants.most_bytes = 1

    def unknown(index, tenant):
        tenant.order.remove(next(iter(index.root.children)))

    for fault in (more, less, beyond, unknown):
        index = make_index()
        tenant = index.tenants.named("a")
        grow(index, index.root, b"a", 1, tenant)
        fault(index, tenant)
        with pytest.raises(InvariantError):
            check_index(index)


def test_the_fullest_tenants_come_first():
    """Names with their bytes, so many and no more."""
    index = make_index()
    chunk = index.rules.chunk_bytes
    one, two, three = (index.tenants.named(name) for name in ("one", "two", "three"))
    grow(index, index.root, b"a", 1, one)
    grow(index, index.root, b"b", 3, two)
    assert three is not None
    fullest = [("two", 3 * chunk), ("one", chunk)]
    assert fullest == index.tenants.fullest(2)
    assert [*fullest, ("three", 0)] == index.tenants.fullest(5)
