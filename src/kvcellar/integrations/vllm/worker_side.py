"""The copying half: one instance per rank, on the worker's main thread."""

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorTransferResults,
)
from vllm.logger import init_logger

from kvcellar.config import settings_from_extra_config
from kvcellar.errors import TierError
from kvcellar.integrations.vllm.devices import OpenDevice, Place, open_device
from kvcellar.integrations.vllm.exchange import (
    Exchange,
    gather_or_refuse,
    open_exchange,
)
from kvcellar.integrations.vllm.messages import (
    CellarMetadata,
    RankFacts,
    RankHandshake,
    WorkerReport,
)
from kvcellar.integrations.vllm.ranks import ServerPlan, find_facts, plan_server
from kvcellar.integrations.vllm.regions import group_regions
from kvcellar.integrations.vllm.sharing import num_identical_ranks, share_arena
from kvcellar.integrations.vllm.stats import CellarStats, WorkerCounts
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult
from kvcellar.transfer.joining import Joined

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvcellar.device.device import Device
    from kvcellar.device.regions import Region
    from kvcellar.layout.ranks import RanksGeometry

    Regions = list[tuple[Region, ...]]

logger = init_logger("vllm.kvcellar")

# With nothing to compute, the engine would poll in a loop and take the interpreter
# from the copy thread; a wait this long is not felt by a request that arrives in it.
IDLE_WAIT_SECONDS = 0.002
OVERTAKEN_WAIT_SECONDS = 5.0
CLOSE_WAIT_SECONDS = 10.0


