"""Three scheduler sides behind one face: kvcellar's and vLLM's own two."""

from typing import Any, Protocol

import vllm_rig
from handshake import told_by_one_rank
from models import Model
from stopwatch import Stopwatch
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingWorkerMetadata,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.config import (
    build_offloading_config,
)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.scheduler import (
    OffloadingConnectorScheduler,
)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

from kvcellar.config import settings_from_extra_config
from kvcellar.integrations.vllm.messages import RankFacts, WorkerReport
from kvcellar.integrations.vllm.scheduler_side import SchedulerSide


class Side(Protocol):
    """A connector's scheduler half, over its own copy of the engine's cache.

    Attributes:
        manager: the engine's cache manager that this side is bound to.
    """

    manager: Any

    def begin(self, request: Any) -> None:
        """The engine has taken a request in."""
        ...

    def look_up(self, request: Any) -> int:
        """Tokens that can be loaded if the device holds nothing."""
        ...

    def let_go(self, request: Any) -> None:
        """Forget a look-up that led to nothing."""
        ...

    def allocated(self, request: Any) -> None:
        """The engine gave the request its blocks, with nothing to load."""
        ...

    def build(self, output: Any) -> Any:
        """Plan one step."""
        ...

    def complete(self, metadata: Any) -> None:
        """The workers have carried out everything a step asked for."""
        ...

    def finish(self, request: Any) -> None:
        """The engine has ended a request."""
        ...

    def held_bytes(self) -> int:
        """Host bytes that what is stored now occupies."""
        ...


class CellarSide:
    """kvcellar's ``SchedulerSide``.

    Args:
        manager: the engine's cache manager, if others are bound to it too.
        extra: its ``kv_connector_extra_config``.
    """

    def __init__(
        self,
        model: Model,
        num_blocks: int,
        host_bytes: int,
        *,
        manager: Any = None,
        **extra: Any,
    ) -> None:
        config = vllm_rig.kv_cache_config(model, num_blocks)
        settings = {"host_memory": host_bytes, "status_socket": False, **extra}
        self.side = SchedulerSide(vllm_rig.vllm_config(model, settings), config)
        self.manager = manager or vllm_rig.cache_manager(model, config)
        self.side.bind(self.manager)
        facts = RankFacts(model.layout, {})
        told = told_by_one_rank(facts, settings_from_extra_config(settings))
        self.side.set_handshakes({(0, 0): told})

    def begin(self, request: Any) -> None:
        """Nothing."""

    def look_up(self, request: Any) -> int:
        """As ``get_num_new_matched_tokens``."""
        return self.side.look_up(request, 0)[0]

    def let_go(self, request: Any) -> None:
        """As when the request is aborted while it waits."""
        self.side.finished(request)

    def allocated(self, request: Any) -> None:
        """As ``update_state_after_alloc``."""
        self.side.allocated(request, 0)

    def build(self, output: Any) -> Any:
        """As ``build_connector_meta``."""
        return self.side.build_metadata(output)

    def complete(self, metadata: Any) -> None:
        """As ``update_connector_output``."""
        jobs = [*metadata.stores, *metadata.loads.values()]
        if jobs:
            self.side.take_report(WorkerReport({job.job_id: 1 for job in jobs}))

    def finish(self, request: Any) -> None:
        """As ``request_finished_all_groups``."""
        self.side.finished(request)

    def held_bytes(self) -> int:
        """Payload of all cells taken."""
        return self.side.offloader.slabs.used_bytes


class SimpleSide:
    """vLLM's SimpleCPUOffloadConnector in its default, eager mode."""

    def __init__(
        self,
        model: Model,
        num_blocks: int,
        host_bytes: int,
        retention_tokens: int | None = 0,
    ) -> None:
        config = vllm_rig.kv_cache_config(model, num_blocks, retention_tokens)
        self.model = model
        self.manager = vllm_rig.cache_manager(model, config)
        self.side = SimpleCPUOffloadScheduler(
            vllm_rig.vllm_config(model, {}, retention_tokens),
            config,
            host_bytes,
            model.layout.scheduler_block_tokens,
            model.layout.hash_block_tokens,
        )
        self.side.bind_gpu_block_pool(self.manager.block_pool)

    def begin(self, request: Any) -> None:
        """Nothing."""

    def look_up(self, request: Any) -> int:
        """As ``get_num_new_matched_tokens``."""
        return self.side.get_num_new_matched_tokens(request, 0)[0] or 0

    def let_go(self, request: Any) -> None:
        """Drop the pins of the look-up."""
        pending = self.side._pending_cpu_hits.pop(request.request_id, None)
        if pending is not None:
            self.side._free_pending_cpu_hit(pending)

    def allocated(self, request: Any) -> None:
        """As ``update_state_after_alloc``."""
        blocks = self.manager.get_blocks(request.request_id)
        self.side.update_state_after_alloc(request, blocks, 0)

    def build(self, output: Any) -> Any:
        """As ``build_connector_meta``."""
        return self.side.build_connector_meta(output)

    def complete(self, metadata: Any) -> None:
        """As ``update_connector_output``."""
        if metadata.store_event >= 0:
            report = SimpleCPUOffloadWorkerMetadata({metadata.store_event: 1})
            self.side.update_connector_output(
                KVConnectorOutput(kv_connector_worker_meta=report)
            )

    def finish(self, request: Any) -> None:
        """As ``request_finished_all_groups``."""
        block_ids = self.manager.get_block_ids(request.request_id)
        self.side.request_finished_all_groups(request, block_ids)

    def held_bytes(self) -> int:
        """Rows of all blocks that carry a hash."""
        blocks = self.side.cpu_block_pool.blocks
        return self.model.row_bytes * sum(b.block_hash is not None for b in blocks)


