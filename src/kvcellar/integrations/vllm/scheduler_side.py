"""The planning half: turns vLLM's calls into events and actions into jobs.

One instance per engine, on the engine's scheduler thread.
"""

import time
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from kvcellar.config import settings_from_extra_config
from kvcellar.core import actions, events
from kvcellar.core.controls import NO_CONTROLS, RequestControls
from kvcellar.core.offloader import Offloader
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.accounts import opening_of
from kvcellar.integrations.vllm.compat import (
    DeviceBlocks,
    EngineTables,
    StepTables,
    blocks_written_early,
    group_managers,
    state_group_tokens,
    writes_blocks_early,
)
from kvcellar.integrations.vllm.controls import ControlReader
from kvcellar.integrations.vllm.free_queue import FreeQueueWatch, block_key
from kvcellar.integrations.vllm.jobs import Jobs
from kvcellar.integrations.vllm.kv_events import KvEvents, are_followed
from kvcellar.integrations.vllm.messages import (
    CellarMetadata,
    RankHandshake,
    WorkerReport,
)
from kvcellar.integrations.vllm.scheduler_counts import SchedulerCounts
from kvcellar.integrations.vllm.start import build_planner
from kvcellar.integrations.vllm.status import EngineStatus, engine_facts, start_status
from kvcellar.integrations.vllm.step_times import StepTimes
from kvcellar.integrations.vllm.wakeups import Wakeups, Watched

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.integrations.vllm.stats import CellarStats
    from kvcellar.status.server import StatusServer

logger = init_logger("vllm.kvcellar")

_STATS_SECONDS = 0.1  # between two readings of all figures; who scrapes asks far less


