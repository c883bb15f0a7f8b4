"""LRU-2: the last use but one counts.

What was used once only goes first. Source: O'Neil et al., The LRU-K page replacement
algorithm, SIGMOD 1993.
"""

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.policy import T


def lru2_key(node: Evictable) -> tuple[float, float]:
    """What was used twice longest ago goes first; once, before all of these."""
    return (node.previous, node.last_use)


class Lru2Policy(KeyedPolicy[T]):
    """The oldest use but one goes first."""

    def __init__(self) -> None:
        super().__init__(lru2_key)
