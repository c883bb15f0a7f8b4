"""The contract of an eviction policy: an order over what may go."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kvcellar.index.evictable import Evictable

T = TypeVar("T", bound=Evictable)

MEMORY_PROMPTS = 2000  # prompts after which what was learnt from one counts 1/e


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as policies see it, in chunks.

    Attributes:
        keys: one per chunk.
        num_local: that the device itself holds; nobody earns them.
        num_loaded: that host memory gave.
        due: lazy mode: keys of chunks whose time to be stored has come since the
            last prompt, in that order. Collected only for a policy that reads it.
    """

    keys: Sequence[bytes]
    num_local: int
    num_loaded: int
    due: Collection[bytes] = ()

    def sampled(self, size: int) -> "Prompt":
        """One chunk in so many, for all of them."""
        if size == 1:
            return self
        keys = self.keys[size - 1 :: size]
        reached = (self.num_local + self.num_loaded) // size
        num_local = self.num_local // size
        return Prompt(keys, num_local, reached - num_local, self.due)


class EvictionPolicy(Protocol[T]):
    """Orders evictable nodes: ready leaves that nobody has pinned.

    The index says which nodes may go; the policy only says in which order.

    Attributes:
        wants_history: whether the uses of nodes that have gone matter to it.
        reads_due: whether it learns from ``Prompt.due`` too.
    """

    wants_history: bool
    reads_due: bool

    @property
    def is_selective(self) -> bool:
        """Whether what would be the first to go does not come in at all."""
        ...

    @property
    def superseded_first(self) -> bool:
        """Whether checkpoints that a deeper one has replaced go before any node.

        By recency a path leaves as a whole, so they are of no use. Where ends leave
        before beginnings, they are what a path can be resumed with then.
        """
        ...

    def observe(self, prompt: Prompt, now: float) -> None:
        """A prompt has come; only policies that learn care."""
        ...

    def another(self) -> "EvictionPolicy[T]":
        """An empty one of the same order, for other nodes.

        It knows what this one learns, and is told of no prompts itself.
        """
        ...

    def add(self, node: T) -> None:
        """``node`` may be evicted from now on."""
        ...

    def touch(self, node: T) -> None:
        """The history of ``node`` has changed; absent nodes are ignored."""
        ...

    def remove(self, node: T) -> None:
        """``node`` may no longer be evicted, or has gone. Absent nodes are ignored."""
        ...

    def victim(self) -> T | None:
        """The node to evict next, still in the policy; None when there is none."""
        ...

    def would_be_next(self, node: T) -> bool:
        """Whether ``node``, which is not here, goes before all that are.

        Returns:
            False also where finding out takes as long as adding it.
        """
        ...

    def __contains__(self, node: T) -> bool:
        """Whether ``node`` may be evicted."""
        ...

    def __len__(self) -> int:
        """Number of nodes that may be evicted."""
        ...

    def __iter__(self) -> Iterator[T]:
        """They, in no order."""
        ...
