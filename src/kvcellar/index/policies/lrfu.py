"""LRFU: every use counts, and fades; between LRU and counting.

Source: Lee et al., LRFU, IEEE Transactions on Computers 50(12), 2001.
"""

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.policy import T


def lrfu_key(node: Evictable) -> tuple[float, float]:
    """The smallest sum of faded uses goes first."""
    return (node.score, node.last_use)


class LrfuPolicy(KeyedPolicy[T]):
    """The least used goes first, where a use counts half after the half-life."""

    def __init__(self) -> None:
        super().__init__(lrfu_key)
