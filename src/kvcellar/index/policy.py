"""The contract of an eviction policy: an order over the nodes that may go."""

from typing import Protocol

from kvcellar.index.node import Node


class EvictionPolicy(Protocol):
    """Orders evictable nodes: ready leaves that nobody has pinned.

    The index says which nodes may go; the policy only says in which order.
    """

    def add(self, node: Node) -> None:
        """``node`` may be evicted from now on; its stamp is ``node.last_use``."""
        ...

    def touch(self, node: Node) -> None:
        """``node``, already added, has been used: ``node.last_use`` is newer."""
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
