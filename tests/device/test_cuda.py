"""The CUDA device on the fake driver: the same bytes as the CPU device, job by job."""

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_rig import Bytes, Rig, job, make_rig, pairings, rigs

import kvcellar.device.cuda as cuda_module
from kvcellar.device.cuda import CudaDevice, RunningCopy
from kvcellar.device.driver import DeviceError
from kvcellar.device.pieces import cut_pieces
from kvcellar.device.pinning import PinnedMemory
from kvcellar.errors import ClosedError, InvariantError
from kvcellar.testing.fake_driver import COMPUTE, RANDOM, FakeDriver
from kvcellar.transfer.jobs import CopyJob, Direction

STREAMS = (COMPUTE, "store", "load")
PAGE = 4096


@dataclass
class Twin:
    """A CUDA device over copies of a rig's cache and arena."""

    cache: Bytes
    arena: Bytes
    driver: FakeDriver
    memory: PinnedMemory
    device: CudaDevice

    def start(self, one: CopyJob) -> RunningCopy:
        return self.device.start(one, self.device.fence())


def twin_of(
    rig: Rig,
    driver: FakeDriver,
    *,
    num_pinned: int | None = None,
    piece_bytes: int = PAGE,
) -> Twin:
    """Host memory in pieces of few pages, the first ``num_pinned`` of them pinned."""
    cache = rig.cache.copy()
    arena = _page_aligned(rig.arena)
    driver.add_device_memory(cache.ctypes.data, cache.nbytes)
    memory = PinnedMemory(cut_pieces(arena.ctypes.data, rig.geometry, PAGE))
    for piece in range(memory.num_pieces if num_pinned is None else num_pinned):
        memory.pin(driver, piece)
    device = CudaDevice(
        rig.layout,
        rig.geometry,
        rig.regions(cache),
        num_blocks=rig.num_blocks,
        memory=memory,
        driver=driver,
    )
    return Twin(cache, arena, driver, memory, device)


def _page_aligned(like: Bytes) -> Bytes:
    """A copy at a page border with room up to the next one."""
    whole = np.zeros(len(like) + 2 * PAGE, dtype=np.uint8)
    skipped = -whole.ctypes.data % PAGE
    aligned = whole[skipped : skipped + len(like)]
    aligned[:] = like
    return aligned


drivers = st.builds(
    FakeDriver,
    st.one_of(st.frozensets(st.sampled_from(STREAMS)), st.just(frozenset({RANDOM}))),
    seed=st.integers(0, 2**16),
    patience=st.integers(0, 12),
)


