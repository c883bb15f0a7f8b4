"""How many cells of each size make a slab, on one rank or on several at once.

    rank 0   [ slab 0     | slab 1     | ... ]    cells of 3 and 2 bytes
    rank 1   [ slab 0         | slab 1         | ... ]    the same cells: 4 and 3 bytes

A cell is named by its number in its size class, and one plan serves all ranks, so every
rank must have as many cells in a slab of a class, and as many slabs, as every other.
Bytes may differ. Several ranks are cut as one that has their bytes together:

    weight of a class   the bytes of its cell on all ranks; on the fullest rank, where
                        each rank has a memory of its own
    slab                about as many bytes of every class, by weight

That wastes as little as one numbering can: with ``x[k]`` cells of class k, the slab of
rank r takes ``max over k of x[k] * bytes[k][r]``, and for a given least payload of a
slab all of these are smallest when every class has just that payload. What is left is
the difference between ranks: a rank that holds much of one class and little of another
cannot fill its slab with both. Pure integers, but for shares that are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcellar.config import HostBudget
from kvcellar.errors import ConfigError

MAX_SLAB_WASTE = 0.005  # share of a slab that no cell covers
MIN_SLABS_PER_CLASS = 4  # fewer, and a class can starve the others
MIN_CELLS_PER_SLAB = 16  # of the largest; fewer, and book-keeping grows for nothing

ClassBytes = tuple[int, ...]
"""Bytes of one cell of a size class on each rank; 0 where a rank has none of it."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One cut of all ranks' memory.

    Attributes:
        cells_per_slab: by size class, the same on every rank.
        slab_bytes: by rank.
        num_slabs: the same on every rank.
    """

    cells_per_slab: tuple[int, ...]
    slab_bytes: tuple[int, ...]
    num_slabs: int


def choose_cut(classes: Sequence[ClassBytes], budget: HostBudget) -> Cut:
    """Cut the memory of all ranks.

    Args:
        classes: every size class, the smallest first.
        budget: what there is; where ranks share it, each gets what its slabs need.

    Raises:
        ConfigError: the memory cannot hold one slab of each class.
    """
    search = _Search(classes, budget)
    cells = search.best()
    slabs = search.slabs(cells)
    num_slabs = budget.num_bytes // search.counted(slabs)
    if num_slabs < len(classes):
        needed = search.counted(search.slabs(search.cells(1))) * len(classes)
        whose = "per rank" if budget.is_per_rank else f"for {len(slabs)} rank(s)"
        raise ConfigError(
            f"host memory of {budget.num_bytes} bytes {whose} is too small: this model "
            f"needs at least {needed} bytes for one cell of each of its "
            f"{len(classes)} sizes; raise host_memory"
        )
    return Cut(cells, slabs, num_slabs)


class _Search:
    """Tries slabs of one, two, three ... cells of the largest class.

    A slab of m largest cells wastes at most 1/m of itself more than the ranks'
    difference does, so the search ends at ``1 / MAX_SLAB_WASTE``. An arena with room
    for that many has a cut that no longer depends on its size, and more memory never
    means fewer cells. In smaller ones, ``MIN_SLABS_PER_CLASS`` comes first and the
    least waste second.
    """

    def __init__(self, classes: Sequence[ClassBytes], budget: HostBudget) -> None:
        self._by_rank = tuple(zip(*classes, strict=True))
        self._budget = budget
        self._weights = [self.counted(sizes) for sizes in classes]
        self._largest = max(self._weights)

    def best(self) -> tuple[int, ...]:
        """Cells per slab of each class."""
        num_slabs = MIN_SLABS_PER_CLASS * len(self._weights)
        one = self.counted(self.slabs(self.cells(1)))
        limit = self._budget.num_bytes // num_slabs // one
        most = self._unavoidable() + MAX_SLAB_WASTE
        enough = range(MIN_CELLS_PER_SLAB, limit + 1)
        good = next((m for m in enough if self._waste(m) <= most), None)
        return self.cells(good or min(range(1, max(limit, 1) + 1), key=self._waste))

    def cells(self, multiple: int) -> tuple[int, ...]:
        """Cells of each class in a slab of so many of the largest."""
        return tuple(multiple * self._largest // weight for weight in self._weights)

    def slabs(self, cells: Sequence[int]) -> tuple[int, ...]:
        """Bytes of a slab on each rank; one where a rank has nothing of any class."""
        return tuple(
            max(1, *(n * size for n, size in zip(cells, sizes, strict=True)))
            for sizes in self._by_rank
        )

    def counted(self, by_rank: Sequence[int]) -> int:
        """Bytes on the ranks, as the budget counts them."""
        return max(by_rank) if self._budget.is_per_rank else sum(by_rank)

    def _waste(self, multiple: int) -> float:
        """Share of a slab that the class that fills it worst does not cover."""
        cells = self.cells(multiple)
        slab = self.counted(self.slabs(cells))
        held = min(n * w for n, w in zip(cells, self._weights, strict=True))
        return (slab - held) / slab

    def _unavoidable(self) -> float:
        """The waste that ranks' differences alone cause, however fine the cells."""
        filled = [
            max(n / weight for n, weight in zip(sizes, self._weights, strict=True))
            for sizes in self._by_rank
        ]
        fill: float = max(filled) if self._budget.is_per_rank else sum(filled)
        return max(1 - 1 / fill, 0.0)
