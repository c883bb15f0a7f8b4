"""The CPU device against a model that keeps payloads in a dict."""

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_rig import Bytes, Rig, job, make_rig, noise, pairings, rigs

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.regions import PageTensor, regions_from_tensors
from kvcellar.errors import ClosedError, IncompatibleError, InvariantError
from kvcellar.transfer.jobs import Direction

if TYPE_CHECKING:
    from kvcellar.device.device import Device


def _expected_store(rig: Rig, position: int, pairs: list[tuple[int, int]]) -> Bytes:
    """The arena after a store, page by page and by the documented cell layout."""
    arena = rig.arena.copy()
    per_cell = rig.geometry.blocks_per_cell[position]
    for block, host_block in pairs:
        cell, place = divmod(host_block, per_cell)
        at = rig.geometry.cell_offset(position, cell)
        for start, size in _regions(rig, position, block):
            to = at + place * size
            arena[to : to + size] = rig.cache[start : start + size]
            at += size * per_cell
    return arena


def _regions(rig: Rig, position: int, block: int) -> list[tuple[int, int]]:
    """(offset, length) of one block's regions in the cache, touching pages joined."""
    regions: list[tuple[int, int]] = []
    previous_end, previous_stride = -1, -1
    for offset, stride, size in rig.pages[position]:
        start = offset + block * stride
        if (offset, stride) == (previous_end, previous_stride):
            regions[-1] = (regions[-1][0], regions[-1][1] + size)
        else:
            regions.append((start, size))
        previous_end, previous_stride = offset + size, stride
    return regions


@given(rig=rigs, data=st.data())
def test_store_writes_exactly_the_documented_bytes(
    rig: Rig, data: st.DataObject
) -> None:
    """Every payload byte lands at its place in its cell, no other byte changes."""
    position = data.draw(st.integers(0, len(rig.layout.groups) - 1))
    pairs = data.draw(pairings(rig, position))
    cache = rig.cache.copy()
    expected = _expected_store(rig, position, pairs)
    num_bytes = rig.device.copy(
        job(Direction.STORE, (position, [d for d, _ in pairs], [h for _, h in pairs]))
    )
    assert len(pairs) * rig.layout.groups[position].payload_bytes == num_bytes
    assert expected.tobytes() == rig.arena.tobytes()
    assert cache.tobytes() == rig.cache.tobytes()


@given(rig=rigs, data=st.data())
def test_any_sequence_of_jobs_equals_a_dict(rig: Rig, data: st.DataObject) -> None:
    """After stores, moves and loads in any order, blocks hold what a dict says.

    The dict maps a host block to the payload it was given. Groups alias the device
    cache and share slabs, so a store or move forgets what it overwrote.
    """
    held: dict[tuple[int, int], bytes] = {}
    for seed in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(rig.layout.groups) - 1))
        direction = data.draw(st.sampled_from(Direction))
        if direction is Direction.STORE:
            rig.cache[:] = noise(len(rig.cache), seed)
            _store(rig, held, position, data.draw(pairings(rig, position)))
        elif direction is Direction.LOAD:
            _load_and_check(rig, held, position, data.draw(pairings(rig, position)))
        else:
            _move(rig, held, position, data)
    for position in range(len(rig.layout.groups)):
        blocks = [h for p, h in held if p == position][: rig.num_blocks]
        pairs = list(zip(range(len(blocks)), blocks, strict=True))
        _load_and_check(rig, held, position, pairs)


