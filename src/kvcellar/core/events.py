"""What happens to the planner. A recorded list of these is a trace that replays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kvcellar.core.controls import NO_CONTROLS, RequestControls
from kvcellar.core.waiting import BlockKey, CachedBlocks


class BlockTables(Protocol):
    """One request's block tables, read lazily: nobody copies a whole table."""

    def block_ids(self, group_id: int, indices: range) -> list[int]:
        """Device blocks at these places of the engine's group; 0 where none is."""
        ...

    def is_kept(self, group_id: int, index: int) -> bool:
        """Whether the engine can find the block again once the request has gone."""
        ...


@dataclass(slots=True)
class Arrived:
    """A request that brings something along. Others need not be announced.

    Attributes:
        controls: its wishes.
        content: what its blocks hold; None if nobody follows.
        tenant: name of who pays for what is stored; None if nobody is bounded.
    """

    request_id: str
    controls: RequestControls = NO_CONTROLS
    content: object | None = None
    tenant: str | None = None


@dataclass(slots=True)
class LookUp:
    """The engine asks how much of a prompt can be loaded. May be asked again.

    Attributes:
        hashes: prefix hashes, one per hash block; may be shorter next time.
        num_tokens: tokens of the request so far; the hit is at most one less.
        local_tokens: prefix that the device itself holds.
    """

    request_id: str
    hashes: Sequence[bytes]
    num_tokens: int
    local_tokens: int


@dataclass(slots=True)
class Allocated:
    """The engine admitted a request and gave it blocks.

    Attributes:
        external_tokens: tokens to load beyond the local prefix of the last look-up;
            0, or fewer than were promised, is normal.
        opening: a number that stands for the tokens of the first chunk alone, without
            salt, adapter or media; None if nobody has worked it out.
    """

    request_id: str
    external_tokens: int
    tables: BlockTables
    opening: int | None = None


@dataclass(slots=True)
class TokensComputed:
    """A step that is about to run computes a request's tokens up to a position.

    Attributes:
        hashes: prefix hashes known by now.
        num_prompt_tokens: tokens of the prompt, without what was decoded.
        first_token: first token the step computes.
        computed_tokens: tokens computed once the step has run, drafts left out.
        tables: the block tables as they are during this step.
        handed_over: boundaries that the engine itself keeps and hands over now, which
            is the only time when recurrent state can be copied.
    """

    request_id: str
    hashes: Sequence[bytes]
    num_prompt_tokens: int
    first_token: int
    computed_tokens: int
    tables: BlockTables
    handed_over: Sequence[int] = ()


@dataclass(slots=True)
class RequestFinished:
    """The request ended in any way; jobs it started go on."""

    request_id: str


@dataclass(slots=True)
class JobDone:
    """Every rank has reported a job.

    Attributes:
        seconds: that the slowest rank copied; 0 if it is not known.
    """

    job_id: int
    has_failed: bool = False
    seconds: float = 0.0


@dataclass(slots=True)
class StepEnded:
    """The engine has carried out a step.

    Attributes:
        num_tokens: that it computed.
        num_prefill_tokens: of these, those that were not decoded one by one.
        seconds: that it took, without waiting for work.
    """

    num_tokens: int
    num_prefill_tokens: int
    seconds: float


@dataclass(slots=True)
class Reset:
    """Everything held is invalid, for example after a weight update."""


@dataclass(slots=True)
class BlocksThreatened:
    """Blocks near the head of the device's free queue. Lazy mode only.

    Attributes:
        blocks: their engine group ids and prefix hashes.
        cached: the device's prefix cache as it is now.
    """

    blocks: Sequence[BlockKey]
    cached: CachedBlocks


Event = (
    Arrived
    | LookUp
    | Allocated
    | TokensComputed
    | RequestFinished
    | JobDone
    | StepEnded
    | Reset
    | BlocksThreatened
)
