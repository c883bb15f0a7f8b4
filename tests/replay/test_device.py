"""The tree that stands for the engine's free queue, against a queue of blocks."""

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from kvcellar.index.evictable import Evictable
from kvcellar.index.policies.lru import LruPolicy
from kvcellar.replay.device import DeviceCache
from kvcellar.replay.device_leaves import DeviceLeaves, DeviceNode


class BlockQueue:
    """One block per chunk: what vLLM's pool does, request after request.

    Blocks of a finished request go to the end of the queue, the deepest first; room
    is taken from its head.
    """

    def __init__(self, num_blocks):
        self.num_unused = num_blocks
        self.queue = OrderedDict()

    def run(self, path):
        """Use ``path``; the number of leading chunks that were there."""
        hits = 0
        while hits < len(path) and path[hits] in self.queue:
            hits += 1
        for key in path[:hits]:
            del self.queue[key]
        for _ in path[hits:]:
            if self.num_unused:
                self.num_unused -= 1
            else:
                self.queue.popitem(last=False)
        for key in path[hits:]:  # a duplicate of what was cached behind a gap
            assert key not in self.queue
        for key in reversed(path):
            self.queue[key] = None
        return hits


def run(device, path, now):
    """The same on the tree."""
    node = device.known(path, 1, len(path))
    hits = node.depth
    device.pin(node)
    assert device.reserve(len(path) - hits, now)
    node, num_new = device.add_path(node, path[hits:])
    assert len(path) - hits == num_new
    device.unpin(node, now)
    return hits


def resume_depth(device, path):
    return device.resume_point(device.known(path, 1, len(path))).depth


def paths():
    """Prompts over a small tree: a path is its own prefixes' names."""
    steps = st.lists(st.integers(0, 2), min_size=1, max_size=7)
    return steps.map(lambda s: [bytes(s[: i + 1]) for i in range(len(s))])


@settings(max_examples=300)
@given(prompts=st.lists(paths(), max_size=40), num_blocks=st.integers(7, 20))
def test_hits_are_those_of_a_queue_of_blocks(prompts, num_blocks):
    """Whatever prompts come, request after request, both hold the same blocks."""
    queue, device = (
        BlockQueue(num_blocks),
        DeviceCache(num_blocks, 1, 0, has_windows=False),
    )
    for now, path in enumerate(prompts, start=1):
        assert queue.run(path) == run(device, path, float(now))
        assert set(queue.queue) == set(device.nodes)
        assert queue.num_unused == device.num_free


def test_what_is_in_use_is_not_given_away():
    """With four of five rows pinned only one chunk can be taken."""
    device = DeviceCache(5, 1, 0, has_windows=False)
    path = [b"a", b"ab", b"abc", b"abcd"]
    run(device, path, 1.0)
    node = device.known(path, 1, 4)
    device.pin(node)
    assert not device.reserve(2, 2.0)
    assert (True, 0) == (device.reserve(1, 2.0), device.num_free)
    device.unpin(node, 3.0)
    assert device.reserve(2, 3.0)
    assert {b"a", b"ab"} == set(device.nodes)


def test_windows_go_before_the_chunks_of_their_request():
    """Without the windows at its end a prompt cannot be resumed."""
    device = DeviceCache(6, 1, 2, has_windows=True)
    path = [b"a", b"ab"]
    run(device, path, 1.0)
    assert 0 == resume_depth(device, path)
    assert device.reserve(2, 1.0)
    assert device.keep_tail((device.nodes[b"ab"],), 1.0)
    assert 2 == resume_depth(device, path)
    assert device.reserve(3, 2.0)
    assert (0, {b"a", b"ab"}) == (resume_depth(device, path), set(device.nodes))


@settings(max_examples=200)
@given(
    prompts=st.lists(st.tuples(paths(), st.booleans()), max_size=25),
    num_rows=st.integers(0, 12),
)
def test_rows_taken_at_once_are_those_taken_one_by_one(prompts, num_rows):
    """A run of chunks that leaves together leaves in the order of the queue."""
    devices = [DeviceCache(40, 1, 2, has_windows=True) for _ in range(2)]
    for device in devices:
        for now, (path, keeps_tail) in enumerate(prompts, start=1):
            run(device, path, float(now))
            node = device.nodes[path[-1]]
            device.pin(node)
            if keeps_tail and device.reserve(2, float(now)):
                device.give_back(0 if device.keep_tail((node,), float(now)) else 2)
            device.unpin(node, float(now))
        device.num_free = 0
    at_once, one_by_one = devices
    num_rows = min(num_rows, at_once.num_evictable)
    assert at_once.reserve(num_rows, 99.0)
    for _ in range(num_rows):
        assert one_by_one.reserve(1, 99.0)
    assert set(one_by_one.nodes) == set(at_once.nodes)
    assert [n.key for n in one_by_one._tails] == [n.key for n in at_once._tails]
    assert one_by_one.num_free == at_once.num_free


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 3)), max_size=60
    )
)
def test_leaves_go_in_the_order_of_the_policy_that_serves(steps):
    """Whatever comes and goes, ``LruPolicy`` would name the same victim."""
    leaves, policy = DeviceLeaves(), LruPolicy()
    here, twins = {}, {}
    for name, last_use, depth in steps:
        if name in here:
            leaves.remove(here.pop(name))
            policy.remove(twins.pop(name))
        else:
            node = here[name] = DeviceNode(bytes([name]), None)
            node.last_use, node.depth = float(last_use), depth
            twin = twins[name] = Evictable(depth, float(last_use))
            is_first = (node.last_use, -node.depth) < leaves.first_place()
            leaves.add(node)
            policy.add(twin)
            assert is_first == (policy.victim() is twin)
        first = leaves.first()
        assert (first and twins[first.key[0]]) is policy.victim()


def test_windows_older_than_the_rest_of_a_path_go_before_it():
    """A run of chunks that leaves stops where something else was released earlier."""
    device = DeviceCache(9, 1, 2, has_windows=True)
    run(device, [b"a", b"ab"], 1.0)
    run(device, [b"x"], 3.0)
    assert device.reserve(2, 3.0)
    assert device.keep_tail((device.nodes[b"x"],), 3.0)
    run(device, [b"a"], 5.0)
    run(device, [b"x", b"xy"], 9.0)
    assert (3, 6) == (device.num_free, device.num_evictable)
    assert device.reserve(6, 10.0)
    assert {b"a", b"x", b"xy"} == set(device.nodes)
    assert 0 == resume_depth(device, [b"x", b"xy"])
