"""What scheduler and workers tell each other."""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from kvcellar.config import Settings
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry
from kvcellar.transfer.jobs import CopyJob


@dataclass
class CellarMetadata(KVConnectorMetadata):
    """One step's work, scheduler to workers.

    Attributes:
        loads: loads by the id of the request that waits for them.
        stores: stores and moves, in the order they were planned.
        num_ahead: how many of these come before the loads. Between a move and a load
            that was planned after it, the order they were planned in must be kept.
        refused_loads: requests that must be reported as failed loads.
        early_stores: stores and moves that must be carried out before this step writes.
        overtaken: jobs that must end before this step writes anything, since the
            engine has given away a block that they read.
        spoiled: those of them whose bytes count only if they have ended before this
            step, since the workers may already have written what they read.
    """

    loads: dict[str, CopyJob] = field(default_factory=dict)
    stores: list[CopyJob] = field(default_factory=list)
    num_ahead: int = 0
    refused_loads: list[str] = field(default_factory=list)
    early_stores: list[CopyJob] = field(default_factory=list)
    overtaken: list[int] = field(default_factory=list)
    spoiled: list[int] = field(default_factory=list)


@dataclass
class WorkerReport(KVConnectorWorkerMetadata):
    """Jobs that ended, workers to scheduler.

    Attributes:
        ended_by: who has ended a job, by job id: rank r is bit r, so that a rank
            that tells twice counts once.
        failed: jobs that failed on some rank.
        load_seconds: how long each load was copied, on the slowest rank.
    """

    ended_by: dict[int, int] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    load_seconds: dict[int, float] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "WorkerReport":
        """Add another rank's report to this one."""
        assert isinstance(other, WorkerReport)
        for job_id, ranks in other.ended_by.items():
            self.ended_by[job_id] = self.ended_by.get(job_id, 0) | ranks
        self.failed |= other.failed
        for job_id, seconds in other.load_seconds.items():
            self.load_seconds[job_id] = max(self.load_seconds.get(job_id, 0.0), seconds)
        return self


@dataclass(frozen=True)
class RankFacts:
    """What one rank can say by itself of its part of the cache.

    Attributes:
        layout: groups as the engine declares them, with this rank's bytes, in the
            smallest chunks.
        compressor_ratios: tokens per entry by id of each group whose layers here hold
            nothing but compressors' states.
    """

    layout: CacheLayout
    compressor_ratios: dict[int, int]


@dataclass
class RankHandshake(KVConnectorHandshakeMetadata):
    """What one rank found when the cache was allocated, and heard of the others.

    Attributes:
        rank: its number.
        settings: that it was started with.
        facts: of all ranks, in rank order.
        geometry: how it cut its own host memory.
        num_sharing: consecutive ranks that share an arena.
    """

    rank: int
    settings: Settings
    facts: tuple[RankFacts, ...]
    geometry: HostGeometry
    num_sharing: int = 1
