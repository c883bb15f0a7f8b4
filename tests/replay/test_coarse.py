"""Joining blocks changes how many there are, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import LAYOUTS, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.replay.coarse import coarse_layout, unit_tokens
from kvcellar.replay.device_rows import DeviceRows


def bytes_needed(layout, boundary):
    """Chunk bytes and checkpoint bytes of a prompt that can be resumed there."""
    rules = HybridRules(layout)
    chunk = sum(layout.cell_bytes(p) for p in rules.chunk_positions)
    checkpoint = sum(
        len(blocks) * layout.cell_bytes(position)
        for position, blocks in rules.checkpoint_blocks(boundary)
    )
    return boundary // layout.chunk_tokens * chunk, checkpoint


@given(
    name=st.sampled_from(sorted(LAYOUTS)),
    block=st.sampled_from([16, 64, 100, 512]),
    index=st.integers(1, 12),
)
def test_every_resume_point_needs_as_many_bytes(name, block, index):
    """Of any layout, at every boundary that the trace can tell."""
    layout = LAYOUTS[name]
    unit = unit_tokens(layout, block)
    coarse = coarse_layout(layout, unit)
    assert 0 == unit % layout.chunk_tokens
    assert block <= unit < block + layout.chunk_tokens
    assert unit == coarse.chunk_tokens
    assert bytes_needed(layout, index * unit) == bytes_needed(coarse, index * unit)


def test_a_window_is_joined_as_far_as_its_length_allows():
    """A window of 128 in blocks of 16 becomes one block of 128, not one of 512."""
    layout = layout_of(
        group(0, LAYOUTS["full"].groups[0].kind, 16),
        group(1, WINDOW, 16, 128),
        hash_tokens=16,
        alignment=16,
    )
    coarse = coarse_layout(layout, 512)
    assert [512, 128] == [g.tokens_per_block for g in coarse.groups]
    assert [32 * 64, 8 * 64] == [g.payload_bytes for g in coarse.groups]


def test_rows_are_counted_in_the_models_own_blocks():
    """Chunks of two groups, the windows at a boundary, what a step passes through."""
    layout = layout_of(
        group(0, LAYOUTS["full"].groups[0].kind, 16),
        group(1, LAYOUTS["full"].groups[0].kind, 32),
        group(2, WINDOW, 16, 128),
        hash_tokens=16,
        alignment=32,
    )
    rows = DeviceRows.of(layout, 512, 1024)
    assert (32 + 16, 8, 1, 64) == (
        rows.chunk,
        rows.tail,
        rows.window,
        rows.step,
    )


@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_only_coarser_layouts_come_out(name):
    """A unit of one chunk may leave blocks as they are, and never cuts them."""
    layout = LAYOUTS[name]
    coarse = coarse_layout(layout, layout.chunk_tokens)
    for old, new in zip(layout.groups, coarse.groups, strict=True):
        assert 0 == new.tokens_per_block % old.tokens_per_block
