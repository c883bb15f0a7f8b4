"""A transfer engine without a thread: copies end when a seeded coin says so.

It stands in for ``TransferEngine`` so that a run replays exactly. The copies are the
real device's; only the moment is chosen.
"""

import random
from collections import deque
from collections.abc import Iterable

from kvcellar.device.device import Device
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult


class SeededTransfers:
    """Jobs in order, each after a few polls; some fail on request.

    Args:
        device: carries out the copies.
        rng: decides when.
        slowness: chance that a poll ends no further job.
        failure_rate: chance that a store or load fails.
        seconds_per_byte: that a copy is said to take.
    """

    def __init__(
        self,
        device: Device,
        rng: random.Random,
        *,
        slowness: float = 0.5,
        failure_rate: float = 0.0,
        seconds_per_byte: float = 0.0,
    ) -> None:
        self._device = device
        self._rng = rng
        self._queue: deque[tuple[CopyJob, object]] = deque()
        self.slowness = slowness
        self.failure_rate = failure_rate
        self._seconds_per_byte = seconds_per_byte
        self.num_bytes = 0
        self._ended: list[JobResult] = []

    @property
    def num_in_flight(self) -> int:
        """Jobs submitted and not ended."""
        return len(self._queue)

    def submit(self, job: CopyJob) -> None:
        """Queue a job behind the work the device has been given so far."""
        self._queue.append((job, self._device.fence()))

    def poll(self) -> list[JobResult]:
        """End as many jobs as the coin allows, and report them."""
        results, self._ended = self._ended, []
        while self._queue and self._rng.random() >= self.slowness:
            results.append(self._carry_out(*self._queue.popleft()))
        return results

    def wait_any(self, timeout_seconds: float) -> bool:
        """Time does not pass here; the next poll decides."""
        del timeout_seconds
        return bool(self._ended)

    def wait_for(self, job_ids: Iterable[int], timeout_seconds: float) -> bool:
        """Carry out jobs in order until these have ended."""
        del timeout_seconds
        wanted = set(job_ids)
        while not wanted.isdisjoint(job.job_id for job, _ in self._queue):
            self._ended.append(self._carry_out(*self._queue.popleft()))
        return True

    def drain(self, timeout_seconds: float) -> bool:
        """Carry out everything that is queued."""
        return self.wait_for([job.job_id for job, _ in self._queue], timeout_seconds)

    def close(self, timeout_seconds: float = 0.0) -> bool:
        """Drop what is queued."""
        del timeout_seconds
        self._queue.clear()
        return True

    def _carry_out(self, job: CopyJob, fence: object) -> JobResult:
        can_fail = job.direction is not Direction.MOVE
        if can_fail and self._rng.random() < self.failure_rate:
            return JobResult(job.job_id, job.direction, 0, 0.0, "planted fault")
        num_bytes = self._device.copy(job, fence)
        self.num_bytes += num_bytes
        seconds = num_bytes * self._seconds_per_byte
        return JobResult(job.job_id, job.direction, num_bytes, seconds)
