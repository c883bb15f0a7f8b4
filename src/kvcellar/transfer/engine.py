"""Copies off the model's thread: one thread, one queue, strictly in order.

    submit --> [ queue ] --> thread: device.copy --> [ results ] --> poll

* One thread, so jobs are carried out in the order they were submitted. The planner
  counts on it: a cell that one job frees may be filled by the next.
* A job is in the queue, in the thread's hands, or in the results; never nowhere. The
  thread waits on the queue, callers wait on ``_changed``; nobody polls.
"""

import time

from kvcellar.device.device import Device
from kvcellar.transfer.fenced import FencedJob, text_of
from kvcellar.transfer.job_queue import JobQueue
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult


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
        started = time.perf_counter()
        num_bytes = 0
        error = self._refusal(item)
        if error is None:
            try:
                num_bytes = self._copy(job, item.fence)
            except Exception as cause:  # noqa: BLE001 - it travels as a result instead
                error = text_of(cause)
        if error is not None:
            self._doubt(job, error)
        seconds = time.perf_counter() - started
        return JobResult(job.job_id, job.direction, num_bytes, seconds, error)

    def _copy(self, job: CopyJob, fence: object) -> int:
        if self._share is None:
            return self._device.copy(job, fence)
        part = self._share.part_of(job)
        if job.direction is not Direction.MOVE:
            return self._device.copy(part, fence)
        self._share.meet_before(job)
        num_bytes = self._device.copy(part, fence)
        self._share.meet_after(job)
        return num_bytes
