"""Jobs on a device that runs several at a time: order, ends, errors, closing."""

import threading
from collections.abc import Iterator

import pytest

from kvcellar.errors import ClosedError
from kvcellar.transfer.jobs import CopyJob, Direction
from kvcellar.transfer.stream_engine import StreamEngine

LONG_SECONDS = 30.0  # far above what any step needs; reached only by a bug


class FakeCopying:
    """Ends when it is told to."""

    def __init__(self, job_id: int) -> None:
        self.num_bytes = 100 + job_id
        self.error: Exception | None = None
        self.is_over = False
        self.question_error: Exception | None = None

    def is_done(self) -> bool:
        if self.question_error is not None:
            raise self.question_error
        return self.is_over

    def seconds(self) -> float:
        return 0.5


class FakeStreamDevice:
    """Records starts; fails on the ids it is told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Event()
        self.failing: set[int] = set()
        self.half_failing: set[int] = set()
        self.attach_error: Exception | None = None
        self.fence_error: Exception | None = None
        self.started: list[int] = []
        self.fences: list[object] = []
        self.running: dict[int, FakeCopying] = {}
        self.threads: list[tuple[str, int]] = []

    def attach_thread(self) -> None:
        self.threads.append(("attach", threading.get_ident()))
        if self.attach_error is not None:
            raise self.attach_error

    def fence(self) -> object:
        self.threads.append(("fence", threading.get_ident()))
        if self.fence_error is not None:
            raise self.fence_error
        return ("fence", len(self.threads))

    def start(self, job: CopyJob, fence: object) -> FakeCopying:
        self.arrived.set()
        assert self.gate.wait(LONG_SECONDS)
        self.threads.append(("start", threading.get_ident()))
        self.started.append(job.job_id)
        self.fences.append(fence)
        if job.job_id in self.failing:
            raise OSError(f"job {job.job_id} went wrong")
        copying = FakeCopying(job.job_id)
        if job.job_id in self.half_failing:
            copying.error = OSError("half of it went wrong")
        copying.is_over = job.direction is Direction.MOVE
        self.running[job.job_id] = copying
        return copying

    def copy(self, job: CopyJob, fence: object) -> int:
        raise AssertionError("jobs are started, not carried out one by one")

    def close(self) -> None:
        pass


def job(job_id: int, direction: Direction = Direction.STORE) -> CopyJob:
    return CopyJob(job_id, direction, ())


@pytest.fixture
def device() -> FakeStreamDevice:
    return FakeStreamDevice()


@pytest.fixture
def engine(device: FakeStreamDevice) -> Iterator[StreamEngine]:
    engine = StreamEngine(device)
    yield engine
    device.gate.set()
    end_all(device)
    engine.close(LONG_SECONDS)


def end_all(device: FakeStreamDevice) -> None:
    for copying in device.running.values():
        copying.is_over = True


def start(engine: StreamEngine, device: FakeStreamDevice, *jobs: CopyJob) -> None:
    """Submit jobs and wait until the thread has started a move behind them."""
    for one in jobs:
        engine.submit(one)
    engine.submit(job(999, Direction.MOVE))
    assert engine.wait_for([999], LONG_SECONDS)
    assert [999] == [r.job_id for r in engine.poll() if r.job_id == 999]


def test_jobs_are_started_in_order_and_end_in_any(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """The second job's end is reported while the first still runs."""
    start(engine, device, job(1), job(2, Direction.LOAD), job(3))
    assert [1, 2, 3, 999] == device.started
    assert ([], 3) == (engine.poll(), engine.num_in_flight)
    device.running[2].is_over = True
    (result,) = engine.poll()
    assert (2, Direction.LOAD, 102, 0.5, None) == (
        result.job_id,
        result.direction,
        result.num_bytes,
        result.seconds,
        result.error,
    )
    assert ([], 2) == (engine.poll(), engine.num_in_flight)


