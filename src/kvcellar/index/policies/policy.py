"""The contract of an eviction policy: an order over the nodes that may go."""

from typing import Protocol

from kvcellar.index.node import Node


class EvictionPolicy(Protocol):
    """Orders evictable nodes: ready leaves that nobody has pinned.

    The index says which nodes may go; the policy only says in which order.

    Attributes:
        wants_history: whether the uses of nodes that have gone matter to it.
    """

    wants_history: bool

    def add(self, node: Node) -> None:
        """``node`` may be evicted from now on."""
        ...

    def touch(self, node: Node) -> None:
        """The history of ``node`` has changed; absent nodes are ignored."""
        ...

    def remove(self, node: Node) -> None:
        """``node`` may no longer be evicted, or has gone. Absent nodes are ignored."""
        ...

    def victim(self) -> Node | None:
        """The node to evict next, still in the policy; None when there is none."""
        ...

    def __contains__(self, node: Node) -> bool:
        """Whether ``node`` may be evicted."""
        ...

    def __len__(self) -> int:
        """Number of nodes that may be evicted."""
        ...
