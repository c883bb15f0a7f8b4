"""Jobs on a device that carries them out by itself: started by a thread, then asked.

    submit --> [ queue ] --> thread: device.start --> [ running ] --ended--> [ results ]
                                                          ^
                                                 poll and wait ask the device

* One thread, so jobs are started in the order they were submitted; what they do to
  memory is then in that order too (``StreamDevice``), though they may end in another.
* The thread is needed because starting takes a while: addresses for thousands of pages
  and a driver call, and for a move a wait. Nobody asks the device in the background:
  whoever polls does, which takes a microsecond per running job.
* ``_in_flight``, ``_running`` and ``_results`` change together, under ``_changed``. A
  job is in the queue, in the thread's hands, running, or in the results.
* Whatever a start raises becomes a result, and so does a device that cannot tell any
  more whether a copy has ended.
* A failed move leaves host cells in doubt that later jobs were planned on. So every
  load after it fails, and requests recompute; only a bug of ours leads there.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvcellar.device.device import Copying, StreamDevice
from kvcellar.errors import ClosedError
from kvcellar.transfer.fenced import DROPPED, IN_DOUBT, FencedJob, fenced, text_of
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.0001
"""How often a waiting caller asks the device."""


class _Running(NamedTuple):
    job: CopyJob
    copying: Copying


class StreamEngine:
    """Starts jobs on ``device`` in a background thread and finds out when they end.

    All methods may be called from any thread; meant for the worker's main thread. The
    device stays the caller's to close, after ``close`` has returned True.
    """

    def __init__(self, device: StreamDevice) -> None:
        self._device = device
        self._queue: queue.SimpleQueue[FencedJob | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._results: list[JobResult] = []
        self._in_flight: set[int] = set()
        self._running: list[_Running] = []
        self._is_closed = False
        self._is_in_doubt = False
        self._thread = threading.Thread(
            target=self._run, name="kvcellar-transfer", daemon=True
        )
        self._thread.start()

    @property
    def num_in_flight(self) -> int:
        """Jobs submitted and not known to have ended."""
        return len(self._in_flight)

    def submit(self, job: CopyJob) -> None:
        """Queue ``job`` behind the work that the device has been given so far.

        Raises:
            ClosedError: after ``close``.
        """
        with self._changed:
            if self._is_closed:
                raise ClosedError(
                    f"job {job.job_id} was submitted after the transfer engine had "
                    "been closed"
                )
            self._in_flight.add(job.job_id)
            self._queue.put(fenced(job, self._device))

    def poll(self) -> list[JobResult]:
        """Jobs that have ended since the last poll; never waits."""
        with self._changed:
            self._ask_device()
            results, self._results = self._results, []
        return results

    def wait_any(self, timeout_seconds: float) -> bool:
        """Wait until there is a result to poll, or nothing to wait for.

        Returns:
            Whether there is a result to poll.
        """
        self._wait(lambda: bool(self._results) or not self._in_flight, timeout_seconds)
        return bool(self._results)

    def wait_for(self, job_ids: Iterable[int], timeout_seconds: float) -> bool:
        """Wait until these jobs have ended; results stay to be polled.

        Returns:
            False if the time was up first.
        """
        wanted = set(job_ids)
        return self._wait(lambda: wanted.isdisjoint(self._in_flight), timeout_seconds)

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until nothing is in flight; results stay to be polled.

        Returns:
            False if the time was up first.
        """
        return self._wait(lambda: not self._in_flight, timeout_seconds)

    def close(self, timeout_seconds: float = 60.0) -> bool:
        """Let running jobs end, drop the queued ones, end the thread.

        Dropped jobs are reported as failed. A second call does no harm.

        Returns:
            Whether nothing runs any more, so that memory may be unmapped.
        """
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        deadline = time.monotonic() + timeout_seconds
        self._thread.join(timeout_seconds)
        left = max(deadline - time.monotonic(), 0.0)
        if self._thread.is_alive() or not self.drain(left):
            logger.warning(
                "a copy is still running %s s after the transfer engine was closed; "
                "its memory must stay mapped",
                timeout_seconds,
            )
            return False
        return True

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                self._ask_device()
                if condition():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                # Nothing to ask about: only the thread can change that, and tells.
                self._changed.wait(min(left, POLL_SECONDS) if self._running else left)

    def _ask_device(self) -> None:
        """Move jobs that have ended to the results. Held: ``_changed``."""
        still_running = []
        for running in self._running:
            result = _result_if_ended(running)
            if result is None:
                still_running.append(running)
            else:
                self._end(result)
        self._running = still_running

    def _end(self, result: JobResult) -> None:
        self._in_flight.discard(result.job_id)
        self._results.append(result)

    def _run(self) -> None:
        error: str | None = None
        try:
            self._device.attach_thread()
        except Exception as cause:  # noqa: BLE001 - every job then fails with it
            error = text_of(cause)
        while (item := self._queue.get()) is not None:
            started = self._start(item, error)
            with self._changed:
                if isinstance(started, JobResult):
                    self._end(started)
                else:
                    self._running.append(started)
                self._changed.notify_all()

    def _start(self, item: FencedJob, error: str | None) -> _Running | JobResult:
        job = item.job
        if error is None:
            error = DROPPED if self._is_closed else item.fence_error
        if error is None and self._is_in_doubt and job.direction is Direction.LOAD:
            error = IN_DOUBT
        if error is None:
            try:
                return _Running(job, self._device.start(job, item.fence))
            except Exception as cause:  # noqa: BLE001 - it travels as a result instead
                error = text_of(cause)
        self._is_in_doubt |= job.direction is Direction.MOVE
        return JobResult(job.job_id, job.direction, 0, 0.0, error)


def _result_if_ended(running: _Running) -> JobResult | None:
    job, copying = running
    error = copying.error
    try:
        if not copying.is_done():
            return None
    except Exception as cause:  # noqa: BLE001 - it travels as a result instead
        error = cause
    seconds = copying.seconds()
    if error is not None:
        return JobResult(job.job_id, job.direction, 0, seconds, text_of(error))
    return JobResult(job.job_id, job.direction, copying.num_bytes, seconds)
