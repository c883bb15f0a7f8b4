"""What a worker is asked to copy, and what it answers."""

import enum
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BlockNumbers = npt.NDArray[np.int64]


class Direction(enum.StrEnum):
    """Which way a job's bytes go."""

    STORE = "store"
    LOAD = "load"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class GroupCopy:
    """Blocks of one group, paired one to one.

    Attributes:
        position: the group's position in the layout.
        device_blocks: **[n]** block ids on the device; in a move, the source cells.
        host_blocks: **[n]** host block numbers, ``cell * blocks_per_cell + j``; in a
            move, the destination cells.
    """

    position: int
    device_blocks: BlockNumbers
    host_blocks: BlockNumbers


@dataclass(frozen=True, slots=True)
class CopyJob:
    """One unit of completion. Jobs are executed in the order they were submitted.

    Within a job there is no order: no block may be written twice, or read and written.
    """

    job_id: int
    direction: Direction
    copies: tuple[GroupCopy, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended. A failure travels here, never as an exception.

    Attributes:
        num_bytes: bytes copied; 0 if it failed.
        seconds: time the copy took, without waiting in the queue.
        error: None on success, else what went wrong.
    """

    job_id: int
    direction: Direction
    num_bytes: int
    seconds: float
    error: str | None = None
