"""Copies off the model's thread: one thread, one queue, strictly in order.

    submit --> [ queue ] --> thread: device.copy --> [ results ] --> poll

* One thread, so jobs are carried out in the order they were submitted. The planner
  counts on it: a cell that one job frees may be filled by the next.
* ``_in_flight`` and ``_results`` change together, under ``_changed``.
  A job is in the queue, in the thread's hands, or in the results; never nowhere.
* The thread waits on the queue, callers wait on ``_changed``; nobody polls. Only
  ``_changed`` is ever held, for a few statements, and never while copying.
* Whatever a copy raises becomes a result. Only ``close`` ends the thread.
* A failed move leaves host cells in doubt that later jobs were planned on. So every
  load after it fails, and requests recompute; only a bug of ours leads there.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable

from kvcellar.device.device import Device
from kvcellar.errors import ClosedError
from kvcellar.transfer.fenced import DROPPED, IN_DOUBT, FencedJob, fenced, text_of
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

logger = logging.getLogger(__name__)


class TransferEngine:
    """Runs jobs on ``device`` in a background thread.

    All methods may be called from any thread; meant for the worker's main thread. The
    device stays the caller's to close, after ``close`` has returned True.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._queue: queue.SimpleQueue[FencedJob | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._results: list[JobResult] = []
        self._in_flight: set[int] = set()
        self._is_closed = False
        self._is_in_doubt = False
        self._thread = threading.Thread(
            target=self._run, name="kvcellar-transfer", daemon=True
        )
        self._thread.start()

    @property
    def num_in_flight(self) -> int:
        """Jobs submitted and not finished yet."""
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
        """Results since the last poll, in the order of submission; never waits."""
        with self._changed:
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
        """Finish the running job, drop the queued ones, end the thread.

        Dropped jobs are reported as failed. A second call does no harm.

        Returns:
            Whether the thread has ended, so that memory may be unmapped.
        """
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
        self._thread.join(timeout_seconds)
        if self._thread.is_alive():
            logger.warning(
                "a copy is still running %s s after the transfer engine was closed; "
                "its memory must stay mapped",
                timeout_seconds,
            )
            return False
        return True

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            result = self._carry_out(item)
            with self._changed:
                self._in_flight.discard(item.job.job_id)
                self._results.append(result)
                self._changed.notify_all()

    def _carry_out(self, item: FencedJob) -> JobResult:
        job = item.job
        error = DROPPED if self._is_closed else item.fence_error
        if error is None and self._is_in_doubt and job.direction is Direction.LOAD:
            error = IN_DOUBT
        if error is not None:
            return JobResult(job.job_id, job.direction, 0, 0.0, error)
        started = time.perf_counter()
        num_bytes = 0
        try:
            num_bytes = self._device.copy(job, item.fence)
        except Exception as cause:  # noqa: BLE001 - it travels as a result instead
            error = text_of(cause)
            self._is_in_doubt |= job.direction is Direction.MOVE
        seconds = time.perf_counter() - started
        return JobResult(job.job_id, job.direction, num_bytes, seconds, error)
