"""Nodes and their children."""

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.node import Checkpoint, Node


def make_node(parent=None):
    return Node(b"", parent, (), needs_checkpoint=False)


@given(st.lists(st.integers(-8, 8), max_size=40))
def test_children_are_a_set_that_knows_its_order(steps):
    """Any coming and going leaves those who came and have not gone, newest first."""
    parent, expected = make_node(), []
    for step in steps:
        if step >= 0 or not expected:
            child = make_node(parent)
            parent.adopt(child)
            expected.insert(0, child)
        else:
            parent.disown(expected.pop(step % len(expected)))
        assert expected == list(parent.children)
        assert (not expected) == parent.is_leaf
        only = expected[0] if len(expected) == 1 else None
        assert only is parent.only_child


def test_a_child_that_was_disowned_can_be_adopted_again():
    """Nothing of its old neighbours comes along."""
    first, second, child = make_node(), make_node(), make_node()
    for node in (make_node(), child, make_node()):
        first.adopt(node)
    first.disown(child)
    second.adopt(child)
    assert [child] == list(second.children)
    assert 2 == len(list(first.children))


def test_a_node_reaches_to_the_checkpoint_before():
    """One that was given up, or is of use to no other path, is passed."""
    path = [make_node()]
    for _ in range(9):
        node = Node(b"", path[-1], (), needs_checkpoint=True)
        path[-1].adopt(node)
        path.append(node)
    leaf, kept, root = path[9], path[4], path[0]
    assert 9 == leaf.reach(past_replaced=False)
    kept.checkpoint = Checkpoint(())
    for node in path[4:9]:
        node.resume = kept
    assert 5 == leaf.reach(past_replaced=False)
    assert 9 == leaf.reach(past_replaced=True)
    kept.adopt(make_node(kept))
    assert 5 == leaf.reach(past_replaced=True)
    kept.checkpoint = None
    assert 9 == leaf.reach(past_replaced=False)
    assert root.resume is root