@given(rig=rigs, driver=drivers, data=st.data())
def test_any_jobs_on_any_device_leave_the_bytes_of_the_planned_order(
    rig: Rig, driver: FakeDriver, data: st.DataObject
) -> None:
    """Started one after the other, jobs do what the CPU device does in that order.

    However late or early the streams are, with moves, slabs that change their class,
    jobs that share blocks and cells, and only part of host memory pinned.
    """
    num_pieces = len(cut_pieces(0, rig.geometry, PAGE)) - 1
    num_pinned = data.draw(st.sampled_from([0, num_pieces // 2, num_pieces]))
    twin = twin_of(rig, driver, num_pinned=num_pinned)
    running = []
    for one in data.draw(st.lists(_jobs(rig), max_size=8)):
        expected = rig.device.copy(one)
        running.append(twin.start(one))
        assert expected == running[-1].num_bytes
        if data.draw(st.booleans()):
            assert running[-1].is_done() in (True, False)
    for copying in running:
        while not copying.is_done():
            pass
        assert copying.error is None
    assert rig.cache.tobytes() == twin.cache.tobytes()
    assert rig.arena.tobytes() == twin.arena.tobytes()


@st.composite
def _jobs(draw: st.DrawFn, rig: Rig) -> CopyJob:
    position = draw(st.integers(0, len(rig.layout.groups) - 1))
    direction = draw(st.sampled_from(Direction))
    if direction is not Direction.MOVE:
        pairs = draw(pairings(rig, position))
        return job(direction, (position, [d for d, _ in pairs], [h for _, h in pairs]))
    num_cells = rig.num_host_blocks(position) // rig.geometry.blocks_per_cell[position]
    cells = draw(st.lists(st.integers(0, num_cells - 1), max_size=4, unique=True))
    half = len(cells) // 2
    return job(direction, (position, cells[:half], cells[half : 2 * half]))


def test_stores_and_loads_have_a_stream_each() -> None:
    """Copies go to the store and the load stream, never to the model's."""
    twin = twin_of(make_rig([[8]]), FakeDriver())
    twin.start(job(Direction.STORE, (0, [0], [1])))
    twin.start(job(Direction.LOAD, (0, [2], [3])))
    copies = [call.stream for call in twin.driver.calls if call.name == "copy"]
    assert ["store", "load"] == copies


def test_jobs_that_share_nothing_overlap() -> None:
    """A load ends while an earlier store of other blocks has not begun."""
    twin = twin_of(make_rig([[8]]), FakeDriver(frozenset({COMPUTE, "load"})))
    store = twin.start(job(Direction.STORE, (0, [0], [1])))
    load = twin.start(job(Direction.LOAD, (0, [2], [3])))
    assert (True, False) == (load.is_done(), store.is_done())


def test_consecutive_blocks_of_a_block_outermost_cache_are_one_run() -> None:
    """One copy for eight blocks whose pages lie side by side on both sides."""
    rig = make_rig([[16]], num_blocks=8)
    driver = FakeDriver()
    twin = twin_of(rig, driver)
    sizes: list[int] = []
    plain = driver.copy

    def copy(stream: object, runs: object, *, is_pinned: bool) -> None:
        sizes.extend(runs.sizes.tolist())
        plain(stream, runs, is_pinned=is_pinned)

    driver.copy = copy
    twin.start(job(Direction.STORE, (0, list(range(8)), list(range(8)))))
    assert [8 * 16] == sizes


def test_jobs_without_any_block_are_over_at_once() -> None:
    """No group, or a group of no blocks, is 0 bytes and ends."""
    twin = twin_of(make_rig([[8]]), FakeDriver(frozenset(STREAMS)))
    for one in (job(Direction.STORE), job(Direction.LOAD, (0, [], []))):
        copying = twin.start(one)
        assert (0, True, None) == (copying.num_bytes, copying.is_done(), copying.error)


@pytest.mark.parametrize("direction", list(Direction))
def test_a_group_without_layers_on_this_rank_is_over_at_once(
    direction: Direction,
) -> None:
    """No copy of no bytes is handed to the driver, which may refuse it."""
    twin = twin_of(make_rig([[24], []]), FakeDriver(frozenset(STREAMS)))
    copying = twin.start(job(direction, (1, [1, 2], [0, 3])))
    assert (0, True, None) == (copying.num_bytes, copying.is_done(), copying.error)


@pytest.mark.parametrize("direction", list(Direction))
@pytest.mark.parametrize(
    ("first", "second"), [(-1, 0), (10**6, 0), (0, -1), (0, 10**6)]
)
def test_out_of_range_is_refused_before_anything_is_queued(
    direction: Direction, first: int, second: int
) -> None:
    """A bad number in the last group of a job stops the good ones before it."""
    twin = twin_of(make_rig([[8, 8], [5]]), FakeDriver(frozenset(STREAMS)))
    before = twin.arena.tobytes(), twin.cache.tobytes()
    with pytest.raises(InvariantError, match=r"group 1: .* there are"):
        twin.start(job(direction, (0, [1], [2]), (1, [first], [second])))
    assert "copy" not in {call.name for call in twin.driver.calls}
    assert before == (twin.arena.tobytes(), twin.cache.tobytes())


def test_lists_of_unequal_length_are_refused() -> None:
    """Blocks are paired one to one; numpy's broadcasting must not hide a bug."""
    twin = twin_of(make_rig([[8]]), FakeDriver())
    with pytest.raises(InvariantError, match="1 blocks are paired with 2"):
        twin.start(job(Direction.STORE, (0, [1], [2, 3])))


def test_move_that_overwrites_its_own_source_is_refused() -> None:
    """Within one job the order must not matter."""
    twin = twin_of(make_rig([[8]]), FakeDriver())
    with pytest.raises(InvariantError, match="overwrites"):
        twin.start(job(Direction.MOVE, (0, [1, 2], [2, 3])))


def test_copy_that_cannot_be_queued_travels_with_its_job() -> None:
    """The device stays usable, and the job is over when what it queued is."""
    twin = twin_of(make_rig([[8]]), FakeDriver(frozenset(STREAMS)))
    twin.driver.failures["copy"] = 0
    failed = twin.start(job(Direction.STORE, (0, [1], [2])))
    assert "planted fault in copy" in str(failed.error)
    assert failed.is_done()
    assert twin.start(job(Direction.STORE, (0, [1], [2]))).error is None


def test_device_that_cannot_mark_an_end_takes_no_more_jobs() -> None:
    """Nobody could tell when a copy ends; later jobs fail before anything is queued."""
    twin = twin_of(make_rig([[8]]), FakeDriver())
    one, fence = job(Direction.STORE, (0, [1], [2])), twin.device.fence()
    twin.driver.failures["record"] = 1
    with pytest.raises(DeviceError, match="planted fault in record"):
        twin.device.start(one, fence)
    num_calls = len(twin.driver.calls)
    with pytest.raises(DeviceError, match="failed earlier: DeviceError: planted"):
        twin.device.start(one, fence)
    assert num_calls == len(twin.driver.calls)


def test_wait_that_fails_queues_no_copy() -> None:
    """A copy that cannot be ordered is not made."""
    twin = twin_of(make_rig([[8]]), FakeDriver(frozenset(STREAMS)))
    twin.driver.failures["wait"] = 0
    before = twin.arena.tobytes()
    with pytest.raises(DeviceError, match="planted fault in wait"):
        twin.start(job(Direction.STORE, (0, [1], [2])))
    assert before == twin.arena.tobytes()


def test_copy_waits_for_the_end_and_raises_what_went_wrong() -> None:
    """The one-job-at-a-time call of the ``Device`` protocol, on the same streams."""
    rig = make_rig([[8]])
    twin = twin_of(rig, FakeDriver())
    one = job(Direction.STORE, (0, [1], [2]))
    rig.device.copy(one)
    assert 8 == twin.device.copy(one, twin.device.fence())
    assert rig.arena.tobytes() == twin.arena.tobytes()
    twin.driver.failures["copy"] = 0
    with pytest.raises(DeviceError, match="planted"):
        twin.device.copy(one, twin.device.fence())


def test_seconds_are_those_of_the_copies_alone() -> None:
    """From the last thing waited for to the end: one tick per copy and mark."""
    twin = twin_of(make_rig([[8]], num_blocks=6), FakeDriver(frozenset(STREAMS)))
    copying = twin.start(job(Direction.STORE, (0, [0, 2, 4], [4, 2, 0])))
    assert copying.is_done()
    assert copying.seconds() == pytest.approx(4e-6)


def test_unattached_threads_are_refused_by_the_driver() -> None:
    """What ``attach_thread`` is for: without it a thread's copies are errors."""
    twin = twin_of(make_rig([[8]]), FakeDriver(frozenset(STREAMS)))
    fence = twin.device.fence()
    errors = []

    def run(*, is_attached: bool) -> None:
        if is_attached:
            twin.device.attach_thread()
        try:
            twin.device.start(job(Direction.STORE, (0, [1], [2])), fence)
        except DeviceError as error:
            errors.append(str(error))

    for is_attached in (True, False):
        thread = threading.Thread(target=run, kwargs={"is_attached": is_attached})
        thread.start()
        thread.join()
    (error,) = errors
    assert "called from a thread that is not attached" in error


def test_closed_device_refuses_jobs() -> None:
    """After ``close`` nothing is queued."""
    twin = twin_of(make_rig([[8]]), FakeDriver())
    twin.device.close()
    twin.device.close()
    with pytest.raises(ClosedError, match="job 1 came after"):
        twin.start(job(Direction.STORE, (0, [1], [2])))


def test_nothing_on_the_data_path_waits_for_a_stream_or_the_device() -> None:
    """No such call is in ``device`` or ``transfer``, trials for benchmarks aside."""
    package = Path(cuda_module.__file__).parents[1]
    files = [*package.glob("device/*.py"), *package.glob("transfer/*.py")]
    files = [file for file in files if not file.name.startswith("trial")]
    assert len(files) > 10
    assert [] == [f.name for f in files if "synchronize(" in f.read_text("utf-8")]
