"""Where something that is stored comes from: what its request brings along.

A request may be gone when its chunks are stored or published, so what they need of it
travels with them.
"""

from dataclasses import dataclass

from kvcellar.index.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Origin:
    """What a request's chunks and checkpoints are stored with.

    Attributes:
        content: what its blocks hold, for those who follow from outside; nobody here
            looks inside. None if nobody follows.
        priority: of the request; see ``Node``.
        tenant: who pays; None if nobody is bounded.
    """

    content: object | None = None
    priority: int = 0
    tenant: Tenant | None = None


PLAIN = Origin()
"""Of a request that brings nothing along."""
