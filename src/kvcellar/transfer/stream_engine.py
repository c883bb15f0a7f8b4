"""Jobs on a device that carries them out by itself: started by a thread, then asked.

    submit --> [ queue ] --> thread: device.start --> [ running ] --ended--> [ results ]
                                                          ^
                                                 poll and wait ask the device

* One thread, so jobs are started in the order they were submitted; what they do to
  memory is then in that order too (``StreamDevice``), though they may end in another.
* The thread is needed because starting takes a while: addresses for thousands of pages
  and a driver call, and for a move a wait. Nobody asks the device in the background:
  whoever polls does, which takes a microsecond per running job.
* ``_running`` changes under ``_changed`` too. A job is in the queue, in the thread's
  hands, running, or in the results.
* Whatever a start raises becomes a result, and so does a device that cannot tell any
  more whether a copy has ended.
* Where ranks share the arena, a move begins when all that was started before it has
  ended, here and on the others. The thread waits for that, nobody else does.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from kvcellar.device.device import Copying, StreamDevice
from kvcellar.errors import TierError
from kvcellar.transfer.arena_share import ArenaShare
from kvcellar.transfer.fenced import FencedJob, text_of
from kvcellar.transfer.job_queue import JobQueue
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult
from kvcellar.transfer.meeting import MEETING_SECONDS

POLL_SECONDS = 0.0001
"""How often a waiting caller asks the device."""


class _Running(NamedTuple):
    job: CopyJob
    copying: Copying


class StreamEngine(JobQueue[StreamDevice]):
    """Starts jobs on ``device`` in a background thread and finds out when they end."""

    def __init__(self, device: StreamDevice, share: ArenaShare | None = None) -> None:
        self._running: list[_Running] = []
        super().__init__(device, share)

    def _wait(self, condition: Callable[[], bool], timeout_seconds: float) -> bool:
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                self._find_ended()
                if condition():
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                # Nothing to ask about: only the thread can change that, and tells.
                self._changed.wait(min(left, POLL_SECONDS) if self._running else left)

    def _find_ended(self) -> None:
        """Ask the device about each running job. Held: ``_changed``."""
        still_running = []
        for running in self._running:
            result = _result_if_ended(running)
            if result is None:
                still_running.append(running)
            else:
                self._end(result)
        self._running = still_running

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
        error = error or self._refusal(item)
        if error is None:
            try:
                return _Running(job, self._begin(job, item.fence))
            except Exception as cause:  # noqa: BLE001 - it travels as a result instead
                error = text_of(cause)
        self._doubt(job, error)
        return JobResult(job.job_id, job.direction, 0, 0.0, error)

    def _begin(self, job: CopyJob, fence: object) -> Copying:
        if self._share is None:
            return self._device.start(job, fence)
        part = self._share.part_of(job)
        if job.direction is not Direction.MOVE:
            return self._device.start(part, fence)
        if not self._wait(self._is_quiet, MEETING_SECONDS):
            raise TierError("host", "move", "copies before it do not end")
        self._share.meet_before(job)
        moved = self._device.start(part, fence)
        self._share.meet_after(job)
        return moved

    def _is_quiet(self) -> bool:
        """Nothing runs; or nothing will be begun, so that waiting is of no use."""
        return not self._running or self._is_closed


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
