"""Least recently used: the base policy."""

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.policy import T


def lru_key(node: Evictable) -> tuple[float, float]:
    """What was used longest ago goes first."""
    return (node.last_use, 0.0)


class LruPolicy(KeyedPolicy[T]):
    """The oldest stamp goes first, and of one request the deepest."""

    wants_history = False
    superseded_first = True

    def __init__(self) -> None:
        super().__init__(lru_key)
