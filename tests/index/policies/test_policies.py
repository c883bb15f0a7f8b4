"""Each policy keeps what it promises to keep; the shadow says what it would."""

import random

import pytest
from full_device import FullDevice
from hypothesis import given, settings
from hypothesis import strategies as st
from layouts import FULL, WINDOW, group, layout_of

from kvcellar.attention.hybrid import HybridRules
from kvcellar.config import EVICTION_POLICIES, SELECTIVE_POLICIES, Settings
from kvcellar.core import events
from kvcellar.core.offloader import Offloader
from kvcellar.index.checks import check_index
from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.adaptive import AdaptivePolicy
from kvcellar.index.policies.choose import make_policy
from kvcellar.index.policies.classes import PriorityClasses
from kvcellar.index.policies.judge import JUDGED_EVERY, LEAN_LHD, OrderJudge
from kvcellar.index.policies.keyed import KeyedPolicy
from kvcellar.index.policies.lrfu import LrfuPolicy
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.index.policies.lru2 import Lru2Policy
from kvcellar.index.policies.policy import Prompt
from kvcellar.index.policies.shadow import ShadowCache
from kvcellar.layout.host import plan_geometry

SHADOWED = {"lru": LruPolicy, "lru-2": Lru2Policy}
LAYOUT = layout_of(group(0, FULL, 512, None, 100), hash_tokens=512, alignment=512)
WINDOWED = layout_of(
    group(0, FULL, 512, None, 100),
    group(1, WINDOW, 512, 513, 100),
    hash_tokens=512,
    alignment=512,
)


class Host:
    """A planner whose copies end at once; prompts are lists of chunk keys."""

    def __init__(self, policy, num_chunks, layout=LAYOUT):
        geometry = plan_geometry(layout, 100 * num_chunks)
        assert geometry.arena_bytes == 100 * num_chunks
        settings = Settings(eviction_policy=policy, spaced_checkpoint_share=0.0)
        self.planner = Offloader(layout, geometry, settings)
        self.now = 0.0

    def serve(self, keys):
        """Ask for a prompt, compute it, end it; the chunks that were there."""
        self.now += 1.0
        request_id = f"r{self.now}"
        num_tokens = 512 * len(keys)
        (promise,) = self.handle(events.LookUp(request_id, keys, num_tokens + 1, 0))
        event = events.TokensComputed(
            request_id, keys, num_tokens + 1, 0, num_tokens, FullDevice()
        )
        for action in self.handle(event):
            self.handle(events.JobDone(action.job_id))
        self.handle(events.RequestFinished(request_id))
        check_index(self.planner.index)
        return promise.external_tokens // 512

    def handle(self, event):
        return self.planner.handle(event, self.now)


def paths():
    """Prompts over a small tree: a path is its own prefixes' names."""
    steps = st.lists(st.integers(0, 2), min_size=1, max_size=7)
    return steps.map(lambda s: [bytes(s[: i + 1]) for i in range(len(s))])


@settings(max_examples=60, deadline=None)
@given(prompts=st.lists(paths(), max_size=40), num_chunks=st.integers(7, 16))
@pytest.mark.parametrize("order", ["lru", "lru-2"])
def test_a_shadow_hits_what_the_index_hits(order, prompts, num_chunks):
    """Prompt after prompt, whatever they share."""
    host = Host(order, num_chunks)
    shadow = ShadowCache(SHADOWED[order](), 100 * num_chunks, 100, 0)
    for keys in prompts:
        assert shadow.use(keys, host.now + 1.0) == host.serve(keys)


def test_a_shadow_of_fading_uses_is_close_to_the_index():
    """A chunk that returns brings its own uses to the index, its run's to the shadow;
    so the sums differ a little, and the hits hardly."""
    rng, paths = random.Random(5), [[]]
    host, shadow = Host("lrfu", 60), ShadowCache(LrfuPolicy(), 6000, 100, 0)
    hits = [0, 0]
    for _ in range(600):
        base = paths[min(len(paths) - 1, int(rng.expovariate(0.1)))]
        base = base[: rng.randint(0, len(base))]
        path = [*base, *(rng.randrange(4) for _ in range(rng.randint(1, 8)))]
        paths.insert(0, path)
        keys = [bytes(path[: i + 1]) for i in range(len(path))]
        hits[0] += shadow.use(keys, host.now + 1.0)
        hits[1] += host.serve(keys)
    assert hits[1] > 500
    assert abs(hits[0] - hits[1]) <= 0.03 * hits[1]


