"""The order that has lately served best, told by shadow caches.

Every prompt is also played through one shadow cache per order. Their hits fade as
prompts come; from time to time the order with clearly the most takes over. A use is
written in every node's history whatever the order, so a change only sorts anew what
may go.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kvcellar.index.evictable import GHOSTS_PER_NODE
from kvcellar.index.node import Node
from kvcellar.index.policies.lazy_shadow import LazyShadowCache
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.lru2 import Lru2Policy
from kvcellar.index.policies.policy import MEMORY_PROMPTS, EvictionPolicy, Prompt
from kvcellar.index.policies.reuse import ReuseTimes
from kvcellar.index.policies.shadow import ShadowCache
from kvcellar.index.policies.trust import Trust

JUDGED_EVERY = 50  # prompts
MARGIN = 1.01  # who takes over must be so much better

SIMPLE_ORDERS: dict[str, Callable[[], EvictionPolicy[Any]]] = {
    "lru": LruPolicy,
    "lru-2": Lru2Policy,
    "lrfu": LrfuPolicy,
}
"""Orders that need nothing but a node's own history, by name."""

ORDERS = (*SIMPLE_ORDERS, "lhd")


class OrderJudge:
    """Says which order to follow; begins with LRU.

    Args:
        num_bytes: size of the cache.
        chunk_bytes: of one chunk.
        checkpoint_bytes: of what resuming needs besides; 0 where chunks suffice.
        chunks_per_key: the shadows see one chunk in so many, for all of them.
        is_lazy: whether the cache is given only what the device loses.

    Attributes:
        order: name of the order to follow.
        followers: called when it changes.
    """

    def __init__(
        self,
        num_bytes: int,
        chunk_bytes: int,
        checkpoint_bytes: int,
        chunks_per_key: int = 1,
        *,
        is_lazy: bool = False,
    ) -> None:
        self.order = "lru"
        self.followers: list[Callable[[], None]] = []
        self._chunks_per_key = chunks_per_key
        key_bytes = max(chunk_bytes, 1) * chunks_per_key
        self._times = ReuseTimes(GHOSTS_PER_NODE * num_bytes // key_bytes)
        shadow = LazyShadowCache if is_lazy else ShadowCache
        self._shadows = {
            name: shadow(self._make(name, 1), num_bytes, key_bytes, checkpoint_bytes)
            for name in ORDERS
        }
        self._hits = dict.fromkeys(ORDERS, 0.0)
        self._trust = {name: Trust() for name in ORDERS}
        self._trust_in_all = Trust()
        self._num_prompts = 0

    def make_policy(self) -> EvictionPolicy[Any]:
        """An empty policy of the order to follow."""
        return self._make(self.order, self._chunks_per_key)

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come: which order would have kept it?"""
        prompt = prompt.sampled(self._chunks_per_key)
        keys, num_local = prompt.keys, prompt.num_local
        self._times.observe(keys, num_local, now)
        fade = 1.0 - 1.0 / MEMORY_PROMPTS
        for name, shadow in self._shadows.items():
            shadow.store_due(prompt.due, now)
            earned = max(shadow.use(keys, now) - num_local, 0)
            self._hits[name] = self._hits[name] * fade + earned
            if name == self.order:
                self._trust[name].compare(len(keys), earned, prompt.num_loaded)
                self._trust_in_all.compare(len(keys), earned, prompt.num_loaded)
            else:
                self._trust[name].forget()
        self._num_prompts += 1
        if self._num_prompts % JUDGED_EVERY == 0:
            self._judge()

    def _judge(self) -> None:
        expected = self._trust_in_all.ratio()
        hits = {n: h * self._trust[n].ratio(expected) for n, h in self._hits.items()}
        best = max(hits, key=hits.__getitem__)
        if hits[best] > MARGIN * hits[self.order]:
            self.order = best
            for follow in self.followers:
                follow()

    def _make(self, name: str, chunks_per_key: int) -> EvictionPolicy[Any]:
        if name == "lhd":
            return LhdPolicy(self._times, chunks_per_key)
        return SIMPLE_ORDERS[name]()


class AdaptivePolicy:
    """Follows a judge; its nodes are sorted anew when he changes his mind."""

    wants_history = True

    def __init__(self, judge: OrderJudge) -> None:
        self._judge = judge
        self._policy: EvictionPolicy[Node] = judge.make_policy()
        judge.followers.append(self._follow)

    @property
    def is_by_recency(self) -> bool:
        """As the order that is followed."""
        return self._policy.is_by_recency

    def another(self) -> "AdaptivePolicy":
        """A policy for other nodes under the same judge."""
        return AdaptivePolicy(self._judge)

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come."""
        self._judge.observe(prompt, now)

    def _follow(self) -> None:
        policy: EvictionPolicy[Node] = self._judge.make_policy()
        for node in self._policy:
            policy.add(node)
        self._policy = policy

    # -- the order that is followed --------------------------------------------------

    def add(self, node: Node) -> None:
        """``node`` may be evicted from now on."""
        self._policy.add(node)

    def touch(self, node: Node) -> None:
        """The history of ``node`` has changed."""
        self._policy.touch(node)

    def remove(self, node: Node) -> None:
        """``node`` may no longer be evicted, or has gone."""
        self._policy.remove(node)

    def victim(self) -> Node | None:
        """The node to evict next."""
        return self._policy.victim()

    def __contains__(self, node: Node) -> bool:
        return node in self._policy

    def __len__(self) -> int:
        return len(self._policy)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._policy)
