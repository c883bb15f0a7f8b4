"""Remembered run by run, the same is known as if it were chunk by chunk."""

import itertools
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.ghost_runs import GhostRuns

STEPS = st.lists(st.integers(0, 1), min_size=1, max_size=6)


def used_at(time):
    node = Evictable(1, time)
    node.count_use(time)
    return node


class Chunks:
    """A cache of single chunks; a key is the steps down to it.

    Its ends leave, its prompts come whole, and each ghost is an entry of its own.
    """

    def __init__(self):
        self.held = set()
        self.pasts = OrderedDict()

    def lacks(self, path):
        """Keys of ``path`` that are not there, and now are."""
        keys = [bytes(path[: i + 1]) for i in range(len(path))]
        lacking = [key for key in keys if key not in self.held]
        self.held.update(lacking)
        return lacking

    def end_below(self, path, most):
        """Up to so many chunks with one history, at the end of what is there."""
        key, keys = bytes(path), []
        while key and key not in self.held:
            key = key[:-1]
        while below := sorted(k for k in self.held if k[:-1] == key):
            key = below[0]
        while key and len(keys) < most and self.num_below(key) == len(keys):
            keys.insert(0, key)
            key = key[:-1]
        self.held.difference_update(keys)
        return keys

    def num_below(self, key):
        return sum(k != key and k.startswith(key) for k in self.held)

    def leave(self, keys, past, most):
        self.pasts.update(dict.fromkeys(keys, past))
        while len(self.pasts) > most:
            self.pasts.popitem(last=False)


@given(
    st.lists(
        st.tuples(STEPS, st.integers(0, 5), st.integers(0, 12), st.integers(0, 3)),
        max_size=80,
    )
)
def test_runs_remember_what_chunks_would(steps):
    """Whatever leaves and returns: in parts, on other paths, and some forgotten."""
    ghosts, chunks = GhostRuns(), Chunks()
    for path, num_leaving, most, time in steps:
        if num_leaving:
            node, keys = used_at(float(time)), chunks.end_below(path, num_leaving)
            if keys:
                ghosts.leave(list(keys), node, most)
                chunks.leave(keys, node.past(), most)
        elif keys := chunks.lacks(path):
            parts = ghosts.all_return(list(keys))
            found = [(key, past) for part, past in parts for key in part]
            assert [(key, chunks.pasts.pop(key, None)) for key in keys] == found
            assert all(a[1] != b[1] for a, b in itertools.pairwise(parts))
