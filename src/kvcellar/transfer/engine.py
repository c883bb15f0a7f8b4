"""Copies off the model's thread: one thread, one queue, strictly in order.

    submit --> [ queue ] --> thread: device.copy --> [ results ] --> poll

* One thread, so jobs are carried out in the order they were submitted. The planner
  counts on it: a cell that one job frees may be filled by the next.
* A job is in the queue, in the thread's hands, or in the results; never nowhere. The
  thread waits on the queue, callers wait on ``_changed``; nobody polls.
* A failed move leaves host cells in doubt that later jobs were planned on. So every
  load after it fails, and requests recompute; only a bug of ours leads there.
"""

import time

from kvcellar.device.device import Device
from kvcellar.transfer.fenced import DROPPED, IN_DOUBT, FencedJob, text_of
from kvcellar.transfer.job_queue import JobQueue
from kvcellar.transfer.jobs import Direction, JobResult


class TransferEngine(JobQueue[Device]):
    """Runs jobs on ``device`` in a background thread."""

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            result = self._carry_out(item)
            with self._changed:
                self._end(result)
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
