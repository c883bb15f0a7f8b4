"""What every kind of host memory in a replay has in common: the layout it keeps."""

from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass

from kvcellar.attention.hybrid import HybridRules
from kvcellar.attention.rule import RetentionRule
from kvcellar.core import events
from kvcellar.core.waiting import BlockKey, CachedBlocks
from kvcellar.layout.groups import CacheLayout


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

    __slots__ = ("_windows", "kept")

    def __init__(self, windows: dict[int, RetentionRule], kept: Set[int]) -> None:
        self._windows = windows
        self.kept = kept

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Some blocks; which ones makes no difference here."""
        return [1] * len(indices)

    def is_kept(self, group_id: int, index: int) -> bool:
        """Chunks always; windows at some boundaries."""
        rule = self._windows.get(group_id)
        return rule is None or any(index in rule.needed(b) for b in self.kept)


class Host(ABC):
    """Host memory: asked what it holds, told what is computed.

    Args:
        layout: the coarse layout.

    Attributes:
        is_lazy: whether it wants to know what the device gives away.
        is_prefix_closed: whether what it holds of a prompt is always its beginning.
    """

    is_lazy = False
    is_prefix_closed = True

    def __init__(self, layout: CacheLayout) -> None:
        self.layout = layout
        self.rules = HybridRules(layout)
        self._unit = layout.chunk_tokens
        self._windows = {
            layout.groups[position].group_id: self.rules.rules[position]
            for position in layout.checkpoint_positions
        }

    @abstractmethod
    def look_up(self, event: events.LookUp, now: float) -> int:
        """Tokens beyond the local ones that can be loaded."""

    @abstractmethod
    def allocated(
        self, request_id: str, external_tokens: int, tables: StepBlocks, now: float
    ) -> HostJob | None:
        """The request has its blocks; the load, if there is one."""

    @abstractmethod
    def computed(self, event: events.TokensComputed, now: float) -> list[HostJob]:
        """Stores of a step."""

    @abstractmethod
    def finished(self, request_id: str, now: float) -> None:
        """The request has ended."""

    @abstractmethod
    def done(self, job_id: int, now: float) -> None:
        """The copies have ended."""

    @abstractmethod
    def is_held(self, key: bytes) -> bool:
        """Whether the chunk that ends at a prefix hash is there, or on its way."""

    @abstractmethod
    def is_ready(self, key: bytes) -> bool:
        """Whether it could be loaded now."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """What has been counted, by name."""

    def threatened(
        self, blocks: Sequence[BlockKey], cached: CachedBlocks, now: float
    ) -> list[HostJob]:
        """Stores of what the device is about to lose; lazy mode."""
        raise NotImplementedError

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


def _is_within(part: range, whole: range) -> bool:
    return not part or (whole.start <= part.start and part.stop <= whole.stop)
