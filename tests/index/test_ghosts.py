"""What is remembered of chunks that have gone: the latest, each until it returns.

Whole paths leave and return as their chunks would, one by one.
"""

from collections import OrderedDict

import pytest
from ghost_entries import remembered
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.ghosts import Ghosts


def keys_of(path):
    return [bytes(path[: i + 1]) for i in range(len(path))]


def past(number):
    return float(number), 0.0, float(number), 1


class Chunks:
    """A tree of chunks, and what is remembered of each that has gone: latest last."""

    def __init__(self, sample):
        self.sample = sample
        self.nodes = {b"": Evictable(0, 0.0)}
        self.pasts = OrderedDict()
        self.ghosts = Ghosts(sample)

    def use(self, path, now):
        """What is not there comes back."""
        for key in keys_of(path):
            if key not in self.nodes:
                node = self.nodes[key] = Evictable(len(key), now)
                known = self.ghosts.returns(key)
                assert self.pasts.pop(key, None) == known
                if known is not None:
                    node.remember(known)
        self.nodes[bytes(path)].count_use(now)

    def evict(self, path, num_chunks, most):
        """So many chunks go, from the end of what lies at or below ``path``."""
        key = bytes(path[: self.tip(path)])
        while below := [k for k in self.nodes if k and k[:-1] == key]:
            key = min(below)
        while key and num_chunks and not any(k[:-1] == key for k in self.nodes if k):
            node, parent = self.nodes.pop(key), self.nodes[key[:-1]]
            if len(key) % self.sample == 0:
                self.ghosts.leave(key, node, parent, most)
                self.leave(key, node.past(), most)
            parent.take_over(node)
            key, num_chunks = key[:-1], num_chunks - 1

    def turn_away(self, path, cut, pasts, most):
        """A prompt does not come in: what is behind ``cut`` has the second history."""
        keys, tip = keys_of(path), self.tip(path)
        cut = min(max(cut, tip), len(path))
        assert self.known(keys, tip) == self.known_by_parts(keys, tip)
        self.ghosts.all_return(keys, tip)
        for key in keys[tip:]:
            self.pasts.pop(key, None)
        for start, end, known in ((cut, len(path), pasts[1]), (tip, cut, pasts[0])):
            self.ghosts.all_leave(keys, start, end, known, most)
            for key in reversed(keys[start:end]):
                if len(key) % self.sample == 0:
                    self.leave(key, known, most)

    def leave(self, key, known, most):
        self.pasts[key] = known
        while len(self.pasts) > most:
            self.pasts.popitem(last=False)

    def tip(self, path):
        return sum(key in self.nodes for key in keys_of(path))

    def known(self, keys, tip):
        """Histories of the chunks behind ``tip``, up to the first unknown one."""
        found = []
        for key in keys[tip:]:
            if len(key) % self.sample == 0:
                if key not in self.pasts:
                    break
                found.append(self.pasts[key])
        return found

    def known_by_parts(self, keys, tip):
        found, depth = [], tip // self.sample * self.sample
        for end, known in self.ghosts.known_parts(keys, tip):
            assert depth < end <= len(keys)
            assert end % self.sample == 0
            assert not found or known != found[-1]
            found += [known] * ((end - depth) // self.sample)
            depth = end
        return found

    def check(self):
        """The same is remembered, in the order in which it will be forgotten."""
        assert list(self.pasts.items()) == list(remembered(self.ghosts).items())


STEPS = st.tuples(
    st.sampled_from(["use", "evict", "turn away"]),
    st.lists(st.integers(0, 1), min_size=1, max_size=8),
    st.integers(0, 8),
    st.integers(0, 12),
)


@pytest.mark.parametrize("sample", [1, 2, 3])
@given(steps=st.lists(STEPS, max_size=60))
def test_whole_paths_are_remembered_as_their_chunks_would_be(sample, steps):
    """Whatever comes, goes and is turned away, some of it forgotten."""
    chunks = Chunks(sample)
    for now, (kind, path, number, most) in enumerate(steps):
        if kind == "use":
            chunks.use(path, float(now // 4))  # some at the same time
        elif kind == "evict":
            chunks.evict(path, number, most)
        else:
            chunks.turn_away(path, number, (past(number % 2), past(most % 2)), most)
        chunks.check()


def turned_away(*paths, sample=1, most=99):
    chunks = Chunks(sample)
    for number, path in enumerate(paths):
        chunks.turn_away(path, 0, (past(number), past(number)), most)
        chunks.check()
    return chunks.ghosts


def test_a_path_is_known_up_to_where_it_was_left():
    """And behind a branch by what is known of it alone."""
    ghosts = turned_away([0, 0, 0, 0], [0, 0, 1])
    assert [(2, past(1)), (4, past(0))] == list(
        ghosts.known_parts(keys_of([0, 0, 0, 0]), 0)
    )
    assert [(3, past(1))] == list(ghosts.known_parts(keys_of([0, 0, 1, 1]), 0))
    assert [] == list(ghosts.known_parts(keys_of([1, 0]), 0))


def test_of_the_oldest_path_the_end_is_forgotten_first():
    """Room for four of five histories."""
    ghosts = turned_away([0, 0, 0], [1, 1], most=4)
    assert [(2, past(0))] == list(ghosts.known_parts(keys_of([0, 0, 0]), 0))
    assert [(2, past(1))] == list(ghosts.known_parts(keys_of([1, 1]), 0))


def test_a_sample_tells_of_the_chunks_before_it():
    """Of seven chunks the third and the sixth are remembered, wherever one asks."""
    keys, ghosts = keys_of([0] * 7), turned_away([0] * 7, sample=3)
    assert 2 == ghosts._num_chunks
    for start in range(7):
        if start == 3:
            assert past(0) == ghosts.returns(keys[2])
        ends = [end for end, _ in ghosts.known_parts(keys, start)]
        assert ends == ([6] if start < 6 else [])
    ghosts.all_return(keys, 3)
    assert 0 == ghosts._num_chunks


def test_what_goes_after_a_whole_path_has_gone_is_an_entry_of_its_own():
    """Though what hung below it went before that, with the same history."""
    chunks = Chunks(1)
    chunks.use([0, 0, 0], 1.0)
    chunks.evict([0, 0, 0], 2, most=9)
    chunks.turn_away([0, 0, 1], 0, (past(2), past(2)), most=9)
    chunks.evict([0], 1, most=9)
    chunks.check()
    keys = keys_of([0, 0, 0])
    assert [1, 2, 3] == [end for end, _ in chunks.ghosts.known_parts(keys, 0)]


def test_neighbours_with_one_history_are_one_part():
    """Also where a sample leaves chunk by chunk: an entry each."""
    chunks = Chunks(2)
    chunks.use([0] * 6, 1.0)
    chunks.evict([0] * 6, 6, most=9)
    ((end, known),) = chunks.ghosts.known_parts(keys_of([0] * 6), 0)
    assert (6, 1) == (end, known[3])


def test_paths_that_left_one_after_the_other_with_one_history_return_alone():
    """The one that went first comes back first."""
    chunks = Chunks(1)
    for path in ([0, 0], [1, 0]):
        chunks.use(path, 1.0)
    for path in ([0, 0], [1, 0]):
        chunks.evict(path, 2, most=9)
    assert len(chunks.pasts) == 4
    chunks.use([0, 0], 2.0)
    assert len(chunks.pasts) == 2
    chunks.check()


def test_nothing_is_known_once_all_is_forgotten():
    """And what leaves after that is."""
    chunks = Chunks(1)
    for _ in range(2):
        chunks.use([0, 1, 2], 1.0)
        chunks.evict([0, 1, 2], 2, most=9)
        chunks.ghosts.clear()
        chunks.pasts.clear()
    chunks.use([0, 1, 2], 2.0)
    chunks.evict([0, 1, 2], 2, most=9)
    assert len(chunks.pasts) == 2
    chunks.use([0, 1, 2], 3.0)
    chunks.check()
