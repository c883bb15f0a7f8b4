"""Which order of eviction to follow, told by shadow caches.

Every prompt is also played through one shadow cache per order. LRU is what everybody
else runs, so it is what others must beat: it is left only for an order that has been
ahead by more than noise, and by more than LRU itself does better than its shadow says;
it is returned to as soon as it is ahead. What an order that is worse than it looked can
cost is bounded by that.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

from kvcellar.index.policies.lazy_shadow import LazyShadowCache
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.policy import MEMORY_PROMPTS, EvictionPolicy, Prompt
from kvcellar.index.policies.reuse import ReuseTimes
from kvcellar.index.policies.shadow import ShadowCache
from kvcellar.index.policies.trust import Trust

BASE = "lru"
JUDGED_EVERY = 50  # prompts
MARGIN = 1.01  # who takes over must be so much better
LEAD = 0.0025  # than LRU also by so much of what ``MEMORY_PROMPTS`` prompts ask for
NOISE = 1.5  # and by so many standard errors of the difference

LHD = "lhd"
LEAN_LHD = "lhd, superseded first"  # for sessions that grow and hardly ever branch


class Faded:
    """Hits of each order, of which old ones count less and less."""

    def __init__(self, orders: Iterable[str]) -> None:
        self._kept = 1.0 - 1.0 / MEMORY_PROMPTS
        self._hits = dict.fromkeys(orders, 0.0)
        self._squares = dict.fromkeys(self._hits, 0.0)  # of what it is ahead of LRU by
        self._asked = self._weight = 0.0

    def add(self, num_asked: int, hits: dict[str, int]) -> None:
        """A prompt has come; all in chunks."""
        kept, base = self._kept, hits[BASE]
        self._asked = self._asked * kept + num_asked
        self._weight = self._weight * kept + 1.0 - kept
        for name, num_hits in hits.items():
            self._hits[name] = self._hits[name] * kept + num_hits
            squares = self._squares[name] * kept
            self._squares[name] = squares + (num_hits - base) ** 2

    def lead(self, name: str) -> float:
        """Hits that an order must have more than LRU, or it is noise.

        An order cannot lose more than LRU finds, so that is asked for at most.
        """
        full_asked = self._asked / self._weight  # if a whole memory were like this
        at_stake = min(LEAD * full_asked, self._hits[BASE])
        return max(at_stake, NOISE * math.sqrt(self._squares[name]))

    def trusted(self, trust: dict[str, float]) -> dict[str, float]:
        """Hits as far as they are believed."""
        return {name: num * trust[name] for name, num in self._hits.items()}


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
        self.order = BASE
        self.followers: list[Callable[[], None]] = []
        self._chunks_per_key = chunks_per_key
        key_bytes = max(chunk_bytes, 1) * chunks_per_key
        self._times = ReuseTimes.of_cache(num_bytes // key_bytes)
        self._checkpoint_keys = checkpoint_bytes / key_bytes
        shadow = LazyShadowCache if is_lazy else ShadowCache
        orders = (BASE, LHD, LEAN_LHD) if checkpoint_bytes else (BASE, LHD)
        self._shadows = {
            name: shadow(self._make(name, 1), num_bytes, key_bytes, checkpoint_bytes)
            for name in orders
        }
        self._hits = Faded(orders)
        self._trust = {name: Trust() for name in orders}
        self._trust_in_all = Trust()
        self._num_prompts = 0
        self._followed_since = 0.0

    def make_policy(self) -> EvictionPolicy[Any]:
        """An empty policy of the order to follow."""
        return self._make(self.order, self._chunks_per_key)

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come: which order would have kept it?"""
        prompt = prompt.sampled(self._chunks_per_key)
        keys, num_local = prompt.keys[:], prompt.num_local  # read often: made once
        last_use = self._times.observe(keys, num_local, now)
        earned = {}
        for name, shadow in self._shadows.items():
            shadow.store_due(prompt.due, now)
            earned[name] = max(shadow.use(keys, now) - num_local, 0)
        self._hits.add(len(keys), earned)
        self._forget_others()
        if last_use >= self._followed_since:  # before, another order kept what there is
            self._compare(len(keys), earned[self.order], prompt.num_loaded)
        self._num_prompts += 1
        if self._num_prompts % JUDGED_EVERY == 0:
            self._follow(self._best(), now)

    def _forget_others(self) -> None:
        for name, trust in self._trust.items():
            if name != self.order:
                trust.forget()

    def _compare(self, num_asked: int, claimed: int, real: int) -> None:
        """What did the shadow claim that is followed, and what came true?"""
        self._trust[self.order].compare(num_asked, claimed, real)
        self._trust_in_all.compare(num_asked, claimed, real)

    def _best(self) -> str:
        """The order to follow from now on."""
        ratios, best = self._ratios(), self.order
        hits = self._hits.trusted(ratios)
        unforeseen = hits[BASE] * max(1.0 - 1.0 / ratios[BASE], 0.0)
        for name in hits:
            lead = self._hits.lead(name) + unforeseen if best == BASE else 0.0
            if hits[name] > MARGIN * hits[best] + lead:
                best = name
        return BASE if hits[BASE] > MARGIN * hits[best] else best

    def _ratios(self) -> dict[str, float]:
        """How far each order's shadow is believed."""
        expected = max(self._trust_in_all.ratio(), 1.0)  # so that it will be tried
        ratios = {name: own.ratio(expected) for name, own in self._trust.items()}
        if LEAN_LHD in ratios:  # it errs as the other one does that keeps so few
            ratios[LEAN_LHD] = self._trust[LEAN_LHD].ratio(ratios[BASE])
        return ratios

    def _follow(self, order: str, now: float) -> None:
        if order != self.order:
            self.order = order
            self._followed_since = now
            for follow in self.followers:
                follow()

    def _make(self, name: str, chunks_per_key: int) -> EvictionPolicy[Any]:
        if name == BASE:
            return LruPolicy()
        return LhdPolicy(
            self._times,
            chunks_per_key,
            superseded_first=name == LEAN_LHD,
            checkpoint_chunks=self._checkpoint_keys * chunks_per_key,
        )
