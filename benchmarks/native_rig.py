"""vLLM's real scheduler around one connector, with a device that does nothing.

The scheduler, its cache manager and the connectors' scheduler halves are the engine's
own; workers are replaced by the answer that every copy has succeeded at once. Before
each request the device forgets everything, so that only the host can give a hit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from handshake import told_by_one_rank
from native_workload import Planned
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    OffloadingWorkerMetadata,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.simple_kv_offload.metadata import (
    SimpleCPUOffloadMetadata,
    SimpleCPUOffloadWorkerMetadata,
)
from vllm.v1.structured_output import StructuredOutputManager

from kvcellar.config import settings_from_extra_config
from kvcellar.integrations.vllm.messages import (
    CellarMetadata,
    RankHandshake,
    WorkerReport,
)
from kvcellar.integrations.vllm.ranks import find_facts
from kvcellar.integrations.vllm.setup import layout_for
from kvcellar.layout.groups import CacheLayout
from kvcellar.testing.oracle.layouts import OracleLayout

MOST_STEPS = 5000  # of one request; more means that it hangs

init_none_hash(sha256)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A connector to ask, with the settings that are not host memory.

    Attributes:
        module: where an out-of-tree connector is found.
    """

    name: str
    connector: str
    module: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()

    def transfer_config(self, host_bytes: int) -> KVTransferConfig:
        """What the engine is started with."""
        return KVTransferConfig(
            kv_connector=self.connector,
            kv_connector_module_path=self.module,
            kv_role="kv_both",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config={
                "cpu_bytes_to_use": host_bytes,
                **dict(self.settings),
            },
        )


CELLAR = Candidate("kvcellar", "CellarConnector", "kvcellar.integrations.vllm")
SIMPLE = Candidate("simple", "SimpleCPUOffloadConnector")
OFFLOADING = Candidate("offloading", "OffloadingConnector")


@dataclass(frozen=True, slots=True, order=True)
class Hit:
    """What one look-up was worth.

    Attributes:
        tokens: prompt tokens that were not computed.
        promised: what the connector answered; the engine may take less.
    """

    tokens: int
    promised: int


class Engine:
    """One engine with one connector.

    Args:
        layout: planned by the engine's own code; engines of one layout are used one
            after another, since they share its configuration.
        host_bytes: host memory of the connector.

    Attributes:
        scheduler: vLLM's.
        connector: the connector's scheduler half.
    """

    def __init__(
        self, layout: OracleLayout, candidate: Candidate, host_bytes: int
    ) -> None:
        config = layout.vllm_config
        config.kv_transfer_config = candidate.transfer_config(host_bytes)
        self.scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=layout.scheduler_config,
            structured_output_manager=StructuredOutputManager(config),
            block_size=layout.scheduler_block_tokens,
            hash_block_size=layout.hash_block_tokens,
            log_stats=False,
        )
        self.connector: Any = self.scheduler.connector
        if candidate.connector == CELLAR.connector:
            rank = _handshake(layout)
            self.connector.set_xfer_handshake_metadata_pp_aware({(0, 0): rank})
        self._ask = self.connector.get_num_new_matched_tokens
        self.connector.get_num_new_matched_tokens = self._look_up
        self._promised = 0
        speculative = config.speculative_config
        self._num_drafts = speculative.num_speculative_tokens if speculative else 0

    def serve(self, planned: Planned) -> Hit:
        """Run a request from arrival until its last store is done."""
        if not self.scheduler.reset_prefix_cache():
            raise RuntimeError("the last request still holds device blocks")
        request = make_request(planned)
        self.scheduler.add_request(request)
        loaded, num_steps = 0, 0
        while self.scheduler.has_requests():
            loaded = max(loaded, self._step(request, planned))
            num_steps += 1
            if num_steps > MOST_STEPS:
                raise RuntimeError(f"request {planned.request_id} does not end")
        return Hit(loaded, self._promised)

    def _look_up(self, request: Request, local_tokens: int) -> tuple[int | None, bool]:
        """The connector's own method, overheard."""
        assert not local_tokens
        answer: tuple[int | None, bool] = self._ask(request, local_tokens)
        self._promised = answer[0] or 0
        return answer

    def _step(self, request: Request, planned: Planned) -> int:
        """One step of the engine; the tokens that stood loaded before it computed."""
        output = self.scheduler.schedule()
        num_new = output.num_scheduled_tokens.get(request.request_id, 0)
        request_ids: list[str] = []
        sampled: list[list[int]] = []
        loaded = 0
        if num_new:
            is_first = bool(output.scheduled_new_reqs)
            loaded = request.num_computed_tokens - num_new if is_first else 0
            request_ids, sampled = [request.request_id], [[]]
            drafts = output.scheduled_spec_decode_tokens.get(request.request_id, ())
            if request.num_computed_tokens - len(drafts) >= request.num_tokens:
                sampled = [[planned.answer[request.num_output_tokens]]]
        result = ModelRunnerOutput(
            req_ids=request_ids,
            req_id_to_index={r: i for i, r in enumerate(request_ids)},
            sampled_token_ids=sampled,
            kv_connector_output=succeed(output.kv_connector_metadata),
        )
        self.scheduler.update_from_output(output, result)
        if self._num_drafts and request_ids:
            guesses = [[0] * self._num_drafts]
            self.scheduler.update_draft_token_ids(DraftTokenIds(request_ids, guesses))
        return loaded


