"""Hash, alignment and scheduler units from the groups' block sizes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.errors import ConfigError
from kvcellar.layout.sizes import BlockSizes, GroupUnits, resolve_block_sizes


def full(block_tokens: int, **changes: object) -> GroupUnits:
    return GroupUnits(block_tokens, **changes)  # type: ignore[arg-type]


def window(block_tokens: int) -> GroupUnits:
    return GroupUnits(block_tokens, has_fine_lookup=False)


def ring(block_tokens: int) -> GroupUnits:
    return GroupUnits(block_tokens, is_cacheable=False, has_fine_lookup=False)


def state(block_tokens: int, *, is_aligned: bool = True) -> GroupUnits:
    return GroupUnits(block_tokens, is_state=True, is_aligned_state=is_aligned)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([full(32)], BlockSizes(32, 32, 32)),
        ([full(16), window(16)], BlockSizes(16, 16, 16)),
        ([full(32), window(16)], BlockSizes(32, 16, 32)),
        ([full(32), window(64), ring(8)], BlockSizes(64, 32, 64)),
        ([full(16), ring(4)], BlockSizes(16, 16, 16)),
        ([full(24), window(16)], BlockSizes(48, 8, 48)),
        ([full(256), window(64), window(4), window(8)], BlockSizes(256, 4, 256)),
        ([full(16), ring(12)], BlockSizes(48, 16, 48)),
        ([full(256), state(256)], BlockSizes(256, 256, 256)),
        ([full(64), state(256)], BlockSizes(256, 64, 64)),
        ([full(64), window(64), state(256)], BlockSizes(256, 64, 64)),
        ([full(64), window(128), state(256)], BlockSizes(256, 64, 256)),
        ([full(64), state(256, is_aligned=False)], BlockSizes(256, 256, 256)),
        ([ring(8), ring(12)], BlockSizes(24, 4, 24)),
    ],
)
def test_worked_examples(groups: list[GroupUnits], expected: BlockSizes) -> None:
    """LCM of all groups, GCD of the cacheable, fine hits only where all allow them."""
    assert expected == resolve_block_sizes(groups)


def test_context_parallel_ranks_scale_sharded_blocks_only() -> None:
    """Attention blocks grow with the ranks that share them; states do not."""
    groups = [full(16, is_sharded=True), state(64)]
    sizes = resolve_block_sizes(groups, num_context_ranks=2)
    assert BlockSizes(64, 32, 32) == sizes
    single = resolve_block_sizes([full(16, is_sharded=True)], num_context_ranks=4)
    assert BlockSizes(64, 64, 64) == single


def test_user_unit_replaces_the_gcd() -> None:
    """prefix_match_unit may be any divisor of the cacheable blocks."""
    sizes = resolve_block_sizes([full(32), window(64)], prefix_match_unit=16)
    assert BlockSizes(64, 16, 64) == sizes


def test_unit_that_divides_nothing_names_the_group() -> None:
    """Group index, both numbers and a working value are in the refusal."""
    with pytest.raises(
        ConfigError, match=r"=16 does not .* 24 tokens of group 0.* of 8"
    ):
        resolve_block_sizes([full(24), window(16)], prefix_match_unit=16)


def test_unit_has_no_meaning_with_one_group() -> None:
    """The engine refuses it there, and so do we, with the one value that works."""
    with pytest.raises(
        ConfigError, match="single cache group; remove it or set it to 32"
    ):
        resolve_block_sizes([full(32)], prefix_match_unit=16)


def test_scratch_groups_do_not_bound_the_unit() -> None:
    """The scratch ring's 4-token block neither lowers the hash nor is checked."""
    groups = [full(16), window(16), ring(4)]
    assert 16 == resolve_block_sizes(groups, prefix_match_unit=16).hash_block_tokens


def test_compressed_states_must_not_be_cut() -> None:
    """Hits inside the tokens of one stored state are refused."""
    groups = [full(256, compressions=(128,)), state(512)]
    with pytest.raises(ConfigError, match="128 tokens per state of group 0"):
        resolve_block_sizes(groups, prefix_match_unit=64)


def test_no_groups_is_refused() -> None:
    """Attention-free models have no cache to speak of."""
    with pytest.raises(ConfigError, match="no cache group"):
        resolve_block_sizes([])


sizes = st.sampled_from((4, 8, 16, 24, 32, 64, 128))


@given(st.lists(st.builds(full, sizes) | st.builds(window, sizes), min_size=2))
def test_units_divide_each_other(groups: list[GroupUnits]) -> None:
    """Hash divides alignment divides scheduler block, and hashes fill every block."""
    found = resolve_block_sizes(groups)
    assert found.scheduler_block_tokens % found.alignment_tokens == 0
    assert found.alignment_tokens % found.hash_block_tokens == 0
    assert all(g.block_tokens % found.hash_block_tokens == 0 for g in groups)
    assert math.lcm(*(g.block_tokens for g in groups)) == found.scheduler_block_tokens
