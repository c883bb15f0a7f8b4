"""The slab allocator against a dictionary of cells."""

import itertools
import random

import pytest
from layouts import LAYOUTS

from kvcellar.errors import InvariantError
from kvcellar.index.slabs import SlabAllocator
from kvcellar.layout.host import HostGeometry, SizeClass


def two_classes(num_slabs=4):
    """Slabs of 120 bytes: 3 cells of 40 for group 0, or 4 of 30 for group 1."""
    classes = (SizeClass(30, 4, (1,)), SizeClass(40, 3, (0,)))
    return HostGeometry(120, num_slabs, classes, (1, 0), (1, 1))


def test_cells_are_distinct_and_counted():
    """Every cell has its own bytes, and used bytes are the sum of payloads."""
    slabs = SlabAllocator(two_classes())
    cells = [slabs.allocate(0), slabs.allocate(0), slabs.allocate(1)]
    offsets = {slabs.geometry.cell_offset(c.position, c.number) for c in cells}
    assert 3 == len(offsets)
    assert 40 + 40 + 30 == slabs.used_bytes
    assert 2 * 120 == slabs.claimed_bytes


def test_full_arena_gives_none_until_a_cell_is_freed():
    """Without free cells and slabs, allocation is refused, not an error."""
    slabs = SlabAllocator(two_classes(num_slabs=1))
    cells = [slabs.allocate(0) for _ in range(3)]
    assert slabs.allocate(0) is None
    assert slabs.allocate(1) is None
    slabs.free(cells[1])
    assert slabs.allocate(1) is None
    assert slabs.allocate(0) is not None


def test_empty_slab_changes_its_size_class():
    """A slab whose last cell goes serves whoever asks next."""
    slabs = SlabAllocator(two_classes(num_slabs=1))
    for cell in [slabs.allocate(0) for _ in range(3)]:
        slabs.free(cell)
    assert all(slabs.allocate(1) is not None for _ in range(4))


def test_reclaim_moves_the_cells_of_the_emptiest_slab():
    """Two half-empty slabs of one class become one, and the other changes hands."""
    slabs = SlabAllocator(two_classes(num_slabs=2))
    cells = [slabs.allocate(0) for _ in range(6)]
    for cell in cells[1:5]:
        slabs.free(cell)
    assert slabs.allocate(1) is None
    (move,) = slabs.reclaim_slab(1)
    assert move.destination == move.cell.number != move.source
    assert move.cell in (cells[0], cells[5])
    assert slabs.allocate(1) is not None
    slabs.check()


def test_reclaim_needs_room_for_what_it_moves():
    """A class without spare cells keeps its slabs."""
    slabs = SlabAllocator(two_classes(num_slabs=2))
    cells = [slabs.allocate(0) for _ in range(6)]
    slabs.free(cells[0])
    slabs.free(cells[3])
    assert slabs.reclaim_slab(1) is None


def test_a_cell_is_freed_once():
    """Freeing a cell twice is a bug and says so."""
    slabs = SlabAllocator(two_classes())
    first, second = slabs.allocate(0), slabs.allocate(0)
    slabs.free(first)
    with pytest.raises(InvariantError, match="does not hold it"):
        slabs.free(first)
    slabs.free(second)


@pytest.mark.parametrize("name", LAYOUTS)
def test_random_use_never_overlaps(name):
    """After any sequence of take, free and reclaim, no two cells share a byte."""
    from kvcellar.layout.host import plan_geometry

    layout = LAYOUTS[name]
    largest = max(layout.cell_bytes(p) for p in range(len(layout.groups)))
    geometry = plan_geometry(layout, largest * 40)
    for seed in range(10):
        rng = random.Random(seed)
        slabs = SlabAllocator(geometry)
        held = []
        for _ in range(300):
            position = rng.randrange(len(layout.groups))
            if rng.random() < 0.6:
                cell = slabs.allocate(position)
                if cell is not None:
                    held.append(cell)
                elif rng.random() < 0.5:
                    slabs.reclaim_slab(position)
            elif held:
                slabs.free(held.pop(rng.randrange(len(held))))
            slabs.check()
            assert_disjoint(geometry, layout, held)


def assert_disjoint(geometry, layout, cells):
    spans = sorted(
        (start, start + layout.cell_bytes(c.position))
        for c in cells
        for start in [geometry.cell_offset(c.position, c.number)]
    )
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert not spans or spans[-1][1] <= geometry.arena_bytes
