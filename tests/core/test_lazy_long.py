"""Lazy mode does not begin what host memory cannot hold to its end."""

import pytest
from full_device import FullDevice
from layouts import FULL, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.core.offloader import Offloader
from kvcellar.layout.host import plan_geometry

PLAIN = group(0, FULL, 4, None, 100)
LAYOUTS = {
    "plain": layout_of(PLAIN, hash_tokens=4, alignment=4),
    "windowed": layout_of(
        PLAIN, group(1, WINDOW, 4, 5, 100), hash_tokens=4, alignment=4
    ),
}


def chain(name, length):
    return [f"{name}:{i}".encode() for i in range(length)]


def serve_and_lose(planner, keys, now):
    request_id, num_tokens = f"r{now}", 4 * len(keys) + 1
    handle(planner, events.LookUp(request_id, keys, num_tokens, 0), now)
    computed = events.TokensComputed(
        request_id, keys, num_tokens, 0, num_tokens - 1, FullDevice()
    )
    handle(planner, computed, now)
    handle(planner, events.RequestFinished(request_id), now)
    for position in (1, 0):  # windows go just before their chunks
        blocks = [(position, key) for key in reversed(keys)]
        handle(planner, events.BlocksThreatened(blocks, FullDevice()), now + 1.0)


def handle(planner, event, now):
    for action in planner.handle(event, now):
        if hasattr(action, "job_id"):
            planner.handle(events.JobDone(action.job_id), now)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_prompt_longer_than_host_memory_pushes_out_nothing_for_nothing(name):
    """With windows its beginning could not be resumed at, so the short prompt stays;
    plain attention has use for as much as fits."""
    layout = LAYOUTS[name]
    planner = Offloader(
        layout,
        plan_geometry(layout, 2000),
        Settings(mode="lazy", eviction_policy="lru"),
    )
    serve_and_lose(planner, chain("short", 4), 0.0)
    assert len(planner.index.nodes) == 4
    serve_and_lose(planner, chain("long", 60), 10.0)
    held = {key.split(b":")[0] for key in planner.index.nodes}
    assert held == {b"short" if name == "windowed" else b"long"}
    assert not planner._stores.waiting.chunks
