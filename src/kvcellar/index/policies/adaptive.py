"""The order that has lately served best, told by shadow caches.

Every prompt is also played through one shadow cache per order. Their hits fade as
prompts come; from time to time the order with clearly the most takes over. A use is
written in every node's history whatever the order, so a change costs one new heap.
"""

from collections.abc import Sequence

from kvcellar.index.node import Node
from kvcellar.index.policies.keyed import Key, KeyedPolicy
from kvcellar.index.policies.lrfu import lrfu_key
from kvcellar.index.policies.lru import lru_key
from kvcellar.index.policies.lru2 import lru2_key
from kvcellar.index.policies.shadow import ShadowCache

ORDERS: dict[str, Key] = {"lru": lru_key, "lru-2": lru2_key, "lrfu": lrfu_key}

JUDGED_EVERY = 50  # prompts
MEMORY_PROMPTS = 2000  # prompts after which a hit counts 1/e
MARGIN = 1.01  # who takes over must be so much better


class AdaptivePolicy(KeyedPolicy[Node]):
    """Follows the best of ``ORDERS``; begins as LRU.

    Args:
        num_bytes: size of the cache.
        chunk_bytes: of one chunk.
        checkpoint_bytes: of what resuming needs besides; 0 where chunks suffice.
    """

    def __init__(self, num_bytes: int, chunk_bytes: int, checkpoint_bytes: int) -> None:
        super().__init__(lru_key)
        self.order = "lru"
        self._shadows = {
            name: ShadowCache(key, num_bytes, chunk_bytes, checkpoint_bytes)
            for name, key in ORDERS.items()
        }
        self._followers: list[KeyedPolicy[Node]] = []
        self._hits = dict.fromkeys(ORDERS, 0.0)
        self._num_prompts = 0

    def another(self) -> KeyedPolicy[Node]:
        """A policy for other nodes that follows this one's choice."""
        follower: KeyedPolicy[Node] = KeyedPolicy(ORDERS[self.order])
        self._followers.append(follower)
        return follower

    def observe(self, keys: Sequence[bytes], num_local: int, now: float) -> None:
        """A prompt has come.

        Args:
            keys: one per chunk.
            num_local: chunks that the device itself holds; nobody earns them.
        """
        fade = 1.0 - 1.0 / MEMORY_PROMPTS
        for name, shadow in self._shadows.items():
            earned = max(shadow.use(keys, now) - num_local, 0)
            self._hits[name] = self._hits[name] * fade + earned
        self._num_prompts += 1
        if self._num_prompts % JUDGED_EVERY == 0:
            self._judge()

    def _judge(self) -> None:
        best = max(self._hits, key=self._hits.__getitem__)
        if self._hits[best] > MARGIN * self._hits[self.order]:
            self.order = best
            for policy in (self, *self._followers):
                policy.order_by(ORDERS[best])
