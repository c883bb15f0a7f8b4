"""Lazy mode learns late of what was used, and counts it as eager mode does."""

import pytest
from full_device import FullDevice
from layouts import FULL, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.core.offloader import Offloader
from kvcellar.layout.host import plan_geometry

LAYOUT = layout_of(group(0, FULL, 4, None, 100), hash_tokens=4, alignment=4)


class Engine:
    """Serves prompts given as chunk keys; copies end at once."""

    def __init__(self, mode, policy="lrfu"):
        settings = Settings(mode=mode, eviction_policy=policy)
        self.planner = Offloader(LAYOUT, plan_geometry(LAYOUT, 10_000), settings)
        self.now = 0.0

    def serve(self, keys, num_local):
        self.now += 100.0
        request_id, num_tokens = f"r{self.now}", 4 * len(keys) + 1
        self.handle(events.LookUp(request_id, keys, num_tokens, 4 * num_local))
        self.handle(
            events.TokensComputed(
                request_id,
                keys,
                num_tokens,
                4 * num_local,
                num_tokens - 1,
                FullDevice(),
            )
        )
        self.handle(events.RequestFinished(request_id))

    def lose(self, keys):
        """The device is about to lose these chunks, the last one first."""
        self.now += 7.0
        blocks = [(0, key) for key in reversed(keys)]
        self.handle(events.BlocksThreatened(blocks, FullDevice()))

    def handle(self, event):
        for action in self.planner.handle(event, self.now):
            if hasattr(action, "job_id"):
                self.handle(events.JobDone(action.job_id))

    def evict_all(self):
        """Histories in the order in which chunks go, by key."""
        index, histories = self.planner.index, {}
        while (leaf := index.order.live.victim()) is not None:
            histories[leaf.key] = (leaf.latest, leaf.previous, round(leaf.score, 9))
            assert index.evict_one()
        return histories


@pytest.mark.parametrize("is_lost_between", [False, True])
def test_a_use_counts_once_and_at_its_own_time(is_lost_between):
    """Two turns of a conversation; the first one's chunks are on the host, or on the
    device only, when the second comes."""
    first = [b"a", b"b"]
    second = [b"a", b"b", b"c"]
    eager, lazy = Engine("eager"), Engine("lazy")
    for engine in (eager, lazy):
        engine.serve(first, 0)
        if is_lost_between:
            engine.lose(first)
        engine.serve(second, 2)
        if not is_lost_between:
            engine.now += 7.0
        engine.lose(second)
    assert eager.evict_all() == lazy.evict_all()


@pytest.mark.parametrize(
    ("policy", "expected"), [("adaptive", {b"a", b"b"}), ("lru", set())]
)
def test_what_is_due_is_noted_only_for_a_policy_that_reads_it(policy, expected):
    """The judge of ``adaptive`` hears of it; for LRU nothing is collected."""
    engine = Engine("lazy", policy)
    engine.serve([b"a", b"b"], 0)
    engine.lose([b"a", b"b"])
    assert expected == set(engine.planner._stores.take_due())
