"""The base policy against a sorted list."""

import random

from kvcellar.index.node import Node
from kvcellar.index.policies.lru import LruPolicy


def make_node(stamp, depth=1):
    root = Node(b"", None, (), needs_checkpoint=False)
    node = Node(str(stamp).encode(), root, (), needs_checkpoint=False)
    node.depth, node.last_use = depth, stamp
    return node


def test_victim_is_the_oldest_and_among_equals_the_deepest():
    """Order is by stamp; one request's chunks share a stamp, so its tail goes first."""
    policy = LruPolicy()
    old, shallow, deep = make_node(1.0), make_node(2.0, 3), make_node(2.0, 7)
    for node in (shallow, deep, old):
        policy.add(node)
    order = []
    while (node := policy.victim()) is not None:
        order.append(node)
        policy.remove(node)
    assert [old, deep, shallow] == order


def test_a_node_added_late_takes_the_place_of_its_stamp():
    """A parent that becomes a leaf is as old as the leaf that left."""
    policy = LruPolicy()
    young, late = make_node(5.0), make_node(1.0)
    policy.add(young)
    policy.add(late)
    assert late is policy.victim()


def test_touch_moves_only_nodes_that_are_in_it():
    """A touch of a node that may not be evicted enters nothing."""
    policy = LruPolicy()
    inside, outside, other = make_node(1.0), make_node(1.0), make_node(2.0)
    policy.add(inside)
    policy.add(other)
    inside.last_use = 3.0
    policy.touch(inside)
    policy.touch(outside)
    assert other is policy.victim()
    assert 2 == len(policy)
    assert outside not in policy


def test_random_use_equals_a_sorted_list():
    """Any sequence of add, touch and remove gives the order of a plain sort."""
    rng = random.Random(0)
    policy, model, clock = LruPolicy(), [], 0.0
    for _ in range(5000):
        clock += rng.choice([0.0, 1.0])
        roll = rng.random()
        if roll < 0.3:
            node = make_node(clock, rng.randint(1, 9))
            policy.add(node)
            model.append(node)
        elif roll < 0.7 and model:
            node = rng.choice(model)
            node.last_use = clock
            policy.touch(node)
        elif model:
            expected = min((n.last_use, -n.depth) for n in model)
            victim = policy.victim()
            assert expected == (victim.last_use, -victim.depth)
            policy.remove(victim)
            model.remove(victim)
        assert len(model) == len(policy)
