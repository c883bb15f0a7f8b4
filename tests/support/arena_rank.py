"""One rank of a shared arena in a process of its own: real files, engine and device.

Everything it is told comes over one connection, and everything it finds goes back. It
fills device blocks as a forward pass would, and compares what it has loaded, byte by
byte, with what the key demands.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np

from kvcellar.device.cpu import CpuDevice
from kvcellar.device.regions import PageTensor, Region, regions_from_tensors
from kvcellar.layout.groups import AttentionKind, CacheLayout, GroupLayout, make_layout
from kvcellar.layout.host import HostGeometry, plan_geometry
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.engine import TransferEngine
from kvcellar.transfer.jobs import CopyJob, Direction
from kvcellar.transfer.joining import Joined, join

NUM_BLOCKS = 48
PAYLOADS = (4096, 1536)  # bytes of a block of each group, in one region each
_WAIT_SECONDS = 0.002


@dataclass(frozen=True)
class Block:
    """A device block and what it holds, or must hold."""

    position: int
    number: int
    key: int


@dataclass(frozen=True)
class Order:
    """A job, what to write into its sources first, and what its targets must hold."""

    job: CopyJob
    fill: Sequence[Block] = ()
    expect: Sequence[Block] = ()


@dataclass(frozen=True)
class Ended:
    """How a job ended on one rank.

    Attributes:
        num_wrong: blocks that a load left with other bytes than their key demands.
    """

    job_id: int
    error: str | None
    num_wrong: int


@dataclass
class Plan:
    """What a rank is started with."""

    rank: int
    num_sharing: int
    host_bytes: int


def layout() -> CacheLayout:
    """Chunks of two blocks, and single blocks of a window."""
    kinds = (AttentionKind.FULL, AttentionKind.WINDOW)
    groups = [
        GroupLayout(number, kind, 16, size, size, 1, span_tokens=32 if number else None)
        for number, (kind, size) in enumerate(zip(kinds, PAYLOADS, strict=True))
    ]
    return make_layout(
        groups,
        hash_block_tokens=16,
        alignment_tokens=16,
        scheduler_block_tokens=16,
        chunk_tokens=32,
    )


def geometry_of(host_bytes: int) -> HostGeometry:
    """The cut that all ranks and the planner share."""
    return plan_geometry(layout(), host_bytes)


def content(key: int, position: int) -> np.ndarray:
    """The bytes of a block: equal on all ranks, since they hold the same."""
    generator = np.random.default_rng((key, position))
    return generator.integers(0, 256, PAYLOADS[position], dtype=np.uint8)


@dataclass
class Rank:
    """The process's state."""

    connection: Connection
    plan: Plan
    orders: dict[int, Order] = field(default_factory=dict)

    def gather(self, given: object) -> list[object]:
        """Exchange with the other ranks through the parent."""
        self.connection.send(("gather", given))
        heard: list[object] = self.connection.recv()
        return heard

    def run(self) -> None:
        """Work until told to stop."""
        joined = join(self.gather, self.plan.rank, self.plan.num_sharing)
        assert isinstance(joined, Joined), joined
        geometry = geometry_of(self.plan.host_bytes)
        memory = HostMemory(geometry, file=joined.file)
        os.close(joined.file)
        self.caches = [
            np.zeros((NUM_BLOCKS, size), dtype=np.uint8) for size in PAYLOADS
        ]
        device = CpuDevice(
            layout(),
            geometry,
            [_region(cache) for cache in self.caches],
            num_blocks=NUM_BLOCKS,
            host_address=memory.address,
        )
        self.engine = TransferEngine(device, joined.share)
        self.connection.send(("ready", os.getpid()))
        while self._step():
            pass
        assert self.engine.close(30.0)
        memory.close()
        self.connection.send(("closed", self._report()))

    def _step(self) -> bool:
        if self.connection.poll(_WAIT_SECONDS):
            order = self.connection.recv()
            if order is None:
                return False
            self._begin(order)
        ended = self._report()
        if ended:
            self.connection.send(("ended", ended))
        return True

    def _begin(self, order: Order) -> None:
        for block in order.fill:
            self.caches[block.position][block.number] = content(
                block.key, block.position
            )
        self.orders[order.job.job_id] = order
        self.engine.submit(order.job)

    def _report(self) -> list[Ended]:
        ended = []
        for result in self.engine.poll():
            order = self.orders.pop(result.job_id)
            is_good_load = result.error is None and result.direction is Direction.LOAD
            wrong = [b for b in order.expect if not self._holds(b)]
            ended.append(
                Ended(result.job_id, result.error, len(wrong) if is_good_load else 0)
            )
        return ended

    def _holds(self, block: Block) -> bool:
        found = self.caches[block.position][block.number]
        return bool(np.array_equal(found, content(block.key, block.position)))


def _region(cache: np.ndarray) -> tuple[Region, ...]:
    size = cache.shape[1]
    tensor = PageTensor(cache.ctypes.data, cache.nbytes, 0, 0, size, 1, size)
    return regions_from_tensors([tensor], len(cache))


def main(connection: Connection, plan: Plan) -> None:
    """The process."""
    Rank(connection, plan).run()
