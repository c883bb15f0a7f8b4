"""How fast jobs go, beside plain copies of as many bytes, and whom they slow down."""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kvcellar.device.driver import DeviceError, Driver, Event, Runs
from kvcellar.testing.gpu.machine import WORD_BYTES
from kvcellar.testing.gpu.rig import Rig
from kvcellar.transfer.jobs import Direction

_GIGA = 1e9
_MOST_JOBS = 400


@dataclass(frozen=True)
class CopySpeed:
    """One row of the table.

    Attributes:
        cache: the model, or the page size.
        group: whether the blocks are those of chunks or of checkpoints.
        page_bytes: mean bytes of a page that cannot be joined with another.
        gbps: of jobs submitted one behind the other, from first submit to last end.
        plain_gbps: of plain copies of as many bytes, one behind the other.
    """

    cache: str
    group: str
    page_bytes: int
    direction: str
    num_blocks: int
    job_bytes: int
    gbps: float
    plain_gbps: float

    @property
    def share(self) -> float:
        """Part of the plain copy's speed that jobs reach."""
        return self.gbps / self.plain_gbps


def copy_speeds(
    name: str, rig: Rig, batches: tuple[int, ...], timed_bytes: int
) -> Iterator[CopySpeed]:
    """Measure a rig's groups in both directions.

    Args:
        batches: blocks per job, as far as there are so many.
        timed_bytes: about as many are copied in one measurement.
    """
    rig.waits_for_start = False  # it would be part of what is timed
    groups = ("chunks", "checkpoints")[: len(rig.shape.groups)]
    for position, group in enumerate(groups):
        room = min(rig.shape.num_blocks, rig.num_host_blocks(position))
        for num_blocks in sorted({min(batch, room) for batch in batches}):
            for direction in (Direction.STORE, Direction.LOAD):
                batch = _Batch(rig, position, num_blocks, direction, timed_bytes)
                yield batch.measured(name, group)


@dataclass(frozen=True)
class _Batch:
    """Equal jobs, one behind the other."""

    rig: Rig
    position: int
    num_blocks: int
    direction: Direction
    timed_bytes: int

    @property
    def num_jobs(self) -> int:
        return min(max(self.timed_bytes // self.job_bytes, 2), _MOST_JOBS)

    @property
    def job_bytes(self) -> int:
        payload = self.rig.layout.groups[self.position].payload_bytes
        return payload * self.num_blocks

    def measured(self, name: str, group: str) -> CopySpeed:
        seconds = _median_of_three(self._seconds_of_jobs)
        plain_seconds = _median_of_three(self._seconds_of_plain)
        num_regions = len(self.rig.pages.regions(0)[self.position])
        num_bytes = self.job_bytes * self.num_jobs
        return CopySpeed(
            cache=name,
            group=group,
            page_bytes=self.job_bytes // self.num_blocks // num_regions,
            direction=self.direction.value,
            num_blocks=self.num_blocks,
            job_bytes=self.job_bytes,
            gbps=num_bytes / seconds / _GIGA,
            plain_gbps=num_bytes / plain_seconds / _GIGA,
        )

    def _seconds_of_jobs(self) -> float:
        rig, position = self.rig, self.position
        rng = random.Random(self.num_blocks)
        pairs = [
            (
                rng.sample(range(rig.shape.num_blocks), self.num_blocks),
                rng.sample(range(rig.num_host_blocks(position)), self.num_blocks),
            )
            for _ in range(self.num_jobs)
        ]
        submit = rig.store if self.direction is Direction.STORE else rig.load
        started = time.perf_counter()
        for blocks, cells in pairs:
            submit(position, blocks, cells)
        rig.drain()
        seconds = time.perf_counter() - started
        failed = [result.error for result in rig.poll() if result.error is not None]
        if failed:
            raise DeviceError(
                f"{len(failed)} jobs failed in a measurement: {failed[0]}"
            )
        return seconds

    def _seconds_of_plain(self) -> float:
        """The limit: one run per job, from one end's first byte to the other's."""
        rig, driver = self.rig, self.rig.driver
        to, start = rig.host_address, rig.machine.cache_address
        if self.direction is Direction.LOAD:
            to, start = start, to
        room = min(rig.shape.num_words * WORD_BYTES, rig.geometry.arena_bytes)
        size = min(self.job_bytes, room)
        run = Runs(*(np.array([value], dtype=np.int64) for value in (to, start, size)))
        stream = driver.new_stream("plain")
        started = time.perf_counter()
        for _ in range(self.num_jobs):
            driver.copy(stream, run, is_pinned=True)
        wait_for(driver, driver.record(stream))
        return (time.perf_counter() - started) * self.job_bytes / size


def _median_of_three(measure: Callable[[], float]) -> float:
    measure()
    return statistics.median(measure() for _ in range(3))


@dataclass(frozen=True)
class Overlap:
    """How much longer matrix products take beside copies.

    Attributes:
        alone_seconds: a batch of products by itself.
        beside_seconds: the same while stores and loads run all the time.
    """

    alone_seconds: float
    beside_seconds: float

    @property
    def slowdown(self) -> float:
        """0 if the copies are not felt."""
        return self.beside_seconds / self.alone_seconds - 1


def overlap(rig: Rig, num_rounds: int) -> Overlap:
    """Time the model's work alone and beside jobs in both directions."""
    alone, beside = [], []
    blocks = list(range(rig.shape.num_blocks // 2))
    cells = [min(block, rig.num_host_blocks(0) - 1) for block in blocks]
    blocks = blocks[: len(set(cells))]
    cells = cells[: len(blocks)]
    upper = [block + rig.shape.num_blocks // 2 for block in blocks]
    for _ in range(num_rounds + 1):
        alone.append(_seconds_of_work(rig))
        jobs = [rig.store(0, blocks, cells) for _ in range(4)]
        jobs += [rig.load(0, upper, cells) for _ in range(4)]
        beside.append(_seconds_of_work(rig))
        rig.drain()
        rig.poll()
    return Overlap(statistics.median(alone[1:]), statistics.median(beside[1:]))


def _seconds_of_work(rig: Rig) -> float:
    driver = rig.driver
    stream = driver.compute_stream()
    begin = driver.record(stream)
    rig.machine.delay()
    end = driver.record(stream)
    wait_for(driver, end)
    return driver.seconds_between(begin, end)


def wait_for(driver: Driver, event: Event) -> None:
    """Ask until a mark is passed."""
    while not driver.is_done(event):
        time.sleep(0)  # let the transfer thread run
