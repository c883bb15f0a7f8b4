"""A shadow in lazy mode holds what a planner in lazy mode holds."""

import random

import pytest
from full_device import FullDevice
from layouts import FULL, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.core.offloader import Offloader
from kvcellar.index.policies.judge import OrderJudge
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.lazy_shadow import LazyShadowCache
from kvcellar.index.policies.lhd import LhdPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.policy import Prompt
from kvcellar.index.policies.reuse import ReuseTimes
from kvcellar.layout.host import plan_geometry

LAYOUT = layout_of(group(0, FULL, 512, None, 100), hash_tokens=512, alignment=512)


class LazyHost:
    """A planner in lazy mode, whose copies end at once."""

    def __init__(self, num_chunks, policy):
        geometry = plan_geometry(LAYOUT, 100 * num_chunks)
        settings = Settings(mode="lazy", eviction_policy=policy)
        self.planner = Offloader(LAYOUT, geometry, settings)
        self.num_served = 0

    def serve(self, keys, now):
        """Ask for a prompt, compute it, end it; the chunks that were there."""
        self.num_served += 1
        request_id, num_tokens = f"r{self.num_served}", 512 * len(keys)
        look_up = events.LookUp(request_id, keys, num_tokens + 1, 0)
        (promise,) = self.planner.handle(look_up, now)
        self.handle(
            events.TokensComputed(
                request_id, keys, num_tokens + 1, 0, num_tokens, FullDevice()
            ),
            now,
        )
        self.handle(events.RequestFinished(request_id), now)
        return promise.external_tokens // 512

    def lose(self, keys, now):
        """The device is about to lose these chunks, the last one first."""
        blocks = [(0, key) for key in reversed(keys)]
        self.handle(events.BlocksThreatened(blocks, FullDevice()), now)

    def handle(self, event, now):
        for action in self.planner.handle(event, now):
            if hasattr(action, "job_id"):
                self.planner.handle(events.JobDone(action.job_id), now)


def chain(name, length):
    """A prompt that shares nothing with others."""
    return [f"{name}:{i}".encode() for i in range(length)]


@pytest.mark.parametrize(("policy", "error"), [("lru", 0.03), ("lhd", 0.06)])
def test_it_hits_what_the_planner_hits(policy, error):
    """Sessions that grow and come back; the device loses each prompt later. Under LHD a
    run is not weighed chunk by chunk."""
    rng, sessions = random.Random(4), [chain(str(n), 2) for n in range(12)]
    times = ReuseTimes.of_cache(40)
    order = LruPolicy() if policy == "lru" else LhdPolicy(times)
    host, shadow = LazyHost(40, policy), LazyShadowCache(order, 4000, 100, 0)
    held, hits = [], [0, 0]
    for number in range(800):
        now, which = float(number), rng.randrange(12)
        keys = sessions[which]
        if len(keys) > 9:
            keys = chain(f"{which}.{number}", 2)
        keys = sessions[which] = [*keys, f"{which}+{number}".encode()]
        hits[0] += host.serve(keys, now)
        times.observe(keys, 0, now)
        hits[1] += shadow.use(keys, now)
        held.append(keys)
        if len(held) > 6:
            lost = held.pop(0)
            host.lose(lost, now + 0.5)
            shadow.store_due(reversed(lost), now + 0.5)
    assert hits[0] > 500
    assert abs(hits[0] - hits[1]) <= error * hits[0]


def test_nothing_is_there_before_the_device_loses_it():
    """And then the whole path is, with the prompt that ended inside it."""
    shadow = LazyShadowCache(LruPolicy(), 10_000, 100, 50)
    keys = chain("a", 6)
    shadow.use(keys[:4], 0.0)
    shadow.use(keys, 1.0)
    assert shadow.use(keys, 2.0) == 0
    shadow.store_due([keys[5]], 3.0)
    assert shadow.use(keys, 4.0) == 6
    assert shadow.use([*keys[:4], b"else"], 5.0) == 4


class LatestFirst(KeyedPolicy):
    """What was used last goes first, or does not come in."""

    is_selective = True

    def __init__(self):
        super().__init__(lambda node: (-node.used_at, 0.0))


@pytest.mark.interpreted
def test_what_would_be_the_first_to_go_does_not_come_in():
    """Where the order is selective."""
    shadow = LazyShadowCache(LatestFirst(), 400, 100, 0)
    held, other = chain("held", 4), chain("other", 4)
    for now, keys in ((0.0, held), (2.0, other)):
        shadow.use(keys, now)
        shadow.store_due(reversed(keys), now + 1.0)
    assert 4 == shadow.use(held, 4.0)
    assert 0 == shadow.use(other, 5.0)


def test_a_path_that_is_too_long_leaves_the_others_alone():
    """Where resuming takes a checkpoint; what fits of it is stored where it takes
    none."""
    for checkpoint_bytes, num_hits in ((50, 0), (0, 10)):
        shadow = LazyShadowCache(LruPolicy(), 1000, 100, checkpoint_bytes)
        short, long = chain("short", 3), chain("long", 20)
        for keys in (short, long):
            shadow.use(keys, 0.0)
            shadow.store_due(reversed(keys), 1.0)
        assert shadow.use(long, 2.0) == num_hits
        assert shadow.use(short, 3.0) == (3 if checkpoint_bytes else 0)


def test_a_judge_of_a_lazy_cache_hears_when_chunks_are_due():
    """One that stored at once would find everything that comes back at once."""
    claimed = {}
    for is_lazy in (False, True):
        judge = OrderJudge(40 * 100, 100, 0, is_lazy=is_lazy)
        for number in range(120):
            keys = chain(str(number // 2), 8)
            judge.observe(Prompt(keys, 0, 0), float(number))
        claimed[is_lazy] = judge._hits.trusted(
            {"lru": 1, "lru-2": 1, "lrfu": 1, "lhd": 1}
        )
    assert set(claimed[True].values()) == {0.0}
    assert min(claimed[False].values()) > 300.0
