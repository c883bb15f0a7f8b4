"""What both engines share: one thread, one queue, results, and waiting for them.

* One thread, so jobs are taken in the order they were submitted.
* ``_in_flight`` and ``_results`` change together, under ``_changed``, which is held for
  a few statements only and never while copying.
* Whatever a job raises becomes a result. Only ``close`` ends the thread.
"""

import logging
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from kvcellar.device.device import Device, StreamDevice
from kvcellar.errors import ClosedError
from kvcellar.transfer.fenced import FencedJob, fenced
from kvcellar.transfer.jobs import CopyJob, JobResult

logger = logging.getLogger(__name__)

D = TypeVar("D", Device, StreamDevice)


class JobQueue(ABC, Generic[D]):
    """Jobs on their way to ``device``.

    All methods may be called from any thread; meant for the worker's main thread. The
    device stays the caller's to close, after ``close`` has returned True.
    """

    def __init__(self, device: D) -> None:
        self._device: D = device
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
            self._find_ended()
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

    @abstractmethod
    def _run(self) -> None:
        """What the thread does: take jobs from the queue until it gets None."""

    def _find_ended(self) -> None:
        """Move jobs that have ended to the results. Held: ``_changed``.

        Nothing to do where the thread does that by itself.
        """

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _end(self, result: JobResult) -> None:
        """A job has ended. Held: ``_changed``."""
        self._in_flight.discard(result.job_id)
        self._results.append(result)
