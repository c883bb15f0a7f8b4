"""Where something that is stored comes from: what its request brings along.

A request may be gone when its chunks are stored or published, so what they need of it
travels with them.
"""

from dataclasses import dataclass
from typing import Protocol

from kvcellar.index.tenants import Tenant


class Content(Protocol):
    """What a request's blocks hold, for those who follow from outside."""

    def describe(self, position: int, blocks: range) -> object:
        """What followers are told of some blocks.

        Args:
            position: layout position of their group.
            blocks: their places in the request's block table, one cell's worth.
        """
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """What a request's chunks and checkpoints are stored with.

    Attributes:
        content: what its blocks hold; None if nobody follows.
        priority: of the request; see ``Node``.
        tenant: who pays; None if nobody is bounded.
    """

    content: Content | None = None
    priority: int = 0
    tenant: Tenant | None = None


PLAIN = Origin()
"""Of a request that brings nothing along."""
