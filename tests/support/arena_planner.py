"""Random jobs for ranks that share an arena, planned as the scheduler would.

It knows of every cell what it holds, and of every job who has ended it. As the real
planner it lets cells go when every rank has reported, and uses both ends of a move at
once, while ranks are at jobs of long ago.
"""

import multiprocessing
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

import numpy as np
from arena_rank import NUM_BLOCKS, Block, Ended, Order, Plan, geometry_of, layout, main

from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy

LONG_SECONDS = 60.0


@dataclass
class Held:
    """What one cell holds, or will hold."""

    key: int
    position: int
    cell: int
    is_ready: bool = False
    num_loads: int = 0


@dataclass
class _Job:
    missing: set[int]
    blocks: list[tuple[int, int]]
    on_end: Callable[[bool], None]
    has_failed: bool = False


@dataclass
class Worker:
    """One rank as the parent sees it."""

    process: multiprocessing.Process
    connection: Connection
    pid: int = 0
    lag: int = 0
    backlog: deque[Order] = field(default_factory=deque)
    is_dead: bool = False


class SharedArena:
    """Ranks at work, for as long as the ``with`` block lasts.

    Args:
        lags: by rank, how many jobs it is given too late.
    """

    def __init__(self, lags: list[int], host_bytes: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.geometry = geometry_of(host_bytes)
        self.layout = layout()
        context = multiprocessing.get_context("spawn")
        self.workers = []
        for rank, lag in enumerate(lags):
            ours, theirs = context.Pipe()
            plan = Plan(rank, len(lags), host_bytes)
            process = context.Process(target=main, args=(theirs, plan), daemon=True)
            process.start()
            theirs.close()
            self.workers.append(Worker(process, ours, lag=lag))
        self.held: list[Held] = []
        self.free = [
            set(range(self.geometry.num_slabs // 2 * size.cells_per_slab))
            for size in self.geometry.classes
        ]
        # Each class has slabs of its own here: who gets which is not what is tested.
        for number, cells in enumerate(self.free):
            first = number * (self.geometry.num_slabs // 2)
            per_slab = self.geometry.classes[number].cells_per_slab
            self.free[number] = {cell + first * per_slab for cell in cells}
        self.free_blocks = [set(range(NUM_BLOCKS)) for _ in self.layout.groups]
        self.jobs: dict[int, _Job] = {}
        self.num_jobs = self.num_wrong = self.num_failed = 0
        self.num_good = dict.fromkeys(Direction, 0)

    def __enter__(self) -> "SharedArena":
        for _ in range(2):
            offers = [w.connection.recv()[1] for w in self.workers]
            for worker in self.workers:
                worker.connection.send(offers)
        for worker in self.workers:
            _, worker.pid = worker.connection.recv()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            if not worker.is_dead:
                worker.connection.send(None)
        for worker in self.workers:
            worker.process.join(LONG_SECONDS)
            assert worker.is_dead or worker.process.exitcode == 0

    # -- planning ----------------------------------------------------------------------

    def play(self, num_jobs: int, *, has_moves: bool = True) -> None:
        """Plan and hand out so many jobs; some may still run at the end."""
        target = self.num_jobs + num_jobs
        kinds = [self._store, self._load, self._load]
        kinds += [self._move] if has_moves else []
        while self.num_jobs < target:
            has_job = self.random.random() < 0.6 and self.random.choice(kinds)()
            if not has_job:
                self._evict()
                is_stuck = not self.random.randrange(20) or len(self.jobs) > 60
                self._hear(is_waiting=is_stuck and bool(self.jobs))

    def fill(self) -> None:
        """Store until no cell is free."""
        while any(self.free):
            if not self._store():
                self._hear(is_waiting=bool(self.jobs))
        self.drain()

    def drain(self) -> None:
        """Hand out everything and wait until all jobs have ended."""
        while self.jobs:
            for worker in self.workers:
                self._pass_on(worker, 0)
            self._hear(is_waiting=True)

    def kill(self, rank: int) -> None:
        """End a rank as ``kill -9`` does; nobody waits for its reports any more."""
        worker = self.workers[rank]
        worker.process.kill()
        worker.process.join(LONG_SECONDS)
        worker.is_dead = True
        for job_id in list(self.jobs):
            self._ended(rank, Ended(job_id, "killed", 0))

    def _store(self) -> bool:
        position = self.random.randrange(len(self.layout.groups))
        cells = self._take_cells(position, self.random.randint(1, 4))
        blocks = self._take_blocks(position, cells)
        if not blocks:
            self.free[self.geometry.class_of[position]].update(cells)
            return False
        stored = [Held(self.random.getrandbits(60), position, cell) for cell in cells]
        per_cell = self.geometry.blocks_per_cell[position]
        fill = [
            Block(position, block, stored[i // per_cell].key + i % per_cell)
            for i, block in enumerate(blocks)
        ]
        self.held += stored

        def end(has_failed: bool) -> None:
            for one in stored:
                one.is_ready = True
                if has_failed:
                    self._drop(one)

        job = self._job(Direction.STORE, position, blocks, self._numbers(stored))
        self._hand_out(Order(job, fill=fill), blocks, end)
        return True

    def _load(self) -> bool:
        ready = [one for one in self.held if one.is_ready]
        if not ready:
            return False
        position = self.random.choice(ready).position
        ready = [one for one in ready if one.position == position]
        loaded = self.random.sample(ready, min(len(ready), self.random.randint(1, 4)))
        blocks = self._take_blocks(position, loaded)
        if not blocks:
            return False
        per_cell = self.geometry.blocks_per_cell[position]
        expect = [
            Block(position, block, loaded[i // per_cell].key + i % per_cell)
            for i, block in enumerate(blocks)
        ]
        for one in loaded:
            one.num_loads += 1

        def end(has_failed: bool) -> None:
            for one in loaded:
                one.num_loads -= 1

        job = self._job(Direction.LOAD, position, blocks, self._numbers(loaded))
        self._hand_out(Order(job, expect=expect), blocks, end)
        return True

    def _move(self) -> bool:
        """Move any cells, used or not; both ends are used by the very next jobs."""
        if not self.held:
            return False
        position = self.random.choice(self.held).position
        size_class = self.geometry.class_of[position]
        candidates = [one for one in self.held if one.position == position]
        moved = self.random.sample(
            candidates, min(len(candidates), self.random.randint(1, 6))
        )
        cells = self._take_cells(position, len(moved))
        moved = moved[: len(cells)]
        if not moved:
            return False
        sources = [one.cell for one in moved]
        for one, cell in zip(moved, cells, strict=True):
            one.cell = cell
        self.free[size_class].update(sources)
        job = self._job(Direction.MOVE, position, sources, cells)
        self._hand_out(Order(job), [], lambda _: None)
        return True

    def _evict(self) -> None:
        idle = [one for one in self.held if one.is_ready and not one.num_loads]
        if idle:
            self._drop(self.random.choice(idle))

    def _drop(self, one: Held) -> None:
        self.held.remove(one)
        self.free[self.geometry.class_of[one.position]].add(one.cell)

    # -- cells and blocks --------------------------------------------------------------

    def _take_cells(self, position: int, count: int) -> list[int]:
        free = self.free[self.geometry.class_of[position]]
        cells = self.random.sample(sorted(free), min(count, len(free)))
        free.difference_update(cells)
        return cells

    def _take_blocks(self, position: int, cells: list) -> list[int]:
        free = self.free_blocks[position]
        count = len(cells) * self.geometry.blocks_per_cell[position]
        if not 0 < count <= len(free):
            return []
        blocks = self.random.sample(sorted(free), count)
        free.difference_update(blocks)
        return blocks

    def _numbers(self, cells: list[Held]) -> list[int]:
        per_cell = self.geometry.blocks_per_cell[cells[0].position]
        return [one.cell * per_cell + j for one in cells for j in range(per_cell)]

    def _job(
        self, direction: Direction, position: int, ours: list[int], theirs: list[int]
    ) -> CopyJob:
        self.num_jobs += 1
        arrays = (np.array(numbers, dtype=np.int64) for numbers in (ours, theirs))
        return CopyJob(self.num_jobs, direction, (GroupCopy(position, *arrays),))

    # -- ranks -------------------------------------------------------------------------

    def _hand_out(
        self, order: Order, blocks: list[int], on_end: Callable[[bool], None]
    ) -> None:
        job = order.job
        alive = {r for r, worker in enumerate(self.workers) if not worker.is_dead}
        position = job.copies[0].position

        def end(has_failed: bool) -> None:
            on_end(has_failed)
            self.num_good[job.direction] += not has_failed

        taken = [(position, block) for block in blocks]
        self.jobs[job.job_id] = _Job(alive, taken, end)
        for worker in self.workers:
            worker.backlog.append(order)
            self._pass_on(worker, worker.lag)

    def _pass_on(self, worker: Worker, num_kept: int) -> None:
        while len(worker.backlog) > num_kept:
            order = worker.backlog.popleft()
            if not worker.is_dead:
                worker.connection.send(order)

    def _hear(self, *, is_waiting: bool) -> None:
        ends = {w.connection: r for r, w in enumerate(self.workers) if not w.is_dead}
        heard = wait(list(ends), 0.0)
        if not heard and is_waiting:
            for worker in self.workers:
                self._pass_on(worker, 0)
            heard = wait(list(ends), LONG_SECONDS)
            assert heard, "no rank ended anything"
        for end in heard:
            _, ended = end.recv()
            for one in ended:
                self._ended(ends[end], one)

    def _ended(self, rank: int, ended: Ended) -> None:
        job = self.jobs[ended.job_id]
        self.num_wrong += ended.num_wrong
        job.missing.discard(rank)
        job.has_failed |= ended.error is not None
        if not job.missing:
            del self.jobs[ended.job_id]
            for position, block in job.blocks:
                self.free_blocks[position].add(block)
            self.num_failed += job.has_failed
            job.on_end(job.has_failed)