class Transfers(Protocol):
    """What carries out jobs: an engine of ``transfer``, or a test's stand-in."""

    @property
    def num_in_flight(self) -> int:
        """Jobs submitted and not ended."""
        ...

    def submit(self, job: CopyJob) -> None:
        """Queue a job behind the work the device has been given so far."""
        ...

    def poll(self) -> list[JobResult]:
        """Jobs ended since the last poll; never waits."""
        ...

    def wait_any(self, timeout_seconds: float) -> bool:
        """Wait until a job has ended."""
        ...

    def wait_for(self, job_ids: Iterable[int], timeout_seconds: float) -> bool:
        """Wait until these jobs have ended; False if the time was up first."""
        ...

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until all jobs have ended; False if the time was up first."""
        ...

    def close(self, timeout_seconds: float) -> bool:
        """Drop what is queued; whether memory may be unmapped."""
        ...


class WorkerSide:
    """Owns this rank's host memory and the thread that copies.

    Attributes:
        exchange: the way to the other ranks; None until ``register``, which opens
            vLLM's own if nobody has put another one here.
        device: copies between cache and host memory, on the processor or on streams of
            the accelerator that holds the cache; None before ``register``.
        transfers: carries out jobs in the background; None before ``register``.
    """

    def __init__(
        self, vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig"
    ) -> None:
        transfer_config = vllm_config.kv_transfer_config
        assert transfer_config is not None
        self._settings = settings_from_extra_config(
            transfer_config.kv_connector_extra_config
        )
        self._kv_cache_config = kv_cache_config
        self._parallel = vllm_config.parallel_config
        self._own_facts = find_facts(vllm_config, kv_cache_config)
        self._num_identical = num_identical_ranks(
            vllm_config, kv_cache_config, self._settings
        )
        if self._parallel.pipeline_parallel_size == 1:
            # All ranks are like this one: what cannot be cut is refused at once.
            num_ranks = self._parallel.world_size
            self._plan((self._own_facts,) * num_ranks, self._num_identical)
        self._handshake: RankHandshake | None = None
        self.exchange: Exchange | None = None
        self._memory: HostMemory | None = None
        self.device: Device | None = None
        self._opened: OpenDevice | None = None
        self.transfers: Transfers | None = None
        self._rank_bit = 1
        self._waiting: dict[int, str] = {}
        self._refused: list[str] = []
        self._ended: list[JobResult] = []
        self._counts = WorkerCounts()
        self._is_idle = False
        self._last_error: str | None = None
        self._spoiled: set[int] = set()
        self._running: set[int] = set()

    def register(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        """Find the bytes of every block; agree with the other ranks; allocate; start.

        Raises:
            ConfigError: host memory is too small, or the machine does not have it.
            IncompatibleError: the tensors are not where the configuration says, or one
                plan cannot serve all ranks.
        """
        exchange = self.exchange = self.exchange or open_exchange(self._parallel)
        self._rank_bit = 1 << exchange.rank
        regions: Regions = []

        def find() -> RankFacts:
            layout = self._own_facts.layout
            regions.extend(group_regions(layout, self._kv_cache_config, kv_caches))
            return self._own_facts

        facts = tuple(gather_or_refuse(exchange, "cache of each rank", find))
        joined = share_arena(exchange, self._num_identical, self._settings)
        num_sharing = self._num_identical if joined else 1
        plan = self._plan(facts, num_sharing)
        geometry = plan.geometry.ranks[exchange.rank]
        self._handshake = RankHandshake(
            exchange.rank, self._settings, facts, geometry, num_sharing
        )
        self._kv_caches = kv_caches  # their memory is copied by address
        self._memory = self._allocate(plan.geometry, exchange.rank, joined)
        place = Place(
            plan.ranks[exchange.rank],
            geometry,
            regions,
            self._kv_cache_config.num_blocks,
            self._memory,
            joined.share if joined else None,
        )
        self._opened = open_device(place, kv_caches)
        self.device, self.transfers = self._opened.device, self._opened.transfers

    def _plan(self, facts: tuple[RankFacts, ...], num_sharing: int) -> ServerPlan:
        ranks_per_stage = self._parallel.tensor_parallel_size
        return plan_server(facts, self._settings, ranks_per_stage, num_sharing)

    def _allocate(
        self, geometry: "RanksGeometry", rank: int, joined: Joined | None
    ) -> HostMemory:
        """This rank's arena, if the machine has room for those of all its ranks."""
        replicas = max(self._parallel.data_parallel_size_local, 1)
        num_local = self._parallel.local_world_size
        first = rank // num_local * num_local  # a machine has ranks that follow
        local = geometry.ranks[first : first + num_local : geometry.num_sharing]
        machine_bytes = replicas * sum(one.arena_bytes for one in local)
        own = geometry.ranks[rank]
        if joined is None:
            return HostMemory(own, machine_bytes=machine_bytes)
        try:
            return HostMemory(own, machine_bytes=machine_bytes, file=joined.file)
        finally:
            os.close(joined.file)  # the mapping keeps it

    def handshake(self) -> RankHandshake:
        """What all ranks hold, as this one has heard, and its own cut."""
        assert self._handshake is not None  # the engine registers its cache first
        return self._handshake

    # -- one step ------------------------------------------------------------------

    def end_overtaken(self, metadata: CellarMetadata) -> None:
        """End copies whose source this step may write. Called before anything else."""
        if not metadata.overtaken:
            return
        for job in metadata.early_stores:
            self._submit(job)
        # What has ended by the last step's end was read in time.
        self._spoiled |= self._running.intersection(metadata.spoiled)
        if not self._transfers.wait_for(metadata.overtaken, OVERTAKEN_WAIT_SECONDS):
            logger.error("kvcellar: a copy did not end in time; its bytes are dropped")
            self._spoiled.update(metadata.overtaken)

    def start_loads(self, metadata: CellarMetadata, *, is_idle: bool) -> None:
        """Queue loads. On CPU the forward has run by now, so nothing reads the blocks.

        Stores that go ahead of them were planned before this step was scheduled, when
        a request ended: what they read was written by earlier steps.

        Args:
            is_idle: whether this step computes nothing.
        """
        self._is_idle = is_idle
        self._refused += metadata.refused_loads
        for job in metadata.stores[: metadata.num_ahead]:
            self._submit(job)
        for request_id, job in metadata.loads.items():
            self._waiting[job.job_id] = request_id
            self._submit(job)

    def start_stores(self, metadata: CellarMetadata) -> None:
        """Queue stores and moves, behind the forward that wrote their blocks."""
        for job in metadata.stores[metadata.num_ahead :]:
            self._submit(job)

    def _submit(self, job: CopyJob) -> None:
        self._running.add(job.job_id)
        self._transfers.submit(job)

    def take_results(self) -> KVConnectorTransferResults:
        """Requests whose load has ended, and which of them failed."""
        if self._is_idle and self._transfers.num_in_flight:
            self._transfers.wait_any(IDLE_WAIT_SECONDS)
        results = KVConnectorTransferResults()
        results.finished_recving.update(self._refused)
        results.failed_recving.update(self._refused)
        self._refused = []
        for ended in self._transfers.poll():
            self._running.discard(ended.job_id)
            result = self._unless_spoiled(ended)
            self._ended.append(result)
            self._counts.count(result)
            if result.error not in (None, self._last_error):  # else it was told
                logger.warning("kvcellar: a copy failed: %s", result.error)
            self._last_error = result.error
            if result.direction is Direction.LOAD:
                request_id = self._waiting.pop(result.job_id)
                results.finished_recving.add(request_id)
                if result.error is not None:
                    results.failed_recving.add(request_id)
        return results

    def _unless_spoiled(self, result: JobResult) -> JobResult:
        """A copy that ran on while its source was written has failed."""
        if result.job_id not in self._spoiled:
            return result
        self._spoiled.discard(result.job_id)
        return replace(result, num_bytes=0, error="its source was written meanwhile")

    def take_report(self) -> WorkerReport | None:
        """Jobs that have ended since the last step."""
        if not self._ended:
            return None
        ended, self._ended = self._ended, []
        return WorkerReport(
            {result.job_id: self._rank_bit for result in ended},
            {result.job_id for result in ended if result.error is not None},
            {r.job_id: r.seconds for r in ended if r.direction is Direction.LOAD},
        )

    def take_stats(self) -> CellarStats | None:
        """Bytes and times since the last call."""
        return self._counts.take()

    def pause(self) -> None:
        """Wait until no copy reads or writes the cache.

        Raises:
            TierError: copies did not end, and would touch memory that is gone.
        """
        if self.transfers is not None and not self.transfers.drain(CLOSE_WAIT_SECONDS):
            reason = f"copies did not end within {CLOSE_WAIT_SECONDS:.0f} s; ask again"
            raise TierError("host", "pause", reason, is_retryable=True)

    def close(self) -> None:
        """Let the running copy end, stop the thread, give host memory back."""
        if self.transfers is not None:
            self.transfers.drain(CLOSE_WAIT_SECONDS)
            if self.transfers.close(CLOSE_WAIT_SECONDS):
                self._give_memory_back()

    def _give_memory_back(self) -> None:
        """Unmap host memory, unless something may still use it."""
        assert self._opened is not None
        assert self._memory is not None
        if self._opened.release(CLOSE_WAIT_SECONDS):
            self._memory.close()

    @property
    def _transfers(self) -> "Transfers":
        assert self.transfers is not None  # the engine registers its cache first
        return self.transfers
