"""The serving planner inside a replay: its events, its jobs, the bytes they move."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.offloader import Offloader
from kvcellar.core.waiting import BlockKey, CachedBlocks
from kvcellar.index.states import READY
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry
from kvcellar.replay.host_base import Host, HostJob, StepBlocks


class HostSide(Host):
    """One ``Offloader``, and the bytes of what it decides.

    Args:
        layout: the coarse layout.
        host_bytes: host memory of one rank.
    """

    def __init__(
        self, layout: CacheLayout, host_bytes: int, settings: Settings
    ) -> None:
        super().__init__(layout)
        self.planner = Offloader(layout, plan_geometry(layout, host_bytes), settings)
        self.is_lazy = settings.mode == "lazy"
        self._nodes = self.planner.index.nodes
        self._block_bytes = [group.payload_bytes for group in layout.groups]

    def look_up(self, event: events.LookUp, now: float) -> int:
        """Tokens beyond the local ones that can be loaded."""
        (promise,) = self.planner.handle(event, now)
        assert isinstance(promise, actions.Promise)
        return promise.external_tokens

    def allocated(
        self, request_id: str, external_tokens: int, tables: StepBlocks, now: float
    ) -> HostJob | None:
        """The request has its blocks; the load, if there is one."""
        event = events.Allocated(request_id, external_tokens, tables)
        for action in self.planner.handle(event, now):
            if isinstance(action, actions.Load):
                return self._job(action.job_id, action.copies)
        return None

    def computed(self, event: events.TokensComputed, now: float) -> list[HostJob]:
        """Stores of a step."""
        return self._stores(self.planner.handle(event, now), now)

    def threatened(
        self, blocks: Sequence[BlockKey], cached: CachedBlocks, now: float
    ) -> list[HostJob]:
        """Stores of what the device is about to lose; lazy mode."""
        event = events.BlocksThreatened(blocks, cached)
        return self._stores(self.planner.handle(event, now), now)

    def finished(self, request_id: str, now: float) -> None:
        """The request has ended."""
        self.planner.handle(events.RequestFinished(request_id), now)

    def done(self, job_id: int, now: float) -> None:
        """The copies have ended."""
        self.planner.handle(events.JobDone(job_id), now)

    def is_held(self, key: bytes) -> bool:
        """Whether the chunk that ends at a prefix hash is there, or on its way."""
        return key in self._nodes

    def is_ready(self, key: bytes) -> bool:
        """Whether it could be loaded now."""
        node = self._nodes.get(key)
        return node is not None and node.state is READY

    def counters(self) -> dict[str, int]:
        """The planner's and the index's counters by name."""
        return asdict(self.planner.counters) | asdict(self.planner.index.counters)

    def _stores(self, planned: Iterable[actions.Action], now: float) -> list[HostJob]:
        jobs = []
        for action in planned:
            if isinstance(action, actions.Store):
                jobs.append(self._job(action.job_id, action.copies))
            elif isinstance(action, actions.Move):  # inside host memory: takes no time
                self.done(action.job_id, now)
        return jobs

    def _job(self, job_id: int, copies: Iterable[actions.BlockCopies]) -> HostJob:
        sizes = self._block_bytes
        num_bytes = sum(sizes[c.position] * len(c.host_blocks) for c in copies)
        return HostJob(job_id, num_bytes)
