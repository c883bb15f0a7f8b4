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


@given(steps=steps, is_whole=st.booleans())
def test_ghosts_are_an_ordered_dict_of_bounded_length(steps, is_whole):
    """Whatever goes and returns, alone or with others, the same is known of it."""
    ghosts, expected = Ghosts(), OrderedDict()
    for now, (is_leaving, chunks) in enumerate(steps):
        if is_leaving:
            absent = [key for key in chunks if key not in expected]
            ghosts.leave(absent, used_at(float(now)), MOST)
            expected.update(dict.fromkeys(absent, float(now)))
            while len(expected) > MOST:
                expected.popitem(last=False)
            continue
        pasts = [expected.pop(key, None) for key in chunks]
        if is_whole:
            found = ghosts.all_return(chunks) or [None] * len(chunks)
        else:
            found = [ghosts.returns(key) for key in chunks]
        assert pasts == [past and past[0] for past in found]
