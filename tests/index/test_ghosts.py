"""What is remembered of chunks that have gone: the latest, each until it returns."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.ghosts import Ghosts


class Tree:
    """Chunks by the steps down to them, with their uses; each ghost alone."""

    def __init__(self):
        self.nodes = {b"": Evictable(0, 0.0)}
        self.pasts = OrderedDict()
        self.ghosts = Ghosts()

    def use(self, path, now):
        """What is not there comes back; each is told what it was told before."""
        keys = [bytes(path[: i + 1]) for i in range(len(path))]
        for key in keys:
            if key not in self.nodes:
                node = self.nodes[key] = Evictable(len(key), now)
                past = self.ghosts.returns(key)
                assert self.pasts.pop(key, None) == past
                if past is not None:
                    node.remember(past)
        self.nodes[keys[-1]].count_use(now)

    def evict(self, path, num_chunks, most):
        """So many chunks go, from the end of what lies at or below ``path``."""
        key = bytes(path)
        while key not in self.nodes:
            key = key[:-1]
        while below := self.below(key):
            key = below[0]
        while key and num_chunks and not self.below(key):
            node, parent = self.nodes.pop(key), self.nodes[key[:-1]]
            self.ghosts.leave(key, node, parent, most)
            self.pasts[key] = node.past()
            while len(self.pasts) > most:
                self.pasts.popitem(last=False)
            parent.take_over(node)
            key, num_chunks = key[:-1], num_chunks - 1

    def below(self, key):
        return sorted(k for k in self.nodes if k and k[:-1] == key)


STEPS = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=6),
    st.integers(0, 5),
    st.integers(0, 12),
)


@given(steps=st.lists(STEPS, max_size=80))
def test_paths_remember_what_chunks_would(steps):
    """Whatever leaves and returns: in parts, on other paths, and some forgotten."""
    tree = Tree()
    for now, (path, num_leaving, most) in enumerate(steps):
        if num_leaving:
            tree.evict(path, num_leaving, most)
        else:
            tree.use(path, float(now // 4))  # some at the same time


def test_paths_that_left_one_after_the_other_with_one_history_return_alone():
    """The one that went first comes back first."""
    tree = Tree()
    for path in ([0, 0], [1, 0]):
        tree.use(path, 1.0)
    for path in ([0, 0], [1, 0]):
        tree.evict(path, 2, most=9)
    assert len(tree.pasts) == 4
    tree.use([0, 0], 2.0)
    assert len(tree.pasts) == 2


def test_nothing_is_known_once_all_is_forgotten():
    """And what leaves after that is."""
    tree = Tree()
    for _ in range(2):
        tree.use([0, 1, 2], 1.0)
        tree.evict([0, 1, 2], 2, most=9)
        tree.ghosts.clear()
        tree.pasts.clear()
    tree.use([0, 1, 2], 2.0)
    tree.evict([0, 1, 2], 2, most=9)
    assert len(tree.pasts) == 2
    tree.use([0, 1, 2], 3.0)
