"""What is remembered of chunks that have gone: the latest, each until it returns."""

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable, Ghosts

MOST = 6
keys = st.integers(0, 9).map(lambda number: b"%d" % number)
steps = st.lists(
    st.tuples(st.booleans(), st.lists(keys, unique=True, max_size=4)), max_size=150
)


def used_at(time):
    node = Evictable(1, time)
    node.count_use(time)
    return node


@given(steps=steps)
def test_ghosts_are_an_ordered_dict_of_bounded_length(steps):
    """Whatever goes and returns, the same is known of it."""
    ghosts, expected = Ghosts(), OrderedDict()
    for now, (is_leaving, chunks) in enumerate(steps):
        for key in chunks:
            if not is_leaving:
                past = ghosts.returns(key)
                assert expected.pop(key, None) == (past and past[0])
            elif key not in expected:
                ghosts.leave(key, used_at(float(now)), MOST)
                expected[key] = float(now)
                if len(expected) > MOST:
                    expected.popitem(last=False)
