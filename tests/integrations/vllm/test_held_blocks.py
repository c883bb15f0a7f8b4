"""Blocks of many cells: told of with the first cell, taken back with the last."""

from collections import Counter

import pytest

pytest.importorskip("vllm")

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.integrations.vllm.held_blocks import HeldBlocks

BLOCKS = st.integers(0, 9)


@given(st.data())
def test_a_block_is_held_from_its_first_cell_to_its_last(data):
    """However many come and go at once: the same as counting one by one."""
    held, cells = HeldBlocks(), Counter()
    for _ in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            hashes = data.draw(st.lists(BLOCKS, min_size=1, unique=True))
            is_new = not any(cells[one] for one in hashes)
            assert is_new == held.add_new(hashes)
            if not is_new:
                new = [hashes[place] for part in held.add(hashes) for place in part]
                assert [one for one in hashes if not cells[one]] == new
            cells.update(hashes)
        else:
            several = st.lists(st.sampled_from([*cells.elements()] or [0]))
            hashes = [*(Counter(data.draw(several)) & cells).elements()]
            before = {one for one in cells if cells[one]}
            gone = held.remove(hashes)
            cells -= Counter(hashes)
            assert Counter(before - {*cells}) == Counter(gone)


def test_what_is_new_comes_in_as_few_ranges_as_there_are():
    """Known blocks at the start, inside and at the end cut what is told of."""
    held = HeldBlocks()
    assert held.add_new([1, 4, 6])
    assert [range(1, 3), range(4, 5)] == held.add([1, 2, 3, 4, 5, 6])
    assert [] == held.add([2, 3])


def test_what_nobody_holds_is_not_taken_back():
    """A hash that was never announced is left out."""
    held = HeldBlocks()
    assert held.add_new([1])
    assert [1] == held.remove([1, 2])
    assert [] == held.remove([1])
