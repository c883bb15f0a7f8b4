"""From a policy's name to the policy."""

from collections.abc import Callable

from kvcellar.attention.hybrid import HybridRules
from kvcellar.index.evictable import chunks_per_sample
from kvcellar.index.node import Node
from kvcellar.index.policies.adaptive import AdaptivePolicy
from kvcellar.index.policies.judge import OrderJudge
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.lru2 import Lru2Policy
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.policies.reuse import ReuseTimes
from kvcellar.index.policies.s3fifo import S3FifoPolicy

_SIMPLE: dict[str, Callable[[], EvictionPolicy[Node]]] = {
    "lru": LruPolicy,
    "lru-2": Lru2Policy,
    "lrfu": LrfuPolicy,
    "s3-fifo": S3FifoPolicy,
}
"""Policies that need nothing but a node's own history, by name."""


def make_policy(
    name: str, rules: HybridRules, arena_bytes: int, *, is_lazy: bool = False
) -> EvictionPolicy[Node]:
    """The policy of that name for one cache.

    Args:
        name: one of ``config.EVICTION_POLICIES``.
        rules: of the layout that is kept.
        arena_bytes: size of the cache.
        is_lazy: whether it is given only what the device loses.

    Raises:
        ValueError: there is no such policy.
    """
    chunk_bytes, checkpoint_bytes = rules.chunk_bytes, rules.largest_checkpoint[0]
    chunks_per_key = chunks_per_sample(rules.chunk_tokens)
    if name in _SIMPLE:
        return _SIMPLE[name]()
    if name == "lhd":
        key_bytes = max(chunk_bytes, 1) * chunks_per_key
        times = ReuseTimes.of_cache(arena_bytes // key_bytes)
        checkpoint_chunks = checkpoint_bytes / max(chunk_bytes, 1)
        return LhdPolicy(times, chunks_per_key, checkpoint_chunks=checkpoint_chunks)
    if name == "adaptive":
        sizes = arena_bytes, chunk_bytes, checkpoint_bytes
        return AdaptivePolicy(OrderJudge(*sizes, chunks_per_key, is_lazy=is_lazy))
    raise ValueError(f"there is no eviction policy {name!r}")
