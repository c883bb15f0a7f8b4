"""What the planner remembers of one request, and of one job."""

from dataclasses import dataclass, field

from kvcellar.core.controls import NO_CONTROLS, RequestControls
from kvcellar.core.cost import LoadChoice
from kvcellar.core.origin import PLAIN, Origin
from kvcellar.core.trail import Trail
from kvcellar.index.cells import Cell
from kvcellar.index.node import Checkpoint, Node
from kvcellar.reasons import MissReason


@dataclass(slots=True)
class RequestRecord:
    """One request that the engine has not finished.

    Attributes:
        tip: deepest node known to hold this request's prefix; pinned, so that the
            chunks of a running request stay a foundation for its next ones.
        known: where the last look-up ended; only a hint for the next one.
        controls: its wishes.
        keep_until: when the lease it asks for ends at the earliest.
        origin: what it brings along for what is stored of it.
        promise: node a load was promised from; pinned.
        choice: load or recompute, while it waits; None before it is made.
        local_tokens: prefix that the device held at the last look-up.
        junction: boundary at which this prompt leaves a known path; 0 for none.
        inside: boundaries inside this request's prefill that get a checkpoint.
        placed_through: boundaries up to here have had their chance of a checkpoint.
        num_prompt_tokens: tokens of its prompt; 0 until the first are computed.
        num_waiting: lazy mode: chunks from the prompt's start that wait, or did.
        end_key: lazy mode: of the last chunk that is computed; empty for none.
        num_admitted: chunks that may be stored; None for all.
        not_admitted: why the others may not.
        is_observed: whether policies that learn have been told of it.
        num_strikes: failed loads; after the first the request is recomputed.
        is_stale: its device blocks predate a reset, so nothing of it is stored until
            the engine starts it afresh.
        trail: what accounting remembers of it.
    """

    request_id: str
    tip: Node
    known: Node
    controls: RequestControls = NO_CONTROLS
    keep_until: float = 0.0
    origin: Origin = PLAIN
    promise: Node | None = None
    choice: LoadChoice | None = None
    local_tokens: int = 0
    junction: int = 0
    inside: tuple[int, ...] = ()
    placed_through: int | None = None
    num_prompt_tokens: int = 0
    num_waiting: int = 0
    end_key: bytes = b""
    num_admitted: int | None = None
    not_admitted: MissReason = MissReason.NOT_ADMITTED
    is_observed: bool = False
    num_strikes: int = 0
    is_stale: bool = False
    trail: Trail = field(default_factory=Trail)


@dataclass(slots=True)
class StoreRecord:
    """A store in flight: what to publish when all ranks have it.

    Attributes:
        cells: cells this job fills; lost if it fails.
    """

    nodes: list[Node] = field(default_factory=list)
    checkpoints: list[tuple[Node, Checkpoint]] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


@dataclass(slots=True)
class LoadRecord:
    """A load in flight: the node it reads up to is pinned.

    Attributes:
        num_bytes: that it copies, on all ranks together.
    """

    request_id: str
    node: Node
    num_bytes: int = 0


@dataclass(slots=True)
class MoveRecord:
    """A compaction in flight: the cells whose bytes it carries."""

    cells: list[Cell]


JobRecord = StoreRecord | LoadRecord | MoveRecord
