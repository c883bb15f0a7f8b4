"""Who comes after whom, against a model that remembers every byte."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcellar.device.order import LANES, JobOrder
from kvcellar.layout.host import HostGeometry, SizeClass
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

NUM_BLOCKS = 6
# Two sizes of 3 and 5 bytes in slabs of 15; the first group has two blocks to a cell.
GEOMETRY = HostGeometry(
    slab_bytes=15,
    num_slabs=3,
    classes=(SizeClass(3, 5, (1,)), SizeClass(5, 3, (0, 2))),
    class_of=(1, 0, 1),
    blocks_per_cell=(2, 1, 1),
)


def job(direction: Direction, *copies: tuple[int, list[int], list[int]]) -> CopyJob:
    return CopyJob(
        0,
        direction,
        tuple(
            GroupCopy(p, np.array(d, dtype=np.int64), np.array(h, dtype=np.int64))
            for p, d, h in copies
        ),
    )


def num_cells(position: int) -> int:
    size_class = GEOMETRY.classes[GEOMETRY.class_of[position]]
    return GEOMETRY.num_slabs * size_class.cells_per_slab


@st.composite
def jobs(draw: st.DrawFn) -> CopyJob:
    """A store or load of one or two groups, or a move; a slab serves one class."""
    direction = draw(st.sampled_from(Direction))
    position = draw(st.sampled_from([0, 1, 2]))
    if direction is Direction.MOVE:
        cells = draw(_distinct(num_cells(position), 2, 2))
        return job(direction, (position, cells[:1], cells[1:]))
    copies = []
    same_class = [
        p for p in (0, 1, 2) if GEOMETRY.class_of[p] == GEOMETRY.class_of[position]
    ]
    for place in {position, draw(st.sampled_from(same_class))}:
        num_host_blocks = num_cells(place) * GEOMETRY.blocks_per_cell[place]
        host = draw(_distinct(num_host_blocks, 0, 3))
        copies.append((place, draw(_distinct(NUM_BLOCKS, len(host), len(host))), host))
    return job(direction, *copies)


def _distinct(bound: int, least: int, most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(
        st.integers(0, bound - 1), min_size=least, max_size=most, unique=True
    )


def used(one: CopyJob) -> set[tuple[str, int]]:
    """Every device block and host byte that a job touches."""
    found: set[tuple[str, int]] = set()
    for copy in one.copies:
        per_cell = GEOMETRY.blocks_per_cell[copy.position]
        cells = {h // per_cell for h in copy.host_blocks.tolist()}
        if one.direction is Direction.MOVE:
            cells = {*copy.host_blocks.tolist(), *copy.device_blocks.tolist()}
        else:
            found |= {("block", block) for block in copy.device_blocks.tolist()}
        size = GEOMETRY.classes[GEOMETRY.class_of[copy.position]].cell_bytes
        for cell in cells:
            start = GEOMETRY.cell_offset(copy.position, cell)
            found |= {("byte", at) for at in range(start, start + size)}
    return found


def come_before(
    direction: Direction,
    edges: Iterable[int],
    queued: Sequence[CopyJob],
    waited: Mapping[int, set[int]],
) -> set[int]:
    """Queued jobs certain to end before one that waits for ``edges``."""
    same = [n for n, earlier in enumerate(queued, 1) if earlier.direction is direction]
    before: set[int] = set()
    for earlier in (*same, *edges):
        before |= waited[earlier] | {earlier}
    return before


@given(st.lists(jobs(), max_size=14))
def test_a_job_comes_after_all_that_share_memory_with_it(
    all_jobs: list[CopyJob],
) -> None:
    """By stream order and waits together, no two jobs that share a byte overlap.

    A move waits on the host until the jobs it names have ended; only what those come
    after is certain to have ended too.
    """
    order = JobOrder(GEOMETRY, NUM_BLOCKS)
    queued: list[CopyJob] = []
    ended: set[int] = set()
    waited: dict[int, set[int]] = {}
    for one in all_jobs:
        edges = order.predecessors(one).values()
        before = come_before(one.direction, edges, queued, waited) | ended
        rivals = {n for n, q in enumerate(queued, 1) if used(q) & used(one)}
        assert rivals <= before
        number = order.add(one)
        if one.direction is Direction.MOVE:
            ended |= before
        else:
            queued.append(one)
            waited[number] = before


def test_jobs_that_share_nothing_need_not_wait() -> None:
    """A load of other blocks and cells than a store's runs beside it."""
    order = JobOrder(GEOMETRY, NUM_BLOCKS)
    order.add(job(Direction.STORE, (0, [0, 1], [0, 1])))
    assert {} == order.predecessors(job(Direction.LOAD, (0, [2, 3], [2, 3])))


def test_a_job_waits_for_the_newest_only() -> None:
    """Of three stores to one cell the load after them names the last."""
    order = JobOrder(GEOMETRY, NUM_BLOCKS)
    for block in range(3):
        order.add(job(Direction.STORE, (2, [block], [4])))
    load = job(Direction.LOAD, (2, [5], [4]))
    assert {Direction.STORE: 3} == order.predecessors(load)


def test_a_move_waits_for_both_streams() -> None:
    """A store into its source and a load from its destination both come first."""
    order = JobOrder(GEOMETRY, NUM_BLOCKS)
    order.add(job(Direction.STORE, (2, [0], [1])))
    order.add(job(Direction.LOAD, (2, [1], [7])))
    move = job(Direction.MOVE, (2, [1], [7]))
    assert dict(zip(LANES, (1, 2), strict=True)) == order.predecessors(move)


def test_a_slab_that_changes_its_class_is_the_same_memory() -> None:
    """A move in the slab's new class comes after a store in the old one.

    A load of the new class in between does not hide it.
    """
    order = JobOrder(GEOMETRY, NUM_BLOCKS)
    order.add(job(Direction.STORE, (1, [0], [0])))
    order.add(job(Direction.LOAD, (2, [1], [2])))
    move = job(Direction.MOVE, (2, [0], [1]))
    assert 1 == order.predecessors(move)[Direction.STORE]
