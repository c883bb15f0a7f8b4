"""A model's groups and the token units they share."""

import pytest

from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.groups import (
    AttentionKind,
    CacheLayout,
    GroupLayout,
    make_layout,
    plain_layout,
    smallest_chunk_tokens,
    with_chosen_chunk,
    with_chunk_tokens,
)


def group(
    index: int, kind: AttentionKind, tokens_per_block: int, payload_bytes: int = 10
) -> GroupLayout:
    span = 64 if kind in (AttentionKind.WINDOW, AttentionKind.CHUNKED) else None
    return GroupLayout(
        index, kind, tokens_per_block, payload_bytes, payload_bytes, 1, span
    )


FULL_32 = group(0, AttentionKind.FULL, 32)
WINDOW_16 = group(1, AttentionKind.WINDOW, 16)


def layout(
    *groups: GroupLayout, unit: int = 16, chunk: int | None = None
) -> CacheLayout:
    return make_layout(
        groups,
        hash_block_tokens=unit,
        alignment_tokens=unit,
        scheduler_block_tokens=unit,
        chunk_tokens=chunk,
    )


def test_only_full_attention_is_append_only() -> None:
    """Chunks are made of full attention; every other kind needs checkpoints."""
    assert [AttentionKind.FULL] == [k for k in AttentionKind if k.is_append_only]


def test_positions_split_the_groups() -> None:
    """Each group is part of chunks or of checkpoints, never of both."""
    made = layout(WINDOW_16, FULL_32)
    assert (1,) == made.chunk_positions
    assert (0,) == made.checkpoint_positions


def test_smallest_chunk_covers_alignment_and_append_only_blocks() -> None:
    """Window blocks do not make a chunk longer."""
    assert 96 == smallest_chunk_tokens([FULL_32, WINDOW_16], 48)
    assert 48 == smallest_chunk_tokens([WINDOW_16], 48)


def test_cells_hold_a_chunk_or_one_block() -> None:
    """A chunk cell is the chunk's blocks together; a checkpoint cell is one block."""
    made = layout(FULL_32, WINDOW_16, chunk=96)
    assert [3, 1] == [made.blocks_per_cell(i) for i in (0, 1)]
    assert [30, 10] == [made.cell_bytes(i) for i in (0, 1)]


@pytest.mark.parametrize("chunk", [-32, 0, 16, 33])
def test_refuses_a_chunk_that_does_not_fit(chunk: int) -> None:
    """The refusal says which multiple would fit."""
    with pytest.raises(ConfigError, match="positive multiple of 32"):
        layout(FULL_32, chunk=chunk)


def test_a_layout_can_be_given_another_chunk() -> None:
    """Only the chunk changes, and it is checked as at first."""
    small = layout(FULL_32, WINDOW_16)
    assert layout(FULL_32, WINDOW_16, chunk=64) == with_chunk_tokens(small, 64)
    with pytest.raises(ConfigError, match="chunk_tokens=48 does not fit"):
        with_chunk_tokens(small, 48)


def test_refuses_a_model_with_nothing_to_keep() -> None:
    """No cacheable group: there is nothing to keep."""
    with pytest.raises(IncompatibleError, match="no prefix-cacheable cache group"):
        layout()


def test_refuses_blocks_that_hashes_do_not_divide() -> None:
    """The group, both numbers and what to change are named."""
    odd = group(3, AttentionKind.FULL, 24)
    with pytest.raises(
        IncompatibleError, match=r"group 3 .* 24 .* 16; set the engine's"
    ):
        layout(odd, WINDOW_16)


def test_refuses_an_alignment_that_hashes_do_not_divide() -> None:
    """Hits must end at a hash."""
    with pytest.raises(IncompatibleError, match="hit alignment of 24"):
        make_layout(
            [FULL_32],
            hash_block_tokens=16,
            alignment_tokens=24,
            scheduler_block_tokens=48,
        )


def test_a_group_may_hold_no_bytes_but_not_less() -> None:
    """A pipeline stage may have none of a group's layers."""
    assert 0 == layout(group(0, AttentionKind.FULL, 16, payload_bytes=0)).cell_bytes(0)
    with pytest.raises(IncompatibleError, match="group 0 has -1 bytes"):
        layout(group(0, AttentionKind.FULL, 16, payload_bytes=-1))


def test_a_users_chunk_is_tokens_or_blocks_of_the_smallest_chunk():
    """Neither leaves the layout as it is; what does not fit is refused."""
    group = GroupLayout(0, AttentionKind.FULL, 16, 100, 100, 1)
    layout = make_layout(
        [group], hash_block_tokens=16, alignment_tokens=16, scheduler_block_tokens=16
    )
    assert layout is with_chosen_chunk(layout, None, None)
    assert 48 == with_chosen_chunk(layout, 48, None).chunk_tokens
    assert 64 == with_chosen_chunk(layout, None, 4).chunk_tokens
    with pytest.raises(ConfigError, match="chunk_tokens=24"):
        with_chosen_chunk(layout, 24, None)


def test_a_plain_layout_is_one_group_of_chunks():
    """Chunks are its blocks, and a prompt may be resumed at each of them."""
    layout = plain_layout(block_bytes=800, num_layers=8, tokens_per_block=32)
    assert (32, (0,), ()) == (
        layout.chunk_tokens,
        layout.chunk_positions,
        layout.checkpoint_positions,
    )
    assert 800 == layout.cell_bytes(0)
