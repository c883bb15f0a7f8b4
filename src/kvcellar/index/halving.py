"""Finding by halving how far something holds that holds up to a point."""

from collections.abc import Callable


def num_leading(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The largest count in ``[low, high]`` that holds; ``low`` is known to.

    Args:
        holds: true up to some count and false beyond it.
    """
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return low