def test_fences_are_taken_where_jobs_are_submitted(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """Fenced on the caller's thread, attached and started on another."""
    start(engine, device, job(1))
    here = threading.get_ident()
    assert {"fence"} == {what for what, thread in device.threads if thread == here}
    others = [what for what, thread in device.threads if thread != here]
    assert ["attach", "start", "start"] == others
    assert "fence" == device.fences[0][0]


def test_failed_start_is_a_result_and_the_thread_goes_on(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """The failing job reports its error and 0 bytes; its neighbours succeed."""
    device.failing = {2}
    for number in (1, 2, 3):
        engine.submit(job(number))
    assert engine.wait_any(LONG_SECONDS)
    assert engine.wait_for([2], LONG_SECONDS)
    (failed,) = engine.poll()
    assert (2, 0, "OSError: job 2 went wrong") == (
        failed.job_id,
        failed.num_bytes,
        failed.error,
    )
    start(engine, device)
    end_all(device)
    assert [None, None] == [result.error for result in engine.poll()]


def test_job_that_failed_halfway_is_reported_when_the_rest_has_ended(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """What it had queued may still be running, so its blocks are not free before."""
    device.half_failing = {1}
    start(engine, device, job(1, Direction.LOAD))
    assert ([], 1) == (engine.poll(), engine.num_in_flight)
    device.running[1].is_over = True
    (result,) = engine.poll()
    assert (0, "OSError: half of it went wrong") == (result.num_bytes, result.error)


def test_device_that_cannot_tell_the_end_fails_the_job(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """A lost device is an error of each job, never of whoever polls."""
    start(engine, device, job(1))
    device.running[1].question_error = RuntimeError("device lost")
    (result,) = engine.poll()
    assert (0, "RuntimeError: device lost") == (result.num_bytes, result.error)
    assert 0 == engine.num_in_flight


def test_failed_fence_is_a_result(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """A job that cannot be ordered is never started."""
    device.fence_error = RuntimeError("no event")
    engine.submit(job(1))
    assert engine.wait_for([1], LONG_SECONDS)
    assert ["RuntimeError: no event"] == [r.error for r in engine.poll()]
    assert [] == device.started


def test_thread_that_cannot_be_attached_fails_every_job(
    device: FakeStreamDevice,
) -> None:
    """The engine lives on, and nothing is started on a device it cannot use."""
    device.attach_error = RuntimeError("no context")
    engine = StreamEngine(device)
    engine.submit(job(1))
    engine.submit(job(2))
    assert engine.drain(LONG_SECONDS)
    assert ["RuntimeError: no context"] * 2 == [r.error for r in engine.poll()]
    assert [] == device.started
    assert engine.close(LONG_SECONDS)


@pytest.mark.parametrize("is_fence", [False, True])
def test_loads_fail_after_a_failed_move(
    engine: StreamEngine, device: FakeStreamDevice, *, is_fence: bool
) -> None:
    """Its cells are in doubt, whether it failed or could not even be ordered."""
    if is_fence:
        device.fence_error = RuntimeError("no event")
    device.failing = {1}
    engine.submit(job(1, Direction.MOVE))
    device.fence_error = None
    engine.submit(job(2, Direction.LOAD))
    assert engine.wait_for([1, 2], LONG_SECONDS)
    errors = {result.job_id: result.error for result in engine.poll()}
    assert "in doubt" in str(errors[2])


def test_waits_end_when_the_time_is_up(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """A copy that does not end holds nobody longer than he asked for."""
    start(engine, device, job(1))
    assert not engine.wait_for([1], 0.0)
    assert not engine.drain(0.001)
    assert not engine.wait_any(0.001)


def test_wait_for_sees_an_end_that_nobody_tells(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """The device tells nobody; whoever waits asks it again and again."""
    start(engine, device, job(1), job(2))
    copying = device.running[1]
    answers = iter([False, False, True])
    copying.is_done = lambda: next(answers)
    assert engine.wait_for([1], LONG_SECONDS)
    assert [1] == [result.job_id for result in engine.poll()]
    assert 1 == engine.num_in_flight


def test_close_drops_queued_jobs_and_waits_for_running_ones(
    engine: StreamEngine, device: FakeStreamDevice
) -> None:
    """Memory may be unmapped only when what was started has ended."""
    start(engine, device, job(1))
    device.gate.clear()
    device.arrived.clear()
    engine.submit(job(2))
    engine.submit(job(3))
    assert device.arrived.wait(LONG_SECONDS)
    assert not engine.close(0.0)
    device.gate.set()
    assert not engine.close(0.05)
    end_all(device)
    assert engine.close(LONG_SECONDS)
    errors = {result.job_id: result.error for result in engine.poll()}
    assert {1: None, 2: None} == {n: errors[n] for n in (1, 2)}
    assert "closed before" in str(errors[3])
    with pytest.raises(ClosedError, match="job 4 was submitted after"):
        engine.submit(job(4))
