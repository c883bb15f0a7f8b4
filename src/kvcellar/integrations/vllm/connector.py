"""What vLLM calls: each method hands over to the half that this process holds."""

import contextlib
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from kvcellar.integrations.vllm.engine_version import check_engine
from kvcellar.integrations.vllm.messages import CellarMetadata, WorkerReport
from kvcellar.integrations.vllm.prometheus import CellarPromMetrics
from kvcellar.integrations.vllm.stats import CellarStats

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch
    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.forward_context import ForwardContext
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request

    from kvcellar.integrations.vllm.scheduler_side import SchedulerSide
    from kvcellar.integrations.vllm.worker_side import WorkerSide


class CellarConnector(KVConnectorBase_V1, SupportsHMA):
    """KV-cache offload for hybrid-attention models.

    vLLM imports this class in four kinds of process, so importing it allocates nothing
    and starts nothing; only the half that the role asks for is built.
    Source of the contract: KVConnectorBase_V1, vLLM 0.32.
    """

    _cache_hit_source = CacheHitSource.HOST

    def __init__(
        self,
        vllm_config: "VllmConfig",
        role: KVConnectorRole,
        kv_cache_config: "KVCacheConfig",
    ) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        assert vllm_config.kv_transfer_config is not None
        check_engine(vllm_config.kv_transfer_config.kv_connector_extra_config)
        self._scheduler_side: SchedulerSide | None = None
        self._worker_side: WorkerSide | None = None
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler_side = _scheduler_side(vllm_config, kv_cache_config)
        else:
            self._worker_side = _worker_side(vllm_config, kv_cache_config)

    @property
    def requires_kv_delivery(self) -> bool:
        """False: a store that is dropped is a future miss, nothing more."""
        return False

    @property
    def scheduler_side(self) -> "SchedulerSide":
        """The planning half; only in the engine-core process."""
        assert self._scheduler_side is not None
        return self._scheduler_side

    @property
    def worker_side(self) -> "WorkerSide":
        """The copying half; only in worker processes."""
        assert self._worker_side is not None
        return self._worker_side

    # -- scheduler -----------------------------------------------------------------

    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        """Take the engine's block tables and block pool."""
        super().bind_kv_cache_manager(kv_cache_manager)
        self.scheduler_side.bind(kv_cache_manager)

    def set_xfer_handshake_metadata_pp_aware(
        self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]
    ) -> None:
        """Learn from every rank how many bytes its blocks hold."""
        self.scheduler_side.set_handshakes(metadata)

    def on_new_request(self, request: "Request") -> None:
        """Take in what a request brings along."""
        self.scheduler_side.arrived(request)

    def get_num_new_matched_tokens(
        self, request: "Request", num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Tokens beyond the device's own prefix that can be loaded."""
        return self.scheduler_side.look_up(request, num_computed_tokens)

    def update_state_after_alloc(
        self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int
    ) -> None:
        """The request was admitted; plan its load, if it wants one."""
        self.scheduler_side.allocated(request, num_external_tokens)

    def build_connector_meta(
        self, scheduler_output: "SchedulerOutput"
    ) -> KVConnectorMetadata:
        """Plan this step's stores and hand all jobs to the workers."""
        return self.scheduler_side.build_metadata(scheduler_output)

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        """Take in what the workers have finished."""
        self.scheduler_side.take_report(connector_output.kv_connector_worker_meta)

    def request_finished(
        self, request: "Request", block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Store what the last step completed; blocks are pinned, never held back."""
        self.scheduler_side.finished(request)
        return False, None

    def request_finished_all_groups(
        self, request: "Request", block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """As ``request_finished``, for models of several cache groups."""
        self.scheduler_side.finished(request)
        return False, None

    def has_pending_block_frees(self) -> bool:
        """Whether waiting for a copy would free blocks, so that nobody is preempted."""
        return self.scheduler_side.has_pending_block_frees()

    def has_pending_push_work(self) -> bool:
        """Whether the engine must keep stepping until the last stores are done."""
        return self.scheduler_side.has_work()

    def take_events(self) -> "Iterable[KVCacheEvent]":
        """Blocks that became loadable from host memory, or left it.

        The engine asks once for every step that has ended, and for nothing else so
        regularly.
        """
        self.scheduler_side.step_ended()
        return self.scheduler_side.take_kv_events()

    def reset_cache(self) -> bool:
        """Forget everything; False while jobs are in flight: ask again."""
        return self.scheduler_side.reset()

    # -- worker --------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, "torch.Tensor"]) -> None:
        """Learn where the cache lies; allocate host memory."""
        self.worker_side.register(kv_caches)

    def unregister_kv_caches(self) -> None:
        """Let copies end before sleep takes the cache's memory away.

        It comes back at the same addresses, so nothing is to be done then.
        Source: Worker.sleep, v1/worker/gpu_worker.py, vLLM 0.33; 0.32 does not ask.
        """
        self.worker_side.pause()

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        """Tell the scheduler how many bytes this rank's blocks hold."""
        return self.worker_side.handshake()

    def handle_preemptions(self, kv_connector_metadata: KVConnectorMetadata) -> None:
        """First in each step: end copies whose source the step may write."""
        assert isinstance(kv_connector_metadata, CellarMetadata)
        self.worker_side.end_overtaken(kv_connector_metadata)

    def start_load_kv(self, forward_context: "ForwardContext", **kwargs: Any) -> None:
        """Queue this step's loads."""
        is_idle = getattr(forward_context, "attn_metadata", None) is None
        self.worker_side.start_loads(self._metadata(), is_idle=is_idle)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing: a request runs only when all its layers are loaded."""

    def save_kv_layer(
        self,
        layer_name: str,
        kv_layer: "torch.Tensor",
        attn_metadata: Any,
        **kwargs: Any,
    ) -> None:
        """Nothing: stores are queued once, after the forward."""

    def wait_for_save(self) -> None:
        """Queue this step's stores: the forward that wrote their blocks is queued."""
        self.worker_side.start_stores(self._metadata())

    def get_transfer_results(
        self, finished_req_ids: set[str]
    ) -> KVConnectorTransferResults:
        """Loads that ended since the last step, failed ones named as such."""
        return self.worker_side.take_results()

    def build_connector_worker_meta(self) -> WorkerReport | None:
        """Jobs that ended since the last step."""
        return self.worker_side.take_report()

    def get_kv_connector_stats(self) -> CellarStats | None:
        """What this half counted since the last call."""
        side = self._scheduler_side or self._worker_side
        assert side is not None
        return side.take_stats()

    def shutdown(self) -> None:
        """Stop all threads and give host memory back."""
        if self._scheduler_side is not None:
            self._scheduler_side.close()
        if self._worker_side is not None:
            self._worker_side.close()

    # -- classmethods --------------------------------------------------------------

    @classmethod
    def requires_piecewise_for_cudagraph(cls, extra_config: dict[str, Any]) -> bool:
        """False: nothing is done layer by layer.

        vLLM asks while it puts its configuration together, long before the weights are
        loaded, so this is where settings are refused that the halves would refuse, and
        engines that nothing was tested with.

        Raises:
            ConfigError: a setting is unknown, or of the wrong type or range.
            IncompatibleError: this vLLM is outside the tested range.
        """
        check_engine(extra_config)
        return False

    @classmethod
    def build_kv_connector_stats(
        cls, data: dict[str, Any] | None = None
    ) -> CellarStats | None:
        """Rebuild the stats in the process that exports them."""
        return CellarStats(data=data) if data is not None else CellarStats()

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: "VllmConfig",
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> CellarPromMetrics:
        """Register kvcellar's metrics on vLLM's own ``/metrics``."""
        return CellarPromMetrics(
            vllm_config, metric_types, labelnames, per_engine_labelvalues
        )

    def _metadata(self) -> CellarMetadata:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, CellarMetadata)
        return metadata


def _scheduler_side(*args: Any) -> "SchedulerSide":
    """Import the planning half only where it is needed."""
    from kvcellar.integrations.vllm import scheduler_side

    return scheduler_side.SchedulerSide(*args)


def _worker_side(*args: Any) -> "WorkerSide":
    """Import the copying half, and with it torch's tensors, only where needed."""
    from kvcellar.integrations.vllm import worker_side

    return worker_side.WorkerSide(*args)


def _register() -> None:
    """Let ``MultiConnector`` find the class by name alone when it rebuilds our stats.

    Source: MultiConnector.build_kv_connector_stats, vLLM 0.32, which knows no module
    path there and raises in the front end.
    """
    with contextlib.suppress(ValueError):  # raised if it is known already
        KVConnectorFactory.register_connector(
            "CellarConnector", "kvcellar.integrations.vllm", "CellarConnector"
        )


_register()
