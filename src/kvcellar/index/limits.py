"""How much of host memory some may take, in bytes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds within the arena.

    Attributes:
        leased_bytes: that leases may protect at once.
        tenant_bytes: that each tenant may hold; None for no bound.
    """

    leased_bytes: int = 0
    tenant_bytes: int | None = None


NO_LEASES = Limits()
