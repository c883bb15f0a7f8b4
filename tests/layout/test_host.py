"""How an arena is cut into slabs and cells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout_of_bytes

from kvcellar.errors import ConfigError
from kvcellar.layout.cut import MAX_SLAB_WASTE, MIN_SLABS_PER_CLASS
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry, plan_geometry

DEEPSEEK_V4_BYTES = (822272, 784896, 985664, 860160, 655360)


def cells_by_class(geometry: HostGeometry) -> list[int]:
    """Cells of each class if the whole arena served it."""
    return [geometry.num_slabs * c.cells_per_slab for c in geometry.classes]


def worst_waste(geometry: HostGeometry) -> float:
    """Largest share of a slab that no cell of some class covers."""
    return max(
        1 - c.cells_per_slab * c.cell_bytes / geometry.slab_bytes
        for c in geometry.classes
    )


layouts = st.lists(st.integers(1, 5000), min_size=1, max_size=5).map(
    lambda payloads: layout_of_bytes(*payloads)
)


@given(layouts, st.integers(0, 3_000_000))
def test_never_more_than_was_asked_for(layout: CacheLayout, host_bytes: int) -> None:
    """The arena fits the memory and leaves less than one slab of it unused."""
    try:
        geometry = plan_geometry(layout, host_bytes)
    except ConfigError:
        sizes = {layout.cell_bytes(i) for i in range(len(layout.groups))}
        assert host_bytes < max(sizes) * len(sizes)
        return
    assert 0 <= host_bytes - geometry.arena_bytes < geometry.slab_bytes
    assert geometry.num_slabs >= len(geometry.classes)
    assert all(c.cells_per_slab > 0 for c in geometry.classes)


@given(layouts, st.integers(30_000, 10**8))
def test_slabs_waste_little(layout: CacheLayout, host_bytes: int) -> None:
    """A slab wastes at most half a percent, or what the arena's size forces."""
    geometry = plan_geometry(layout, host_bytes)
    per_class = host_bytes // (MIN_SLABS_PER_CLASS * len(geometry.classes))
    limit = max(per_class // geometry.classes[-1].cell_bytes, 1)
    assert worst_waste(geometry) <= max(MAX_SLAB_WASTE, 1 / limit)


@given(layouts, st.integers(1, 40), st.integers(0, 10**6))
def test_more_memory_never_means_fewer_cells(
    layout: CacheLayout, factor: int, more: int
) -> None:
    """Once the cut is settled, every class only gains from more memory."""
    settled = 20 * MIN_SLABS_PER_CLASS * 200 * 5000 * factor
    before = cells_by_class(plan_geometry(layout, settled))
    after = cells_by_class(plan_geometry(layout, settled + more))
    assert all(a >= b for b, a in zip(before, after, strict=True))


@given(layouts, st.integers(25_000, 10**6))
def test_every_class_has_room_for_several_slabs(
    layout: CacheLayout, host_bytes: int
) -> None:
    """No class can take the whole arena with one slab, unless cells are that big."""
    geometry = plan_geometry(layout, host_bytes)
    least = min(
        MIN_SLABS_PER_CLASS * len(geometry.classes),
        host_bytes // geometry.classes[-1].cell_bytes,
    )
    assert geometry.num_slabs >= least


@given(layouts, st.integers(25_000, 10**6), st.data())
def test_cells_of_a_class_never_overlap_or_leave_their_slab(
    layout: CacheLayout, host_bytes: int, data: st.DataObject
) -> None:
    """Two cells of one size are apart, and every cell lies inside one slab."""
    geometry = plan_geometry(layout, host_bytes)
    position = data.draw(st.integers(0, len(layout.groups) - 1))
    size = layout.cell_bytes(position)
    num_cells = cells_by_class(geometry)[geometry.class_of[position]]
    cell = data.draw(st.integers(0, num_cells - 1))
    offset = geometry.cell_offset(position, cell)
    assert 0 <= offset <= geometry.arena_bytes - size
    assert offset // geometry.slab_bytes == (offset + size - 1) // geometry.slab_bytes
    if cell:
        assert geometry.cell_offset(position, cell - 1) + size <= offset


def test_equal_sizes_share_a_class() -> None:
    """Groups whose cells have the same bytes draw from the same slabs."""
    geometry = plan_geometry(layout_of_bytes(300, 200, 300, 200), 100_000)
    assert [(200, (1, 3)), (300, (0, 2))] == [
        (c.cell_bytes, c.positions) for c in geometry.classes
    ]
    assert (1, 0, 1, 0) == geometry.class_of


def test_a_chunk_cell_holds_all_blocks_of_the_chunk() -> None:
    """Append-only groups keep a chunk's blocks together, checkpoints one by one."""
    geometry = plan_geometry(layout_of_bytes(100, 50, chunk_blocks=4), 100_000)
    assert (4, 1) == geometry.blocks_per_cell
    assert [50, 400] == [c.cell_bytes for c in geometry.classes]


def test_deepseek_v4_wastes_under_half_a_percent() -> None:
    """Five cell sizes between 640 and 963 KiB: 4 GiB per rank is cut almost whole."""
    geometry = plan_geometry(layout_of_bytes(*DEEPSEEK_V4_BYTES), 4 * 2**30)
    assert worst_waste(geometry) < 0.005
    assert geometry.arena_bytes > 0.98 * 4 * 2**30


def test_smallest_arena_holds_one_cell_of_each_size() -> None:
    """Exactly one slab per size works; one byte less is refused with the need."""
    layout = layout_of_bytes(300, 200, 100)
    assert 3 == plan_geometry(layout, 900).num_slabs
    with pytest.raises(ConfigError, match="at least 900 bytes for one cell of each"):
        plan_geometry(layout, 899)


def test_padded_groups_stay_inside_the_arena() -> None:
    """Pages of 576 and 584 bytes: every cell's bytes lie inside the mapping."""
    layout = layout_of_bytes(576, 584)
    geometry = plan_geometry(layout, 50_000)
    for position in (0, 1):
        num_cells = cells_by_class(geometry)[geometry.class_of[position]]
        last = geometry.cell_offset(position, num_cells - 1)
        assert last + layout.cell_bytes(position) <= geometry.arena_bytes


def test_many_layers_are_counted_once() -> None:
    """78 layers in one group: the group's bytes times the cells stay in the budget."""
    per_layer = 9216
    geometry = plan_geometry(layout_of_bytes(78 * per_layer), 10**9)
    assert [10**9 // (78 * per_layer * 16) * 16] == cells_by_class(geometry)