class OffloadingSide:
    """vLLM's OffloadingConnector with its CPU backend.

    Args:
        extra: its ``kv_connector_extra_config``.
    """

    def __init__(
        self,
        model: Model,
        num_blocks: int,
        host_bytes: int,
        retention_tokens: int | None = 0,
        **extra: Any,
    ) -> None:
        config = vllm_rig.kv_cache_config(model, num_blocks, retention_tokens)
        engine = vllm_rig.vllm_config(
            model, {"cpu_bytes_to_use": host_bytes, **extra}, retention_tokens
        )
        self.manager = vllm_rig.cache_manager(model, config)
        self.spec = OffloadingSpecFactory.create_spec(
            build_offloading_config(engine, config)
        )
        self.side = OffloadingConnectorScheduler(self.spec, engine, config)

    def begin(self, request: Any) -> None:
        """As ``on_new_request``."""
        self.side.on_new_request(request)

    def look_up(self, request: Any) -> int:
        """As ``get_num_new_matched_tokens``."""
        return self.side.get_num_new_matched_tokens(request, 0)[0] or 0

    def let_go(self, request: Any) -> None:
        """Nothing is held between look-up and allocation."""

    def allocated(self, request: Any) -> None:
        """As ``update_state_after_alloc``."""
        blocks = self.manager.get_blocks(request.request_id)
        self.side.update_state_after_alloc(request, blocks, 0)

    def build(self, output: Any) -> Any:
        """As ``build_connector_meta``."""
        return self.side.build_connector_meta(output)

    def complete(self, metadata: Any) -> None:
        """As ``update_connector_output``."""
        jobs = [*metadata.store_jobs, *metadata.load_jobs]
        if jobs:
            report = OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(jobs, 1))
            self.side.update_connector_output(
                KVConnectorOutput(kv_connector_worker_meta=report)
            )

    def finish(self, request: Any) -> None:
        """As ``request_finished``."""
        self.side.request_finished(request)

    def held_bytes(self) -> int:
        """Rows of all keys held."""
        num_keys = len(self.side.manager._policy.chunks)  # type: ignore[attr-defined]
        return num_keys * self.spec.kv_bytes_per_chunk


def prefill(side: Side, request: Any, step_tokens: int) -> tuple[Stopwatch, Stopwatch]:
    """Compute a whole prompt in steps and end the request; all stores succeed.

    Returns:
        The time of each call that plans, and of each that takes in what was done.
    """
    planning, ending = Stopwatch(), Stopwatch()
    start(side, request, min(step_tokens, request.num_tokens), planning, ending)
    while request.num_computed_tokens < request.num_tokens:
        num_new = min(step_tokens, request.num_tokens - request.num_computed_tokens)
        blocks = side.manager.allocate_slots(request, num_new)
        assert blocks is not None
        output = vllm_rig.later_step([request], [blocks], num_new)
        _step(side, output, planning, ending)
        request.num_computed_tokens += num_new
    vllm_rig.end(request)
    planning.time(lambda: side.finish(request))
    output = vllm_rig.empty_step([request.request_id])
    _step(side, output, planning, ending)
    side.manager.free(request)
    return planning, ending


def start(
    side: Side,
    request: Any,
    num_tokens: int,
    planning: Stopwatch,
    ending: Stopwatch,
) -> None:
    """Admit a request that finds nothing, and compute its first tokens."""
    side.begin(request)
    side.look_up(request)
    assert side.manager.allocate_slots(request, num_tokens) is not None
    side.allocated(request)
    output = vllm_rig.first_step(side.manager, request, num_tokens)
    _step(side, output, planning, ending)
    request.num_computed_tokens += num_tokens


def _step(side: Side, output: Any, planning: Stopwatch, ending: Stopwatch) -> None:
    metadata = planning.time(lambda: side.build(output))
    ending.time(lambda: side.complete(metadata))
