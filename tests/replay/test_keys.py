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