def succeed(metadata: Any) -> KVConnectorOutput:
    """What the workers report when they have done all that they were told."""
    if isinstance(metadata, CellarMetadata):
        assert not metadata.refused_loads
        stores = [*metadata.early_stores, *metadata.stores]
        jobs = [*stores, *metadata.loads.values()]
        report = WorkerReport({job.job_id: 1 for job in jobs}) if jobs else None
        return _output(set(metadata.loads), report)
    if isinstance(metadata, SimpleCPUOffloadMetadata):
        events = [metadata.store_event] if metadata.store_event >= 0 else []
        done = SimpleCPUOffloadWorkerMetadata(dict.fromkeys(events, 1))
        loaded = metadata.load_event_to_reqs.get(metadata.load_event, ())
        return _output(set(loaded), done if events else None)
    assert isinstance(metadata, OffloadingConnectorMetadata)
    ended = dict.fromkeys([*metadata.store_jobs, *metadata.load_jobs], 1)
    loads = {job.req_id for job in metadata.load_jobs.values()}
    return _output(loads, OffloadingWorkerMetadata(completed_jobs=ended))


def _output(loaded: set[str], report: Any) -> KVConnectorOutput:
    return KVConnectorOutput(
        finished_recving=loaded or None, kv_connector_worker_meta=report
    )


def make_request(planned: Planned) -> Request:
    """The engine's request; its hashes were worked out with the workload."""
    return Request(
        request_id=planned.request_id,
        prompt_token_ids=list(planned.prompt),
        sampling_params=SamplingParams(max_tokens=len(planned.answer), ignore_eos=True),
        pooling_params=None,
        cache_salt=str(planned.salt) if planned.salt else None,
        block_hasher=_known_hashes(planned),
    )


def _known_hashes(planned: Planned) -> Callable[[Request], list[bytes]]:
    def hasher(request: Request) -> list[bytes]:
        first = len(request.block_hashes)
        return planned.hashes[first : request.num_tokens // planned.hash_tokens]

    return hasher


def hasher_of(layout: OracleLayout) -> Callable[[list[int], int], list[bytes]]:
    """The engine's prefix hashes of tokens under a salt."""
    hasher = get_request_block_hasher(layout.hash_block_tokens, sha256)

    def hashes_of(tokens: list[int], salt: int) -> list[bytes]:
        request = Request(
            request_id="hashes",
            prompt_token_ids=tokens,
            sampling_params=SamplingParams(max_tokens=1),
            pooling_params=None,
            cache_salt=str(salt) if salt else None,
            block_hasher=hasher,
        )
        return list(request.block_hashes)

    return hashes_of


def cellar_layout(layout: OracleLayout) -> CacheLayout:
    """The layout as kvcellar's workers work it out, with its default settings."""
    settings = settings_from_extra_config({})
    return layout_for(layout.vllm_config, layout.worker_config, settings)


def _handshake(layout: OracleLayout) -> RankHandshake:
    facts = find_facts(layout.vllm_config, layout.worker_config)
    extra = layout.vllm_config.kv_transfer_config.kv_connector_extra_config
    return told_by_one_rank(facts, settings_from_extra_config(extra))
