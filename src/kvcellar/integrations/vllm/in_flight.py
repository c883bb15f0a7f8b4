"""How much is being copied, and for how long loads were waited for."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvcellar.transfer.jobs import CopyJob, Direction


@dataclass(frozen=True, slots=True)
class _Job:
    direction: Direction
    num_blocks: int
    num_bytes: int
    begun: float


@dataclass(slots=True)
class Traffic:
    """One direction's numbers.

    Attributes:
        num_jobs: jobs under way.
        num_blocks: blocks of all groups in them.
        num_bytes: their payload bytes on all ranks.
        ended_blocks: blocks of jobs that ended well, since start.
        ended_bytes: payload bytes of these on all ranks.
        num_ended: jobs that ended well, since start.
        num_failed: jobs that failed, since start.
        ended_seconds: from the decision to the last rank's report, of those that ended
            well, all together.
    """

    num_jobs: int = 0
    num_blocks: int = 0
    num_bytes: int = 0
    ended_blocks: int = 0
    ended_bytes: int = 0
    num_ended: int = 0
    num_failed: int = 0
    ended_seconds: float = 0.0


class InFlight:
    """Counts jobs from the planner's decision until every rank has reported them.

    Args:
        clock: seconds on any steady clock.

    Attributes:
        block_bytes: payload bytes of one block by layout position, all ranks.
        by_direction: the numbers.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._jobs: dict[int, _Job] = {}
        self._load_waits: list[float] = []
        self._store_blocks: list[int] = []
        self.block_bytes: Sequence[int] = ()
        self.by_direction = {direction: Traffic() for direction in Direction}

    def begin(self, job: CopyJob) -> None:
        """A job was planned."""
        sizes = [(len(copy.host_blocks), copy.position) for copy in job.copies]
        num_blocks = sum(count for count, _ in sizes)
        num_bytes = 0
        if self.block_bytes and job.direction is not Direction.MOVE:
            num_bytes = sum(count * self.block_bytes[p] for count, p in sizes)
        self._jobs[job.job_id] = _Job(
            job.direction, num_blocks, num_bytes, self._clock()
        )
        traffic = self.by_direction[job.direction]
        traffic.num_jobs += 1
        traffic.num_blocks += num_blocks
        traffic.num_bytes += num_bytes
        if job.direction is Direction.STORE:
            self._store_blocks.append(num_blocks)

    def end(self, job_id: int, *, has_failed: bool) -> None:
        """Every rank has reported it."""
        job = self._jobs.pop(job_id)
        traffic = self.by_direction[job.direction]
        traffic.num_jobs -= 1
        traffic.num_blocks -= job.num_blocks
        traffic.num_bytes -= job.num_bytes
        seconds = self._clock() - job.begun
        if has_failed:
            traffic.num_failed += 1
        else:
            traffic.num_ended += 1
            traffic.ended_seconds += seconds
            traffic.ended_blocks += job.num_blocks
            traffic.ended_bytes += job.num_bytes
        if job.direction is Direction.LOAD:
            self._load_waits.append(seconds)

    def take_load_waits(self) -> list[float]:
        """Seconds that loads were waited for, of those ended since the last call."""
        taken, self._load_waits = self._load_waits, []
        return taken

    def take_store_blocks(self) -> list[int]:
        """Blocks of each store begun since the last call."""
        taken, self._store_blocks = self._store_blocks, []
        return taken
