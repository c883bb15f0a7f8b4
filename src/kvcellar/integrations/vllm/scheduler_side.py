"""The planning half: what vLLM's scheduler calls, in the order of a step.

One instance per engine, on the engine's scheduler thread. Calls become events for the
planner; what it decides becomes jobs, which the step's metadata takes to the workers.
"""

import time
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger

from kvcellar.config import settings_from_extra_config
from kvcellar.core import actions, events
from kvcellar.core.controls import NO_CONTROLS, RequestControls
from kvcellar.integrations.vllm.compat import (
    DeviceBlocks,
    blocks_written_early,
    group_managers,
    state_group_tokens,
    writes_blocks_early,
)
from kvcellar.integrations.vllm.controls import ControlReader
from kvcellar.integrations.vllm.following import Following
from kvcellar.integrations.vllm.jobs import Jobs
from kvcellar.integrations.vllm.messages import CellarMetadata, WorkerReport
from kvcellar.integrations.vllm.planner import EnginePlanner
from kvcellar.integrations.vllm.scheduler_counts import SchedulerCounts
from kvcellar.integrations.vllm.step_times import StepTimes
from kvcellar.integrations.vllm.threats import Threats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm.config import VllmConfig
    from vllm.distributed.kv_events import KVCacheEvent
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.core.offloader import Offloader
    from kvcellar.integrations.vllm.stats import CellarStats

logger = init_logger("vllm.kvcellar")

_STATS_SECONDS = 0.1  # between two readings of all figures; who scrapes asks far less


