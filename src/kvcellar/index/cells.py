"""Cells: one allocation in host memory, found by number and shared by reference."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable


class Cell:
    """One group's payload for one unit: a chunk, or one block of a checkpoint.

    A cell's ``number`` changes when its slab is compacted, so holders keep the cell
    and read the number at the moment a job is written.

    Attributes:
        position: layout position of the group that owns it.
        number: ``slab * cells_per_slab + slot`` within its size class.
        refs: holders; at 0 the cell goes back to its slab.
        share_key: what other checkpoints find it by; None for chunk cells.
        has_landed: whether the copy that fills it has ended well.
        is_lost: whether the copy that should have filled it failed.
        notice: what followers are to be told of it: what its request's blocks hold,
            and the place of its first block in the request's table. None if nobody
            follows; who told them may write in its place what taking it back needs.
        is_announced: whether followers have been told.
    """

    __slots__ = (
        "has_landed",
        "is_announced",
        "is_lost",
        "notice",
        "number",
        "position",
        "refs",
        "share_key",
    )

    def __init__(self, position: int, number: int) -> None:
        self.position = position
        self.number = number
        self.refs = 1
        self.share_key: Hashable | None = None
        self.has_landed = False
        self.is_lost = False
        self.notice: object | None = None
        self.is_announced = False

    def __repr__(self) -> str:
        return f"Cell(position={self.position}, number={self.number}, refs={self.refs})"
