"""Who pays for a cell, and what of it goes when its share is used up.

A tenant pays for every cell that was taken for one of its requests, until the cell is
given back; who uses it later pays nothing. So the tenants' bytes are exactly those of
the cells that were taken for them. At its share a tenant makes room among its own:
first checkpoints that a deeper one has replaced, then leaves, as they were used.
"""

import heapq
from weakref import WeakValueDictionary

from kvcellar.index.evictable import NEVER, Evictable
from kvcellar.index.node import Node
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.superseded import SupersededCheckpoints


class Tenant:
    """One payer.

    Attributes:
        used_bytes: of the cells that were taken for it.
        order: of eviction among its own leaves that may go.
        superseded: its own checkpoints that a deeper one has replaced.
    """

    def __init__(self) -> None:
        self.used_bytes = 0
        self.order: KeyedPolicy[Node] = KeyedPolicy(_own_key)
        self.superseded = SupersededCheckpoints()


class Tenants:
    """Tenants by name, for as long as anything of theirs is there.

    Args:
        most_bytes: that each may hold; None if nobody is bounded.

    Attributes:
        owners: who paid for a node's chunk, where somebody is bounded.
    """

    def __init__(self, most_bytes: int | None) -> None:
        self.most_bytes = most_bytes
        self.owners: dict[Node, Tenant] = {}
        self._tenants: WeakValueDictionary[str, Tenant] = WeakValueDictionary()

    def named(self, name: str | None) -> Tenant | None:
        """The tenant of that name; None if it is not bounded."""
        if name is None or self.most_bytes is None:
            return None
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = Tenant()
        return tenant

    def fits(self, tenant: Tenant, num_bytes: int) -> bool:
        """Whether the tenant may take so many bytes more."""
        assert self.most_bytes is not None  # or there would be no tenant
        return tenant.used_bytes + num_bytes <= self.most_bytes

    def fullest(self, most: int) -> list[tuple[str, int]]:
        """Names and bytes of those that hold most, the fullest first."""
        held = [(name, tenant.used_bytes) for name, tenant in self._tenants.items()]
        return heapq.nlargest(most, held, key=lambda one: one[1])

    def __len__(self) -> int:
        return len(self._tenants)


def _own_key(leaf: Evictable) -> tuple[float, float]:
    """What cannot be resumed at goes first, then by priority, then by use."""
    assert isinstance(leaf, Node)
    return (NEVER if leaf.is_dead else float(leaf.priority), leaf.last_use)