class SchedulerSide:
    """Plans loads and stores; pins what they read; publishes what they wrote.

    Attributes:
        clock: the planner's, in seconds.
        num_changes: goes up when the planner begins to change and again when it has
            ended; so an odd number says that it is changing now.
    """

    def __init__(
        self, vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig"
    ) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        transfer_config = vllm_config.kv_transfer_config
        assert transfer_config is not None
        self._settings = settings_from_extra_config(
            transfer_config.kv_connector_extra_config
        )
        self._num_ranks: int = vllm_config.parallel_config.world_size
        self._offloader: Offloader | None = None
        self._handshakes: dict[tuple[int, int], RankHandshake] | None = None
        self._managers: Any = ()
        self._state_tokens: dict[int, int] = {}
        self._free_queue: FreeQueueWatch | None = None
        self._watched: dict[str, Watched] = {}
        self._writes_early = writes_blocks_early(vllm_config)
        most_decoded = 1 + _num_draft_tokens(vllm_config)
        self._wakeups = Wakeups(most_decoded)
        self._step_times = StepTimes(most_decoded)
        self._jobs = Jobs(self._num_ranks)
        self._counts = SchedulerCounts()
        self.clock: Callable[[], float] = time.monotonic
        self._control_reader = ControlReader()
        self._is_followed = are_followed(vllm_config)
        self._kv_events: KvEvents | None = None
        self.num_changes = 0
        self._stats_due = 0.0
        self._num_counted = -1
        self._status: StatusServer | None = None
        if transfer_config.kv_load_failure_policy != "recompute":
            logger.warning(
                "kvcellar: kv_load_failure_policy is %r, so a failed load fails its "
                'request; set it to "recompute" in --kv-transfer-config',
                transfer_config.kv_load_failure_policy,
            )

    # -- start ---------------------------------------------------------------------

    def bind(self, kv_cache_manager: "KVCacheManager") -> None:
        """Take the engine's block tables and pool."""
        self._managers = group_managers(kv_cache_manager)
        self._state_tokens = state_group_tokens(self._managers)
        device_blocks = DeviceBlocks(kv_cache_manager.block_pool)
        self._jobs.device_blocks = device_blocks
        if self._settings.mode == "lazy":
            horizon = _horizon(self._vllm_config, self._managers)
            self._free_queue = FreeQueueWatch(device_blocks, horizon)

    def set_handshakes(self, handshakes: dict[tuple[int, int], Any]) -> None:
        """Build the planner from what the ranks found.

        vLLM 0.33 shakes hands again when it wakes from sleep. The ranks then tell the
        same, and the planner goes on with what host memory still holds.

        Raises:
            ConfigError: host memory is too small for all that the ranks hold.
            IncompatibleError: one plan cannot serve all ranks, they have cut their
                memory in another way than it would, or are other than they were.
        """
        ranks = {
            key: told
            for key, told in handshakes.items()
            if isinstance(told, RankHandshake)
        }
        if self._handshakes is None:
            self._handshakes = ranks
            self._build(ranks)
        elif ranks != self._handshakes:
            raise IncompatibleError(
                f"the ranks' cache bytes have changed from {self._handshakes} to "
                f"{ranks} while the engine ran; start it again"
            )

    @property
    def offloader(self) -> Offloader:
        """The planner; built at the handshake, or at first use where there is none."""
        return self._offloader or self._build({})

    def _build(self, handshakes: dict[tuple[int, int], RankHandshake]) -> Offloader:
        self._offloader = build_planner(
            self._vllm_config, self._kv_cache_config, self._settings, handshakes
        )
        groups = self._offloader.layout.groups
        self._jobs.in_flight.block_bytes = [group.payload_bytes for group in groups]
        if self._is_followed:
            self._kv_events = KvEvents(self._offloader, self._kv_cache_config)
        self._start_status(self._offloader)
        return self._offloader

    def _start_status(self, offloader: Offloader) -> None:
        """Answer questions about the engine, if that is wanted."""
        if self._status is None and self._settings.status_socket:
            facts = engine_facts(self._vllm_config, self._num_ranks)
            status = EngineStatus(
                offloader, self._jobs, lambda: self.num_changes, facts
            )
            self._status = start_status(status)

    def close(self) -> None:
        """Stop answering questions."""
        if self._status is not None:
            self._status.close()

    # -- look-up and load ----------------------------------------------------------

    def arrived(self, request: "Request") -> None:
        """Tell the planner what a new request brings along, if it does."""
        controls = self._control_reader.read(request)
        content = None
        if self._is_followed:
            _ = self.offloader  # built here at the latest, with its events
            assert self._kv_events is not None
            content = self._kv_events.content(request)
        tenant = self._tenant_of(request, controls)
        if content is None and tenant is None and controls is NO_CONTROLS:
            return
        self._handle(events.Arrived(request.request_id, controls, content, tenant))

    def _tenant_of(self, request: "Request", controls: RequestControls) -> str | None:
        """Who pays for what is stored of a request; None if nobody is bounded."""
        if self._settings.tenant_share is None:
            return None
        if self._settings.tenant_by == "tag":
            return controls.tags[0] if controls.tags else None
        salt: str | None = request.cache_salt
        return salt

    def look_up(self, request: "Request", local_tokens: int) -> tuple[int, bool]:
        """Tokens to load, always in the background."""
        if request.skip_reading_prefix_cache:
            return 0, False
        started = time.perf_counter()
        promise = self._handle(
            events.LookUp(
                request.request_id,
                request.block_hashes,
                request.num_tokens,
                local_tokens,
            )
        )
        self._counts.look_up_took(time.perf_counter() - started)
        assert isinstance(promise, actions.Promise)
        return promise.external_tokens, promise.external_tokens > 0

    def allocated(self, request: "Request", external_tokens: int) -> None:
        """The engine admitted a request; follow it from now on."""
        request_id = request.request_id
        watched = self._watched.get(request_id)
        opening = None
        if watched is None:
            watched = self._watched[request_id] = Watched(request)
            opening = opening_of(request, self.offloader.layout.chunk_tokens)
        self._wakeups.watch(watched)
        tables = EngineTables(self._managers, request_id)
        self._handle(events.Allocated(request_id, external_tokens, tables, opening))
        watched.has_run = False

    # -- store ---------------------------------------------------------------------

    def build_metadata(self, scheduler_output: "SchedulerOutput") -> CellarMetadata:
        """Offer what this step completes to the planner; hand over all jobs."""
        num_scheduled = scheduler_output.num_scheduled_tokens
        if self._settings.cost_rule:
            self._step_times.begin(
                scheduler_output.total_num_scheduled_tokens,
                len(num_scheduled),
                self.clock(),
            )
        self._jobs.end_overtaken(lambda: self._blocks_written_early(scheduler_output))
        handed_over = self._take_hand_overs(scheduler_output)
        for watched in self._wakeups.next_step():
            request = watched.request
            num_tokens = num_scheduled.get(request.request_id)
            if num_tokens is None:
                continue  # waits for its load, or sits this step out
            watched.has_run = True
            drafts = scheduler_output.scheduled_spec_decode_tokens.get(
                request.request_id, ()
            )
            first = request.num_computed_tokens
            computed = first + num_tokens - len(drafts)
            # A state stands for the token it was taken at, where the step starts or
            # ends; vLLM 0.32 hands over others too if block sizes differ (its #54413).
            states = [
                state
                for state in handed_over.get(request.request_id, ())
                if state[2] in (first, computed)
            ]
            self._offer(watched, first, computed, states)
            self._rest(watched, computed)
        self._store_threatened()
        return self._jobs.take_metadata()

    def _blocks_written_early(self, scheduler_output: "SchedulerOutput") -> set[int]:
        """Blocks that the workers write before they can end a copy."""
        if not self._writes_early:
            return set()
        return blocks_written_early(scheduler_output, self._state_tokens)

    def _store_threatened(self) -> None:
        """Lazy mode: store what comes within reach of the free queue's head."""
        if self._free_queue is None:
            return
        threatened = self._free_queue.newly_threatened()
        if threatened:
            assert self._jobs.device_blocks is not None
            self._handle(events.BlocksThreatened(threatened, self._jobs.device_blocks))

    def _store_if_short(self, request_id: str) -> None:
        """Lazy mode: with few free blocks, those that a request gives up go at once."""
        blocks = self._jobs.device_blocks
        if self._free_queue is None or blocks is None:
            return
        if blocks.num_free < self._free_queue.horizon:
            keys = EngineTables(self._managers, request_id).cached_keys()
            threatened = [block_key(key) for key in keys]
            self._handle(events.BlocksThreatened(threatened, blocks))

    def _take_hand_overs(
        self, scheduler_output: "SchedulerOutput"
    ) -> dict[str, list[tuple[int, int, int]]]:
        """Boundary states of this step, (group, block, tokens) by request."""
        block_state = scheduler_output.kv_connector_block_state
        if block_state is None or not block_state.boundary_state_offloads:
            return {}
        for request_id in block_state.boundary_state_offloads:
            watched = self._watched.get(request_id)
            if watched is not None:
                self._wakeups.watch(watched)
        handed_over: dict[str, list[tuple[int, int, int]]] = (
            block_state.boundary_state_offloads
        )
        return handed_over

    def _offer(
        self,
        watched: Watched,
        first: int,
        computed: int,
        states: "Sequence[tuple[int, int, int]]" = (),
    ) -> None:
        """Tell the planner, if the step ends a chunk or is the request's first."""
        request = watched.request
        layout = self.offloader.layout
        known = min(computed, len(request.block_hashes) * layout.hash_block_tokens)
        num_chunks = known // layout.chunk_tokens
        if num_chunks <= watched.num_chunks and not states:
            return
        watched.num_chunks = max(num_chunks, watched.num_chunks)
        tables = StepTables(
            self._managers, request.request_id, states, self._state_tokens
        )
        self._handle(
            events.TokensComputed(
                request.request_id,
                request.block_hashes,
                request.num_prompt_tokens,
                first,
                computed,
                tables,
                tables.boundaries,
            )
        )

    def _rest(self, watched: Watched, computed: int) -> None:
        """Let a decoding request sleep until it can reach a boundary to store."""
        request = watched.request
        if computed < request.num_tokens:
            return
        chunk = self.offloader.layout.chunk_tokens
        boundary = (max(watched.num_chunks, 0) + 1) * chunk
        wanted = self.offloader.num_wanted_tokens(
            request.request_id, request.num_prompt_tokens, boundary
        )
        if wanted < boundary:
            self._wakeups.forget(watched)
        else:
            self._wakeups.sleep(watched, boundary - computed)

    # -- ends ----------------------------------------------------------------------

    def finished(self, request: "Request") -> None:
        """Store what the last step completed, then forget the request."""
        watched = self._watched.pop(request.request_id, None)
        if watched is not None:
            self._wakeups.forget(watched)
            if watched.has_run:
                # The last sampled token has no KV yet.
                computed = min(request.num_computed_tokens, request.num_tokens - 1)
                self._offer(watched, computed, computed)
            self._store_if_short(request.request_id)
        self._handle(events.RequestFinished(request.request_id))
        if self._kv_events is not None:
            self._kv_events.close(request.request_id)

    def take_report(self, report: Any) -> None:
        """End the jobs that every rank has ended."""
        if report is None:
            return
        assert isinstance(report, WorkerReport)
        for job in self._jobs.take_report(report):
            self._handle(events.JobDone(job.job_id, job.has_failed, job.seconds))
            self._jobs.release(job.job_id)

    def step_ended(self) -> None:
        """The engine has taken in the outcome of the oldest step under way."""
        step = self._step_times.end(self.clock()) if self._settings.cost_rule else None
        if step is not None and step.num_prefill_tokens:
            self._handle(
                events.StepEnded(step.num_tokens, step.num_prefill_tokens, step.seconds)
            )

    def reset(self) -> bool:
        """Forget everything; False while jobs are in flight."""
        answer = self._handle(events.Reset())
        assert isinstance(answer, actions.ResetAnswer)
        return answer.is_done

    def has_pending_block_frees(self) -> bool:
        """Whether a copy's end would free a block."""
        blocks = self._jobs.device_blocks
        return blocks is not None and blocks.holds_last_reference()

    def has_work(self) -> bool:
        """Whether jobs wait to be handed over or to be reported."""
        return self._jobs.has_work()

    @property
    def num_watched(self) -> int:
        """Requests that are followed."""
        return len(self._watched)

    @property
    def num_overtaken(self) -> int:
        """Copies that a step had to wait for, since start."""
        return self._jobs.num_overtaken

    def take_kv_events(self) -> "Sequence[KVCacheEvent]":
        """Blocks that became loadable or left since the last call."""
        return self._kv_events.take() if self._kv_events is not None else ()

    def take_stats(self) -> "CellarStats | None":
        """What was counted since figures were last handed over, if they are due.

        Asked after every step. While requests run there will be another one, so figures
        may wait until they are worth it: reading them all takes longer than a step's
        plan. With the last request everything is told.
        """
        if self._offloader is None or self.num_changes == self._num_counted:
            return None
        now = self.clock()
        if self._watched and now < self._stats_due:
            return None
        self._stats_due = now + _STATS_SECONDS
        self._num_counted = self.num_changes
        num_bad_controls = self._control_reader.num_bad
        return self._counts.since_last(self._offloader, self._jobs, num_bad_controls)

    def _handle(self, event: events.Event) -> actions.Action | None:
        """Let the planner decide; queue its jobs; return its answer, if any."""
        answer = None
        self.num_changes += 1
        try:
            for action in self.offloader.handle(event, self.clock()):
                if isinstance(action, (actions.Promise, actions.ResetAnswer)):
                    answer = action
                else:
                    self._jobs.add(action)
        finally:
            self.num_changes += 1
        return answer


def _horizon(vllm_config: "VllmConfig", managers: Any) -> int:
    """Blocks that two steps can take: the one that runs and the one after it."""
    scheduler = vllm_config.scheduler_config
    tokens, requests = scheduler.max_num_batched_tokens, scheduler.max_num_seqs
    per_step: int = sum(-(-tokens // m.block_size) + requests for m in managers)
    return 2 * per_step


def _num_draft_tokens(vllm_config: "VllmConfig") -> int:
    speculative = vllm_config.speculative_config
    return int(speculative.num_speculative_tokens) if speculative else 0
