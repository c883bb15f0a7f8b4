"""Load or recompute: whichever takes less time, as measured on this machine.

Two rates are kept: bytes per second of finished loads, and tokens per second of steps
that were mostly prefill. A load is given up only if both are known and recomputing is
clearly faster. What waits in a queue is left out of both: one waits for the copy
thread, the other for its turn in a step.

Without measurements, and once they are old, the answer is to load. So a slow moment
cannot turn loading off for good: the next load measures again. A request's answer is
given once and kept while it waits, since the engine asks in every step.
"""

import enum
from collections.abc import Callable, Iterable

from kvcellar.core.actions import BlockCopies
from kvcellar.index.index import Index
from kvcellar.index.node import Node
from kvcellar.layout.groups import CacheLayout

MARGIN = 1.25  # a load is given up if it takes more than so many times as long
FEWEST_SEEN = 8  # measurements before a rate counts
STALE_SECONDS = 60.0  # a rate that was not measured for so long is not known any more
HALF_LIFE_SECONDS = 30.0
FADE = 0.95  # what one measurement leaves of the weight of those before it
FEWEST_PREFILL_TOKENS = 64  # in a step that is to say something about prefill


class LoadChoice(enum.Enum):
    """What becomes of a request that host memory could serve."""

    LOAD = "load"
    TOO_SHORT = "too_short"
    TOO_CHEAP = "too_cheap"


class Rate:
    """An amount per second, from measurements that fade with number and time."""

    def __init__(self) -> None:
        self._amount = 0.0
        self._seconds = 0.0
        self._num_seen = 0
        self._last = 0.0

    def observe(self, amount: float, seconds: float, now: float) -> None:
        """So much was done in so many seconds. No time at all says nothing."""
        if amount <= 0 or seconds <= 0:
            return
        fade = FADE * 0.5 ** ((now - self._last) / HALF_LIFE_SECONDS)
        self._amount = self._amount * fade + amount
        self._seconds = self._seconds * fade + seconds
        self._num_seen += 1
        self._last = now

    @property
    def latest(self) -> float:
        """The rate as it was measured last; 0 before the first time."""
        return self._amount / self._seconds if self._seconds else 0.0

    def per_second(self, now: float) -> float | None:
        """The rate; None if it was seen too seldom, or too long ago."""
        is_old = now - self._last > STALE_SECONDS
        if self._num_seen < FEWEST_SEEN or is_old:
            return None
        return self.latest


class LoadCost:
    """Compares loading with recomputing.

    Args:
        min_load_tokens: fewer tokens are never loaded.
        is_measured: whether measurements decide about the others; if not, all load.

    Attributes:
        loaded: bytes per second of loads, on all ranks that the layout counts.
        computed: tokens per second of prefill.
    """

    def __init__(self, min_load_tokens: int, *, is_measured: bool) -> None:
        self._min_load_tokens = min_load_tokens
        self._is_measured = is_measured
        self.loaded = Rate()
        self.computed = Rate()

    def step_ended(
        self, num_tokens: int, num_prefill_tokens: int, seconds: float, now: float
    ) -> None:
        """A step has computed so many tokens; mostly decoding, it says nothing."""
        is_prefill = 2 * num_prefill_tokens >= num_tokens
        if is_prefill and num_prefill_tokens >= FEWEST_PREFILL_TOKENS:
            self.computed.observe(num_tokens, seconds, now)

    def choose(
        self, num_tokens: int, num_bytes: Callable[[], int], now: float
    ) -> LoadChoice:
        """Whether to load.

        Args:
            num_tokens: that need not be computed then.
            num_bytes: counts what is to be copied; asked only if it matters.
            now: seconds on the planner's clock.
        """
        if num_tokens < self._min_load_tokens:
            return LoadChoice.TOO_SHORT
        bytes_per_second = self.loaded.per_second(now)
        tokens_per_second = self.computed.per_second(now)
        if not (self._is_measured and bytes_per_second and tokens_per_second):
            return LoadChoice.LOAD
        load_seconds = num_bytes() / bytes_per_second
        compute_seconds = num_tokens / tokens_per_second
        is_cheaper = load_seconds > MARGIN * compute_seconds
        return LoadChoice.TOO_CHEAP if is_cheaper else LoadChoice.LOAD


def load_bytes(index: Index, node: Node, local_tokens: int) -> int:
    """Bytes that resuming at ``node`` copies, beyond a local prefix.

    The part of the checkpoint that lies in the local prefix is counted too: a little
    much, and known without a block table.
    """
    layout = index.rules.layout
    num_chunks = node.depth - local_tokens // index.chunk_tokens
    num_bytes = num_chunks * index.rules.chunk_bytes
    if node.checkpoint is not None:
        num_bytes += sum(layout.cell_bytes(c.position) for c in node.checkpoint.cells)
    return num_bytes


def copied_bytes(layout: CacheLayout, copies: Iterable[BlockCopies]) -> int:
    """Bytes that a job copies, on all ranks that the layout counts."""
    return sum(
        len(copy.host_blocks) * layout.groups[copy.position].payload_bytes
        for copy in copies
    )
