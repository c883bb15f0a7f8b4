"""Engines of ranks that share an arena: the order around moves, and what breaks it.

Ranks are threads of one process with devices that record what they are asked.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from meeting_ranks import LONG_SECONDS, meetings

from kvcellar.transfer.arena_share import ArenaShare
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy
from kvcellar.transfer.stream_engine import StreamEngine

NUM_RANKS = 3
DIRECTIONS = (Direction.STORE, Direction.LOAD)


class Log:
    """What all ranks began and ended, in one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.lines: list[tuple[str, int, int]] = []

    def add(self, what: str, rank: int, job_id: int) -> None:
        with self._lock:
            self.lines.append((what, rank, job_id))

    def when(self, what: str, rank: int, job_id: int) -> int:
        return self.lines.index((what, rank, job_id))


@dataclass
class Running:
    """A job on a stream: over as soon as the device lets it."""

    device: "Recorder"
    job_id: int
    num_bytes: int = 1
    error: Exception | None = None
    is_over: bool = False

    def is_done(self) -> bool:
        if not self.is_over and self.device.may_end(self.job_id):
            self.is_over = True
            self.device.log.add("end", self.device.rank, self.job_id)
        return self.is_over

    def seconds(self) -> float:
        return 0.0


class Recorder:
    """Both kinds of device: records jobs, holds some up, fails some."""

    def __init__(self, rank: int, log: Log) -> None:
        self.rank = rank
        self.log = log
        self.held: dict[int, threading.Event] = {}
        self.failing: set[int] = set()
        self.parts: dict[int, CopyJob] = {}

    def fence(self) -> None:
        return None

    def attach_thread(self) -> None:
        pass

    def may_end(self, job_id: int) -> bool:
        return job_id not in self.held or self.held[job_id].is_set()

    def copy(self, job: CopyJob, fence: object) -> int:
        self._begin(job)
        if job.job_id in self.held:
            assert self.held[job.job_id].wait(LONG_SECONDS)
        self.log.add("end", self.rank, job.job_id)
        return 1

    def start(self, job: CopyJob, fence: object) -> Running:
        self._begin(job)
        running = Running(self, job.job_id)
        if job.direction is Direction.MOVE:  # is over when this returns
            assert running.is_done()
        return running

    def _begin(self, job: CopyJob) -> None:
        self.log.add("begin", self.rank, job.job_id)
        self.parts[job.job_id] = job
        if job.job_id in self.failing:
            raise OSError("no")

    def close(self) -> None:
        pass


@dataclass
class Ranks:
    """All ranks' engines."""

    log: Log
    devices: list[Recorder]
    engines: list[TransferEngine | StreamEngine]

    def submit(self, job: CopyJob, ranks: "range | None" = None) -> None:
        for rank in ranks or range(NUM_RANKS):
            self.engines[rank].submit(job)

    def drain(self) -> None:
        for engine in self.engines:
            assert engine.drain(LONG_SECONDS)

    def errors(self) -> list[dict[int, str | None]]:
        """By rank and job, those polled since the last call."""
        return [{r.job_id: r.error for r in e.poll()} for e in self.engines]


def job(job_id: int, direction: Direction) -> CopyJob:
    blocks = np.arange(6, dtype=np.int64)
    return CopyJob(job_id, direction, (GroupCopy(0, blocks, blocks + 6),))


@pytest.fixture(params=[TransferEngine, StreamEngine])
def ranks(request) -> Iterator[Ranks]:
    """Three ranks with engines of one kind."""
    log = Log()
    devices = [Recorder(rank, log) for rank in range(NUM_RANKS)]
    shares = [ArenaShare(r, NUM_RANKS, m) for r, m in enumerate(meetings(NUM_RANKS))]
    engines = [
        request.param(device, share)
        for device, share in zip(devices, shares, strict=True)
    ]
    yield Ranks(log, devices, engines)
    for device in devices:
        for event in device.held.values():
            event.set()
    closing = [threading.Thread(target=engine.close) for engine in engines]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(LONG_SECONDS)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_move_waits_for_what_runs_on_a_slow_rank(ranks: Ranks, direction: Direction):
    """No rank moves a cell that another may still read or write."""
    slow = ranks.devices[2].held[1] = threading.Event()
    ranks.submit(job(1, direction))
    ranks.submit(job(2, Direction.MOVE))
    for engine in ranks.engines[:2]:
        assert engine.wait_for([1], LONG_SECONDS)
    assert not ranks.engines[0].wait_for([2], 0.05)
    slow.set()
    ranks.drain()
    last_end = max(ranks.log.when("end", rank, 1) for rank in range(NUM_RANKS))
    first_move = min(ranks.log.when("begin", rank, 2) for rank in range(NUM_RANKS))
    assert last_end < first_move


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_follows_a_move_waits_for_all_parts_of_it(
    ranks: Ranks, direction: Direction
):
    """No rank fills a cell that another is still emptying, or reads one half filled."""
    for job_id in range(0, 60, 2):
        ranks.submit(job(job_id, Direction.MOVE))
        ranks.submit(job(job_id + 1, direction))
    ranks.drain()
    for job_id in range(0, 60, 2):
        last = max(ranks.log.when("end", rank, job_id) for rank in range(NUM_RANKS))
        first = min(
            ranks.log.when("begin", rank, job_id + 1) for rank in range(NUM_RANKS)
        )
        assert last < first
    assert [{None}] * NUM_RANKS == [set(e.values()) for e in ranks.errors()]


