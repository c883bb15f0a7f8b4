"""What fits into the arena, and how it is said."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.attention import rule_for
from kvcellar.index.capacity import capacity, describe
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout, make_layout
from kvcellar.layout.host import HostGeometry, SizeClass, plan_geometry

FULL = GroupLayout(0, AttentionKind.FULL, 32, 1000, 1024, 1)
WINDOW = GroupLayout(1, AttentionKind.WINDOW, 32, 500, 512, 1, span_tokens=65)
CHUNKED = GroupLayout(2, AttentionKind.CHUNKED, 32, 100, 100, 1, span_tokens=96)
STATE = GroupLayout(3, AttentionKind.STATE, 32, 700, 700, 1)


def layout_of(*groups: GroupLayout, chunk_tokens: int | None = None) -> CacheLayout:
    return make_layout(
        groups,
        hash_block_tokens=32,
        alignment_tokens=32,
        scheduler_block_tokens=32,
        chunk_tokens=chunk_tokens,
    )


def cut(layout: CacheLayout, slab_bytes: int, num_slabs: int) -> HostGeometry:
    """Equal slabs of the given size, one class per cell size."""
    cells = [layout.cell_bytes(i) for i in range(len(layout.groups))]
    sizes = sorted(set(cells))
    return HostGeometry(
        slab_bytes,
        num_slabs,
        tuple(SizeClass(size, slab_bytes // size, ()) for size in sizes),
        tuple(sizes.index(size) for size in cells),
        tuple(layout.blocks_per_cell(i) for i in range(len(layout.groups))),
    )


def test_full_and_window_model_by_hand() -> None:
    """Slabs of 1000 bytes: 100 of them, one chunk or two window blocks in each."""
    layout = layout_of(FULL, WINDOW)
    found = capacity(layout, cut(layout, 1000, 100), prompt_tokens=130)
    assert (32, 1000, 1000) == (
        found.chunk_tokens,
        found.chunk_bytes,
        found.checkpoint_bytes,
    )
    assert (100, 3200, 100) == (
        found.num_chunks,
        found.chunk_tokens_total,
        found.num_checkpoints,
    )
    # 128 tokens are 4 chunks in 4 slabs, and 2 window blocks in 1 slab: 5 per prompt.
    assert (128, 20) == (found.prompt_tokens, found.num_prompts)
    assert 1000 / 32 == found.bytes_per_token
    assert (0, 2) == tuple(g.checkpoint_blocks for g in found.groups)
    assert (1, 0) == tuple(g.blocks_per_chunk for g in found.groups)


def test_largest_checkpoint_of_local_chunks_is_found() -> None:
    """A local chunk of three blocks needs up to two: none where a new one begins."""
    layout = layout_of(FULL, CHUNKED)
    found = capacity(layout, plan_geometry(layout, 100_000))
    assert (2, 200) == (found.groups[1].checkpoint_blocks, found.checkpoint_bytes)


def test_state_model_without_chunks_counts_checkpoints_only() -> None:
    """Nothing grows with the prompt, so chunks are no bytes and none is counted."""
    layout = layout_of(STATE)
    found = capacity(layout, cut(layout, 1500, 50))
    assert (0, 0, 0.0) == (found.chunk_bytes, found.num_chunks, found.bytes_per_token)
    assert (700, 100, 100) == (
        found.checkpoint_bytes,
        found.num_checkpoints,
        found.num_prompts,
    )


def test_model_of_full_attention_needs_no_checkpoints() -> None:
    """Chunks suffice, and prompts are counted by them alone."""
    layout = layout_of(FULL, chunk_tokens=64)
    found = capacity(layout, cut(layout, 4999, 50), prompt_tokens=256)
    assert (0, 0, 2000, 100, 25) == (
        found.checkpoint_bytes,
        found.num_checkpoints,
        found.chunk_bytes,
        found.num_chunks,
        found.num_prompts,
    )


def test_prompt_shorter_than_a_chunk_counts_as_one() -> None:
    """The typical prompt has at least one chunk."""
    layout = layout_of(FULL)
    geometry = plan_geometry(layout, 100_000)
    assert 32 == capacity(layout, geometry, prompt_tokens=5).prompt_tokens


@pytest.mark.parametrize("group", [FULL, WINDOW, CHUNKED, STATE])
def test_description_names_every_figure(group: GroupLayout) -> None:
    """A line for the arena and one for the group, sizes in readable units."""
    big = dataclasses.replace(group, payload_bytes=2**20)
    layout = layout_of(big)
    lines = describe(capacity(layout, plan_geometry(layout, 2**30))).splitlines()
    assert 2 == len(lines)
    assert lines[0].startswith("host memory 1.00 GiB per rank: ")
    share = "1 blocks per chunk" if group is FULL else "per checkpoint"
    assert f"{group.kind} group {group.group_id}: blocks of 32 tokens" in lines[1]
    assert lines[1].endswith(share)
    assert "1.00 MiB each" in lines[1]


@st.composite
def models(draw: st.DrawFn) -> tuple[CacheLayout, HostGeometry]:
    chosen = draw(st.lists(st.sampled_from([FULL, WINDOW, CHUNKED, STATE]), min_size=1))
    sizes = st.integers(1, 3000)
    groups = [dataclasses.replace(g, payload_bytes=draw(sizes)) for g in chosen]
    layout = layout_of(*groups, chunk_tokens=32 * draw(st.integers(1, 4)))
    cells = {layout.cell_bytes(i) for i in range(len(groups))}
    smallest = max(cells) * len(cells)
    return layout, plan_geometry(layout, smallest * draw(st.integers(1, 40)))


@given(model=models(), num_chunks=st.integers(1, 20))
def test_prompts_that_fit_are_the_most_that_fit(
    model: tuple[CacheLayout, HostGeometry], num_chunks: int
) -> None:
    """So many prompts take no more slabs than there are; one more would."""
    layout, geometry = model
    boundary = num_chunks * layout.chunk_tokens
    num_prompts = capacity(layout, geometry, prompt_tokens=boundary).num_prompts

    def num_slabs(prompts: int) -> int:
        cells = [0] * len(geometry.classes)
        for position, group in enumerate(layout.groups):
            blocks = len(rule_for(group).needed(boundary))
            per_prompt = blocks // geometry.blocks_per_cell[position]
            cells[geometry.class_of[position]] += per_prompt * prompts
        pairs = zip(cells, geometry.classes, strict=True)
        return sum(-(-count // c.cells_per_slab) for count, c in pairs)

    assert num_slabs(num_prompts) <= geometry.num_slabs
    assert num_slabs(1) == 0 or num_slabs(num_prompts + 1) > geometry.num_slabs


@given(model=models(), num_chunks=st.integers(1, 500))
def test_no_checkpoint_is_larger_than_the_largest(
    model: tuple[CacheLayout, HostGeometry], num_chunks: int
) -> None:
    """The figure printed bounds every boundary's checkpoint."""
    layout, geometry = model
    boundary = num_chunks * layout.chunk_tokens
    actual = sum(
        len(rule_for(layout.groups[p]).needed(boundary)) * layout.cell_bytes(p)
        for p in layout.checkpoint_positions
    )
    assert actual <= capacity(layout, geometry).checkpoint_bytes
