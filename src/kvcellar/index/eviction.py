"""What may go to make room, and what of it goes first.

In this order: checkpoints that a deeper one has replaced, where the order of eviction
has no use for them; leaves behind the last checkpoint, at which nobody can resume; the
other leaves, as the policy says. A tenant at its share gives from its own only.
"""

from collections.abc import Container, Mapping

from kvcellar.index.node import Node
from kvcellar.index.policies.classes import PriorityClasses
from kvcellar.index.policies.policy import EvictionPolicy
from kvcellar.index.states import READY
from kvcellar.index.superseded import SupersededCheckpoints
from kvcellar.index.tenants import Tenant


class EvictionOrder:
    """Evictable leaves and replaced checkpoints; it decides, the index carries out.

    Args:
        live: order among leaves that can be resumed at.
        dead: the same for leaves that cannot.
        superseded_first: whether replaced checkpoints go before these; None asks the
            policy.
        leased: nodes that stay, with their checkpoints.
        owners: who paid for a node, where somebody is bounded.
    """

    def __init__(
        self,
        live: EvictionPolicy[Node],
        dead: EvictionPolicy[Node],
        *,
        superseded_first: bool | None,
        leased: Container[Node],
        owners: Mapping[Node, Tenant],
    ) -> None:
        self.live = live
        self.dead = dead
        self.superseded = SupersededCheckpoints()
        self._superseded_first = superseded_first
        self._leased = leased
        self._owners = owners

    @property
    def is_superseded_first(self) -> bool:
        """Whether checkpoints that a deeper one has replaced go before any leaf."""
        if self._superseded_first is None:
            return self.live.superseded_first
        return self._superseded_first

    def use_priorities(self) -> None:
        """From now on nodes may differ in priority."""
        if not isinstance(self.live, PriorityClasses):
            self.live = PriorityClasses(self.live)

    def settle(self, node: Node) -> None:
        """Offer ``node`` if it is a ready, unpinned leaf that nobody has leased."""
        if self._may_go(node):
            (self.dead if node.is_dead else self.live).add(node)
            if self._owners and (owner := self._owners.get(node)):
                owner.order.add(node)

    def is_next(self, node: Node) -> bool:
        """Whether ``node`` would be the next leaf to go if it were offered.

        Returns:
            False also where that is not known.
        """
        if self._owners or not self._may_go(node):
            return False
        if node.is_dead:
            return self.dead.would_be_next(node)
        return self.dead.victim() is None and self.live.would_be_next(node)

    def _may_go(self, node: Node) -> bool:
        return (
            node.pins == 0
            and node.is_leaf
            and node.state is READY
            and node.parent is not None
            and node not in self._leased
        )

    def withdraw(self, node: Node) -> None:
        """``node`` may not go any more, or has gone."""
        self.live.remove(node)
        self.dead.remove(node)
        if self._owners and (owner := self._owners.get(node)):
            owner.order.remove(node)

    def touch(self, node: Node) -> None:
        """``node`` has been used; its history says when."""
        self.live.touch(node)
        self.dead.touch(node)
        if self._owners and (owner := self._owners.get(node)):
            owner.order.touch(node)

    def replaced(self, node: Node) -> None:
        """A deeper checkpoint on the path has replaced the one of ``node``."""
        self.superseded.add(node)
        if self._owners and (owner := self._owners.get(node)):
            owner.superseded.add(node)

    def take_superseded(self, tenant: Tenant | None) -> Node | None:
        """A node whose checkpoint is to go before any leaf, if there is one.

        Args:
            tenant: who has to give; None for anybody.
        """
        superseded = self.superseded if tenant is None else tenant.superseded
        if not superseded or not self.is_superseded_first:
            return None
        return superseded.take(self._leased)

    def next_leaf(self, tenant: Tenant | None) -> Node | None:
        """The leaf to go; None if nothing may."""
        if tenant is not None:
            return tenant.order.victim()
        return self.dead.victim() or self.live.victim()

    def __contains__(self, node: Node) -> bool:
        return node in self.live or node in self.dead
