"""Pieces of host memory: whole pages, no page twice, none too large."""

import mmap

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.device.pieces import MAX_PIECE_BYTES, cut_pieces
from kvcellar.layout.host import HostGeometry, SizeClass

PAGE = mmap.PAGESIZE


def geometry(slab_bytes: int, num_slabs: int) -> HostGeometry:
    return HostGeometry(
        slab_bytes, num_slabs, (SizeClass(slab_bytes, 1, (0,)),), (0,), (1,)
    )


@given(
    slab_bytes=st.one_of(st.integers(1, 5 * PAGE), st.integers(1, 2**37)),
    num_slabs=st.integers(1, 40),
    piece_bytes=st.integers(1, 2**38),
)
def test_pieces_are_whole_pages_that_cover_the_arena(
    slab_bytes: int, num_slabs: int, piece_bytes: int
) -> None:
    """From the arena's first byte to the end of its last page, none above a limit."""
    cut = geometry(slab_bytes, num_slabs)
    piece_bytes = max(piece_bytes, cut.arena_bytes // 500)  # keeps the list short
    borders = cut_pieces(7 * PAGE, cut, piece_bytes)
    sizes = np.diff(borders)
    assert (borders % PAGE == 0).all()
    assert (sizes > 0).all()
    assert sizes.max() <= max(min(piece_bytes, MAX_PIECE_BYTES), 3 * PAGE)
    assert 7 * PAGE == borders[0]
    assert 0 <= borders[-1] - 7 * PAGE - cut.arena_bytes < PAGE


@given(st.integers(1, 4 * PAGE), st.integers(1, 50))
def test_pieces_begin_in_the_page_where_a_slab_begins(
    slab_bytes: int, num_slabs: int
) -> None:
    """Pieces of several slabs: each border is less than a page before a slab."""
    borders = cut_pieces(0, geometry(slab_bytes, num_slabs), 9 * PAGE)
    for border in borders[:-1].tolist():
        assert -border % slab_bytes < PAGE


def test_slabs_of_whole_pages_are_cut_exactly_between_them() -> None:
    """Slabs of 3 pages in pieces of at most 8: two slabs each, and the rest."""
    borders = cut_pieces(0, geometry(3 * PAGE, 5), 8 * PAGE)
    assert [0, 6 * PAGE, 12 * PAGE, 15 * PAGE] == borders.tolist()
