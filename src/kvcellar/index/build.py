"""An index of empty host memory, as the settings want it."""

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import Settings
from kvcellar.index.index import Index
from kvcellar.index.limits import Limits
from kvcellar.index.policies.choose import make_policy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.slabs import SlabAllocator
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import HostGeometry


def build_index(
    layout: CacheLayout, geometry: HostGeometry, settings: Settings
) -> Index:
    """An index with the eviction policy and the limits that the user chose.

    Args:
        layout: the model's cache groups.
        geometry: how the arena is cut.
        settings: the user's choices.
    """
    rules = HybridRules(layout)
    live = make_policy(
        settings.eviction_policy,
        rules,
        geometry.arena_bytes,
        is_lazy=settings.mode == "lazy",
    )
    return Index(
        rules,
        SlabAllocator(geometry),
        live,
        LruPolicy(),
        superseded_first=settings.superseded_first,
        limits=_limits(settings, geometry.arena_bytes),
    )


def _limits(settings: Settings, arena_bytes: int) -> Limits:
    share = settings.tenant_share
    return Limits(
        leased_bytes=int(settings.lease_share * arena_bytes),
        tenant_bytes=None if share is None else int(share * arena_bytes),
    )
