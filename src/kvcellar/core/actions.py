"""What the planner asks for. Lists of actions must be carried out in order."""

from dataclasses import dataclass, field

from kvcellar.index.slabs import CellMove


@dataclass(slots=True)
class BlockCopies:
    """Blocks of one group, paired one to one between device and host.

    Attributes:
        position: layout position of the group.
        device_blocks: device block ids.
        host_blocks: host block numbers, ``cell * blocks_per_cell + index in cell``.
    """

    position: int
    device_blocks: list[int] = field(default_factory=list)
    host_blocks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Promise:
    """Answer to a look-up.

    Attributes:
        external_tokens: tokens beyond the local prefix that can be loaded; 0 is a
            miss. Everything they need is pinned until it is loaded or dropped.
    """

    request_id: str
    external_tokens: int


@dataclass(slots=True)
class Store:
    """Copy blocks to host once the step that is about to run has written them."""

    job_id: int
    copies: list[BlockCopies]


@dataclass(slots=True)
class Load:
    """Copy blocks from host into a request's own blocks."""

    job_id: int
    request_id: str
    copies: list[BlockCopies]


@dataclass(slots=True)
class LoadRefused:
    """What the engine wants loaded cannot be: the request must recompute."""

    request_id: str


@dataclass(slots=True)
class Move:
    """Move cells inside host memory, before any action planned later."""

    job_id: int
    moves: list[CellMove]


@dataclass(slots=True)
class ResetAnswer:
    """Whether a reset is complete; if not, ask again once jobs have ended."""

    is_done: bool


Action = Promise | Store | Load | LoadRefused | Move | ResetAnswer