def _store(
    rig: Rig,
    held: dict[tuple[int, int], bytes],
    position: int,
    pairs: list[tuple[int, int]],
) -> None:
    rig.device.copy(
        job(Direction.STORE, (position, [d for d, _ in pairs], [h for _, h in pairs]))
    )
    per_cell = rig.geometry.blocks_per_cell[position]
    cells = {h // per_cell for _, h in pairs}
    kept = {k: v for k, v in held.items() if k[0] == position}
    _forget(rig, held, position, cells)
    held.update({k: v for k, v in kept.items() if k[1] // per_cell in cells})
    held.update({(position, h): rig.payload(position, d) for d, h in pairs})


def _forget(
    rig: Rig, held: dict[tuple[int, int], bytes], position: int, cells: set[int]
) -> None:
    """Drop all that shares bytes with the named cells."""
    spans = [_span(rig, position, cell) for cell in cells]
    for other, host_block in list(held):
        cell = host_block // rig.geometry.blocks_per_cell[other]
        start, end = _span(rig, other, cell)
        if any(start < to and at < end for at, to in spans):
            del held[other, host_block]


def _span(rig: Rig, position: int, cell: int) -> tuple[int, int]:
    start = rig.geometry.cell_offset(position, cell)
    return start, start + rig.layout.cell_bytes(position)


def _load_and_check(
    rig: Rig,
    held: dict[tuple[int, int], bytes],
    position: int,
    pairs: list[tuple[int, int]],
) -> None:
    known = [(d, h) for d, h in pairs if (position, h) in held]
    before, arena = rig.cache.copy(), rig.arena.copy()
    rig.device.copy(
        job(Direction.LOAD, (position, [d for d, _ in known], [h for _, h in known]))
    )
    for block, host_block in known:
        assert held[position, host_block] == rig.payload(position, block)
        for offset, stride, size in rig.pages[position]:
            at = offset + block * stride
            before[at : at + size] = rig.cache[at : at + size]
    assert before.tobytes() == rig.cache.tobytes()
    assert arena.tobytes() == rig.arena.tobytes()


def _move(
    rig: Rig,
    held: dict[tuple[int, int], bytes],
    position: int,
    data: st.DataObject,
) -> None:
    per_cell = rig.geometry.blocks_per_cell[position]
    num_cells = rig.num_host_blocks(position) // per_cell
    cells = data.draw(st.lists(st.integers(0, num_cells - 1), max_size=6, unique=True))
    half = len(cells) // 2
    sources, targets = cells[:half], cells[half : 2 * half]
    num_bytes = rig.device.copy(job(Direction.MOVE, (position, sources, targets)))
    assert half * rig.layout.cell_bytes(position) == num_bytes
    moved = {
        (position, target * per_cell + place): payload
        for source, target in zip(sources, targets, strict=True)
        for place in range(per_cell)
        if (payload := held.get((position, source * per_cell + place))) is not None
    }
    _forget(rig, held, position, set(targets))
    held.update(moved)


def test_job_of_several_groups_copies_them_all() -> None:
    """One job, two groups of different sizes, both directions."""
    rig = make_rig([[8, 8], [5]], num_blocks=6, blocks_per_chunk=2)
    last_slab = rig.num_host_blocks(1) - 1
    copies = [(0, [0, 1], [2, 3]), (1, [4], [last_slab])]
    before = rig.cache.copy()
    assert 37 == rig.device.copy(job(Direction.STORE, *copies))
    rig.cache[:] = 0
    assert 37 == rig.device.copy(job(Direction.LOAD, *copies))
    after = rig.cache.copy()
    rig.cache[:] = before
    expected = [rig.payload(0, 0), rig.payload(0, 1), rig.payload(1, 4)]
    rig.cache[:] = after
    assert expected == [rig.payload(0, 0), rig.payload(0, 1), rig.payload(1, 4)]


@pytest.mark.parametrize("direction", list(Direction))
def test_a_group_without_layers_on_this_rank_copies_nothing(
    direction: Direction,
) -> None:
    """Its numbers are checked like all others, and the other group's bytes move."""
    rig = make_rig([[24], []], num_chunk_groups=1)
    blocks = [1, 2] if direction is not Direction.MOVE else [4, 5]
    both = job(direction, (0, blocks, [0, 1]), (1, blocks, [0, 1]))
    assert 2 * 24 == rig.device.copy(both)
    alone = job(direction, (1, blocks, [0, 1]))
    before = rig.arena.copy(), rig.cache.copy()
    assert 0 == rig.device.copy(alone)
    assert all(
        (a == b).all() for a, b in zip(before, (rig.arena, rig.cache), strict=True)
    )
    with pytest.raises(InvariantError, match="group 1"):
        rig.device.copy(job(direction, (1, [10**6], [0])))


def test_empty_jobs_copy_nothing() -> None:
    """No group, or a group of no blocks, is 0 bytes."""
    rig = make_rig([[8]])
    assert 0 == rig.device.copy(job(Direction.STORE))
    assert 0 == rig.device.copy(job(Direction.LOAD, (0, [], [])))


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("first", "second"), [(-1, 0), (10**6, 0), (0, -1), (0, 10**6)]
)
def test_out_of_range_is_refused_before_any_copy(
    direction: Direction, first: int, second: int
) -> None:
    """A bad number in the last group of a job stops the good ones before it."""
    rig = make_rig([[8, 8], [5]])
    cache, arena = rig.cache.copy(), rig.arena.copy()
    bad = job(direction, (0, [1], [2]), (1, [first], [second]))
    with pytest.raises(InvariantError, match=r"group 1: .* there are"):
        rig.device.copy(bad)
    assert (cache.tobytes(), arena.tobytes()) == (
        rig.cache.tobytes(),
        rig.arena.tobytes(),
    )


def test_last_block_and_last_cell_are_in_range() -> None:
    """The bounds themselves: the highest numbers work, one more does not."""
    rig = make_rig([[8]], num_blocks=6)
    last = rig.num_host_blocks(0) - 1
    assert 8 == rig.device.copy(job(Direction.STORE, (0, [5], [last])))
    for bad in ((0, [6], [last]), (0, [5], [last + 1])):
        with pytest.raises(InvariantError, match="there are"):
            rig.device.copy(job(Direction.STORE, bad))


def test_lists_of_unequal_length_are_refused() -> None:
    """Blocks are paired one to one; numpy's broadcasting must not hide a bug."""
    rig = make_rig([[8]])
    with pytest.raises(InvariantError, match="1 blocks are paired with 2"):
        rig.device.copy(job(Direction.STORE, (0, [1], [2, 3])))


def test_move_that_overwrites_its_own_source_is_refused() -> None:
    """Within one job the order must not matter."""
    rig = make_rig([[8]])
    arena = rig.arena.copy()
    with pytest.raises(InvariantError, match="overwrites"):
        rig.device.copy(job(Direction.MOVE, (0, [1, 2], [2, 3])))
    assert arena.tobytes() == rig.arena.tobytes()


def test_regions_must_add_up_to_the_layout() -> None:
    """A layout of other bytes per block than the tensors is refused at registration."""
    rig = make_rig([[8, 8]])
    wrong = dataclasses.replace(
        rig.layout,
        groups=(dataclasses.replace(rig.layout.groups[0], payload_bytes=17),),
    )
    with pytest.raises(IncompatibleError, match=r"hold 16 bytes .* says 17"):
        CpuDevice(
            wrong,
            rig.geometry,
            [regions_from_tensors([PageTensor(0, 96, 0, 0, 16, 1, 16)], 6)],
            num_blocks=6,
            host_address=rig.arena.ctypes.data,
        )


def test_closed_device_copies_nothing() -> None:
    """After close, a job is an error; closing twice is not."""
    rig = make_rig([[8]])
    rig.device.close()
    rig.device.close()
    with pytest.raises(ClosedError, match="closed"):
        rig.device.copy(job(Direction.STORE, (0, [1], [2])))


def test_fence_of_a_cpu_is_nothing() -> None:
    """Work on the CPU is over when its call returns."""
    device: Device = make_rig([[8]]).device
    assert device.fence() is None