@pytest.mark.interpreted
def test_a_shadow_gives_up_replaced_checkpoints_as_the_index_does():
    """Sessions that grow, and now and then branch off earlier, where resuming takes a
    checkpoint; one that kept them all would find much less."""
    rng, sessions = random.Random(6), [[n] for n in range(12)]
    host = Host("lru", 128, WINDOWED)
    shadow, keeping = (ShadowCache(LruPolicy(), 12_800, 100, 100) for _ in range(2))
    keeping._take_replaced = lambda: None
    found = {host: 0, shadow: 0, keeping: 0}
    for number in range(600):
        which = rng.randrange(12)
        path = sessions[which] if len(sessions[which]) < 12 else [which]
        path = path[: rng.randint(1, len(path))] if rng.random() < 0.1 else path
        sessions[which] = path = [*path, 100 + number]
        keys = [str(path[: i + 1]).encode() for i in range(len(path))]
        for cache in (shadow, keeping):
            found[cache] += cache.use(keys, host.now + 1.0)
        found[host] += host.serve(keys)
    assert found[host] > 1000
    assert abs(found[shadow] - found[host]) <= 0.03 * found[host]
    assert found[keeping] < 0.9 * found[host]


class FewestUses(KeyedPolicy):
    """Of equals the longest unused goes first."""

    def __init__(self, *, is_selective):
        super().__init__(lambda node: (node.num_uses, node.last_use))
        self.is_selective = is_selective


@pytest.mark.interpreted
@pytest.mark.parametrize("checkpoint_bytes", [0, 100])
@pytest.mark.parametrize(
    ("is_selective", "found"), [(True, [4, 0, 4]), (False, [0] * 3)]
)
def test_a_newcomer_does_not_come_into_the_shadow_of_a_selective_order(
    checkpoint_bytes, is_selective, found
):
    """It is worth less than what is there; any other order lets it in."""
    order = FewestUses(is_selective=is_selective)
    shadow = ShadowCache(order, 400 + checkpoint_bytes, 100, checkpoint_bytes)
    old, new = chain("old", 4), chain("new", 4)
    assert [0, 4, 0] == [shadow.use(keys, 0.0) for keys in (old, old, new)]
    assert found == [shadow.use(keys, 1.0) for keys in (old, new, old)]


@pytest.mark.interpreted
@pytest.mark.parametrize("checkpoint_bytes", [0, 100])
def test_a_shadow_remembers_the_use_of_what_did_not_come_in(checkpoint_bytes):
    """So it comes in the second time, when it has been used as often."""
    order = FewestUses(is_selective=True)
    shadow = ShadowCache(order, 400 + checkpoint_bytes, 100, checkpoint_bytes)
    old, new = chain("old", 4), chain("new", 4)
    prompts = (old, old, new, new, new, old)
    assert [0, 4, 0, 0, 4, 0] == [
        shadow.use(keys, float(now)) for now, keys in enumerate(prompts)
    ]


def test_adaptive_is_selective_as_long_as_the_order_is_that_it_follows():
    """LRU is not, LHD is; also among priorities."""
    judge = OrderJudge(40 * 100, 100, 0)
    policy = AdaptivePolicy(judge)
    classes = PriorityClasses(policy)
    for order, is_selective in (("lru", False), ("lhd", True), ("lru", False)):
        judge._follow(order, 0.0)
        assert is_selective == policy.is_selective == classes.is_selective


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_the_policies_that_are_named_selective_are(name):
    """`adaptive` may be: an order that it may follow is."""
    policy = make_policy(name, HybridRules(WINDOWED), 100 * 100)
    found = {policy.is_selective}
    if isinstance(policy, AdaptivePolicy):
        for order in policy._judge._shadows:
            policy._judge._follow(order, 0.0)
            found.add(policy.is_selective)
    assert (name in SELECTIVE_POLICIES) == (True in found)


def test_a_shadow_that_gave_up_a_checkpoint_resumes_above_it():
    """And has one there again once a prompt has left there."""
    shadow, keys = ShadowCache(LruPolicy(), 900, 100, 100), chain("a", 6)
    shadow.use(keys[:2], 0.0)
    shadow.use(keys[:4], 1.0)
    shadow.use(keys, 2.0)  # six chunks, and no room for three checkpoints and another
    shadow.use([b"else"], 3.0)
    assert shadow.use([*keys[:2], b"b"], 4.0) == 0
    assert shadow.use([*keys[:2], b"c"], 5.0) == 2


def chain(name, length):
    """A prompt that shares nothing with others."""
    return [f"{name}:{i}".encode() for i in range(length)]


@pytest.mark.parametrize("policy", ["lru-2", "lrfu", "s3-fifo", "lhd", "adaptive"])
def test_a_scan_does_not_push_out_what_comes_back(policy):
    """A prompt used again and again survives a stream of prompts used once; in LRU
    it does not."""
    hits = {}
    for name in (policy, "lru"):
        host, hits[name] = Host(name, 40), 0
        for number in range(300):
            host.serve(chain(f"once{number}", 8))
            if number % 6 == 5:
                hits[name] += host.serve(chain("again", 4))
    assert 0 == hits["lru"]
    assert hits[policy] > 80


