"""The serving planner inside a replay: its events, its jobs, the bytes they move."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import asdict, dataclass

from kvcellar.attention.hybrid import HybridRules
from kvcellar.attention.rule import RetentionRule
from kvcellar.config import Settings
from kvcellar.core import actions, events
from kvcellar.core.offloader import Offloader
from kvcellar.core.waiting import BlockKey, CachedBlocks
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry


@dataclass(frozen=True, slots=True)
class HostJob:
    """Copies that the planner has asked for; ``HostSide.done`` ends them."""

    job_id: int
    num_bytes: int


class StepBlocks:
    """Block tables of a request during a step: nothing that it reads has gone.

    Args:
        windows: rules of the groups whose blocks the device does not keep for good.
        kept: boundaries at which the device keeps the windows of this prompt.
    """

    __slots__ = ("_kept", "_windows")

    def __init__(self, windows: dict[int, RetentionRule], kept: Set[int]) -> None:
        self._windows = windows
        self._kept = kept

    def block_id(self, group_id: int, index: int) -> int:
        """Some block; which one makes no difference here."""
        return 1

    def is_kept(self, group_id: int, index: int) -> bool:
        """Chunks always; windows at some boundaries."""
        rule = self._windows.get(group_id)
        return rule is None or any(index in rule.needed(b) for b in self._kept)


class HostSide:
    """One ``Offloader``, and the bytes of what it decides.

    Args:
        layout: the coarse layout.
        host_bytes: host memory of one rank.
    """

    def __init__(
        self, layout: CacheLayout, host_bytes: int, settings: Settings
    ) -> None:
        self.layout = layout
        self._unit = layout.chunk_tokens
        self.rules = HybridRules(layout)
        self.planner = Offloader(layout, plan_geometry(layout, host_bytes), settings)
        self.is_lazy = settings.mode == "lazy"
        self._block_bytes = [group.payload_bytes for group in layout.groups]
        self._windows = {
            layout.groups[position].group_id: self.rules.rules[position]
            for position in layout.checkpoint_positions
        }

    def look_up(self, event: events.LookUp, now: float) -> int:
        """Tokens beyond the local ones that can be loaded."""
        (promise,) = self.planner.handle(event, now)
        assert isinstance(promise, actions.Promise)
        return promise.external_tokens

    def tables(self, kept: Set[int]) -> StepBlocks:
        """Block tables of a request whose windows the device keeps at boundaries."""
        return StepBlocks(self._windows, kept)

    def served_by(self, boundary: int) -> list[int]:
        """Boundaries, descending, that need nothing but what ``boundary`` needs.

        Near the start of a prompt a window is cut off, so a shorter one is part of it.
        """
        rules, served = self._windows.values(), [boundary]
        blocks = [rule.needed(boundary) for rule in rules]
        for lower in range(boundary - self._unit, 0, -self._unit):
            pairs = zip(rules, blocks, strict=True)
            if not all(_is_within(rule.needed(lower), have) for rule, have in pairs):
                break
            served.append(lower)
        return served

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


def _is_within(part: range, whole: range) -> bool:
    return not part or (whole.start <= part.start and part.stop <= whole.stop)