class SchedulerSide:
    """Plans loads and stores; pins what they read; publishes what they wrote."""

    def __init__(
        self, vllm_config: "VllmConfig", kv_cache_config: "KVCacheConfig"
    ) -> None:
        self._vllm_config = vllm_config
        transfer_config = vllm_config.kv_transfer_config
        assert transfer_config is not None
        self._settings = settings_from_extra_config(
            transfer_config.kv_connector_extra_config
        )
        self._jobs = Jobs(vllm_config.parallel_config.world_size)
        self._planner = EnginePlanner(
            vllm_config, kv_cache_config, self._settings, self._jobs
        )
        most_decoded = 1 + _num_draft_tokens(vllm_config)
        self._following = Following(self._planner, most_decoded)
        self._threats: Threats | None = None
        self._step_times = StepTimes(most_decoded)
        self._writes_early = writes_blocks_early(vllm_config)
        self._state_tokens: dict[int, int] = {}
        self._control_reader = ControlReader()
        self._counts = SchedulerCounts()
        self._stats_due = 0.0
        self._num_counted = -1
        if transfer_config.kv_load_failure_policy != "recompute":
            logger.warning(
                "kvcellar: kv_load_failure_policy is %r, so a failed load fails its "
                'request; set it to "recompute" in --kv-transfer-config',
                transfer_config.kv_load_failure_policy,
            )

    # -- the engine starts ---------------------------------------------------------

    def bind(self, kv_cache_manager: "KVCacheManager") -> None:
        """Take the engine's block tables and pool."""
        managers = group_managers(kv_cache_manager)
        self._state_tokens = state_group_tokens(managers)
        self._following.bind(managers, self._state_tokens)
        device_blocks = DeviceBlocks(kv_cache_manager.block_pool)
        self._jobs.device_blocks = device_blocks
        if self._settings.mode == "lazy":
            self._threats = Threats(
                self._planner, device_blocks, managers, self._vllm_config
            )

    def set_handshakes(self, handshakes: dict[tuple[int, int], Any]) -> None:
        """Build the planner from what the ranks found, as ``EnginePlanner`` does."""
        self._planner.set_handshakes(handshakes)

    # -- a request comes -----------------------------------------------------------

    def arrived(self, request: "Request") -> None:
        """Tell the planner what a new request brings along, if it does."""
        controls = self._control_reader.read(request)
        content = self._planner.content_of(request)
        tenant = self._tenant_of(request, controls)
        if content is None and tenant is None and controls is NO_CONTROLS:
            return
        self._planner.handle(
            events.Arrived(request.request_id, controls, content, tenant)
        )

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
        promise = self._planner.handle(
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
        """The engine admitted a request; plan its load, and follow it from now on."""
        self._following.admit(request, external_tokens)

    # -- a step begins -------------------------------------------------------------

    def build_metadata(self, scheduler_output: "SchedulerOutput") -> CellarMetadata:
        """Offer what this step completes to the planner; hand over all jobs."""
        if self._settings.cost_rule:
            self._step_times.begin(
                scheduler_output.total_num_scheduled_tokens,
                len(scheduler_output.num_scheduled_tokens),
                self._planner.clock(),
            )
        self._jobs.end_overtaken(lambda: self._blocks_written_early(scheduler_output))
        self._following.step(scheduler_output)
        if self._threats is not None:
            self._threats.step()
        return self._jobs.take_metadata()

    def _blocks_written_early(self, scheduler_output: "SchedulerOutput") -> set[int]:
        """Blocks that the workers write before they can end a copy."""
        if not self._writes_early:
            return set()
        return blocks_written_early(scheduler_output, self._state_tokens)

    # -- a step has ended ----------------------------------------------------------

    def finished(self, request: "Request") -> None:
        """Store what the last step completed, then forget the request."""
        request_id = request.request_id
        if self._following.end(request) and self._threats is not None:
            self._threats.end(request_id)
        self._planner.handle(events.RequestFinished(request_id))
        if self._planner.kv_events is not None:
            self._planner.kv_events.close(request_id)

    def take_report(self, report: Any) -> None:
        """End the jobs that every rank has ended."""
        if report is None:
            return
        assert isinstance(report, WorkerReport)
        for job in self._jobs.take_report(report):
            self._planner.handle(
                events.JobDone(job.job_id, job.has_failed, job.seconds)
            )
            self._jobs.release(job.job_id)

    def take_stats(self) -> "CellarStats | None":
        """What was counted since figures were last handed over, if they are due.

        Asked after every step. While requests run there will be another one, so figures
        may wait until they are worth it: reading them all takes longer than a step's
        plan. With the last request everything is told.
        """
        planner = self._planner
        if not planner.is_built or planner.num_changes == self._num_counted:
            return None
        now = planner.clock()
        if self._following and now < self._stats_due:
            return None
        self._stats_due = now + _STATS_SECONDS
        self._num_counted = planner.num_changes
        num_bad_controls = self._control_reader.num_bad
        return self._counts.since_last(planner.offloader, self._jobs, num_bad_controls)

    def step_ended(self) -> None:
        """The engine has taken in the outcome of the oldest step under way."""
        if not self._settings.cost_rule:
            return
        step = self._step_times.end(self._planner.clock())
        if step is not None and step.num_prefill_tokens:
            self._planner.handle(
                events.StepEnded(step.num_tokens, step.num_prefill_tokens, step.seconds)
            )

    def take_kv_events(self) -> "Sequence[KVCacheEvent]":
        """Blocks that became loadable or left since the last call."""
        kv_events = self._planner.kv_events
        return kv_events.take() if kv_events is not None else ()

    # -- at any time ---------------------------------------------------------------

    def has_pending_block_frees(self) -> bool:
        """Whether a copy's end would free a block."""
        blocks = self._jobs.device_blocks
        return blocks is not None and blocks.holds_last_reference()

    def has_work(self) -> bool:
        """Whether jobs wait to be handed over or to be reported."""
        return self._jobs.has_work()

    def reset(self) -> bool:
        """Forget everything; False while jobs are in flight."""
        answer = self._planner.handle(events.Reset())
        assert isinstance(answer, actions.ResetAnswer)
        return answer.is_done

    def close(self) -> None:
        """Stop answering questions."""
        self._planner.close()

    # -- looked at from outside ----------------------------------------------------

    @property
    def offloader(self) -> "Offloader":
        """The planner; built at the handshake, or at first use where there is none."""
        return self._planner.offloader

    @property
    def clock(self) -> "Callable[[], float]":
        """The planner's, in seconds; may be set."""
        return self._planner.clock

    @clock.setter
    def clock(self, clock: "Callable[[], float]") -> None:
        self._planner.clock = clock

    @property
    def num_watched(self) -> int:
        """Requests that are followed."""
        return len(self._following)

    @property
    def num_overtaken(self) -> int:
        """Copies that a step had to wait for, since start."""
        return self._jobs.num_overtaken


def _num_draft_tokens(vllm_config: "VllmConfig") -> int:
    speculative = vllm_config.speculative_config
    return int(speculative.num_speculative_tokens) if speculative else 0