def seen(keys, num_loaded=0):
    return Prompt(keys, 0, num_loaded)


def test_a_policy_that_adapts_leaves_recency_where_counting_is_best():
    """A stream that favours counting, and then one that favours recency."""
    judge = OrderJudge(40 * 100, 100, 0)
    for number in range(400):
        judge.observe(seen(chain(f"once{number}", 8)), float(number))
        if number % 6 == 5:
            judge.observe(seen(chain("again", 4)), number + 0.5)
    assert judge.order == "lhd"
    rng = random.Random(0)
    for number in range(6000):
        recent = number // 4 + rng.randint(0, 3)
        judge.observe(seen(chain(f"walk{recent}", 8)), 1000.0 + number)
    assert judge.order in ("lru", "lhd")  # the latter learns to do the same


@pytest.mark.parametrize(("factor", "order"), [(1, "lhd"), (2, "lru")])
def test_what_the_shadow_of_lru_does_not_foresee_must_be_beaten_too(factor, order):
    """LHD is ahead by what is asked for again and again; LRU finds more than its
    shadow says, or just that."""
    judge = OrderJudge(40 * 100, 100, 0)
    for number in range(400):
        judge.observe(seen(chain(f"pair{number}", 8)), float(number))
        judge.observe(seen(chain(f"pair{number}", 8), 8 * factor), number + 0.1)
        if number % 6 == 5:
            judge.observe(seen(chain("again", 4)), number + 0.5)
    assert judge.order == order


@pytest.mark.parametrize("name", EVICTION_POLICIES)
def test_every_name_has_a_policy(name):
    """And an unknown one has none."""
    assert make_policy(name, HybridRules(LAYOUT), 1000).victim() is None
    with pytest.raises(ValueError, match="no eviction policy 'fifo'"):
        make_policy("fifo", HybridRules(LAYOUT), 1000)


def test_a_shadow_that_promises_too_much_is_not_followed_for_long():
    """Counting claims more than LRU, but what it claims does not come true."""
    judge, orders = OrderJudge(40 * 100, 100, 0), []
    for number in range(2000):
        num_loaded = 4 if judge.order == "lru" else 0
        judge.observe(seen(chain(f"once{number}", 8)), float(number))
        judge.observe(seen(chain("often", 4), num_loaded), number + 0.2)
        if number % 6 == 5:
            judge.observe(seen(chain("again", 4)), number + 0.5)
        orders.append(judge.order)
    assert {"lru"} < set(orders)
    assert orders[1000:].count("lru") > 900


def test_what_another_order_has_kept_is_not_held_against_the_one_that_is_followed():
    """A shadow's word counts for what was used since its order was followed."""
    judge = OrderJudge(40 * 100, 100, 0)
    judge.observe(seen(chain("again", 4)), 0.0)
    judge._follow("lhd", 1.0)
    judge.observe(seen(chain("again", 4)), 2.0)
    assert judge._trust["lhd"].ratio() == 1.0
    judge.observe(seen(chain("again", 4)), 3.0)
    assert judge._trust["lhd"].ratio() < 1.0


def test_an_untried_order_with_as_few_checkpoints_is_believed_as_lru_is():
    """What LRU's shadow promises too much, that one's does too; nothing is known of
    the one that keeps more."""
    judge, keys = OrderJudge(40 * 100, 100, 50), chain("again", 8)
    for number in range(JUDGED_EVERY - 1):
        judge.observe(seen(keys, 4), float(number))
    ratios = judge._ratios()
    assert ratios[LEAN_LHD] == ratios["lru"] < 0.97
    assert ratios["lhd"] == 1.0


def test_where_chunks_suffice_no_order_is_judged_twice():
    """Orders that differ only in what becomes of checkpoints are the same there."""
    assert LEAN_LHD not in OrderJudge(40 * 100, 100, 0)._ratios()


def test_a_sample_says_how_far_the_device_and_host_memory_reached():
    """One key in four; what was loaded is what lies behind the device's part."""
    prompt = Prompt([bytes([i]) for i in range(10)], 3, 6)
    assert prompt.sampled(4) == Prompt([b"\x03", b"\x07"], 0, 2)
    assert prompt.sampled(1) is prompt


@pytest.mark.parametrize("make", [LruPolicy, Lru2Policy, LrfuPolicy])
@given(
    uses=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12),
    last=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_who_would_be_next_is_the_victim_once_added(make, uses, last):
    """Asked of a node that is not there yet; the answer changes nothing."""
    policy = make()
    for time, depth in uses:
        policy.add(used(time, depth))
    before, node = policy.victim(), used(*last)
    would_be = policy.would_be_next(node)
    assert before is policy.victim()
    policy.add(node)
    assert would_be == (policy.victim() is node)


def used(time, depth):
    node = Evictable(depth, float(time))
    node.count_use(float(time))
    return node
