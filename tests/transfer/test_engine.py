"""The transfer thread: order, results, errors, closing."""

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kvcellar.errors import ClosedError
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

LONG_SECONDS = 30.0  # far above what any step needs; reached only by a bug


class FakeDevice:
    """Records jobs; waits for ``gate`` in each copy; fails on the ids it is told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.failing: set[int] = set()
        self.fence_failing = False
        self.copied: list[int] = []
        self.fences: list[object] = []
        self.copy_threads: set[int] = set()
        self.fence_threads: set[int] = set()

    def fence(self) -> object:
        if self.fence_failing:
            raise RuntimeError("no event")
        self.fence_threads.add(threading.get_ident())
        return ("fence", len(self.fence_threads))

    def copy(self, job: CopyJob, fence: object) -> int:
        self.started.set()
        assert self.gate.wait(LONG_SECONDS)
        self.copy_threads.add(threading.get_ident())
        self.fences.append(fence)
        self.copied.append(job.job_id)
        if job.job_id in self.failing:
            raise OSError(f"job {job.job_id} went wrong")
        return 100 + job.job_id

    def close(self) -> None:
        pass


def job(job_id: int, direction: Direction = Direction.STORE) -> CopyJob:
    return CopyJob(job_id, direction, ())


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


@pytest.fixture
def engine(device: FakeDevice) -> Iterator[TransferEngine]:
    engine = TransferEngine(device)
    yield engine
    device.gate.set()
    assert engine.close(LONG_SECONDS)


def test_jobs_are_carried_out_in_order(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """Two hundred jobs of mixed directions run and report in submission order."""
    order = np.random.default_rng(3).permutation(200).tolist()
    for number in order:
        engine.submit(job(number, list(Direction)[number % 3]))
    assert engine.drain(LONG_SECONDS)
    results = engine.poll()
    assert (order, order) == (device.copied, [r.job_id for r in results])
    assert [100 + number for number in order] == [r.num_bytes for r in results]
    assert [list(Direction)[n % 3] for n in order] == [r.direction for r in results]


def test_poll_never_waits_and_hands_each_result_out_once(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """While a copy runs there is nothing to poll; afterwards there is, once."""
    device.gate.clear()
    engine.submit(job(1))
    assert device.started.wait(LONG_SECONDS)
    assert ([], 1) == (engine.poll(), engine.num_in_flight)
    device.gate.set()
    assert engine.wait_any(LONG_SECONDS)
    assert ([1], 0) == ([r.job_id for r in engine.poll()], engine.num_in_flight)
    assert [] == engine.poll()


def test_copies_run_on_another_thread_and_fences_on_the_callers(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """The device is fenced by whoever submits and copies in the background."""
    engine.submit(job(1))
    assert engine.drain(LONG_SECONDS)
    here = threading.get_ident()
    assert {here} == device.fence_threads
    assert here not in device.copy_threads
    assert [("fence", 1)] == device.fences


def test_failed_copy_is_a_result_and_the_thread_goes_on(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """The failing job reports its error and 0 bytes; its neighbours succeed."""
    device.failing = {2}
    for number in (1, 2, 3):
        engine.submit(job(number))
    assert engine.drain(LONG_SECONDS)
    results = engine.poll()
    assert [None, "OSError: job 2 went wrong", None] == [r.error for r in results]
    assert [101, 0, 103] == [r.num_bytes for r in results]


def test_failed_fence_is_a_result_in_its_turn(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """A job that could not be fenced is not copied, and reported after those before."""
    engine.submit(job(1))
    device.fence_failing = True
    engine.submit(job(2))
    assert engine.drain(LONG_SECONDS)
    results = engine.poll()
    assert [(1, None), (2, "RuntimeError: no event")] == [
        (r.job_id, r.error) for r in results
    ]
    assert [1] == device.copied


def test_drain_gives_up_when_the_time_is_up(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """With a copy held up, drain and wait_any say so instead of waiting on."""
    device.gate.clear()
    engine.submit(job(1))
    assert not engine.drain(0.0)
    assert not engine.wait_any(0.0)
    device.gate.set()
    assert engine.drain(LONG_SECONDS)


def test_waiting_for_nothing_returns_at_once(engine: TransferEngine) -> None:
    """An idle engine is drained and has no result to wait for."""
    assert engine.drain(LONG_SECONDS)
    assert not engine.wait_any(LONG_SECONDS)


def test_close_finishes_the_running_job_and_drops_the_rest(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """No copy is cut short; queued jobs are reported as failed, none is lost."""
    device.gate.clear()
    for number in (1, 2, 3):
        engine.submit(job(number))
    assert device.started.wait(LONG_SECONDS)
    assert not engine.close(timeout_seconds=0.0)
    device.gate.set()
    assert engine.close(LONG_SECONDS)
    results = engine.poll()
    assert ([1], 0) == (device.copied, engine.num_in_flight)
    assert [(1, True), (2, False), (3, False)] == [
        (r.job_id, r.error is None) for r in results
    ]
    assert "closed" in str(results[1].error)


def test_submit_after_close_is_refused(engine: TransferEngine) -> None:
    """A closed engine takes no job, and may be closed again."""
    assert engine.close(LONG_SECONDS)
    assert engine.close(LONG_SECONDS)
    with pytest.raises(ClosedError, match="job 7"):
        engine.submit(job(7))
    assert 0 == engine.num_in_flight


def test_closing_leaves_no_thread(device: FakeDevice) -> None:
    """The thread is a daemon and is gone after close."""
    engine = TransferEngine(device)
    (thread,) = [t for t in threading.enumerate() if t.name == "kvcellar-transfer"]
    assert thread.daemon
    assert engine.close(LONG_SECONDS)
    assert not thread.is_alive()


def test_result_counts_the_copy_only(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """Seconds are never negative and a dropped job has none."""
    engine.submit(job(1))
    assert engine.drain(LONG_SECONDS)
    (result,) = engine.poll()
    assert result.seconds >= 0.0
    expected = JobResult(1, Direction.STORE, 101, result.seconds)
    assert expected == result


def test_no_load_is_served_after_a_failed_move(
    engine: TransferEngine, device: FakeDevice
) -> None:
    """Its cells are in doubt: later loads fail without a copy, stores go on."""
    device.failing = {1}
    kinds = [Direction.LOAD, Direction.MOVE, Direction.LOAD, Direction.STORE]
    for number, direction in enumerate(kinds):
        engine.submit(job(number, direction))
    assert engine.drain(LONG_SECONDS)
    failed = [result.error is not None for result in engine.poll()]
    assert [False, True, True, False] == failed
    assert [0, 1, 3] == device.copied
