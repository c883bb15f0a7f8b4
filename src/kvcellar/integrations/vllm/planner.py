"""The planner within one engine: when it is built, how it is told, who looks at it."""

import time
from typing import TYPE_CHECKING, Any

from kvcellar.core import actions
from kvcellar.errors import IncompatibleError
from kvcellar.integrations.vllm.kv_events import KvEvents, are_followed
from kvcellar.integrations.vllm.messages import RankHandshake
from kvcellar.integrations.vllm.start import build_planner
from kvcellar.integrations.vllm.status import EngineStatus, engine_facts, start_status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm.config import VllmConfig
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

    from kvcellar.config import Settings
    from kvcellar.core import events
    from kvcellar.core.offloader import Offloader
    from kvcellar.integrations.vllm.event_content import RequestContent
    from kvcellar.integrations.vllm.jobs import Jobs
    from kvcellar.status.server import StatusServer


class EnginePlanner:
    """Takes events; what the planner decides on them becomes jobs.

    Args:
        jobs: where its decisions are queued.

    Attributes:
        clock: the planner's, in seconds.
        num_changes: goes up when the planner begins to change and again when it has
            ended; so an odd number says that it is changing now.
        is_followed: whether the engine publishes KV events.
        kv_events: the planner's changes as KV events; None before it is built, and
            where nobody follows them.
    """

    def __init__(
        self,
        vllm_config: "VllmConfig",
        kv_cache_config: "KVCacheConfig",
        settings: "Settings",
        jobs: "Jobs",
    ) -> None:
        self._vllm_config = vllm_config
        self._kv_cache_config = kv_cache_config
        self._settings = settings
        self._jobs = jobs
        self._offloader: Offloader | None = None
        self._handshakes: dict[tuple[int, int], RankHandshake] | None = None
        self._status: StatusServer | None = None
        self.clock: Callable[[], float] = time.monotonic
        self.num_changes = 0
        self.is_followed = are_followed(vllm_config)
        self.kv_events: KvEvents | None = None

    # -- built ---------------------------------------------------------------------

    def set_handshakes(self, handshakes: "Mapping[tuple[int, int], Any]") -> None:
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
    def is_built(self) -> bool:
        """Whether there is a planner yet."""
        return self._offloader is not None

    @property
    def offloader(self) -> "Offloader":
        """The planner; built at the handshake, or at first use where there is none."""
        return self._offloader or self._build({})

    def _build(self, handshakes: dict[tuple[int, int], RankHandshake]) -> "Offloader":
        self._offloader = build_planner(
            self._vllm_config, self._kv_cache_config, self._settings, handshakes
        )
        groups = self._offloader.layout.groups
        self._jobs.in_flight.block_bytes = [group.payload_bytes for group in groups]
        if self.is_followed:
            self.kv_events = KvEvents(self._offloader, self._kv_cache_config)
        self._start_status(self._offloader)
        return self._offloader

    # -- told ----------------------------------------------------------------------

    def handle(self, event: "events.Event") -> actions.Action | None:
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

    # -- looked at -----------------------------------------------------------------

    def content_of(self, request: "Request") -> "RequestContent | None":
        """What a request that has arrived will hold; None if nobody follows."""
        if not self.is_followed:
            return None
        _ = self.offloader  # built here at the latest, with its events
        assert self.kv_events is not None
        return self.kv_events.content(request)

    def _start_status(self, offloader: "Offloader") -> None:
        """Answer questions about the engine, if that is wanted."""
        if self._status is None and self._settings.status_socket:
            num_ranks = self._vllm_config.parallel_config.world_size
            facts = engine_facts(self._vllm_config, num_ranks)
            status = EngineStatus(
                offloader, self._jobs, lambda: self.num_changes, facts
            )
            self._status = start_status(status)

    def close(self) -> None:
        """Stop answering questions."""
        if self._status is not None:
            self._status.close()
