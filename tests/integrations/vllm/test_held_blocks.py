"""Blocks of many cells: told of with the first cell, taken back with the last."""

from collections import Counter

import pytest

pytest.importorskip("vllm")

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.integrations.vllm.held_blocks import HeldBlocks

BLOCKS = st.integers(0, 9)
GROUPS = (1, 2, 4)
EACH = st.sets(st.sampled_from(GROUPS), min_size=1)


@given(st.data())
def test_a_block_is_held_from_its_first_cell_to_its_last(data):
    """However many come and go at once, in one group or several: the same as counting
    one by one."""
    held, cells = HeldBlocks(), {group: Counter() for group in GROUPS}
    for _ in range(data.draw(st.integers(1, 12))):
        groups = data.draw(EACH)
        if data.draw(st.booleans()):
            add(
                held,
                cells,
                groups,
                data.draw(st.lists(BLOCKS, min_size=1, unique=True)),
            )
        else:
            common = Counter(range(10))
            for group in groups:
                common &= cells[group]
            several = st.lists(st.sampled_from([*common] or [0]), unique=True)
            remove(held, cells, groups, data.draw(several))


def add(held, cells, groups, hashes):
    """Cells of these groups hold these blocks."""
    is_new = not any(cells[group][one] for group in GROUPS for one in hashes)
    assert is_new == held.add_new(hashes, sum(groups))
    for group in groups:
        if not is_new:
            new = [hashes[p] for part in held.add(hashes, group) for p in part]
            assert [one for one in hashes if not cells[group][one]] == new
        cells[group].update(hashes)


def remove(held, cells, groups, hashes):
    """A cell of each of these groups, if it has one, holds these blocks no more."""
    at_once = held.remove_all(hashes, sum(groups))
    for group in groups:
        before = {one for one in cells[group] if cells[group][one]}
        cells[group] -= Counter(hashes)
        gone = hashes if at_once else held.remove(hashes, group)
        assert before - {*cells[group]} == {*gone}
    if at_once:
        others = [cells[group] for group in GROUPS]
        assert not any(counts[one] for counts in others for one in hashes)


def test_what_is_new_comes_in_as_few_ranges_as_there_are():
    """Known blocks at the start, inside and at the end cut what is told of."""
    held = HeldBlocks()
    assert held.add_new([1, 4, 6], 1)
    assert [range(1, 3), range(4, 5)] == held.add([1, 2, 3, 4, 5, 6], 1)
    assert [] == held.add([2, 3], 1)


def test_of_a_block_several_cells_may_go_at_once():
    """Two cells of one group hold it: it goes with the second, in the same call."""
    held = HeldBlocks()
    assert held.add_new([1, 2], 1)
    assert [] == held.add([1], 1)
    assert not held.remove_all([1, 1, 2], 1)
    assert [1, 2] == held.remove([1, 1, 2], 1)


def test_what_nobody_holds_is_not_taken_back():
    """A hash that was never announced, or not of that group, is left out."""
    held = HeldBlocks()
    assert held.add_new([1], 1)
    assert not held.remove_all([1], 3)
    assert [] == held.remove([1], 2)
    assert [1] == held.remove([1, 2], 1)
    assert [] == held.remove([1], 1)
