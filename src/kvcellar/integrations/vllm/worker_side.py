"""The copying half: one instance per rank, on the worker's main thread."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorTransferResults,
)
from vllm.logger import init_logger

from kvcellar.config import rank_bytes, settings_from_extra_config
from kvcellar.errors import TierError
from kvcellar.integrations.vllm.devices import OpenDevice, Place, open_device
from kvcellar.integrations.vllm.messages import (
    CellarMetadata,
    RankHandshake,
    WorkerReport,
)
from kvcellar.integrations.vllm.regions import group_regions
from kvcellar.integrations.vllm.setup import layout_for
from kvcellar.integrations.vllm.stats import CellarStats, WorkerCounts
from kvcellar.layout.host import plan_geometry
from kvcellar.tiers.memory import HostMemory
from kvcellar.transfer.jobs import CopyJob, Direction, JobResult

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from kvcellar.device.device import Device

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
        device: copies between cache and host memory, on the processor or on streams of
            the accelerator that holds the cache; None before ``register``.
        transfers: carries out jobs in the background; None before ``register``.
    """

    def __init__(
        self, vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig"
    ) -> None:
        transfer_config = vllm_config.kv_transfer_config
        assert transfer_config is not None
        settings = settings_from_extra_config(transfer_config.kv_connector_extra_config)
        self._kv_cache_config = kv_cache_config
        self._layout = layout_for(vllm_config, kv_cache_config, settings)
        parallel = vllm_config.parallel_config
        share = rank_bytes(settings, parallel.world_size)
        replicas = parallel.data_parallel_size_local  # each has its own memory
        self._num_local_ranks = parallel.local_world_size * max(replicas, 1)
        self._geometry = plan_geometry(self._layout, share)
        self._memory: HostMemory | None = None
        self.device: Device | None = None
        self._opened: OpenDevice | None = None
        self.transfers: Transfers | None = None
        self._waiting: dict[int, str] = {}
        self._refused: list[str] = []
        self._ended: list[JobResult] = []
        self._counts = WorkerCounts()
        self._is_idle = False
        self._spoiled: set[int] = set()
        self._running: set[int] = set()

    def register(self, kv_caches: "dict[str, torch.Tensor]") -> None:
        """Find the bytes of every block; allocate host memory; start the thread.

        Raises:
            ConfigError: the machine does not have that much memory.
            IncompatibleError: the tensors are not where the configuration says.
        """
        regions = group_regions(self._layout, self._kv_cache_config, kv_caches)
        self._kv_caches = kv_caches  # their memory is copied by address
        self._memory = HostMemory(self._geometry, num_ranks=self._num_local_ranks)
        place = Place(
            self._layout,
            self._geometry,
            regions,
            self._kv_cache_config.num_blocks,
            self._memory,
        )
        self._opened = open_device(place, kv_caches)
        self.device, self.transfers = self._opened.device, self._opened.transfers

    def handshake(self) -> RankHandshake:
        """Bytes of this rank's blocks, for the scheduler."""
        payload = {g.group_id: g.payload_bytes for g in self._layout.groups}
        return RankHandshake(
            payload, self._layout.chunk_tokens, self._geometry.num_slabs
        )

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
            if result.error is not None:
                logger.warning("kvcellar: a copy failed: %s", result.error)
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
            {result.job_id: 1 for result in ended},
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
