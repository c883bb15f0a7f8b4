"""Jobs in flight: from the planner's actions to the workers, and back as reports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kvcellar.core import actions
from kvcellar.integrations.vllm.in_flight import InFlight
from kvcellar.integrations.vllm.messages import CellarMetadata, WorkerReport
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcellar.integrations.vllm.compat import DeviceBlocks


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that every rank has reported.

    Attributes:
        request_id: the request that waits for it, if it is a load.
        seconds: how long a load was copied, on the slowest rank.
    """

    job_id: int
    has_failed: bool
    request_id: str | None
    seconds: float = 0.0


class Jobs:
    """Holds device blocks for jobs, and notes the ranks that have ended them.

    Args:
        num_ranks: workers that each carry out every job.

    Attributes:
        device_blocks: the engine's block pool; None until it is bound.
        num_overtaken: jobs that a step had to wait for, since start.
        in_flight: how much is under way.
    """

    def __init__(self, num_ranks: int) -> None:
        self._all_ranks = (1 << num_ranks) - 1
        self._next = CellarMetadata()
        self._ranks_left: dict[int, int] = {}  # a bit for each rank, by job id
        self._failed: set[int] = set()
        self._loading: dict[int, str] = {}
        self._load_seconds: dict[int, float] = {}
        self.device_blocks: DeviceBlocks | None = None
        self.num_overtaken = 0
        self.in_flight = InFlight()

    def add(self, action: actions.Action) -> None:
        """Queue an action for the next step's metadata."""
        if isinstance(action, actions.Store):
            self._store(action)
        elif isinstance(action, actions.Load):
            self._loading[action.job_id] = action.request_id
            job = self._job(action.job_id, Direction.LOAD, action.copies)
            self._next.loads[action.request_id] = job
            self._next.num_ahead = self._num_through_last_move()
        elif isinstance(action, actions.Move):
            self._move(action)
        elif isinstance(action, actions.LoadRefused):
            self._next.refused_loads.append(action.request_id)

    def end_overtaken(self, written_early: "Callable[[], set[int]]" = set) -> None:
        """Let the workers end copies whose source this step's allocations took.

        Call it before the step's own jobs are added. Jobs that were planned since the
        last step, when a request ended, have not even begun; what they read was
        computed before, so they may run ahead of this step.

        Args:
            written_early: says which device blocks the workers write before they can
                end anything; a copy that still reads one of these is worth nothing.
        """
        assert self.device_blocks is not None
        overtaken = self.device_blocks.overtaken()
        if not overtaken:
            return
        self.num_overtaken += len(overtaken)
        self._next.overtaken = list(overtaken)
        written = written_early()
        self._next.spoiled = [
            job_id
            for job_id, block_ids in overtaken.items()
            if not block_ids.isdisjoint(written)
        ]
        if any(job.job_id in overtaken for job in self._next.stores):
            self._next.early_stores, self._next.stores = self._next.stores, []
            self._next.num_ahead = 0

    def take_metadata(self) -> CellarMetadata:
        """All that was queued, for the workers."""
        metadata, self._next = self._next, CellarMetadata()
        return metadata

    def take_report(self, report: WorkerReport) -> list[EndedJob]:
        """Note the ranks that ended each job; the last one ends it here.

        A rank that tells of a job again, even after its end, changes nothing.
        """
        self._failed |= report.failed & self._ranks_left.keys()
        ended = []
        for job_id, ranks in report.ended_by.items():
            left = self._ranks_left.get(job_id)
            if left is None:
                continue
            seconds = report.load_seconds.get(job_id, 0.0)
            if job_id in self._loading:
                slowest = max(self._load_seconds.get(job_id, 0.0), seconds)
                self._load_seconds[job_id] = slowest
            self._ranks_left[job_id] = left & ~ranks
            if not self._ranks_left[job_id]:
                ended.append(self._end(job_id))
        return ended

    def _end(self, job_id: int) -> EndedJob:
        """The last rank has told."""
        del self._ranks_left[job_id]
        has_failed = job_id in self._failed
        self._failed.discard(job_id)
        self.in_flight.end(job_id, has_failed=has_failed)
        request_id = self._loading.pop(job_id, None)
        seconds = self._load_seconds.pop(job_id, 0.0)
        return EndedJob(job_id, has_failed, request_id, seconds)

    def release(self, job_id: int) -> None:
        """Give back the device blocks that a job held."""
        assert self.device_blocks is not None
        self.device_blocks.release(job_id)

    def has_work(self) -> bool:
        """Whether jobs wait to be handed over or to be reported."""
        return bool(self._ranks_left or self._next.refused_loads)

    def _store(self, action: actions.Store) -> None:
        assert self.device_blocks is not None
        sources = [copy.device_blocks for copy in action.copies]
        self.device_blocks.hold(action.job_id, sources)
        job = self._job(action.job_id, Direction.STORE, action.copies)
        self._next.stores.append(job)

    def _move(self, action: actions.Move) -> None:
        by_position: dict[int, actions.BlockCopies] = {}
        for move in action.moves:
            copies = by_position.setdefault(
                move.position, actions.BlockCopies(move.position)
            )
            copies.device_blocks.append(move.source)
            copies.host_blocks.append(move.destination)
        job = self._job(action.job_id, Direction.MOVE, list(by_position.values()))
        self._next.stores.append(job)

    def _num_through_last_move(self) -> int:
        """Jobs that a load planned now must follow: it reads what a move has moved.

        Stores between moves go along, since a move may make room for the next store.
        Those behind the last move wait for the forward, and the load does not wait.
        """
        count = len(self._next.stores)
        while count and self._next.stores[count - 1].direction is not Direction.MOVE:
            count -= 1
        return count

    def _job(
        self, job_id: int, direction: Direction, copies: list[actions.BlockCopies]
    ) -> CopyJob:
        self._ranks_left[job_id] = self._all_ranks
        arrays = tuple(
            GroupCopy(
                copy.position,
                np.array(copy.device_blocks, dtype=np.int64),
                np.array(copy.host_blocks, dtype=np.int64),
            )
            for copy in copies
        )
        job = CopyJob(job_id, direction, arrays)
        self.in_flight.begin(job)
        return job
