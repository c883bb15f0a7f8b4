"""The oracle: vLLM's real scheduler and cache manager, kvcellar's real connector.

Only the device is simulated, and time: when copies end, which requests come, are
aborted or preempted, all follows from one seed.
"""

import random
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from kvcellar.index.checks import check_index
from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.integrations.vllm.dead_state import compressor_states
from kvcellar.testing.oracle.device import SimulatedDevice
from kvcellar.testing.oracle.layouts import OracleLayout
from kvcellar.testing.oracle.runner import OracleRunner
from kvcellar.testing.oracle.transfers import SeededTransfers
from kvcellar.testing.oracle.workload import OracleRequest, Workload

HANG_STEPS = 3000


class HangError(AssertionError):
    """Requests wait, and nothing has moved for too many steps."""


class LeakError(AssertionError):
    """Something is still held after every request has ended."""


@dataclass(slots=True)
class OracleFigures:
    """What a run has done."""

    num_steps: int = 0
    num_requests: int = 0
    num_aborts: int = 0
    num_resets: int = 0
    num_preemptions: int = 0
    num_units_checked: int = 0
    loaded_tokens: int = 0
    stored_chunks: int = 0
    stored_checkpoints: int = 0
    evicted_chunks: int = 0
    failed_jobs: int = 0
    lost_chunks: int = 0
    overtaken_jobs: int = 0

    def add(self, other: "OracleFigures") -> None:
        """Add another run's figures."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def describe(self) -> str:
        """All figures in one line."""
        return ", ".join(f"{name} {getattr(self, name)}" for name in self.__slots__)


class Oracle:
    """One engine under a seeded workload.

    Args:
        layout: what to run on.
        seed: decides everything that happens.
        failure_rate: chance that a copy fails.
        check_every: steps between two checks of the whole index.
    """

    def __init__(
        self,
        layout: OracleLayout,
        seed: int,
        *,
        failure_rate: float = 0.0,
        check_every: int = 16,
    ) -> None:
        self._rng = random.Random(seed)
        self._check_every = check_every
        self.layout = layout
        self.figures = OracleFigures()
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(layout.hash_block_tokens, sha256)
        self.device = SimulatedDevice(layout.worker_config, seed)
        self._worker = CellarConnector(
            layout.vllm_config, KVConnectorRole.WORKER, layout.worker_config
        )
        self._worker.register_kv_caches(self.device.kv_caches)
        self._use_seeded_transfers(failure_rate)
        self.scheduler = self._make_scheduler()
        connector: Any = self.scheduler.connector
        connector.set_xfer_handshake_metadata_pp_aware(
            {(0, 0): self._worker.get_handshake_metadata()}
        )
        self.planner = connector.scheduler_side.offloader
        settings = connector.scheduler_side.offloader.settings
        ratios = compressor_states(layout.worker_config) if settings.dead_state else {}
        self.runner = OracleRunner(
            self.planner.layout, self._worker, self.device, self._rng, ratios
        )
        unit = self.planner.layout.chunk_tokens
        most = layout.vllm_config.model_config.max_model_len
        self.workload = Workload(self._rng, unit, layout.prompt_tokens, most - 8)
        speculative = layout.vllm_config.speculative_config
        self._num_draft_tokens = speculative and speculative.num_speculative_tokens
        self._live: dict[str, OracleRequest] = {}
        self._last_progress = 0

    # -- driving -------------------------------------------------------------------

    def run(self, num_steps: int) -> OracleFigures:
        """Run for ``num_steps``, then let everything end and look for leaks.

        Raises:
            WrongBytesError: a step would have read wrong bytes.
            HangError: nothing moves although requests wait.
            LeakError: something stays held at the end.
            InvariantError: the index is broken.
        """
        for _ in range(num_steps):
            self.disturb()
            self.step()
        self.finish()
        return self.figures

    def finish(self) -> None:
        """Let all requests end; verify that nothing stays held."""
        self.transfers.slowness = min(self.transfers.slowness, 0.5)
        num_idle = 0
        while self.scheduler.has_requests():
            self.step()
            num_idle = 0 if self._live else num_idle + 1
            if num_idle > HANG_STEPS:
                raise HangError("no request is left, and the engine still has work")
        self._assert_nothing_held()

    def disturb(self) -> None:
        """New requests, aborts, resets, changes of the copies' speed."""
        rng = self._rng
        most = self.layout.vllm_config.scheduler_config.max_num_seqs + 4
        if len(self._live) < most and rng.random() < 0.3:
            self.add(self.workload.next_request())
        if rng.random() < 0.01:
            self.abort_one()
        if rng.random() < 0.002:
            self.reset()
        if rng.random() < 0.01:
            self.transfers.slowness = rng.choice([0.0, 0.3, 0.6, 0.9])

    def step(self) -> None:
        """One step of the engine, as its main loop does it."""
        output = self.scheduler.schedule()
        result = self.runner.step(output, self._live)
        outputs = self.scheduler.update_from_output(output, result)
        if self._num_draft_tokens:
            drafts = self.runner.propose(output, self._num_draft_tokens)
            self.scheduler.update_draft_token_ids(drafts)
        for engine_outputs in outputs.values():
            for finished in engine_outputs.outputs:
                if finished.finish_reason is not None:
                    self._ended(finished.request_id)
        self.figures.num_steps += 1
        resumed = output.scheduled_cached_reqs.resumed_req_ids
        self.figures.num_preemptions += len(resumed)
        self._watch_progress(output)
        if self.figures.num_steps % self._check_every == 0:
            check_index(self.planner.index)

    def _watch_progress(self, output: Any) -> None:
        step = self.figures.num_steps
        if output.total_num_scheduled_tokens or not self._live:
            self._last_progress = step
        if step - self._last_progress > HANG_STEPS:
            raise HangError(
                f"{len(self._live)} requests wait and nothing has moved for "
                f"{HANG_STEPS} steps"
            )

    # -- events --------------------------------------------------------------------

    def add(self, wanted: OracleRequest) -> None:
        """A request arrives."""
        params = SamplingParams(
            max_tokens=wanted.max_new_tokens,
            ignore_eos=True,
            skip_reading_prefix_cache=wanted.skips_reading,
        )
        request = Request(
            request_id=wanted.request_id,
            prompt_token_ids=list(wanted.tokens),
            sampling_params=params,
            pooling_params=None,
            cache_salt=str(wanted.identity) if wanted.identity else None,
            block_hasher=self._hasher,
        )
        self._live[wanted.request_id] = wanted
        self.figures.num_requests += 1
        self.scheduler.add_request(request)

    def abort_one(self) -> None:
        """The client of some request, in any state, goes away."""
        if not self._live:
            return
        request_id = self._rng.choice(list(self._live))
        self.figures.num_aborts += 1
        self.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        self._ended(request_id)

    def _ended(self, request_id: str) -> None:
        wanted = self._live.pop(request_id, None)
        if wanted is not None:
            self.workload.remember(wanted)

    def reset(self) -> None:
        """New weights: what the old ones computed must never be read again.

        vLLM 0.32 raises when it is to preempt everything while something besides the
        running requests holds device blocks (a copy, a request that waits for one, a
        state that it copies itself). Then, as when it answers False, the weights stay.
        """
        everything = not self.planner.jobs and self._rng.random() < 0.7
        try:
            is_done = self.scheduler.reset_prefix_cache(
                reset_running_requests=everything, reset_connector=True
            )
        except RuntimeError:
            is_done = False
        if is_done:
            self.runner.epoch += 1
            self.figures.num_resets += 1

    # -- set-up and end ------------------------------------------------------------

    def _make_scheduler(self) -> Scheduler:
        layout = self.layout
        return Scheduler(
            vllm_config=layout.vllm_config,
            kv_cache_config=layout.scheduler_config,
            structured_output_manager=StructuredOutputManager(layout.vllm_config),
            block_size=layout.scheduler_block_tokens,
            hash_block_size=layout.hash_block_tokens,
            log_stats=False,
        )

    def _use_seeded_transfers(self, failure_rate: float) -> None:
        side = self._worker.worker_side
        assert side.device is not None
        assert side.transfers is not None
        side.transfers.close(1.0)
        self.transfers = SeededTransfers(
            side.device, self._rng, failure_rate=failure_rate
        )
        side.transfers = self.transfers

    def _assert_nothing_held(self) -> None:
        check_index(self.planner.index)
        pool = self.scheduler.kv_cache_manager.block_pool
        connector: Any = self.scheduler.connector
        held = {
            "device blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
            "jobs": len(self.planner.jobs),
            "requests": len(self.planner.records),
            "pinned nodes": sum(n.pins > 0 for n in self.planner.index.nodes.values()),
            "watched": connector.scheduler_side.num_watched,
        }
        if any(held.values()):
            raise LeakError(f"still held after the last request: {held}")
        self._take_figures()

    def _take_figures(self) -> None:
        counters, figures = self.planner.counters, self.figures
        figures.num_units_checked = self.runner.num_units_checked
        figures.loaded_tokens = counters.loaded_tokens
        figures.stored_chunks = counters.stored_chunks
        figures.stored_checkpoints = counters.stored_checkpoints
        figures.failed_jobs = counters.failed_jobs
        figures.lost_chunks = counters.lost_chunks
        connector: Any = self.scheduler.connector
        figures.overtaken_jobs = connector.scheduler_side.num_overtaken
        figures.evicted_chunks = self.planner.index.counters.evicted_chunks

    def close(self) -> None:
        """Give host memory back."""
        self._worker.shutdown()
