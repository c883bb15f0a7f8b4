"""From a policy's name to the policy."""

from functools import partial

from kvcellar.attention.hybrid import HybridRules
from kvcellar.index.policies.adaptive import AdaptivePolicy
from kvcellar.index.policies.classes import PriorityClasses
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.lru2 import Lru2Policy
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.policies.s3fifo import S3FifoPolicy


def make_classes(
    first: EvictionPolicy, name: str, rules: HybridRules
) -> PriorityClasses:
    """Priority classes around a policy that ``make_policy`` made.

    Args:
        first: that policy.
        name: its name.
        rules: of the layout that is kept.
    """
    if isinstance(first, AdaptivePolicy):
        return PriorityClasses(first, first.another)
    return PriorityClasses(first, partial(make_policy, name, rules, 0))


def make_policy(name: str, rules: HybridRules, arena_bytes: int) -> EvictionPolicy:
    """The policy of that name for one cache.

    Args:
        name: one of ``config.EVICTION_POLICIES``.
        rules: of the layout that is kept.
        arena_bytes: size of the cache.

    Raises:
        ValueError: there is no such policy.
    """
    if name == "lru":
        return LruPolicy()
    if name == "lru-2":
        return Lru2Policy()
    if name == "lrfu":
        return LrfuPolicy()
    if name == "s3-fifo":
        return S3FifoPolicy()
    if name == "adaptive":
        chunk_bytes, checkpoint_bytes = rules.chunk_bytes, rules.largest_checkpoint[0]
        return AdaptivePolicy(arena_bytes, chunk_bytes, checkpoint_bytes)
    raise ValueError(f"there is no eviction policy {name!r}")
