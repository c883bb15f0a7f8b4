"""The checks of a job's block and cell numbers, before any byte is copied."""

from collections.abc import Sequence

from kvcellar.device.pages import DirectionTables
from kvcellar.errors import InvariantError
from kvcellar.transfer.jobs import BlockNumbers, CopyJob, Direction, GroupCopy


def paired_numbers(
    copy: GroupCopy, direction: Direction
) -> tuple[BlockNumbers, BlockNumbers]:
    """Destination and source numbers of one group's copies.

    Raises:
        InvariantError: the lists are of unequal length.
    """
    if len(copy.device_blocks) != len(copy.host_blocks):
        raise InvariantError(
            f"group {copy.position}: {len(copy.device_blocks)} blocks are paired with "
            f"{len(copy.host_blocks)}"
        )
    if direction is Direction.LOAD:
        return copy.device_blocks, copy.host_blocks
    return copy.host_blocks, copy.device_blocks


def bounds_of(tables: DirectionTables, position: int) -> tuple[int, int]:
    """What a group's destination and source numbers must be below."""
    return tables.destination_bounds[position], tables.source_bounds[position]


def out_of_range(
    copy: GroupCopy, direction: Direction, numbers: BlockNumbers, bound: int
) -> InvariantError:
    """The error for numbers that are negative or not below ``bound``."""
    return InvariantError(
        f"group {copy.position}: {direction} asks for block or cell "
        f"{numbers.min()} to {numbers.max()}, but there are {bound}"
    )


def checked_numbers(
    tables: DirectionTables, copy: GroupCopy, direction: Direction
) -> tuple[BlockNumbers, BlockNumbers]:
    """Destination and source numbers, all of them in range.

    Raises:
        InvariantError: the lists are of unequal length, or a number is out of range.
    """
    pairs = paired_numbers(copy, direction)
    for numbers, bound in zip(pairs, bounds_of(tables, copy.position), strict=True):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < bound:
            raise out_of_range(copy, direction, numbers, bound)
    return pairs


def check_numbers(tables: DirectionTables, job: CopyJob) -> None:
    """Check all of a job's numbers.

    Raises:
        InvariantError: as ``checked_numbers``.
    """
    for copy in job.copies:
        checked_numbers(tables, copy, job.direction)


def refuse_overlap(job: CopyJob, class_of: Sequence[int]) -> None:
    """Refuse a move that reads a cell it overwrites. Cells are numbered per class.

    Raises:
        InvariantError: it does; within a job the order must not matter.
    """
    read: set[tuple[int, int]] = set()
    written: set[tuple[int, int]] = set()
    for copy in job.copies:
        size_class = class_of[copy.position]
        read.update((size_class, cell) for cell in copy.device_blocks.tolist())
        written.update((size_class, cell) for cell in copy.host_blocks.tolist())
    if read & written:
        raise InvariantError(
            f"job {job.job_id} moves a cell that the same job overwrites"
        )
