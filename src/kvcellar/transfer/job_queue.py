"""What both engines share: one thread, one queue, results, and waiting for them.

* One thread, so jobs are taken in the order they were submitted.
* ``_in_flight`` and ``_results`` change together, under ``_changed``, which is held for
  a few statements only and never while copying.
* Whatever a job raises becomes a result. Only ``close`` ends the thread.
* A failed move leaves host cells in doubt that later jobs were planned on. So every
  load after it fails, and requests recompute; only a bug of ours leads there.
* Where ranks share the arena, moves keep the order between them (``arena_share``). A
  failed move, and a rank that does not come to one, then also end the stores: others
  may still read what the planner thinks has been moved.
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
from kvcellar.transfer.arena_share import ArenaShare
from kvcellar.transfer.fenced import DROPPED, IN_DOUBT, FencedJob, fenced
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

logger = logging.getLogger(__name__)

D = TypeVar("D", Device, StreamDevice)


class JobQueue(ABC, Generic[D]):
    """Jobs on their way to ``device``.

    All methods may be called from any thread; meant for the worker's main thread. The
    device stays the caller's to close, after ``close`` has returned True.

    Args:
        device: what copies.
        share: this rank's part in an arena of several; None for one of its own.
    """

    def __init__(self, device: D, share: ArenaShare | None = None) -> None:
        self._device: D = device
        self._share = share
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

        Dropped jobs are reported as failed, and so is a move that waits for other
        ranks. A second call does no harm.

        Returns:
            Whether nothing runs any more, so that memory may be unmapped.
        """
        with self._changed:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(None)
                if self._share is not None:
                    self._share.interrupt()
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
        if self._share is not None:
            self._share.close()
        return True

    @abstractmethod
    def _run(self) -> None:
        """What the thread does: take jobs from the queue until it gets None."""

    def _find_ended(self) -> None:
        """Move jobs that have ended to the results. Held: ``_changed``.

        Nothing to do where the thread does that by itself.
        """

    def _refusal(self, item: FencedJob) -> str | None:
        """Why a job must not begin; None if it may."""
        if self._is_closed:
            return DROPPED
        is_load = item.job.direction is Direction.LOAD
        if self._is_in_doubt and (is_load or self._share is not None):
            return IN_DOUBT
        return item.fence_error

    def _doubt(self, job: CopyJob, error: str) -> None:
        """Host memory is no more what the planner thinks, if this was a move."""
        if job.direction is not Direction.MOVE:
            return
        if not (self._is_in_doubt or self._is_closed):
            logger.error(
                "kvcellar: nothing is served from host memory any more, since bytes "
                "could not be moved inside it: %s; restart the server",
                error,
            )
        self._is_in_doubt = True
        if self._share is not None:
            self._share.leave()

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_seconds)

    def _end(self, result: JobResult) -> None:
        """A job has ended. Held: ``_changed``."""
        self._in_flight.discard(result.job_id)
        self._results.append(result)
