"""One planner's state: who holds what, without a secret in it."""

from layouts import LAYOUTS

from kvcellar.config import Settings
from kvcellar.core.offloader import Offloader
from kvcellar.layout.host import plan_geometry
from kvcellar.status.snapshot import planner_state


def tenants_of(tenant_by):
    settings = Settings(tenant_share=0.5, tenant_by=tenant_by)
    geometry = plan_geometry(LAYOUTS["full"], 1 << 24)
    offloader = Offloader(LAYOUTS["full"], geometry, settings)
    kept = [offloader.index.tenants.named(name) for name in ("red", "blue")]
    kept[0].used_bytes = 5
    return planner_state(offloader)["tenants"]


def test_tenants_by_tag_are_named():
    """A tag is a name that somebody gave."""
    state = tenants_of("tag")
    assert 2 == state["tenants"]
    assert 1 << 23 == state["most_bytes"]
    assert {"name": "red", "used_bytes": 5} == state["fullest"][0]


def test_cache_salts_are_not_shown():
    """Who knows a salt could read its cache, so only an alias leaves the process."""
    first, second = tenants_of("cache_salt")["fullest"]
    assert 5 == first["used_bytes"]
    assert not {first["name"], second["name"]} & {"red", "blue"}
    assert first["name"] != second["name"]
    assert first == tenants_of("cache_salt")["fullest"][0]
