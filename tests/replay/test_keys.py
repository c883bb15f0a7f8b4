"""Keys made from prefix ids agree exactly where prompts do."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.replay.keys import PrefixKeys


@given(
    ids=st.lists(st.integers(-50, 50), unique=True, max_size=8),
    hash_tokens=st.sampled_from([4, 8, 12, 16, 24, 32]),
)
def test_one_key_per_hash_block_and_no_two_alike(ids, hash_tokens):
    """Ids of 16 tokens: keys that end inside one tell the place."""
    keys = PrefixKeys(array("q", ids), 16, hash_tokens)
    made = list(keys)
    assert len(ids) * 16 // hash_tokens == len(keys) == len(set(made))
    assert made[:3] == keys[:3]


@given(
    num_ids=st.integers(0, 12),
    hash_tokens=st.sampled_from([4, 8, 16, 24, 32, 48]),
    cut=st.slices(24),
)
def test_keys_of_a_slice_are_those_of_its_places(num_ids, hash_tokens, cut):
    """Made at once or one by one, before or after."""
    ids = array("q", (7 * i - 40 for i in range(num_ids)))
    at_once, single = (PrefixKeys(ids, 16, hash_tokens) for _ in range(2))
    places = range(*cut.indices(len(single)))
    assert [single[i] for i in places] == at_once[cut] == at_once[cut]
    assert list(single) == list(at_once)


def test_prompts_share_keys_as_far_as_they_share_ids():
    """The same id gives the same keys, whatever comes after."""
    one = PrefixKeys(array("q", [7, 8, 9]), 16, 4)
    two = PrefixKeys(array("q", [7, 8, 5]), 16, 4)
    assert [True] * 8 + [False] * 4 == [a == b for a, b in zip(one, two, strict=True)]
    assert one[-1] == one[11] != two[-1]


@given(
    num_shared=st.integers(0, 8),
    hash_tokens=st.sampled_from([4, 12, 16, 24, 40]),
)
def test_a_key_is_shared_only_with_the_whole_block_it_ends_in(num_shared, hash_tokens):
    """So a replay never takes for equal what the trace does not say is."""
    one = PrefixKeys(array("q", range(8)), 16, hash_tokens)
    ids = [i if i < num_shared else -1 - i for i in range(8)]
    two = PrefixKeys(array("q", ids), 16, hash_tokens)
    shared = [a == b for a, b in zip(one, two, strict=True)]
    ends = [(i + 1) * hash_tokens for i in range(len(one))]
    assert [end <= num_shared * 16 for end in ends] == shared