def test_without_moves_nobody_waits(ranks: Ranks):
    """A rank goes through its stores and loads while another has not begun."""
    for job_id in range(20):
        ranks.submit(job(job_id, DIRECTIONS[job_id % 2]), range(1))
    assert ranks.engines[0].drain(LONG_SECONDS)
    assert [None] * 20 == list(ranks.errors()[0].values())


def test_moves_are_shared_and_loads_are_not(ranks: Ranks):
    """Every cell is moved once, stored once, and loaded by all."""
    for job_id, direction in enumerate(Direction):
        ranks.submit(job(job_id, direction))
    ranks.drain()
    for job_id, direction in enumerate(Direction):
        cells = [
            cell
            for device in ranks.devices
            for copy in device.parts[job_id].copies
            for cell in copy.host_blocks.tolist()
        ]
        times = NUM_RANKS if direction is Direction.LOAD else 1
        assert sorted([*range(6, 12)] * times) == sorted(cells)


def test_a_rank_whose_move_fails_takes_the_others_along(ranks: Ranks, caplog):
    """From the failed move on no rank touches the arena, and every job fails."""
    ranks.devices[1].failing = {2}
    ranks.submit(job(1, Direction.STORE))
    ranks.submit(job(2, Direction.MOVE))
    for job_id, direction in enumerate(Direction, start=3):
        ranks.submit(job(job_id, direction))
    ranks.drain()
    for rank, errors in enumerate(ranks.errors()):
        assert None is errors[1]
        assert all(errors[job_id] for job_id in (2, 3, 4, 5))
        assert {1, 2} >= set(ranks.devices[rank].parts)
    assert 1 <= caplog.text.count("restart the server") <= NUM_RANKS


def test_a_rank_that_left_before_a_move_leaves_loads_before_it_alone(ranks: Ranks):
    """A slow rank still loads what was there before the move that never was.

    The others do not wait for the slow one to learn that.
    """
    slow = ranks.devices[2].held[1] = threading.Event()
    ranks.submit(job(1, Direction.LOAD))
    ranks.submit(job(2, Direction.MOVE))
    ranks.submit(job(3, Direction.STORE))
    assert ranks.engines[1].close(LONG_SECONDS)  # as if it were dead
    for rank in (0, 1):
        assert ranks.engines[rank].wait_for([3], LONG_SECONDS)
        assert 3 not in ranks.devices[rank].parts
    slow.set()
    ranks.drain()
    errors = ranks.errors()
    assert None is errors[2][1]
    assert all(rank[2] and rank[3] for rank in errors)


def test_waiting_for_a_job_behind_a_move_ends_when_a_late_rank_comes(ranks: Ranks):
    """The model's thread waits for a store behind a move; ranks that come later help.

    What it waits for does not need itself: the others' threads get their jobs from
    their own models, which are at most one step behind.
    """
    move, store = job(1, Direction.MOVE), job(2, Direction.STORE)
    for one in (move, store):
        ranks.submit(one, range(1))
    assert not ranks.engines[0].wait_for([2], 0.05)
    for one in (move, store):
        ranks.submit(one, range(1, NUM_RANKS))
    assert ranks.engines[0].wait_for([2], LONG_SECONDS)


def test_close_does_not_wait_for_other_ranks(ranks: Ranks):
    """A rank that is at a move, alone, can still be closed; the move has failed."""
    ranks.submit(job(1, Direction.MOVE), range(1))
    assert ranks.engines[0].close(LONG_SECONDS)
    assert None is not ranks.errors()[0][1]
