"""What a live view shows, in numbers and words, without a place on the screen."""

from dataclasses import dataclass
from enum import StrEnum

SOURCES = ("device", "host", "computed")


@dataclass(frozen=True, slots=True)
class Sources:
    """Prompt tokens by where they came from."""

    device: float = 0.0
    host: float = 0.0
    computed: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.device + self.host + self.computed

    def share(self, source: str) -> float:
        """One source's share; 0 if there was nothing."""
        total = self.total
        return float(getattr(self, source)) / total if total else 0.0

    @property
    def served_share(self) -> float:
        """What nobody had to compute, as a share."""
        return self.share("device") + self.share("host")


@dataclass(frozen=True, slots=True)
class Server:
    """Who answers.

    Attributes:
        model: its name.
        setting: mode and eviction policy.
        uptime_seconds: of the engine that started last.
        engine: which one is shown; None for all together.
        num_engines: behind this server.
    """

    model: str
    setting: str
    uptime_seconds: float
    engine: int | None
    num_engines: int


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory of all ranks of the engines shown, added up; payload bytes.

    Attributes:
        chunk_bytes: of chunks.
        checkpoint_bytes: of checkpoints.
        free_bytes: the rest of the capacity.
        evicted_per_second: chunks.
        unused_share: of the evicted chunks, those that had never been loaded.
        tenants: bounded ones; ``fullest`` names one with its share of its bound.
    """

    capacity_bytes: float
    chunk_bytes: float
    checkpoint_bytes: float
    num_chunks: float
    num_checkpoints: float
    num_pinned_chunks: float
    leased_bytes: float
    num_leases: float
    stored_per_second: float
    evicted_per_second: float
    unused_share: float
    num_tenants: float = 0
    fullest: tuple[str, float] | None = None

    @property
    def free_bytes(self) -> float:
        """Room that nothing fills."""
        return max(self.capacity_bytes - self.chunk_bytes - self.checkpoint_bytes, 0.0)

    @property
    def used_share(self) -> float:
        """How full it is."""
        return 1 - self.free_bytes / self.capacity_bytes if self.capacity_bytes else 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """The engine's own cache, and what runs on it."""

    num_blocks: float
    num_held_blocks: float
    num_requests: float

    @property
    def held_share(self) -> float:
        """What running requests hold."""
        return self.num_held_blocks / self.num_blocks if self.num_blocks else 0.0


@dataclass(frozen=True, slots=True)
class CopyRow:
    """Copies in one direction.

    Attributes:
        seconds_each: from the decision to the end, on average; None if none ended.
    """

    direction: str
    num_under_way: float
    bytes_per_second: float
    num_ended: float
    seconds_each: float | None
    num_failed: float


@dataclass(frozen=True, slots=True)
class Loading:
    """Load or compute: choices within the window, and the rates behind them.

    Attributes:
        saved_seconds: prefill time that the tokens from host memory would have taken
            at the best rate measured so far; None as long as none was measured.
    """

    num_loaded: float
    num_too_short: float
    num_too_cheap: float
    bytes_per_second: float
    prefill_tokens_per_second: float
    saved_seconds: float | None


@dataclass(frozen=True, slots=True)
class MissRow:
    """One reason, with the tokens computed for it and their share of all computed."""

    words: str
    tokens: float
    share: float


@dataclass(frozen=True, slots=True)
class PrefixRow:
    """A prefix that many requests were resumed behind, counted since start."""

    key: str
    tokens: float
    num_requests: float
    served_tokens: float
    host_share: float


@dataclass(frozen=True, slots=True)
class EngineRow:
    """One engine of several."""

    engine: int
    is_missing: bool
    served_share: float
    tokens_per_second: float
    used_share: float
    num_requests: float


class Level(StrEnum):
    """How much a remark matters."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about what the figures mean."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class View:
    """Everything that is shown.

    Attributes:
        silence: why the figures are old; empty if they are not.
        window_seconds: that rates and shares are taken over.
        wished_seconds: that they would be with a longer history; None: since start.
        slots: sources per second by slot of time, the newest last; None where nothing
            is known.
        slot_seconds: of each slot.
        remarks: what matters most first.
    """

    server: Server
    silence: str
    window_seconds: float
    wished_seconds: float | None
    sources: Sources
    tokens_per_second: float
    requests_per_second: float
    slots: tuple[Sources | None, ...]
    slot_seconds: float
    host: HostMemory
    device: Device
    copies: tuple[CopyRow, ...]
    loading: Loading
    misses: tuple[MissRow, ...]
    prefixes: tuple[PrefixRow, ...]
    engines: tuple[EngineRow, ...]
    remarks: tuple[Remark, ...] = ()
