"""The device when the model runs on a GPU: copies on two streams of their own.

    compute  --[ step n ]--(fence)--[ step n+1 ]----------------------->
    store         ............waits for fence--[ copies ]--(end)
    load          ............waits for fence--[ copies ]--(end)

The rules, each with a test in ``tests/device/test_ordering.py``:

* A copy starts after the fence, a mark put behind all work that the model had queued
  when the job was submitted. So a store reads what the step wrote, and a load writes
  where queued work is done reading and writing.
* A job that shares a block or cell with an earlier one waits for its end (``order``).
* A job is over when the mark behind its last copy has been passed. Nobody waits for it
  here: whoever wants to know asks. A job that failed halfway is over no sooner.
* A move runs on the processor, after the jobs that share its cells.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.driver import DeviceError, Driver, Event, Runs, Stream
from kvcellar.device.numbers import check_numbers
from kvcellar.device.order import LANES, JobOrder
from kvcellar.device.pages import build_tables
from kvcellar.device.pinning import PinnedMemory
from kvcellar.device.regions import Region
from kvcellar.device.runs import num_bytes_of, runs_of
from kvcellar.errors import ClosedError
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import CopyJob, Direction

POLL_SECONDS = 0.0001


class CudaDevice:
    """Copies between GPU and host memory without holding the model up.

    Whoever makes it keeps the engine's tensors and the host memory alive until
    ``close``. ``fence`` is called on the model's thread, ``start`` and ``copy`` on one
    attached thread.

    Args:
        layout: this rank's cache layout.
        geometry: the cut of this rank's arena.
        regions: for each layout position, from ``regions_from_tensors``.
        num_blocks: blocks in the device cache.
        memory: the arena as the accelerator sees it.
        driver: the accelerator.

    Raises:
        IncompatibleError: regions and layout disagree about a group's bytes.
    """

    def __init__(
        self,
        layout: CacheLayout,
        geometry: HostGeometry,
        regions: Sequence[Sequence[Region]],
        *,
        num_blocks: int,
        memory: PinnedMemory,
        driver: Driver,
    ) -> None:
        address = memory.address
        self._tables = build_tables(
            layout, geometry, regions, num_blocks=num_blocks, host_address=address
        )
        self._processor = CpuDevice(
            layout, geometry, regions, num_blocks=num_blocks, host_address=address
        )
        self._memory = memory
        self._driver = driver
        self._order = JobOrder(geometry, num_blocks)
        self._streams = {lane: driver.new_stream(lane.value) for lane in LANES}
        self._ends: dict[Direction, deque[tuple[int, Event]]] = {
            lane: deque() for lane in LANES
        }
        self._broken: str | None = None
        self._is_closed = False

    def attach_thread(self) -> None:
        """Prepare the calling thread for ``start``."""
        self._driver.attach_thread()

    def fence(self) -> Event:
        """Mark the work that the calling thread's model has queued so far."""
        return self._driver.record(self._driver.compute_stream())

    def start(self, job: CopyJob, fence: object) -> "RunningCopy":
        """Queue ``job`` behind ``fence`` and behind the jobs it shares memory with.

        Raises:
            InvariantError: a block or cell is out of range, lists are of unequal
                length, or a move overwrites what it reads. Nothing is queued then.
            DeviceError: the accelerator is lost, or refuses to order the copies.
            ClosedError: after ``close``.
        """
        self._refuse_if_unusable(job)
        if job.direction is Direction.MOVE:
            return self._move(job)
        runs = runs_of(self._tables[job.direction], job)
        stream = self._streams[job.direction]
        self._forget_ended(job.direction)
        self._driver.wait(stream, fence)
        for earlier in self._predecessors(job):
            self._driver.wait(stream, earlier)
        begin = self._driver.record(stream)
        error = self._queue(stream, runs, job.direction)
        end = self._mark_end(stream)
        self._ends[job.direction].append((self._order.add(job), end))
        num_bytes = num_bytes_of(self._tables[job.direction], job)
        return RunningCopy(self._driver, begin, end, num_bytes, error)

    def copy(self, job: CopyJob, fence: object) -> int:
        """Carry out ``job`` and wait for its end; see ``Device.copy``.

        Raises:
            Exception: as ``start``, or the copies could not all be queued.
        """
        running = self.start(job, fence)
        self._wait_for(running)
        if running.error is not None:
            raise running.error
        return running.num_bytes

    def close(self) -> None:
        """Refuse further copies; those queued must have ended."""
        self._is_closed = True

    def _refuse_if_unusable(self, job: CopyJob) -> None:
        if self._is_closed:
            raise ClosedError(f"job {job.job_id} came after the device was closed")
        if self._broken is not None:
            raise DeviceError(f"the accelerator failed earlier: {self._broken}")

    def _queue(self, stream: Stream, runs: Runs, lane: Direction) -> Exception | None:
        """Queue a job's copies; what went wrong, since a part may be queued then."""
        if not len(runs):  # the part of a job that falls to this rank may be empty
            return None
        is_store = lane is Direction.STORE
        host = runs.destinations if is_store else runs.sources
        try:
            self._memory.copy(self._driver, stream, runs, host)
        except Exception as cause:  # noqa: BLE001 - it travels with the job instead
            return cause
        return None

    def _mark_end(self, stream: Stream) -> Event:
        try:
            return self._driver.record(stream)
        except Exception as cause:
            # Without a mark nobody can tell when the copies end. A device that cannot
            # even put marks is lost, and the engine with it.
            self._broken = f"{type(cause).__name__}: {cause}"
            raise

    def _move(self, job: CopyJob) -> "RunningCopy":
        check_numbers(self._tables[Direction.MOVE], job)
        for earlier in self._predecessors(job):
            self._wait_until_passed(earlier)
        started = time.perf_counter()
        num_bytes = self._processor.copy(job)
        self._order.add(job)
        seconds = time.perf_counter() - started
        return RunningCopy(self._driver, None, None, num_bytes, None, seconds)

    def _predecessors(self, job: CopyJob) -> Iterable[Event]:
        """Ends of the jobs that ``job`` must come after and that may still run."""
        for lane, number in self._order.predecessors(job).items():
            self._forget_ended(lane)
            yield from (end for at, end in self._ends[lane] if at == number)

    def _forget_ended(self, lane: Direction) -> None:
        ends = self._ends[lane]
        while ends and self._driver.is_done(ends[0][1]):
            ends.popleft()

    def _wait_for(self, running: "RunningCopy") -> None:
        while not running.is_done():
            time.sleep(POLL_SECONDS)

    def _wait_until_passed(self, event: Event) -> None:
        while not self._driver.is_done(event):
            time.sleep(POLL_SECONDS)


@dataclass(slots=True)
class RunningCopy:
    """One started job. ``begin`` and ``end`` are None if it was over at once.

    Attributes:
        num_bytes: bytes of the job.
        error: what went wrong while queuing.
    """

    driver: Driver
    begin: Event | None
    end: Event | None
    num_bytes: int
    error: Exception | None
    known_seconds: float | None = None

    def is_done(self) -> bool:
        """Whether the mark behind the last copy has been passed."""
        return self.end is None or self.driver.is_done(self.end)

    def seconds(self) -> float:
        """Time on the device, from the last thing waited for to the end."""
        if self.known_seconds is None:
            self.known_seconds = 0.0
            with contextlib.suppress(Exception):  # a figure is not worth a failure
                self.known_seconds = self.driver.seconds_between(self.begin, self.end)
        return self.known_seconds
